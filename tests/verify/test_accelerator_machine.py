"""The accelerator of the tests computes what a CPU does, fails as a device does, and finds planted faults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
pytestmark = [pytest.mark.needs("torch"), pytest.mark.slow]

COMPUTED = """
import copy, io, json, sys
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

def views(device):
    x = torch.zeros(4, 5, device=device)
    x[1], y = 2, x.t()
    x[:, 2] += 3
    y[0], x.view(-1)[3] = 7, 9
    return x.transpose_(0, 1) * torch.arange(20.0, device=device).view(5, 4)

def gradients_through_views(device):
    w = torch.randn(4, 5, device=device, requires_grad=True)
    x = w * 2
    x[1] = x[2] * 3
    x[:, 0].mul_(4)
    x.pow(2).sum().backward()
    return w.grad

def convolutions(device):
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 4, 3, groups=2)
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2), nn.LazyLinear(2))
    model(torch.randn(2, 3, 8, 8))
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    model.to(device)
    for _ in range(3):
        optimizer.zero_grad()
        y = model(torch.randn(2, 3, 8, 8).to(device))
        F.cross_entropy(y, torch.tensor([0, 1], device=device)).backward()
        optimizer.step()
    return model[-1].weight

def recurrent(device):
    lstm, gru = nn.LSTM(5, 7, 2, batch_first=True, bidirectional=True).to(device), nn.GRU(5, 7).to(device)
    x = torch.randn(3, 4, 5, device=device, requires_grad=True)
    packed = pack_padded_sequence(x, torch.tensor([4, 2, 1]), batch_first=True)
    (pad_packed_sequence(lstm(packed)[0])[0].sum() + gru(x)[0].sum()).backward()
    return x.grad

def attention(device):
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(device)
    x = torch.randn(2, 5, 8, device=device, requires_grad=True)
    checkpoint(model, x, use_reentrant=False).sum().backward()
    return x.grad

def saved(device):
    model, file = copy.deepcopy(nn.Linear(3, 2).to(device)), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    found = torch.load(file)
    assert found["weight"].device.type == device.type
    model.load_state_dict(found)
    return model.weight

def out_of_place(device):
    out = torch.empty(0, device=device)
    torch.arange(5, out=out)
    parameter = nn.Parameter(torch.zeros(2))
    parameter.data = torch.ones(3, device=device)
    return out.resize_(6).fill_(parameter.sum().item() + out.tolist()[1])

def mixed(device):
    model, scaler = nn.Linear(4, 4).to(device), torch.amp.GradScaler(device.type)
    optimizer = torch.optim.Adam(model.parameters())
    with torch.autocast(device.type, dtype=torch.bfloat16):
        y = model(torch.ones(3, 4, device=device))
    assert y.dtype == torch.bfloat16
    scaler.scale(F.mse_loss(y.float(), torch.zeros_like(y).float())).backward()
    scaler.step(optimizer)
    scaler.update()
    assert model.weight.grad.dtype == torch.float32
    return model.weight

def several(device):
    x, generator = torch.randn(5, 6, device=device), torch.Generator(device).manual_seed(3)
    complex_ = torch.view_as_complex(x.view(5, 3, 2)).abs()
    drawn = torch.rand(3, generator=generator, device=device)
    found = x.topk(2)[0], x.cumsum(0), torch.linalg.svd(x)[1], x[x > 0], complex_, drawn
    return torch.cat([each.flatten() for each in (*found, torch.func.vmap(torch.sum)(x))])

def normalized(device):
    x = torch.randn(2, 4, 3, 5).to(device, memory_format=torch.channels_last).requires_grad_()
    y = F.silu(nn.GroupNorm(2, 4).to(device)(x))
    z = torch.fft.rfft(y)
    (z * z.flip(-1).conj()).imag.square().sum().backward()
    counts = torch.LongTensor([torch.tensor(2, device=device), torch.tensor(3, device=device)])
    return x.grad * counts.sum() + z.conj()[0].cpu().imag.sum()

def sparse(device):
    graph = torch.eye(4).to_sparse().to(device)
    table = nn.Embedding(4, 3, sparse=True).to(device)
    for _ in range(2):
        torch.sparse.mm(graph, table(torch.tensor([1, 2, 1, 0], device=device))).square().sum().backward()
    torch.optim.SparseAdam(table.parameters(), 0.1).step()
    return table.weight + table.weight.grad.coalesce().to_dense()

views = views, gradients_through_views, out_of_place
for case in (*views, convolutions, recurrent, attention, normalized, sparse, saved, mixed, several):
    found = []
    for device in (torch.device("npu"), torch.device("cpu")):
        torch.manual_seed(0)
        value = case(device)
        assert value.device.type == device.type
        found.append(value.detach().cpu().double())
    assert torch.allclose(*found, rtol=1e-4, atol=1e-6), (case.__name__, found)
"""

TWO_DEVICES = """
import torch
from torch import nn
x, y = torch.ones(3, 4, device="npu"), torch.ones(3, 4)
assert torch.equal((x + torch.tensor(2.0)).cpu(), y + 2)  # a number goes anywhere
assert x[torch.tensor([0, 1])].shape == (2, 4)  # as do indices
fails = [
    lambda: x + y, lambda: y.mul_(x), lambda: nn.Linear(4, 2)(x), lambda: nn.Linear(4, 2).to("npu")(y),
    lambda: torch.cat([x, y]), lambda: x.numpy(), lambda: y[torch.tensor([0], device="npu")],
    lambda: nn.LSTM(4, 2).to("npu")(y), lambda: torch.rand(3, device="npu", generator=torch.Generator()),
    lambda: torch.stack([x.sum(), y.sum()]), lambda: torch.where(x > 0, x, y), lambda: x.pin_memory(),
    lambda: nn.Embedding(3, 3)(torch.tensor([1], device="npu")), lambda: torch.zeros(2, device="cuda"),
]
for number, each in enumerate(fails):
    try:
        each()
    except (RuntimeError, TypeError, AssertionError):
        continue
    raise SystemExit(f"{number} runs")
"""


@pytest.mark.parametrize("program", [COMPUTED, TWO_DEVICES], ids=["computed", "two devices"])
def test_the_device_computes_as_a_cpu_and_fails_as_a_device(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    machine = [sys.executable, str(TESTS / "accelerator_machine.py"), "--record", "record.json", "program.py"]
    done = subprocess.run(machine, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads((tmp_path / "record.json").read_text())["operations"]["npu"] > 10


def test_the_device_finds_each_planted_fault() -> None:
    faults = [sys.executable, str(TESTS / "accelerator_faults.py")]
    done = subprocess.run(faults, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    shown = json.loads(done.stdout)
    assert len(shown) >= 20
    assert {name: right for name, (right, _) in shown.items() if right} == {}, "a right program fails"
    assert [name for name, (_, found) in shown.items() if not found] == []
