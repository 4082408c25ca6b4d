"""Modules that serve other accelerators than CUDA: with the target CUDA, these must not end on the CPU."""

from __future__ import annotations

import ast

import pytest
from helpers import analyze

SERVES = (
    'types = ["cuda", "xpu"]',
    "types = {'npu:0': 1}",
    "import torch_npu",
    "torch.backends.mps.is_available()",
    "torch.accelerator.is_available()",
    "import torch_xla.core.xla_model as xm",
)
SERVES_NONE = ('types = ["cuda", "cpu"]', "# on xpu", "mps = 3", "text = 'an npu'", "args.mlu = torch.xpus")
# A number may be the index of any accelerator.
NUMBERS = (
    "m.to(0)",
    "m.to(gpu)",
    "x = torch.zeros(3, device=0)",
    "x = torch.zeros(3, device=local_rank)",
    "d = torch.device(0)",
    "d = local_rank if wanted else 'cpu'",
)
# So may what else works with any of them.
WORKS = (
    "x = torch.empty(3, pin_memory=True)",
    "y = y.pin_memory()",
    "dist.barrier(device_ids=[gpu])",
    "m = torch.nn.parallel.DistributedDataParallel(m, device_ids=[gpu], output_device=gpu)",
    "m = torch.nn.SyncBatchNorm.convert_sync_batchnorm(m)",
    "from transformers import TrainingArguments; a = TrainingArguments('out', bf16=True)",
)
# These work with CUDA alone.
CUDA = (
    "m.cuda()",
    "m.cuda(0)",
    "m.cuda(gpu)",
    "m.to('cuda')",
    "m.to(f'cuda:{gpu}')",
    "m.to(torch.cuda.current_device())",
    "d = torch.device('cuda', gpu)",
    "d = 'cuda' if wanted else 'cpu'",
    "torch.cuda.set_device(gpu)",
    "dist.init_process_group('nccl')",
    "x = x.to(y.get_device())",
)


def output(line: str, serves: str, **options: object) -> str | None:
    known = "y = torch.ones(1)\ngpu = local_rank = int('0')"
    source = f"import torch\nimport torch.distributed as dist\n\n{serves}\n{known}\n{line}\n"
    new = analyze(source, fix=True, **options).output  # type: ignore[arg-type]
    return new.decode() if new else None


@pytest.mark.parametrize("line", NUMBERS)
def test_a_number_becomes_the_cpu_only_where_no_other_accelerator_is_served(line: str) -> None:
    assert "cpu" in (output(line, SERVES_NONE[0]) or "")
    assert output(line, SERVES[0]) is None
    assert "torch.cuda.is_available()" in (output(line, SERVES[0], unsafe_fixes=True) or "")


@pytest.mark.parametrize("line", WORKS)
def test_a_fix_that_asks_for_cuda_is_unsafe_where_another_accelerator_is_served(line: str) -> None:
    assert "torch.cuda.is_available()" in (output(line, SERVES_NONE[0]) or "")
    assert output(line, SERVES[0]) is None
    assert "torch.cuda.is_available()" in (output(line, SERVES[0], unsafe_fixes=True) or "")
    assert "torch.accelerator.is_available()" in (output(line, SERVES[0], target="accelerator") or "") or (
        "SyncBatchNorm" in line or "bf16" in line  # they ask for CUDA
    )


def test_an_answer_that_the_program_has_is_no_safer() -> None:
    assert output("has = torch.cuda.is_available(); y = y.pin_memory()", SERVES[0]) is None


@pytest.mark.parametrize(
    "line",
    ["if torch.cuda.is_available():\n    y = y.cuda()", "y = y.cuda() if torch.cuda.is_available() else y"],
)
def test_a_guarded_move_leaves_what_another_accelerator_has(line: str) -> None:
    device = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
    assert "y = y.to(device)" in (output(f"{device}\n{line}", SERVES_NONE[0]) or "")
    assert output(f"{device}\n{line}", SERVES[0]) is None


DEVICES = "def get_device():\n    return 'cuda' if wanted else 'xpu'\n"
PINS = "import torch\n\nx = torch.empty(3, pin_memory=True)\n"


