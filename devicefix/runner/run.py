"""The engine over many files: first the facts of all of them, then each by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, TypeVar

from devicefix.config.settings import ConfigError, Settings
from devicefix.facts.prefilter import may_matter
from devicefix.model import Outcome, Result
from devicefix.runner.first_pass import FirstPass, Stamp
from devicefix.runner.pool import CHUNK, POOL_FROM, pool_for
from devicefix.runner.progress import Progress

if TYPE_CHECKING:
    from devicefix.facts.exports import Summary
    from devicefix.facts.project import Project
    from devicefix.files.documents import Document
    from devicefix.rules.entry_points import Plugin
    from devicefix.runner.cache import Cache
    from devicefix.runner.pool import Pool

Content = tuple[bytes, tuple[str, Stamp | None]]  # of a file, and what a cache wants to know of it

T = TypeVar("T")
R = TypeVar("R")


def find(paths: Iterable[Path], settings: Settings, onerror: Callable[[OSError], None]) -> list[Path]:
    """The files that paths name, and in folders those that the settings let in.

    Args:
        paths: files and folders.
        settings: what to leave out, and whether to look at configuration files and documentation.
        onerror: called for each folder that cannot be read.

    Raises:
        ConfigError: a pattern of what to leave out makes no sense.
    """
    from devicefix.files import discover as files

    look_at = partial(wanted, settings)
    try:
        return files.find(paths, settings.exclude, settings.root, onerror, look_at, settings.extend_exclude)
    except ValueError as problem:
        raise ConfigError(f"exclude: {problem}") from None


def wanted(settings: Settings, path: str) -> bool:
    """Whether the settings let in a file of a folder, by its name."""
    from devicefix.files.discover import is_python
    from devicefix.files.documents import is_docs, is_notebook
    from devicefix.rules.config_file.languages import is_beside

    return (
        is_python(path)
        or is_notebook(path)
        or (settings.config_files and is_beside(path))
        or (settings.docs and is_docs(path))
    )


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
        pool = pool_for(settings, len(paths), stack)
        progress = Progress(2 * len(paths), settings.quiet)
        stack.callback(progress.close)
        seen = cache.seen(paths) if cache else {}
        todo = [path for path in paths if path not in seen]
        looked = _each(partial(_look, settings, len(paths)), settings, todo, pool)
        seen |= zip(todo, progress(looked), strict=True)
        seen = {path: seen[path] for path in paths}
        outcomes = _together(seen, settings, progress, pool, stack)
    if cache and (todo or len(paths) >= POOL_FROM):
        cache.save(seen, outcomes)
    return outcomes


def _cache(settings: Settings) -> Cache | None:
    """What earlier runs have found; a run that fixes needs more than that."""
    if settings.cache_dir is None or settings.fix:
        return None
    from devicefix.runner.cache import Cache

    return Cache(settings.cache_dir, settings)


def _together(
    seen: dict[str, FirstPass], settings: Settings, progress: Progress, pool: Pool, stack: ExitStack
) -> list[Outcome]:
    """What comes of files, each of which has been looked at alone."""
    from devicefix.facts.project import Project

    outcomes = {path: each.outcome or Outcome(path, Result(path)) for path, each in seen.items()}
    summaries = [each.summary for each in seen.values() if each.summary]
    project = Project.of(summaries + imported(summaries))
    todo = [path for path, each in seen.items() if not project.agrees(each.answers)]
    shared = _shared(project, pool, stack) if todo else project
    for outcome in progress(_each(partial(_examine, settings), settings, todo, pool, shared)):
        outcomes[outcome.path] = outcome
    return list(outcomes.values())


def _shared(project: Project, pool: Pool, stack: ExitStack) -> Any:
    """The project's facts, for each process to have once: through a file, or a cluster."""
    if pool is None:
        return project
    import pickle
    import tempfile

    from devicefix.runner.cluster import Cluster

    if isinstance(pool, Cluster):
        return pool.share(project)

    handle, name = tempfile.mkstemp(prefix="devicefix-")
    stack.callback(os.unlink, name)
    with os.fdopen(handle, "wb") as file:
        pickle.dump(project, file)
    return name


