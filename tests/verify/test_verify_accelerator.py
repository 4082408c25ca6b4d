"""Tests of `verify --accelerator`, alone and with `--compare`: right programs pass, and faults are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from accelerator_faults import FAULTS, Fault
from running import ProgramFolder, verify_in_forks

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.verify import session
from devicefix.verify.program import Rewritten
from devicefix.verify.report import text
from devicefix.verify.runs import Task
from devicefix.verify.session import Report

pytestmark = [pytest.mark.slow, pytest.mark.needs("numpy", "torch")]

ORIGINAL = """\
import torch

device = torch.device("cuda")
torch.manual_seed(0)
model = torch.nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cuda")
data = torch.randn(8, 4).pin_memory().to(device, non_blocking=True)
factor = torch.tensor(2.0, device=device)
for _ in range(3):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = (model(data) * factor).pow(2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.cuda.synchronize()
print(loss.item(), model(data).sum().item())
"""
RIGHT = (
    ORIGINAL.replace('torch.device("cuda")', "torch.accelerator.current_accelerator()")
    .replace('"cuda"', "device.type")
    .replace("torch.cuda.", "torch.accelerator.")
    .replace(".pin_memory()", "")
)
# Changes to the right rewrite: old text, new text, the devices, and words of the difference.
WRONG = {
    "autocast that is off": (
        "torch.autocast(device.type,", 'torch.autocast("cuda",', "xpu",
        ["program.py:11: autocast in float16 for cuda in the original, and autocast off"],
    ),
    "autocast in another dtype": (
        "dtype=torch.float16", "dtype=torch.bfloat16", "xpu", ["and autocast in bfloat16 for cuda"],
    ),
    "a scaler that is off": (
        "GradScaler(device.type)", "GradScaler()", "npu",
        ["program.py:7: a gradient scaler on for cuda in the original, and none"],
    ),
    "a scaler in another state": (
        "scaler.update()", "scaler.update(2.0)", "mps",
        ["program.py:7: a gradient scaler ended with the scale 32768", "and with the scale 2 for"],
    ),
    "a program that stays on the CPU": (
        "torch.accelerator.current_accelerator()", 'torch.device("cpu")', "xpu",
        ["0 operations ran on XPU", "on cuda:0 in the original and on cpu"],
    ),
    "memory that cannot be pinned": (
        "torch.randn(8, 4)", "torch.randn(8, 4).pin_memory()", "mps", ["Attempted to set the storage"],
    ),
    "a dtype that it lacks": (
        "torch.tensor(2.0,", "torch.tensor(2.0, dtype=torch.float64,", "mps", ["Cannot convert a MPS Tensor"],
    ),
    "a call of CUDA": (
        "torch.accelerator.synchronize", "torch.cuda.synchronize", "npu", ["not compiled with CUDA"],
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    verify_in_forks(monkeypatch)


def compared(folder: Path, rewritten: str, kind: str, original: str = ORIGINAL) -> Report:
    program = folder / "program.py"
    program.write_text(original, encoding="utf-8")
    how = {"compare": True, "scratch": True, "copies": False, "explain": False, "accelerator": kind}
    task = Task([sys.executable, "program.py"], folder, folder, (folder,), **how)  # type: ignore[arg-type]
    lines = [*range(1, rewritten.count("\n") + 2)]
    module = Rewritten(str(program), rewritten.encode(), [], lines, original.encode())
    return session.verify(task, Everywhere(Settings()), lambda *_: None, [module])


@pytest.mark.parametrize("kind", ["xpu", "mps", "npu"])
def test_a_right_rewrite_passes(kind: str, tmp_path: Path) -> None:
    pinned = RIGHT.replace("randn(8, 4)", "randn(8, 4).pin_memory()") if kind != "mps" else RIGHT
    report = compared(tmp_path, pinned, kind)
    assert (report.verdict.value, report.reason) == ("pass", ""), text(report)
    there = f"the rewritten program on a simulated {kind.upper()}"
    shown = text(report)
    assert f"the original on a simulated CUDA machine, {there}" in shown and "2 values equal" in shown


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_found(name: str, tmp_path: Path) -> None:
    old, new, kind, words = WRONG[name]
    assert old in RIGHT
    report = compared(tmp_path, RIGHT.replace(old, new, 1), kind)
    assert report.verdict.value == "fail"
    shown = text(report)
    assert [word for word in words if word not in shown] == [], shown


NOT_FOUND = {"memory of cuda"}  # no tensor has the number that is printed
NOT_ON_MPS = {"nccl or gloo", "mesh of cuda"}  # its backend is gloo, and torch cannot make a mesh on it
MACHINES = {"accelerator": ("xpu", "mps", "npu"), "unpinned": ("mps",), "cpu": ("",)}
PLANTED = [
    (fault, kind)
    for fault in FAULTS
    for kind in MACHINES[fault.machine]
    if not (kind == "mps" and fault.name in NOT_ON_MPS)
]


@pytest.mark.parametrize(("fault", "kind"), PLANTED, ids=[f"{each.name}-{kind}" for each, kind in PLANTED])
def test_the_faults_of_the_tests_accelerator_are_found(fault: Fault, kind: str, tmp_path: Path) -> None:
    right = compared(tmp_path, fault.right, kind, fault.right)
    assert right.verdict.value == "pass", text(right)
    faulty = compared(tmp_path, fault.faulty, kind, fault.right)
    assert (faulty.verdict.value == "fail") == (fault.name not in NOT_FOUND), text(faulty)


def test_the_option_rewrites_for_accelerators(tmp_path: Path) -> None:
    folder = ProgramFolder(tmp_path)
    folder.write(program='import torch\nx = torch.ones(2).to("cuda")\nprint(x.device, x.sum().item())\n')
    done = folder.verify("--accelerator", "xpu", "program.py", text=True)
    assert (done.status, done.output.splitlines()[0]) == (0, "xpu:0 2.0"), done.output
