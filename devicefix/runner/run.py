"""Check many files, each with what it asks of the others of its project."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from devicefix.config.resolver import Resolver
from devicefix.config.settings import Settings
from devicefix.config.sizes import read
from devicefix.files.border import Borders
from devicefix.files.kinds import Kind, kind_of
from devicefix.model import Outcome, Result
from devicefix.runner.errors import internal_error
from devicefix.runner.find import others
from devicefix.runner.pool import POOL_FROM, loaded, mapped, pool_for, shared
from devicefix.runner.progress import DONE, Progress, marked
from devicefix.runner.record import Record, Seen, Stamp, stamp

if TYPE_CHECKING:
    from devicefix.facts.project import Project, ProjectFile
    from devicefix.runner.cache import Cache

Content = tuple[bytes, tuple[str, Stamp | None]]  # a file's bytes, with their digest and stamp for the cache


class Task(NamedTuple):
    """A file to check, with its settings."""

    path: str
    settings: Settings


_TOO_LARGE = "; exclude it, or raise the limit with --max-file-size"
_OTHER = "not checked: the file is neither Python code nor a notebook, documentation or configuration file"


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
        shown = Progress(checked, stack, quiet=settings.quiet, processes=len(checked) >= POOL_FROM)
        pool = pool_for(settings, len(checked), shown.marks, stack)
        records = cache.records(tasks) if cache else {}
        seen: Seen = {}
        contents = {path: _sent(task) for path, task in tasks.items()}
        numbers = {path: number for number, path in enumerate(checked)}
        shown.sizes.update((path, _size(contents[path])) for path in checked)
        count = 0
        for project, group in _projects(tasks, contents, records, seen):
            again = [path for path in group if path in checked]
            stale = [tasks[path] for path in again if not _holds(records.get(path), project)]
            shown.sizes.update(dict.fromkeys({*again} - {task.path for task in stale}, 0))
            sendable = shared(project, pool, stack) if stale else project
            sent = ((numbers[task.path], task, contents[task.path]) for task in stale)
            for task, record in zip(stale, mapped(_marked, sent, pool, sendable), strict=True):
                shown.marks[numbers[task.path]] = DONE  # elsewhere, nobody else does
                records[task.path] = record
                for path, exports in record.learned.items():
                    if (file := project.file(path)) is not None:
                        file.known.update(exports)
            for path in group:
                records[path] = _seen(records.get(path), project.file(path), contents[path])
            count += len(stale)
    outcomes = [records[path].outcome or Outcome(path, Result(path)) for path in checked]
    if cache and (count or len(tasks) >= POOL_FROM):
        cache.save({path: records[path] for path in tasks}, outcomes, seen)
    return outcomes


def checker(files: list[Path], resolver: Resolver) -> Callable[[str, Resolver], Outcome]:
    """Read the files of a program, and return a function that checks one of them with other settings."""
    tasks = _tasks(files, resolver)
    contents = {path: _sent(task) for path, task in tasks.items()}
    projects = {path: project for project, group in _projects(tasks, contents, {}, {}) for path in group}

    def check(path: str, other: Resolver) -> Outcome:
        return _checked(projects[path], Task(path, other.of(path))).outcome or Outcome(path, Result(path))

    return check


def check_text(
    data: bytes,
    path: str,
    settings: Settings,
    project_of: Callable[[list[ProjectFile]], Project] | None = None,
) -> Outcome:
    """Check content that need not be on disk; the outcome always keeps it as `before`.

    Args:
        data: the content.
        path: the path it has, or would have.
        settings: as for the engine.
        project_of: returns the project to check it with, given what others see of it; by default this, and
            what it imports.
    """
    if kind_of(path) is Kind.OTHER:
        return Outcome(path, Result(path), data, _OTHER)
    if refusal := too_large(data, settings):
        return Outcome(path, Result(path), data, refusal)
    from devicefix.engine.file import File

    try:
        file = File(data, path, settings)
        project = (project_of or with_imports)(file.shared)
        return Outcome(path, _portable(file.check(project)), data)
    except Exception as problem:
        return Outcome(path, Result(path), data, internal_error(problem))


def with_imports(files: list[ProjectFile], seen: Seen | None = None) -> Project:
    """Return the project of files, with what they import and the configuration files that they name.

    Args:
        files: the files.
        seen: gets the other files and folders that the answers of the project depend on.
    """
    from devicefix.facts.project import Project
    from devicefix.runner.configurations import configurations
    from devicefix.runner.imports import imported

    return Project(files + imported(files), partial(configurations, seen=seen))


class Projects:
    """The whole projects of texts that are checked one by one.

    Args:
        resolver: the settings of each file.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._borders = Borders()
        self._files: dict[str, dict[str, ProjectFile]] = {}
        self._projects: dict[str, Project] = {}

    def around(self, path: str, shared: list[ProjectFile]) -> Project:
        """Return a file's project with a text in the place of the file.

        Args:
            path: the file, which need not exist.
            shared: what others see of the text.
        """
        border = self._borders.of(path)
        if not border:
            return with_imports(shared)
        if border not in self._files:
            self._files[border] = self._read(path)
            self._projects[border] = with_imports(list(self._files[border].values()))
        known, real = self._files[border], os.path.realpath(path)
        if shared[0].data == known[real].data if shared and real in known else not shared:
            self._projects[border].forget()
            return self._projects[border]
        return with_imports(shared + [each for other, each in known.items() if other != real])

    def _read(self, path: str) -> dict[str, ProjectFile]:
        """Return a project's files by their real paths."""
        tasks = _tasks(others([path], self._resolver), self._resolver)
        if os.path.isfile(path):
            tasks[path] = Task(path, self._resolver.of(path))
        found = ((name, shared_of(name, _sent(task))) for name, task in tasks.items())
        return {os.path.realpath(name): file for name, file in found if file is not None}


