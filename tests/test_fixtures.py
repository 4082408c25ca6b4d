"""The programs under fixtures/: what `rewrite` makes of them, and what they compute before and after.

pytest looks at the programs from outside. They run in two child processes, which are this same file:
`python test_fixtures.py cpu` has no CUDA at all, `python test_fixtures.py cuda` has the stand-in below, a
machine with four GPUs that computes on the CPU and fails where CUDA fails.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from devicefix.config import Settings
from devicefix.engine import run
from devicefix.project import Project, summarize

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/before*"))

# These ask whether there is a GPU, so they run on a CPU as they are.
GUARDED = {
    "availability_check",
    "data_parallel_device",
    "explicit_cpu",
    "moves_guarded",
    "parallel_wrapper",
    "rnn_new_zeros",
    "use_gpu_flag",
}
TIED = [name for name in NAMES if name not in GUARDED]

# What PyTorch says where there is no CUDA (builds with and without it), and what a program says itself.
NO_CUDA = re.compile(
    r"Torch not compiled with CUDA enabled|Cannot initialize CUDA without ATen_cuda"
    r"|Cannot access accelerator device when none is available|not linked with support for cuda"
    r"|No CUDA GPUs are available|Found no NVIDIA driver|this benchmark needs CUDA"
)


# --- rewriting ---------------------------------------------------------------------------------------


def sources(name: str, side: str) -> dict[str, bytes]:
    """The modules of one side of a fixture, by the path that they have in the program."""
    folder = FIXTURES / name / side
    if folder.is_dir():
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.py"))}
    return {"main.py": folder.with_suffix(".py").read_bytes()}


def rewrite(modules: dict[str, bytes]) -> dict[str, bytes]:
    """What `devicefix rewrite --in-place` leaves of the modules of one program."""
    project = Project.of(summarize(source, path) for path, source in modules.items())
    results = {path: run(source, path, Settings(fix=True), project) for path, source in modules.items()}
    return {path: results[path].output or source for path, source in modules.items()}


@pytest.mark.parametrize("name", NAMES)
def test_rewriting_before_gives_after(name: str) -> None:
    assert rewrite(sources(name, "before")) == sources(name, "after")


@pytest.mark.parametrize("name", NAMES)
def test_rewriting_after_changes_nothing(name: str) -> None:
    after = sources(name, "after")
    assert rewrite(after) == after


def test_readme_has_one_line_for_each_fixture() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (FIXTURES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == NAMES


# --- running -----------------------------------------------------------------------------------------


def entry(name: str, side: str) -> Path:
    folder = FIXTURES / name / side
    return folder / "main.py" if folder.is_dir() else folder.with_suffix(".py")


def run_all(machine: str, programs: dict[str, str]) -> dict[str, Any]:
    """Run programs, given by their paths, on a machine, all of them in one child process."""
    env = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, __file__, machine]
    done = subprocess.run(command, input=json.dumps(programs), env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


PROGRAMS = {f"{name} {side}": str(entry(name, side)) for name in NAMES for side in ("before", "after")}


@pytest.fixture(scope="module")
def cpu() -> dict[str, Any]:
    return run_all("cpu", PROGRAMS)


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_all("cuda", {**PROGRAMS, **self_checks(tmp_path_factory.mktemp("checks"))})


def numbers(result: dict[str, Any]) -> dict[str, float]:
    """The numbers that a run has printed, flat: {"losses.0": 2.3, …}."""
    assert result["error"] is None, result["error"]
    last = result["output"].splitlines()[-1]
    assert last.startswith("RESULT "), last

    def flat(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
        if isinstance(value, (dict, list)):
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                yield from flat(f"{prefix}.{key}".lstrip("."), inner)
        else:
            yield prefix, value

    found = dict(flat("", json.loads(last.removeprefix("RESULT "))))
    assert found
    return found


def close(expected: dict[str, float]) -> Any:
    return pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_after_computes_on_a_cpu_what_before_computed_on_cuda(
    name: str, cpu: dict[str, Any], cuda: dict[str, Any]
) -> None:
    assert numbers(cpu[f"{name} after"]) == close(numbers(cuda[f"{name} before"]))


@pytest.mark.parametrize("name", TIED)
def test_before_fails_on_a_cpu(name: str, cpu: dict[str, Any]) -> None:
    error = cpu[f"{name} before"]["error"]
    assert error is not None and NO_CUDA.search(error), error


@pytest.mark.parametrize("name", sorted(GUARDED))
def test_guarded_before_runs_on_a_cpu_too(name: str, cpu: dict[str, Any]) -> None:
    assert numbers(cpu[f"{name} after"]) == numbers(cpu[f"{name} before"])


@pytest.mark.parametrize("name", NAMES)
def test_on_cuda_nothing_changes(name: str, cuda: dict[str, Any]) -> None:
    """Same numbers, same GPUs, and the same tensors, operations and calls on them in the same order."""
    before, after = (cuda[f"{name} {side}"] for side in ("before", "after"))
    assert numbers(after) == numbers(before)
    assert after["visible"] == before["visible"]
    assert after["trace"] == before["trace"]
    # a fixture in which nothing reaches a GPU would prove nothing here
    assert name == "explicit_cpu" or any(event[0] == "put" for event in before["trace"])


# --- the stand-in is as strict as CUDA -----------------------------------------------------------------

PRELUDE = """\
import torch