def imported(summaries: list[Summary]) -> list[Summary]:
    """The facts of what the given files import from their own work tree, where it is not given itself.

    A commit's few files are checked with what they rest on: their base classes, star imports and flags.
    """
    from devicefix.facts.project import candidates
    from devicefix.files.discover import work_tree

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
                summary = _summary_at(path, os.stat(path).st_mtime_ns)
                if summary is not None:
                    found.append(summary)
                    todo.append(summary)
    return found


@lru_cache(maxsize=4096)
def _summary_at(path: str, changed: int) -> Summary | None:
    """The facts of a file, unchanged since a time: an editor, and flake8, ask for them again and again."""
    from devicefix.facts.exports import summarize

    return summarize(Path(path).read_bytes(), path)


def run_one(data: bytes, path: str, settings: Settings, project: Project | None = None) -> Outcome:
    """Look at a content that is no file's; the outcome keeps it in any case.

    Args:
        data: the content.
        path: what to call it.
        settings: as for the engine.
        project: the facts of the program; by default those of the content and of what it imports.
    """
    from devicefix.facts.project import Project

    try:
        if project is None:
            summaries = summaries_of(data, path)
            project = Project.of(summaries + imported(summaries))
        return replace(_outcome(data, path, settings, project), before=data)
    except Exception as problem:
        return Outcome(path, Result(path), data, internal_error(problem))


def summaries_of(data: bytes, path: str) -> list[Summary]:
    """The facts of a content for the other files of its project."""
    from devicefix.facts.exports import summarize
    from devicefix.files.documents import is_docs, modules_of
    from devicefix.rules.config_file.languages import is_beside

    modules = () if is_beside(path) or is_docs(path) else modules_of(data, path)
    return [summary for module in modules if (summary := summarize(module, path))]


def _look(settings: Settings, among: int, path: str, sent: Content | OSError | None = None) -> FirstPass:
    """Look at a file as if it were the whole project; mostly that is all there is to it."""
    try:
        return _seen(settings, among, path, _content(path, settings, sent))
    except OSError as problem:
        return FirstPass(outcome=Outcome(path, Result(path), error=problem.strerror or str(problem)))
    except Exception as problem:
        return FirstPass(outcome=Outcome(path, Result(path), error=internal_error(problem)))


def _seen(settings: Settings, among: int, path: str, content: Content) -> FirstPass:
    from devicefix.facts.project import Project
    from devicefix.files.documents import is_docs, is_notebook, read
    from devicefix.rules.config_file.languages import is_beside

    data, version = content
    if is_beside(path) or is_docs(path):  # nothing in them is of the project
        return FirstPass(*version, outcome=_outcome(data, path, settings, Project()))
    if not is_notebook(path):
        return _module(data, version, path, settings, among)
    notebook = read(data, path)
    alone = [_module(module, version, path, settings, among) for module in notebook.modules]
    outcome = _put_together(notebook, data, path, [each.outcome for each in alone], settings)
    return replace(alone[0], outcome=outcome) if alone else FirstPass(*version, outcome=outcome)


def _module(
    data: bytes, version: tuple[str, Stamp | None], path: str, settings: Settings, among: int
) -> FirstPass:
    """What a look at a module gives that knows of no other."""
    from devicefix.engine import check as engine
    from devicefix.facts.exports import passed_through, summary_of
    from devicefix.facts.project import Project

    matters = engine.matters(data, settings)
    if not matters and b"CUDA_VISIBLE_DEVICES" not in data and not may_matter(data):
        return FirstPass(*version, passed_through(data, path))
    from devicefix.facts import Facts

    try:
        facts = Facts.read(data)
        summary = summary_of(facts, path)
    except engine.UNREADABLE:
        return FirstPass(*version, outcome=_outcome(data, path, settings, Project()))
    if not matters:
        return FirstPass(*version, summary)
    alone = Project.alone(summary, among)
    result = engine.examine(facts, path, settings, alone)
    return FirstPass(*version, summary, _after(result, data, settings, alone), alone.answers)


