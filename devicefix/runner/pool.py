"""Where files are looked at: in processes, on a cluster, or here."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from devicefix.config.settings import Settings

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from typing import TypeAlias

    from devicefix.runner.cluster import Cluster

    Pool: TypeAlias = Executor | Cluster | None

POOL_FROM = 40  # files; below, starting processes takes longer than they save
CHUNK = 16  # files that a process takes at a time


def _cores() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pool_for(settings: Settings, files: int, stack: ExitStack) -> Pool:
    """The cluster that the settings name, or processes for so many files where they pay and can be had."""
    if settings.executor:
        from devicefix.runner.cluster import Cluster

        cluster = Cluster(settings.executor)
        stack.callback(cluster.close)
        return cluster
    jobs = settings.jobs or _cores()
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
    from devicefix.rules.registry import RULES  # noqa: F401 so that what stays is there

    gc.freeze()
