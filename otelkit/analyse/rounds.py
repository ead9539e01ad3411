"""One round: read what is new, look at the changes that are due, and have the verdicts ready to be shown."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from otelkit.analyse import looks, reading
from otelkit.analyse.looks import Judgement
from otelkit.analyse.restore import restored
from otelkit.analyse.state import Movement, State
from otelkit.causal import Explanation, Finding, Verdict, explain
from otelkit.errors import BackendUnreachable, DataError
from otelkit.model import ParameterChange
from otelkit.query import Panel, Source
from otelkit.query.connection import Api
from otelkit.spec import Spec

logger = logging.getLogger("otelkit.analyse")

_SCRAPE_SLACK_SECONDS: Final = 2.0
"""What a scrape and its storing may take."""
_FEWEST_STEPS_BEFORE: Final = 12
"""Steps before a change without which nothing can be said about it any more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a round and the page may grow to."""

    changes_of_a_service: int = 20
    """The newest changes of each service that are kept."""
    changes: int = 1000
    """The newest changes of all services together that are kept."""
    services: int = 8
    """Services with due changes that are analysed in one round; the others wait for the next."""
    seconds: float = 10.0
    """CPU time after which a round begins with no further service."""
    rivals: int = 40
    """Changes of a service, the newest, that are weighed against each other."""
    keep_seconds: float = 6 * 3600.0
    """Age from which a change leaves the page."""


class Watcher(Protocol):
    """Counts what happens in rounds."""

    def flipped(self, service: str, old: str, new: str) -> None: ...

    def evicted(self, service: str, changes: int) -> None: ...

    def fault(self, service: str) -> None: ...


class Unwatched:
    """Counts nothing."""

    def flipped(self, service: str, old: str, new: str) -> None:
        pass

    def evicted(self, service: str, changes: int) -> None:
        pass

    def fault(self, service: str) -> None:
        pass


class Analyser:
    """Judges the changes that Prometheus knows of, and begins with what an earlier one had found.

    Args:
        source: Where series and changes are read from.
        api: The same server, for recorded values of all services at once.
        watcher: Counts flips, evictions and faults.
        clock: Unix seconds.
    """

    def __init__(
        self,
        source: Source,
        api: Api,
        spec: Spec,
        *,
        limits: Limits = Limits(),
        watcher: Watcher | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._api, self._spec = source, api, spec
        self._limits = limits
        self._watcher = watcher or Unwatched()
        self._clock = clock
        self._step = reading.grid_step(spec.scrape_interval.seconds)
        self._known: dict[str, Judgement] = {}
        """By change id."""
        self._analysed: dict[str, float] = {}
        """Service -> Unix seconds up to which it was last analysed."""
        self._movements: dict[str, Movement] = {}
        self._shown: dict[str, str] = {}
        """Change id -> service, for the changes of the last round."""
        self._begun = False
        self.state = State(step=self._step)

    def round(self) -> State:
        """Do one round and give what is known after it.

        Raises:
            BackendUnreachable: Prometheus did not answer; ``state`` is then what was known before.
        """
        now = self._clock()
        if not self._begun:
            before = restored(self._api, now, self._limits.keep_seconds)
            self._known, self._movements = dict(before.judgements), dict(before.movements)
            self._begun = True
        slack = self._spec.scrape_interval.seconds + _SCRAPE_SLACK_SECONDS
        end = math.floor((now - slack) / self._step) * self._step
        found = self._source.changes(now - self._limits.keep_seconds, now)
        kept = self._kept(found, end)
        due = [name for name, some in kept.items() if any(self._is_due(one, end) for one in some)]
        newest = {name: max(one.first_seen for one in kept[name] if self._is_due(one, end)) for name in due}
        # Newest first would be the kindest; but those with ever new changes must not keep the others waiting.
        due.sort(key=lambda name: (self._analysed.get(name, 0.0), -newest[name]))
        self._publish(kept, end, len(due))
        done = self._analyse(due[: self._limits.services], kept, found, end) if due else 0
        self._remember_p99(kept, now)
        self._publish(kept, end, len(due) - done)
        return self.state

    def _publish(self, kept: Mapping[str, Sequence[ParameterChange]], end: float, waiting: int) -> None:
        judgements = {name: tuple(map(self._judgement, some)) for name, some in kept.items()}
        self._movements = {
            name: self._movements.get(name, Movement()).with_causes(some) for name, some in judgements.items()
        }
        self.state = State(judgements, self._movements, data_until=end, step=self._step, waiting=waiting)

    def _kept(self, found: Sequence[ParameterChange], end: float) -> dict[str, list[ParameterChange]]:
        """The newest changes of each service, oldest first, without those of which nothing can be said."""
        newest = sorted(found, key=lambda one: -one.first_seen)
        number: Counter[str] = Counter()
        kept: dict[str, list[ParameterChange]] = {}
        shown: dict[str, str] = {}
        for change in newest:
            if self._is_out_of_reach(change, end):
                continue
            number[change.service] += 1
            if (
                number[change.service] <= self._limits.changes_of_a_service
                and len(shown) < self._limits.changes
            ):
                shown[change.id] = change.service
                kept.setdefault(change.service, []).append(change)
        there = {change.id for change in found}
        evicted = Counter(
            service for id_, service in self._shown.items() if id_ in there and id_ not in shown
        )
        for service, changes in evicted.items():
            self._watcher.evicted(service, changes)
        self._shown = shown
        self._analysed = {name: at for name, at in self._analysed.items() if name in kept}
        self._known = {id_: one for id_, one in self._known.items() if id_ in shown}
        return {service: some[::-1] for service, some in sorted(kept.items())}

    def _is_out_of_reach(self, change: ParameterChange, end: float) -> bool:
        """Whether a change was never judged, and lies before the series that are read now."""
        reach = end - reading.span_seconds(self._step) + _FEWEST_STEPS_BEFORE * self._step
        return change.first_seen < reach and self._judgement(change).finding is None

    def _judgement(self, change: ParameterChange) -> Judgement:
        known = self._known.get(change.id)
        if known is None:
            return Judgement(change)
        # The newest reports of a change may have prolonged its rollout.
        finding = known.finding and replace(known.finding, change=change)
        return replace(known, change=change, finding=finding)

    def _is_due(self, change: ParameterChange, end: float) -> bool:
        due = self._judgement(change).due(self._step)
        return due is not None and due <= end

    def _analyse(
        self,
        services: Sequence[str],
        kept: Mapping[str, Sequence[ParameterChange]],
        found: Sequence[ParameterChange],
        end: float,
    ) -> int:
        """Look at the due changes of services; how many of them there was time for."""
        start = end - math.floor(reading.span_seconds(self._step) / self._step) * self._step
        names = self._source.service_names(start, end)
        read = reading.Reading(self._source, start, end, self._step, names)
        began = time.thread_time()
        for number, service in enumerate(services):
            if number and time.thread_time() - began > self._limits.seconds:
                return number
            rivals = [one for one in found if one.service == service and one.first_seen > start]
            explanation = self._explain(service, read, rivals[-self._limits.rivals :])
            due = [change for change in kept[service] if self._is_due(change, end)]
            self._look(service, due, explanation, end)
            self._analysed[service] = end
            self._publish(kept, end, len(services) - number - 1)
        return len(services)

    def _explain(
        self, service: str, read: reading.Reading, rivals: Sequence[ParameterChange]
    ) -> Explanation | str:
        """What is found; a sentence where nothing can be."""
        try:
            panel = read.panel(service, self._spec)
            explanation = explain(panel, service, rivals)
        except BackendUnreachable:
            raise
        except DataError as error:
            return f"Nothing could be read: {error.message}."
        except Exception:
            # One service's data must not keep the others' verdicts back.
            logger.exception("%s: the analysis failed", service)
            self._watcher.fault(service)
            return "The analysis failed; the analyser's log has the error."
        self._remember_latency(service, panel)
        return explanation

    def _look(
        self, service: str, due: Sequence[ParameterChange], found: Explanation | str, end: float
    ) -> None:
        why = found if isinstance(found, str) else "More changes came at once than are weighed together."
        findings = () if isinstance(found, str) else found.findings
        known = {finding.change.id: finding for finding in findings}
        for change in due:
            before = self._judgement(change)
            finding = known.get(change.id) or Finding(change, Verdict.CANNOT_SEPARATE, why)
            # Placebos are for a page that draws them, and weigh most of what is kept of a change.
            after = looks.look(before, replace(finding, placebo_effects=None), end, self._step)
            if looks.flipped(before, after):
                self._watcher.flipped(service, before.verdict, after.verdict)
                logger.info("%s: %s: %s, before that %s", service, change.id, after.verdict, before.verdict)
            self._known[change.id] = after
        if not isinstance(found, str):
            self._movements[service] = replace(
                self._movements.get(service, Movement()),
                p99_before=found.p99_before,
                p99_after=found.p99_after,
                unexplained=found.unexplained_seconds,
            )

    def _remember_latency(self, service: str, panel: Panel) -> None:
        """P99 at the end of the series, for where nothing is recorded."""
        p99 = panel.services[service].quantiles.get(0.99)
        known = np.empty(0) if p99 is None else p99[np.isfinite(p99)]
        if len(known):
            movement = self._movements.get(service, Movement())
            self._movements[service] = replace(movement, p99_now=float(known[-1]))

    def _remember_p99(self, services: Iterable[str], now: float) -> None:
        for service, value in reading.p99_now(self._api, self._spec, services, now).items():
            movement = self._movements.get(service, Movement())
            self._movements[service] = replace(movement, p99_now=value)
