"""One run of the demo, from an empty folder to a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import math
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from otelkit import report
from otelkit.causal import Explanation, explain
from otelkit.demo import calibrate, load, missing_packages, script, stack, traces, truth
from otelkit.demo.drive import Driven, drive
from otelkit.demo.load import LoadReport
from otelkit.demo.model import check_gguf, ensure_model
from otelkit.demo.otlp_receiver import OtlpReceiver
from otelkit.demo.progress import say
from otelkit.demo.prometheus import Prometheus, checked, find_tool
from otelkit.demo.supervise import HOST, Supervisor, claim_port
from otelkit.errors import BackendUnreachable, DataError, OtelkitError, UsageError
from otelkit.model import ParameterChange
from otelkit.query.panel import Panel
from otelkit.query.prometheus import PrometheusSource
from otelkit.query.scrape import ScrapeSource
from otelkit.query.source import Source
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


_CHILDREN_NEED: Final = ("openai", "starlette", "uvicorn", "xllamacpp")


class Interrupted(OtelkitError):  # noqa: N818  (states a condition, like its siblings)
    """The user ended the demo before there was anything to report on."""

    exit_code = 130


@dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose."""

    output: Path = Path("otelkit-demo")
    """Folder in which each run gets a folder of its own."""
    minutes: float = script.DEFAULT_MINUTES
    seed: int = 1
    rate: float | None = None
    """Requests a second; None is chosen from what the machine carries."""
    model: Path | None = None
    otlp: str | None = None
    """Base URL of an OTLP/HTTP receiver; None writes to files in the run's folder."""
    prometheus: Path | None = None
    use_prometheus: bool = True
    service_port: int | None = None
    metrics_port: int | None = None
    prometheus_port: int | None = None
    script: script.Script | None = None
    """Another script than the demo's own, which ``minutes`` and ``seed`` then do not shape."""


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
    panel: Panel
    changes: tuple[ParameterChange, ...]
    warnings: tuple[str, ...]


def run(options: Options) -> Result:
    """Run the demo.

    Raises:
        OtelkitError: it could not begin, or recorded too little to say anything.
        KeyboardInterrupt: it was interrupted before the load began.
    """
    _check(options)
    model = check_gguf(options.model) if options.model else ensure_model(say=say)
    binary = _prometheus_binary(options)
    ports = {
        "service": claim_port(options.service_port, option="--service-port"),
        "metrics": claim_port(options.metrics_port, option="--metrics-port"),
        "prometheus": claim_port(options.prometheus_port, option="--prometheus-port"),
    }
    scripted = options.script or script.default_script(minutes=options.minutes, seed=options.seed)
    directory = _new_directory(options.output)
    say(f"everything of this run is kept in {directory}")
    logs = directory / "logs"
    logs.mkdir()
    spec_file = directory / SPEC_FILE
    spec_file.write_text(SPEC, encoding="utf-8")
    spec = load_spec(spec_file)

    with contextlib.ExitStack() as everything:
        otlp = options.otlp or everything.enter_context(OtlpReceiver(directory)).endpoint
        supervisor = everything.enter_context(Supervisor(logs))
        say(f"loading the model {model.name}")
        server = stack.start_model_server(supervisor, model)
        settings = script.SettingsFile(directory / "service-settings.json", scripted.heaviest)

        say(f"measuring for {CALIBRATION_SECONDS:.0f} s what this machine carries")
        bare = stack.start_service(
            supervisor, model=server, settings=settings.path, port=ports["service"], telemetry=None
        )
        url = stack.chat_url(ports["service"])
        capacity = asyncio.run(calibrate.measure(url, seconds=CALIBRATION_SECONDS, seed=options.seed))
        supervisor.stop(bare)
        rate = calibrate.choose_rate(capacity, utilisation=scripted.utilisation, wanted=options.rate)
        requests = load.plan(rate=rate, seconds=scripted.seconds, seed=options.seed, surges=scripted.surges)
        settings.replace(scripted.base)

        stack.start_service(
            supervisor,
            model=server,
            settings=settings.path,
            port=ports["service"],
            telemetry=stack.telemetry_environment(
                otlp=otlp,
                metrics_port=ports["metrics"],
                objectives=stack.objectives(capacity.requests_per_second),
            ),
        )
        target = f"{HOST}:{ports['metrics']}"
        with _source(supervisor, spec, directory, binary, target, ports["prometheus"]) as source:
            say(
                f"load: {rate:.2f} requests/s for {scripted.seconds:.0f} s, arrivals and lengths from the "
                f"Azure trace (this machine carries {capacity.requests_per_second:.2f}/s at most)"
            )
            driven = asyncio.run(drive(url, scripted, requests, settings, check=supervisor.check))
            seconds = driven.ended_at - driven.began_at
            held = LoadReport.of(requests, driven.sent, seconds=min(seconds, scripted.seconds))
            truth.write(directory / "truth.json", scripted, driven, held, seed=options.seed, rate=rate)
            say(str(held))
            if driven.interrupted:
                say("interrupted: reporting on what was recorded; once more to leave at once")
            recorded = _read(source, driven)
    return _report(directory, recorded, held)


