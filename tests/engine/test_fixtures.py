"""The programs under fixtures/: their rewrites, and their results before and after.

The programs run in child processes, which run this file: `test_fixtures.py cpu FILE` without CUDA, and
`test_fixtures.py cuda FILE` on the simulated CUDA machine with four GPUs. With `full`, autocast keeps the
precision there. The file has the programs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import ROOT
from running import forks

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile
from devicefix.verify.runtime.eager import tensors
from devicefix.verify.runtime.machine import Machine, Simulation, making
from devicefix.verify.runtime.machine.kernels import Kernels
from devicefix.verify.runtime.machine.places import place_of

pytestmark = pytest.mark.needs("torch")

FIXTURES = ROOT / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/before*"))

# These check for a GPU, so they run on a CPU unchanged.
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

# The errors without CUDA: of PyTorch, in builds with and without it, and of a program itself.
NO_CUDA = re.compile(
    r"Torch not compiled with CUDA enabled|Cannot initialize CUDA without ATen_cuda"
    r"|Cannot access accelerator device when none is available|not linked with support for cuda"
    r"|No CUDA GPUs are available|Found no NVIDIA driver|this benchmark needs CUDA"
)


# --- rewriting ---------------------------------------------------------------------------------------


def sources(name: str, side: str) -> dict[str, bytes]:
    """Return the modules of one side of a fixture, by their path in the program."""
    folder = FIXTURES / name / side
    if folder.is_dir():
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.py"))}
    return {"main.py": folder.with_suffix(".py").read_bytes()}


def rewrite(modules: dict[str, bytes]) -> dict[str, bytes]:
    """Return the modules of a program after `devicefix rewrite --in-place`."""
    project = Project(ProjectFile(source, path) for path, source in modules.items())
    results = {
        path: check_file(source, path, Settings(fix=True), project) for path, source in modules.items()
    }
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


def run_all(folder: Path, machine: str, programs: dict[str, str]) -> dict[str, Any]:
    """Run the programs at these paths in one child process on a machine, and return the results by name."""
    env = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    output, errors = folder / "output.txt", folder / "errors.txt"
    (folder / "programs.json").write_text(json.dumps(programs))
    command = [__file__, machine, str(folder / "programs.json")]
    assert forks().run(command, folder, env, output, errors) == 0, errors.read_text()
    results: dict[str, Any] = json.loads(output.read_text().splitlines()[-1])
    return results


PROGRAMS = {f"{name} {side}": str(entry(name, side)) for name in NAMES for side in ("before", "after")}


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_all(tmp_path_factory.mktemp("cpu"), "cpu", PROGRAMS)


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    checks = self_checks(tmp_path_factory.mktemp("checks"))
    return run_all(tmp_path_factory.mktemp("cuda"), "cuda", {**PROGRAMS, **checks})


@pytest.fixture(scope="module")
def in_full_precision(tmp_path_factory: pytest.TempPathFactory, cuda: dict[str, Any]) -> dict[str, Any]:
    """The results with CUDA, but without the precision that autocast for CUDA takes away: a CPU keeps it."""
    lowered = {
        key: path for key, path in PROGRAMS.items() if any(b"autocast" in each for each in read(Path(path)))
    }
    return cuda | run_all(tmp_path_factory.mktemp("full"), "full", lowered)


def read(path: Path) -> list[bytes]:
    """Return the content of the modules of a program."""
    return [each.read_bytes() for each in (path.parent.glob("*.py") if path.name == "main.py" else [path])]


def numbers(result: dict[str, Any]) -> dict[str, float]:
    """Return the numbers that a run printed, with dotted names: `{"losses.0": 2.3, …}`."""
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
    name: str, cpu: dict[str, Any], in_full_precision: dict[str, Any]
) -> None:
    assert numbers(cpu[f"{name} after"]) == close(numbers(in_full_precision[f"{name} before"]))


@pytest.mark.parametrize("name", TIED)
def test_before_fails_on_a_cpu(name: str, cpu: dict[str, Any]) -> None:
    error = cpu[f"{name} before"]["error"]
    assert error is not None and NO_CUDA.search(error), error


@pytest.mark.parametrize("name", sorted(GUARDED))
def test_guarded_before_runs_on_a_cpu_too(name: str, cpu: dict[str, Any]) -> None:
    assert numbers(cpu[f"{name} after"]) == numbers(cpu[f"{name} before"])


@pytest.mark.parametrize("name", NAMES)
def test_on_cuda_nothing_changes(name: str, cuda: dict[str, Any]) -> None:
    """The numbers, the GPUs, and the order of tensors, operations and calls on them are the same."""
    before, after = (cuda[f"{name} {side}"] for side in ("before", "after"))
    assert numbers(after) == numbers(before)
    assert after["visible"] == before["visible"]
    assert after["trace"] == before["trace"]
    # a fixture in which nothing reaches a GPU would prove nothing here
    assert name == "explicit_cpu" or any(event[0] == "put" for event in before["trace"])


# --- the simulated CUDA machine itself -----------------------------------------------------------------

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
def test_the_machine_fails_where_cuda_fails(code: str, cuda: dict[str, Any]) -> None:
    assert MISTAKES[code] in (cuda[code]["error"] or "no error")


@pytest.mark.parametrize("code", FACTS)
def test_the_machine_reports_what_cuda_does(code: str, cuda: dict[str, Any]) -> None:
    assert cuda[code]["error"] is None


# --- the child process -------------------------------------------------------------------------------


def run_here(path: str, machine: Machine | None) -> dict[str, Any]:
    """Run a program as a script in a temporary folder, and restore the state of this process."""
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
        result |= {"visible": machine.visible}
    return result


class Traced(Kernels):  # type: ignore[no-untyped-call]
    """Kernels that record the tensors, operations, draws and calls on the GPUs in their order."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.trace: list[tuple[Any, ...]] = []
        self.machine = machine

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        name = func._schema.name.removeprefix("aten::")
        made = not any(place_of(tensor) >= 0 for tensor in tensors(args))
        if name not in ("detach", "alias"):
            for tensor in tensors(out):
                self.note("put" if made else name, tensor, known=not name.startswith(("empty", "new_empty")))
        return out

    def note(self, what: str, tensor: torch.Tensor, known: bool = True) -> None:
        """Record a tensor on a GPU, with its values if they are known."""
        place = place_of(tensor)
        if place >= 0:
            with torch._C._DisableTorchDispatch(), torch.no_grad(), torch._C.DisableTorchFunction():
                values = tensor.detach().double()
                total = f"{values.sum().item():.9g} {values.abs().sum().item():.9g}" if known else ""
            about = str(tensor.dtype), list(tensor.shape), total
            self.trace.append((what, self.machine.visible[place], *about))

    def add(self, device: str, op: str, numel: int) -> None:
        """Record a random draw, or a seed."""
        self.trace.append(("draw", device, op, numel))

    def watch(self) -> None:
        """Record what the dispatch mode does not see: data that becomes a tensor, and calls."""
        put = making.put  # type: ignore[attr-defined]

        def recorded(tensor: torch.Tensor, place: int) -> torch.Tensor:
            put(tensor, place)
            self.note("put", tensor, known=False)
            return tensor

        making.put = recorded  # type: ignore[attr-defined]
        for name in ("set_device", "synchronize", "get_device_name", "get_device_properties"):
            setattr(torch.cuda, name, self.watched(name, getattr(torch.cuda, name)))

    def watched(self, name: str, call: Any) -> Any:
        def watching(*args: Any) -> Any:
            self.trace.append(("call", self.machine.gpu(*args), name))
            return call(*args)

        return watching


def main(kind: str, file: str) -> None:
    assert not torch.cuda.is_available()  # torch caches the answer before the simulation starts
    results = {}
    for name, path in json.loads(Path(file).read_text()).items():
        if kind == "cpu":
            results[name] = run_here(path, None)
        else:
            lowers = kind == "cuda"
            machine = Machine(gpus=4, autocast=lowers)
            simulation, traced, put = Simulation(machine), Traced(machine), making.put  # type: ignore[attr-defined]
            machine.draws, simulation._kernels = traced, traced
            with simulation:
                traced.watch()
                results[name] = {**run_here(path, machine), "trace": traced.trace}
            making.put = put  # type: ignore[attr-defined]
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