def too_large(data: bytes, settings: Settings) -> str:
    """Return why content is too large to be checked; empty if it is not."""
    if len(data) <= settings.largest:
        return ""
    return f"the file is larger than {settings.max_file_size}{_TOO_LARGE}"


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


def shared_of(path: str, content: Content | OSError) -> ProjectFile | None:
    """Return what others see of a file; None if it is no module, or can't be read."""
    from devicefix.engine.file import File
    from devicefix.facts.project import ProjectFile

    if isinstance(content, OSError):
        return None
    kind = kind_of(path)
    if kind is Kind.MODULE:
        return ProjectFile(content[0], path)
    if kind is not Kind.NOTEBOOK:
        return None
    try:
        return next(iter(File(content[0], path, Settings()).shared), None)
    except Exception:  # reported when the file is checked
        return None


def _projects(
    tasks: dict[str, Task], contents: dict[str, Content | OSError], records: dict[str, Record], seen: Seen
) -> Iterator[tuple[Project, list[str]]]:
    """Yield the projects of files, each with its files; it has these and what they import."""
    for group in Borders().grouped(tasks).values():
        files = [file for path in group if (file := shared_of(path, contents[path])) is not None]
        for file in files:
            if file.path in records:
                file.known.update(records[file.path].exports)
        yield with_imports(files, seen), group


def _holds(record: Record | None, project: Project) -> bool:
    """Return whether the result of an earlier check is that of a check with this project."""
    return record is not None and record.answers is not None and project.agrees(record.answers)


def _checked(project: Project | str, task: Task, sent: Content | OSError | None = None) -> Record:
    """Check one file with the facts of its project."""
    from devicefix.engine.file import File

    path, settings = task
    try:
        if isinstance(sent, OSError):
            raise sent
        data, version = sent or _read(path, settings)
        if kind_of(path) is Kind.OTHER:
            return _failed(path, _OTHER)
        in_worker = isinstance(project, str)
        project = loaded(project) if isinstance(project, str) else project
        project.forget()
        result = File(data, path, settings).check(project)
        learned = project.learned() if in_worker and settings.cache_dir is not None else {}
    except OSError as problem:
        return _failed(path, problem.strerror or str(problem))
    except Exception as problem:
        return _failed(path, internal_error(problem))
    kept = b"" if result.output is None else data  # the content of a file that changes
    outcome = Outcome(path, _portable(result), kept) if result.findings else None
    return Record(*version, outcome, project.answers, learned=learned)


def _marked(project: Project | str, number: int, task: Task, sent: Content | OSError) -> Record:
    """Check one file, and mark it meanwhile."""
    with marked(number):
        return _checked(project, task, sent)


def _size(content: Content | OSError) -> int:
    return 0 if isinstance(content, OSError) else len(content[0])


def _seen(record: Record | None, file: ProjectFile | None, content: Content | OSError) -> Record:
    """Return the record of a file with what the others have asked it."""
    exports = file.known if file is not None else {}
    if record is not None:
        return replace(record, exports=exports, learned={})
    return Record() if isinstance(content, OSError) else Record(*content[1], exports=exports)


def _failed(path: str, error: str) -> Record:
    """Return the record of a file that can't be checked."""
    return Record(outcome=Outcome(path, Result(path), error=error), answers={})


def _portable(result: Result) -> Result:
    """Return a result for another process, without the functions that fixes hold."""
    fixed = [finding.portable() for finding in result.fixed]
    remaining = [finding.portable() for finding in result.remaining]
    return Result(result.path, fixed + remaining, fixed, result.output, result.origins, result.made)


# -- content and project, here or on another machine ----------------------------------------------------


def _read(path: str, settings: Settings) -> Content:
    if settings.cache_dir is None:
        return _bytes(path, settings), ("", None)
    from devicefix.runner.cache import digest

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
