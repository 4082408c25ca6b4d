"""The simulated machine with devices of other types than CUDA: its answers and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import run_program

pytestmark = pytest.mark.needs("numpy", "torch")

PRELUDE = """\
import io, json, os, sys, warnings
import torch, torch.nn as nn
import torch.distributed as dist
import torch.distributed.device_mesh, torch.utils.checkpoint
warnings.simplefilter("ignore")

kind = sys.argv[1]
module = getattr(torch, kind)
cpu, first = torch.device("cpu"), torch.device(kind, 0)
host = torch.ones(2, 2)
x = torch.ones(2, 2, device=kind)

def saved(value, where=None):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, where)

def lowered(call, device=None, **options):
    with torch.autocast(device or kind, **options):
        return call()

def warned(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return "".join(str(each.message) for each in found)

def scaled():
    model = nn.Linear(2, 2).to(kind)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler(kind)
    loss = lowered(lambda: model(x).float().mean())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() == 65536.0 and model.weight.grad.device == first

def forked():
    torch.manual_seed(0)
    with torch.random.fork_rng(device_type=kind):
        torch.rand(2, device=kind)
    drawn = torch.rand(2, device=kind).cpu()
    torch.manual_seed(0)
    return torch.equal(drawn, torch.rand(2))

def trained():
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    backend = dist.get_default_backend_for_device(kind)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2).to(kind))
    model(x).sum().backward()
    total = torch.ones(2, device=kind)
    dist.all_reduce(total)
    mesh = kind == "mps" or torch.distributed.device_mesh.init_device_mesh(kind, (1,)).device_type == kind
    dist.destroy_process_group()
    return model.module.weight.grad.device == total.device == first and mesh

def profiled():
    with torch.profiler.profile(activities=torch.profiler.supported_activities()) as profile:
        x + x
    return "aten::add" in profile.key_averages().table()

def grad_of(call):
    leaf = torch.ones(2, 2, requires_grad=True)
    call(leaf).sum().backward()
    return leaf.grad.device
"""
ASK = """
answers = {{}}
for line in {lines!r}:
    try:
        answers[line] = str(eval(line))
    except Exception as error:
        answers[line] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps(answers))
