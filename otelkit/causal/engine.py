"""``explain``: from a panel and a list of changes to a verdict per change.

The steps, one module each: ``windows`` cuts long data, ``cells`` evens it out (``units``: what was given in
another unit); ``prompts`` leaves to a change what it does through the prompt; ``design`` says what load
does; ``fitting`` measures a step at any moment on every channel, under the noise of ``noise``, in the
tables of ``steps`` (with the products of ``heaviside``), read by ``lookups``; ``shifts`` says what moved
elsewhere; ``pooling`` weighs what one effect on P99 would make of all channels (``beliefs``: what a
parameter's name says of it); ``stepwise`` finds steps, ``credit`` says whose they are; ``placebo`` asks how
strong a claim the same search finds where nothing was changed; ``confounders`` and ``verdicts`` say it in
words; ``summary`` adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.causal import (
    beliefs,
    checks,
    confounders,
    credit,
    fitting,
    placebo,
    pooling,
    prompts,
    reverts,
    shifts,
    stepwise,
    summary,
    verdicts,
)
from otelkit.causal import cells as cell_module
from otelkit.causal.cells import Cells
from otelkit.causal.confounders import Confounder
from otelkit.causal.credit import Claim, Group
from otelkit.causal.evidence import Witness
from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict
from otelkit.causal.mediators import ErrorsPart, through_errors
from otelkit.causal.placebo import Null
from otelkit.causal.verdicts import Estimate
from otelkit.causal.windows import Window, windows
from otelkit.errors import DataError
from otelkit.model import ParameterChange
from otelkit.query.panel import FloatArray, Panel

MARGIN: Final = 0.10
"""Changes of P99 smaller than this share count as no effect."""
FEWEST_CELLS: Final = 12
MOST_CONTROLS: Final = 6
"""Other services that are looked at: a median of more is hardly calmer."""


@dataclass(frozen=True)
class Prepared:
    """A window made ready to be asked about steps."""

    cells: Cells
    witness: Witness
    elsewhere: tuple[str, ...]
    """A sentence for each of the witness's shifts."""
    groups: tuple[Group, ...]
    delay: float
    """Seconds from a call's beginning to its being seen, usually."""


@dataclass(frozen=True)
class Judged:
    """One group of changes with all that was found of it."""

    cells: Cells
    group: Group
    claim: Claim
    effect: Estimate
    channel_effects: FloatArray
    channel_noise: FloatArray
    model: pooling.Model
    pearson_r: float | None
    beside: tuple[Confounder, ...]
    rivals: tuple[Group, ...]
    """All groups of its window, in order."""
    null: Null
    errors: ErrorsPart | None
    too_soon: bool
    """As in :class:`Finding`."""

    @property
    def p_value(self) -> float:
        """Of placebo dates; 1 where something that no placebo date knew could have made the effect."""
        rivals = verdicts.rival_causes(self.group, self.claim, self.effect, self.beside)
        return self.null.p_value(self.claim.net) if all(rival.known for rival in rivals) else 1.0

    @property
    def onset(self) -> float:
        """Unix seconds at which the effect is first seen."""
        return self.cells.time_of(self.claim.onset)


def explain(
    panel: Panel, service: str, changes: Sequence[ParameterChange], *, seed: int = 0, margin: float = MARGIN
) -> Explanation:
    """Say which of ``changes`` moved the P99 latency of ``service``, and by how much.

    Args:
        panel: series of the service and, where there are any, of others.
        service: the service to explain; must be in the panel.
        changes: changes of any service, in any order; those of other services are not judged.
        seed: kept for methods that draw at random; this one does not.
        margin: "no effect" says that an effect of this share of P99 or more, up or down, is improbable.

    Raises:
        DataError: the service is not in the panel, or something is wrong with the data.
    """
    del seed
    own = check(panel, service, changes)
    judged: list[Judged] = []
    findings: dict[int, Finding] = {}
    for window in windows(panel, service, own):
        prepared = prepare(window, service)
        if isinstance(prepared, str):
            for change in window.changes:
                findings[id(change)] = Finding(change, Verdict.CANNOT_SEPARATE, prepared)
            continue
        judged += judge_window(prepared)
        for change in window.changes:
            if not summary.inside(change, prepared.cells):
                findings[id(change)] = summary.outside(change, prepared.cells)
    q_values = verdicts.false_discovery_rates([one.p_value for one in judged])
    decided = []
    for one, q in zip(judged, q_values, strict=True):
        calls = summary.calls_around(one.cells, one.group.place, credit.AROUND_SECONDS)
        short = fitting.short(one.cells)
        cut_off = summary.cut_off(one.cells, one.group.place, fitting.width_of(one.cells))
        decided.append(
            verdicts.decide(
                one.rivals,
                one.group,
                one.claim,
                one.effect,
                q,
                one.beside,
                calls,
                margin,
                short=short,
                cut_off=cut_off,
            )
        )
    onsets = [
        one.onset for one, (verdict, _) in zip(judged, decided, strict=True) if verdict is Verdict.CAUSAL
    ]
    for one, (verdict, reason), q in zip(judged, decided, q_values, strict=True):
        for change in one.group.changes:
            findings[id(change)] = _finding(change, one, verdict, reason, q, onsets)
    return summary.explanation(panel, service, [findings[id(change)] for change in own])


