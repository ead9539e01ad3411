"""What both middlewares do with a request: its parameters, and the session it belongs to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from otelkit.record.guard import fault
from otelkit.record.parameters import counts
from otelkit.record.parameters.process import ProcessParameters, process
from otelkit.record.parameters.reporting import logger
from otelkit.record.parameters.snapshot import Snapshot
from otelkit.record.session import keep_session, session
from otelkit.record.web.header import ACT, HEADER, HeaderPolicy, HeaderRefusedError, read_header

SESSION_HEADER: Final = "X-Session-Id"


class RequestParameters:
    """Applies ``X-Model-Params`` by a policy, and holds one set of parameters for the time of a request.

    Args:
        policy: what callers may set; None to ignore the header.
        session_header: the header that names the session of a request; empty for none.
    """

    def __init__(
        self,
        policy: HeaderPolicy | None,
        *,
        session_header: str = SESSION_HEADER,
        parameters: ProcessParameters = process,
    ) -> None:
        self.policy = policy
        self.session_header = session_header.lower()
        self._parameters = parameters

    @contextmanager
    def applied(self, values: Sequence[bytes], session_id: str) -> Iterator[None]:
        """Within the block the request's own set and session are in force.

        Args:
            values: of the header, usually none or one.

        Raises:
            HeaderRefusedError: the header is refused, and the policy has such requests rejected.
        """
        with self._parameters.store.hold(self._chosen(values)):
            if session_id:
                with session(session_id):
                    yield
            else:
                yield

    def keep(self, values: Sequence[bytes], session_id: str) -> None:
        """``applied`` until the end of the context that this is called in."""
        self._parameters.store.keep(self._chosen(values))
        if session_id:
            keep_session(session_id)

    def _chosen(self, values: Sequence[bytes]) -> Snapshot:
        try:
            return self._read(values) if values else self._parameters.store.snapshot()
        except HeaderRefusedError:
            raise
        except Exception:
            fault(f"read {HEADER}")
            return self._parameters.store.snapshot()

    def _read(self, values: Sequence[bytes]) -> Snapshot:
        store, policy = self._parameters.store, self.policy
        if policy is None:
            return store.snapshot()
        try:
            if len(values) > 1:
                raise HeaderRefusedError(["is there more than once"])
            wishes = read_header(values[0], policy)
        except HeaderRefusedError as error:
            store.counts.add(counts.HEADER, counts.REFUSED)
            logger.debug("%s refused: %s", HEADER, error)
            if policy.reject:
                raise
            return store.snapshot()
        store.counts.add(counts.HEADER, counts.APPLIED)
        self._parameters.wishes.add(wishes, time.time())
        return store.overriding(wishes, ACT)


def refusal(error: HeaderRefusedError) -> bytes:
    """Body of the answer 400."""
    return json.dumps({"error": f"{HEADER} is refused", "problems": error.problems}).encode()
