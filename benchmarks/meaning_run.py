"""Run many small programs, each in a fork of a process that has imported torch.

One process has the simulated CUDA machine (docs/simulation.md), another one the plain CPU. A run records what
the program prints, its random draws with their devices, the selected GPU, and the error that ends it.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import linecache
import math
import multiprocessing
import os
import random
import re
import select
import signal
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # this checkout's devicefix, installed or not

SECONDS = 20.0  # the time limit of a program
DEVICE = "device"  # the first item of what is recorded of a device

# what torch imports when it is first needed
_LATER = (
    "torch._dynamo",
    "torch.distributed.nn",
    "torch.distributions",
    "torch.jit",
    "torch.nn.utils.rnn",
    "torch.testing",
    "torch.utils.data",
    "torch.nn.parallel",
    "torch.optim",
    "asyncio",
    "argparse",
    "dataclasses",
)
_FOLDER = "/program/"  # the folder of the programs' modules in their code objects
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_DEVICE = re.compile(r",\s+device='cuda(:\d+)?'")
_GPU = re.compile(r"\bcuda(:\d+)?\b|\bgpu\b")


@dataclass(slots=True)
class Run:
    """One run of a program.

    Attributes:
        printed: the printed values, as JSON, with the lines that print.
        draws: the random draws on the simulated machine: device, operation and number of elements.
        gpus: the visible GPUs and the selected one at the end; empty on a CPU.
        error: the type of the error that ended the program; empty if none did.
        message: its message.
        frames: the lines of its traceback in the program, as module and line.
    """

    printed: list[tuple[int, Any]] = field(default_factory=list)
    draws: list[list[Any]] = field(default_factory=list)
    gpus: list[Any] = field(default_factory=list)
    error: str = ""
    message: str = ""
    frames: list[tuple[str, int]] = field(default_factory=list)

    @property
    def values(self) -> list[Any]:
        """The printed values without their lines."""
        return [value for _, value in self.printed]


class Machine:
    """A process that runs programs on one kind of machine.

    Args:
        name: "cuda" (simulated) or "cpu".
    """

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(name, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, files: Mapping[str, str], gpus: int = 2) -> Run:
        """Run the module `main` of a program.

        Args:
            files: the sources of the modules, by name.
            gpus: the number of GPUs of the simulated machine.
        """
        self._pipe.send((dict(files), gpus))
        return Run(**self._pipe.recv())

    def close(self) -> None:
        """End the process."""
        self._pipe.send(None)
        self._process.join()


def same(one: Any, other: Any, *, exactly: bool) -> bool:
    """Return whether two printed values agree.

    Args:
        one: a value printed on the simulated CUDA machine.
        other: the value printed by the other run.
        exactly: whether devices and numbers must be equal. Otherwise `other` is printed on a CPU: its devices
            must be the CPU, and numbers may be rounded differently.
    """
    if isinstance(one, list) and isinstance(other, list):
        if one[:1] == [DEVICE] and not exactly:
            return other == [DEVICE, _on_cpu(one[1])]
        return len(one) == len(other) and all(
            same(a, b, exactly=exactly) for a, b in zip(one, other, strict=True)
        )
    if exactly:
        return type(one) is type(other) and one == other
    if isinstance(one, str) and isinstance(other, str):
        return other in (one, _on_cpu(one))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or abs(one - other) <= 1e-5 * max(abs(one), abs(other), 1.0)
    return type(one) is type(other) and one == other


def names_gpu(value: Any) -> bool:
    """Return whether a printed value says that the program takes its path for a GPU."""
    return bool(re.search(r"\bgpu\b", json.dumps(value)))


def _on_cpu(text: str) -> str:
    """Return what a CPU prints instead of a text."""
    return _GPU.sub("cpu", _DEVICE.sub("", text).replace("torch.cuda.", "torch."))


# -- the processes ---------------------------------------------------------------------------------------


def _serve(name: str, pipe: Any) -> None:
    """Run the programs that come through a pipe, until None comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"
    machine = _prepare(name)
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        while True:
            request = pipe.recv()
            if request is None:
                return
            files, gpus = request
            pipe.send(_forked(files, gpus, machine))


def _prepare(name: str) -> Any:
    """Import torch, and make this process the machine; return its state if it is simulated."""
    import numpy as np
    import torch
    import torch.utils.data

    from devicefix.verify.runtime import machine

    for module in _LATER:
        importlib.import_module(module)
    assert np.ones(1).sum() == 1
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if name == "cpu":
        machine.round_alike()
        return None
    state = machine.Machine(draws=_Draws())
    machine.Simulation(state).__enter__()
    os.register_at_fork(after_in_child=state.after_fork)
    return state


