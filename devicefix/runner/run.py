"""Check many files: each one alone first, then those for which the other files make a difference."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from devicefix.config.settings import ConfigError, Settings
from devicefix.files import discover
from devicefix.files.kinds import Kind, is_python, kind_of
from devicefix.model import Outcome, Result
from devicefix.runner.errors import internal_error
from devicefix.runner.first_pass import FirstPass, Stamp
from devicefix.runner.pool import CHUNK, POOL_FROM, pool_for
from devicefix.runner.progress import Progress

if TYPE_CHECKING:
    from devicefix.facts.project import Project
    from devicefix.runner.cache import Cache
    from devicefix.runner.pool import Pool

Content = tuple[bytes, tuple[str, Stamp | None]]  # a file's bytes, with their digest and stamp for the cache

R = TypeVar("R")

_OTHER = "not checked: it is neither Python nor a notebook, documentation or configuration file"


def find_files(paths: Iterable[Path], settings: Settings, onerror: Callable[[OSError], None]) -> list[Path]:
    """Return the files that paths name, and in folders those that the settings include.

    Args:
        paths: files and folders.
        settings: what to exclude, and whether to include configuration files and documentation.
        onerror: called for each folder that cannot be read.

    Raises:
        ConfigError: a pattern of what to exclude is not valid.
    """
    include = partial(is_included, settings)
    try:
        return discover.find(paths, settings.exclusions, onerror, include)
    except ValueError as problem:
        raise ConfigError(f"exclude: {problem}") from None


def is_included(settings: Settings, path: str) -> bool:
    """Return whether the settings include a file of a folder, by its name."""
    kind = kind_of(path)
    return (
        is_python(path)
        or kind is Kind.NOTEBOOK
        or (kind is Kind.CONFIG and settings.config_files)
        or (kind is Kind.DOCS and settings.docs)
    )


def check_files(files: list[Path], settings: Settings) -> list[Outcome]:
    """Check files, in several processes where that pays.

    Args:
        files: the files; together they are the project.
        settings: as for the engine; `jobs` is the number of processes, by default one a core.

    Returns:
        One outcome a file, in the order of `files`. With `settings.fix`, the remaining findings have their
        places in the new source.
    """
    paths = [os.fspath(path) for path in files]
    cache = _cache(settings)
    known = cache.outcomes(paths) if cache and len(paths) >= POOL_FROM else None
    if known is not None:  # the outcomes of fewer files depend on what they import as well
        return known
    with ExitStack() as stack:
        pool = pool_for(settings, len(paths), stack)
        progress = Progress(2 * len(paths), settings.quiet)
        stack.callback(progress.close)
        seen = cache.seen(paths) if cache else {}
        todo = [path for path in paths if path not in seen]
        passes = _map(partial(_first_pass, settings, len(paths)), settings, todo, pool)
        seen |= zip(todo, progress(passes), strict=True)
        seen = {path: seen[path] for path in paths}
        outcomes = _second_passes(seen, settings, progress, pool, stack)
    if cache and (todo or len(paths) >= POOL_FROM):
        cache.save(seen, outcomes)
    return outcomes


def check_text(
    data: bytes,
    path: str,
    settings: Settings,
    project: Project | None = None,
    *,
    follow_imports: bool = True,
) -> Outcome:
    """Check content that need not be on disk; the outcome always keeps it as `before`.

    Args:
        data: the content.
        path: the path it has, or would have.
        settings: as for the engine.
        project: the facts of all files; by default those of the content and of what it imports.
        follow_imports: whether to read what it imports.
    """
    if kind_of(path) is Kind.OTHER:
        return Outcome(path, Result(path), data, _OTHER)
    from devicefix.engine.file import File
    from devicefix.facts.project import Project
    from devicefix.runner.configurations import configurations
    from devicefix.runner.imports import imported

    try:
        file = File(data, path, settings)
        if project is None:
            summaries = file.summaries
            if follow_imports:
                summaries += imported(summaries)
            project = Project.of(summaries + configurations(summaries))
        return Outcome(path, _portable(file.check(project)), data)
    except Exception as problem:
        return Outcome(path, Result(path), data, internal_error(problem))


def _cache(settings: Settings) -> Cache | None:
    """Return the cache of earlier runs; a run that fixes needs more than it keeps."""
    if settings.cache_dir is None or settings.fix:
        return None
    from devicefix.runner.cache import Cache

    return Cache(settings.cache_dir, settings)


def _first_pass(
    settings: Settings, among: int, path: str, sent: Content | OSError | None = None
) -> FirstPass:
    """Check one file as if it were the whole project; for most files, that is all there is to do."""
    if kind_of(path) is Kind.OTHER:
        return FirstPass(outcome=Outcome(path, Result(path), error=_OTHER))
    from devicefix.engine.file import File
    from devicefix.facts.project import Project

    try:
        data, version = _content(path, settings, sent)
        file = File(data, path, settings)
        summary = next(iter(file.summaries), None)  # a file holds one module, or exports nothing
        project = Project.alone(summary, among) if summary else Project()
        result = file.check(project)
    except OSError as problem:
        return FirstPass(outcome=Outcome(path, Result(path), error=problem.strerror or str(problem)))
    except Exception as problem:
        return FirstPass(outcome=Outcome(path, Result(path), error=internal_error(problem)))
    outcome = _outcome(data, result) if result.findings else None
    return FirstPass(*version, summary, outcome, project.answers)


def _second_passes(
    seen: dict[str, FirstPass], settings: Settings, progress: Progress, pool: Pool, stack: ExitStack
) -> list[Outcome]:
    """Return the outcomes of files, which have been checked alone, with the facts of all of them."""
    from devicefix.facts.project import Project
    from devicefix.runner.configurations import asks_for_configurations, configurations
    from devicefix.runner.imports import imported

    outcomes = {path: first.outcome or Outcome(path, Result(path)) for path, first in seen.items()}
    summaries = [first.summary for first in seen.values() if first.summary]
    summaries += imported(summaries)
    if any(map(asks_for_configurations, seen.values())):
        summaries += configurations(summaries)
    project = Project.of(summaries)
    todo = [path for path, first in seen.items() if not project.agrees(first.answers)]
    shared = _shared(project, pool, stack) if todo else project
    for outcome in progress(_map(partial(_second_pass, settings), settings, todo, pool, shared)):
        outcomes[outcome.path] = outcome
    return list(outcomes.values())


def _second_pass(
    settings: Settings, project: Project | str, path: str, sent: Content | OSError | None = None
) -> Outcome:
    """Check one file with the facts of all files."""
    from devicefix.engine.file import check_file

    try:
        data, _ = _content(path, settings, sent)
        project = _loaded(project) if isinstance(project, str) else project
        return _outcome(data, check_file(data, path, settings, project))
    except OSError as problem:
        return Outcome(path, Result(path), error=problem.strerror or str(problem))
    except Exception as problem:
        return Outcome(path, Result(path), error=internal_error(problem))


def _outcome(data: bytes, result: Result) -> Outcome:
    """Return the outcome of a file, which keeps its content where it changes."""
    return Outcome(result.path, _portable(result), b"" if result.output is None else data)


def _portable(result: Result) -> Result:
    """Return a result for another process, without the functions that fixes hold."""
    fixed = [finding.portable() for finding in result.fixed]
    remaining = [finding.portable() for finding in result.remaining]
    return Result(result.path, fixed + remaining, fixed, result.output)


# -- content and project, here or on another machine ----------------------------------------------------


def _content(path: str, settings: Settings, sent: Content | OSError | None) -> Content:
    """Return the content that was sent for a file, or else that on disk.

    Raises:
        OSError: it cannot be read.
    """
    if isinstance(sent, OSError):
        raise sent
    return sent or _read(path, settings)


def _read(path: str, settings: Settings) -> Content:
    if settings.cache_dir is None:
        return _bytes(path), ("", None)
    from devicefix.runner.cache import digest, stamp

    now = stamp(path)  # the next run sees a change after this
    data = _bytes(path)
    return data, (digest(data), now)


def _bytes(path: str) -> bytes:
    """Return the content of a file on disk, as `Path.read_bytes` does, which takes twice as long."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _sent(path: str, settings: Settings) -> Content | OSError:
    """Return a file's content for a worker that may not see this machine's disk."""
    try:
        return _read(path, settings)
    except OSError as problem:
        return OSError(problem.errno, problem.strerror)


