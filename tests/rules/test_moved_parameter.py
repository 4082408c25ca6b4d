"""DF804: parameters that only stay parameters on a CPU, run on the simulated CUDA machine and on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import run_program

from devicefix import check_paths, rewrite_source
from devicefix.config.settings import Settings
from devicefix.runner.run import check_text

PROGRAM = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.arange(8.0).reshape(4, 2))
        self.register_buffer("seen", nn.Parameter(torch.zeros(6)))

    def forward(self, x):
        found = torch.cdist(x, self.embedding).argmin(1)
        n = len(found)
        self.seen[:-n] = self.seen[n:].clone()
        self.seen[-n:] = found
        return (x - self.embedding[found]).square().sum(), len(torch.unique(self.seen))


torch.manual_seed(0)
model = Codebook().to(device)
for _ in range(3):
    loss, used = model(torch.randn(2, 2).to(device))
    loss.backward()
print(loss.item(), used, model.seen.tolist(), model.embedding.grad.sum().item())
print([name for name, _ in model.named_parameters()], list(model.state_dict()))
"""


@pytest.mark.needs("torch")
def test_a_buffer_that_is_changed_in_place_is_the_same_on_each_machine(tmp_path: Path) -> None:
    """The untouched program fails on the CPU: a leaf that requires gradients is changed in place."""
    fixed = rewrite_source(PROGRAM).source
    before = {machine: run_program(tmp_path, PROGRAM, machine=machine) for machine in ("simulated", "cpu")}
    after = {machine: run_program(tmp_path, fixed, machine=machine) for machine in ("simulated", "cpu")}
    assert before["simulated"].status == 0, before["simulated"].errors
    assert "in-place operation" in before["cpu"].errors
    assert after["cpu"].output == after["simulated"].output == before["simulated"].output


def test_the_weight_of_a_module_that_is_moved_alone_is_a_leaf() -> None:
    code = "import torch\n\nw = torch.nn.Linear(2, 1).weight\nx = w.to('cuda')\nprint(x.grad_fn is None)\n"
    assert [found.code for found in rewrite_source(code).remaining] == ["DF804"]


BUFFER = """
from torch import nn
class A(nn.Module):
    def __init__(self):
        self.register_buffer("q7", {made})
    def forward(self, x):
        {use}
"""
USES = {
    "self.q7[0] = x": True,
    "self.q7[0][1] += x": True,
    "self.q7 += x": True,
    "self.q7.mul_(2).add_(x)": True,
    "self.q7[1].fill_(0)": True,
    "return x + self.q7": False,
    "self.q7 = x": False,
    "self.q7.data[0] = x": False,
    "self.q7.requires_grad_(False)": False,
    "return self.q7[0]": False,
}


@pytest.mark.parametrize("use", USES)
def test_only_a_change_in_place_is_reported(use: str) -> None:
    text = BUFFER.format(made="nn.Parameter(x)", use=use)
    found = check_text(text.encode(), "m.py", Settings()).result.findings
    assert [finding.code for finding in found] == ["DF804"] * USES[use]


@pytest.mark.parametrize(
    ("read", "safe"),
    [
        ("len(self.q7)", True),
        ("(self.q7 > 1).sum()", True),
        ("self.q7.shape", True),
        ("self.q7.detach() + x", True),
        ("self.q7", False),
        ("x * self.q7", False),
        ("self.q7.sum()", False),
    ],
)
def test_a_buffer_whose_gradient_may_be_used_is_unsafe(read: str, safe: bool) -> None:
    text = BUFFER.format(made="nn.Parameter(x)", use=f"self.q7[0] = x; return {read}")
    fixed = rewrite_source(text).source
    assert (fixed == text.replace("nn.Parameter(x)", "x")) is safe


def test_a_reader_in_another_file_makes_the_fix_unsafe(tmp_path: Path) -> None:
    text = BUFFER.format(made="nn.Parameter(x)", use="self.q7[0] = x")
    (tmp_path / "model.py").write_text(text)
    (tmp_path / "train.py").write_text("from model import A\ndef loss(a):\n    return a.q7.sum()  # cuda\n")
    (finding,) = check_paths([tmp_path]).findings
    assert finding.fix is not None
    assert finding.fix.applicability == "unsafe"
