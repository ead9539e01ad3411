"""transformers with a tiny model of random weights, built here."""

from __future__ import annotations

import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from otelkit.model import Outcome  # noqa: E402
from otelkit.testing import Recorded  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.platform == "win32", reason="not run there"),
]


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=64)
    config.bos_token_id = config.eos_token_id = None
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize(
    ("settings", "batch"),
    [
        ({"do_sample": False}, 1),
        ({"do_sample": True, "temperature": 0.9, "top_k": 5}, 1),
        ({"do_sample": False, "num_beams": 2}, 1),
        ({"do_sample": False}, 3),
    ],
)
def test_generate(settings: dict[str, Any], batch: int, model: Any, recorded: Recorded) -> None:
    """Broken: a decoding method or a batch is not recorded step by step, or its result changes."""
    prompt = torch.arange(4).repeat(batch, 1)
    torch.manual_seed(1)
    output = model.generate(prompt, max_new_tokens=6, pad_token_id=0, **settings)
    assert output.shape == (batch, 10)
    (generation,) = recorded.wait(1)
    assert generation.outcome is Outcome.COMPLETED
    assert len(generation.step_ns) == 6
    assert generation.step_tokens == [batch] * 6
    assert (generation.input_tokens, generation.output_tokens) == (4 * batch, 6 * batch)
    assert generation.parameters["max_tokens"] == 6
    for name, value in settings.items():
        assert generation.parameters[name] == value
    assert recorded.spans[0].name == "text_completion GPT2LMHeadModel"


def test_result_is_the_same(model: Any) -> None:
    """Broken: recording changes what is generated, or drops the caller's own criteria or streamer."""
    from otelkit import testing

    class Stop(transformers.StoppingCriteria):  # type: ignore[misc,name-defined]
        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            return torch.full((input_ids.shape[0],), input_ids.shape[1] >= 7, dtype=torch.bool)

    class Streamer:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def put(self, value: Any) -> None:
            self.seen.append(value.numel())

        def end(self) -> None:
            self.seen.append(-1)

    def run() -> tuple[Any, list[int], list[Any]]:
        criteria, streamer = [Stop()], Streamer()
        torch.manual_seed(2)
        output = model.generate(
            torch.arange(4)[None], max_new_tokens=9, do_sample=True, pad_token_id=0,
            stopping_criteria=criteria, streamer=streamer,
        )  # fmt: skip
        return output, streamer.seen, criteria

    plain = run()
    with testing.recording() as recorded:
        watched = run()
    assert torch.equal(plain[0], watched[0])
    assert plain[1] == watched[1]
    assert len(watched[2]) == 1
    assert len(recorded.wait(1)[0].step_ns) == 3


def test_error(model: Any, recorded: Recorded) -> None:
    """Broken: a failing generation is recorded as OK."""
    with pytest.raises((IndexError, ValueError, RuntimeError)):
        model.generate(torch.full((1, 2), 999), max_new_tokens=2, pad_token_id=0)
    assert recorded.wait(1)[0].outcome is Outcome.ERROR
