"""What generated rules cost and how exact they are, against a real Prometheus. Prints one JSON object.

    python benchmarks/rules.py [--prometheus PATH] [--promtool PATH] [--services 200] [--hours 6]

``scale``: a spec of 1,000 services with three objectives each. ``accuracy``: P99 read from histograms beside
P99 of the latencies. ``evaluation``: 200 services in a real Prometheus, whose memory holds the last 65
minutes of all series, as that of a long-running one does, and whose blocks hold six hours of what burn rates
are computed from. Its forms:

- ``otelkit``: what ``otelkit generate rules`` writes.
- ``naive``: the same quantiles, rates and alerts, one expression on raw series per rule, as often as ours.
- ``naive_with_burn_rates_recorded``: alerts read burn rates, each of them recorded from the raw series.
- ``naive_at_the_scrape_interval``: as ``naive``, in groups that state no interval: all every 15 s.

Windows of one and three days find six hours to read, which favours the naive forms: in production they read
four and twelve times more. Progress goes to stderr. The last line on stdout is one JSON object; ``bars`` has
the goals and whether they were met. Without Prometheus the parts that need it are left out (``skipped``).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml
from rules_accuracy import accuracy
from rules_evaluation import Setup, evaluation

SECONDS: Final = 5.0
MEGABYTES: Final = 500.0
SHARE_OF_INTERVAL: Final = 0.5
TIMES_CHEAPER: Final = 3.0
SHARPENED_ERROR_PERCENT: Final = 5.0


def main() -> None:
    options = _options()
    result: dict[str, Any] = {"scale": scale(options.promtool), "accuracy": accuracy(options.promtool)}
    skipped = []
    if options.prometheus and options.promtool:
        result["evaluation"] = evaluation(
            Setup(
                options.prometheus,
                options.promtool,
                options.services,
                options.instances,
                options.hours,
                options.seconds,
            )
        )
    else:
        skipped.append("evaluation: no prometheus or promtool was found")
    if not options.promtool:
        skipped.append("promtool's checks of the output and of the arithmetic")
    result["skipped"] = skipped
    result["bars"] = _bars(result)
    for bar in result["bars"]:
        print(
            f"{'ok' if bar['ok'] else 'MISSED'}: {bar['name']}: {bar['value']} ({bar['goal']})",
            file=sys.stderr,
        )
    print(json.dumps(result))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prometheus", default=_tool("prometheus"))
    parser.add_argument("--promtool", default=_tool("promtool"))
    parser.add_argument("--services", type=int, default=200)
    parser.add_argument("--instances", type=int, default=3, help="processes per service")
    parser.add_argument("--hours", type=float, default=6, help="history of what burn rates are computed from")
    parser.add_argument("--seconds", type=float, default=150, help="how long each form is evaluated")
    return parser.parse_args()


def _tool(name: str) -> str | None:
    fetched = Path(__file__).parents[1] / ".tools" / "prometheus" / "usr" / "bin" / name
    return str(fetched) if fetched.is_file() else shutil.which(name)


_GENERATE: Final = """
import resource, sys, time
from pathlib import Path
from otelkit.rules import generate
from otelkit.spec import load_spec
began = time.perf_counter()
spec = load_spec(sys.argv[1])
for name, text in generate(spec).items():
    Path(sys.argv[2], name).write_text(text)
used = resource.getrusage(resource.RUSAGE_SELF)
print(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def scale(promtool: str | None) -> dict[str, Any]:
    """A thousand services with three objectives each: alike, and each picked by a selector of its own."""
    result = {}
    for kind in ("alike", "each its own selector"):
        services = [
            {
                "name": f"service-{index:04}",
                **({} if kind == "alike" else {"selector": {"job": f"job-{index}"}}),
                "slos": [
                    {"name": "fast", "latency": 0.64, "quantile": 0.95},
                    {"name": "tail", "latency": 2.56},
                    {"errors": f"{0.1 * (1 + index % 5):.1f}%"},
                ],
            }
            for index in range(1000)
        ]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "otelkit.yaml")
            path.write_text(yaml.safe_dump({"services": services}))
            done = subprocess.run(
                [sys.executable, "-c", _GENERATE, str(path), folder],
                capture_output=True,
                text=True,
                check=True,
            )
            seconds, cpu, megabytes = map(float, done.stdout.split())
            files = sorted(Path(folder).glob("*.rules.yaml"))
            rules = sum(len(re.findall(r"- (?:record|alert):", file.read_text())) for file in files)
            result[kind] = {
                "services": 1000,
                "objectives": 3000,
                "rules": rules,
                "seconds": round(seconds, 3),
                "cpu_seconds_with_start": round(cpu, 3),
                "peak_megabytes": round(megabytes, 1),
                "promtool_accepts": _accepted(promtool, files),
            }
    return result


def _accepted(promtool: str | None, files: list[Path]) -> bool | None:
    if promtool is None:
        return None
    command = [promtool, "check", "rules", "--lint=all", "--lint-fatal", *map(str, files)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    bars = []

    def bar(name: str, value: Any, goal: str, ok: bool) -> None:
        bars.append({"name": name, "value": value, "goal": goal, "ok": ok})

    for kind, one in result["scale"].items():
        bar(
            f"seconds for 1,000 services ({kind})",
            one["seconds"],
            f"<= {SECONDS:g}",
            one["seconds"] <= SECONDS,
        )
        memory = one["peak_megabytes"]
        bar(f"megabytes for 1,000 services ({kind})", memory, f"<= {MEGABYTES:g}", memory <= MEGABYTES)
        if one["promtool_accepts"] is not None:
            accepted = one["promtool_accepts"]
            bar(f"promtool accepts 1,000 services ({kind})", int(accepted), ">= 1", accepted)
    if "evaluation" in result:
        measured = result["evaluation"]
        worst = measured["otelkit"]["worst_share_of_interval"]
        bar(
            "largest share of its interval of a group",
            worst,
            f"<= {SHARE_OF_INTERVAL:g}",
            worst <= SHARE_OF_INTERVAL,
        )
        left_out = len(measured["otelkit"]["not_evaluated"]) + len(measured["by_hand"]["not_evaluated"])
        bar("groups not evaluated", left_out, "<= 0", left_out == 0)
        failures = measured["otelkit"]["failures"] + measured["by_hand"]["failures"]
        bar("evaluations that failed", failures, "<= 0", failures == 0)
        times = measured["times_cheaper_than"]["naive"]
        bar(
            "times cheaper than one expression per rule",
            times,
            f">= {TIMES_CHEAPER:g}",
            times >= TIMES_CHEAPER,
        )
    for kind, forms in result["accuracy"].items():
        if isinstance(forms, dict):
            worst = forms["sharpened buckets"]["worst_error_percent"]
            bar(
                f"worst error of P99 with sharpened buckets, % ({kind})",
                worst,
                f"<= {SHARPENED_ERROR_PERCENT:g}",
                worst <= SHARPENED_ERROR_PERCENT,
            )
    return bars


if __name__ == "__main__":
    main()
