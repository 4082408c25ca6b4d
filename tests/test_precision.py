"""Low precision: autocast that is off on a CPU, and questions whose answer changes the dtype there."""

from __future__ import annotations

import pytest
from helpers import analyze

EMBEDDING = "import torch\n\n\ndef embed(n):\n    return torch.nn.Embedding(n, 4).to(torch.bfloat16)\n"
TRAIN = """\
import torch
from model import embed

with torch.autocast("cuda", dtype=torch.bfloat16):
    y = torch.nn.Linear(4, 4)(embed(5)(torch.tensor([1])))
"""


def codes(source: str, **others: str) -> list[str]:
    named = {f"{name}.py": text for name, text in others.items()}
    return [finding.code for finding in analyze(source, path="train.py", others=named).findings]


def test_low_precision_counts_in_the_files_that_are_used_together() -> None:
    assert codes(TRAIN) == []
    assert codes(TRAIN, model=EMBEDDING) == ["DF407"]
    assert codes(TRAIN, model="from deeper import embed\n", deeper=EMBEDDING) == ["DF407"]
    assert codes(TRAIN.replace("from model", "# from model"), main=f"import train\n{EMBEDDING}") == ["DF407"]
    assert codes(TRAIN, unrelated=EMBEDDING) == []


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_what_is_reported_fails_on_a_cpu_and_what_is_not_runs() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError, match="dtype"):
        exec(TRAIN.replace("from model import embed", EMBEDDING), {})
    exec(TRAIN.replace("from model import embed", EMBEDDING).replace('"cuda"', '"cpu"'), {})
    exec(TRAIN.replace("from model import embed", EMBEDDING.replace(".to(torch.bfloat16)", "")), {})
    assert not torch.is_autocast_enabled("cuda")


@pytest.mark.parametrize(
    ("line", "is_low"),
    [
        ("net = net.half()", True),
        ("net.to(device=device, dtype=torch.float16)", True),
        ("pipe = load(path, torch_dtype=torch.bfloat16)", True),
        ("weight_dtype = torch.half", True),
        ("x = torch.HalfTensor(3)", True),
        ("n = n.half().float()", False),
        ("assert x.dtype == torch.half", False),
        ("with torch.autocast(device.type, dtype=(torch.bfloat16)): pass", False),
        ("half = n // 2", False),
    ],
)
def test_what_low_precision_is(line: str, is_low: bool) -> None:
    source = f"import torch\n\n{line}\nwith torch.autocast('cuda'):\n    y = net(x)\n"
    assert ("DF407" in codes(source)) is is_low


def test_a_cpu_answers_no_but_has_bfloat16() -> None:
    torch = pytest.importorskip("torch")
    assert not torch.cuda.is_bf16_supported()
    assert (torch.ones(2, dtype=torch.bfloat16) @ torch.ones(2, dtype=torch.bfloat16)).item() == 2
