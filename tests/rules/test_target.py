"""Programs rewritten with any accelerator as the target, run with torch on this machine's CPU."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from helpers import analyze

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.engine import fix
from devicefix.engine.file import Module
from devicefix.facts.project import Project
from devicefix.model import Result
from devicefix.runner.run import check_files

DEVICE = (
    'torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")'
)
TYPE = 'torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"'


def rewrite(text: str, version: tuple[int, int] | None = None, *, unsafe: bool = False) -> Result:
    options: dict[str, Any] = {"unsafe_fixes": unsafe, "target": "accelerator", "torch_version": version}
    return analyze(dedent(text), fix=True, **options)


def after(text: str, version: tuple[int, int] | None = None, *, unsafe: bool = False) -> str:
    """Return the new source, which a second run must not change."""
    output = rewrite(text, version, unsafe=unsafe).output
    new = output.decode() if output is not None else dedent(text)
    assert rewrite(new, version, unsafe=unsafe).output is None
    return new


def body(text: str, version: tuple[int, int] | None = None, *, unsafe: bool = False) -> str:
    """Return the new source of a module that begins with `import torch`, without that line."""
    return after(f"import torch\n\n{text}", version, unsafe=unsafe).removeprefix("import torch\n\n")


def messages(text: str, version: tuple[int, int] | None = None) -> list[str]:
    return [finding.message for finding in rewrite(text, version).remaining]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("torch.cuda.synchronize()", "an accelerator"),
        ("torch.cuda.ipc_collect()", "CUDA"),
        (
            "print(torch.cuda.get_device_name(), torch.cuda.get_device_name())",
            "an accelerator other than MPS",
        ),
        ("print(f'on {torch.cuda.get_device_name()}')", "CUDA"),
        ("torch.cuda.nvtx.range_push(torch.cuda.get_device_name())", "CUDA"),
        ("with torch.cuda.device(1): step()", "an accelerator"),
        ("with torch.cuda.device(x.device): step()", "CUDA"),
    ],
)
def test_a_message_names_the_check_that_the_fix_makes(line: str, asked: str) -> None:
    found = analyze(f"import torch\n\n{line}\n", fix=True, target="accelerator").fixed
    told = [each.message for each in found if each.code == "DF401"]
    assert told and all(f" if {asked} is available" in each for each in told)
    new = body(f"{line}\n")
    assert all(name in new for each in told for name in re.findall("; use `(.+?)`", each))
    assert ("torch.cuda.is_available()" in new) is (asked == "CUDA")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("x = x.cuda()\n", f"device = {DEVICE}\n\nx = x.to(device)\n"),
        (
            "x = x.cuda(1)\n",
            "device1 = torch.device(torch.accelerator.current_accelerator().type, 1) "
            'if torch.accelerator.is_available() else torch.device("cpu")\n\nx = x.to(device1)\n',
        ),
        ('d = torch.device("cuda")\n', f"d = {DEVICE}\n"),
        (
            "DEVICE = 'cuda'\nx = x.to(DEVICE)\n",
            f"DEVICE = {TYPE}\n".replace('"', "'") + "x = x.to(DEVICE)\n",
        ),
        (
            'd = torch.device("cuda", rank)\n',
            "d = (\n    torch.device(torch.accelerator.current_accelerator().type, rank)\n"
            '    if torch.accelerator.is_available()\n    else torch.device("cpu")\n)\n',
        ),
        (
            'x = x.to(f"cuda:{rank}")\n',
            'x = x.to(\n    f"{torch.accelerator.current_accelerator().type}:{rank}" '
            'if torch.accelerator.is_available() else "cpu"\n)\n',
        ),
        (
            'd = torch.device("cuda:%d" % i)\n',
            'd = torch.device(\n    torch.accelerator.current_accelerator().type + ":%d" % i '
            'if torch.accelerator.is_available() else "cpu"\n)\n',
        ),
        (
            'd = torch.device("cuda" if args.cuda else "cpu")\n',
            "d = torch.device(\n    torch.accelerator.current_accelerator().type "
            'if args.cuda and torch.accelerator.is_available() else "cpu"\n)\n',
        ),
        (
            "x = x.pin_memory()\n",
            f'device = {DEVICE}\n\nif device.type not in ("cpu", "mps"):\n    x = x.pin_memory()\n',
        ),
        (
            'state = torch.load(path, map_location="cuda:0")\n',
            'state = torch.load(path, map_location=f"{torch.accelerator.current_accelerator().type}:0" '
            'if torch.accelerator.is_available() else "cpu")\n',
        ),
        (
            "logger.info(torch.cuda.get_device_name(0))\n",
            f"device = {DEVICE}\n\nlogger.info(\n    torch.get_device_module().get_device_name(0) "
            'if device.type not in ("cpu", "mps") else device.type\n)\n',
        ),
        (
            'dist.init_process_group("nccl")\n',
            f"device = {DEVICE}\n\n"
            "dist.init_process_group(torch.distributed.get_default_backend_for_device(device))\n",
        ),
        (
            "y = x.type(torch.cuda.FloatTensor)\n",
            f"device = {DEVICE}\n\n"
            "y = x.type(torch.cuda.FloatTensor) if torch.cuda.is_available() "
            "else x.to(device, torch.float32)\n",
        ),
        (
            'same = x.type() == "torch.cuda.HalfTensor"\n',
            f"device = {DEVICE}\n\nsame = x.type() == "
            '(f"torch.{device.type}.HalfTensor" if device.type != "cpu" else "torch.HalfTensor")\n',
        ),
        (
            "y = torch.cuda.LongTensor(x)\n",
            f"device = {DEVICE}\n\n"
            "y = torch.cuda.LongTensor(x) if torch.cuda.is_available() else torch.LongTensor(x).to(device)\n",
        ),
        (
            "torch.set_default_tensor_type(torch.cuda.HalfTensor)\n",
            f"device = {DEVICE}\n\n"
            "if torch.cuda.is_available():\n    torch.set_default_tensor_type(torch.cuda.HalfTensor)\n"
            "else:\n    torch.set_default_device(device)\n    torch.set_default_dtype(torch.float16)\n",
        ),
        (
            "net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[gpu])\n",
            f"device = {DEVICE}\n\n"
            "net = torch.nn.parallel.DistributedDataParallel(\n    net, device_ids=[gpu] "
            'if device.type not in ("cpu", "mps") else None\n)\n',
        ),
        (
            "def run(net, gpu_ids):\n    assert torch.cuda.is_available()\n    net.cuda(gpu_ids[0])\n",
            f"device = {DEVICE}\n\ndef run(net, gpu_ids):\n    net.to(gpu_ids[0] if gpu_ids[0] is not None "
            "and torch.accelerator.is_available() else device)\n",
        ),
        (
            'device = f"cuda:{rank}"\ntorch.cuda.set_device(device)\n',
            'device = (\n    f"{torch.accelerator.current_accelerator().type}:{rank}" '
            'if torch.accelerator.is_available() else "cpu"\n)\n'
            "if torch.accelerator.is_available():\n    torch.accelerator.set_device_index(device)\n",
        ),
    ],
)
def test_devices_are_the_accelerators(before: str, expected: str) -> None:
    assert body(before) == expected


def test_a_library_that_only_cuda_has_is_imported_only_with_cuda() -> None:
    before = """\
        import torch

        def attend(x):
            from xformers.ops import memory_efficient_attention

            return memory_efficient_attention(x, x, x)
    """
    new = after(before)
    assert "if torch.cuda.is_available():\n        from xformers.ops import" in new
    assert "torch.accelerator" not in new
    assert messages(before) == []


OWN = """\
class Cell(torch.nn.Module):
    def cuda(self):
        super().cuda()
        return self


