"""Check many files: summarize each one for the others first, then check it with the facts of all of them."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from devicefix.config.resolver import Resolver
from devicefix.config.settings import Settings
from devicefix.config.sizes import read
from devicefix.files import discover
from devicefix.files.border import Borders
from devicefix.files.kinds import Kind, is_python, kind_of, language_of
from devicefix.model import Outcome, Result
from devicefix.runner.errors import internal_error
from devicefix.runner.parsed import PARSED
from devicefix.runner.pool import CHUNK, POOL_FROM, pool_for
from devicefix.runner.progress import Progress
from devicefix.runner.record import Record, Stamp

if TYPE_CHECKING:
    from devicefix.facts.exports import Summary
    from devicefix.facts.project import Project
    from devicefix.runner.cache import Cache
    from devicefix.runner.pool import Pool

Content = tuple[bytes, tuple[str, Stamp | None]]  # a file's bytes, with their digest and stamp for the cache


class Task(NamedTuple):
    """A file to check, with its settings."""

    path: str
    settings: Settings


R = TypeVar("R")

_TOO_LARGE = "; exclude it, or raise the limit with --max-file-size"
_OTHER = "not checked: the file is neither Python code nor a notebook, documentation or configuration file"


def find_files(paths: Iterable[Path], resolver: Resolver, onerror: Callable[[OSError], None]) -> list[Path]:
    """Return the files that paths name, and in folders those that the settings include.

    Args:
        paths: files and folders.
        resolver: the settings: what to exclude, and whether to include configuration files and documentation.
        onerror: called for each folder that cannot be read, and if git takes too long to list files.

    Raises:
        ConfigError: the configuration of a folder is invalid.
    """
    return discover.find(paths, Choice(resolver), onerror)


class Choice(discover.Filter):
    """The files that the settings include.

    Args:
        resolver: the settings of each file.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def includes(self, path: str) -> bool:
        """Return whether the settings include a file of a folder, by its name."""
        kind = kind_of(path)
        if kind is Kind.CONFIG:
            return self._resolver.of(path).config_files
        if kind is Kind.ENVIRONMENT:
            settings = self._resolver.of(path)
            return settings.environment or (settings.config_files and language_of(path) is not None)
        if kind is Kind.DOCS:
            return self._resolver.of(path).docs
        return is_python(path) or kind is Kind.NOTEBOOK

    def excludes(self, path: str) -> bool:
        """Return whether the settings exclude a file, or a folder."""
        return discover.is_excluded(path, self._resolver.of(path).exclusions)

    def excludes_named(self, path: str) -> bool:
        """Return whether the settings exclude a file or folder even if it is named."""
        return self._resolver.of(path).force_exclude and discover.is_below_excluded(path, self)

    def asks_git(self, folder: str) -> bool:
        """Return whether the settings leave out what git ignores in a folder."""
        return self._resolver.of(os.path.join(folder, "file")).respect_gitignore


class Modules(Choice):
    """The modules that the settings include."""

    def includes(self, path: str) -> bool:
        """Return whether to include a file of a folder."""
        return is_python(path)


def check_files(files: list[Path], resolver: Resolver, named: Iterable[Path] = ()) -> list[Outcome]:
    """Check files, in several processes where that pays.

    Args:
        files: the files. Each is checked with the facts of its whole project, see `Borders`.
        resolver: the settings, as for the engine; `jobs` is the number of processes, by default one a core.
        named: the paths that were named, as far as all files below them are among `files`.

    Returns:
        One outcome a file, in the order of `files`. With `settings.fix`, the remaining findings have their
        places in the new source.

    Raises:
        ConfigError: the configuration of a file is invalid.
    """
    settings = resolver.root
    checked = _tasks(files, resolver)
    around = _tasks(others(checked, resolver, named), resolver)
    tasks = checked | around
    cache = _cache(resolver)
    known = cache.outcomes(list(checked), list(around)) if cache and len(tasks) >= POOL_FROM else None
    if known is not None:  # the outcomes of fewer files depend on what they import as well
        return known
    with ExitStack() as stack:
        pool = pool_for(settings, len(tasks), stack)
        progress = Progress(2 * len(tasks), settings.quiet)
        stack.callback(progress.close)
        records = cache.records(tasks) if cache else {}
        todo = [task for path, task in tasks.items() if path not in records]
        summarized = progress(_map(_summarized, todo, pool))
        records |= {task.path: record for task, record in zip(todo, summarized, strict=True)}
        records = {path: records[path] for path in tasks}
        count = len(todo)
        for project, group in _projects(records):
            stale = [tasks[path] for path in group if path in checked and not _holds(records[path], project)]
            shared = _shared(project, pool, stack) if stale else project
            for task, record in zip(stale, progress(_map(_checked, stale, pool, shared)), strict=True):
                records[task.path] = _with_summary(record, records[task.path])
            count += len(stale)
    outcomes = [records[path].outcome or Outcome(path, Result(path)) for path in checked]
    if cache and (count or len(tasks) >= POOL_FROM):
        cache.save(records, outcomes)
    return outcomes


