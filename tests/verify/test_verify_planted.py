"""Faults planted in rewrites: `verify --compare` finds each of them, and names the line of the user's file.

devicefix rewrites a program, and a fault changes one place of the result. Each program runs in a fork of a
process that has imported torch.
"""

from __future__ import annotations

import linecache
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from running import verify_in_forks

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.runner.run import check_files
from devicefix.verify import session
from devicefix.verify.cause import Cause
from devicefix.verify.program import Rewritten
from devicefix.verify.runs import Task
from devicefix.verify.runtime.no_cuda import NO_CUDA
from devicefix.verify.session import Report
from devicefix.verify.verdict import Verdict

pytestmark = pytest.mark.slow

TRAINING = """\
import torch
from torch import nn

torch.manual_seed(1)
model = nn.Linear(3, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
leaf = torch.zeros(3, device="cuda", requires_grad=True)
ones = torch.cuda.DoubleTensor(4).fill_(1)
for step in range(3):
    x, y = torch.randn(4, 3), torch.randn(4, 1)
    x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
    loss = (model(x + leaf) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    print(loss.item())
print(leaf.grad.tolist())
print(ones)
print(torch.full((2,), 3, device="cuda"))
torch.save(model.state_dict(), "model.pt")
"""

FUNCTIONS = """\
import torch

def kept(n):
    host = torch.zeros(n)
    there = host.cuda()
    host += 1
    return there + 1

def sampled(n, device="cuda"):
    generator = torch.Generator(device=device)
    generator.manual_seed(5)
    return torch.randn(n, device=device, generator=generator)

def total(x):
    if torch.cuda.is_available():
        x = x.cuda() * 1
    else:
        x = x * 1
    return x.sum()

print(torch.rand(2, device="cuda").tolist())
print(kept(3).tolist())
print(sampled(2).tolist())
print(total(torch.ones(3)).item())
weights = torch.load("weights.pt")
print(weights["w"].sum().item())
shared = torch.ones(3, device="cuda")
same = shared.cuda()
same += 1
print(shared.tolist())
"""

GPUS = """\
import torch
from torch import nn

torch.cuda.set_device(1)
x = torch.ones(4, 2).cuda()
print(x * 2)
net = nn.DataParallel(nn.Linear(2, 2), device_ids=[1]).cuda()
print(net(x).sum().item())
torch.save(net.module.state_dict(), "net.pt")
z = torch.zeros(3).to("cuda:0")
print(z)
half = torch.ones(2).cuda().half()
print(half)
pinned = torch.ones(3).pin_memory().cuda()
print(pinned)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    print((x * 3).sum().item())
torch.manual_seed(3); torch.cuda.manual_seed(3)
print(torch.rand(2, device="cuda").tolist())
"""

TIMES = """\
import time
import torch

def mean(x):
    return torch.tensor(x).mean().item()

net = torch.nn.Linear(2, 1).cuda()
for step in range(3):
    start = time.perf_counter()
    loss = net(torch.ones(1, 2, device="cuda")).sum()
    mean([loss.item() * 2])
    mean([time.perf_counter() - start])
if torch.cuda.is_available():
    net = torch.nn.DataParallel(net)
torch.save({"net": net.state_dict()}, "net.pt")
"""

AMP = """\
import torch
from torch import nn

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e5)
scaler = torch.cuda.amp.GradScaler()
x = torch.randn(4, 3).cuda()
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).pow(2).mean() * 1e-6
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print((loss * 1e6).item())
with torch.autocast("cuda", dtype=torch.bfloat16):
    print(model(x).sum().item())
    with torch.autocast("cuda", enabled=False):
        print(model(x).sum().item())
"""

