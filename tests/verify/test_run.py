"""Tests of `devicefix run`: the program runs as with `python`, rewritten."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import ProjectFolder

RUN = [sys.executable, "-m", "devicefix", "run"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    """Return an empty folder for the files of a program."""
    return ProjectFolder(tmp_path)


# A build of torch without CUDA, as far as these programs use it: to import torch takes seconds.
TORCH = """\
class Tensor(list):
    def to(self, device):
        assert device == "cpu"
        return self

    def cuda(self):
        raise AssertionError("Torch not compiled with CUDA enabled")


class cuda:
    is_available = staticmethod(lambda: False)


def ones(count):
    return Tensor([1.0] * count)


device = str
"""


@pytest.fixture
def run(project: ProjectFolder, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that calls `devicefix run` in the folder of the program."""

    def call(*arguments: str, plain: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [*RUN, *arguments]
        variables = dict(options.pop("env", os.environ))
        if plain:
            (folder := tmp_path_factory.mktemp("stub")).joinpath("torch.py").write_text(TORCH)
            path = filter(None, [str(folder), variables.get("PYTHONPATH")])
            variables["PYTHONPATH"] = os.pathsep.join(path)
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, cwd=project.path, capture_output=True, text=True, check=False, env=variables, **options
        )
        return done

    return call


PROGRAM = """\
import sys
import torch
from net import make

x = make()(torch.ones(1, 4).cuda())
print(x.device, sys.argv, __name__, __file__)
sys.exit(7)
"""
ONES = """\
import torch

def ones():
    return torch.ones(2).cuda()
"""
NET = """\
import torch

def make():
    return torch.nn.Linear(4, 2).cuda()
"""


@pytest.mark.needs("torch")
def test_the_program_runs_with_its_arguments_and_its_exit_status(project: ProjectFolder, run: Run) -> None:
    project.write({"train.py": PROGRAM, "net.py": NET})
    done = run("train.py", "--steps", "3", "-h")
    path = project / "train.py"
    assert done.stdout == f"cpu ['train.py', '--steps', '3', '-h'] __main__ {path}\n"
    assert (done.returncode, done.stderr) == (7, "")
    assert (project.read("train.py"), project.read("net.py")) == (PROGRAM, NET)


def test_a_module_runs(project: ProjectFolder, run: Run) -> None:
    project.write(
        {
            "pkg/__init__.py": "",
            "pkg/__main__.py": "from pkg.net import ones\nprint(ones())",
            "pkg/net.py": ONES,
        }
    )
    assert run("-m", "pkg", plain=True).stdout == "[1.0, 1.0]\n"


def test_a_notebook_runs(project: ProjectFolder, run: Run) -> None:
    cell = {"cell_type": "code", "metadata": {}, "source": "import torch\nprint(torch.ones(2).cuda())"}
    notebook = {"cells": [cell | {"outputs": [], "execution_count": None}], "metadata": {}, "nbformat": 4}
    project.write({"demo.ipynb": json.dumps(notebook | {"nbformat_minor": 4})})
    done = run("demo.ipynb", plain=True)
    assert (done.stdout, done.returncode) == ("[1.0, 1.0]\n", 0)


def test_a_traceback_shows_the_users_lines(project: ProjectFolder, run: Run) -> None:
    project.write({"train.py": "import torch\n\nx = torch.ones(2).cuda()\nx[5]\n"})
    done = run("train.py", plain=True)
    assert done.returncode == 1
    assert 'train.py", line 4' in done.stderr
    assert "devicefix" not in done.stderr


def test_standard_input_reaches_the_program(project: ProjectFolder, run: Run) -> None:
    project.write({"train.py": "import torch\nprint(len(torch.ones(int(input())).cuda()))\n"})
    assert run("train.py", input="5\n", plain=True).stdout == "5\n"


@pytest.mark.needs("torch")
def test_processes_of_the_program_are_rewritten(project: ProjectFolder, run: Run) -> None:
    program = """\
        import subprocess, sys
        import torch.multiprocessing as mp
        from net import make

        def work(rank):
            print("spawned", next(make().parameters()).device, flush=True)

        if __name__ == "__main__":
            mp.spawn(work, nprocs=1)
            started = "from net import make; print('started', make().weight.device)"
            subprocess.run([sys.executable, "-c", started])
    """
    project.write({"train.py": program, "net.py": NET})
    assert run("train.py").stdout == "spawned cpu\nstarted cpu\n"


def test_many_modules_are_rewritten_when_they_are_imported(project: ProjectFolder, run: Run) -> None:
    modules = {f"m{number}.py": ONES for number in range(60)}
    project.write({**modules, "train.py": "from m7 import ones\nprint(ones())\n"})
    assert run("train.py", plain=True).stdout == "[1.0, 1.0]\n"


def test_nothing_watches_the_program(project: ProjectFolder, run: Run) -> None:
    program = """\
        import sys
        import torch

        torch.ones(2).cuda()
        print([name for name in sys.modules if name.startswith("devicefix") and "requests" in name])
        print(torch.Tensor.cuda.__qualname__, sys.gettrace())
    """
    project.write({"train.py": program})
    assert run("train.py", plain=True).stdout == "[]\nTensor.cuda None\n"