def move(net, x):
    net.cuda()
    return x.cuda()
"""


def test_an_own_cuda_method_is_called_only_with_cuda_and_other_accelerators_get_to() -> None:
    new = body(OWN).partition("class")[2]
    assert "        super().to(device)\n        return self\n" in new
    assert new.endswith("""\
    if torch.cuda.is_available():
        net.cuda()
    else:
        net.to(device)
    return x.cuda() if torch.cuda.is_available() else x.to(device)
""")
    assert "super().cuda()" not in new
    plain = body(OWN.replace("(torch.nn.Module)", ""))  # an object of this class has no `to`
    assert "else x.to(device)" not in plain


def test_a_guard_is_replaced_with_all_that_depends_on_it() -> None:
    before = """\
        import torch

        use_cuda = not args.no_cuda and torch.cuda.is_available()
        device = torch.device("cuda" if use_cuda else "cpu")
        if use_cuda:
            torch.cuda.manual_seed(args.seed)
            torch.cuda.set_device(0)
            net = net.cuda().eval()
    """
    new = after(before)
    assert "use_cuda = not args.no_cuda and torch.accelerator.is_available()" in new
    assert 'device = torch.device(torch.accelerator.current_accelerator().type if use_cuda else "cpu")' in new
    assert "torch.accelerator.set_device_index(0)" in new
    assert ".cuda()" not in new
    assert messages(before) == []


@pytest.mark.parametrize("own", ["x = torch.cuda.FloatTensor(2)", "x = torch.load(path)", "f(x.cuda(i()))"])
def test_a_guard_around_what_is_cudas_own_stays(own: str) -> None:
    text = f"import torch\n\nif torch.cuda.is_available():\n    {own}\n"
    for unsafe in (False, True):
        assert "if torch.cuda.is_available():" in after(text, unsafe=unsafe)
    assert messages(text)


def test_an_answer_that_is_passed_on_is_replaced_only_if_asked_for() -> None:
    line = "def use_gpu():\n    return torch.cuda.is_available()\n"
    assert body(line) == line
    assert body(line, unsafe=True) == line.replace("cuda", "accelerator")


def test_pure_moves_are_still_collapsed() -> None:
    new = body(
        "if torch.cuda.is_available():\n    x = x.cuda()\ny = y.cuda() if torch.cuda.is_available() else y\n"
    )
    assert new == f"device = {DEVICE}\n\nx = x.to(device)\ny = y.to(device)\n"


def test_streams_are_replaced_together_or_not_at_all() -> None:
    text = """\
        import torch

        class Prefetcher:
            def __init__(self):
                self.stream = torch.cuda.Stream()

            def preload(self):
                with torch.cuda.stream(self.stream):
                    self.x = self.x.float()

            def next(self):
                torch.cuda.current_stream().wait_stream(self.stream)
    """
    new = after(text)
    assert "torch.cuda" not in new
    assert "with self.stream if torch.accelerator.is_available() else contextlib.nullcontext():" in new
    # To be entered again inside itself a stream needs a newer torch.
    assert "accelerator" not in after(text, (2, 7))
    assert "accelerator" not in after(text + "\n    def raw(self):\n        return kernel(self.stream)\n")


@pytest.mark.parametrize(
    ("version", "call", "counterpart"),
    [
        ((2, 6), "set_device(0)", "set_device_index(0)"),
        (None, "set_device(0)", "set_device_index(0)"),
        ((2, 6), "synchronize(device=0)", "synchronize(0)"),
    ],
)
def test_the_oldest_torch_decides_the_spelling(
    version: tuple[int, int] | None, call: str, counterpart: str
) -> None:
    expected = f"if torch.accelerator.is_available():\n    torch.accelerator.{counterpart}\n"
    assert body(f"torch.cuda.{call}\n", version) == expected


def test_what_is_too_new_is_reported() -> None:
    text = "import torch\n\ndef f(s):\n    with torch.cuda.stream(s):\n        pass\n"
    assert after(text, (2, 8)) == text
    assert "which needs torch 2.13" in messages(text, (2, 8))[0]


@pytest.mark.parametrize(
    "text",
    [
        "import torch as th\n\nth.cuda.empty_cache()\n",
        "from torch import cuda\n\ncuda.empty_cache()\n",
        "from torch.cuda import empty_cache as clear\n\nclear()\n",
        "import torch\n\nhandler = torch.cuda.empty_cache\n",
        "import torch\n\nif hasattr(torch.cuda, 'empty_cache'):\n    pass\n",
        "import torch\n\nif torch.cuda.is_available():\n    n = torch.cuda.device_count()\n",
        'import torch\n\nprint(f"{torch.cuda.memory_allocated()}")\n',
    ],
)
def test_every_use_is_reported(text: str) -> None:
    assert "DF405" in {finding.code for finding in rewrite(text).findings}


def test_cuda_remains_the_default_target() -> None:
    data = b"import torch\n\ntorch.cuda.empty_cache()\n"
    assert analyze(data, select=("DF",)).findings == []


def test_fixes_that_become_possible_are_made_as_well(tmp_path: Path) -> None:
    # Two rules want to change the move.
    before = "import torch\n\n\ndef f(x):\n    return x.cuda(), torch.cuda.device_count()\n"
    file = tmp_path / "a.py"
    file.write_text(before)
    settings = Settings(fix=True, target="accelerator")
    (outcome,) = check_files([file], Everywhere(settings))
    module = Module(before.encode(), "a.py", settings)
    findings = module.find(Project())
    assert module.devices and len(fix.fix_once(findings, module.devices, settings).fixed) == 1
    assert outcome.result.output is not None
    assert outcome.result.output.endswith(b"return x.to(device), torch.accelerator.device_count()\n")
    assert [(finding.code, finding.line) for finding in outcome.result.fixed] == [("DF101", 5), ("DF405", 5)]
    file.write_bytes(outcome.result.output)
    (again,) = check_files([file], Everywhere(settings))
    assert again.result.output is None
    assert again.result.remaining == outcome.result.remaining


def test_of_fixes_that_never_settle_the_first_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"import torch\n\nx = x.cuda()\n"
    result = rewrite(data.decode())

    def longer(data: bytes, path: str, settings: Settings, project: Project) -> Result:
        found = [replace(finding) for finding in result.findings]
        last = data.count(b"\n")
        lines = [*range(last + 1), last]
        return Result(path, found, found, data + b"\n", lines) if settings.fix else Result(path, found)

    settings = Settings(fix=True, target="accelerator")
    module = Module(data, "m.py", settings)
    findings = module.find(Project())
    assert module.devices
    monkeypatch.setattr(fix, "recheck", longer)
    settled = fix.fix_until_stable(findings, module.devices, settings, Project())
    assert (settled.output, [finding.line for finding in settled.fixed]) == (result.output, [3])
    assert settled.remaining == result.findings


PROGRAM = """\
import torch
import torch.nn as nn

