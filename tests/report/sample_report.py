"""A realistic explanation and its panel: 330 one-second steps, five changes of every verdict, a surge."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict
from otelkit.model import CallSite, Generation, Outcome, ParameterChange, SpanIdentity
from otelkit.query.panel import Panel, ServiceSeries
from otelkit.report import Exemplars

START = datetime(2026, 11, 30, 14, 0, tzinfo=UTC).timestamp()
STEPS = 330


def change(parameter: str, old: object, new: object, at: float, **more: object) -> ParameterChange:
    """A change of service ``chat``, ``at`` seconds after START."""
    fields = {"service": "chat", "first_seen": START + at, "last_seen": START + at} | more
    return ParameterChange(parameter=parameter, old=old, new=new, **fields)  # type: ignore[arg-type]


def finding(parameter: str = "temperature", at: float = 60, **more: object) -> Finding:
    """A finding of no effect unless ``more`` says otherwise."""
    fields = {"verdict": Verdict.NO_EFFECT, "reason": "", "effect": Interval(0.002, -0.01, 0.014)} | more
    return Finding(change=change(parameter, 0.7, 0.9, at), **fields)  # type: ignore[arg-type]


def sample_findings() -> tuple[Finding, ...]:
    """Five findings, every verdict among them."""
    random = np.random.default_rng(7)
    placebos = random.normal(0, 0.032, 240)
    return (
        Finding(
            change("temperature", 0.7, 0.9, 38),
            Verdict.NO_EFFECT,
            "the whole interval lies within ±30 ms, the margin set for this service",
            effect=Interval(0.006, -0.014, 0.025),
            effect_ratio=Interval(0.014, -0.03, 0.06),
            pearson_r=0.12,
            p_value=0.63,
            q_value=0.71,
            placebo_effects=placebos,
        ),
        Finding(
            change(
                "max_tokens",
                256,
                1024,
                112,
                last_seen=START + 121,
                workers=4,
                origin="settings.yaml",
                effective_at=START + 113,
            ),
            Verdict.CAUSAL,
            "P99 rises 27 s after the change; load, other services and other changes do not explain it",
            effect=Interval(0.221, 0.180, 0.262),
            effect_ratio=Interval(0.53, 0.43, 0.63),
            lag_seconds=27,
            pearson_r=0.93,
            p_value=0.0006,
            q_value=0.003,
            mechanism={
                "output_length": Interval(0.91, 0.78, 1.0),
                "queueing": Interval(0.07, 0.01, 0.15),
                "first_token": Interval(-0.02, -0.06, 0.02),
            },
            placebo_effects=placebos,
        ),
        Finding(
            change(
                "system_prompt_version", "support-2026-11-12", "support-2026-11-30", 131, scope="route /chat"
            ),
            Verdict.CANNOT_SEPARATE,
            "begins 19 s after max_tokens 256 -> 1024, within its onset; reverting one would settle it",
            effect=Interval(0.034, -0.041, 0.109),
            effect_ratio=Interval(0.08, -0.1, 0.26),
            pearson_r=0.61,
            p_value=0.21,
            q_value=0.35,
            placebo_effects=placebos,
        ),
        Finding(
            change("top_p", 1.0, 0.95, 214),
            Verdict.CORRELATED_ONLY,
            "P99 moved with a surge of traffic (3.1 to 7.8 calls per second) that began 4 s before it",
            effect=Interval(0.012, -0.025, 0.049),
            effect_ratio=Interval(0.02, -0.04, 0.08),
            lag_seconds=3,
            pearson_r=0.81,
            p_value=0.44,
            q_value=0.55,
            placebo_effects=placebos,
        ),
        Finding(
            change("seed", None, 42, 292),
            Verdict.NO_EFFECT,
            "the whole interval lies within ±30 ms, the margin set for this service",
            effect=Interval(-0.004, -0.022, 0.015),
            effect_ratio=Interval(-0.006, -0.03, 0.02),
            pearson_r=-0.08,
            p_value=0.82,
            q_value=0.82,
            placebo_effects=placebos,
        ),
    )


def sample_panel() -> Panel:
    """Noisy quantiles and load of ``chat``: P99 moves at 139 s, load surges from 210 s on, a gap at 70 s."""
    random = np.random.default_rng(3)
    seconds = np.arange(STEPS, dtype=float)

    def noise(scale: float) -> np.ndarray:
        return np.convolve(random.normal(0, scale, STEPS + 14), np.ones(15) / 15 * 2, "valid")

    step = 1 / (1 + np.exp(-(seconds - 142) / 4))
    surge = np.clip(np.minimum((seconds - 210) / 8, (258 - seconds) / 10), 0, 1)
    p99 = 0.412 + 0.225 * step + 0.17 * surge + noise(0.045)
    p95 = 0.345 + 0.19 * step + 0.1 * surge + noise(0.025)
    p50 = 0.21 + 0.09 * step + 0.03 * surge + noise(0.01)
    arrivals = np.clip(3.1 + 4.7 * surge + random.normal(0, 0.7, STEPS), 0, None)
    for values in (p99, p95, p50, arrivals):
        values[70:79] = np.nan
    chat = ServiceSeries(
        service="chat",
        quantiles={0.99: p99, 0.95: p95, 0.5: p50},
        window_seconds=30,
        bucket_bounds=np.array([0.1, 0.2, 0.4, 0.6, 0.8, 1.6, np.inf]),
        bucket_counts=np.ones((STEPS, 7)),
        covariates={"arrivals": arrivals, "output_tokens": 180 + 200 * step, "in_flight": arrivals * p50},
    )
    search = replace(chat, service="search", covariates={})
    return Panel(
        START + 1 + seconds, 1.0, {"chat": chat, "search": search, "embed": search}, {"chat": ("embed",)}
    )


def sample_explanation(**more: object) -> Explanation:
    """What the engine would say of ``sample_panel``."""
    panel = sample_panel()
    seconds = np.arange(STEPS, dtype=float)
    without = panel.services["chat"].quantiles[0.99] - 0.221 / (1 + np.exp(-(seconds - 142) / 4))
    width = 0.012 + 0.03 / (1 + np.exp(-(seconds - 142) / 4))
    fields = {
        "findings": sample_findings(),
        "p99_before": 0.412,
        "p99_after": 0.655,
        "moved_at": START + 142,
        "unexplained_seconds": 0.022,
        "counterfactual": without,
        "counterfactual_low": without - width,
        "counterfactual_high": without + width,
        "method": "Ridge regression of log P99, P95 and P50 on offered load and the other services, fitted "
        "outside each change's window; significance from 240 placebo dates put through the same search; "
        "Benjamini-Hochberg over 5 changes.",
        "warnings": (
            "P99 has a gap of 9 s at 14:01:10.",
            "Buckets from 800 ms to 1600 ms are coarse: shifts inside are not seen.",
        ),
    } | more
    return Explanation(service="chat", start=START, end=START + STEPS, **fields)  # type: ignore[arg-type]


def generation(max_tokens: int, steps: int, seed: int) -> Generation:
    """A streamed generation of that many token steps."""
    gaps = np.random.default_rng(seed).gamma(6, 0.9e6, steps)
    gaps[0] = 45e6
    ends = (1_790_000_000_000_000_000 + np.cumsum(gaps)).astype(int).tolist()
    return Generation(
        call_site=CallSite("chat", "openai", "chat", "smollm2"),
        start_ns=1_790_000_000_000_000_000,
        end_ns=ends[-1],
        step_ns=ends,
        outcome=Outcome.COMPLETED,
        streamed=True,
        parameters={"max_tokens": max_tokens, "temperature": 0.7},
        output_tokens=steps,
        span=SpanIdentity(trace_id=0x4BF92F3577B34DA6A3CE929D0E0E4736 + seed, span_id=7, sampled=True),
    )


def sample_exemplars() -> Exemplars:
    """One call of 60 steps before, one of 104 after."""
    return Exemplars(before=generation(256, 60, 1), after=generation(1024, 104, 2))
