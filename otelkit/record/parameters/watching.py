"""Keeps parameters in step with configuration files: one daemon thread that looks at them once in a while.

A file is read when its modification time, size or inode has changed, so that it may be edited, replaced or,
like a mounted Kubernetes ConfigMap, switched by a link. A file that can't be read, parsed or allowed leaves
the old values in force; that is logged and counted once for each state of the file.
"""

from __future__ import annotations

import datetime
import difflib
import os
import queue
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from otelkit.errors import ConfigError
from otelkit.model import UNSET, ChangeSource, ParameterValue
from otelkit.record import guard
from otelkit.record.parameters import counts
from otelkit.record.parameters.files import MAX_BYTES, Document, ProblemError, flatten, parse
from otelkit.record.parameters.reporting import Reporter
from otelkit.record.parameters.snapshot import Act, Layer
from otelkit.record.parameters.store import ParameterStore
from otelkit.record.stable import stable_text

POLL_SECONDS: Final = 1.0

_Signature = tuple[int, int, int, int] | None
"""(device, inode, modification time in ns, size); None for a file that can't be found."""


@dataclass(slots=True)
class WatchedFile:
    """A file and what became of it."""

    path: Path
    section: str
    scope: str
    strict: bool
    values: Mapping[str, ParameterValue] = field(default_factory=dict)
    """What was applied last."""
    loaded_at: float | None = None
    """Unix seconds at which the file was last read without a problem."""
    problems: tuple[str, ...] = ()
    """Why its present state is not in force; empty while it is."""
    failed_at: float | None = None
    signature: _Signature | tuple[()] = ()
    """Of the state dealt with last; ``()`` before the first."""
    suspect: _Signature | tuple[()] = ()
    """Of a state that failed once: perhaps it was still being written."""


