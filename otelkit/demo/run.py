"""One run of the demo, from an empty folder to a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otelkit import report
from otelkit.causal import Explanation, explain
from otelkit.compose.machine import HOST
from otelkit.demo import calibrate, load, stack, truth
from otelkit.demo.calibrate import Capacity
from otelkit.demo.drive import Driven, drive
from otelkit.demo.load import LoadReport, PlannedRequest
from otelkit.demo.options import Options, Prepared, prepare
from otelkit.demo.otlp_receiver import TRACES_FILE, OtlpReceiver
from otelkit.demo.progress import say
from otelkit.demo.prometheus import Prometheus
from otelkit.demo.script import SettingsFile
from otelkit.demo.supervise import Supervisor, free_port
from otelkit.errors import BackendUnreachable, DataError, OtelkitError
from otelkit.model import ParameterChange
from otelkit.query import Panel, PrometheusSource, ScrapeSource, Source
from otelkit.query.traces import read_generations
from otelkit.spec import SPEC_FILE, Spec, load_spec

SCRAPE_SECONDS: Final = 1.0
CALIBRATION_SECONDS: Final = 6.0
SPEC: Final = f"""\
# Written by `otelkit demo`: what a user writes once for their own services.
services:
  - name: {stack.SERVICE}
    preset: gen_ai