def _read(path: str, settings: Settings) -> Content:
    """What a file holds."""
    if settings.cache_dir is None:
        return Path(path).read_bytes(), ("", None)
    from devicefix.runner.cache import digest, stamp

    now = stamp(path)  # a change after this is seen by the next run
    data = Path(path).read_bytes()
    return data, (digest(data), now)


def _content(path: str, settings: Settings, sent: Content | OSError | None) -> Content:
    """What was sent of a file, or else what is there.

    Raises:
        OSError: it can't be read.
    """
    if isinstance(sent, OSError):
        raise sent
    return sent or _read(path, settings)


def _examine(
    settings: Settings, project: Project | str, path: str, sent: Content | OSError | None = None
) -> Outcome:
    """Look at a file with what the others say."""
    try:
        data, _ = _content(path, settings, sent)
        return _outcome(data, path, settings, _loaded(project) if isinstance(project, str) else project)
    except OSError as problem:
        return Outcome(path, Result(path), error=problem.strerror or str(problem))
    except Exception as problem:
        return Outcome(path, Result(path), error=internal_error(problem))


def _outcome(data: bytes, path: str, settings: Settings, project: Project) -> Outcome:
    """What the engine makes of one file."""
    from devicefix.engine import check as engine
    from devicefix.files.documents import is_document, read
    from devicefix.rules.config_file.languages import is_beside

    if is_beside(path):
        from devicefix.rules.config_file.examine import run as look_beside

        return Outcome(path, look_beside(data, path, settings))
    if not is_document(path):
        return _after(engine.run(data, path, settings, project), data, settings, project)
    document = read(data, path)
    outcomes = [
        _after(engine.run(module, path, settings, project), module, settings, project)
        for module in document.modules
    ]
    return _put_together(document, data, path, outcomes, settings)


def _put_together(
    document: Document, data: bytes, path: str, outcomes: Iterable[Outcome | None], settings: Settings
) -> Outcome:
    """The outcome of a file, by those of the modules in it."""
    results = [each.result if each else Result(path) for each in outcomes]
    result = document.result(path, results, settings)
    return Outcome(path, result, b"" if result.output is None else data)


def _after(result: Result, data: bytes, settings: Settings, project: Project) -> Outcome:
    """The outcome of a file, with what its fixes have let become possible fixed as well."""
    from devicefix.engine import check as engine

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
    whose = _plugin_at({frame.filename for frame in frames})
    what = (
        f"error in the plugin {whose}, please report it there"
        if whose
        else "internal error, please report it"
    )
    return f"{what}: {type(problem).__name__}: {problem}{where}"


def _plugin_at(files: set[str]) -> Plugin | None:
    """The plugin whose rules are in one of these files."""
    rules = sys.modules.get("devicefix.rules.registry")  # missing or half loaded: no rule is to blame
    return next((each for each in getattr(rules, "PLUGINS", ()) if each.files & files), None)


def _each(
    function: Callable[..., R], settings: Settings, paths: list[str], pool: Pool, *shared: Any
) -> Iterator[R]:
    """`map` over files, in the pool if there is one.

    Args:
        function: is called with what is shared, a path, and the file's content where it need not be there.
        settings: those of the run.
        paths: the files.
        pool: where to call it.
        shared: what `_shared` has returned, if anything.
    """
    if pool is None:
        return map(partial(function, *shared), paths)
    from devicefix.runner.cluster import Cluster

    if isinstance(pool, Cluster):
        return pool.map(function, ((path, _sent(path, settings)) for path in paths), *shared)
    return pool.map(partial(function, *shared), paths, chunksize=CHUNK)


def _sent(path: str, settings: Settings) -> Content | OSError:
    """What a file holds, for a worker that may not see its disk."""
    try:
        return _read(path, settings)
    except OSError as problem:
        return OSError(problem.errno, problem.strerror)
