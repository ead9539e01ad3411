"""One effect on P99 from the effects on all channels, and what it is made of.

P99 of ten minutes rests on a handful of calls; the median, or the mean time per token, rests on all of them.
A change acts through one or two paths, and each path moves the channels together in a known proportion. So
there are a few hypotheses: no effect, an effect through one path, an effect through one path and the queue it
makes. Each has a Gaussian prior; their mixture lets the calm channels speak for the noisy one, pulls an
effect that noise alone could have made towards zero (no winner's curse), and says what the effect is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from otelkit.causal.cells import LATENCY_PER_TOKEN
from otelkit.query.panel import FloatArray

RELATIVE: Final[Mapping[str, float]] = {
    "output_length": 1.0,
    "more_tokens": 1.0,
    "time_per_token": 1.0,
    "first_token": 1.0,
    "queueing": 1.0,
    "tail": 1.0,
    "far_tail": 1.0,
    "outside": 1.0,
}
"""Paths, and how large effects through each are believed to be relative to each other. ``queueing`` is time
outside the token steps that reaches every call; ``outside`` is seconds that every call waits alike and that
neither its first token nor its tokens show (a check of the answer); ``tail`` and ``far_tail`` reach only some
calls."""
SIZES: Final = (0.1, 0.35, 1.0)
"""Deviations (log latency) of small, middling and large effects."""
TOGETHER: Final = 0.8
"""Correlation of two paths that a change acts through: calls that take longer make longer queues, not shorter
ones."""
OWN: Final = 0.02
"""What each channel may do beside."""
IN_PROPORTION: Final = 0.3
UNSURE_PROPORTION: Final = 0.28
"""Share of a queue's wait that grows with a call's length, the rest being the same seconds for all; and how
far it may differ."""
PLAIN: Final = 12.0
"""Log Bayes factor up to which evidence is taken at its word."""
INEXACT: Final = 0.18
"""Share by which a path's proportions may be wrong."""
TYPICAL: Final = 0.25
"""Size of effect (log latency) at which those shares are taken while hypotheses are weighed."""
LARGE: Final = 1.0
BENT: Final = 0.2
"""Size of effect (log latency) from which on a path's proportions bend, and by what share of what is beyond:
a wait adds seconds to calls, and the logarithm of a sum is not in proportion to what is added."""
FEW_OF_MEAN: Final = 0.3
"""Share of P99's movement that the mean shows where only some calls become slower."""
COARSE: Final = 0.4
"""The same for a quantile inside a bucket whose bounds differ by a factor of two: where in it calls lie is
not known."""

LEAST_OWN: Final = 1e-8
"""Variance that each channel has by itself under any hypothesis, so that rounding can't make it nothing."""
SINGLE: Final = np.float32
PIVOTS: Final = 4
"""Variances whose product stays within single precision: each is at least ``LEAST_OWN``."""
AT_ONCE: Final = 64
"""Candidate steps weighed together: so many that the loop costs little, so few that they fit in the cache."""