base_window: 5m
windows: [30s, 1m]
scrape_interval: {SCRAPE_SECONDS:.0f}s
evaluation_interval: {SCRAPE_SECONDS:.0f}s
"""


class Interrupted(OtelkitError):  # noqa: N818  (states a condition, like its siblings)
    """The user ended the demo before there was anything to report on."""

    exit_code = 130


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave."""

    directory: Path
    load: LoadReport
    explanation: Explanation
    page: Path
    interrupted: bool
    failure: OtelkitError | None
    """Why the run ended before its time; the verdict then rests on what was recorded until then."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """All that was read back of a run."""

    driven: Driven
    held: LoadReport
    panel: Panel
    changes: tuple[ParameterChange, ...]
    warnings: tuple[str, ...]


def run(options: Options) -> Result:
    """Run the demo. Must be called from the main thread.

    Raises:
        OtelkitError: it could not begin, or recorded too little to say anything.
        KeyboardInterrupt: it was interrupted before the load began.
    """
    prepared = prepare(options)
    say(f"everything of this run is kept in {prepared.directory}")
    logs = prepared.directory / "logs"
    logs.mkdir()
    # The receiver comes first and so is left last: what children send while they end is written too.
    with contextlib.ExitStack() as receiving, Supervisor(logs) as supervisor:
        otlp = options.otlp or receiving.enter_context(OtlpReceiver(prepared.directory)).endpoint
        recorded = _record(prepared, supervisor, otlp)
    return _report(prepared.directory, recorded)


def _record(prepared: Prepared, supervisor: Supervisor, otlp: str) -> _Recorded:
    """Start everything, send the load, make the changes, and read back what came of it."""
    options, script, directory = prepared.options, prepared.script, prepared.directory
    say(f"loading the model {prepared.model.name}")
    model = stack.start_model_server(supervisor, prepared.model)
    settings = SettingsFile(directory / "service-settings.json", script.heaviest)
    service_port = options.service_port or free_port()
    capacity = _measure(supervisor, model, settings, service_port, options.seed)
    rate = calibrate.choose_rate(capacity, utilisation=script.utilisation, wanted=options.rate)
    script = script.at_rate(rate)
    requests = load.plan(rate=rate, seconds=script.seconds, seed=options.seed, surges=script.surges)
    settings.replace(script.base)

    metrics_port = options.metrics_port or free_port()
    telemetry = stack.telemetry_environment(
        otlp=otlp, metrics_port=metrics_port, objectives=stack.objectives(capacity.requests_per_second)
    )
    stack.start_service(
        supervisor, model=model, settings=settings.path, port=service_port, telemetry=telemetry
    )
    with _source(prepared, supervisor, f"{HOST}:{metrics_port}") as source:
        say(
            f"load: {rate:.2f} requests/s for {script.seconds:.0f} s, arrivals and lengths from the Azure "
            f"trace (this machine carries {capacity.requests_per_second:.2f}/s at most)"
        )
        url = stack.chat_url(service_port)
        driven = asyncio.run(drive(url, script, requests, settings, check=supervisor.check))
        held = _held(driven, requests, script.seconds)
        truth.write(directory / "truth.json", script, driven, held, seed=options.seed, rate=rate)
        say(str(held))
        if driven.interrupted:
            say("interrupted: reporting on what was recorded; once more to leave at once")
        return _read(source, driven, held)


def _measure(
    supervisor: Supervisor, model: stack.ModelServer, settings: SettingsFile, port: int, seed: int
) -> Capacity:
    """What the machine carries, through a service that nothing observes: its counters begin with the load."""
    say(f"measuring for {CALIBRATION_SECONDS:.0f} s what this machine carries")
    bare = stack.start_service(supervisor, model=model, settings=settings.path, port=port, telemetry=None)
    capacity = asyncio.run(calibrate.measure(stack.chat_url(port), seconds=CALIBRATION_SECONDS, seed=seed))
    supervisor.stop(bare)
    return capacity


def _held(driven: Driven, requests: Sequence[PlannedRequest], planned_seconds: float) -> LoadReport:
    # Waiting for the last answers is not part of the load.
    seconds = min(driven.ended_at - driven.began_at, planned_seconds)
    return LoadReport.of(requests, driven.sent, seconds=seconds)


@contextlib.contextmanager
def _source(prepared: Prepared, supervisor: Supervisor, target: str) -> Iterator[Source]:
    """A real Prometheus where there is one, else scraping in this process."""
    spec = _write_spec(prepared.directory)
    if prepared.prometheus is None:
        with ScrapeSource([f"http://{target}/metrics"], spec, interval=SCRAPE_SECONDS) as scraped:
            yield scraped
        return
    server = Prometheus.start(
        supervisor,
        prepared.prometheus,
        directory=prepared.directory,
        spec=spec,
        target=target,
        port=prepared.options.prometheus_port or free_port(),
    )
    with PrometheusSource(server.url, spec) as queried:
        yield queried


def _write_spec(directory: Path) -> Spec:
    path = directory / SPEC_FILE
    path.write_text(SPEC, encoding="utf-8")
    return load_spec(path)


def _read(source: Source, driven: Driven, held: LoadReport) -> _Recorded:
    # The last answers are on the page; two scrapes and an evaluation later they are in the series.
    time.sleep(3 * SCRAPE_SECONDS)
    start, end = driven.began_at, time.time()
    try:
        panel = source.panel([stack.SERVICE], start, end, SCRAPE_SECONDS)
        changes = source.changes(start, end, stack.SERVICE)
    except (DataError, BackendUnreachable) as error:
        if driven.interrupted:
            raise Interrupted("interrupted before enough was recorded for a verdict.") from error
        # Whatever ended the run early is the better explanation of missing data.
        raise driven.failure or error from error
    return _Recorded(driven, held, panel, changes, source.warnings)


def _report(directory: Path, recorded: _Recorded) -> Result:
    for warning in recorded.warnings:
        say(f"note: {warning}")
    explanation = explain(recorded.panel, stack.SERVICE, recorded.changes)
    document = json.dumps(report.to_json([explanation]), separators=(",", ":"))
    (directory / "report.json").write_text(document + "\n", encoding="utf-8")
    generations = read_generations(directory / TRACES_FILE, stack.SERVICE)
    exemplars = report.choose_exemplars(explanation, generations)
    page = directory / "report.html"
    page.write_text(report.render_page(explanation, recorded.panel, exemplars=exemplars), encoding="utf-8")
    say(f"what the script really did, for comparison: {directory / 'truth.json'}")
    return Result(
        directory=directory,
        load=recorded.held,
        explanation=explanation,
        page=page,
        interrupted=recorded.driven.interrupted,
        failure=recorded.driven.failure,
    )
