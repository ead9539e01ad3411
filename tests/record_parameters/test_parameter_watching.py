"""Files that change under a running process, by real writes, renames, links and signals."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from parameters_declared import Declared

from otelkit.errors import ConfigError
from otelkit.model import UNSET, ChangeSource
from otelkit.record.parameters import counts
from otelkit.record.parameters.watching import FileWatcher


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


class Watched(Declared):
    """A store with a file that is looked at every 20 ms."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.store.call_begins()
        self.watcher = FileWatcher(self.store, self.reporter, poll_seconds=0.02)

    def get(self, name: str) -> object:
        return self.store.get(name)

    def replace_file(self, text: str) -> None:
        new = self.path.with_name("new")
        new.write_text(text)
        new.rename(self.path)

    @property
    def refused(self) -> int:
        return self.store.counts.read().get((counts.FILE, counts.REFUSED), 0)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    one = Watched(tmp_path / "chat.yaml")
    yield one
    one.watcher.close()


def test_an_edited_file_is_a_change_that_names_the_file_and_its_owner(watched: Watched) -> None:
    """If this fails, edits have no effect, or no one can tell who made them."""
    watched.path.write_text("max_tokens: 256\ntemperature: 0.7\n")
    watched.watcher.watch(watched.path)
    assert watched.get("max_tokens") == 256
    before = len(watched.sink.changes)
    assert before == 0, "that there is a file now is no change"
    watched.path.write_text("# more\nmax_tokens: 1024\ntemperature: 0.70\nstop: [a]\n")
    until(lambda: watched.get("max_tokens") == 1024)
    changes = [change for change in watched.sink.changes[before:] if change.effective_at is None]
    assert [(c.parameter, c.old, c.new) for c in changes] == [
        ("max_tokens", 256, 1024),
        ("stop", UNSET, ["a"]),
    ]
    assert {change.source for change in changes} == {ChangeSource.CONFIG_FILE}
    owner = pwd.getpwuid(os.getuid()).pw_name
    assert changes[0].origin.startswith(f"{owner} wrote {watched.path} at 20")


def test_replaced_linked_and_removed_files_are_followed(watched: Watched, tmp_path: Path) -> None:
    """If this fails, editors that write a new file, or Kubernetes ConfigMaps, are not seen."""
    watched.path.write_text("limit: 1\n")
    watched.watcher.watch(watched.path)
    stamp = watched.path.stat().st_mtime_ns
    watched.replace_file("limit: 2\n")
    os.utime(watched.path, ns=(stamp, stamp))  # same size, same time: only the inode tells
    until(lambda: watched.get("limit") == 2)
    other = tmp_path / "other.yaml"
    other.write_text("limit: 3\n")
    watched.path.unlink()
    watched.path.symlink_to(other)
    until(lambda: watched.get("limit") == 3)
    watched.path.unlink()
    until(lambda: watched.watcher.files[0].problems)
    assert watched.watcher.files[0].problems == (f"{watched.path}: can't be read: No such file or directory",)
    assert watched.get("limit") == 3, "what was loaded stays in force"
    watched.path.write_text("limit: 4\n")
    until(lambda: watched.get("limit") == 4)
    assert watched.watcher.files[0].problems == ()


def test_a_bad_file_leaves_the_old_set_says_why_and_is_counted_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """If this fails, a typo changes half of the parameters, floods the log or goes unnoticed."""
    watched.store.register("max_tokens", 256, kind=int, maximum=4096)
    watched.path.write_text("max_tokens: 512\ntop_p: 0.5\n")
    watched.watcher.watch(watched.path)
    watched.replace_file("top_p: 0.9\nmax_tokens: 9999\nstop: [a]\n")
    until(lambda: watched.refused)
    time.sleep(0.1)
    assert watched.refused == 1
    assert (watched.get("max_tokens"), watched.get("top_p"), watched.get("stop")) == (512, 0.5, UNSET)
    problem = f"{watched.path}:2: max_tokens: 9999 is above the maximum 4096"
    assert watched.watcher.files[0].problems == (problem,)
    assert caplog.text.count(problem) == 1 and "the values loaded before stay in force" in caplog.text
    watched.replace_file("max_tokens: [\n")
    until(lambda: watched.refused == 2)
    assert "chat.yaml:2: is not YAML" in watched.watcher.files[0].problems[0]
    watched.replace_file("max_tokens: 600\n")
    until(lambda: watched.get("max_tokens") == 600)
    assert watched.get("top_p") is UNSET, "what a file no longer says is no longer in force"