"""

TRUE = [
    "x.device == first and getattr(x, f'is_{kind}') and not x.is_cpu and not x.is_cuda and not host.is_cuda",
    "torch.device(0) == first and torch.zeros(1, device=0).device == first and host.to(0).device == first",
    "torch.tensor([1.0], device=kind).device == (x @ x).device == first",
    "nn.Linear(2, 2).to(kind)(x).device == first",
    "x.to(kind) is x and x.cpu().device == cpu and grad_of(lambda leaf: leaf.to(kind) * x) == cpu",
    "repr(x).endswith(f\"device='{kind}:0')\") and x.type() == f'torch.{kind}.FloatTensor'",
    "torch.accelerator.is_available() and torch.accelerator.device_count() == module.device_count() == 1",
    "torch.accelerator.current_accelerator() == torch.device(kind) and torch.get_device_module() is module",
    "torch.accelerator.current_device_index() == 0 and torch.accelerator.synchronize() is None",
    "torch.float32 in torch.accelerator.get_device_capability()['supported_dtypes']",
    "module.synchronize() is None and module.empty_cache() is None and module.manual_seed(1) is None",
    "module.get_rng_state().dtype == torch.uint8 and forked()",
    "torch.Event(enable_timing=True).record() is None and torch.Stream(device=kind).synchronize() is None",
    "not torch.cuda.is_available() and torch.cuda.device_count() == 0",
    "not torch.amp.GradScaler().is_enabled()",
    "lowered(lambda: (x @ x).dtype) == torch.float16 and lowered(lambda: (x + x).dtype) == torch.float32",
    "lowered(lambda: x.half().softmax(0).dtype, dtype=torch.bfloat16) == torch.float32",
    "lowered(lambda: (host @ host).dtype) == torch.float32",
    "lowered(lambda: torch.is_autocast_enabled(kind)) and not torch.is_autocast_enabled(kind)",
    "lowered(lambda: (x @ x).dtype, 'cuda') == torch.float32",
    "'CUDA is not available' in warned(lambda: torch.autocast('cuda'))",
    "scaled()",
    "torch.Generator(kind).device.type == kind",
    "torch.rand(2, device=kind, generator=torch.Generator(kind)).device == first",
    "saved(x).device == saved(host, kind).device == first and saved(x, 'cpu').device == cpu",
    "torch.utils.checkpoint.checkpoint(nn.Linear(2, 2).to(kind), x, use_reentrant=False).device == first",
    "trained()",
    "profiled()",
]
# What differs: the answer for each type, or a part of the error.
UNLIKE = {
    "dist.get_default_backend_for_device(kind)": {"xpu": "xccl", "mps": "gloo", "npu": "hccl"},
    "module.current_device()": {"xpu": "0", "mps": "no attribute 'current_device'", "npu": "0"},
    "module.memory_summary()[:9]": {"xpu": "no attribute", "mps": "no attribute", "npu": "Simulated"},
    "hasattr(module, 'default_stream')": {"xpu": "False", "mps": "False", "npu": "True"},
    "hasattr(module, 'current_allocated_memory')": {"xpu": "False", "mps": "True", "npu": "False"},
    "hasattr(module, 'CUDAGraph')": {"xpu": "False", "mps": "False", "npu": "False"},
    "getattr(x, kind)() is x": {"xpu": "True", "mps": "no attribute", "npu": "True"},
    "getattr(nn.Linear(2, 2), kind)().weight.device == first": {
        "xpu": "True", "mps": "no attribute", "npu": "True",
    },
    "torch.backends.mps.is_available()": {"xpu": "False", "mps": "True", "npu": "False"},
    "torch.ones(1, device=f'{kind}:1').device.index": {
        "xpu": "1", "mps": "MPS error: invalid device ordinal", "npu": "1",
    },
    "host.pin_memory().is_pinned()": {"xpu": "True", "mps": "Attempted to set the storage", "npu": "True"},
    "torch.ones(1, pin_memory=True).is_pinned()": {"xpu": "True", "mps": "Attempted to", "npu": "True"},
    "next(iter(torch.utils.data.DataLoader(host, pin_memory=True))).is_pinned()": {
        "xpu": "True", "mps": "False", "npu": "True",
    },
    "saved(x, 'cuda')": {
        "xpu": "Attempting to deserialize object on a CUDA", "mps": "no attribute 'current_device'",
        "npu": "Attempting to deserialize object on a CUDA",
    },
    "x.double().dtype": {"xpu": "torch.float64", "mps": "TypeError: Cannot convert", "npu": "torch.float64"},
    "torch.tensor(1.0, dtype=torch.float64, device=kind).dtype": {
        "xpu": "torch.float64", "mps": "TypeError: Cannot convert", "npu": "torch.float64",
    },
    "nn.DataParallel(nn.Linear(2, 2).to(kind))(x).device": {
        "xpu": "no attribute '_scatter'", "mps": "mps:0", "npu": "npu:0",
    },
}  # fmt: skip
NOT_COMPILED = "AssertionError: Torch not compiled with CUDA enabled"
FAILS = {
    "host.cuda()": NOT_COMPILED,
    "host.to('cuda')": NOT_COMPILED,
    "x.to('cuda')": NOT_COMPILED,
    "torch.zeros(1, device='cuda')": NOT_COMPILED,
    "torch.cuda.synchronize()": NOT_COMPILED,
    "torch.Generator('cuda')": "RuntimeError",
    "x + host": "RuntimeError: Expected all tensors to be on the same device",
    "x.numpy()": "TypeError: can't convert",
}
KINDS = ("xpu", "mps", "npu")


@pytest.fixture(scope="module", params=KINDS)
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Evaluate every line on the machine with one type of devices, and return the results or errors."""
    lines = [*TRUE, *UNLIKE, *FAILS, "torch.accelerator.empty_cache()"]
    folder = tmp_path_factory.mktemp(request.param)
    code = PRELUDE + ASK.format(lines=lines)
    ran = run_program(folder, code, request.param, machine=request.param, copies=False)
    assert ran.status == 0 and not ran.of("trouble"), ran.errors
    return {**json.loads(ran.output.splitlines()[-1]), "kind": request.param}


def test_what_all_types_have(answers: dict[str, str]) -> None:
    assert {line: answers[line] for line in TRUE if answers[line] != "True"} == {}


def test_what_differs(answers: dict[str, str]) -> None:
    kind = answers["kind"]
    assert {line: answers[line] for line, of in UNLIKE.items() if of[kind] not in answers[line]} == {}


def test_what_needs_cuda_fails_as_in_a_build_without_it(answers: dict[str, str]) -> None:
    assert {line: answers[line] for line, error in FAILS.items() if not answers[line].startswith(error)} == {}


def test_the_accelerators_memory_is_unknown_on_mps_up_to_a_version(answers: dict[str, str]) -> None:
    import torch

    old = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
    fails = "INTERNAL ASSERT FAILED" in answers["torch.accelerator.empty_cache()"]
    assert fails == (old and answers["kind"] == "mps")


@pytest.mark.parametrize("kind", ["hpu", "musa"])
def test_other_extensions(kind: str, tmp_path: Path) -> None:
    lines = ["x.device == first", f"x.{kind}() is x", "scaled()", "forked()", "module.current_device() == 0"]
    ran = run_program(tmp_path, PRELUDE + ASK.format(lines=lines), kind, machine=kind, copies=False)
    assert set(json.loads(ran.output.splitlines()[-1]).values()) == {"True"}, ran.output + ran.errors


def test_visible_devices_are_those_of_the_types_own_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZE_AFFINITY_MASK", "0,1")
    code = "import torch\nprint(torch.xpu.device_count(), torch.accelerator.device_count())"
    assert run_program(tmp_path, code, machine="xpu", copies=False).output == "2 2\n"