@pytest.mark.parametrize(
    ("imports", "others"),
    [
        ("from devices import get_device", {"devices.py": DEVICES}),
        ("import devices\nd = devices.get_device()", {"devices.py": DEVICES}),
        (
            "from lib import tools\nd = tools.get_device()",
            {"lib/tools/__init__.py": "from ._d import get_device\n", "lib/tools/_d.py": DEVICES},
        ),
        ("", {"main.py": f"import module\n{DEVICES}"}),
        ("", {"main.py": "import module\nfrom devices import get_device\n", "devices.py": DEVICES}),
    ],
)
def test_the_code_that_a_module_imports_or_is_imported_by_serves_others(
    imports: str, others: dict[str, str]
) -> None:
    source = f"{imports}\n{PINS}"
    assert analyze(source, others=others, fix=True).output is None
    none = {path: text.replace("xpu", "cpu") for path, text in others.items()}
    assert analyze(source, others=none, fix=True).output


def test_what_a_module_imports_from_elsewhere_serves_no_others() -> None:
    others = {"devices.py": DEVICES, "names.py": "A = 1\n", "main.py": "from devices import get_device\n"}
    others["__init__.py"] = "from . import devices, module\nfrom .devices import get_device\n"
    assert analyze(f"from names import A\n{PINS}", others=others, fix=True).output


PINNED = "m = torch.empty(3, pin_memory=True)"


@pytest.mark.parametrize(
    "line",
    [
        f"torch.cuda.set_device(gpu)\n{PINNED}",
        f"if gpu:\n    torch.cuda.set_device(gpu)\nif gpu:\n    {PINNED}",
        f"{PINNED}\nm.cuda()",
        f"def f():\n    torch.cuda.synchronize()\n    for i in range(3):\n        {PINNED}",
    ],
)
def test_what_runs_with_code_that_needs_cuda_needs_it_too(line: str) -> None:
    assert "pin_memory=torch.cuda.is_available()" in (output(line, SERVES[0]) or "")


@pytest.mark.parametrize(
    "line",
    [
        f"torch.cuda.manual_seed(gpu)\n{PINNED}",
        f"if gpu:\n    torch.cuda.set_device(gpu)\n{PINNED}",
        f"if gpu:\n    torch.cuda.set_device(gpu)\ngpu = 1\nif gpu:\n    {PINNED}",
        f"def f():\n    torch.cuda.set_device(gpu)\n{PINNED}",
        f"for i in range(gpu):\n    torch.cuda.set_device(i)\n{PINNED}",
        f"try:\n    torch.cuda.synchronize()\nexcept ValueError:\n    pass\n{PINNED}",
    ],
)
def test_what_may_run_without_code_that_needs_cuda_may_not_need_it(line: str) -> None:
    assert "pin_memory=True" in (output(line, SERVES[0]) or line)


def test_a_checkpoint_of_another_accelerator_is_loaded_to_where_it_was() -> None:
    new = output("x = torch.load('x.pt')", SERVES[0]) or ""
    assert "lambda data, tag: None if torch.cuda.is_available() or" in new
    new = (
        output("def load(path, where=None):\n    return torch.load(path, map_location=where)", SERVES[0])
        or ""
    )
    assert "where or (" in new


@pytest.mark.parametrize("line", CUDA)
def test_what_names_cuda_stays_safe(line: str) -> None:
    assert output(line, SERVES[0])


@pytest.mark.parametrize("serves", SERVES)
def test_a_module_serves_other_accelerators(serves: str) -> None:
    assert output("m.to(gpu)", serves) is None


@pytest.mark.parametrize("serves", SERVES_NONE)
def test_a_module_serves_no_other_accelerator(serves: str) -> None:
    assert output("m.to(gpu)", serves)


def test_the_message_says_what_to_do() -> None:
    source = f"import torch\n\n{SERVES[0]}\ngpu = local_rank = int('0')\nm.to(gpu)\n"
    finding = analyze(source).findings[-1]
    assert finding.message == (
        "`.to(gpu)` needs CUDA, because `gpu` is a GPU index; without CUDA, use the CPU"
        " (unsafe: the fix may affect another accelerator that the project supports,"
        " so use `--target accelerator`)"
    )


def test_with_the_target_accelerator_the_number_stays_its_index() -> None:
    assert "m.to(gpu if torch.accelerator.is_available() else 'cpu')" in (
        output("m.to(gpu)", "x = 'xpu'", target="accelerator") or ""
    )


def test_the_backend_is_that_of_the_accelerator_whose_index_is_set() -> None:
    line = "dist.init_process_group('nccl'); torch.cuda.set_device(gpu)"
    new = output(line, "", target="accelerator") or ""
    assert "torch.distributed.get_default_backend_for_device(device)" in new
    assert "torch.accelerator.set_device_index(gpu)" in new
    assert "get_default" not in (output(line, "", target="accelerator", torch_version=(2, 5)) or "")


