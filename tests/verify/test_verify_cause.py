"""The cause that `devicefix verify` names for a failure: small programs, each judged by hand."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import click
import pytest
from running import ProgramFolder, run_in_fork, verify_in_forks

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.runner.run import check_files
from devicefix.verify import report, runs, session, trials
from devicefix.verify.against_cuda import Comparison
from devicefix.verify.cause import Cause, Explanation
from devicefix.verify.commands import Command, Ended, Limits
from devicefix.verify.compare.difference import Difference
from devicefix.verify.compare.wording import hint
from devicefix.verify.explain import explain_comparison
from devicefix.verify.program import Fixed, Program, Rewritten
from devicefix.verify.runs import Task
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.session import Report
from devicefix.verify.verdict import Run

Verify = Callable[..., Report]


@pytest.fixture
def verify(folder: ProgramFolder, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Return a function that verifies the script `train.py` in the folder."""
    monkeypatch.chdir(folder.path)
    verify_in_forks(monkeypatch)

    def call(
        *arguments: str,
        settings: Settings = Settings(quiet=True),  # noqa: B008 (frozen)
        rewritten: list[Rewritten] | None = None,
        **options: Any,
    ) -> Report:
        script = str(folder.path / "train.py")
        task = Task([sys.executable, script, *arguments], folder.path, folder.path, (folder.path,))
        return session.verify(replace(task, **options), Everywhere(settings), lambda *_: None, rewritten)

    return call


