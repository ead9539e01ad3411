"""``otelkit demo``: a real model, a real load, scripted changes, and the verdict on them."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import click

_INTERRUPTED: Final = 130


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@click.command("demo")
@click.option(
    "--minutes",
    type=float,
    help="Length of the load, to which the script is stretched [default: 5.5, up to 7.5 on a slow machine].",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Chooses the part of the trace and shifts the script.",
)
@click.option("--rate", type=float, help="Requests per second [default: from what the machine carries].")
@click.option(
    "--model",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A GGUF model file [default: SmolLM2-135M, fetched once].",
)
@click.option(
    "--otlp",
    metavar="URL",
    help="OTLP/HTTP receiver for spans and logs [default: files in the run's folder].",
)
@click.option(
    "--prometheus",
    "prometheus",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A Prometheus 3.x binary [default: from .tools or PATH].",
)
@click.option("--no-prometheus", is_flag=True, help="Scrape in process instead of starting Prometheus.")
@click.option(
    "--service-port", type=click.IntRange(1, 65535), help="Port of the service [default: a free one]."
)
@click.option(
    "--metrics-port", type=click.IntRange(1, 65535), help="Port of its /metrics page [default: a free one]."
)
@click.option(
    "--prometheus-port", type=click.IntRange(1, 65535), help="Port of Prometheus [default: a free one]."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("otelkit-demo"),
    show_default=True,
    help="Each run gets a folder in here.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Form of the verdict on stdout: a table, or one line of JSON.",
)
def command(
    minutes: float | None,
    seed: int,
    rate: float | None,
    model: Path | None,
    otlp: str | None,
    prometheus: Path | None,
    no_prometheus: bool,
    service_port: int | None,
    metrics_port: int | None,
    prometheus_port: int | None,
    output: Path,
    output_format: str,
) -> None:
    """Run a real model under a real load, change its parameters, and say which change moved P99.

    The last line on stdout is the path of the page with the verdict. Ctrl-C ends the load early; what was
    recorded until then is kept and reported on.
    """
    if prometheus is not None and no_prometheus:
        raise click.UsageError("--prometheus and --no-prometheus exclude each other.")
    # A polite kill ends the demo as Ctrl-C does: children ended, what was recorded kept.
    signal.signal(signal.SIGTERM, _interrupt)
    from otelkit.demo import missing_packages

    try:
        from otelkit import report
        from otelkit.demo.options import Options
        from otelkit.demo.run import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("otelkit"):
            raise
        raise missing_packages([error.name]) from error

    result = run(
        Options(
            output=output,
            minutes=minutes,
            seed=seed,
            rate=rate,
            model=model,
            otlp=otlp,
            prometheus=prometheus,
            use_prometheus=not no_prometheus,
            service_port=service_port,
            metrics_port=metrics_port,
            prometheus_port=prometheus_port,
        )
    )
    if output_format == "json":
        click.echo(json.dumps(report.to_json([result.explanation]), separators=(",", ":")))
    else:
        click.echo(report.render_table([result.explanation]))
    click.echo(result.page)
    if result.failure is not None:
        raise result.failure
    if result.interrupted:
        sys.exit(_INTERRUPTED)