def test_a_file_caught_half_written_is_looked_at_again_before_anyone_complains(watched: Watched) -> None:
    """If this fails, every save by an editor that truncates first is logged as an error."""
    watched.path.write_text("limit: 1\n")
    watched.watcher.watch(watched.path)
    for number in range(2, 30):
        with watched.path.open("w") as file:
            file.flush()
            time.sleep(0.02)
            file.write(f"limit: {number}\n")
        time.sleep(0.01)
    until(lambda: watched.get("limit") == 29)
    assert watched.refused <= 3, "28 truncated files were caught, few of them twice in one state"


def test_readers_see_whole_files_only(watched: Watched) -> None:
    """If this fails, a reload hands out a mix of two files."""
    names = [f"p{number}" for number in range(10)]
    watched.path.write_text(json.dumps(dict.fromkeys(names, 0)))
    watched.watcher.watch(watched.path)
    mixes, stop = [], threading.Event()

    def read() -> None:
        while not stop.is_set():
            values = set(watched.store.snapshot().values())
            if len(values) > 1:
                mixes.append(values)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 15):
        watched.replace_file(json.dumps(dict.fromkeys(names, number)))
        watched.watcher.reload()
    stop.set()
    for thread in threads:
        thread.join()
    assert not mixes and watched.get("p0") == 14


def test_a_file_that_is_bad_at_start_is_an_error_unless_it_may_be(watched: Watched) -> None:
    """If this fails, a service starts with parameters that nobody wrote."""
    with pytest.raises(ConfigError, match=r"chat\.yaml: can't be read: No such file"):
        watched.watcher.watch(watched.path)
    with pytest.raises(ConfigError, match="is no regular file"):
        watched.watcher.watch(watched.path.parent)
    os.mkfifo(watched.path.with_name("pipe.yaml"))
    with pytest.raises(ConfigError, match="is no regular file"):
        watched.watcher.watch(watched.path.with_name("pipe.yaml"))
    assert watched.watcher.files == ()
    watched.watcher.watch(watched.path, required=False)
    watched.path.write_text("limit: 1\n")
    until(lambda: watched.get("limit") == 1)


def test_of_several_files_the_last_one_counts_and_the_others_step_in(watched: Watched) -> None:
    """If this fails, the order in which files were edited decides, and a restart brings other values."""
    first, last = watched.path.with_name("first.yaml"), watched.path
    first.write_text("limit: 1\nother: 1\n")
    last.write_text("limit: 2\n")
    watched.watcher.watch(first)
    watched.watcher.watch(last)
    assert (watched.get("limit"), watched.get("other")) == (2, 1)
    first.write_text("limit: 10\nother: 10\n")
    until(lambda: watched.get("other") == 10)
    assert watched.get("limit") == 2
    watched.replace_file("{}")
    until(lambda: watched.get("limit") == 10)


def test_unknown_parameters_are_refused_on_demand(watched: Watched) -> None:
    """If this fails, a misspelt parameter silently does nothing."""
    watched.store.register("max_tokens", 256)
    watched.path.write_text("max_token: 5\n")
    with pytest.raises(ConfigError) as caught:
        watched.watcher.watch(watched.path, strict=True)
    assert caught.value.problems == (
        f"{watched.path}:1: max_token: is no registered parameter; did you mean max_tokens?",
    )


