"""The engine over many files: first the facts of all of them, then each by itself."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, TypeVar

from devicefix.config import Settings
from devicefix.finding import Result
from devicefix.gate import may_matter
from devicefix.outcome import Outcome, Seen, Stamp

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rich.progress import Progress

    from devicefix.cache import Cache
    from devicefix.project import Project
    from devicefix.summary import Summary

POOL_FROM = 40  # files; below, starting processes takes longer than they save
CHUNK = 16  # files that a process takes at a time

T = TypeVar("T")
R = TypeVar("R")


def run(files: list[Path], settings: Settings) -> list[Outcome]:
    """Look at files, in several processes where it pays.

    Args:
        files: what to look at. All of them together are the project.
        settings: as for the engine; `jobs` is the number of processes, by default one a core.

    Returns:
        One outcome a file, in the order of `files`. With `settings.fix`, the findings that remain
        stand where they are in the new source.
    """
    paths = [os.fspath(path) for path in files]
    cache = _cache(settings)
    known = cache.outcomes(paths) if cache and len(paths) >= POOL_FROM else None
    if known is not None:  # of fewer files, the outcomes rest on what they import as well
        return known
    with ExitStack() as stack:
        pool = _pool(settings.jobs or _cores(), len(paths), stack)
        progress = _Progress(2 * len(paths), settings.quiet)
        stack.callback(progress.close)
        seen = cache.seen(paths) if cache else {}
        todo = [path for path in paths if path not in seen]
        seen |= zip(todo, progress(_each(partial(_look, settings, len(paths)), todo, pool)), strict=True)
        seen = {path: seen[path] for path in paths}
        outcomes = _together(seen, settings, progress, pool, stack)
    if cache and (todo or len(paths) >= POOL_FROM):
        cache.save(seen, outcomes)
    return outcomes


def _cache(settings: Settings) -> Cache | None:
    """What earlier runs have found; a run that fixes needs more than that."""
    if settings.cache_dir is None or settings.fix:
        return None
    from devicefix.cache import Cache

    return Cache(settings.cache_dir, settings)


def _together(
    seen: dict[str, Seen], settings: Settings, progress: _Progress, pool: Executor | None, stack: ExitStack
) -> list[Outcome]:
    """What comes of files, each of which has been looked at alone."""
    from devicefix.project import Project

    outcomes = {path: each.outcome or Outcome(path, Result(path)) for path, each in seen.items()}
    summaries = [each.summary for each in seen.values() if each.summary]
    project = Project.of(summaries + _imported(summaries))
    todo = [path for path, each in seen.items() if not project.agrees(each.answers)]
    stored = _stored(project, stack) if todo else ""
    for outcome in progress(_each(partial(_examine, settings, stored), todo, pool)):
        outcomes[outcome.path] = outcome
    return list(outcomes.values())


def _stored(project: Project, stack: ExitStack) -> str:
    """A file that holds the project's facts, which each process reads once."""
    import pickle
    import tempfile

    handle, name = tempfile.mkstemp(prefix="devicefix-")
    stack.callback(os.unlink, name)
    with os.fdopen(handle, "wb") as file:
        pickle.dump(project, file)
    return name


def _imported(summaries: list[Summary]) -> list[Summary]:
    """The facts of what the given files import from their own work tree, where it is not given itself.

    A commit's few files are checked with what they rest on: their base classes, star imports and flags.
    """
    from devicefix.files import work_tree
    from devicefix.project import candidates
    from devicefix.summary import summarize

    if not summaries or len(summaries) > POOL_FROM:  # so many are a project by themselves
        return []
    folder = Path(os.path.commonpath([os.path.dirname(os.path.abspath(each.path)) for each in summaries]))
    top = (work_tree(folder) or folder).resolve()
    known = {os.path.normpath(each.path) for each in summaries}
    found: list[Summary] = []
    todo = list(summaries)
    while todo:
        importer = todo.pop()
        for module in importer.imports:
            for path in candidates(importer.path, module):
                if path in known or not (os.path.isfile(path) and Path(path).resolve().is_relative_to(top)):
                    continue
                known.add(path)
                summary = summarize(Path(path).read_bytes(), path)
                if summary is not None:
                    found.append(summary)
                    todo.append(summary)
    return found


def run_one(data: bytes, path: str, settings: Settings) -> Outcome:
    """Look at a content that is no file's and the whole project; the outcome keeps it in any case.

    Args:
        data: the content.
        path: what to call it.
        settings: as for the engine.
    """
    from devicefix.beside import is_beside
    from devicefix.project import Project
    from devicefix.summary import summarize

    try:
        summary = None if is_beside(path) else summarize(data, path)
        outcome = _outcome(data, path, settings, Project.of([summary] if summary else []))
        return replace(outcome, before=data)
    except Exception as problem:
        return Outcome(path, Result(path), data, internal_error(problem))


def _look(settings: Settings, among: int, path: str) -> Seen:
    """Look at a file as if it were the whole project; mostly that is all there is to it."""
    try:
        return _seen(settings, among, path)
    except OSError as problem:
        return Seen(outcome=Outcome(path, Result(path), error=problem.strerror or str(problem)))
    except Exception as problem:
        return Seen(outcome=Outcome(path, Result(path), error=internal_error(problem)))


