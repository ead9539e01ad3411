"""OTLP over gRPC, with requests that are encoded already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from otelkit.emit.otlp.sender import Reply, accepted

RETRYABLE: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""RESOURCE_EXHAUSTED joins them where the collector says when to come back, as the specification has it."""
_RETRY_INFO: Final = "google.rpc.retryinfo-bin"
_STATUS_DETAILS: Final = "grpc-status-details-bin"
_abandoned: Final[list[object]] = []
"""Channels of a parent process, kept so that a forked child doesn't tear them down."""


class GrpcSender:
    """Calls ``Export`` of one service, over a channel that is kept.

    Args:
        address: as the channel takes it, for messages.
        method: full name of the method, ``/package.Service/Export``.
        metadata: sent with each call.
        new_channel: makes the channel, with the user's credentials and compression.
    """

    def __init__(
        self,
        address: str,
        method: str,
        metadata: Sequence[tuple[str, str]],
        new_channel: Callable[[], grpc.Channel],
    ) -> None:
        self._address = address
        self._method = method
        self._metadata = tuple(metadata)
        self._new_channel = new_channel
        self._channel: grpc.Channel | None = None
        self._export: Any = None

    @property
    def address(self) -> str:
        return self._address

    def send(self, body: bytes | memoryview, timeout: float) -> Reply:
        if self._channel is None:
            self._channel = self._new_channel()
            # No serialisers: request and reply are bytes.
            self._export = self._channel.unary_unary(self._method)
        try:
            return accepted(self._export(bytes(body), timeout=timeout, metadata=self._metadata))
        except grpc.RpcError as error:
            return _refused(error)
        except ValueError as error:  # a channel that was closed meanwhile
            return Reply(delivered=False, message=str(error))

    def close(self) -> None:
        channel, self._channel, self._export = self._channel, None, None
        if channel is not None:
            channel.close()

    def after_fork(self) -> None:
        if self._channel is not None:
            _abandoned.append((self._channel, self._export))
        self._channel = self._export = None


def _refused(error: Any) -> Reply:
    code: grpc.StatusCode = error.code()
    delay = _retry_delay(error.trailing_metadata() or ())
    return Reply(
        delivered=False,
        retryable=code in RETRYABLE or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and delay is not None),
        retry_after=delay,
        message=f"{code.name}: {error.details()}",
    )


def _retry_delay(trailers: Sequence[tuple[str, Any]]) -> float | None:
    """Seconds from a ``RetryInfo``, on its own or among the details of the status; None without one."""
    metadata = dict(trailers)
    try:
        if _RETRY_INFO in metadata:
            return _seconds(RetryInfo.FromString(metadata[_RETRY_INFO]))
        if _STATUS_DETAILS in metadata:
            for detail in Status.FromString(metadata[_STATUS_DETAILS]).details:
                info = RetryInfo()
                if detail.Unpack(info):
                    return _seconds(info)
    except DecodeError:
        return None
    return None


def _seconds(info: Any) -> float:
    return float(info.retry_delay.seconds) + float(info.retry_delay.nanos) / 1e9
