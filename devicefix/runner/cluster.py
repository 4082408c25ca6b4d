"""Workers on other machines, through dask.distributed: https://distributed.dask.org.

Workers get the contents of the files, since they may not see this machine's disk. They run the same pure
functions as processes here. The scheduler reassigns the work of a lost worker.
"""

from __future__ import annotations

import logging
import pickle
import platform
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from devicefix.config.installation import install_command
from devicefix.config.settings import ConfigError
from devicefix.config.version import __version__

SCHEME = "dask://"
SECONDS = 5  # the time to wait for the scheduler, and for its first worker
CHUNK = 16  # files that a worker gets at a time

T = TypeVar("T")


class ClusterError(ConfigError):
    """The cluster cannot be used; the message says why."""


class OtherWorkerError(Exception):
    """A worker might find something else: its devicefix, Python or plugins differ."""


class Cluster:
    """The workers of one scheduler.

    Args:
        address: `dask://HOST:PORT`.

    Raises:
        ClusterError: dask is not installed, or there is no such scheduler, or it has no worker.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            import distributed
        except ImportError:
            raise ClusterError(f"{SCHEME} needs dask: {install_command('dask')}") from None
        for name in ("distributed", "distributed.client", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # the errors say what matters
        try:
            tcp = f"tcp://{address.removeprefix(SCHEME)}"
            connect: Any = distributed.Client  # it has no types
            self._client: Any = connect(tcp, timeout=SECONDS, set_as_default=False)
        except (OSError, ValueError) as problem:
            raise ClusterError(f"no dask scheduler answers at {address} ({_short(problem)})") from None
        try:
            self._client.wait_for_workers(1, timeout=SECONDS)
        except TimeoutError:
            self.close()
            raise ClusterError(f"the dask scheduler at {address} has no workers") from None
        self._executor: Executor = self._client.get_executor(pure=False)

    def close(self) -> None:
        """Leave the cluster, which cancels unfinished work."""
        self._client.close(timeout=1)

    def share(self, value: object) -> Any:
        """Send a value to the cluster once, for many calls of `map`; lost copies are recreated."""
        with _any_size():
            return self._client.submit(bytes, pickle.dumps(value), pure=False)

    def map(self, function: Callable[..., T], items: Iterable[tuple[Any, ...]], *shared: Any) -> Iterator[T]:
        """Call a function on the workers.

        Args:
            function: a picklable function with picklable results.
            items: the arguments of each call.
            shared: the first arguments of every call, as returned by `share`.

        Returns:
            The results, in the order of the items. Items are consumed as fast as the workers take them.

        Raises:
            ClusterError: the workers cannot do the work, or are lost.
        """
        from distributed import KilledWorker

        items = iter(items)
        most = 2 * sum(self._client.nthreads().values()) + 2
        waiting: deque[Any] = deque()
        try:
            while chunk := list(islice(items, CHUNK)):
                with _any_size():
                    work = pickle.dumps((function, chunk))
                    waiting.append(self._executor.submit(_by_value(), identity(), work, *shared))
                if len(waiting) >= most:
                    yield from pickle.loads(waiting.popleft().result())
            while waiting:
                yield from pickle.loads(waiting.popleft().result())
        except OtherWorkerError as problem:
            raise ClusterError(f"{self.address}: {problem}") from None
        except (ImportError, AttributeError):
            raise ClusterError(f"{self.address}: a worker does not have {identity()}") from None
        except (CancelledError, OSError, KilledWorker) as problem:
            lost = f"lost the connection to the workers ({_short(problem)})"
            raise ClusterError(f"{self.address}: {lost}") from None
        finally:
            for future in waiting:
                future.cancel()


@cache
def identity() -> str:
    """Return what must be the same on all machines for the findings to be the same."""
    from devicefix.rules.registry import PLUGINS

    python = ".".join(platform.python_version_tuple()[:2])
    return ", ".join([f"devicefix {__version__}", f"Python {python}", *map(str, PLUGINS)])


def _by_value() -> Callable[..., bytes]:
    """Return a function that calls `work`, and that is pickled with its code.

    Dask ends a worker that cannot import the function that it gets, and others may use that worker.
    """

    def call(*arguments: Any) -> bytes:
        result: bytes = import_module("devicefix.runner.cluster").work(*arguments)
        return result

    return call


def work(expected: str, work: bytes, *shared: bytes) -> bytes:
    """Run the calls of one chunk on a worker.

    Args:
        expected: the identity that the worker must have.
        work: a function and the arguments of each call, pickled.
        shared: the first arguments of every call, each pickled.

    Returns:
        The results, pickled.

    Raises:
        OtherWorkerError: the worker has another identity.
    """
    if identity() != expected:
        from distributed import get_worker

        found = f"the worker {get_worker().address} has {identity()}"
        raise OtherWorkerError(f"{found}, but this machine has {expected}")
    function, items = pickle.loads(work)
    first = [_loaded(value) for value in shared]
    return pickle.dumps([function(*first, *item) for item in items])


@lru_cache(maxsize=1)
def _loaded(value: bytes) -> Any:
    """Load a shared value, once a process and not once a chunk."""
    return pickle.loads(value)


@contextmanager
def _any_size() -> Iterator[None]:
    """Suppress dask's warning about large values."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        yield


def _short(problem: BaseException) -> str:
    """Return the first line of an error's message, or else its type."""
    return next(iter(str(problem).splitlines()), "") or type(problem).__name__