def _seen(settings: Settings, among: int, path: str) -> Seen:
    from devicefix import engine
    from devicefix.beside import is_beside
    from devicefix.project import Project
    from devicefix.summary import passed_through, summary_of

    data, version = _read(path, settings)
    if is_beside(path):
        return Seen(*version, outcome=_outcome(data, path, settings, Project()))
    matters = engine.matters(data, settings)
    if not matters and b"CUDA_VISIBLE_DEVICES" not in data and not may_matter(data):
        return Seen(*version, passed_through(data, path))
    from devicefix.facts import Facts

    try:
        facts = Facts.read(data)
        summary = summary_of(facts, path)
    except engine.UNREADABLE:
        return Seen(*version, outcome=_outcome(data, path, settings, Project()))
    if not matters:
        return Seen(*version, summary)
    alone = Project.alone(summary, among)
    result = engine.examine(facts, path, settings, alone)
    return Seen(*version, summary, _after(result, data, settings, alone), alone.answers)


def _read(path: str, settings: Settings) -> tuple[bytes, tuple[str, Stamp | None]]:
    """A file's content, and what a cache wants to know of it."""
    if settings.cache_dir is None:
        return Path(path).read_bytes(), ("", None)
    from devicefix.cache import digest, stamp

    now = stamp(path)  # a change after this is seen by the next run
    data = Path(path).read_bytes()
    return data, (digest(data), now)


def _examine(settings: Settings, project: str, path: str) -> Outcome:
    """Look at a file with what the others say."""
    try:
        return _outcome(Path(path).read_bytes(), path, settings, _loaded(project))
    except OSError as problem:
        return Outcome(path, Result(path), error=problem.strerror or str(problem))
    except Exception as problem:
        return Outcome(path, Result(path), error=internal_error(problem))


def _outcome(data: bytes, path: str, settings: Settings, project: Project) -> Outcome:
    """What the engine makes of one file."""
    from devicefix import engine
    from devicefix.beside import is_beside

    if is_beside(path):
        from devicefix.beside.examine import run as look_beside

        return Outcome(path, look_beside(data, path, settings))
    return _after(engine.run(data, path, settings, project), data, settings, project)


def _after(result: Result, data: bytes, settings: Settings, project: Project) -> Outcome:
    """The outcome of a file, with what its fixes have let become possible fixed as well."""
    from devicefix import engine

    result = engine.settle(result, data, settings, project)
    before = b"" if result.output is None else data
    return Outcome(result.path, _portable(result), before)


def _portable(result: Result) -> Result:
    """A result to hand to another process: its fixes hold no functions."""
    fixed = [finding.portable() for finding in result.fixed]
    remaining = [finding.portable() for finding in result.remaining]
    return Result(result.path, fixed + remaining, fixed, result.output)


@lru_cache(maxsize=1)
def _loaded(project: str) -> Project:
    """The project's facts, once a process and not once a file."""
    import pickle

    loaded: Project = pickle.loads(Path(project).read_bytes())
    return loaded


def internal_error(problem: Exception) -> str:
    """What to tell about an error that is ours."""
    frames = extract_tb(problem.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"internal error, please report it: {type(problem).__name__}: {problem}{where}"


def _cores() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pool(jobs: int, files: int, stack: ExitStack) -> Executor | None:
    """Processes for so many files, None where they would not pay or cannot be had."""
    jobs = min(jobs, -(-files // CHUNK), 61 if sys.platform == "win32" else jobs)  # Windows' own limit
    if jobs < 2 or files < POOL_FROM:
        return None
    from concurrent.futures import ProcessPoolExecutor

    with suppress(ImportError, NotImplementedError, OSError):  # no semaphores, as in some sandboxes
        pool = ProcessPoolExecutor(jobs, initializer=_start)
        stack.callback(pool.shutdown, cancel_futures=True)
        return pool
    return None


def _start() -> None:
    """Make a process ready."""
    # Ctrl-C ends it at once and without a word: what to say is up to the one that has started it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    collect_less()


def collect_less() -> None:
    """Let the garbage collector look at what is new less often, and at what stays never.

    Syntax trees are many small objects, which mostly go without it: by default it takes a third of the time.
    """
    gc.set_threshold(50_000, 50, 1000)
    from devicefix.rules import RULES  # noqa: F401 so that what stays is there

    gc.freeze()


def _each(function: Callable[[T], R], items: list[T], pool: Executor | None) -> Iterator[R]:
    """`map`, in the pool if there is one."""
    return pool.map(function, items, chunksize=CHUNK) if pool else map(function, items)


class _Progress:
    """A bar on the terminal, from the second second on."""

    def __init__(self, total: int, quiet: bool) -> None:
        self.total = total
        self.done = 0
        self.shown_from = time.monotonic() + 1 if sys.stderr.isatty() and not quiet else float("inf")
        self.bar: Progress | None = None

    def __call__(self, items: Iterable[T]) -> Iterator[T]:
        """The items, counted as they go by."""
        for item in items:
            self.done += 1
            if time.monotonic() > self.shown_from:
                self._show()
            yield item

    def _show(self) -> None:
        if self.bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.add_task("devicefix", total=self.total)
            self.bar.start()
        self.bar.update(self.bar.task_ids[0], completed=self.done)

    def close(self) -> None:
        """Take the bar off the terminal."""
        if self.bar:
            self.bar.stop()
