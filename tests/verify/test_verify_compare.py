"""Tests of `devicefix verify --compare`, with a right rewrite and wrong ones; one runs in processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from running import verify_in_forks

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.verify import against_cuda, runs, session
from devicefix.verify.program import Program, Rewritten
from devicefix.verify.runs import Result, Task
from devicefix.verify.session import Report
from devicefix.verify.verdict import Verdict

pytestmark = pytest.mark.slow

ORIGINAL = """
import torch

def step(model, x):
    return model(x).sum()

model = torch.nn.Linear(3, 1).cuda()
noise = torch.randn(2, 3).cuda()
ones = torch.cuda.FloatTensor(2, 3).fill_(1)
print(step(model, noise).item())
total = ones.sum()
host = torch.zeros(3)
there = host.cuda()
host += 1
print(there.tolist())
for _ in range(30):
    total = total * 1.01
print(total.item())
"""
RIGHT = (
    ORIGINAL.replace(".cuda()", ".to(device)")
    .replace("torch.cuda.FloatTensor(2, 3)", "torch.empty(2, 3, device=device)")
    .replace("host.to(device)", "host.to(device, copy=True)")
    .replace("import torch\n", "import torch\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n")
)

# Changes to the right rewrite: old text, new text, where the difference is, and words of its description.
WRONG = {
    "a random stream of the GPU": (
        "torch.randn(2, 3).to(device)",
        "torch.randn(2, 3, device=device)",
        "cuda",
        ["program.py:7", "`randn` of 6 on cpu", "`randn` of 6 on cuda:0"],
    ),
    "a typed tensor turned into one on the CPU": (
        "torch.empty(2, 3, device=device).fill_(1)",
        "torch.FloatTensor(2, 3).fill_(1)",
        "cuda",
        ["program.py:17", "on cuda:0 in the original and on cpu", "operations ran on CUDA"],
    ),
    "two devices in one operation": (
        "randn(2, 3).to(device)",
        "randn(2, 3)",
        "cuda",
        ["Expected all tensors to be on the same device", "program.py:4"],
    ),
    "other numbers": ("* 1.01", "* 1.02", "cuda", ["program.py:17", "8.087"]),
    "a copy that a CPU does not make": (
        ", copy=True",
        "",
        "cpu",
        ["program.py:14", "0 as its 1st sample on CUDA and 1 on the CPU"],
    ),
    "other numbers on a CPU only": (
        "* 1.01",
        "* (1.01 if device == 'cuda' else 1.02)",
        "cpu",
        ["program.py:17", "8.087"],
    ),
}


@pytest.fixture(autouse=True)
def _in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    verify_in_forks(monkeypatch)


def compared(folder: Path, rewritten: str) -> Report:
    program = folder / "program.py"
    program.write_text(ORIGINAL.strip() + "\n", encoding="utf-8")
    task = Task(
        [sys.executable, "program.py"], folder, folder, (folder,), compare=True, scratch=True, copies=False
    )
    new = rewritten.strip() + "\n"
    lines = _origins(program.read_text(encoding="utf-8").split("\n"), new.split("\n"))
    module = Rewritten(str(program), new.encode(), [], lines, program.read_bytes())
    return session.verify(task, Everywhere(Settings()), lambda *_: None, [module])


def _origins(old: list[str], new: list[str]) -> list[int]:
    """Return the line of the old text, from 1, for each line of a new one that a test has written."""
    found: list[int] = []
    for _, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        found += [min(start + number, max(end - 1, start)) + 1 for number in range(last - first)]
    return found


def test_a_right_rewrite_is_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = compared(tmp_path, RIGHT)
    assert report.verdict is Verdict.PASS, report
    assert report.comparison is not None and report.comparison.observations == 3


def test_lines_that_are_alike_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prints = [f"print(torch.{name}(3).cuda().sum().item())\n" for name in ("ones", "zeros", "ones", "zeros")]
    (tmp_path / "program.py").write_text("import torch\n" + "".join(prints))
    command = [sys.executable, "program.py"]
    task = Task(command, tmp_path, tmp_path, (tmp_path,), compare=True, scratch=True, copies=False)
    report = session.verify(task, Everywhere(Settings()), lambda *_: None)
    assert report.verdict is Verdict.PASS, report
    assert report.comparison is not None and report.comparison.observations == 4
    assert ([place.line for place in report.run.ran], report.run.not_run) == ([2, 3, 4, 5], [])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rewrite_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old, new, where, words = WRONG[name]
    assert old in RIGHT
    report = compared(tmp_path, RIGHT.replace(old, new))
    assert report.verdict is Verdict.FAIL and report.comparison is not None
    found = report.comparison.on_cuda if where == "cuda" else report.comparison.on_cpu
    for word in words:
        assert word in "\n".join(found), found
    if where == "cpu":
        assert not report.comparison.on_cuda


def test_the_command_with_a_rewrite_by_devicefix(tmp_path: Path) -> None:
    tied = """
        import torch
        torch.manual_seed(3)
        model = torch.nn.Linear(3, 1).cuda()
        print(model(torch.cuda.FloatTensor(2, 3).normal_()).sum().item())
        torch.save(model.state_dict(), 'model.pt')
        if torch.cuda.is_available():
            print(torch.ones(1).cuda())
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(tied), encoding="utf-8")
    options = ["--compare", "--no-unsafe-fixes", "--ignore", "DF9", "--ignore", "DF8"]
    command = [sys.executable, "-m", "devicefix", "verify", *options, "program.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done
    heading, number, empty, verdict, *summary = done.stdout.splitlines()
    assert (heading, empty) == ("Output of the rewritten program.py:", "")
    float(number)  # shown once, although three runs print it
    assert verdict.startswith("verify: pass in ") and len(summary) <= 18
    assert re.search(
        "numbers        [23] of [34] values equal; the others are read only on CUDA", done.stdout
    )
    assert "program.py:8: this line reads a tensor only on CUDA" in done.stdout
    apply = "devicefix check --no-unsafe-fixes --ignore DF9 --ignore DF8 --fix program.py"
    assert summary[-1] == f"  do:  to apply the fixes, run `{apply}`"
    assert [file.name for file in tmp_path.iterdir()] == ["program.py"]


def test_an_original_that_fails_on_cuda_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text("import torch\n(torch.ones(1).cuda() + torch.ones(1)).item()\n")
    monkeypatch.chdir(tmp_path)
    task = Task([sys.executable, "program.py"], tmp_path, tmp_path, (tmp_path,), compare=True, scratch=True)
    report = session.verify(task, Everywhere(Settings()), lambda *_: None)
    assert report.verdict is Verdict.TROUBLE and "the original fails" in report.reason


@pytest.mark.parametrize("name", ["a copy that a CPU does not make", "other numbers"])
def test_with_a_gpu_the_cpu_is_compared_with_the_simulation(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test the order of the runs, with the simulated CUDA machine in place of the GPU."""
    machines = []

    def run_program(
        task: Task, program: Program, folder: Path, tick: Callable[[float], None], machine: str = "cpu"
    ) -> Result:
        machines.append(machine)
        return real(task, program, folder, tick, "simulated" if machine == "cuda" else machine)

    real = runs.run_program
    monkeypatch.setattr(runs, "run_program", run_program)
    monkeypatch.setattr(against_cuda, "has_cuda", lambda _: True)
    monkeypatch.chdir(tmp_path)
    old, new, where, words = WRONG[name]
    report = compared(tmp_path, RIGHT.replace(old, new))
    again = [
        "cuda",
        where,
    ] * against_cuda.ROUNDS  # the original and the rewritten program, for what differs by itself
    runs_before, runs_after = (again, []) if where == "cuda" else ([], again)
    assert machines == ["cpu", "cuda", "cuda", *runs_before, "simulated", *runs_after]
    assert report.comparison is not None and report.comparison.machine == "cuda"
    found = report.comparison.on_cuda if where == "cuda" else report.comparison.on_cpu
    assert words[0] in "\n".join(found)


AUTOCAST = """
import torch
model = torch.nn.Linear(4, 4).cuda()
table = torch.nn.Embedding(4, 4).cuda(){low}
optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.cuda.amp.GradScaler()
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.{dtype}):
        loss = model(table(torch.arange(4).cuda())).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(loss.item())
"""
FLOAT32 = {"low": "", "dtype": "float16"}
MIXED = {"low": ".bfloat16()", "dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("program", "note"),
    [(FLOAT32, "uses full precision"), (MIXED, "the comparison with the CPU uses the CPU's precision")],
)
def test_autocast(
    program: dict[str, str], note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(AUTOCAST.format(**program))
    command = [sys.executable, "program.py"]
    task = Task(command, tmp_path, tmp_path, (tmp_path,), compare=True, scratch=True, copies=False)
    settings = Settings(unsafe_fixes=program is MIXED)
    report = session.verify(task, Everywhere(settings), lambda *_: None)
    assert report.verdict is Verdict.PASS, report
    assert report.comparison is not None and report.comparison.observations == 3
    assert any(note in each for each in report.comparison.notes)


LONG = """
import torch
torch.manual_seed(0)
net = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(device)
table = torch.nn.Embedding(10, 16).to(device).bfloat16()
optimizer = torch.optim.Adam([*net.parameters(), *table.parameters()], 0.01)
scaler = torch.amp.GradScaler(device, enabled=False)
for step in range(30):
    optimizer.zero_grad()
    with torch.autocast(device{dtype}):
        out = net(table(torch.arange(20, device=device).reshape(2, 10) % 10))
        with torch.autocast(device, enabled=False):
            loss = (out.float() * 1.0 - 1).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(loss.item(), out.dtype, [p.float().sum().item() for p in net.parameters()])
"""
CHOICE = "device = 'cuda' if torch.cuda.is_available() else 'cpu'"


@pytest.mark.parametrize(("dtype", "fault"), [(", dtype=torch.bfloat16", ""), ("", ""), ("", "fault")])
def test_long_training_with_autocast_of_the_cpu(
    dtype: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both machines compute with the CPU's lists of operations, so the numbers stay equal."""
    monkeypatch.chdir(tmp_path)
    program = LONG.format(dtype=dtype).replace("import torch\n", f"import torch\n{CHOICE}\n", 1)
    monkeypatch.setattr(sys.modules[__name__], "ORIGINAL", program)
    wrong = program.replace("* 1.0 -", "* (1.0 if device == 'cuda' else 1.001) -") if fault else program
    report = compared(tmp_path, wrong)
    assert report.comparison is not None
    assert any("the comparison with the CPU uses the CPU's precision" in n for n in report.comparison.notes)
    assert report.comparison.compared
    assert report.verdict is (Verdict.FAIL if fault else Verdict.PASS), report.comparison


def test_autocast_with_float32_is_compared_as_any_other_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = """
        import torch
        net = torch.nn.Linear(2, 1).cuda()
        with torch.autocast("cuda", dtype=torch.float32):
            print(net(torch.ones(1, 2).cuda()).item())
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(code))
    command = [sys.executable, "program.py"]
    task = Task(command, tmp_path, tmp_path, (tmp_path,), compare=True, scratch=True, copies=False)
    report = session.verify(task, Everywhere(Settings()), lambda *_: None)
    assert report.verdict is Verdict.PASS and report.comparison is not None
    assert not any("autocast" in note for note in report.comparison.notes)


def test_a_difference_beside_autocast_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU computes in float32, so a difference as small as one of float16 counts."""
    monkeypatch.chdir(tmp_path)
    tied = AUTOCAST.format(**FLOAT32)
    right = tied.replace(".cuda()", ".to(device)").replace(
        "import torch\n", "import torch; device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    )
    wrong = right.replace(".mean()", ".mean() * (1 if device == 'cuda' else 1.0005)")
    monkeypatch.setattr(sys.modules[__name__], "ORIGINAL", tied)
    report = compared(tmp_path, wrong)
    assert report.verdict is Verdict.FAIL and report.comparison is not None
    assert not report.comparison.on_cuda and "program.py:12" in report.comparison.on_cpu[0]


def on_simulated_cuda(folder: Path, program: str, gpus: int | None = None) -> Report:
    """Compare a program with its own fixes on the simulated CUDA machine."""
    (folder / "program.py").write_text(program)
    command = [sys.executable, "program.py"]
    task = Task(command, folder, folder, (folder,), compare=True, scratch=True, copies=False, gpus=gpus)
    return session.verify(task, Everywhere(Settings()), lambda *_: None)


def test_the_number_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has one, and those that the program names."""
    monkeypatch.chdir(tmp_path)
    report = on_simulated_cuda(
        tmp_path,
        "import torch\nx = torch.ones(1, device='cuda:2').cuda(3)\n"
        "print(torch.cuda.device_count(), x.item())\n",
    )
    assert report.verdict is Verdict.PASS, report
    assert report.comparison is not None and report.comparison.observations == 1


def test_an_original_that_needs_more_gpus_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = (
        "import torch\nif torch.cuda.is_available() and torch.cuda.device_count() < 4:\n"
        "    raise ValueError(torch.cuda.device_count())\nprint(torch.ones(2).cuda().sum().item())\n"
    )
    found = on_simulated_cuda(tmp_path, program).comparison
    assert found is not None and (found.failure, found.compared) == ("", 1), found
    assert "the simulated machine has 4 GPUs, because the original needs them" in found.notes
    found = on_simulated_cuda(tmp_path, program, gpus=1).comparison
    assert found is not None and "ValueError: 1" in found.failure


def test_a_run_that_reaches_a_limit_on_cuda_is_compared_until_then(tmp_path: Path) -> None:
    program = (
        "import time, torch\nprint(torch.ones(1).sum().item())\nif torch.cuda.is_available():\n"
        "    data = b'1' * (2 << 30)\n    time.sleep(60)\nprint(torch.ones(2).sum().item())\n"
    )
    (tmp_path / "program.py").write_text(program)
    options = ["--compare", "--memory", "1500M", "--output-format", "json"]
    command = [sys.executable, "-m", "devicefix", "verify", *options, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    comparison = json.loads(done.stdout)["comparison"]
    assert (done.returncode, comparison["compared"]) == (0, 1), done
    assert (
        "the original reached the memory limit on CUDA: later values are not compared" in comparison["notes"]
    )