@dataclass(frozen=True, slots=True)
class Summarized:
    """Files that are summarized, so that each can be checked when it is asked for.

    Attributes:
        files: those in which there may be something to find.
        failed: the outcomes of those that cannot be checked.
        check: checks one of the files with the facts of its project, perhaps with other settings.
    """

    files: list[str]
    failed: list[Outcome]
    check: Callable[..., Outcome]


def summarize_files(files: list[Path], resolver: Resolver) -> Summarized:
    """Summarize files, in several processes where that pays, to check some of them later.

    Args:
        files: as for `check_files`.
        resolver: as for `check_files`.

    Raises:
        ConfigError: the configuration of a file is invalid.
    """
    tasks = _tasks(files, resolver)
    with ExitStack() as stack:
        pool = pool_for(resolver.root, len(tasks), stack)
        progress = Progress(len(tasks), resolver.root.quiet)
        stack.callback(progress.close)
        summarized = progress(_map(_summarized, list(tasks.values()), pool))
        records = dict(zip(tasks, summarized, strict=True))
    projects = {path: project for project, group in _projects(records) for path in group}

    def check(path: str, other: Resolver | None = None) -> Outcome:
        task = tasks[path] if other is None else Task(path, other.of(path))
        return _checked(projects[path], task).outcome or Outcome(path, Result(path))

    failed = [record.outcome for record in records.values() if record.outcome]
    found = [path for path, record in records.items() if not _holds(record, projects[path])]
    return Summarized(found, failed, check)


def check_text(
    data: bytes, path: str, settings: Settings, facts: Callable[[list[Summary]], Project] | None = None
) -> Outcome:
    """Check content that need not be on disk; the outcome always keeps it as `before`.

    Args:
        data: the content.
        path: the path it has, or would have.
        settings: as for the engine.
        facts: returns the facts to check it with, given its summaries; by default they are its own and those
            of what it imports.
    """
    if kind_of(path) is Kind.OTHER:
        return Outcome(path, Result(path), data, _OTHER)
    if refusal := too_large(data, settings):
        return Outcome(path, Result(path), data, refusal)
    from devicefix.engine.file import File

    try:
        file = File(data, path, settings)
        project = (facts or with_imports)(file.summaries)
        return Outcome(path, _portable(file.check(project)), data)
    except Exception as problem:
        return Outcome(path, Result(path), data, internal_error(problem))


def with_imports(summaries: list[Summary]) -> Project:
    """Return the facts of files, and of what they import and of the configuration files that they name."""
    from devicefix.facts.project import Project
    from devicefix.runner.configurations import configurations
    from devicefix.runner.imports import imported

    summaries = summaries + imported(summaries)
    return Project.of(summaries + configurations(summaries))


class Projects:
    """The facts of whole projects, for texts that are checked one by one.

    Args:
        resolver: the settings of each file.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._borders = Borders()
        self._summaries: dict[str, dict[str, Summary]] = {}
        self._projects: dict[str, Project] = {}

    def around(self, path: str, summaries: list[Summary]) -> Project:
        """Return the facts of a file's project with a text in the place of the file.

        Args:
            path: the file, which need not exist.
            summaries: those of the text.
        """
        border = self._borders.of(path)
        if not border:
            return with_imports(summaries)
        if border not in self._summaries:
            self._summaries[border] = self._read(path)
            self._projects[border] = with_imports(list(self._summaries[border].values()))
        known, real = self._summaries[border], os.path.realpath(path)
        if summaries == [known[real]] if real in known else not summaries:
            self._projects[border].forget()
            return self._projects[border]
        return with_imports(summaries + [each for other, each in known.items() if other != real])

    def _read(self, path: str) -> dict[str, Summary]:
        """Return the summaries of a project's files by their real paths."""
        tasks = _tasks(others([path], self._resolver), self._resolver)
        if os.path.isfile(path):
            tasks[path] = Task(path, self._resolver.of(path))
        records = map(_summarized, tasks.values())
        return {
            os.path.realpath(name): record.summary
            for name, record in zip(tasks, records, strict=True)
            if record.summary is not None
        }


def too_large(data: bytes, settings: Settings) -> str:
    """Return why content is too large to be checked; empty if it is not."""
    return (
        f"the file is larger than {settings.max_file_size}{_TOO_LARGE}"
        if len(data) > settings.largest
        else ""
    )


def _tasks(files: Iterable[Path], resolver: Resolver) -> dict[str, Task]:
    """Return the files with their settings, by path."""
    return {path: Task(path, resolver.of(path)) for path in map(os.fspath, files)}


def _cache(resolver: Resolver) -> Cache | None:
    """Return the cache of earlier runs; a run that fixes needs more than it keeps."""
    settings = resolver.root
    if settings.cache_dir is None or settings.fix:
        return None
    from devicefix.runner.cache import Cache

    return Cache(settings.cache_dir, resolver)