class Failing(NamedTuple):
    """A program that fails, its cause, and a part of what is shown of it."""

    cause: Cause
    code: str
    shown: str = ""
    arguments: tuple[str, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012 (never changed)


PROGRAMS = {
    # --- the original fails alike
    "shapes": Failing(
        Cause.ORIGINAL,
        """
        import torch
        x = torch.ones(3).cuda()
        y = torch.ones(4).cuda()
        print((x + y).sum())
        """,
        "same error on the simulated CUDA machine",
    ),
    "shapes on two devices": Failing(
        Cause.ORIGINAL,
        "import torch\nx = torch.ones(3).cuda()\ny = torch.ones(4)\nprint((x + y).sum())\n",
        "fails at this line on the simulated CUDA machine",
    ),
    "a missing argument": Failing(
        Cause.ORIGINAL,
        """
        import argparse, torch
        parser = argparse.ArgumentParser()
        parser.add_argument("--data", required=True)
        args = parser.parse_args()
        print(torch.ones(1).cuda())
        """,
    ),
    "a syntax error": Failing(Cause.ORIGINAL, "print 'x'\n", "train.py:1"),
    "an assertion on data after a fixed line": Failing(
        Cause.ORIGINAL,
        """
        import torch
        def load(n):
            x = torch.arange(n).cuda()
            assert len(x) > 5, "too few"
            return x
        load(3)
        """,
    ),
    "an index error at a fixed line": Failing(
        Cause.ORIGINAL,
        "import torch\nxs = []\nprint(torch.ones(1).cuda() + xs[0].cuda())\n",
    ),
    "a wrong call at a fixed line": Failing(
        Cause.ORIGINAL,
        """
        import torch
        net = torch.nn.Linear(2, 2).cuda()
        net(torch.ones(1, 2).cuda(), torch.ones(1, 2).cuda())
        """,
        "TypeError",
    ),
    "an error after training": Failing(
        Cause.ORIGINAL,
        """
        import torch
        net = torch.nn.Linear(2, 1).cuda()
        opt = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            opt.zero_grad(); net(torch.ones(1, 2).cuda()).sum().backward(); opt.step()
        print({}["accuracy"])
        """,
        "KeyError",
    ),
    "an old name of NumPy": Failing(
        Cause.ORIGINAL,
        "import numpy as np, torch\nx = torch.ones(2).cuda().cpu().numpy().astype(np.bool8_t)\n",
    ),
    "an exit status of its own": Failing(
        Cause.ORIGINAL,
        "import sys, torch\nx = torch.ones(1).cuda()\nif x.item() == 1:\n    sys.exit(3)\n",
        "train.py:4",
    ),
    "a message as the exit status": Failing(
        Cause.ORIGINAL, "import sys, torch\ntorch.ones(1).cuda()\nsys.exit('name a data set')\n"
    ),
    "labels of a wrong type": Failing(
        Cause.ORIGINAL,
        """
        import torch
        loss = torch.nn.CrossEntropyLoss().cuda()
        loss(torch.ones(2, 3).cuda(), torch.ones(2, 5).cuda())
        """,
    ),
    "a failing worker": Failing(
        Cause.ORIGINAL,
        """
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Data(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                raise ValueError("bad sample")
        for x in DataLoader(Data(), num_workers=1):
            x.cuda()
        """,
        "ValueError: bad sample",
    ),
    "half precision that neither has": Failing(
        Cause.ORIGINAL,
        "import torch\nx = torch.eye(2).cuda().half()\ntorch.linalg.cholesky(x)\n",
    ),
    "a missing argument that is named gpu": Failing(
        Cause.ORIGINAL,
        "import torch\ndef work(gpu, x):\n    return x\nwork(x=torch.ones(1).cuda())\n",
        "required positional argument: 'gpu'",
    ),
    "an unknown argument that is named cuda": Failing(
        Cause.ORIGINAL, "import torch\ntorch.nn.Linear(2, 2, cuda=True).cuda()\n", "keyword argument 'cuda'"
    ),
    "a failing process": Failing(
        Cause.ORIGINAL,
        """
        import torch
        import torch.multiprocessing as mp
        def work(rank):
            torch.ones(1).cuda()
            raise KeyError("rank %d" % rank)
        if __name__ == "__main__":
            mp.spawn(work, nprocs=1)
        """,
        "rank 0",
    ),
    # --- a tie is left
    "autocast": Failing(
        Cause.TIE,
        """
        import torch
        net = torch.nn.Linear(4, 4).cuda().half()
        with torch.autocast("cuda"):
            net(torch.ones(1, 4).cuda())
        """,
        "DF407 is disabled",
        options={"settings": Settings(quiet=True, ignore=("DF407",))},
    ),
    "a file that only CUDA has": Failing(
        Cause.TIE,
        """
        import torch
        open("kernel-cuda.txt", "w").close()
        kind = torch.ones(1).cuda().device.type
        open(f"kernel-{kind}.txt")
        """,
        "train.py:4",
    ),
    "a rule that is off": Failing(
        Cause.TIE,
        "import torch\nx = torch.ones(3).cuda()\n",
        "DF101 is disabled",
        options={"settings": Settings(quiet=True, ignore=("DF101",))},
    ),
    "a comment that suppresses": Failing(
        Cause.TIE, "import torch\nx = torch.ones(3).cuda()  # noqa: DF101\n", "a comment suppresses DF101"
    ),
    "the program's arguments": Failing(
        Cause.TIE,
        """
        import argparse, torch
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", default="cpu")
        args = parser.parse_args()
        print(torch.ones(1, device=args.device))
        """,
        "pass `--device cpu`",
        ("--device", "cuda"),
    ),
    "a device from a file": Failing(
        Cause.TIE,
        """
        import json, torch
        with open("device.json", "w") as file:
            json.dump({"where": "aduc"[::-1]}, file)
        where = json.load(open("device.json"))["where"]
        print(torch.ones(1).to(where))
        """,
        "train.py:5 requests CUDA",
    ),
    "a test of the device": Failing(
        Cause.TIE,
        """
        import torch
        def run(x):
            if not x.is_cuda:
                raise ValueError("wrong place")
            return x
        run(torch.ones(1).cuda())
        """,
        "train.py:4",
    ),
    "the number in the name of a device": Failing(
        Cause.TIE,
        """
        import torch
        x = torch.ones(1).cuda()
        print(str(x.device).split(":")[1])
        """,
        "train.py:3",
    ),
    "an exit without CUDA": Failing(
        Cause.TIE,
        """
        import sys, torch
        def check(ok):
            if not ok:
                print("buy a card")
                sys.exit(4)
        check(getattr(torch, "aduc"[::-1]).is_available())
        print(torch.ones(1).cuda())
        """,
        "train.py:5",
    ),
    "a request behind an except": Failing(
        Cause.TIE,
        """
        import torch
        try:
            x = getattr(torch.ones(1), "aduc"[::-1])()
        except Exception:
            raise SystemExit("no card")
        """,
        "train.py:3 requests CUDA",
    ),
    "a request whose error is replaced": Failing(
        Cause.TIE,
        """
        import torch
        def move(x):
            try:
                return getattr(x, "aduc"[::-1])()
            except Exception as problem:
                raise LookupError("cannot move") from problem
        move(torch.ones(1))
        """,
        "train.py:4 requests CUDA",
    ),
    "a message that demands a GPU": Failing(
        Cause.TIE,
        """
        import torch
        def check(ok):
            if not ok:
                raise RuntimeError("this program requires a GPU")
        check(getattr(torch, "aduc"[::-1]).is_available())
        print(torch.ones(1).cuda())
        """,
        "train.py:4",
    ),
    "a condition that needs a GPU": Failing(
        Cause.TIE,
        """
        import torch
        def check(device):
            if device.type != "cuda":
                print("stopping")
                raise RuntimeError("wrong place")
        check(torch.device(*["aduc"[::-1] if torch.cuda.is_available() else "cpu"]))
        print(torch.ones(1).cuda())
        """,
        "train.py:3 DF704",
    ),
    "a request whose error is raised elsewhere": Failing(
        Cause.TIE,
        """
        import torch
        def move(x):
            try:
                return getattr(x, "aduc"[::-1])(), None
            except Exception as problem:
                return None, (type(problem), str(problem))
        x, (kind, text) = move(torch.ones(1))
        raise kind(text)
        """,
        "train.py:4 requests CUDA",
    ),
    "a request that is caught for good": Failing(
        Cause.ORIGINAL,
        """
        import torch
        try:
            getattr(torch.ones(1), "aduc"[::-1])()
        except Exception:
            pass
        print([][0])
        """,
        "IndexError",
    ),
    "requests that the program catches": Failing(
        Cause.TIE,
        "import torch\ntry:\n    getattr(torch.ones(1), 'aduc'[::-1])()\nexcept Exception:\n    pass\n",
        "train.py:3 requests CUDA",
    ),
    "requests that the CPU answers": Failing(
        Cause.TIE,
        "import torch\nx = getattr(torch.ones(1), 'aduc'[::-1])()\nprint([][0])\n",
        "these requests ran on the CPU instead",
        options={"keep_going": True},
    ),
    # --- differences between CPUs and CUDA
    "an operator without half precision": Failing(
        Cause.CPU,
        "import torch\nx = torch.rand(1, 2, 2, 2).cuda().half()\nprint(torch.nn.AvgPool3d(2)(x))\n",
        "train.py:3",
    ),
    "an extension": Failing(
        Cause.TIE, "import torch\nimport deform_conv_cuda\nprint(torch.ones(1).cuda())\n", "train.py:2"
    ),
    "the CUDA toolkit": Failing(
        Cause.TIE,
        """
        import torch
        from torch.utils import cpp_extension
        cpp_extension.CUDA_HOME = None  # what torch finds without a toolkit; some builds bring one
        cpp_extension.CUDAExtension("x", ["x.cu"])
        """,
        "CUDA_HOME",
    ),
    "a library that a fix makes optional": Failing(
        Cause.TIE,
        """
        import torch
        from flash_attn import flash_attn_func  # noqa: DF417
        def attend(q, k, v):
            if q.is_cuda:
                return flash_attn_func(q, k, v)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)
        print(attend(*[torch.ones(1, 2, 3, 4).cuda()] * 3).sum().item())
        """,
        "a comment suppresses DF417",
    ),
    "nvidia-smi": Failing(
        Cause.TIE,
        "import subprocess, torch\nx = torch.ones(1).cuda()\nsubprocess.run(['nvidia-smi'], check=True)\n",
        "train.py:3",
    ),
    "a library of CUDA": Failing(
        Cause.CPU, "import ctypes, torch\nctypes.CDLL('libcudart.so.99')\n", "libcudart"
    ),
    "a library that requires CUDA": Failing(
        Cause.CPU,
        """
        import os, sys, torch
        sys.path.insert(0, os.path.abspath("site-packages"))
        from fastlib import attention
        attention(torch.ones(1).cuda())
        """,
        "train.py:4",
    ),
    "a copy that only CUDA makes": Failing(
        Cause.COPY,
        """
        import torch
        x = torch.zeros(3).cuda()
        old = getattr(x, "cpu")()
        x += 1
        assert old.sum() == 0 and x.sum() == 3
        """,
        "train.py:3",
    ),
    "a copy without an error": Failing(
        Cause.COPY,
        "import torch\nx = torch.zeros(3).cuda()\nold = x.cpu()\nx += 1\nprint(old, x)\n",
        "add `.clone()` after `.cpu()`",
    ),
    # --- what is missing
    "a data file": Failing(
        Cause.DATA, "import torch\nx = torch.ones(1).cuda()\ntorch.load('weights.pt')\n", "weights.pt"
    ),
    "a data file with the name of a device": Failing(
        Cause.DATA, "import torch\nx = torch.ones(1).cuda()\nopen('weights-gpu.pt')\n", "weights-gpu.pt"
    ),
    "a file that is looked for": Failing(
        Cause.DATA, "import os, torch\nx = torch.ones(1).cuda()\nassert os.path.exists('train.txt')\n"
    ),
    "a data set": Failing(
        Cause.DATA,
        "import torch\nraise RuntimeError('Dataset not found. You can use download=True')\n",
    ),
    "a package": Failing(Cause.PACKAGE, "import torch\nimport not_there_at_all\n", "not_there_at_all"),
    "an older package": Failing(Cause.PACKAGE, "import torch\nfrom numpy import product_of\n", "product_of"),
    "a launcher": Failing(
        Cause.ENVIRONMENT,
        "import os, torch\nrank = int(os.environ['LOCAL_RANK'])\nx = torch.ones(1).cuda(rank)\n",
        "torchrun",
    ),
    "the network": Failing(
        Cause.ENVIRONMENT,
        "import torch, urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/x')\n",
        "network",
    ),
    "standard input": Failing(Cause.ENVIRONMENT, "import torch\ninput()\n", "standard input"),
    "a package for another version of torch": Failing(
        Cause.ENVIRONMENT,
        "import torch\nraise RuntimeError('operator torchvision::nms does not exist')\nx.cuda()\n",
        "another version of torch",
    ),
    # --- memory, Triton, signals, limits
    "memory": Failing(
        Cause.MEMORY, "import torch\nx = torch.ones(1 << 50).cuda()\n", "train.py:2"
    ),
    "Triton is not there": Failing(
        Cause.TRITON, "import torch\nimport triton\nprint(torch.ones(1).cuda())\n", "--triton-interpret"
    ),
    "Triton finds no GPU": Failing(
        Cause.TRITON,
        """
        import torch
        def kernel(x):
            raise_in_triton(x)
        def raise_in_triton(x):
            exec("raise RuntimeError('0 active drivers ([]). There should only be one.')")
        kernel(torch.ones(1).cuda())
        """,
        "--triton-interpret",
    ),
    "a signal": Failing(
        Cause.ENDED, "import os, signal, torch\nos.kill(os.getpid(), signal.SIGTERM)\n", "SIGTERM"
    ),
    "an interrupt": Failing(Cause.ENDED, "import torch\nraise KeyboardInterrupt\n", "SIGINT"),
    "steps": Failing(
        Cause.LIMIT,
        """
        import torch
        net = torch.nn.Linear(2, 1).cuda()
        opt = torch.optim.SGD(net.parameters(), 0.1)
        while True:
            net(torch.ones(1, 2).cuda()).sum().backward(); opt.step()
        """,
        "`--steps`",
        options={"steps": 2},
    ),
    "a crash": Failing(
        Cause.ORIGINAL,
        "import os, signal, torch\nos.kill(os.getpid(), signal.SIGSEGV)\n",
        "correct the original program",
    ),
}  # fmt: skip

LIBRARY = """
def attention(x):
    if not x.is_cuda or True:
        raise RuntimeError("FastAttention only supports CUDA tensors")
"""


# One of each kind of decision; the others take minutes together.
QUICK = (
    "shapes", "a rule that is off", "a data file", "a package", "Triton is not there",
    "requests that the CPU answers",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
)
def test_the_cause_is_the_true_one(name: str, folder: ProgramFolder, verify: Verify) -> None:
    if name == "Triton is not there" and importlib.util.find_spec("triton"):
        pytest.skip("Triton is installed")
    case = PROGRAMS[name]
    library = folder.path / "site-packages/fastlib/__init__.py"
    library.parent.mkdir(parents=True)
    library.write_text(LIBRARY)
    folder.write(train=case.code)
    found = verify(*case.arguments, **case.options)
    text = click.unstyle(report.text(found))
    assert found.explanation is not None
    assert found.explanation.cause is case.cause, text
    assert case.shown in text and "\n  do:  " in text, text


def test_a_module_of_an_empty_submodule_is_no_package(folder: ProgramFolder, verify: Verify) -> None:
    folder.write(train="import torch\nimport layers\n")
    (folder.path / ".gitmodules").write_text('[submodule "a"]\n\tpath = a\n\turl = ../a\n')
    text = click.unstyle(report.text(verify()))
    assert "the git submodule `a` is empty" in text
    assert "  do:  run `git submodule update --init`\n" in text


# --- a fix that is wrong ---------------------------------------------------------------------------------


class Planted(NamedTuple):
    """A program, its rewrite with a fault, and what is shown of the cause."""

    before: str
    after: str
    shown: str


PLANTED = {
    "a name that is not defined": Planted(
        "import torch\nx = torch.ones(1).cuda()\n",
        "import torch\nx = torch.ones(1).to(device)\n",
        "train.py:2 uses `device`, which exists only in the rewritten file",
    ),
    "text that does not parse": Planted(
        "import torch\nx = torch.ones(1).cuda()\n",
        "import torch\nx = torch.ones(1).to('cpu'\n",
        "cannot be parsed after the rewrite",
    ),
    "a lost statement": Planted(
        "import torch\nx = {}\nx['y'] = torch.ones(1).cuda()\nprint(x['y'])\n",
        "import torch\nx = {}\npass\nprint(x['y'])\n",
        "the rewritten program fails there",
    ),
    "a wrong argument": Planted(
        "import torch\nx = torch.ones(1).cuda()\nprint(x.sum())\n",
        "import torch\nx = torch.ones(1).to('cpu', 'x', 1, 2)\nprint(x.sum())\n",
        "the fix is at train.py:2 (DF101)",
    ),
    "a device that only a CPU lacks": Planted(
        "import torch\nx = torch.ones(1).cuda()\nprint(x)\n",
        "import torch\nx = torch.ones(1).to('cuda' if torch.cuda.is_available() else 'cqu')\nprint(x)\n",
        "the original also runs on the CPU",
    ),
    "a shape": Planted(
        "import torch\nx = torch.ones(2).cuda()\ndef f(x):\n    return x @ torch.ones(2).cuda()\nf(x)\n",
        "import torch\nx = torch.ones(1)\ndef f(x):\n    return x @ torch.ones(2)\nf(x)\n",
        "the rewritten program fails there",
    ),
}
# These take more runs, or those of "a shape": the rewrite fails on CUDA, too.
LONGER = ("a lost statement", "a wrong argument", "a device that only a CPU lacks")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONGER)) for name in PLANTED]
)
def test_a_wrong_fix_is_named(name: str, folder: ProgramFolder, verify: Verify) -> None:
    planted = PLANTED[name]
    folder.write(train=planted.before)
    script = folder.path / "train.py"
    fixed = check_files([script], Everywhere(Settings(quiet=True, fix=True)))[0].result.fixed
    lines = list(range(1, planted.after.count("\n") + 2))
    made = Fixed(fixed[0].line, 1, fixed[0].code, ())
    module = Rewritten(str(script), planted.after.encode(), [made], lines, planted.before.encode(), fixed)
    found = verify(rewritten=[module])
    text = click.unstyle(report.text(found))
    assert found.explanation is not None and found.explanation.cause is Cause.FIX, text
    assert planted.shown in text and "please report this" in text, text