def _check(options: Options) -> None:
    missing = [name for name in _CHILDREN_NEED if importlib.util.find_spec(name) is None]
    if missing:
        raise missing_packages(missing)
    if not script.FEWEST_MINUTES <= options.minutes < math.inf:
        raise UsageError(
            f"--minutes {options.minutes:g}: too short for the script, or endless.",
            hint=f"Use {script.FEWEST_MINUTES:g} or more.",
        )
    if options.rate is not None and not 0 < options.rate < math.inf:
        raise UsageError(f"--rate {options.rate:g}: must be more than 0 requests per second.")
    if options.otlp is not None:
        _check_reachable(options.otlp)


def _check_reachable(url: str) -> None:
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port:
        raise UsageError(
            f"--otlp {url}: not an http or https address.", hint="Write for instance http://127.0.0.1:4318"
        )
    try:
        socket.create_connection((parts.hostname, port), timeout=5).close()
    except OSError as error:
        raise BackendUnreachable(
            f"--otlp {url}: nothing answers there: {error.strerror or error}.",
            hint="Start the receiver, or leave --otlp out to have spans written to a file.",
        ) from error


def _prometheus_binary(options: Options) -> Path | None:
    if not options.use_prometheus:
        return None
    if options.prometheus is not None:
        return checked(options.prometheus)
    found = find_tool("prometheus")
    if found is None:
        say("no prometheus in .tools or on PATH: the same buckets are scraped in process instead")
        return None
    try:
        return checked(found)
    except UsageError as error:
        say(f"{error.message} The same buckets are scraped in process instead.")
        return None


def _new_directory(output: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for attempt in range(100):
        directory = output / (f"{stamp}-{attempt}" if attempt else stamp)
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"{directory}: can't be made: {error.strerror}.",
                hint="Name a folder that can be written: --output DIR",
            ) from error
        return directory.resolve()
    raise UsageError(f"{output}: a hundred runs began there this second.", hint="Try again.")


@contextlib.contextmanager
def _source(
    supervisor: Supervisor, spec: Spec, directory: Path, binary: Path | None, target: str, port: int
) -> Iterator[Source]:
    """A real Prometheus where there is one, else scraping in this process."""
    if binary is None:
        with ScrapeSource([f"http://{target}/metrics"], spec, interval=SCRAPE_SECONDS) as scraped:
            yield scraped
        return
    server = Prometheus.start(supervisor, binary, directory=directory, spec=spec, target=target, port=port)
    with PrometheusSource(server.url, spec) as queried:
        yield queried


def _read(source: Source, driven: Driven) -> _Recorded:
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
    return _Recorded(driven, panel, changes, source.warnings)


def _report(directory: Path, recorded: _Recorded, held: LoadReport) -> Result:
    for warning in recorded.warnings:
        say(f"note: {warning}")
    say(f"what the script really did, for comparison: {directory / 'truth.json'}")
    explanation = explain(recorded.panel, stack.SERVICE, recorded.changes)
    document = json.dumps(report.to_json([explanation]), separators=(",", ":"))
    (directory / "report.json").write_text(document + "\n", encoding="utf-8")
    page = directory / "report.html"
    generations = traces.read_generations(directory / "traces.jsonl", stack.SERVICE)
    exemplars = traces.choose_exemplars(explanation, generations)
    page.write_text(report.render_page(explanation, recorded.panel, exemplars=exemplars), encoding="utf-8")
    return Result(
        directory=directory,
        load=held,
        explanation=explanation,
        page=page,
        interrupted=recorded.driven.interrupted,
        failure=recorded.driven.failure,
    )