def check(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> list[ParameterChange]:
    """The service's changes in order of time, each once.

    Raises:
        DataError: the service is not in the panel, or something is wrong with the data; all of it is said.
    """
    if service not in panel.services:
        known = ", ".join(sorted(panel.services)) or "none"
        raise DataError(
            f"service {service!r} is not among the series read ({known})", hint="Check the service's name."
        )
    own = [change for change in changes if change.service == service]
    found = checks.problems(panel, service, own)
    if found:
        raise DataError("\n".join(found))
    return unique(own)


def unique(changes: Iterable[ParameterChange]) -> list[ParameterChange]:
    """In order of time, each change once."""
    seen: dict[tuple[str, float], ParameterChange] = {}
    for change in sorted(changes, key=lambda c: (c.first_seen, c.parameter)):
        seen.setdefault((change.id, change.first_seen), change)
    return list(seen.values())


def prepare(window: Window, service: str) -> Prepared | str:
    """Fit a window; a sentence where it can't be judged at all."""
    panel = window.panel
    cells = cell_module.within_bounds(cell_module.build(panel, panel.services[service], steps=window.steps))
    target = cells.channels[cells.target]
    known = np.isfinite(target)
    if known.sum() < FEWEST_CELLS:
        return "There is too little data to compare before with after: read a longer span."
    if np.ptp(target[known]) < 1e-9:
        return "The latency series is constant: it looks cut off or stale, nothing can be learnt from it."
    delay = summary.typical_delay(cells, panel.services[service])
    groups = grouped(
        [c for c in window.changes if summary.inside(c, cells)],
        cells,
        lambda when: summary.typical_delay(cells, panel.services[service], when),
    )
    cells = prompts.without_own(cells, groups, fitting.width_of(cells))
    fitted = fitting.fit(cells, [g.place for g in groups])
    if fitted is None:
        return "Too little of the series is known to fit it: read a longer span."
    witness, elsewhere = with_shifts(Witness(fitted), panel, service)
    quiet = placebo.quiet(witness, [g.place for g in groups], placebo.guard(cells))
    scale = placebo.scale(witness, quiet)
    return Prepared(cells, witness.scaled(scale), tuple(elsewhere), tuple(groups), delay)


def with_shifts(witness: Witness, panel: Panel, service: str) -> tuple[Witness, list[str]]:
    """Add what moved elsewhere, with a sentence for each."""
    cells, model = witness.fitted.cells, witness.fitted.model
    steps = round(cells.seconds / panel.step_seconds)
    called = set(panel.dependencies.get(service, ()))
    found, sentences = [], []

    def built(names: Iterable[str]) -> list[Cells]:
        usable = [panel.services[name] for name in names if checks.has_latency(panel.services[name])]
        return [cell_module.within_bounds(cell_module.build(panel, series, steps=steps)) for series in usable]

    controls = built(control_names(panel, service))
    fleet = shifts.fleet(controls, witness.fitted)
    if fleet is not None:
        found.append(fleet)
        sentences.append("the other services moved at the same moment")
    below = built(name for name in sorted(called) if name in panel.services and name != service)
    shift = shifts.dependency(cells, below, model.channels, cells.levels, witness.fitted.width)
    if shift is not None:
        found.append(shift)
        sentences.append(f"a service that it calls ({', '.join(sorted(called))}) moved at the same moment")
    found.append(shifts.unusual(cells, model.channels, witness.fitted.width))
    sentences.append("load or prompts moved further than usual at the same moment")
    moved = None if fleet is None else fleet.size[:, model.target]
    queues = shifts.queues(cells, moved, witness.fitted.width)
    hidden = shifts.hidden(cells, model.channels, witness.fitted.width)
    return Witness(witness.fitted, tuple(found), queues, hidden), sentences


def control_names(panel: Panel, service: str) -> list[str]:
    """Services that may stand for the fleet: those named, or all that neither call this one nor are called
    by it; the busiest of them, for their series say most."""
    related = {service, *panel.dependencies.get(service, ())}
    related |= {name for name, below in panel.dependencies.items() if service in below}
    named = panel.controls.get(service, tuple(panel.services))
    free = sorted(name for name in named if name in panel.services and name not in related)
    if len(free) <= MOST_CONTROLS:
        return free

    def calls(name: str) -> float:
        series = panel.services[name]
        rates = (
            series.bucket_counts if series.bucket_counts is not None else series.covariates.get("arrivals")
        )
        return float(np.nansum(rates)) if rates is not None else 0.0

    return sorted(sorted(free, key=calls, reverse=True)[:MOST_CONTROLS])


def grouped(changes: Sequence[ParameterChange], cells: Cells, delay: Callable[[float], float]) -> list[Group]:
    """Changes by moment; those that one cell can't tell apart share a group.

    ``delay`` says, in seconds, how late calls were seen before a moment (Unix seconds).
    """
    groups: list[list[ParameterChange]] = []
    for change in changes:
        if groups and change.first_seen - groups[-1][0].first_seen < min(cells.seconds / 2, 10.0):
            groups[-1].append(change)
        else:
            groups.append([change])
    start = float(cells.times[0]) - cells.seconds
    late = [delay(g[0].first_seen) for g in groups]
    return [
        Group(
            changes=tuple(g),
            place=(g[0].first_seen + seen - start) / cells.seconds,
            rollout=max(0.0, *(c.last_seen - c.first_seen for c in g)) / cells.seconds,
            delay=seen / cells.seconds,
            paths=beliefs.favoured(g),
        )
        for g, seen in zip(groups, late, strict=True)
    ]


def judge_window(prepared: Prepared) -> list[Judged]:
    """All that is found of each group of a window."""
    witness, groups, cells = prepared.witness, prepared.groups, prepared.cells
    steps = stepwise.find_steps(witness, groups)
    knowing = witness.knowing([s.movement for s in steps])
    quiet = placebo.quiet(
        witness, [*(g.place for g in groups), *(s.place for s in steps)], placebo.guard(cells)
    )
    null = placebo.null(knowing, quiet, prepared.delay / cells.seconds, [s.place for s in steps])
    owners = {step.owner for step in steps}
    width = witness.fitted.width
    result = []
    for number, group in enumerate(groups):
        others = knowing
        if number in owners:
            others = witness.knowing([s.movement for s in steps if s.owner != number])
        claim = credit.claim(others, groups, number, steps)
        onset = np.array([claim.onset])
        end = None if claim.end is None else np.array([claim.end])
        effects, noise = others.effects(onset, end)
        unseen = others.unseen(onset)
        if unseen is not None:
            # What is hidden of an effect must not be laid to a path that would take it back.
            noise += unseen[:, :, None] ** 2 * np.eye(unseen.shape[1])
        evidence = others.weigh(onset, group.paths, end)
        other = reverts.partner(groups, number)
        if other is not None:
            both = reverts.together(witness, groups, number, other, steps, claim)
            claim, evidence = both or (claim, evidence)
        beside = confounders.around(witness, groups, number, claim, steps, prepared.elsewhere)
        result.append(
            Judged(
                cells=cells,
                group=group,
                claim=claim,
                effect=verdicts.estimate(
                    claim.probability, evidence.posterior[0], evidence.means[0], evidence.deviations[0]
                ),
                channel_effects=effects[0],
                channel_noise=noise[0],
                model=witness.fitted.model,
                pearson_r=summary.pearson(witness.fitted, group.place),
                beside=tuple(beside),
                rivals=groups,
                null=null,
                errors=through_errors(
                    cells,
                    witness.fitted.regressions[witness.fitted.model.target].adjusted,
                    group.place,
                    width,
                ),
                too_soon=too_soon(witness, group),
            )
        )
    return result


def too_soon(witness: Witness, group: Group) -> bool:
    """Whether the data ends before anything that moved beside a change could be seen: that takes a quarter of
    the minutes over which before is compared with after."""
    # Besides doubt there are the fleet or services called, which are compared over all of the minutes.
    elsewhere = len(witness.shifts) > 1
    width = witness.fitted.width if elsewhere else confounders.width(witness.fitted)
    return len(witness.fitted.cells.times) - group.place < max(1, width // 4)


def _finding(
    change: ParameterChange,
    one: Judged,
    verdict: Verdict,
    reason: str,
    q: float,
    onsets: Sequence[float],
) -> Finding:
    """The finding of one change; ``onsets`` (Unix seconds) are those of all causal changes: P99 after this
    change is read until the next of them, or seconds would be shares of what others did."""
    log_effect = (one.effect.mean, *one.effect.interval)
    ratio = Interval(*(float(np.expm1(v)) for v in log_effect))
    seen_from = one.cells.time_of(one.group.place)
    later = [t for t in onsets if t > max(seen_from, one.onset) + one.cells.seconds]
    level = summary.p99_between(one.cells, seen_from, min([seen_from + fitting.WIDTH_SECONDS, *later]))
    seconds = None
    placebos: FloatArray | None = None
    if np.isfinite(level):
        without = level / np.exp(one.effect.mean)
        seconds = Interval(*(float(without * r) for r in (ratio.value, ratio.low, ratio.high)))
        placebos = np.asarray(without * np.expm1(one.null.effects))
    causal = verdict is Verdict.CAUSAL
    return Finding(
        change=change,
        verdict=verdict,
        reason=reason,
        effect=seconds,
        effect_ratio=ratio,
        lag_seconds=max(0.0, (one.claim.onset - one.group.place) * one.cells.seconds) if causal else None,
        onset=one.onset if causal else None,
        too_soon=one.too_soon,
        pearson_r=one.pearson_r,
        p_value=one.p_value,
        q_value=q,
        mechanism=summary.mechanism(one.model, one.channel_effects, one.channel_noise, one.errors)
        if causal
        else {},
        placebo_effects=placebos,
    )