MOVES = """\
import torch

for batch in torch.utils.data.DataLoader([torch.ones(3)] * 2, pin_memory=True):
    batch = batch.cuda(non_blocking=True)
    print(batch.sum().item())
host = torch.ones(3).pin_memory()
there = host.to("cuda", non_blocking=True)
print(there.sum().item())
plain = torch.arange(3).to("cuda", torch.float32, True)
image = torch.ones(2, 3, 4, 4).to("cuda", memory_format=torch.channels_last)
print(image.stride(), image.sum().item())
twin = there.to("cuda", copy=True)
twin += 1
print(there.sum().item())
leaf = torch.zeros(3, device="cuda", requires_grad=True)
(leaf * 2).sum().backward()
print(leaf.grad.sum().item())
torch.set_default_device("cuda")
print(torch.ones(3).sum().item())
torch.set_default_device(None)
weights = torch.load("weights.pt", map_location="cuda:1")
print(weights["w"].sum().item())
back = there.cpu()
pair = torch.arange(2).cuda(non_blocking=True), torch.arange(3).cuda(non_blocking=True)
few = torch.tensor([1.0]).pin_memory().cuda(non_blocking=True)
like = torch.ones_like(back, pin_memory=True).cuda()
buffers = torch.nn.BatchNorm1d(3).cuda().to(torch.float64, non_blocking=True)
print(pair, few, like, buffers.running_mean, back.cuda(1, non_blocking=True))
"""

DDP = """\
import os
import torch
from torch import nn

torch.distributed.init_process_group(
    "nccl", init_method=f"file://{os.path.abspath('store')}", rank=0, world_size=1
)
torch.manual_seed(1)
model = nn.Linear(2, 1).cuda(1)
model = nn.parallel.DistributedDataParallel(model, device_ids=[1])
loss = model(torch.ones(4, 2).cuda(1)).sum()
loss.backward()
print(loss.item())
print(model.module.weight.grad)
torch.distributed.destroy_process_group()
"""

PROGRAMS = {
    "training": TRAINING,
    "functions": FUNCTIONS,
    "gpus": GPUS,
    "times": TIMES,
    "amp": AMP,
    "moves": MOVES,
    "ddp": DDP,
}
TWO_GPUS = ("gpus", "moves", "ddp")
RUN, CUDA, CPU = "the run", "CUDA", "the CPU"  # what shows a fault
CAUSES = {CUDA: Cause.CHANGES_CUDA, CPU: Cause.DIFFERS_ON_CPU}  # a run can fail for many

CHOICE = '"cuda" if torch.cuda.is_available() else "cpu"'
EARLY = '"cuda:0" if torch.cuda.is_available() else "cpu"'
LOAD = 'torch.load("weights.pt", map_location=None if torch.cuda.is_available() else "cpu")'
MIXED = "Expected all tensors to be on the same device"


class Fault(NamedTuple):
    """A fault.

    Attributes:
        program: the program whose rewrite gets it.
        old: the text that it changes.
        new: what it makes of this text.
        shown: what shows it: the run of the rewritten program, or the comparison on CUDA or on the CPU.
        line: the line of the user's file that is named first.
        words: what is said of it; a pattern where it depends on the build of torch.
        cause: its cause, where the run of the rewritten program shows it.
    """

    program: str
    old: str
    new: str
    shown: str
    line: int
    words: str | re.Pattern[str]
    cause: Cause | None = None


