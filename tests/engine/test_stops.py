"""`devicefix.engine.stops`: code that never runs without CUDA has one finding, and no fix."""

from __future__ import annotations

import pytest
from helpers import analyze

KERNEL = "import tensorrt\n\n\ndef run(x):\n    return x\n"
MOVES = "import torch\n{}\n\ndef use(x):\n    x = x.cuda()\n    torch.cuda.synchronize()\n    return run(x)\n"


def found(source: str, **others: str) -> list[tuple[str, int]]:
    """Return the codes and lines of the findings in `pkg/module.py`, beside other files in its folder."""
    files = {f"pkg/{name}.py": text for name, text in others.items()}
    return [(each.code, each.line) for each in analyze(source, path="pkg/module.py", others=files).findings]


@pytest.mark.parametrize("line", ["from kernel import run", "from .kernel import run", "import kernel"])
def test_a_file_that_imports_a_kernel(line: str) -> None:
    source = MOVES.format(line)
    (finding,) = analyze(source, path="pkg/module.py", others={"pkg/kernel.py": KERNEL}).findings
    assert (finding.code, finding.line, finding.fix) == ("DF902", 2, None)
    name = line.split()[1]
    assert finding.message.startswith(f"`{name}` needs CUDA because of `tensorrt`; ")
    assert finding.message.endswith(" (lines 5 and 6 can be fixed only after this)")


def test_a_file_that_imports_one_that_does() -> None:
    others = {"kernel": KERNEL, "layer": "from kernel import run\n"}
    assert found(MOVES.format("from layer import run"), **others) == [("DF902", 2)]


def test_a_part_of_a_package_that_imports_a_kernel() -> None:
    others = {"kernel": KERNEL, "__init__": "from .module import use\nfrom .kernel import run\n"}
    assert found(MOVES.format(""), **others) == [("DF902", 1)]
    program = MOVES.format("") + "if __name__ == '__main__':\n    use(x)\n"
    assert found(program, **others) == [("DF101", 5), ("DF401", 6)]


@pytest.mark.parametrize(
    "line",
    [
        "try:\n    from kernel import run\nexcept ImportError:\n    run = None",
        "if FAST:\n    from kernel import run",
        "def run(x):\n    from kernel import run\n    return run(x)",
        "import other",
    ],
)
def test_a_file_that_can_be_imported_without_a_kernel(line: str) -> None:
    codes = {code for code, _ in found(MOVES.format(line), kernel=KERNEL, other="import numpy\n")}
    assert codes == {"DF101", "DF401"}


def test_a_file_that_imports_triton_kernels_is_fixed() -> None:
    kernel = KERNEL.replace("tensorrt", "triton")
    assert found(MOVES.format("from kernel import run"), kernel=kernel) == [("DF101", 5), ("DF401", 6)]
    assert found(kernel + MOVES.format("")) == [("DF902", 1)]


def test_a_test_of_triton_kernels_is_left() -> None:
    kernel, source = KERNEL.replace("tensorrt", "triton"), MOVES.format("from kernel import run")
    found = analyze(source, path="tests/test_run.py", others={"tests/kernel.py": kernel}).findings
    assert [(each.code, each.line) for each in found] == [("DF902", 2)]
    other = analyze(source, path="tests/latest_run.py", others={"tests/kernel.py": kernel}).findings
    assert [each.code for each in other] == ["DF101", "DF401"]


def test_a_file_without_a_tie_has_no_finding() -> None:
    assert found("import torch\nfrom kernel import run\n\ny = run(torch.ones(3))\n", kernel=KERNEL) == []


def test_a_kernel_that_has_another_path() -> None:
    optional = KERNEL.replace(
        "import tensorrt", "try:\n    import tensorrt\nexcept ImportError:\n    tensorrt = None"
    )
    codes = {code for code, _ in found(MOVES.format("from kernel import run"), kernel=optional)}
    assert codes == {"DF101", "DF401"}


def test_without_the_rule_the_code_is_fixed() -> None:
    source = MOVES.format("import triton")
    codes = {each.code for each in analyze(source, ignore=frozenset({"DF902"})).findings}
    assert codes == {"DF101", "DF401"}


@pytest.mark.parametrize(
    ("check", "lines"),
    [
        ("assert x.is_cuda", [4]),
        ("assert x.device.type == 'cuda'", [4]),
        ("assert x.device.type == 'cuda' and x.size(0) < 9", [4]),
        ("g = torch.cuda.CUDAGraph()", [4]),
        ("if fast:\n        assert x.is_cuda", [5, 6, 7]),
        ("assert torch.cuda.device_count() > 1", [4, 5, 6]),
    ],
)
def test_a_check_that_stays(check: str, lines: list[int]) -> None:
    source = f"import torch\n\ndef use(x):\n    {check}\n    torch.cuda.synchronize()\n    return x.cuda()\n"
    assert [each.line for each in analyze(source).findings] == lines