@dataclass(frozen=True)
class Model:
    """How paths move channels, and which paths go together."""

    channels: tuple[str, ...]
    paths: tuple[str, ...]
    loadings: FloatArray
    """Shape (K, F)."""
    hypotheses: FloatArray
    """Deviation of each path's effect under each hypothesis, shape (H, F); the first is "no effect", all
    zero."""
    weights: FloatArray
    """Prior probability of each hypothesis given that there is an effect, shape (H,); zero for the first."""
    inexact: FloatArray
    """Share by which each channel may fail to follow its paths, shape (K,)."""
    target: int
    """Which channel is explained."""

    @cached_property
    def channel_variances(self) -> FloatArray:
        """Prior variance of each channel's effect under each hypothesis, shape (H, K)."""
        variances: FloatArray = np.einsum("hkk->hk", self.priors)
        return variances

    @cached_property
    def queue(self) -> FloatArray:
        """How the channels move where queues alone move all latencies in proportion, shape (K,)."""
        return self.loadings[:, self.paths.index("queueing")]

    @cached_property
    def wait(self) -> tuple[FloatArray, FloatArray]:
        """How a wait of unknown shape moves the channels: usually, and how that may differ; each (K,).

        Waits are between the same seconds for all calls, which is little of a long one, and in proportion.
        """
        if "first_token" not in self.paths:
            return self.queue, np.zeros(len(self.channels))
        seconds = self.loadings[:, self.paths.index("first_token")]
        apart = self.queue - seconds
        return seconds + IN_PROPORTION * apart, UNSURE_PROPORTION * apart

    @cached_property
    def target_priors(self) -> tuple[FloatArray, FloatArray]:
        """The true effect on P99 under each hypothesis: covariance with the channels (H, K), variance
        (H,)."""
        shared = self._covariance[:, :, self.target].copy()
        size = shared[:, self.target].copy()
        own = OWN**2 * np.any(self.hypotheses != 0, axis=1)
        shared[:, self.target] += own
        return shared, size + own

    @cached_property
    def plain(self) -> Model:
        """The model with nothing but middling effects through one path each: quick, for many places."""
        size = sorted(SIZES)[len(SIZES) // 2]
        active = self.hypotheses > 0
        one = (active.sum(axis=1) == 1) & np.isclose(self.hypotheses.max(axis=1), size)
        kept = np.flatnonzero(one)
        weights = np.concatenate([[0.0], self.weights[kept]])
        return replace(
            self,
            hypotheses=self.hypotheses[np.concatenate([[0], kept])],
            weights=weights / weights.sum(),
        )

    @cached_property
    def _covariance(self) -> FloatArray:
        """Prior covariance of what the paths make of the channels under each hypothesis, shape (H, K, K)."""
        scaled = self.loadings[None] * self.hypotheses[:, None, :]
        whole = scaled.sum(axis=2)
        apart = scaled @ scaled.transpose(0, 2, 1)
        result: FloatArray = (1 - TOGETHER) * apart + TOGETHER * whole[:, :, None] * whole[:, None, :]
        return result

    @cached_property
    def priors(self) -> FloatArray:
        """Prior covariance of the channels' effects under each hypothesis, shape (H, K, K)."""
        size = ((self.loadings[None] * np.minimum(self.hypotheses, TYPICAL)[:, None, :]) ** 2).sum(axis=2)
        own = OWN**2 * (np.any(self.hypotheses != 0, axis=1))[:, None] + self.inexact**2 * size + LEAST_OWN
        result: FloatArray = self._covariance + own[:, :, None] * np.eye(len(self.channels))[None]
        return result


@dataclass(frozen=True)
class Evidence:
    """What S candidate steps did to log P99."""

    log_bayes: FloatArray
    """Log Bayes factor of any effect against none, shape (S,)."""
    posterior: FloatArray
    """Probability of each hypothesis given an effect, shape (S, H)."""
    means: FloatArray
    """Effect on log P99 under each hypothesis, shape (S, H)."""
    deviations: FloatArray
    """Its posterior standard deviation, shape (S, H)."""

    @property
    def value(self) -> FloatArray:
        """Mean effect given that there is one, shape (S,)."""
        mean: FloatArray = (self.posterior * self.means).sum(axis=1)
        return mean

    def folded(self, share: float) -> Evidence:
        """Of two readings of the same S/2 steps, one after the other, what they say together, when the second
        is the right one with probability ``share``: the hypotheses of both, side by side."""
        half = len(self.log_bayes) // 2
        first, second = slice(None, half), slice(half, None)
        readings = self.log_bayes[first] + np.log(1 - share), self.log_bayes[second] + np.log(share)
        log_bayes = np.logaddexp(*readings)
        believed = [np.exp(one - log_bayes)[:, None] for one in readings]
        return Evidence(
            log_bayes,
            np.hstack([self.posterior[first] * believed[0], self.posterior[second] * believed[1]]),
            np.hstack([self.means[first], self.means[second]]),
            np.hstack([self.deviations[first], self.deviations[second]]),
        )


def model(
    levels: Mapping[str, float],
    components: Sequence[str],
    first_shares: Mapping[str, float],
    widths: Mapping[str, float],
) -> Model:
    """The factor model for the channels at hand.

    Args:
        levels: quantile channels with their levels, ascending.
        components: which of the component channels are there, and ``LATENCY_PER_TOKEN`` if it is followed.
        first_shares: for each quantile channel, the share of such a call's latency that passes before its
            first token.
        widths: for each quantile channel, upper over lower bound of the bucket it usually lies in; 1 where
            exact.
    """
    channels = (*levels, *components)
    steep = {name: min(max(np.log(0.5 / (1 - q)) / np.log(50.0), 0.0), 1.3) for name, q in levels.items()}
    columns: dict[str, list[float]] = {}
    for path, component in (("output_length", "output_tokens"), ("time_per_token", "time_per_output_chunk")):
        if component in components:
            columns[path] = [
                1.0 - first_shares[c] if c in levels else float(c == component) for c in channels
            ]
    per_token = LATENCY_PER_TOKEN in components
    if per_token:
        columns["time_per_token"] = [1.0 - first_shares[c] if c in levels else 0.0 for c in channels]
    if "output_tokens" in components:
        # As many tokens more for every call, long or not (a cap that all reach): the same seconds everywhere.
        middle = next(iter(levels))
        columns["more_tokens"] = [
            (1.0 - first_shares[middle]) * first_shares[c] / first_shares[middle]
            if c in levels
            else float(c == "output_tokens")
            for c in channels
        ]
    # Seconds that every call waits more: less of a long call than of a usual one.
    usual = max(next(iter(first_shares.values())), 1e-3)
    seconds = [first_shares[c] / usual if c in levels else 0.0 for c in channels]
    if "time_to_first_chunk" in components:
        columns["first_token"] = [
            float(c == "time_to_first_chunk") or wait for c, wait in zip(channels, seconds, strict=True)
        ]
    columns["outside"] = seconds
    columns["queueing"] = [1.0 if c in levels else float(c == "time_to_first_chunk") for c in channels]
    if per_token:
        _add_latency_per_token(columns, channels.index(LATENCY_PER_TOKEN), list(first_shares.values()))
    columns["tail"] = [steep.get(c, FEW_OF_MEAN if c == LATENCY_PER_TOKEN else 0.0) for c in channels]
    columns["far_tail"] = [float(steep.get(c, 0.0) >= 1.0) for c in channels]
    paths = tuple(columns)
    alone = [(path,) for path in paths]
    pairs = [(path, "queueing") for path in paths if path != "queueing"]
    # Some calls much slower: their tokens are too, so the mean shows it a little.
    pairs += [("time_per_token", tail) for tail in ("tail", "far_tail") if "time_per_token" in paths]
    every: list[tuple[str, ...]] = [(), *alone, *pairs]
    active = np.array([[RELATIVE[path] if path in one else 0.0 for path in paths] for one in every])
    hypotheses = np.vstack([active[:1], *(size * active[1:] for size in SIZES)])
    likely = [1.0 for _ in alone] + [0.5 for _ in pairs]
    weights = np.array([0.0, *(likely * len(SIZES))])
    coarse = np.array([COARSE * np.log2(max(widths.get(c, 1.0), 1.0)) for c in channels])
    return Model(
        channels=channels,
        paths=paths,
        loadings=np.array(list(columns.values())).T,
        hypotheses=hypotheses,
        weights=weights / weights.sum(),
        inexact=np.hypot(INEXACT, np.minimum(coarse, 0.8)),
        target=len(levels) - 1,
    )


def _add_latency_per_token(
    columns: Mapping[str, list[float]], row: int, first_shares: Sequence[float]
) -> None:
    """Say what each path makes of mean latency over mean output tokens, in place.

    The mean lies between the median and P90, about where P75 does. Longer answers spread what passes before
    the first token over more tokens.
    """
    first, usual = first_shares[min(1, len(first_shares) - 1)], max(first_shares[0], 1e-3)
    moves = {
        "output_length": -first,
        "more_tokens": -first,
        "time_per_token": 1.0 - first,
        "first_token": first / usual,
        "outside": first / usual,
        "queueing": 1.0,
    }
    for path in columns.keys() & moves.keys():
        columns[path][row] = moves[path]


def weigh(
    shape: Model,
    effects: FloatArray,
    noise: FloatArray,
    weights: FloatArray | None = None,
    unseen: FloatArray | None = None,
) -> Evidence:
    """Weigh the hypotheses for each candidate step.

    Args:
        shape: the factor model.
        effects: on each channel, shape (S, K).
        noise: their covariance were there no effect, shape (S, K, K).
        weights: prior probability of each hypothesis given an effect, shape (H,), instead of the model's.
        unseen: deviation by which an effect may be larger on each channel than is seen, shape (S, K).
    """
    weights = shape.weights if weights is None else weights
    batches = (slice(first, first + AT_ONCE) for first in range(0, len(effects), AT_ONCE))
    parts = [
        _weigh(shape, effects[batch], noise[batch], None if unseen is None else unseen[batch])
        for batch in batches
    ]
    if not parts:
        empty = np.empty((0, len(weights)))
        return Evidence(np.empty(0), empty, empty, empty)
    likelihood, means, variance = (np.concatenate(column) for column in zip(*parts, strict=True))
    with np.errstate(divide="ignore"):
        weighted = likelihood[:, 1:] + np.log(weights[1:])[None]
    peak = weighted.max(axis=1, keepdims=True)
    relative = np.exp(weighted - peak)
    total = relative.sum(axis=1, keepdims=True)
    log_bayes = sober((peak + np.log(total))[:, 0] - likelihood[:, 0])
    posterior = np.zeros(likelihood.shape)
    posterior[:, 1:] = relative / total
    # A path's proportions being off scales an effect, it does not turn it round.
    return Evidence(
        log_bayes, posterior, means, np.hypot(np.sqrt(np.maximum(variance, 1e-10)), INEXACT * np.abs(means))
    )


def _weigh(
    shape: Model, effects: FloatArray, noise: FloatArray, unseen: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log likelihood, mean effect on P99 and its variance under each hypothesis, each of shape (S, H).

    One Cholesky factorisation for all candidates and hypotheses at once, a column at a time: the matrices are
    small and many, so the loop over their columns is the short one. In single precision, which is off by less
    than 0.001 and takes half the time.
    """
    number = len(shape.channels)
    priors, spread = (part.transpose(1, 2, 0).astype(SINGLE) for part in (shape.priors, noise))
    shared, size = (part.astype(SINGLE) for part in shape.target_priors)
    plane = (len(shape.weights), len(effects))
    # The lower triangle, and below it what is seen and what is aimed at; each entry holds all hypotheses and
    # candidates, shape (H, S).
    rows = np.empty((number + 2, number, *plane), SINGLE)
    # The more so the larger a hypothesis' effects are: small ones must not pass for anything.
    large = (shape.hypotheses.max(axis=1).astype(SINGLE) ** 2)[:, None]
    bent = large * (BENT * np.maximum(np.abs(effects.T) - LARGE, 0.0).astype(SINGLE))[:, None] ** 2
    for k in range(number):
        np.add(priors[k, : k + 1, :, None], spread[k, : k + 1, None, :], out=rows[k, : k + 1])
        if unseen is not None:
            # Where there is no effect none is hidden.
            rows[k, k, 1:] += unseen[:, k].astype(SINGLE) ** 2
        rows[k, k] += bent[k]
    rows[-2], rows[-1] = effects.T[:, None, :], shared.T[:, :, None]
    # What P99 does beyond its path's proportion it does all the same.
    rows[-1, shape.target] += bent[shape.target]
    size = size[:, None] + bent[shape.target]
    squares, means, explained, log_determinant = np.zeros((4, *plane), SINGLE)
    determinant = np.ones(plane, SINGLE)
    products = np.empty((number + 1, *plane), SINGLE)
    for j in range(number):
        pivot = np.maximum(rows[j, j], LEAST_OWN)
        determinant *= pivot
        if j % PIVOTS == PIVOTS - 1 or j == number - 1:
            log_determinant += np.log(determinant)
            determinant[:] = 1.0
        column = rows[j + 1 :, j]
        column *= 1 / np.sqrt(pivot)
        seen, aimed = column[-2:]
        squares += seen * seen
        means += seen * aimed
        explained += aimed * aimed
        for i in range(number - j - 1):
            rows[j + 1 + i :, j + 1 + i] -= np.multiply(column[i:], column[i], out=products[i + j :])
    found = (-0.5 * (squares + log_determinant), means, size - explained)
    likelihood, mean, variance = (np.asarray(part.T, dtype=float) for part in found)
    return likelihood, mean, variance


def sober(log_bayes: FloatArray) -> FloatArray:
    """Evidence that grows only with its logarithm beyond ``PLAIN``.

    The model is not exact (a step is never that sharp), so a step half a cell from a strong one's best place
    must not lose by hundreds of units; it should lose in proportion.
    """
    result: FloatArray = np.where(
        log_bayes > PLAIN, PLAIN * (1 + np.log(np.maximum(log_bayes, PLAIN) / PLAIN)), log_bayes
    )
    return result


def mechanism(shape: Model, effect: FloatArray, noise: FloatArray) -> dict[str, tuple[float, float]]:
    """Effect on log P99 through each path, with its posterior standard deviation, over all hypotheses.

    Args:
        shape: the factor model.
        effect: of one change on each channel, shape (K,).
        noise: its covariance, shape (K, K).
    """
    posterior = weigh(shape, effect[None], noise[None]).posterior[0]
    total = shape.priors + noise[None]
    first = np.zeros(len(shape.paths))
    second = np.zeros(len(shape.paths))
    for weight, deviations, covariance in zip(posterior, shape.hypotheses, total, strict=True):
        scaled = shape.loadings * deviations
        with_others = (1 - TOGETHER) * scaled + TOGETHER * scaled.sum(axis=1, keepdims=True)
        gain = np.linalg.solve(covariance, with_others).T
        onto = scaled[shape.target]
        mean = gain @ effect * onto
        spread = np.diag(np.eye(len(onto)) - gain @ with_others) * onto**2
        first += weight * mean
        second += weight * (np.maximum(spread, 0.0) + mean**2)
    deviations = np.sqrt(np.maximum(second - first**2, 0.0))
    return {path: (float(first[f]), float(deviations[f])) for f, path in enumerate(shape.paths)}