torch.manual_seed(0)
use_cuda = torch.cuda.is_available()
net = nn.Linear(4, 2).cuda()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
side = torch.cuda.Stream()
scaler = torch.cuda.amp.GradScaler()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if use_cuda:
    torch.cuda.set_device(0)
    net = net.cuda()
start.record()
for _ in range(3):
    with torch.cuda.stream(side):
        x = torch.ones(8, 4).cuda(non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.amp.autocast(True):
        loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
end.record()
torch.cuda.synchronize()
elapsed = start.elapsed_time(end)
used = torch.cuda.max_memory_allocated() / 2**20
torch.cuda.reset_peak_memory_stats()
torch.cuda.empty_cache()
with torch.cuda.device(0):
    count = max(torch.cuda.device_count(), 1)
where = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
state = {"device": "cuda"}
net.to(state["device"])
"""


@pytest.mark.filterwarnings("ignore")
def test_a_program_runs_on_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "accelerator") or torch.accelerator.is_available():
        pytest.skip("this is about a machine without an accelerator, and torch 2.6")
    new = after(PROGRAM)
    assert "torch.cuda" not in new
    names: dict[str, object] = {}
    exec(compile(ast.parse(new), "program.py", "exec"), names)
    assert names["elapsed"] != names["elapsed"]  # nan: nothing was measured
    assert names["used"] == 0
    assert names["count"] == 1
    assert names["where"] == torch.device("cpu")
    assert names["state"] == {"device": "cpu"}
    assert torch.isfinite(names["loss"])


def test_autocast_that_a_cpu_needs_is_on_there_as_well() -> None:
    torch = pytest.importorskip("torch")
    text = """\
        import torch

        net = torch.nn.Linear(2, 2).cuda()
        cache = torch.ones(1, 2, dtype=torch.bfloat16, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = net(cache)
    """
    assert [each.code for each in rewrite(text).findings if each.line == 5] == ["DF407"]
    names: dict[str, Any] = {}
    exec(compile(ast.parse(after(text)), "program.py", "exec"), names)
    if not torch.accelerator.is_available():
        assert names["y"].dtype is torch.bfloat16


COMPILED = """\
def synced(x):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.nvtx.range_push("part")
    return x + 1


def peak(x):
    torch.cuda.reset_peak_memory_stats()
    return x + torch.cuda.max_memory_allocated()


def moved(x):
    return x.cuda().type(torch.cuda.FloatTensor) * x.pin_memory()


def cast(x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return x @ x


def asked(x):
    if x.is_cuda and torch.cuda.get_device_name(0):
        torch.cuda.synchronize()
    return x.bfloat16() if torch.cuda.is_bf16_supported() else x


def streamed(x):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = x + 1
    torch.cuda.current_stream().wait_stream(stream)
    return y


def switched(x):
    with torch.cuda.device(0):
        return x + torch.ones(3, device="cuda")


def timed(x):
    start = torch.cuda.Event(enable_timing=True)
    start.record()
    end = torch.cuda.Event(enable_timing=True)
    end.record()
    torch.cuda.synchronize()
    return x, start.elapsed_time(end)
"""


def test_guarded_calls_compile_without_a_graph_break() -> None:
    torch = pytest.importorskip("torch")
    scope: dict[str, Any] = {}
    exec(after(f"import torch\n\n\n{COMPILED}"), scope)
    for name in ("synced", "peak", "moved", "cast", "asked", "streamed", "switched", "timed"):
        x = torch.ones(3, 3)
        compiled = torch.compile(scope[name], backend="eager", fullgraph=True)
        assert str(compiled(x)) == str(scope[name](x)), name