def test_the_backend_runs_on_a_cpu_and_is_nccl_with_cuda() -> None:
    torch = pytest.importorskip("torch")
    new = output("backend = 'nccl'", "", target="accelerator", unsafe_fixes=True) or ""
    names: dict[str, str] = {}
    exec(compile(ast.parse(new), "m.py", "exec"), names)
    assert names["backend"] == "gloo"
    assert torch.distributed.get_default_backend_for_device("cuda") == "nccl"


DDP = "m = torch.nn.parallel.DistributedDataParallel(m, device_ids=[i])"


@pytest.mark.parametrize(
    ("line", "with_cuda", "with_accelerator"),
    [
        ("d = torch.device('cuda')", "select it only if CUDA is", "select an accelerator if one is"),
        ("x = torch.ones(1, device='cuda')", "use it only if CUDA is", "use an accelerator if one is"),
        ("x = y.pin_memory()", "cannot be pinned without a GPU;", "cannot be pinned without an accelerator;"),
        ("s = torch.cuda.Stream()", "call it only if CUDA is", "use `torch.Stream` if an accelerator is"),
        ("s = torch.cuda.ExternalStream(1)", "call it only if CUDA is", "call it only if CUDA is"),
        ("torch.cuda.synchronize()", "call it only if CUDA is", "use `torch.accelerator.synchronize` if an"),
        ("i = [torch.cuda.current_device()]", "call it only if CUDA is", "call it only if CUDA is"),
        (
            "s = torch.cuda.get_rng_state()",
            "call it only if CUDA is",
            "use `torch.get_device_module().get_rng",
        ),
        ("torch.cuda.ipc_collect()", "call it only if CUDA is", "call it only if CUDA is"),
        ("x = torch.ones(1, device=torch.cuda.current_device())", "; use `device`", "; use `device`"),
        ("o = torch.optim.Adam(p, capturable=True)", "on a CPU; use", "on a CPU and on MPS; use"),
        (DDP, "pass GPUs only if CUDA", "pass devices only on other accelerators"),
        ("x.to(0 if y else None)", "needs CUDA; without", "needs an accelerator; without"),
        ("r = torch.device(0)", "without CUDA; select it", "an accelerator; select"),
        ("x.to(f'cuda:{rank}')", "needs CUDA; without CUDA, use", "needs CUDA; without an accelerator, use"),
    ],
)
def test_the_advice_fits_the_target(line: str, with_cuda: str, with_accelerator: str) -> None:
    source = f"import torch\nimport torch.distributed as dist\n\n{line}\n"
    for target, advice in (("cuda", with_cuda), ("accelerator", with_accelerator)):
        (finding,) = analyze(source, target=target).findings
        assert advice in finding.message


def test_a_message_is_as_sure_as_the_fix() -> None:
    source = "import torch\n\n\ndef move(x, rank):\n    x.to(rank)\n\n\ncamera = open_camera(device=0)\n"
    moved, number = (finding.message for finding in analyze(source).findings)
    assert moved.startswith("`.to(rank)` needs CUDA if `rank` is a GPU index; without CUDA, use the CPU")
    assert number.startswith("`0` may be a CUDA device; use it only if CUDA is available (unsafe: ")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("for d in ('cuda', 'cpu'):\n    x.to(d)", "the tuple already contains the CPU"),
        (
            "d = torch.device('cuda:1')\nt = [d, torch.device('cpu')]\nx.to(t[0])",
            "the list on line 5 already",
        ),
        (
            "x.to(torch.device('cpu'))\nn = 0 if y else None\nx.to(n)",
            "`.to(n)` needs CUDA if `n` is a GPU index",
        ),
        ("f(torch.cuda.stream)", "`torch.cuda.stream` is for CUDA streams"),
        (
            "nn.Sequential(nn.Conv2d(3, 8, 3), nn.SyncBatchNorm(8, process_group=p))",
            "because of the call's arguments",
        ),
        ("nn.Sequential(nn.Conv2d(3, 8, 3), SyncBatchNorm(8))", "because of how the class is imported"),
        ("nn.SyncBatchNorm(8)", "because the number of input dimensions is unknown"),
        ("nn.parallel.comm.broadcast(x, [0, 1])", "skip it if there are fewer than two GPUs"),
    ],
)
def test_the_message_is_true(lines: str, message: str) -> None:
    source = f"import torch\nfrom torch import nn\nfrom torch.nn import SyncBatchNorm\n{lines}\n"
    assert any(message in each.message for each in analyze(source).findings)


def test_an_argument_given_twice_stays_once() -> None:
    (*_, finding) = analyze("import torch\nx.cuda(async=True, non_blocking=True)\n").findings
    assert finding.message.endswith("; keep only `non_blocking`")
