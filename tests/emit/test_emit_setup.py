"""`otelkit.instrument()` in whole processes of their own, as a service would call it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from emit_collector import Answer, GrpcCollector, HttpCollector
from emit_process import run


@pytest.fixture
def collector() -> Iterator[HttpCollector]:
    with HttpCollector() as running:
        yield running


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_importing_otelkit_loads_next_to_nothing() -> None:
    """Otherwise every command and every process would pay for an SDK, gRPC or numpy that it may not use."""
    heavy = [
        "opentelemetry.sdk",
        "grpc",
        "numpy",
        "scipy",
        "requests",
        "prometheus_client",
        "pydantic",
        "click",
    ]
    script = f"import sys, otelkit; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_public_names_are_pinned() -> None:
    """Otherwise a name that users import could vanish unnoticed."""
    import otelkit

    assert {"Instrumentation", "instrument", "uninstrument"} <= set(dir(otelkit))
    with pytest.raises(AttributeError, match="nonesuch"):
        _ = otelkit.nonesuch


def test_a_script_delivers_all_it_recorded_when_it_ends(collector: HttpCollector) -> None:
    """Otherwise short scripts, ended before a batch is due, would export nothing."""
    done = run(
        """
        handle = otelkit.instrument()
        assert otelkit.instrument() is handle
        call(handle)
        handle.sink.change(ParameterChange("chat", "max_tokens", 256, 1024, 1764000000.5, 1764000001.0))
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "chat"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(span.name for span in collector.spans()) == ["chat some-model", *["token_step"] * 10]
    (event,) = collector.events()
    assert event.event_name == "otelkit.parameter.change"
    assert event.time_unix_nano == 1764000000500000000
    fields = {item.key: item.value.string_value for item in event.attributes}
    assert (fields["otelkit.change.old"], fields["otelkit.change.new"]) == ("256", "1024")


