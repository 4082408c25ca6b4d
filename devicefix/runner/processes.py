"""Worker processes that import nothing from the current folder, which holds other people's code."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import RawArray, util
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Python 3.10 lacks -P. `multiprocessing` then gives a process the import path of the one that starts it.
_SAFE_PATH = "-P" if sys.version_info >= (3, 11) else "-I"
_STARTING = threading.Lock()


class Processes(ProcessPoolExecutor):
    """A pool whose processes start with a safe path, in which the current folder is not.

    `multiprocessing` starts Python with `-c`, which puts the current folder first on the import path: a
    multiprocessing.py there would run, in spawned workers and in servers that fork them or track semaphores.

    Args:
        jobs: the number of processes.
        start: called in each process.
        arguments: those of `start`.
        spawn: whether to start them anew where others are forked, with the locks of other threads.
    """

    def __init__(self, jobs: int, start: Callable[..., None], *arguments: Any, spawn: bool = False) -> None:
        context = multiprocessing.get_context("spawn") if spawn else None
        with _safe_path():
            super().__init__(jobs, context, initializer=start, initargs=arguments)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a process; the first calls start the processes."""
        with _safe_path():
            return super().submit(fn, *args, **kwargs)

    def end(self) -> None:
        """End the processes, whatever they are doing."""
        processes = list((self._processes or {}).values())
        thread: Any = self._executor_manager_thread
        vars(self)["_call_queue"].cancel_join_thread()  # a pipe that nobody reads takes little of the rest
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        if thread is not None:  # it frees the semaphores
            thread.join()


def follow_parent() -> None:
    """Leave Ctrl+C to the parent of this process, and end when the parent has ended, by whatever signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


def shared_marks(number: int) -> Any:
    """Return so many small numbers, in memory that processes share."""
    return RawArray("B", number)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let `multiprocessing` start Python with a safe path meanwhile.

    The variable PYTHONSAFEPATH would also reach other processes that the program starts, and has no effect
    below `python -E`.
    """
    functions: Any = util
    with _STARTING:
        flags = functions._args_from_interpreter_flags  # of this process, which each one that it starts gets
        functions._args_from_interpreter_flags = lambda: [*flags(), _SAFE_PATH]
        try:
            yield
        finally:
            functions._args_from_interpreter_flags = flags
