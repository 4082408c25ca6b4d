"""The device arguments of calls, and what they become."""

from __future__ import annotations

import ast

import pytest
from contexts import call, context_of, expression

from devicefix.devices.arguments import (
    device_argument,
    device_fix,
    device_of_tensor,
    is_cuda_target,
    is_gpu_index,
    runtime_device,
    target_device,
)
from devicefix.devices.context import Context
from devicefix.rewrite.edits import apply

AVAILABLE = "torch.cuda.is_available()"


def moved_to(argument: str, before: str = "", target: str = "cuda") -> str | None:
    """Return the device that `x.cuda(argument)` moves to."""
    code = f"x.cuda({argument})"
    context = context_of(f"import torch\n\n{before}{code}\n", target=target)
    node = call(context, code)
    found = target_device(context, node, device_argument(node))
    return found.text if found else None


@pytest.mark.parametrize(
    ("code", "argument"),
    [
        ("x.cuda()", None),
        ("x.cuda(1)", "1"),
        ("x.cuda(device=rank)", "rank"),
        ("x.cuda(non_blocking=True)", None),
        ("x.to(where, torch.half)", "where"),
    ],
)
def test_the_device_comes_first_or_by_name(code: str, argument: str | None) -> None:
    node = ast.parse(code, mode="eval").body
    assert isinstance(node, ast.Call)
    found = device_argument(node)
    assert (ast.unparse(found) if found else None) == argument


@pytest.mark.parametrize(
    ("argument", "device"),
    [
        ("", "device"),
        ("None", "device"),
        ("device=None", "device"),
        ("0", "device0"),
        ("3, True", "device3"),
        ("y.get_device()", "y.device"),
        ("where", None),
        ("pick()", None),
    ],
)  # fmt: skip
def test_the_device_that_a_call_moves_to(argument: str, device: str | None) -> None:
    assert moved_to(argument) == device


def test_a_computed_index_is_kept() -> None:
    assert moved_to("torch.cuda.current_device()") == (
        f'torch.device("cuda", torch.cuda.current_device()) if {AVAILABLE} else "cpu"'
    )
    assert moved_to("where", "where = 1\n") == f'torch.device("cuda", where) if {AVAILABLE} else "cpu"'


def test_a_name_of_the_current_device_is_kept() -> None:
    assert moved_to("where", 'where = torch.device("cuda")\n') == "where"
    assert moved_to("where", 'where = "cpu"\n') is None


def test_the_index_of_the_current_device_is_the_accelerator() -> None:
    assert moved_to("torch.cuda.current_device()", target="accelerator") == "device"
    assert moved_to("torch.cuda.device_count() - 1", target="accelerator") is None


@pytest.mark.parametrize(
    ("argument", "device"),
    [
        ("where", f'("cuda" if where is None else where) if {AVAILABLE} else "cpu"'),
        ("self.where", f'("cuda" if self.where is None else self.where) if {AVAILABLE} else "cpu"'),
        ("pick()", None),
    ],
)
def test_a_target_of_any_kind_is_distinguished_at_run_time(argument: str, device: str | None) -> None:
    context = context_of(f"import torch\n\nx.cuda({argument})\n")
    node = call(context, f"x.cuda({argument})")
    found = runtime_device(context, node, node.args[0])
    assert (found.text if found else None) == device


@pytest.mark.parametrize(
    ("code", "device"),
    [
        ("y.get_device()", "y.device"),
        ("f(y).get_device()", "f(y).device"),
        ("self.get_device()", None),
        ("y.get_device(1)", None),
        ("y.get_device(a=1)", None),
        ("get_device()", None),
        ("y.get_device", None),
    ],
)
def test_the_device_of_a_tensor(code: str, device: str | None) -> None:
    context = context_of(f"x.cuda({code})\n")
    found = device_of_tensor(context, expression(context, code))
    assert (found.text if found else None) == device


def fixed(context: Context, code: str) -> str | None:
    """Return the line `x.to(code)` with the device replaced."""
    fix = device_fix(context, expression(context, code))
    return apply(context.source.text, fix.edits).splitlines()[-1] if fix else None


@pytest.mark.parametrize(
    ("code", "new"),
    [
        ('"cuda"', "x.to(device)"),
        ('"cuda:2"', "x.to(device2)"),
        ("2", "x.to(device2)"),
        ('torch.device("cuda")', "x.to(device)"),
        ('torch.device("cuda:2")', "x.to(device2)"),
        ("y.get_device()", "x.to(y.device)"),
        ('f"cuda:{i}"', f'x.to(f"cuda:{{i}}" if {AVAILABLE} else "cpu")'),
        ("args.rank", f'x.to(args.rank if {AVAILABLE} else "cpu")'),
        ("torch.cuda.current_device()", f'x.to(torch.cuda.current_device() if {AVAILABLE} else "cpu")'),
        ('"cpu"', None),
        ("where", None),
    ],
)
def test_the_fix_of_a_device(code: str, new: str | None) -> None:
    assert fixed(context_of(f"import torch\n\nx.to({code})\n"), code) == new


@pytest.mark.parametrize(
    ("code", "is_index"),
    [
        ("gpu", True),
        ("args.local_rank", True),
        ("args.gpu_ids[0]", True),
        ("gpus[rank]", True),
        ("gpus[1:]", False),
        ("batches[0]", False),
        ("device", False),
        ("f()", False),
    ],
)
def test_the_name_of_an_index(code: str, is_index: bool) -> None:
    assert is_gpu_index(ast.parse(code, mode="eval").body) is is_index


@pytest.mark.parametrize(
    ("code", "is_target"),
    [
        ('"cuda"', True),
        ('f"cuda:{i}"', True),
        ("0", True),
        ("y.get_device()", True),
        ("args.gpu", True),
        ("self.device", True),
        ('where if x else "cpu"', True),
        ('"cpu"', False),
        ('torch.device("cpu")', False),
        ("torch.half", False),
        ("other", False),
    ],
)
def test_the_target_of_a_move(code: str, is_target: bool) -> None:
    context = context_of(f"import torch\n\nx.to({code}).cuda()\n")
    assert is_cuda_target(context.facts, expression(context, code)) is is_target
    assert not is_cuda_target(context.facts, None)