def test_grpc_is_taken_by_protocol_or_by_port() -> None:
    """Otherwise an endpoint with port 4317, the most common one, would be spoken to in another protocol."""
    from otelkit.emit.providers import _entry_point

    with GrpcCollector() as collector:
        done = run(
            "call(otelkit.instrument())",
            {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert len(collector.spans()) == 11
    variable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL", raising=False)
        for endpoint, expected in (
            ("http://collector:4317", "otlp_proto_grpc"),
            ("collector:4317", "otlp_proto_grpc"),
            ("http://collector:4318", "otlp_proto_http"),
            ("https://collector/otlp", "otlp_proto_http"),
        ):
            patch.setenv(variable, endpoint)
            assert _entry_point("otlp", "traces", variable) == expected


def test_without_configuration_nothing_is_sent_or_said() -> None:
    """Otherwise trying otelkit would fill the log with refused connections to localhost."""
    done = run(
        """
        call(otelkit.instrument())
        assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_exporters_can_be_switched_off(collector: HttpCollector) -> None:
    """Otherwise OTEL_TRACES_EXPORTER=none and OTEL_SDK_DISABLED=true would not hold for otelkit."""
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    done = run("call(otelkit.instrument())", {**environment, "OTEL_TRACES_EXPORTER": "none"})
    assert (done.returncode, done.stderr) == (0, "")
    done = run("assert otelkit.instrument() is None", {**environment, "OTEL_SDK_DISABLED": "true"})
    assert (done.returncode, done.stderr) == (0, "")
    assert collector.received == []


def test_an_unknown_exporter_is_named_and_left_out(collector: HttpCollector) -> None:
    """Otherwise a typing error in a variable would stop the service, or go unnoticed."""
    done = run(
        "call(otelkit.instrument())",
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_TRACES_EXPORTER": "jager,otlp"},
    )
    assert done.returncode == 0
    assert done.stderr.count("'jager'") == 1
    assert len(collector.spans()) == 11


def test_a_script_ends_soon_when_the_collector_is_down() -> None:
    """Otherwise every script would hang for many seconds at its end, as with the SDK alone."""
    done = run(
        """
        import time
        handle = otelkit.instrument()
        call(handle)
        handle.sink.change(ParameterChange("chat", "max_tokens", 256, 1024, 1764000000.5, 1764000001.0))
        print(time.monotonic())
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{closed_port()}", "OTELKIT_SHUTDOWN_SECONDS": "1"},
    )
    # Retries alone would go on for two minutes; a busy machine takes some seconds to end any process.
    assert time.monotonic() - float(done.stdout) < 30
    assert done.returncode == 0
    assert "ERROR" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "can't deliver" in done.stderr


def test_a_slow_collector_gets_parents_before_their_steps(collector: HttpCollector) -> None:
    """Broken if steps, which are many, used up the time that a process may take to end, and came first."""
    collector.answers.extend([Answer(200, delay=20.0)] * 2)
    done = run(
        """
        handle = otelkit.instrument()
        call(handle)
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTELKIT_SHUTDOWN_SECONDS": "3"},
    )
    assert done.returncode == 0
    assert [span.name for span in collector.spans()] == ["chat some-model"]


def test_a_scrape_includes_calls_that_ended_just_now() -> None:
    """Otherwise numbers that are compared as soon as calls have ended, as in a user's test, lag behind."""
    done = run(
        """
        from prometheus_client import REGISTRY, generate_latest
        from otelkit.emit import sink
        sink.REST_SECONDS = 3600
        handle = otelkit.instrument()
        call(handle)
        call(handle)
        handle.sink._pipeline.started(SITE)
        value = REGISTRY.get_sample_value
        # Asked alone, the gauge does not have the work done first.
        names = ["otelkit_generations_in_flight"]
        print(generate_latest(REGISTRY.restricted_registry(names)).decode())
        assert handle.sink.pending() == 2
        print(generate_latest().decode())
        """,
        {"OTEL_SERVICE_NAME": "chat"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('otelkit_generations_in_flight{service="chat"} 1.0') == 2
    assert "gen_ai_client_operation_duration_seconds_count{" in done.stdout
    (count,) = [
        line
        for line in done.stdout.splitlines()
        if line.startswith("gen_ai_client_operation_duration_seconds_count")
    ]
    assert count.endswith(" 2.0")


def test_the_metrics_page_has_exemplars_in_openmetrics(collector: HttpCollector) -> None:
    """Otherwise Prometheus would find no page, or no way from its buckets to traces."""
    done = run(
        """
        import urllib.request
        handle = otelkit.instrument()
        call(handle)
        assert handle.flush()
        accept = {"accept": "application/openmetrics-text"}
        page = urllib.request.urlopen(urllib.request.Request(handle.metrics_url, headers=accept))
        print(page.headers["content-type"])
        print(page.read().decode())
        otelkit.uninstrument()
        again = otelkit.instrument()
        assert again.page.port
        """,
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
            "OTEL_SERVICE_NAME": "chat",
        },
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "application/openmetrics-text" in done.stdout
    assert '# {span_id="' in done.stdout
    assert 'otelkit_queue_depth{service="chat"} 0' in done.stdout
    assert 'otelkit_overhead_seconds_total{service="chat",stage="build"}' in done.stdout


def test_a_busy_metrics_port_is_said_once_and_the_service_starts() -> None:
    """Otherwise the second worker on a machine would not start, or fail without a hint."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(
            "handle = otelkit.instrument(); call(handle); assert handle.page is None",
            {"OTEL_EXPORTER_PROMETHEUS_PORT": port},
        )
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("WARNING")
    assert port in line
    assert "OTEL_EXPORTER_PROMETHEUS_PORT" in line


def test_bad_variables_are_named_and_the_service_starts() -> None:
    """Otherwise a typing error in a telemetry variable would be an outage."""
    done = run(
        "assert otelkit.instrument() is not None",
        {
            "OTELKIT_LATENCY_SLO_SECONDS": "fast",
            "OTEL_EXPORTER_PROMETHEUS_PORT": "x",
            "OTEL_TRACES_SAMPLER": "most",
            "OTEL_TRACES_EXPORTER": "otlp",
        },
    )
    assert done.returncode == 0
    assert done.stderr.count("WARNING") == 3
    assert all(word in done.stderr for word in ("'fast'", "'x'", "'most'"))


def test_a_program_that_sets_its_own_provider_keeps_it(collector: HttpCollector) -> None:
    """Otherwise `otelkit run` would pre-empt the program's own set-up and take its exporters away."""
    done = run(
        """
        handle = otelkit.instrument(defer_providers=True)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        mine = TracerProvider()
        mine.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=os.environ["MINE"])))
        trace.set_tracer_provider(mine)
        call(handle)
        assert trace.get_tracer_provider() is mine
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "MINE": f"{collector.url}/mine/traces"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {request.path for request in collector.received} == {"/mine/traces"}
    assert len(collector.spans()) == 11


def test_deferred_providers_are_set_at_the_first_call(collector: HttpCollector) -> None:
    """Otherwise a program without a set-up of its own would have no traces under `otelkit run`."""
    done = run(
        """
        handle = otelkit.instrument(defer_providers=True)
        assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        handle.sink.generation_started(lambda: SITE)
        call(handle)
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(collector.spans()) == 11


def test_a_pipeline_that_is_not_otlp_gets_the_steps_before_it_is_shut_down() -> None:
    """Otherwise, at the end of a script, steps would reach the user's processors after their shutdown."""
    done = run(
        """
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
        mine = TracerProvider()
        mine.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
        trace.set_tracer_provider(mine)
        call(otelkit.instrument())
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('"name": "token_step"') == 10


def test_forked_workers_deliver_their_own(collector: HttpCollector) -> None:
    """Otherwise servers that load the application before they fork would lose spans, or send some twice."""
    done = run(
        """
        handle = otelkit.instrument()
        call(handle, 3)
        children = []
        for number in range(3):
            child = os.fork()
            if child == 0:
                call(handle, 5)
                assert handle.flush()
                os._exit(0)
            children.append(child)
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_PROMETHEUS_PORT": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert len(collector.steps()) == 3 + 3 * 5
    assert len([span for span in collector.spans() if span.name != "token_step"]) == 4
    assert done.stderr.count("PROMETHEUS_MULTIPROC_DIR") == 3


def test_the_adaptive_sampler_is_found_by_its_name(collector: HttpCollector) -> None:
    """Otherwise OTEL_TRACES_SAMPLER=otelkit_adaptive would name something that nobody finds."""
    done = run(
        """
        handle = otelkit.instrument()
        print(trace.get_tracer_provider().sampler.get_description())
        """,
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_TRACES_SAMPLER": "otelkit_adaptive",
            "OTEL_TRACES_SAMPLER_ARG": "7",
        },
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "7/s" in done.stdout


def test_the_service_is_that_of_the_programs_provider() -> None:
    """Otherwise a service named in code would be `unknown_service` on the /metrics page."""
    done = run(
        """
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        trace.set_tracer_provider(TracerProvider(resource=Resource.create({"service.name": "named in code"})))
        print(otelkit.instrument().service)
        """
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "named in code", "")


def test_children_of_multiprocessing_deliver_at_their_end(collector: HttpCollector) -> None:
    """Otherwise short-lived workers, which end without exit handlers, would lose their last seconds."""
    done = run(
        """
        import multiprocessing
        handle = otelkit.instrument()
        context = multiprocessing.get_context("fork")
        workers = [context.Process(target=call, args=(handle, 5)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(collector.steps()) == 15
    assert len(collector.spans()) == 18


def test_gevent_patched_after_us_does_not_block(collector: HttpCollector) -> None:
    """Otherwise a gevent server started by `otelkit run` would hang at its first generation."""
    pytest.importorskip("gevent", reason="no gevent here; it is in the `dev` group of pyproject.toml")
    done = run(
        """
        handle = otelkit.instrument(defer_providers=True)
        from gevent import monkey
        monkey.patch_all()
        import gevent
        ticks = []
        def tick():
            while True:
                ticks.append(1)
                gevent.sleep(0.01)
        gevent.spawn(tick)
        handle.sink.generation_started(lambda: SITE)  # providers are set up now
        gevent.joinall([gevent.spawn(call, handle, 5) for _ in range(10)], timeout=10)
        gevent.sleep(0.3)
        assert handle.flush(5)
        assert len(ticks) > 20, len(ticks)
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert len(collector.steps()) == 50