REQUESTS = {
    "the device of the fix is CUDA": (
        "import torch\nx = torch.ones(1).cuda()\n",
        "import torch\nx = torch.ones(1).to(torch.device('cpu' if torch.cuda.is_available() else 'cuda'))\n",
        Cause.FIX,
    ),
    "the call is still there": (
        "import torch\nx = [torch.ones(1).cuda(), torch.ones(1).cuda()]\n",
        "import torch\nx = [torch.ones(1).to('cpu'), torch.ones(1).cuda()]\n",
        Cause.FIX,
    ),
    "a device of the program": (
        "import os, torch\nwhere = os.environ.get('X', 'cu' + 'da')\nx = torch.ones(1).cuda()\n",
        "import os, torch\nwhere = os.environ.get('X', 'cu' + 'da')\nx = torch.ones(1).to(where)\n",
        Cause.TIE,
    ),
    "a device that depends on one of the program": (
        "import os, torch\nwhere = os.environ.get('X', 'cu' + 'da')\nx = torch.ones(1).cuda()\n",
        "import os, torch\nwhere = os.environ.get('X', 'cu' + 'da'); device = torch.device(where)\n"
        "x = torch.ones(1).to(device)\n",
        Cause.TIE,
    ),
    "a flag of the program": (
        "import os, torch\nflag = 'X' not in os.environ\nx = torch.ones(1).cuda()\n",
        "import os, torch\nflag = 'X' not in os.environ\n"
        "x = torch.ones(1).to('cuda' if flag or torch.cuda.is_available() else 'cpu')\n",
        Cause.TIE,
    ),
    "a device of the program on another line": (
        "import os, torch\nwhere = os.environ.get('X', 'cu' + 'da')\nx = torch.ones(\n    1,\n).cuda()\n",
        "import os, torch\nwhere = os.environ.get('X', 'cu' + 'da')\nx = torch.ones(\n    1,\n).to(where)\n",
        Cause.TIE,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_of_a_fix_only_if_it_chooses_the_device(
    name: str, folder: ProgramFolder, verify: Verify
) -> None:
    before, after, cause = REQUESTS[name]
    folder.write(train=before)
    script = folder.path / "train.py"
    fixed = check_files([script], Everywhere(Settings(quiet=True, fix=True)))[0].result.fixed
    lines = list(range(1, after.count("\n") + 2))
    made = Fixed(fixed[0].line, 1, fixed[0].code, ())
    module = Rewritten(str(script), after.encode(), [made], lines, before.encode(), fixed)
    found = verify(rewritten=[module])
    assert found.explanation is not None and found.explanation.cause is cause, report.text(found)


# --- the runs that find a cause --------------------------------------------------------------------------


FAILS = """
import os, torch
with open("log.txt", "a") as file:
    print("ran", file=file)
print(torch.ones(1).cuda()[5])
"""


def test_the_runs_leave_nothing_behind(folder: ProgramFolder, verify: Verify) -> None:
    folder.write(train=FAILS)
    found = verify()
    assert found.explanation is not None and found.explanation.cause is Cause.ORIGINAL
    assert (folder.path / "log.txt").read_text() == "ran\n"
    assert sorted(folder.content()) == [str(folder.path / name) for name in ("log.txt", "train.py")]


@pytest.mark.parametrize(
    ("options", "limit", "why"),
    [
        ({"explain": False}, {}, "these runs are disabled"),
        ({}, {"_SECONDS": 0.0}, "use `devicefix verify --explain` to run the original anyway"),
        ({}, {"_BYTES": 10}, "its folder is large"),
        ({}, {"_FILES": 0}, "its folder is large"),
    ],
)
def test_a_run_that_is_not_cheap_is_not_repeated(
    options: dict[str, Any],
    limit: dict[str, Any],
    why: str,
    folder: ProgramFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in limit.items():
        monkeypatch.setattr(trials, name, value)
    folder.write(train=FAILS)

    def refused(**options: Any) -> str:
        task = Task([sys.executable, "train.py"], folder.path, folder.path, (folder.path,), **options)
        return trials.Trials(task, Program(()), Run(seconds=1.0), folder.path, lambda *_: None).refused

    assert why in refused(**options)
    if limit:
        assert not refused(explain=True)


def test_the_original_is_not_run_if_its_runs_are_off(folder: ProgramFolder, verify: Verify) -> None:
    folder.write(train=FAILS)
    found = verify(explain=False)
    assert found.explanation is not None and found.explanation.cause is Cause.UNKNOWN
    assert "these runs are disabled" in found.explanation.evidence[0]


def test_the_runs_keep_to_the_timeout(
    folder: ProgramFolder, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(train=FAILS)
    limits: list[Limits] = []

    def run(command: Command, plan: Plan, limit: Limits, tick: Any) -> Ended:
        limits.append(limit)
        return run_in_fork(command, plan, limit, tick)

    monkeypatch.setattr(runs, "run_command", run)
    found = verify(limits=Limits(timeout=50.0))
    assert len(limits) == 2 and limits[0].timeout == 50.0
    assert limits[1].timeout == pytest.approx(50.0 - found.run.seconds)


@pytest.mark.slow
def test_a_program_that_varies_has_no_known_cause(folder: ProgramFolder, verify: Verify) -> None:
    code = """
        import os, torch
        if "simulated" not in open(os.environ["DEVICEFIX_PLAN"]).read() and not os.path.exists(MARK):
            open(MARK, "w").close()
            raise ValueError("sometimes")
    """
    folder.write(train=code.replace("MARK", repr(str(folder.path.parent / "mark"))))
    found = verify()
    assert found.explanation is not None and found.explanation.cause is Cause.UNKNOWN
    assert "the program's behavior varies" in found.explanation.evidence[-1]


def test_a_finding_in_a_notebook_is_found_by_its_cell(folder: ProgramFolder) -> None:
    sources = ["import torch", "x = torch.ones(1)\nx.cuda()", "x.cuda()"]
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": str(n),
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": s,
        }
        for n, s in enumerate(sources)
    ]
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder.path / "nb.ipynb").write_text(json.dumps(content))
    done = folder.verify("--ignore", "DF101", "nb.ipynb", process=True)
    (tie,) = done.report["explanation"]["findings"]
    assert (tie["finding"]["code"], tie["finding"]["cell"], tie["place"]["line"]) == ("DF101", 2, 2)
    assert tie["advice"] == "DF101 is disabled; enable it to rewrite this line"


# --- Triton ----------------------------------------------------------------------------------------------


def test_the_option_for_triton_sets_its_variable(folder: ProgramFolder, verify: Verify) -> None:
    folder.write(train="import os, torch\nassert os.environ['TRITON_INTERPRET'] == '1'\n")
    assert verify(triton_interpret=True).explanation is None
    folder.write(train="import os, torch\nassert 'TRITON_INTERPRET' not in os.environ\n")
    assert verify().explanation is None


def test_the_option_is_not_offered_where_it_was_given(folder: ProgramFolder, verify: Verify) -> None:
    case = PROGRAMS["Triton finds no GPU"]
    folder.write(train=case.code)
    found = verify(triton_interpret=True)
    assert found.explanation is not None and found.explanation.cause is Cause.UNKNOWN


# --- what --compare finds --------------------------------------------------------------------------------


def compared(**fields: Any) -> Explanation | None:
    return explain_comparison(Comparison("simulated", **fields), Settings())


def test_equal_runs_need_no_explanation() -> None:
    assert compared() is None


@pytest.mark.parametrize(
    ("fields", "cause", "advice"),
    [
        ({"on_cuda": ["x.py:1: a", "b"]}, Cause.CHANGES_CUDA, "please report this"),
        ({"on_cpu": ["a"], "hints": ["look there"]}, Cause.DIFFERS_ON_CPU, "look there"),
        ({"on_cuda": ["a"], "on_cpu": ["b"]}, Cause.CHANGES_CUDA, "please report this"),
        ({"failure": "E: no"}, Cause.ORIGINAL_ON_CUDA, "verify without `--compare`"),
        ({"failure": "invalid device ordinal"}, Cause.ORIGINAL_ON_CUDA, "`devicefix verify --gpus N`"),
    ],
)
def test_the_outputs_of_compare_are_told_apart(fields: dict[str, Any], cause: Cause, advice: str) -> None:
    found = compared(**fields)
    assert found is not None and found.cause is cause and advice in found.advice and found.evidence


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        ("MisconfigurationException: You requested gpu: [0, 1]", "try more GPUs"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'nvidia-smi'",
            "verify without `--compare`",
        ),
        ("ModuleNotFoundError: No module named 'flash_attn'", "install the missing package"),
        ("KeyError: 'x'", "correct the original program"),
    ],
)
def test_why_the_original_fails_on_the_simulated_machine(failure: str, advice: str) -> None:
    found = explain_comparison(Comparison("simulated", failure=failure), Settings())
    assert found is not None and found.advice.startswith(advice)


