"""An hour of history in a real Prometheus within seconds: otelkit's own metrics code is driven through
simulated calls, its analyser's page shows scripted findings, and promtool turns the pages into blocks. What
Tempo and Prometheus itself would write is scripted here.
"""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import time
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.utils import floatToGoString

from otelkit import rules, semconv
from otelkit.analyse import Judgement, State
from otelkit.analyse.page import OwnMetrics, Verdicts
from otelkit.analyse.state import Movement
from otelkit.causal import Finding, Interval, Verdict
from otelkit.emit.metrics import GenerationMetrics
from otelkit.emit.self_metrics import SelfMetrics
from otelkit.model import CallSite, ChangeSource, Generation, Outcome, ParameterChange
from otelkit.spec import parse_spec

STEP = 15
LENGTH = 60 * 60
IN_FLIGHT = 3
CHAT, SEARCH = "chat", "search"
SPEC_TEXT = f"""
services: [{{name: {CHAT}, slos: [{{errors: 1%}}, {{latency: 1.28, quantile: 0.95}}]}}, {{name: {SEARCH}}}]
windows: [1m, 5m]
parameters:
- {{name: max_tokens, threshold: 120ms}}
- {{name: seed, threshold: 120ms}}
- {{name: temperature, threshold: 120ms}}
"""
SPEC = parse_spec(SPEC_TEXT)


@dataclass(frozen=True)
class Script:
    """What happened, in seconds after the start of the history."""

    longer_at: float = 30 * 60
    back_at: float = 48 * 60
    seed_at: float = 18 * 60
    warmer_at: float = 39 * 60


SCRIPT = Script()


class _Pages:
    """Samples of some registries, scraped at simulated times."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.others: list[CollectorRegistry] = []
        self._families: dict[str, tuple[str, dict[Hashable, tuple[str, list[str]]]]] = {}

    def scrape(self, at: float) -> None:
        for family in [*self.registry.collect(), *(one for other in self.others for one in other.collect())]:
            _, series = self._families.setdefault(family.name, (family.type, {}))
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                key = (sample.name, *sample.labels.values())
                if key not in series:
                    labels = {"job": "scripted", "instance": "scripted:1", **sample.labels}
                    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))
                    series[key] = (f"{sample.name}{{{inner}}}", [])
                series[key][1].append(f"{floatToGoString(sample.value)} {at:.3f}")

    def text(self) -> str:
        parts = []
        for name, (kind, series) in self._families.items():
            parts.append(f"# TYPE {name} {kind}")
            parts += [f"{start} {rest}" for start, samples in series.values() for rest in samples]
        return "\n".join([*parts, "# EOF", ""])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def history(start: float) -> str:
    """The whole history as OpenMetrics text with timestamps, from Unix time ``start``."""
    pages = _Pages()
    calls = GenerationMetrics(pages.registry)
    own = {name: _self_metrics(pages.registry, name) for name in (CHAT,)}
    others = _Others(pages.registry)
    analyser = _Analyser(pages)
    dice = random.Random(7)
    under_way: deque[Generation] = deque()
    for tick in range(LENGTH // STEP + 1):
        offset = tick * STEP
        for service, model, rate in (
            (CHAT, "small-1", 2.4),
            (CHAT, "large-1", 0.6),
            (SEARCH, "small-1", 1.2),
        ):
            for number in range(_poisson(dice, rate * STEP)):
                generation = _generation(dice, service, model, start + offset, offset, number)
                calls.started(generation.call_site)
                under_way.append(generation)
                if len(under_way) > IN_FLIGHT:
                    calls.ended(under_way.popleft(), traced=False)
        for change, seen_at in changes(start):
            if 0 <= offset - seen_at < STEP:
                calls.changed(change)
        written = _poisson(dice, 900)
        own[CHAT].written(written)
        own[CHAT].delivered(written - (40 if 1200 < offset < 1320 else 0))
        own[CHAT].dropped(40 if 1200 < offset < 1320 else 0, "buffer_full")
        own[CHAT].not_selected(120, "over_rate")
        own[CHAT].lost(int(offset == 2000 // STEP * STEP), "queue_full")
        own[CHAT].overhead("encode", 0.004)
        others.tick()
        others.of_prometheus_itself(offset)
        analyser.tick(offset, start)
        pages.scrape(start + offset)
    return pages.text()


def changes(start: float) -> list[tuple[ParameterChange, float]]:
    """The changes and when they are seen, seconds after the start."""
    steps = [
        ("seed", 1, 2, SCRIPT.seed_at),
        ("max_tokens", 64, 256, SCRIPT.longer_at),
        ("temperature", 0.7, 0.9, SCRIPT.warmer_at),
        ("max_tokens", 256, 128, SCRIPT.back_at),
    ]
    return [
        (
            ParameterChange(CHAT, name, old, new, start + at, start + at, source=ChangeSource.OBSERVED),
            at,
        )
        for name, old, new, at in steps
    ]


def limit_at(offset: float) -> int:
    if offset < SCRIPT.longer_at:
        return 64
    return 256 if offset < SCRIPT.back_at else 128


def _generation(
    dice: random.Random, service: str, model: str, at: float, offset: float, number: int
) -> Generation:
    site = CallSite(service, "openai", "chat", model, "app.py:answer")
    limit = limit_at(offset) if service == CHAT else 48
    tokens = max(2, min(limit, int(dice.expovariate(1 / 110.0)) + 2))
    pace = dice.lognormvariate(-4.6, 0.35) * (1.8 if model == "large-1" else 1.0)
    begin = int((at + number * 0.01) * 1e9)
    steps, now = [], begin + int(dice.lognormvariate(-2.6, 0.5) * 1e9)
    for position in range(tokens):
        now += int((pace * (1 + position / 400) + (0.8 if dice.random() < 0.0008 else 0)) * 1e9)
        steps.append(now)
    failed = dice.random() < (0.08 if model == "large-1" else 0.01)
    return Generation(
        call_site=site,
        start_ns=begin,
        end_ns=steps[-1],
        step_ns=steps,
        streamed=True,
        outcome=Outcome.ERROR if failed else Outcome.COMPLETED,
        error_type="RateLimitError" if failed else "",
        input_tokens=int(dice.lognormvariate(5, 0.8)),
        output_tokens=tokens,
        step_entropies=[dice.lognormvariate(0, 0.4)] * tokens,
        repeated_token_share=dice.betavariate(2, 6),
    )


def _poisson(dice: random.Random, mean: float) -> int:
    return max(0, round(dice.gauss(mean, mean**0.5)))


def _self_metrics(registry: CollectorRegistry, service: str) -> SelfMetrics:
    return SelfMetrics(service, registry, pending=lambda: 2)


class _Analyser:
    """The analyser's own page, over findings as the script has them."""

    def __init__(self, pages: _Pages) -> None:
        self.state = State()
        self.own = OwnMetrics()
        pages.registry.register(Verdicts(lambda: self.state, SPEC))
        pages.others.append(self.own.registry)

    def tick(self, offset: float, start: float) -> None:
        """It sees a change soon, and has a verdict after five minutes; on the last change none yet."""
        self.own.rounds.labels("done").inc()
        self.own.round_seconds.set(2.5)
        self.own.data_until.set(start + offset - STEP)
        self.own.waiting.set(int(offset % 600 < 60))
        judged = [
            Judgement(change, finding(change), start + offset) if offset >= at + 300 else Judgement(change)
            for change, at in changes(start)
            if at <= offset
        ]
        moved = offset >= SCRIPT.longer_at + 300
        movement = Movement(2.48, 9.10, 0.07, 9.10) if moved else Movement(p99_now=2.48)
        self.state = State({CHAT: tuple(judged)}, {CHAT: movement}, start + offset)


