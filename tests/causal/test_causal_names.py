"""What parameters' names are taken to speak of."""

from __future__ import annotations

import pytest
from planted import change

from otelkit.causal import beliefs


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "maxTokens", "maxOutputTokens", "MAX_TOKENS", "--max-tokens", "gen_ai.request.max_tokens"],
)
def test_a_name_speaks_of_the_same_however_it_is_written(name: str) -> None:
    """Broken if a setting's name is understood in one way of writing names and not in another."""
    assert beliefs.favoured([change(0.0, name)]) == {"output_length", "more_tokens"}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("thinkingBudget", "output_length"),
        ("reasoning_effort", "output_length"),
        ("top_k", "output_length"),
        ("retrieval.top_k", "first_token"),
        ("guardrails.enabled", "outside"),
        ("requestsPerMinute", "queueing"),
        ("RATE_LIMIT_RPM", "queueing"),
        ("max_retries", "far_tail"),
        ("HTTPTimeout", "far_tail"),
        ("instanceType", "time_per_token"),
    ],
)
def test_names_speak_of_their_paths(name: str, path: str) -> None:
    """Broken if a common setting is not recognised by its name."""
    assert path in beliefs.favoured([change(0.0, name)])


@pytest.mark.parametrize("name", ["log_level", "OTEL_TRACES_SAMPLER_ARG", "generate_config", "user_agent"])
def test_other_names_speak_of_nothing(name: str) -> None:
    """Broken if part of a word is taken for a word, so that a setting of something else leans a verdict."""
    assert not beliefs.favoured([change(0.0, name)])