def test_guards_beside_an_event_that_stays() -> None:
    source = """import torch

def start(kind, x):
    if kind == "mps":
        event = torch.mps.event.Event()
    else:
        event = torch.cuda.Event()
        torch.cuda.synchronize()
        x = x.cuda()
    torch.cuda.synchronize()
    return event, x
"""
    found = analyze(source).findings
    assert [each.line for each in found] == [7, 9, 10]
    assert found[0].message.endswith(" (line 8 can be fixed only after this)")
    chosen = source.replace("torch.cuda.Event()", "torch.cuda.Event() if x is None else None")
    assert [each.line for each in analyze(chosen).findings] == [7, 8, 9, 10]


def test_guards_under_the_same_test_as_an_event_that_stays() -> None:
    source = """import torch

def start(kind):
    if kind == "mps":
        event = torch.mps.event.Event()
    else:
        event = torch.cuda.Event()
    event.record()
    if kind == "mps":
        torch.mps.synchronize()
    else:
        torch.cuda.synchronize()
    if kind == "xpu":
        torch.xpu.synchronize()
    else:
        torch.cuda.synchronize()
    return event
"""
    found = analyze(source).findings
    assert [each.line for each in found] == [7, 16]
    assert found[0].message.endswith(" (line 12 can be fixed only after this)")


@pytest.mark.parametrize("unsafe", [False, True])
def test_device_ids_below_a_move_that_stays(unsafe: bool) -> None:
    source = """import torch

class Trainer(Base):
    def wrap(self):
        self.net.to(self.device_id)
        torch.cuda.synchronize()
        self.net = torch.nn.parallel.DistributedDataParallel(self.net, device_ids=[self.device_id])
"""
    found = analyze(source, unsafe_fixes=unsafe).findings
    assert [each.code for each in found] == ["DF102", "DF401", *["DF602"] * unsafe]
    assert ("(line 7 can be fixed only after this)" in found[0].message) is not unsafe


def test_a_check_below_a_move_that_stays() -> None:
    source = """import torch

def use(x, rank):
    x = x.to(self.device_id)
    assert x.is_cuda
    torch.cuda.synchronize()
    return x.cuda()
"""
    assert [each.line for each in analyze(source).findings] == [4, 5]


def test_fixes_below_a_check_that_stays_for_code_without_a_fix() -> None:
    source = """import torch

def main(net, n):
    assert torch.cuda.is_available()
    torch.cuda.set_device(n := n + 1)
    return torch.nn.parallel.DistributedDataParallel(net, device_ids=[n])
"""
    check, left = analyze(source).findings
    why = "(unsafe: line 5 still needs CUDA)"
    assert check.message.endswith(f"{why} (line 6 can be fixed only after this)")
    assert (left.line, left.fix) == (5, None)


def test_a_check_above_another_that_stays() -> None:
    source = """import torch

def main(rank, gpus):
    if not torch.cuda.is_available():
        raise OSError("no CUDA")
    if gpus > torch.cuda.device_count():
        raise ValueError("too few GPUs")
    torch.cuda.set_device(rank)
"""
    check, left = analyze(source).findings
    why = "(unsafe: line 6 still needs CUDA)"
    assert check.message.endswith(f"{why} (line 8 can be fixed only after this)")
    assert (left.code, left.fix) == ("DF704", None)


def test_a_device_before_its_check_and_in_it() -> None:
    source = "import torch\nwhere = 'cuda'\nassert where == 'cuda'\ntorch.cuda.synchronize()\n"
    assert [(each.code, each.line) for each in analyze(source).findings] == [("DF203", 2), ("DF704", 3)]


def test_a_function_that_is_only_used_after_a_check() -> None:
    source = """import torch

def wait():
    torch.cuda.synchronize()

def main(device_type):
    assert device_type == "cuda"
    wait()

main(choose())
"""
    assert [(each.code, each.line) for each in analyze(source).findings] == [("DF704", 7)]
    others = {"other.py": "from module import wait\n\nwait()\n"}
    assert [each.line for each in analyze(source, others=others).findings] == [4, 7]


def test_many_lines_are_counted() -> None:
    source = "import torch\nimport triton\n" + "torch.cuda.synchronize()\n\n" * 7
    (finding,) = analyze(source).findings
    assert finding.message.endswith(" (lines 3, 5, 7, 9, 11 and 2 more can be fixed only after this)")