def finding(change: ParameterChange) -> Finding | None:
    """What the engine might say of a change; None for the one that it is too early for."""

    def known(verdict: Verdict, effect: Interval, lag: float | None, r: float, q: float) -> Finding:
        ratio = Interval(effect.value / 2.48, effect.low / 2.48, effect.high / 2.48)
        paths = {"output_length": 0.878, "queueing": 0.092} if verdict is Verdict.CAUSAL else {}
        return Finding(
            change,
            verdict,
            "scripted",
            effect=effect,
            effect_ratio=ratio,
            lag_seconds=lag,
            pearson_r=r,
            p_value=q / 3,
            q_value=q,
            mechanism={path: Interval(share, share - 0.1, share + 0.1) for path, share in paths.items()},
        )

    if change.parameter == "seed":
        return known(Verdict.NO_EFFECT, Interval(0.004, -0.03, 0.035), None, 0.11, 0.71)
    if change.parameter == "temperature":
        return known(Verdict.CORRELATED_ONLY, Interval(0.21, -0.05, 0.46), None, 0.42, 0.19)
    if change.new == 256:
        return known(Verdict.CAUSAL, Interval(6.55, 5.9, 7.2), 12.0, 0.93, 0.003)
    return None


class _Others:
    """Metrics of Tempo and of Prometheus itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ends = (semconv.LABEL_CLIENT, semconv.LABEL_SERVER)
        self.graph = Counter(
            semconv.METRIC_SERVICE_GRAPH_REQUESTS.removesuffix("_total"), "g", ends, registry=registry
        )
        self.graph_failed = Counter(
            semconv.METRIC_SERVICE_GRAPH_FAILED.removesuffix("_total"), "g", ends, registry=registry
        )
        self.graph_seconds = Histogram(
            semconv.METRIC_SERVICE_GRAPH_DURATION, "g", ends, buckets=(0.1, 0.4, 1.6, 6.4), registry=registry
        )
        self.of_prometheus = {
            name: Gauge(name, "scripted", labels, registry=registry)
            for name, labels in {
                semconv.METRIC_UP: (),
                semconv.METRIC_SCRAPE_DURATION: (),
                semconv.METRIC_SCRAPE_SAMPLES: (),
                semconv.METRIC_RULE_DURATION: (semconv.LABEL_RULE_GROUP,),
                semconv.METRIC_RULE_INTERVAL: (semconv.LABEL_RULE_GROUP,),
            }.items()
        }
        self.rule_failures = Counter(
            semconv.METRIC_RULE_FAILURES.removesuffix("_total"),
            "r",
            (semconv.LABEL_RULE_GROUP,),
            registry=registry,
        )

    def tick(self) -> None:
        """Calls between services."""
        for client, server, calls, failed, seconds in (
            ("web", CHAT, 45, 1, 2.0),
            ("web", SEARCH, 18, 2, 0.3),
            (CHAT, SEARCH, 9, 0, 0.05),
        ):
            self.graph.labels(client, server).inc(calls)
            self.graph_failed.labels(client, server).inc(failed)
            self.graph_seconds.labels(client, server).observe(seconds)

    def of_prometheus_itself(self, offset: float) -> None:
        """Its scrapes, with one target down for two minutes, and its rules."""
        numbers = (0.0 if 900 < offset < 1020 else 1.0, 0.02, 400, 0.004, 15)
        for one, number in zip(self.of_prometheus.values(), numbers, strict=True):
            (one.labels("/rules/a.yaml;otelkit-latency-1m") if one._labelnames else one).set(number)
        self.rule_failures.labels("/rules/a.yaml;otelkit-latency-1m").inc(0)


@dataclass(frozen=True)
class FilledPrometheus:
    url: str
    start: float
    end: float


@contextlib.contextmanager
def filled_prometheus(binary: Path, promtool: Path, directory: Path) -> Iterator[FilledPrometheus]:
    """A Prometheus with the history and the series that the generated rules record from it."""
    end = time.time() // STEP * STEP
    start = end - LENGTH
    page, data = directory / "history.om", directory / "data"
    page.write_text(history(start), encoding="utf-8")
    _run([promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", page, data])
    # Rules that read what other rules record come second: promtool evaluates all over what is stored before.
    for order, which in enumerate(_in_order(rules.generate(SPEC))):
        path = directory / f"{order}.rules.yaml"
        path.write_text(yaml.safe_dump({"groups": [{"name": "history", "rules": which}]}), encoding="utf-8")
        with running_prometheus(binary, directory) as url:
            span = (f"--start={start + 60:.0f}", f"--end={end:.0f}", f"--eval-interval={STEP}s")
            tool = (promtool, "tsdb", "create-blocks-from", "rules", f"--url={url}", f"--output-dir={data}")
            _run([*tool, *span, path])
    with running_prometheus(binary, directory) as url:
        yield FilledPrometheus(url, start + 60, end)


def _in_order(files: Mapping[str, str]) -> Iterator[list[dict[str, str]]]:
    """Recording rules in passes: each reads only what the passes before it record."""
    every = [
        rule for text in files.values() for group in yaml.safe_load(text)["groups"] for rule in group["rules"]
    ]
    waiting = [rule for rule in every if "record" in rule]
    while waiting:
        names = {rule["record"] for rule in waiting}
        ready = [rule for rule in waiting if not any(name in rule["expr"] for name in names)]
        assert ready, "rules that read one another"
        yield ready
        waiting = [rule for rule in waiting if rule not in ready]


@contextlib.contextmanager
def running_prometheus(binary: Path, directory: Path) -> Iterator[str]:
    """Prometheus over the data in ``directory / 'data'``; it scrapes nothing."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    (directory / "prometheus.yml").write_text("scrape_configs: []\n", encoding="utf-8")
    command = [
        str(binary),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
        # Blocks made by promtool lack the marks that end a series: it would go on for five minutes.
        f"--query.lookback-delta={3 * STEP}s",
    ]
    with (directory / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until_ready(f"http://{address}", process, directory / "prometheus.log")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/-/ready", timeout=2).status_code == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"Prometheus did not start: {log.read_text()[-2000:]}")


def _run(command: list[object]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[:4]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def main() -> None:
    """Keep the filled Prometheus running until Ctrl-C, to look at dashboards with."""
    import tempfile

    from otelkit.demo.prometheus import find_tool

    binary, promtool = find_tool("prometheus"), find_tool("promtool")
    assert binary is not None and promtool is not None, "scripts/fetch-prometheus brings both"
    with tempfile.TemporaryDirectory() as scratch:
        spec = Path(scratch, "otelkit.yaml")
        spec.write_text(SPEC_TEXT, encoding="utf-8")
        with filled_prometheus(binary, promtool, Path(scratch)) as server:
            print(
                f"otelkit dashboards preview --png --spec {spec} --prometheus {server.url} "
                f"--since {server.start:.0f} --until {server.end:.0f}",
                flush=True,
            )
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(86_400)


if __name__ == "__main__":
    main()