def test_who_has_the_last_word(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If this fails, a restart puts other values in force than before, or an edit silently does nothing."""
    monkeypatch.setenv("OTELKIT_PARAMETER_TOP_P", "0.5")
    watched.store.register("max_tokens", 256)
    watched.store.register("top_p", 0.9)
    watched.path.write_text("max_tokens: 512\ntop_p: 0.6\n")
    watched.watcher.watch(watched.path)
    assert (watched.get("max_tokens"), watched.get("top_p")) == (512, 0.5)
    assert (
        f"{watched.path}:2: top_p: is not in force: environment variable OTELKIT_PARAMETER_TOP_P"
        in caplog.text
    )
    watched.store.set("max_tokens", 700)
    assert watched.watcher.reload() == ()
    assert watched.get("max_tokens") == 700, "a file that has not changed says nothing new"
    watched.replace_file("max_tokens: 800\ntop_p: 0.6\n")
    until(lambda: watched.get("max_tokens") == 800)
    watched.store.set("max_tokens", 900)
    watched.store.set("max_tokens", UNSET)
    assert watched.get("max_tokens") == 800


def run(program: str, *arguments: str) -> str:
    """Output of a Python program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sigusr2_reloads_and_the_handler_that_was_there_still_runs(tmp_path: Path) -> None:
    """If this fails, ``kill -USR2`` kills the service, does nothing, or disables the user's own handler."""
    path = tmp_path / "chat.json"
    path.write_text('{"limit": 1}')
    output = run(
        """
        import os, pathlib, signal, sys, time
        calls = []
        signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
        from otelkit.record import parameters
        from otelkit.record.parameters.process import process
        process.watcher._poll_seconds = 3600  # nothing but the signal makes it look
        parameters.watch(sys.argv[1])
        path = pathlib.Path(sys.argv[1])
        for limit in (2, 3):
            path.write_text('{"limit": %d}' % limit)
            os.kill(os.getpid(), signal.SIGUSR2)
            end = time.monotonic() + 20
            while parameters.get("limit") != limit and time.monotonic() < end:
                time.sleep(0.005)
            print(parameters.get("limit"), len(calls))
        path.write_text('{"limit": ')
        os.kill(os.getpid(), signal.SIGUSR2)
        end = time.monotonic() + 20
        while not process.watcher.files[0].problems and time.monotonic() < end:
            time.sleep(0.005)
        print(parameters.get("limit"), process.watcher.files[0].problems[0].partition(": ")[2])
        process.signal.uninstall()
        print(signal.getsignal(signal.SIGUSR2).__name__)
        """,
        str(path),
    )
    assert output.splitlines() == ["2 1", "3 2", "3 is not JSON: Expecting value", "<lambda>"]


def test_a_storm_of_signals_never_deadlocks_a_busy_main_thread(tmp_path: Path) -> None:
    """If this fails, a signal that arrives while the main thread holds a lock hangs the service."""
    path = tmp_path / "chat.json"
    path.write_text('{"limit": 1}')
    output = run(
        """
        import os, signal, sys, threading, time
        from otelkit.record import parameters
        parameters.watch(sys.argv[1])
        stop = threading.Event()
        def storm():
            while not stop.is_set():
                os.kill(os.getpid(), signal.SIGUSR2)
                time.sleep(0.0005)
        thread = threading.Thread(target=storm)
        thread.start()
        end = time.monotonic() + 2
        number = 0
        while time.monotonic() < end:
            number += 1
            parameters.set("other", number)
            parameters.get("limit")
            parameters.reload()
        stop.set()
        thread.join()
        print(parameters.get("limit"), parameters.get("other") == number)
        """,
        str(path),
    )
    assert output.split() == ["1", "True"]


def test_outside_the_main_thread_the_signal_is_left_alone(tmp_path: Path) -> None:
    """If this fails, watching a file from a worker thread raises."""
    path = tmp_path / "chat.json"
    path.write_text('{"limit": 1}')
    output = run(
        """
        import signal, sys, threading
        from otelkit.record import parameters
        thread = threading.Thread(target=parameters.watch, args=(sys.argv[1],))
        thread.start()
        thread.join()
        print(parameters.get("limit"), signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL)
        """,
        str(path),
    )
    assert output.split() == ["1", "True"]


def test_a_forked_child_goes_on_watching(tmp_path: Path) -> None:
    """If this fails, workers of a server that loads before it forks never see an edit."""
    path = tmp_path / "chat.json"
    path.write_text('{"limit": 1}')
    output = run(
        """
        import os, pathlib, sys, time, warnings
        from otelkit.record import parameters
        from otelkit.record.parameters.process import process
        process.watcher._poll_seconds = 0.02
        parameters.watch(sys.argv[1])
        child = os.fork()
        if child == 0:
            end = time.monotonic() + 20
            while parameters.get("limit") != 2 and time.monotonic() < end:
                time.sleep(0.005)
            parameters.set("other", 1)
            os._exit(parameters.get("limit"))
        time.sleep(0.1)
        pathlib.Path(sys.argv[1]).write_text('{"limit": 2}')
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        str(path),
    )
    assert output.split() == ["2"]


def test_the_environment_names_files_and_a_bad_one_never_stops_the_start(tmp_path: Path) -> None:
    """If this fails, ``otelkit run`` can't load parameters, or a typo in one takes the service down."""
    good, bad = tmp_path / "good.toml", tmp_path / "bad.json"
    good.write_text("[llm]\nlimit = 5\n")
    bad.write_text("{")
    program = """
        import otelkit
        from otelkit import parameters
        from otelkit.record.parameters.process import process
        assert otelkit.instrument() is None, "values are the service's, also when telemetry is off"
        print(parameters.get("limit"), sorted(process.input_counts().items()))
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={
            **os.environ,
            "OTELKIT_PARAMETERS_FILE": f"{good}#llm{os.pathsep}{bad}",
            "OTEL_SDK_DISABLED": "true",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "5 [(('file', 'applied'), 1), (('file', 'refused'), 1)]"
    assert f"{bad}:1: is not JSON" in done.stderr
