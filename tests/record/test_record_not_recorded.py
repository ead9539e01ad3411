"""What the adapters do not record passes through them unharmed: sessions over websockets, google's
interactions, vLLM's search by beams."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from openai import OpenAI
from wire_server import Wire

from otelkit import testing
from otelkit.record.providers.vllm import VLLM
from otelkit.testing import Recorded


@contextmanager
def socket_server(handler: Callable[[Any], None]) -> Iterator[str]:
    """A websocket server on a port of its own; yields ``127.0.0.1:PORT``."""
    serve = pytest.importorskip("websockets.sync.server").serve
    with serve(handler, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def assert_nothing_recorded(recorded: Recorded) -> None:
    assert not (recorded.started or recorded.generations or recorded.spans)


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
def test_openai_realtime(recorded: Recorded) -> None:
    """Broken: a session over a websocket loses events, or is half recorded."""
    events = [
        {"type": "response.output_text.delta", "event_id": f"e{number}", "delta": piece}
        for number, piece in enumerate(("one", " two"))
    ]

    def answer(connection: Any) -> None:
        assert json.loads(connection.recv())["type"] == "response.create"
        for event in events:
            connection.send(json.dumps(event))

    with (
        socket_server(answer) as address,
        OpenAI(api_key="k", websocket_base_url=f"ws://{address}/v1") as client,
        client.realtime.connect(model="m") as connection,
    ):
        connection.response.create()
        received = [connection.recv() for _ in events]
    assert [event.delta for event in received] == ["one", " two"]  # type: ignore[union-attr]
    assert_nothing_recorded(recorded)


def test_google_live(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a live session over a websocket loses messages, or is half recorded."""
    genai = pytest.importorskip("google.genai")
    live = pytest.importorskip("google.genai.live")
    connect = live.ws_connect

    def without_tls(uri: str, **options: Any) -> Any:
        options.pop("ssl", None)
        return connect(uri.replace("wss:", "ws:", 1), **options)

    monkeypatch.setattr(live, "ws_connect", without_tls)

    def answer(connection: Any) -> None:
        connection.recv()
        connection.send(json.dumps({"setupComplete": {}}))
        connection.recv()
        part = {"text": "one"}
        content = {"modelTurn": {"role": "model", "parts": [part]}, "turnComplete": True}
        connection.send(json.dumps({"serverContent": content}))

    async def talk(address: str) -> list[str | None]:
        client = genai.Client(api_key="k", http_options={"base_url": f"http://{address}"})
        try:
            async with client.aio.live.connect(
                model="gemini-test", config={"response_modalities": ["TEXT"]}
            ) as session:
                await session.send_client_content(turns={"role": "user", "parts": [{"text": "secret"}]})
                return [message.text async for message in session.receive()]
        finally:
            await client.aio.aclose()

    with socket_server(answer) as address:
        assert asyncio.run(talk(address)) == ["one"]
    assert_nothing_recorded(recorded)


def test_google_interactions(wire: Wire, recorded: Recorded) -> None:
    """Broken: the newer way to ask google's models fails, or is half recorded."""
    genai = pytest.importorskip("google.genai")
    document = {"id": "i1", "status": "completed", "model": "gemini-test", "object": "interaction"}
    wire.answer = lambda exchange: exchange.json(document)
    client = genai.Client(api_key="k", http_options={"base_url": wire.url})
    if not hasattr(client, "interactions"):
        pytest.skip("this version of google-genai has no interactions")
    answer = client.interactions.create(model="gemini-test", input="secret")
    assert (answer.id, answer.status) == ("i1", "completed")
    assert_nothing_recorded(recorded)


def test_vllm_beam_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a search by beams, which vLLM runs as many small requests of its own, is altered or half
    recorded."""

    class Engine:
        def generate(self, prompts: object) -> list[object]:
            return []

        def chat(self, messages: object) -> list[object]:
            return []

        def beam_search(self, prompts: list[str], params: object) -> list[str]:
            return [prompt + "!" for prompt in prompts]

    module = ModuleType(VLLM.module)
    module.LLM = Engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, VLLM.module, module)
    search = vars(Engine)["beam_search"]
    with testing.recording(providers=[VLLM()]) as inner:
        assert vars(Engine)["beam_search"] is search
        assert Engine().beam_search(["a"], None) == ["a!"]
    assert_nothing_recorded(inner)