FAULTS = {
    "the device is the CPU for good": Fault(
        "training", CHOICE, '"cpu"', CUDA, 17, "on cuda:0 in the original and on cpu in the rewritten program"
    ),
    "the condition of the device is inverted": Fault(
        "training", CHOICE, '"cpu" if torch.cuda.is_available() else "cuda"', RUN, 5, NO_CUDA, Cause.FIX
    ),
    "the device is bound too late": Fault(
        "training",
        "device = torch.device(",
        "late = torch.device(",
        RUN,
        5,
        "name 'device' is not defined",
        Cause.FIX,
    ),
    "a module does not move": Fault(
        "training", "nn.Linear(3, 1).to(device)", "nn.Linear(3, 1)", CUDA, 12, MIXED
    ),
    "one of two tensors moves": Fault("training", "y.to(device, non_blocking=True)", "y", CUDA, 12, MIXED),
    "a request for CUDA is left": Fault(
        "training",
        "y.to(device, non_blocking=True)",
        "y.cuda(non_blocking=True)",
        RUN,
        11,
        NO_CUDA,
        Cause.FIX,
    ),
    "a leaf becomes the result of a move": Fault(
        "training",
        "torch.zeros(3, device=device, requires_grad=True)",
        "torch.zeros(3, requires_grad=True).to(device)",
        CUDA,
        18,
        "'NoneType' object has no attribute 'tolist'",
    ),
    "a tensor loses its history": Fault(
        "training",
        "x + leaf",
        "x + leaf.detach()",
        RUN,
        18,
        "'NoneType' object has no attribute 'tolist'",
        Cause.FIX,
    ),
    "the dtype of a type is lost": Fault(
        "training", "dtype=torch.float64, ", "", CUDA, 19, "of float64 in the original and of float32"
    ),
    "a factory makes another dtype": Fault(
        "training", "((2,), 3, device", "((2,), 3.0, device", CUDA, 20, "of int64 in the original"
    ),
    "another shape": Fault("training", "((2,), 3", "((3,), 3", CUDA, 20, "shape (2,) in the original"),
    "a random draw is added": Fault(
        "training",
        "optimizer.zero_grad()",
        "optimizer.zero_grad(); torch.rand(1)",
        CUDA,
        13,
        "`randn` of 12 on cpu (line 10) in the original and `rand` of 1 on cpu in the rewritten program",
    ),
    "a draw moves to the GPU": Fault(
        "training",
        "torch.randn(4, 3), torch",
        "torch.randn(4, 3, device=device), torch",
        CUDA,
        10,
        "`randn` of 12 on cpu in the original and `randn` of 12 on cuda:0",
    ),
    "a draw moves to the CPU": Fault(
        "functions",
        "torch.rand(2, device=DEFAULT_DEVICE)",
        "torch.rand(2).to(DEFAULT_DEVICE)",
        CUDA,
        21,
        "`rand` of 2 on cuda:0 in the original and `rand` of 2 on cpu",
    ),
    "a seed is dropped": Fault(
        "training", "torch.manual_seed(1)", "None", CUDA, 4, "was `manual_seed` of 1 on cuda:0"
    ),
    "the seed of a generator is dropped": Fault(
        "functions", "generator.manual_seed(5)", "None", CUDA, 23, "with -0.4868 as its 1st sample"
    ),
    "a guard is inverted": Fault(
        "training", "    if torch.cuda", "    if not torch.cuda", RUN, 16, NO_CUDA, Cause.FIX
    ),
    "a guard is lost": Fault(
        "training", "    if torch.cuda.is_available()", "    if True", RUN, 16, NO_CUDA, Cause.FIX
    ),
    "a step is lost": Fault(
        "training", "optimizer.step()", "None", CUDA, 17, "and 3.037 in the rewritten program (2nd time"
    ),
    "fewer steps on the CPU": Fault(
        "training",
        "range(3)",
        "range(3 if torch.cuda.is_available() else 2)",
        CPU,
        17,
        "ran 3 times on CUDA and 2 times on the CPU",
    ),
    "a model is saved from the CPU": Fault(
        "training", "model.state_dict()", "model.cpu().state_dict()", CUDA, 21, "`weight`: a tensor on cuda:0"
    ),
    "a copy that only CUDA makes": Fault("functions", ".clone()", "", RUN, 5, "copy hazard", Cause.COPY),
    "a copy too many": Fault(
        "functions",
        "shared.to(DEFAULT_DEVICE)",
        "shared.to(DEFAULT_DEVICE, copy=True)",
        CUDA,
        30,
        "with 2 as its 1st sample in the original and 1 in the rewritten program",
    ),
    "a default that stays on CUDA": Fault(
        "functions",
        "sampled(n, device=DEFAULT_DEVICE)",
        'sampled(n, device="cuda")',
        RUN,
        10,
        NO_CUDA,
        Cause.TIE,
    ),
    "a generator on another device": Fault(
        "functions",
        "torch.Generator(device=device)",
        "torch.Generator()",
        CUDA,
        12,
        "Expected a 'cuda' device type for generator but found 'cpu'",
    ),
    "map_location is lost": Fault(
        "functions", LOAD, 'torch.load("weights.pt")', RUN, 25, "map_location", Cause.FIX
    ),
    "map_location is the CPU for good": Fault(
        "functions", LOAD, 'torch.load("weights.pt", map_location="cpu")', CUDA, 26, "a tensor on cuda:0"
    ),
    "code for CUDA no longer runs on CUDA": Fault(
        "functions", "    if torch.cuda.is_available()", "    if False", CUDA, 24, "on cuda:0 in the original"
    ),
    "the program ends on the CPU": Fault(
        "functions",
        "print(kept(3).tolist())",
        "print(kept(3).tolist()) if torch.cuda.is_available() else exit()",
        CPU,
        22,
        "does not run on the CPU",
    ),
    "the seed of a GPU is dropped": Fault(
        "gpus", "torch.cuda.manual_seed(3)", "None", CUDA, 19, "was `manual_seed` of 3 on cuda:1"
    ),
    "an early return on the CPU": Fault(
        "functions",
        "    return x.sum()",
        "    return x.sum() if x.is_cuda else x[0]",
        CPU,
        24,
        "returned 3 on CUDA and 1 on the CPU",
    ),
    "the current GPU is not set": Fault(
        "gpus", "torch.cuda.set_device(1)", "None", CUDA, 8, "on device: cuda:0"
    ),
    "a device with an index is captured too early": Fault(
        "gpus",
        f"device = torch.device({CHOICE}",
        f"device = torch.device({EARLY}",
        CUDA,
        8,
        "on device: cuda:0",
    ),
    "the index of a GPU is lost": Fault(
        "gpus", f"to({EARLY})", "to(device)", CUDA, 11, "on cuda:0 in the original and on cuda:1"
    ),
    "`.module` is lost": Fault(
        "gpus", "net.module.state_dict()", "net.state_dict()", CUDA, 9, "wrote `weight` in the original"
    ),
    "`DataParallel` is lost": Fault(
        "gpus",
        "nn.DataParallel(nn.Linear(2, 2), device_ids=[1])",
        "nn.Linear(2, 2)",
        RUN,
        9,
        "'Linear' object has no attribute 'module'",
        Cause.FIX,
    ),
    "half precision on CUDA only": Fault(
        "gpus",
        ".half()",
        ".to(torch.float16 if torch.cuda.is_available() else torch.float32)",
        CPU,
        13,
        "of float16 on CUDA and of float32 on the CPU",
    ),
    "half precision is lost": Fault("gpus", ".half()", "", CUDA, 13, "of float16 in the original"),
    "memory is pinned without CUDA": Fault(
        "gpus", "pin_memory=torch.cuda.is_available()", "pin_memory=True", RUN, 14, NO_CUDA, Cause.FIX
    ),
    "another number at a line that also shows times": Fault(
        "times", "loss.item() * 2", "loss.item() * 3", CUDA, 5, "`.item()` returned"
    ),
    "the guard of a stream is inverted": Fault(
        "gpus",
        "torch.cuda.Stream() if torch.cuda.is_available()",
        "torch.cuda.Stream() if not torch.cuda.is_available()",
        RUN,
        16,
        "CUDA",
        Cause.FIX,
    ),
    "an autocast block is lost": Fault(
        "amp",
        'with torch.autocast("cuda", dtype=torch.float16):',
        "if True:",
        CUDA,
        11,
        "and none in the rewritten",
    ),
    "autocast in another dtype": Fault(
        "amp",
        "dtype=torch.float16",
        "dtype=torch.bfloat16",
        CUDA,
        11,
        "autocast in bfloat16 for cuda in the rewritten",
    ),
    "autocast is disabled": Fault(
        "amp",
        "dtype=torch.float16",
        "dtype=torch.float16, enabled=False",
        CUDA,
        11,
        "autocast off for cuda in the rew",
    ),
    "autocast is no longer disabled": Fault(
        "amp", ", enabled=False", "", CUDA, 19, "autocast off for cuda in the orig"
    ),
    "autocast on the CPU only": Fault(
        "amp",
        '"cuda", dtype=torch.bfloat16',
        '"cpu", dtype=torch.bfloat16',
        CUDA,
        17,
        "autocast in bfloat16 for cpu in the rewritten",
    ),
    "the loss is not scaled": Fault(
        "amp",
        "GradScaler()",
        "GradScaler(enabled=False)",
        CUDA,
        7,
        "a gradient scaler on for cuda in the original",
    ),
    "`non_blocking` is lost": Fault(
        "moves",
        "batch.to(device, non_blocking=True)",
        "batch.to(device)",
        CUDA,
        4,
        "moved from cpu to cuda:0 with pinned memory and non_blocking=True in the original",
    ),
    "`non_blocking` by its position is lost": Fault(
        "moves", "torch.float32, True)", "torch.float32)", CUDA, 9, "with non_blocking=True in the original"
    ),
    "`non_blocking` of one of two moves is lost": Fault(
        "moves",
        "torch.arange(3).to(device, non_blocking=True)",
        "torch.arange(3).to(device)",
        CUDA,
        24,
        "non_blocking",
    ),
    "`non_blocking` is added": Fault(
        "moves",
        "there.cpu()",
        'there.to("cpu", non_blocking=True)',
        CUDA,
        23,
        "without options in the original",
    ),
    "memory is not pinned": Fault(
        "moves",
        "torch.ones(3, pin_memory=torch.cuda.is_available())",
        "torch.ones(3)",
        CUDA,
        7,
        "pinned memory",
    ),
    "the memory of a loader is not pinned": Fault(
        "moves", "* 2, pin_memory=True", "* 2", CUDA, 4, "pinned memory"
    ),
    "memory is pinned": Fault(
        "moves",
        "torch.arange(3).to(device, torch",
        "torch.arange(3, pin_memory=torch.cuda.is_available()).to(device, torch",
        CUDA,
        9,
        "pinned",
    ),
    "a memory format is lost": Fault(
        "moves",
        ", memory_format=torch.channels_last",
        "",
        CUDA,
        10,
        "with memory_format=torch.channels_last in the",
    ),
    "a copy too few": Fault("moves", ", copy=True", "", CUDA, 14, "returned 3 in the original and 6"),
    "a copy on CUDA only": Fault(
        "moves", "copy=True", "copy=torch.cuda.is_available()", CPU, 14, "returned 3 on CUDA and 6 on the CPU"
    ),
    "a tensor requires no gradient": Fault(
        "moves", ", requires_grad=True", "", RUN, 16, "does not require grad", Cause.FIX
    ),
    "the default device is the CPU": Fault(
        "moves",
        "set_default_device(device)",
        'set_default_device("cpu")',
        CUDA,
        19,
        "on cuda:0 in the original",
    ),
    "map_location names another GPU": Fault(
        "moves", 'map_location="cuda:1"', 'map_location="cuda:0"', CUDA, 22, "on cuda:1 in the original"
    ),
    "`device_ids` names another GPU": Fault("ddp", "device_ids=[1]", "device_ids=[0]", CUDA, 11, MIXED),
}