def test_cpu_hides_cuda(project: ProjectFolder, run: Run) -> None:
    project.write({"train.py": "import os\nprint(os.environ.get('CUDA_VISIBLE_DEVICES', 'all'))\n"})
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    assert run("--cpu", "train.py", env=environment).stdout == "\n"
    assert run("train.py", env=environment).stdout == "all\n"


@pytest.mark.needs("torch")
def test_accelerator_chooses_the_accelerator(project: ProjectFolder, run: Run) -> None:
    machine = """\
        import torch

        torch.accelerator.is_available = lambda *_: True
        torch.accelerator.current_accelerator = lambda *_: torch.device("meta")
    """
    program = """\
        import machine
        import torch

        print(torch.ones(2).to("cuda").device)
    """
    project.write({"train.py": program, "machine.py": machine})
    done = run("--target", "accelerator", "train.py")
    assert done.stdout == "meta\n", done.stderr


SIMULATED = """\
import subprocess, sys
import torch

device = torch.accelerator.current_accelerator()
print(device, torch.cuda.is_available(), torch.ones(1, device=0).device, torch.ones(1).to("cpu").device)
torch.compile(torch.relu)
for _ in range(2):
    try:
        torch.cuda.CUDAGraph()
    except RuntimeError:
        pass
if len(sys.argv) == 1:
    sys.exit(subprocess.run([sys.executable, __file__, "child"]).returncode + 3)
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_simulate_runs_the_program_and_its_processes_on_the_machine(
    kind: str, project: ProjectFolder, run: Run
) -> None:
    project.write({"pkg/__init__.py": "", "pkg/train.py": SIMULATED})
    done = run("--simulate", kind, "-m", "pkg.train")
    assert done.stdout == f"{kind} {kind == 'cuda'} {kind}:0 cpu\n" * 2, done.stderr
    assert done.returncode == 3
    lacks = f"torch.compile ({Path('pkg', 'train.py')}:6)"
    graphs = f", graphs of a GPU ({Path('pkg', 'train.py')}:9)" if kind == "cuda" else ""
    assert done.stderr.splitlines()[-1] == f"devicefix: the simulation lacks {lacks}{graphs}"


@pytest.mark.needs("torch")
def test_simulate_rewrites_only_if_it_is_asked_to(project: ProjectFolder, run: Run) -> None:
    program = "import torch\nprint(torch.ones(1).to('cuda').device)\n"
    project.write({"train.py": program})
    assert "not compiled with CUDA" in run("--simulate", "mps", "train.py").stderr
    assert run("--simulate", "mps", "--target", "accelerator", "train.py").stdout == "mps:0\n"
    project.write({"pyproject.toml": "[tool.devicefix]\ntarget = 'accelerator'\n"})
    assert run("--simulate", "mps", "train.py").stdout == "mps:0\n"
    project.write({"pyproject.toml": ""})
    assert run("--simulate", "mps", "--rewrite", "train.py").stdout == "cpu\n"
    assert run("--no-rewrite", "--cpu", "train.py").returncode == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cpu", "--target", "accelerator"), "--cpu and --target accelerator cannot be used together"),
        (("--cpu", "--simulate", "xpu"), "--cpu and --simulate cannot be used together"),
        (
            ("--no-rewrite", "--target", "accelerator"),
            "--target accelerator and --no-rewrite cannot be used together",
        ),
        (("--simulate", "tpu"), "'tpu' is not one of"),
    ],
)
def test_options_that_contradict_each_other(
    options: tuple[str, ...], message: str, project: ProjectFolder, run: Run
) -> None:
    project.write({"train.py": ""})
    done = run(*options, "train.py")
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.py",), "absent.py: no such file; use -m for a module\n"),
        (("--python", "absent", "train.py"), "absent: No such file or directory"),
    ],
)
def test_what_cannot_be_run(
    arguments: tuple[str, ...], message: str, project: ProjectFolder, run: Run
) -> None:
    project.write({"train.py": ""})
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_cannot_be_rewritten_is_named(project: ProjectFolder, run: Run) -> None:
    project.write({"train.py": "print('done')", "broken.py": "import torch\nx.cuda(\n"})
    done = run("--config", "max-file-size = '20'", "train.py")
    assert done.stdout == "done\n"
    assert "broken.py: error: the file is larger than 20" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_reach_the_program(name: str, project: ProjectFolder) -> None:
    program = """\
        import os, signal, sys, time

        def end(number, frame):
            os.write(1, f"got {number}\\n".encode())  # `print` may be interrupted in `print("ready")`
            sys.exit(3)

        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        print("ready", flush=True)
        time.sleep(60)
    """
    project.write({"train.py": program})
    with subprocess.Popen([*RUN, "train.py"], cwd=project.path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"got {int(getattr(signal, name))}\n"
        assert process.wait(20) == 3


@pytest.mark.skipif(os.name == "nt", reason="Windows has other signals")
def test_a_program_that_a_signal_ends(project: ProjectFolder, run: Run) -> None:
    project.write({"train.py": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"})
    assert run("train.py").returncode == 128 + signal.SIGKILL


def test_nothing_is_left_behind(
    project: ProjectFolder, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    project.write({"train.py": "from net import ones\nprint(ones())\n", "net.py": ONES})
    assert run("train.py", plain=True, env={**os.environ, "TMPDIR": str(temporary)}).returncode == 0
    time.sleep(0.1)
    assert not list(temporary.iterdir())
    assert project.names() == ["net.py", "train.py"]