def draw(**options):
    torch.manual_seed(1)
    return torch.rand(1, **options)

"""

MISTAKES = {
    "torch.ones(2).cuda() + torch.ones(2)": "Expected all tensors to be on the same device",
    "torch.ones(2).cuda(0) + torch.ones(2).cuda(1)": "Expected all tensors to be on the same device",
    "torch.ones(2) + torch.tensor(1.0).cuda()": "Expected all tensors to be on the same device",
    "torch.nn.Linear(2, 2).cuda()(torch.ones(1, 2))": "Expected all tensors to be on the same device",
    "torch.ones(2, device='cuda').numpy()": "can't convert cuda:0 device type tensor to numpy",
    "torch.ones(2).cuda(4)": "invalid device ordinal",
    "torch.ones(2).to('cuda:7')": "invalid device ordinal",
    "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '2,3'; torch.ones(2).cuda(2)": "invalid device ordinal",
    "torch.nn.DataParallel(torch.nn.Linear(2, 2))(torch.ones(4, 2))": "must have its parameters and buffers",
    "torch.randn(2, device='cuda', generator=torch.Generator())": "Expected a 'cuda' device type",
    "torch.cuda.FloatTensor(torch.ones(2))": "expects device type: cuda",
}

FACTS = [
    "(torch.ones(2).cuda(1) * 2).device == torch.device('cuda:1')",
    "(torch.ones(2).cuda() + torch.tensor(1.0)).is_cuda",
    "torch.ones(2).cuda()[torch.tensor([0])].get_device() == 0",
    "torch.ones(2).cuda().cpu().get_device() == -1",
    "torch.ones(2).cuda().type() == 'torch.cuda.FloatTensor'",
    "isinstance(torch.ones(2).double().cuda(), torch.cuda.DoubleTensor)",
    "torch.ones(2).cuda(1).type(torch.cuda.HalfTensor).device.index == 1",
    "torch.ones(2).cuda(1).cuda().device.index == 0",
    "not isinstance(torch.ones(2), torch.cuda.FloatTensor)",
    "torch.cuda.FloatTensor(2, 3).size() == (2, 3)",
    "torch.cuda.LongTensor([2, 3]).tolist() == [2, 3]",
    "all(p.is_cuda for p in torch.nn.Linear(2, 2).to('cuda').parameters())",
    "draw().cuda() == draw().cuda()",
    "draw(device='cuda') == draw(device='cuda')",
    "draw(device='cuda') != draw().cuda()",
    "draw(device='cuda:1') != draw(device='cuda:0').to('cuda:1')",
    "not torch.load('x.pt', 'cpu').is_cuda if torch.save(torch.ones(1).cuda(), 'x.pt') is None else False",
]


def self_checks(folder: Path) -> dict[str, str]:
    programs = {}
    for number, code in enumerate([*MISTAKES, *FACTS]):
        path = folder / f"check{number}.py"
        path.write_text(f"{PRELUDE}{'assert ' if code in FACTS else ''}{code}\n", encoding="utf-8")
        programs[code] = str(path)
    return programs


@pytest.mark.parametrize("code", MISTAKES)
def test_the_stand_in_fails_where_cuda_fails(code: str, cuda: dict[str, Any]) -> None:
    assert MISTAKES[code] in (cuda[code]["error"] or "no error")


@pytest.mark.parametrize("code", FACTS)
def test_the_stand_in_answers_as_cuda_does(code: str, cuda: dict[str, Any]) -> None:
    assert cuda[code]["error"] is None


# --- the stand-in for CUDA ---------------------------------------------------------------------------
#
# Every tensor stays in the CPU's memory; which storages are "on" which GPU is written down beside it.
# `Api` sees the calls that name a device (`.cuda()`, `.to(...)`, `device=`) or ask for one. `Kernels` sees
# every operation, also those of the backward pass: it refuses to mix devices, and what an operation
# returns is on the device of what it was given.

HOST = -1  # the place of a tensor is the index of its GPU, or this


class Machine:
    """Four GPUs, of which the program sees those in CUDA_VISIBLE_DEVICES when it first asks."""

    def __init__(self) -> None:
        self.visible: list[int] | None = None
        self.current = 0
        self.seeds: dict[int, torch.Tensor] = {}
        self.places: dict[int, tuple[Any, int]] = {}  # storages are kept, so that their addresses stay theirs
        self.target: int | None = None  # of the call that names a device
        self.quiet = False
        self.trace: list[tuple[Any, ...]] = []

    def gpus(self) -> list[int]:
        if self.visible is None:
            named = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1,2,3")
            self.visible = [int(name) for name in named.split(",") if name.strip() in list("0123")]
        return self.visible

    def index(self, device: Any) -> int:
        """The place that a device, a device string, an index or None (the current GPU) stands for."""
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            if device.type != "cuda":
                return HOST
            device = device.index
        index = self.current if device is None else int(device)
        if not self.gpus():
            raise RuntimeError("No CUDA GPUs are available")
        if not 0 <= index < len(self.gpus()):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return index

    def device(self, place: int) -> torch.device:
        return torch.device("cpu") if place == HOST else torch.device("cuda", place)

    def place(self, tensor: torch.Tensor) -> int:
        return self.places.get(tensor.untyped_storage()._cdata, (None, HOST))[1]

    def put(self, tensor: torch.Tensor, place: int) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if place != HOST:
            self.places[storage._cdata] = (storage, place)
        return tensor

    def note(self, kind: str, place: int, *what: Any) -> None:
        """Write down what happened on a GPU, by the number that is printed on the card."""
        if place != HOST:
            self.trace.append((kind, self.gpus()[place], *what))

    def note_put(self, tensor: torch.Tensor, place: int) -> None:
        with self.silence():
            values = tensor.detach().double()
            total = f"{values.sum().item():.9g} {values.abs().sum().item():.9g}"
        self.note("put", place, str(tensor.dtype), list(tensor.shape), total)

    def move(self, tensor: torch.Tensor, place: int, dtype: Any = None, copy: bool = False) -> torch.Tensor:
        if place == self.place(tensor):
            return tensor.to(dtype or tensor.dtype, copy=copy)
        moved: torch.Tensor = Move.apply(tensor, self, place, dtype or tensor.dtype)
        return moved

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        old, self.quiet = self.quiet, True
        try:
            yield
        finally:
            self.quiet = old

    @contextlib.contextmanager
    def aiming_at(self, place: int) -> Iterator[None]:
        old, self.target = self.target, place
        try:
            yield
        finally:
            self.target = old

    @contextlib.contextmanager
    def stream_of(self, place: int) -> Iterator[None]:
        """Each GPU draws its random numbers from a generator of its own."""
        if place == HOST:
            yield
            return
        host = torch.default_generator.get_state()
        self.seeds.setdefault(place, torch.Generator().manual_seed(10**6 + place).get_state())
        torch.default_generator.set_state(self.seeds[place])
        try:
            yield
        finally:
            self.seeds[place] = torch.default_generator.get_state()
            torch.default_generator.set_state(host)

    def seed(self, seed: int, place: int) -> None:
        self.seeds[place] = torch.Generator().manual_seed(int(seed) + 10**6 + place).get_state()


class Move(torch.autograd.Function):
    """The copy from one device to another, whose gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, machine: Machine, place: int, dtype: Any) -> torch.Tensor:
        ctx.machine, ctx.source, ctx.dtype = machine, machine.place(tensor), tensor.dtype
        with machine.silence():
            moved = machine.put(tensor.detach().to(dtype, copy=True), place)
        machine.note_put(moved, place)
        return moved

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        machine = ctx.machine
        with machine.silence():
            back = machine.put(grad.detach().to(ctx.dtype, copy=True), ctx.source)
        machine.note_put(back, ctx.source)
        return back, None, None, None