def test_unsafe_fixes_are_named_where_cuda_changes() -> None:
    found = explain_comparison(Comparison("cuda", on_cuda=["a"]), Settings(unsafe_fixes=True))
    assert found is not None and "--unsafe-fixes" in found.advice


@pytest.mark.parametrize(
    ("kind", "one", "other", "word"),
    [
        ("draw", {}, {}, "random numbers"),
        ("dtype", {}, {}, "another dtype on the CPU"),
        ("count", 1, 2, "conditions that depend on the device"),
        ("value", {"item": 1.0}, {"item": 1.00001}, "--tolerance"),
        ("value", {"item": 1.0}, {"item": 2.0}, "move tensors"),
        ("value", {"sample": [1.0, 2.0]}, {"sample": [1.0, 2.00001]}, "--tolerance"),
        ("value", {"item": "a"}, {"item": "b"}, "move tensors"),
        ("value", None, {"item": 1.0}, "move tensors"),
    ],
)
def test_a_difference_on_the_cpu_has_a_hint(kind: str, one: Any, other: Any, word: str) -> None:
    assert word in hint(Difference(kind, one=one, other=other))


def test_the_lines_of_configurations_that_select_cuda_are_named(
    folder: ProgramFolder, verify: Verify
) -> None:
    (folder.path / "configs").mkdir()
    (folder.path / "configs" / "base.json").write_text('{\n "size": 2,\n "place": "cuda:0"\n}\n')
    folder.write(
        train="""
        import json, os, torch
        config = json.load(open(os.path.join("configs", os.environ.get("NAME", "base") + ".json")))
        print(torch.ones(config["size"]).to(config["place"]).sum())
        """
    )
    found = verify()
    assert found.explanation is not None and found.explanation.cause is Cause.TIE
    text = click.unstyle(report.text(found))
    assert "configs/base.json:3 (`place: cuda:0`)" in text and "set `place` to `cpu` there" in text


def test_an_error_that_the_program_handles_has_a_cause(folder: ProgramFolder, verify: Verify) -> None:
    """Programs of Hydra print their errors themselves, and end with exit status 1."""
    folder.write(
        train="""
        import sys, torch, traceback
        try:
            torch.ones(2).to(sys.argv[1])
            open("nowhere")
        except Exception:
            traceback.print_exc()
            sys.exit(1)
        """
    )
    found = verify("cuda")
    assert found.reason == "AssertionError: Torch not compiled with CUDA enabled"
    assert found.explanation is not None and found.explanation.cause is Cause.TIE