class _Draws:
    """The recorder of random draws."""

    def __init__(self) -> None:
        self.drawn: list[list[Any]] = []

    def add(self, device: str, op: str, numel: int) -> None:
        """Add a draw: its device, operation and number of elements."""
        self.drawn.append([device, op, numel])


def _forked(files: Mapping[str, str], gpus: int, machine: Any) -> dict[str, Any]:
    """Run a program in a fork, with a time limit."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reader)
            os.setpgrp()
            data = json.dumps(_execute(files, gpus, machine)).encode()
            with os.fdopen(writer, "wb") as file:
                file.write(data + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    parts: list[bytes] = []
    with os.fdopen(reader, "rb", buffering=0) as file:
        while select.select([file], [], [], SECONDS)[0]:
            part = file.read(1 << 16)
            parts.append(part)
            if not part or part.endswith(b"\n"):  # its own processes keep the pipe open
                break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        answer: dict[str, Any] = json.loads(b"".join(parts))
    except ValueError:
        return {"error": "Killed", "message": "the process ended, or the time was over"}
    return answer


def _execute(files: Mapping[str, str], gpus: int, machine: Any) -> dict[str, Any]:
    """Run a program in this process, which ends afterwards."""
    import numpy as np
    import torch

    os.environ["DEVICEFIX_GPUS"] = str(gpus)
    for seed in (random.seed, torch.manual_seed, np.random.seed):
        seed(0)
    vars(multiprocessing.process.current_process())["_config"]["daemon"] = False  # it may start processes
    printed: list[tuple[int, Any]] = []
    _record_prints(printed)
    sys.argv = ["main.py"]
    sys.path.insert(0, _FOLDER)
    sys.meta_path.insert(0, _Finder(files))
    error: BaseException | None = None
    try:
        main = types.ModuleType("__main__")
        main.__file__ = _FOLDER + "main.py"
        sys.modules["__main__"] = main
        exec(_compiled("main", files["main"]), main.__dict__)
    except BaseException as problem:
        error = problem
    sys.stdout.flush()
    done: dict[str, Any] = {"printed": printed}
    if machine is not None:
        done["draws"] = machine.draws.drawn
        done["gpus"] = [machine.visible, machine.selected.index]
    if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
        done.update(_described(error))
    return done


def _described(error: BaseException) -> dict[str, Any]:
    frames = [
        (os.path.basename(frame.filename).removesuffix(".py"), frame.lineno or 0)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(_FOLDER)
    ]
    message = str(error)[:2000]
    # TorchScript's interpreter has no frames, and names the lines in its message.
    lines = re.findall(rf'File "{re.escape(_FOLDER)}.*?(\w+)\.py", line (\d+)', message)
    frames += [(name, int(line)) for name, line in lines]
    return {"error": type(error).__name__, "message": message, "frames": frames}


def _record_prints(printed: list[tuple[int, Any]]) -> None:
    """Replace `print` and the standard output by recorders."""

    def record(*values: Any, **_: Any) -> None:
        line = sys._getframe(1).f_lineno
        printed.append((line, [_recorded(value) for value in values]))

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            if text.strip():
                printed.append((sys._getframe(1).f_lineno, [_recorded(text)]))
            return len(text)

    builtins.print = record
    sys.stdout, sys.stderr = Output(), io.StringIO()


def _recorded(value: Any, depth: int = 4) -> Any:
    """Return a value as JSON types, with all that a program may read of it."""
    import torch

    if isinstance(value, torch.Tensor):
        numbers = value.detach().cpu().double().reshape(-1).tolist() if not value.is_complex() else []
        form = [type(value).__name__, _recorded(value.device), str(value.dtype), value.requires_grad]
        return [*form, list(value.shape), list(map(str, numbers)) if _is_odd(numbers) else numbers]
    if isinstance(value, torch.device):
        return [DEVICE, str(value)]
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return str(value) if _is_odd([value]) else value
    if isinstance(value, str):
        return _ADDRESS.sub("", value)
    if depth and isinstance(value, dict):
        return [[_recorded(key), _recorded(item, depth - 1)] for key, item in value.items()]
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return [_recorded(item, depth - 1) for item in value]
    return _ADDRESS.sub("", repr(value))


def _is_odd(numbers: Sequence[float]) -> bool:
    """Return whether JSON has no form for one of the numbers."""
    return not all(map(math.isfinite, numbers))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the program."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def find_spec(self, fullname: str, *_: Any) -> Any:
        """Return the spec of a module of the program."""
        if fullname not in self._files or fullname == "main":
            return None
        package = any(name.startswith(f"{fullname}.") for name in self._files)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=package)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run a module of the program."""
        exec(_compiled(module.__name__, self._files[module.__name__]), module.__dict__)


def _compiled(name: str, source: str) -> types.CodeType:
    """Compile a module, whose source `inspect` can find."""
    path = f"{_FOLDER}{name}.py"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    return compile(source, path, "exec", dont_inherit=True)