class Kernels(TorchDispatchMode):
    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        machine, kwargs = self.machine, kwargs or {}
        if machine.quiet:
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if name.startswith(("_foreach", "_amp_foreach")):
            return self.for_each(func, name, args, kwargs)

        if name in ("copy_", "index", "index_put", "index_put_", "_index_put_impl_"):
            given = [args[0]]  # the others may be elsewhere
        else:
            given = list(tensors((args, kwargs)))
        place = self.common(given)
        if machine.target is not None:
            place = machine.target
        generator = kwargs.get("generator")
        if place != HOST and generator is not None:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")

        random = torch.Tag.nondeterministic_seeded in func.tags
        with machine.stream_of(place) if random else contextlib.nullcontext():
            out = func(*args, **kwargs)
        for tensor in tensors(out):
            machine.put(tensor, place)
        if not given and place != HOST:
            for tensor in tensors(out):
                with machine.silence():
                    if name.startswith("empty"):
                        tensor.zero_()
                machine.note_put(tensor, place)
        elif name not in ("detach", "alias"):
            machine.note("run", place, name)
        return out

    def for_each(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """An operation on lists of tensors: the first of each belong together, and so on."""
        lists = [arg for arg in args if isinstance(arg, (list, tuple)) and list(tensors(arg))]
        places = [self.common(list(row)) for row in zip(*lists, strict=True)]
        out = func(*args, **kwargs)
        for place, tensor in zip(places, tensors(out), strict=False):
            self.machine.put(tensor, place)
        for place in places:
            self.machine.note("run", place, name)
        return out

    def common(self, given: list[torch.Tensor]) -> int:
        machine = self.machine
        places = {machine.place(t) for t in given if t.dim() or machine.place(t) != HOST}
        if len(places) > 1:
            found = " and ".join(str(machine.device(place)) for place in sorted(places, reverse=True))
            raise RuntimeError(f"Expected all tensors to be on the same device, but found {found}!")
        return places.pop() if places else HOST


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from tensors(inner)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


class Api(TorchFunctionMode):
    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        tensor = torch.Tensor
        self.own = {
            tensor.device.__get__: lambda x: machine.device(machine.place(x)),
            tensor.is_cuda.__get__: lambda x: machine.place(x) != HOST,
            tensor.get_device: machine.place,
            tensor.cuda: lambda x, device=None, *_, **__: machine.move(x, machine.index(device)),
            tensor.cpu: lambda x, **_: machine.move(x, HOST),
            tensor.to: self.to,
            tensor.type: self.type,
            tensor.numpy: self.numpy,
            tensor.__array__: self.numpy,
            tensor.pin_memory: lambda x, *_: x.clone(),
            tensor.__deepcopy__: lambda x, memo: machine.put(tensor.__deepcopy__(x, memo), machine.place(x)),
            tensor.new_tensor: lambda x, data, **kw: self.tensor(data, **{"device": self.device_of(x), **kw}),
            torch.tensor: self.tensor,
            torch.as_tensor: self.as_tensor,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in self.own:
            return self.own[func](*args, **kwargs)
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        place = self.machine.index(kwargs.pop("device"))
        with self.machine.aiming_at(place):
            return func(*args, device="cpu", **kwargs)

    def device_of(self, x: torch.Tensor) -> torch.device:
        return self.machine.device(self.machine.place(x))

    def to(self, x: torch.Tensor, *args: Any, **kw: Any) -> torch.Tensor:
        place, dtype, copy = self.machine.place(x), kw.get("dtype"), kw.get("copy", False)
        first = args[0] if args else kw.get("other", kw.get("device"))
        if isinstance(first, torch.Tensor):
            place, dtype = self.machine.place(first), first.dtype
        elif isinstance(first, torch.dtype):
            dtype = first
        elif first is not None:
            place = self.machine.index(first)
        if len(args) > 1 and isinstance(args[1], torch.dtype):
            dtype = args[1]
        return self.machine.move(x, place, dtype, copy)

    def type(self, x: torch.Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
        here = self.machine.place(x)
        if dtype is None:
            return x.type() if here == HOST else x.type().replace("torch.", "torch.cuda.", 1)
        if isinstance(dtype, str):
            dtype = functools.reduce(getattr, dtype.split(".")[1:], torch)
        if isinstance(dtype, torch.dtype):
            return x.to(dtype)
        if not isinstance(dtype, CudaType):
            return self.machine.move(x, HOST, dtype.dtype)
        # what is on a GPU already stays on that one
        return self.machine.move(x, self.machine.index(None) if here == HOST else here, dtype.dtype)

    def numpy(self, x: torch.Tensor, *args: Any, **kw: Any) -> Any:
        if self.machine.place(x) != HOST:
            raise TypeError(
                f"can't convert {self.device_of(x)} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return x.numpy(*args, **kw)

    def tensor(self, data: Any, *, device: Any = None, **kw: Any) -> torch.Tensor:
        if device is None:
            place = self.machine.place(data) if isinstance(data, torch.Tensor) else HOST
        else:
            place = self.machine.index(device)
        with self.machine.silence():
            made = torch.tensor(data, **kw)
        if place != HOST:
            self.machine.put(made, place)
            self.machine.note_put(made, place)
        return made

    def as_tensor(self, data: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
        there = torch.as_tensor(data, dtype=dtype)
        return there if device is None else self.machine.move(there, self.machine.index(device))


class CudaType(type):
    """torch.cuda.FloatTensor and its kin: to call, to hand to `type()`, to ask `isinstance`."""

    machine: Machine
    dtype: torch.dtype
    is_cuda = True

    def __call__(cls, *args: Any) -> torch.Tensor:
        machine = cls.machine
        place = machine.index(None)
        if args and isinstance(args[0], torch.Tensor):
            if machine.place(args[0]) != place:
                raise TypeError("legacy constructor expects device type: cuda but was passed cpu")
            return args[0].view_as(args[0])
        with machine.silence():
            made: torch.Tensor = getattr(torch, cls.__name__)(*args)
            if all(isinstance(arg, (int, torch.Size)) for arg in args):
                made.zero_()
        machine.put(made, place)
        machine.note_put(made, place)
        return made

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.dtype == cls.dtype and x.is_cuda


def data_parallel(module: Any, *inputs: torch.Tensor) -> torch.Tensor:
    """nn.DataParallel.forward without the collectives, which a build for the CPU does not hold."""
    if not module.device_ids:
        return module.module(*inputs)
    home = torch.device("cuda", module.device_ids[0])
    state = dict(module.module.named_parameters()) | dict(module.module.named_buffers())
    for tensor in state.values():
        if tensor.device != home:
            raise RuntimeError(
                f"module must have its parameters and buffers on device {home} (device_ids[0]) "
                f"but found one of them on device: {tensor.device}"
            )
    outputs = []
    slices = zip(*[x.chunk(len(module.device_ids), module.dim) for x in inputs], strict=True)
    for index, part in zip(module.device_ids, slices, strict=False):
        replica = {key: tensor.cuda(index) for key, tensor in state.items()}
        out = torch.func.functional_call(module.module, replica, tuple(x.cuda(index) for x in part))
        outputs.append(out.cuda(module.output_device))
    return torch.cat(outputs, module.dim)


def by_device(lists: Any, with_indices: bool = False) -> Any:
    """torch.utils._foreach_utils, which asks the C++ side and would be told "cpu"."""
    groups: dict[Any, Any] = {}
    rows = zip(*[column or [None] * len(lists[0]) for column in lists], strict=True)
    for index, row in enumerate(rows):
        columns, indices = groups.setdefault((row[0].device, row[0].dtype), ([[] for _ in lists], []))
        indices.append(index)
        for column, item in zip(columns, row, strict=True):
            column.append(item)
    return groups


def names_in_torch_cuda(machine: Machine) -> dict[str, Any]:
    class OnDevice:
        def __init__(self, device: Any) -> None:
            self.place = machine.index(device)

        def __enter__(self) -> None:
            self.old, machine.current = machine.current, self.place

        def __exit__(self, *error: object) -> None:
            machine.current = self.old

    def noted(name: str, value: Any = None) -> Any:
        def call(device: Any = None) -> Any:
            place = machine.index(device)
            machine.note("call", place, name)
            return value(place) if value else None

        return call

    def set_device(device: Any) -> None:
        machine.current = machine.index(device)
        machine.note("call", machine.current, "set_device")

    def manual_seed(seed: int) -> None:
        machine.seed(seed, machine.current)
        machine.trace.append(("call", "manual_seed", machine.current, int(seed)))

    def manual_seed_all(seed: int) -> None:
        for place in range(4):
            machine.seed(seed, place)
        machine.trace.append(("call", "manual_seed_all", int(seed)))

    def properties(place: int) -> Any:
        return types.SimpleNamespace(total_memory=2**34, multi_processor_count=80, major=8, minor=0)

    def tensor_type(name: str) -> CudaType:
        dtype = getattr(torch, name).dtype
        return CudaType(name, (), {"machine": machine, "dtype": dtype, "__module__": "torch.cuda"})

    kinds = ("Float", "Double", "Half", "Long", "Int", "Short", "Char", "Byte", "Bool", "BFloat16")
    return {
        "is_available": lambda: bool(machine.gpus()),
        "device_count": lambda: len(machine.gpus()),
        "current_device": lambda: machine.index(None),
        "device": OnDevice,
        "set_device": set_device,
        "manual_seed": manual_seed,
        "manual_seed_all": manual_seed_all,
        "synchronize": noted("synchronize"),
        "reset_peak_memory_stats": noted("reset_peak_memory_stats"),
        "get_device_name": noted("get_device_name", lambda place: f"stand-in {machine.gpus()[place]}"),
        "get_device_properties": noted("get_device_properties", properties),
        **{f"{kind}Tensor": tensor_type(f"{kind}Tensor") for kind in kinds},
    }


@contextlib.contextmanager
def stand_in() -> Iterator[Machine]:
    machine = Machine()

    def tag(storage: Any) -> str | None:
        place = machine.places.get(storage._cdata, (None, HOST))[1]
        return None if place == HOST else f"cuda:{place}"

    def untag(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        machine.places[storage._cdata] = (storage, machine.index(location))
        return storage

    with pytest.MonkeyPatch.context() as patch, Kernels(machine), Api(machine):
        for name, value in names_in_torch_cuda(machine).items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch.nn.DataParallel, "forward", data_parallel)
        patch.setattr(torch.optim.Optimizer, "_group_tensors_by_device_and_dtype", staticmethod(by_device))
        patch.setattr(torch.nn.utils.clip_grad, "_group_tensors_by_device_and_dtype", by_device)
        registry = torch.serialization._package_registry
        patch.setattr(torch.serialization, "_package_registry", [(0, tag, untag), *registry])
        yield machine


# --- the child process -------------------------------------------------------------------------------


def run_program(path: str, machine: Machine | None) -> dict[str, Any]:
    """Run one program as a script in a folder of its own, and leave no trace of it in this process."""
    output, error = io.StringIO(), None
    loaded, old_path, old_argv, old_env = set(sys.modules), sys.path[:], sys.argv[:], dict(os.environ)
    old_folder = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        sys.path.insert(0, str(Path(path).parent))
        sys.argv = [path]
        if machine:
            os.environ.pop("CUDA_VISIBLE_DEVICES")
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
                runpy.run_path(path, run_name="__main__")
        except (Exception, SystemExit) as caught:
            error = f"{type(caught).__name__}: {caught}"
        finally:
            os.chdir(old_folder)
            sys.path[:], sys.argv[:] = old_path, old_argv
            os.environ.clear()
            os.environ.update(old_env)
            for name in set(sys.modules) - loaded:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(Path(path).parent)):
                    del sys.modules[name]
    result: dict[str, Any] = {"error": error, "output": output.getvalue()}
    if machine:
        result |= {"trace": machine.trace, "visible": machine.visible}
    return result


def main(kind: str) -> None:
    assert not torch.cuda.is_available()  # this also settles what a machine with CUDA shows to the programs
    results = {}
    for name, path in json.load(sys.stdin).items():
        if kind == "cpu":
            results[name] = run_program(path, None)
        else:
            with stand_in() as machine:
                results[name] = run_program(path, machine)
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