def _shared(project: Project, pool: Pool, stack: ExitStack) -> Any:
    """Return the project in a form that each process gets once: a file's name, or a cluster's value."""
    if pool is None:
        return project
    from devicefix.runner.cluster import Cluster

    if isinstance(pool, Cluster):
        return pool.share(project)
    handle, name = tempfile.mkstemp(prefix="devicefix-")
    stack.callback(os.unlink, name)
    with os.fdopen(handle, "wb") as file:
        pickle.dump(project, file)
    return name


@lru_cache(maxsize=1)
def _loaded(project: str) -> Project:
    """Load the project, once a process and not once a file."""
    loaded: Project = pickle.loads(Path(project).read_bytes())
    return loaded


def _map(
    function: Callable[..., R], settings: Settings, paths: list[str], pool: Pool, *shared: Any
) -> Iterator[R]:
    """Map a function over files, in the pool if there is one.

    Args:
        function: called with what is shared, a path, and the file's content where a worker may lack it.
        settings: those of the run.
        paths: the files.
        pool: where to call it.
        shared: what `_shared` returned, if anything.
    """
    if pool is None:
        return map(partial(function, *shared), paths)
    from devicefix.runner.cluster import Cluster

    if isinstance(pool, Cluster):
        return pool.map(function, ((path, _sent(path, settings)) for path in paths), *shared)
    return pool.map(partial(function, *shared), paths, chunksize=CHUNK)
