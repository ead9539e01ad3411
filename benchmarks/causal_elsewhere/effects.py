"""Changes of parameters, and through what each of them acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.causal_elsewhere.services import PULSE, Array, Force, Service

IDLE = (
    ("log_level", "info", "debug"),
    ("seed", 1, 7),
    ("user_tag", "a", "b"),
    ("cache_ttl", 300, 600),
    ("logprobs", False, True),
    ("top_p", 0.9, 0.95),
    ("temperature", 0.7, 0.6),
    ("top_k", 40, 50),
    ("presence_penalty", 0, 0.1),
    ("metrics_interval", 15, 30),
    ("safety_settings.harassment", "BLOCK_MEDIUM", "BLOCK_HIGH"),
    ("stop_sequences", "[]", "['END']"),
    ("max_tokens", 4096, 8192),
    ("retry.max_attempts", 2, 3),
    ("request_timeout", 120, 90),
    ("route.weight", 50, 60),
    ("model", "m-2025-08", "m-2025-09"),
    ("response_format", "text", "json"),
    ("max_num_seqs", 256, 192),
    ("rate_limit.rpm", 6000, 9000),
    ("kv_cache_dtype", "auto", "fp8"),
    ("tracing.sample_rate", 0.1, 0.2),
)
"""Changes that do nothing: parameter, old value, new value."""
PATHS = ("tpt", "out", "limit", "pre", "post", "tail", "reject", "ctx")
OFTEN = (0.3, 0.2, 0.14, 0.08, 0.08, 0.08, 0.04, 0.08)
"""What a change may act through, and how often: time per token, output length, slots, time before the first
token, time after the last one, some calls only, calls let in, prompts."""
NAMES: dict[str, tuple[tuple[str, object, object], ...]] = {
    "tpt": (
        ("model", "m-small", "m-large"),
        ("quantization", "fp8", "bf16"),
        ("speculative_decoding", True, False),
        ("tensor_parallel", 4, 2),
        ("route.backend", "a", "b"),
        ("lora_adapter", "none", "v2"),
    ),
    "out": (
        ("max_tokens", 256, 1024),
        ("temperature", 0.2, 1.0),
        ("verbosity", "low", "high"),
        ("reasoning_effort", "low", "medium"),
        ("stop_sequences", "['\\n\\n']", "[]"),
        ("system_prompt", "v1", "v2"),
    ),
    "limit": (("max_concurrency", 64, 48), ("max_num_seqs", 128, 96), ("worker_slots", 32, 24)),
    "pre": (
        ("prefix_cache", True, False),
        ("chunked_prefill", True, False),
        ("enable_rag_rerank", False, True),
    ),
    "post": (
        ("safety_settings.level", "off", "strict"),
        ("guardrails.output_check", False, True),
        ("moderation", False, True),
    ),
    "tail": (
        ("retry.max_attempts", 1, 3),
        ("route.fallback", "none", "region-b"),
        ("hedging.enabled", True, False),
        ("request_timeout", 30, 90),
    ),
    "reject": (("rate_limit.rpm", 600, 420), ("admission.quota", 100, 70)),
    "ctx": (("rag.top_k", 4, 12), ("prompt_template", "short", "long"), ("history_turns", 4, 12)),
}


@dataclass
class Change:
    """A change of one service, in seconds from the start."""

    service: Service
    parameter: str
    old: object
    new: object
    at: float
    last: float
    confounded: bool
    lag: float | None


def step(begins: float, lasts: float = 0.0, ends: float | None = None) -> Callable[[Array], Array]:
    """The share of an effect that has come by each moment."""

    def share(at: Array) -> Array:
        result = np.clip((at - begins) / lasts, 0, 1) if lasts else (at >= begins).astype(float)
        return result if ends is None else result * (at < ends)

    return share


def factor(part: str, size: float, share: Callable[[Array], Array]) -> Force:
    """What multiplies a part of calls."""
    return lambda service: {part: np.exp(np.log(size) * share(service.at))}


def rollout(part: str, size: float, begins: float, lasts: float) -> Force:
    """The same for a growing share of calls."""

    def force(service: Service) -> dict[str, Array]:
        reached = service.share < np.clip((service.at - begins) / lasts, 0, 1)
        return {part: np.where(reached, size, 1.0)}

    return force


@dataclass
class World:
    """A scenario being put together."""

    rng: np.random.Generator
    services: list[Service]
    changes: list[Change] = field(default_factory=list)
    dependencies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    faults: bool = False
    controls: bool = True
    offset: float = 0.0
    """Seconds by which the clock of the changes is ahead."""

    def change(
        self,
        service: Service,
        named: tuple[str, object, object],
        at: float,
        last: float | None = None,
        confounded: bool = False,
        lag: float | None = None,
    ) -> int:
        self.changes.append(Change(service, *named, at, last or at, confounded, lag))
        return len(self.changes) - 1

    def idle(self, service: Service, at: float, confounded: bool = False) -> int:
        """A change that does nothing."""
        return self.change(service, IDLE[self.rng.integers(len(IDLE))], at, confounded=confounded)

    def effect(
        self,
        service: Service,
        at: float,
        up: bool | None = None,
        size: float | None = None,
        lasts: float = 0.0,
        ends: float | None = None,
        delay: float = 0.0,
        only: str | None = None,
    ) -> int:
        """A change that acts through a path that its name goes with."""
        rng = self.rng
        up = bool(rng.random() < 0.75) if up is None else up
        larger = size or float(np.exp(rng.uniform(np.log(1.11), np.log(1.8))))
        size = larger if up else 1 / larger
        path = only or str(rng.choice(PATHS, p=OFTEN))
        share = step(at + delay, 0, ends)
        names = NAMES[path]
        number = self.change(
            service, names[rng.integers(len(names))], at, at + lasts, lag=None if lasts else delay
        )
        service.forces.append((self._force(service, path, up, size, share, at, lasts), number))
        return number

    def _force(
        self,
        service: Service,
        path: str,
        up: bool,
        size: float,
        share: Callable[[Array], Array],
        at: float,
        lasts: float,
    ) -> Force:
        rng = self.rng
        usual = float(np.median(service.outputs)) * service.per_token
        """Seconds that the tokens of a usual call take."""
        if path in ("tpt", "out"):
            part = {"tpt": "per_token", "out": "out"}[path]
            size = size**1.2 if path == "out" else size
            return rollout(part, size, at, lasts) if lasts else factor(part, size, share)
        if path == "limit":
            return factor("slots", rng.uniform(0.45, 0.75) if up else 1.5, share)
        if path == "pre":
            seconds = rng.uniform(0.15, 0.6) * usual * 2
            return lambda s: {
                "over": (seconds if up else 0) * share(s.at),
                "pre": np.where(share(s.at) > 0, 1.5 if up else 0.6, 1.0),
            }
        if path == "post":
            seconds = usual * (size if up else 1.3) * rng.uniform(0.5, 1.5)
            return lambda s: {"post": seconds * share(s.at)}
        if path == "tail":
            some, times = rng.uniform(0.015, 0.05), rng.uniform(1.8, 4)
            return lambda s: {"tail": some * share(s.at), "times": np.full(len(s.at), times)}
        if path == "reject":
            service.utilisation, service.slowing = 0.97, max(service.slowing, 0.8)
            return lambda s: {"reject": 0.3 * share(s.at)}
        return lambda s: {
            "ctx": np.exp(np.log(size**2.5) * share(s.at)),
            "pre": np.full(len(s.at), 3.0),
        }

    def surge(self, service: Service, at: float, size: float, lasts: float) -> None:
        """More calls for a while."""
        when = np.arange(len(service.profile)) * PULSE + PULSE / 2
        rises, falls = np.clip((when - at) / 20, 0, 1), np.clip((at + lasts - when) / 60, 0, 1)
        service.profile = service.profile * (1 + (size - 1) * rises * falls)

    def fleet(self, at: float, size: float, lasts: float) -> None:
        """Slower tokens everywhere for a while."""
        for service in self.services:
            own = float(np.exp(np.log(size) * self.rng.uniform(0.7, 1.3)))
            service.forces.append((factor("per_token", own, step(at, 0, at + lasts)), -1))
