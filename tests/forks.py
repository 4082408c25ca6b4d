"""A process that has imported torch and runs each program in a fork, since the import takes most of the time.

It reads requests from its standard input, one line of JSON each, and answers with the exit status. A fork
does what Python does: it imports `sitecustomize`, which is the start-up hook of `devicefix verify`, runs the
script as `__main__`, waits for its threads, and calls its exit functions. Only the modules are not cleared:
to clear those of torch takes many times as long as a small program.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import json
import os
import pkgutil
import runpy
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

FOLDER = str(Path(__file__).parent)
SECONDS = 600.0  # the time limit of a program that hangs, also on a busy machine
PRELOADED = (
    "numpy",
    "torch",
    "torch._dynamo",
    "torch.utils.data",
)  # an optimizer's first step imports dynamo


class Forks:
    """The process that runs programs.

    Args:
        environment: its environment variables, which those of a program replace.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import forks; forks.serve()"],
            env={**environment, "PYTHONPATH": FOLDER},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        output: Path,
        errors: Path,
        tick: Callable[[float], None] | None = None,
    ) -> int:
        """Run a program, and return its exit status.

        Args:
            command: the script and its arguments.
            folder: the current folder.
            environment: the environment variables.
            output: the file for its standard output.
            errors: the file for its standard error.
            tick: called regularly with the seconds so far.

        Raises:
            TimeoutError: it does not end. After this and any other error, this process runs no others.
        """
        sending, answers = self._process.stdin, self._process.stdout
        assert sending is not None and answers is not None
        request = (list(command), str(folder), dict(environment), str(output), str(errors))
        print(json.dumps(request), file=sending, flush=True)
        start = time.monotonic()
        try:
            while not select.select([answers], [], [], 0.01 if tick else SECONDS)[0]:
                if time.monotonic() - start >= SECONDS:
                    raise TimeoutError(f"{command} runs for more than {SECONDS} seconds")
                if tick:
                    tick(time.monotonic() - start)
        except BaseException:
            self._process.kill()  # the next answer would be the one to this program
            raise
        return int(answers.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def serve() -> None:
    """Run the requested programs, each as the main program of a fork."""
    for module in PRELOADED:
        importlib.import_module(module)
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # torch would remove each of its operators
    gc.collect()
    gc.freeze()  # otherwise each fork goes through the objects of torch, and copies their memory
    for request in sys.stdin:
        child = os.fork()
        if not child:
            command, *rest = json.loads(request)
            _become(command, *rest)
            _end(_status(command[0]))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(command: list[str], folder: str, environment: dict[str, str], output: str, errors: str) -> None:
    """Make a fork the process that Python would have started for a script."""
    for number, (name, mode) in enumerate(((os.devnull, "r"), (output, "w"), (errors, "w"))):
        with open(name, mode) as file:
            os.dup2(file.fileno(), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = command
    added = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*added, *(path for path in sys.path if path not in ("", FOLDER))]
    vars(sys.modules["__main__"]).pop("forks")
    for name in ("forks", "sitecustomize"):
        sys.modules.pop(name, None)
    if importlib.util.find_spec("sitecustomize"):
        importlib.import_module("sitecustomize")


def _status(script: str) -> int:
    """Run a script, print the exception that ends it, and return its exit status."""
    try:
        _run(script)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """End this process as Python does, but without clearing its modules."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(script: str) -> None:
    """Run a script as Python does: by a loader if there is one for its path."""
    if pkgutil.get_importer(script) is None:
        runpy.run_path(script, run_name="__main__")
    else:
        sys.path.insert(0, script)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
