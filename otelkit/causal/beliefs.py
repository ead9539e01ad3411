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
        r"max_.*tokens|max_(new|output)|output|length|stop|temperature|penalty|min_p"
        r"|^(?!.*(retriev|search|rag|rerank)).*top_[pk]",
        ("output_length", "more_tokens"),
    ),
    (r"model|quant|dtype|precision|speculat|draft|gpu|engine|kernel|decode", ("time_per_token",)),
    (
        r"prompt|context|template|system|prefill|cache|rag|retriev|few_?shot|tools?$",
        ("first_token", "time_per_token"),
    ),
    (
        r"limit|quota|throttl|concurr|num_seqs|batch|slots?|queue|workers?|replica|pool|thread|rate",
        ("queueing", "time_per_token"),
    ),
    (r"retr|timeout|rout|fallback|hedg|circuit|weight|balanc|region", ("tail", "far_tail", "queueing")),
)


def favoured(changes: Iterable[ParameterChange]) -> frozenset[str]:
    """Paths that the names of the changed parameters speak of."""
    names = [change.parameter.lower() for change in changes]
    return frozenset(
        path for words, paths in WORDS if any(re.search(words, n) for n in names) for path in paths
    )


def leaning(model: Model, paths: frozenset[str]) -> FloatArray:
    """The model's weights, shape (H,), with the hypotheses of these paths made likelier."""
    spoken_of = np.array([path in paths for path in model.paths])
    favoured = (model.hypotheses[:, spoken_of] > 0).any(axis=1)
    weights = np.where(favoured, FAVOUR, 1.0) * model.weights
    result: FloatArray = weights / weights.sum()
    return result
