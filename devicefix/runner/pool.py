"""Choose where files are checked: in processes, on a cluster, or in this process."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from devicefix.config.settings import Settings
from devicefix.files import signals
from devicefix.runner import progress

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from typing import TypeAlias

    from devicefix.facts.project import Project
    from devicefix.runner.cluster import Cluster

    Pool: TypeAlias = Executor | Cluster | None

R = TypeVar("R")

POOL_FROM = 40  # files; for fewer, starting processes costs more than it saves
CHUNK = 16  # files that a process takes at a time
_PARSED = 16_000_000  # bytes of source that all processes together keep parsed, in some 600 MB


def _cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pool_for(settings: Settings, files: int, marks: progress.Marks, stack: ExitStack) -> Pool:
    """Return the cluster that the settings name, processes if they pay for so many files, or None.

    Args:
        settings: the settings.
        files: the number of files.
        marks: what processes mark the files in.
        stack: closes the pool; after an error, it does not wait for what processes are busy with.
    """
    if settings.executor:
        from devicefix.runner.cluster import Cluster

        cluster = Cluster(settings.executor)
        stack.callback(cluster.close)
        return cluster
    jobs = settings.jobs or _cores()
    jobs = min(jobs, -(-files // CHUNK), 61 if sys.platform == "win32" else jobs)  # Windows' own limit
    if jobs < 2 or files < POOL_FROM:
        return None
    with suppress(ImportError, NotImplementedError, OSError):  # no semaphores, as in some sandboxes
        from devicefix.runner.processes import Processes

        pool = Processes(jobs, _start, _PARSED // jobs, marks)
        stack.push(lambda error, *_: pool.end() if error else pool.shutdown())
        return pool
    return None


def _start(room: int, marks: progress.Marks) -> None:
    """Prepare a worker process, which keeps so many bytes of source parsed."""
    from devicefix.runner.processes import follow_parent

    follow_parent()
    from devicefix.facts.project import TREES

    TREES.room = room
    progress.mark_in(marks)
    collect_less()


def collect_less() -> None:
    """Make the garbage collector run less often, and never over the rules.

    Syntax trees are many small objects without cycles: by default, collection takes a third of the time.
    Only what is in cycles is garbage here, and there is little of it. Five million objects are the trees of
    some 16 MB of source.
    """
    gc.set_threshold(5_000_000, 10, 1000)
    from devicefix.rules.registry import RULES  # noqa: F401 loaded, so that `freeze` covers them

    gc.freeze()


def shared(project: Project, pool: Pool, stack: ExitStack) -> Any:
    """Return the project in a form that each process gets once: a file's name, or a cluster's value."""
    if pool is None:
        return project
    project.configured_files  # noqa: B018 found here, since a worker may not see the disk
    from devicefix.runner.cluster import Cluster

    if isinstance(pool, Cluster):
        return pool.share(project)
    with signals.held():
        handle, name = tempfile.mkstemp(prefix="devicefix-")
        stack.callback(os.unlink, name)
    with os.fdopen(handle, "wb") as file:
        pickle.dump(project, file)
    return name


@lru_cache(maxsize=1)
def loaded(project: str) -> Project:
    """Load the project, once a process and not once a file."""
    loaded: Project = pickle.loads(Path(project).read_bytes())
    return loaded


def mapped(
    function: Callable[..., R], items: Iterable[tuple[Any, ...]], pool: Pool, *shared: Any
) -> Iterator[R]:
    """Call a function for each item, in the pool if there is one.

    Args:
        function: called with what is shared, and an item.
        items: the arguments of each call.
        pool: where to call it.
        shared: what `shared` returned, if anything.
    """
    if pool is None:
        return (function(*shared, *item) for item in items)
    from devicefix.runner.cluster import Cluster

    if isinstance(pool, Cluster):
        return pool.map(function, items, *shared)
    columns = zip(*items, strict=True)
    return pool.map(partial(function, *shared), *columns, chunksize=CHUNK)