def _summarized(task: Task, sent: Content | OSError | None = None) -> Record:
    """Summarize one file for the others, which is all there is to do for most files."""
    path, settings = task
    if kind_of(path) is Kind.OTHER:
        return _failed(path, _OTHER)
    from devicefix.engine.file import File
    from devicefix.facts.project import Project

    try:
        data, version = _content(path, settings, sent)
        file = File(data, path, settings)
        summary = next(iter(file.summaries), None)  # a file holds one module, or exports nothing
        alone = Project.of([summary])
        if not file.matters(alone):
            return Record(*version, summary, answers=alone.answers)
    except OSError as problem:
        return _failed(path, problem.strerror or str(problem))
    except Exception as problem:
        return _failed(path, internal_error(problem))
    PARSED.keep(file, settings)
    return Record(*version, summary)


def _projects(records: dict[str, Record]) -> Iterator[tuple[Project, list[str]]]:
    """Yield the projects of files, each with its files; it has the facts of these and of what they import."""
    for group in Borders().grouped(records).values():
        yield with_imports([summary for path in group if (summary := records[path].summary)]), group


def others(paths: Iterable[str], resolver: Resolver, named: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield the other modules of the projects that files belong to, named as the files are.

    Args:
        paths: the files.
        resolver: the settings of each file.
        named: folders whose files are known.
    """
    covered = [os.path.join(os.path.realpath(path), "") for path in named if path.is_dir()]
    for border, group in Borders().grouped(paths).items():
        if not border or any(os.path.join(os.path.realpath(border), "").startswith(top) for top in covered):
            continue
        known = set(map(os.path.realpath, group))
        start = border if any(map(os.path.isabs, group)) else os.path.relpath(border)
        for file in discover.find([Path(start)], Modules(resolver), lambda _problem: None):
            if os.path.realpath(file) not in known:
                yield file


def _holds(record: Record, project: Project) -> bool:
    """Return whether the result of an earlier check is that of a check with this project."""
    return record.answers is not None and project.agrees(record.answers)


def _checked(project: Project | str, task: Task, sent: Content | OSError | None = None) -> Record:
    """Check one file with the facts of its project; the record lacks its summary."""
    path, settings = task
    try:
        data, version = _content(path, settings, sent)
        project = _loaded(project) if isinstance(project, str) else project
        project.forget()
        result = PARSED.take(data, path, settings).check(project)
    except OSError as problem:
        return _failed(path, problem.strerror or str(problem))
    except Exception as problem:
        return _failed(path, internal_error(problem))
    outcome = _outcome(data, result) if result.findings else None
    return Record(*version, outcome=outcome, answers=project.answers)


def _with_summary(checked: Record, summarized: Record) -> Record:
    """Return the record of a check with the summary, or one that is not cached if the file has changed."""
    if checked.digest != summarized.digest:
        return Record(outcome=checked.outcome, answers=checked.answers)
    return replace(checked, summary=summarized.summary)


def _failed(path: str, error: str) -> Record:
    """Return the record of a file that can't be checked."""
    return Record(outcome=Outcome(path, Result(path), error=error), answers={})


def _outcome(data: bytes, result: Result) -> Outcome:
    """Return the outcome of a file, which keeps its content where it changes."""
    return Outcome(result.path, _portable(result), b"" if result.output is None else data)


def _portable(result: Result) -> Result:
    """Return a result for another process, without the functions that fixes hold."""
    fixed = [finding.portable() for finding in result.fixed]
    remaining = [finding.portable() for finding in result.remaining]
    return Result(result.path, fixed + remaining, fixed, result.output, result.origins, result.made)


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
        return _bytes(path, settings), ("", None)
    from devicefix.runner.cache import digest, stamp

    now = stamp(path)  # the next run sees a change after this
    data = _bytes(path, settings)
    return data, (digest(data), now)


def _bytes(path: str, settings: Settings) -> bytes:
    return read(path, settings.largest, _TOO_LARGE)


def _sent(task: Task) -> Content | OSError:
    """Return a file's content for a worker that may not see this machine's disk."""
    try:
        return _read(*task)
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


def _map(function: Callable[..., R], tasks: list[Task], pool: Pool, *shared: Any) -> Iterator[R]:
    """Map a function over files, in the pool if there is one.

    Args:
        function: called with what is shared, a task, and the file's content where a worker may lack it.
        tasks: the files.
        pool: where to call it.
        shared: what `_shared` returned, if anything.
    """
    if pool is None:
        return map(partial(function, *shared), tasks)
    from devicefix.runner.cluster import Cluster

    if isinstance(pool, Cluster):
        return pool.map(function, ((task, _sent(task)) for task in tasks), *shared)
    return pool.map(partial(function, *shared), tasks, chunksize=CHUNK)