class FileWatcher:
    """Watches configuration files.

    Args:
        poll_seconds: time between two looks.
        now: Unix seconds.
    """

    def __init__(
        self,
        store: ParameterStore,
        reporter: Reporter,
        *,
        poll_seconds: float = POLL_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._reporter = reporter
        self._poll_seconds = poll_seconds
        self._now = now
        self._files: list[WatchedFile] = []
        self._new_thread_state()

    def _new_thread_state(self) -> None:
        self._lock = threading.RLock()
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def files(self) -> tuple[WatchedFile, ...]:
        """The files watched, in the order in which they were given."""
        return tuple(self._files)

    def watch(
        self,
        path: str | Path,
        *,
        section: str = "",
        scope: str = "",
        strict: bool = False,
        required: bool = True,
    ) -> None:
        """Load a file of parameters now, and again whenever it changes.

        Args:
            section: keys separated by dots that lead to the parameters in the file; empty for the whole file.
            scope: the model or route that the values are for; empty for the whole service.
            strict: refuse parameters that were not registered.
            required: raise when the file is bad now. Otherwise that is logged, and the file is still watched.

        Raises:
            ConfigError: the file is bad and required.
        """
        file = WatchedFile(Path(path).absolute(), section, scope, strict)
        with self._lock:
            try:
                file.signature = _signature(file.path)
                self._load(file)
            except ConfigError as error:
                if required:
                    raise
                self._failed(file, error)
            self._files.append(file)
            self._ensure_thread()

    def reload(self) -> tuple[str, ...]:
        """Read every file again, changed or not; returns what is wrong with them. Never raises."""
        with self._lock:
            for file in self._files:
                self._check(file, forced=True)
            return tuple(problem for file in self._files for problem in file.problems)

    def request_reload(self) -> None:
        """Have the thread reload at once. Safe in a signal handler: ``SimpleQueue.put`` is reentrant."""
        self._wake.put(True)

    def close(self) -> None:
        """Stop watching; the values stay."""
        with self._lock:
            self._files.clear()
            thread, self._thread = self._thread, None
        if thread is not None:
            self._wake.put(False)
            thread.join(timeout=10)

    def after_fork(self) -> None:
        """In the child: its own locks and its own thread."""
        self._new_thread_state()
        if self._files:
            self._ensure_thread()

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._wake,), name="otelkit-parameters", daemon=True
            )
            self._thread.start()

    def _run(self, wake: queue.SimpleQueue[bool]) -> None:
        while True:
            wanted: set[bool] = set()
            try:
                wanted.add(wake.get(timeout=self._poll_seconds))
                while True:  # several signals, one reload
                    wanted.add(wake.get_nowait())
            except queue.Empty:
                pass
            if False in wanted:
                return
            forced = True in wanted
            for file in self.files:
                try:
                    with self._lock:
                        self._check(file, forced=forced)
                except Exception:
                    guard.fault("look at a file of parameters")

    def _check(self, file: WatchedFile, *, forced: bool) -> None:
        signature = _signature(file.path)
        if signature == file.signature and not forced:
            return
        try:
            self._load(file)
        except ConfigError as error:
            if not forced and file.suspect != signature:
                file.suspect = signature  # look once more before complaining
                return
            self._failed(file, error)
        file.signature = signature

    def _failed(self, file: WatchedFile, error: ConfigError) -> None:
        file.problems, file.failed_at = error.problems, self._now()
        self._store.counts.add(counts.FILE, counts.REFUSED)
        kept = "the values loaded before stay in force" if file.loaded_at else "nothing of it is in force"
        for problem in error.problems:
            self._reporter.problem(f"{problem} ({kept})")

    def _load(self, file: WatchedFile) -> None:
        """Read and apply a file, all of it or nothing.

        Raises:
            ConfigError: with every problem there is.
        """
        content, origin = _read(file.path)
        document = parse(file.path, content, file.section)
        registered = {name for scope, name in self._store.registered() if scope in ("", file.scope)}
        document = flatten(document, registered)
        problems = _unknown(document, registered) if file.strict else {}
        keyed = {(file.scope, name): value for name, value in document.values.items()}
        checked, refused = self._store.checked(keyed)
        problems |= {name: text for (_, name), text in refused.items()}
        if problems:
            raise ConfigError(
                [
                    ProblemError(text, line=document.lines.get(name, 0), key=name).at(file.path)
                    for name, text in sorted(problems.items(), key=lambda one: document.lines.get(one[0], 0))
                ]
            )
        values = {name: value for (_, name), value in checked.items()}
        before = _said([(one, one.values) for one in self._files], file.scope)
        known = any(one is file for one in self._files)
        after = _said(
            [
                (one, values if one is file else one.values)
                for one in (*self._files, *(() if known else (file,)))
            ],
            file.scope,
        )
        news = {
            (file.scope, name): after.get(name, UNSET)
            for name in {**before, **after}
            if stable_text(after.get(name, UNSET)) != stable_text(before.get(name, UNSET))
        }
        changed = self._store.apply(
            Layer.FILE, news, Act(ChangeSource.CONFIG_FILE, origin), report_new=file.loaded_at is not None
        )
        file.values, file.loaded_at = values, self._now()
        file.problems, file.failed_at = (), None
        self._store.counts.add(counts.FILE, counts.APPLIED if changed else counts.UNCHANGED)
        self._tell_covered(file, {name for _, name in news if name in values}, document)

    def _tell_covered(self, file: WatchedFile, names: set[str], document: Document) -> None:
        """Say which new values are not in force because the environment has the last word."""
        snapshot = self._store.snapshot()
        for name in sorted(names):
            entry = snapshot.entry(name, file.scope)
            if entry is not None and entry.layer is Layer.ENVIRONMENT:
                text = f"is not in force: {entry.act.origin} has the last word"
                self._reporter.problem(
                    ProblemError(text, line=document.lines.get(name, 0), key=name).at(file.path)
                )


def _said(
    files: Iterable[tuple[WatchedFile, Mapping[str, ParameterValue]]], scope: str
) -> dict[str, ParameterValue]:
    """What files say for a scope, each with its values; of several that say something the last one counts."""
    said: dict[str, ParameterValue] = {}
    for file, values in files:
        if file.scope == scope:
            said.update(values)
    return said


def _signature(path: Path) -> _Signature:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path) -> tuple[bytes, str]:
    """The file's content, and who wrote it when.

    Raises:
        ConfigError: it can't be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
            raise ConfigError([f"{path}: is no regular file; give the path of one"])
        with path.open("rb") as file:
            content, found = file.read(MAX_BYTES + 1), os.fstat(file.fileno())
    except OSError as error:
        raise ConfigError([f"{path}: can't be read: {error.strerror or error}"]) from error
    written = datetime.datetime.fromtimestamp(found.st_mtime, datetime.UTC).isoformat(timespec="seconds")
    # The time last: where the text is cut for a label, that of the change says about the same.
    return content, f"{_owner(found.st_uid)} wrote {path} at {written}"


def _owner(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"user {uid}"


def _unknown(document: Document, registered: set[str]) -> dict[str, str]:
    problems = {}
    for name in document.values:
        if name not in registered:
            near = difflib.get_close_matches(name, registered, 1)
            problems[name] = "is no registered parameter" + (f"; did you mean {near[0]}?" if near else "")
    return problems