@pytest.fixture(autouse=True)
def _in_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verify_in_forks(monkeypatch)
    monkeypatch.chdir(tmp_path)
    linecache.clearcache()  # all programs have one name


def verified(folder: Path, name: str, fault: Fault | None = None) -> Report:
    """Compare a program with its rewrite, which may have a fault."""
    program = folder / "program.py"
    program.write_text(PROGRAMS[name], encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:  # a checkpoint that a GPU saved
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
        torch.save({"w": torch.ones(3)}, folder / "weights.pt")
    settings = Settings(unsafe_fixes=True)
    module = Rewritten.of(
        check_files([program], Everywhere(Settings(fix=True, quiet=True, unsafe_fixes=True)))[0]
    )
    assert module is not None
    if fault is not None:
        text = module.content.decode()
        assert text.count(fault.old) == 1, text
        module = module._replace(content=text.replace(fault.old, fault.new).encode())
    command = [sys.executable, program.name]
    gpus = 2 if name in TWO_GPUS else 1
    task = Task(command, folder, folder, (folder,), compare=True, scratch=True, gpus=gpus)
    return session.verify(task, Everywhere(settings), lambda *_: None, [module])


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_a_fault_it_passes(name: str, tmp_path: Path) -> None:
    report = verified(tmp_path, name)
    assert report.verdict is Verdict.PASS, report


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    report = verified(tmp_path, fault.program, fault)
    assert report.verdict is Verdict.FAIL
    where, line, text = shown(report)
    assert (where, line) == (fault.shown, fault.line), text
    assert re.search(fault.words, text) if isinstance(fault.words, re.Pattern) else fault.words in text
    assert report.explanation is not None
    assert report.explanation.cause is (fault.cause or CAUSES[fault.shown]), report.explanation


def shown(report: Report) -> tuple[str, int, str]:
    """Return what shows a fault, the line of the user's file that is named first, and what is said."""
    run, comparison = report.run, report.comparison
    if run.verdict is Verdict.FAIL:
        assert comparison is None
        line = run.failure.frames[-1].line if run.failure else run.copies[0].moved.line
        return RUN, line, run.reason
    assert comparison is not None
    found = comparison.on_cuda or comparison.on_cpu
    named = re.search(r"program\.py:(\d+)", found[0])
    assert named, found
    return CUDA if comparison.on_cuda else CPU, int(named[1]), found[0]
