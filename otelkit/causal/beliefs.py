"""What a parameter's name says of the path it acts through: a mild prior, never a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from otelkit.causal.pooling import Model
from otelkit.model import ParameterChange
from otelkit.query.panel import FloatArray

FAVOUR: Final = 10.0
"""How many times likelier a hypothesis becomes when its first path is one that the name speaks of."""
WORDS: Final = (
    (
        r"max_.*tokens|max_(new|output)|num_predict|output|length|verbos|reason|think|effort|stop"
        r"|temperature|penalty|min_p|^(?!.*(retriev|search|rag|rerank)).*top_[pk]",
        ("output_length", "more_tokens"),
    ),
    (
        r"quant|dtype|precision|speculat|draft|gpu|engine|kernel|decode|instance|hardware|accelerator",
        ("time_per_token",),
    ),
    # Another model may well have more to say, or read more slowly.
    (r"model|adapter|lora|checkpoint", ("time_per_token", "output_length", "more_tokens", "first_token")),
    (
        r"prompt|context|template|system|prefill|prefix|cach|rag|retriev|search|rerank|guard|moderat"
        r"|few_?shot|tools?$",
        ("first_token", "time_per_token"),
    ),
    (r"guard|moderat|rerank|filter|tools?$", ("outside",)),
    (
        r"limit|quota|throttl|concurr|num_seqs|batch|slots?|queue|workers?|replica|pool|thread|(^|_)rate"
        r"|[rt]p[ms]$|per_(second|minute)",
        ("queueing", "time_per_token"),
    ),
    (
        r"retry|retries|backoff|timeout|rout|fallback|hedg|circuit|weight|balanc|region|canary",
        ("tail", "far_tail", "queueing"),
    ),
)
"""Words, looked for in names as ``max_output_tokens`` is written, and the paths that they speak of."""


def favoured(changes: Iterable[ParameterChange]) -> frozenset[str]:
    """Paths that the names of the changed parameters speak of."""
    names = [underscored(change.parameter) for change in changes]
    return frozenset(
        path for words, paths in WORDS if any(re.search(words, n) for n in names) for path in paths
    )


def underscored(name: str) -> str:
    """``maxOutputTokens``, ``--max-output-tokens`` and ``MAX_OUTPUT_TOKENS`` as ``max_output_tokens``."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")


def leaning(model: Model, paths: frozenset[str]) -> FloatArray:
    """The model's weights, shape (H,), with the hypotheses of these paths made likelier."""
    spoken_of = np.array([path in paths for path in model.paths])
    favoured = (model.hypotheses[:, spoken_of] > 0).any(axis=1)
    weights = np.where(favoured, FAVOUR, 1.0) * model.weights
    result: FloatArray = weights / weights.sum()
    return result
