"""One explanation whose verdicts are those that the analyser's looks would have led to: the same change gets
the same verdict from both, and whenever it is asked about.

``explain`` remembers nothing of what it said before. But the looks are at fixed ages of a change, and the
data of each are still there, so it can look again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from otelkit.analyse.looks import looked_back, looks
from otelkit.causal import Explanation, Finding, Verdict, explain, summary
from otelkit.causal.windows import cut
from otelkit.model import ParameterChange
from otelkit.query import Panel

MOST_LOOKED_BACK: Final = 20
"""The newest changes, of all services that are explained, that are looked at by themselves. Each look costs
as much as explaining a service; of older ones the verdict is that of all data."""


def settled(
    panel: Panel, service: str, changes: Sequence[ParameterChange], *, since: float = float("-inf")
) -> Explanation:
    """Explain a service; what it is too early for is "cannot separate" with the time at which it is known.

    Nothing but the data counts, so the same data always give the same answer.

    Args:
        panel: as in ``causal.explain``.
        service: the same.
        changes: the same.
        since: changes made earlier than this (Unix seconds) are not looked at by themselves.

    Raises:
        DataError: the service is not in the panel.
    """
    whole = explain(panel, service, changes)
    earlier = Earlier(panel, service, changes, {whole.end: whole})
    since = max(since, whole.start, looked_back_since([one.change for one in whole.findings]))
    findings = [
        _settled(one, earlier, whole.end, panel.step_seconds) if since < one.change.first_seen else one
        for one in whole.findings
    ]
    return summary.explanation(panel, service, findings)


def looked_back_since(changes: Sequence[ParameterChange]) -> float:
    """Unix seconds after which changes are looked at by themselves, so that no more are than can be waited
    for."""
    times = sorted({(one.service, one.id, one.first_seen) for one in changes}, key=lambda key: key[2])
    return times[-MOST_LOOKED_BACK - 1][2] if len(times) > MOST_LOOKED_BACK else float("-inf")


class Earlier:
    """What the causal engine finds in the data up to earlier times; each time is looked at once.

    Args:
        known: explanations that there are already, by the Unix time that their data reach.
    """

    def __init__(
        self,
        panel: Panel,
        service: str,
        changes: Sequence[ParameterChange],
        known: Mapping[float, Explanation] | None = None,
    ) -> None:
        self._panel, self._service, self._changes = panel, service, changes
        times = np.asarray(panel.times, dtype=float)
        self._times = np.sort(times[np.isfinite(times)])
        self._known = dict(known or {})

    def finding(self, change: ParameterChange, at: float) -> Finding | None:
        """What the first data that reach a Unix time say of a change; None where nothing reaches it."""
        later = self._times[self._times >= at]
        found = self._explanation(float(later[0])).findings if len(later) else ()
        key = change.id, change.first_seen
        finding = next((one for one in found if (one.change.id, one.change.first_seen) == key), None)
        return finding and replace(finding, change=change)

    def _explanation(self, until: float) -> Explanation:
        if until not in self._known:
            begun = [
                replace(one, last_seen=min(one.last_seen, until))
                for one in self._changes
                if one.first_seen <= until
            ]
            self._known[until] = explain(cut(self._panel, float("-inf"), until), self._service, begun)
        return self._known[until]


def _settled(finding: Finding, earlier: Earlier, end: float, step: float) -> Finding:
    change = finding.change
    judgement = looked_back(change, lambda at: earlier.finding(change, at), end, step)
    last = looks(change, step)[-1]
    if judgement.finding is not None:
        # Until the effect was measured over all of its minutes, the newest data give its best estimate.
        agreed = end < last and finding.verdict is judgement.finding.verdict
        return finding if agreed else judgement.finding
    so_far = finding.reason if finding.verdict is Verdict.CANNOT_SEPARATE else _so_far(finding)
    return replace(
        finding,
        verdict=Verdict.CANNOT_SEPARATE,
        reason=f"So far: {so_far[:1].lower()}{so_far[1:]}",
        known_at=last,
        mechanism={},
    )


def _so_far(finding: Finding) -> str:
    return f"{finding.verdict.value}, which may change. {finding.reason}"
