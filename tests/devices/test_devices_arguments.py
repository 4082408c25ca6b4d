"""The device arguments of calls, and what they become."""

from __future__ import annotations

import ast

import pytest
from contexts import call, context_of, expression
from helpers import apply

from devicefix.devices.arguments import (
    device_argument,
    device_fix,
    device_of_tensor,
    gpu_number,
    runtime_device,
    target_device,
)
from devicefix.devices.context import Context

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
        ("0", f'"cuda:0" if {AVAILABLE} else "cpu"'),
        ("3, True", f'"cuda:3" if {AVAILABLE} else "cpu"'),
        ("y.get_device()", f'y.get_device() if {AVAILABLE} else "cpu"'),
        ("where", None),
        ("pick()", None),
    ],
)  # fmt: skip
def test_the_device_that_a_call_moves_to(argument: str, device: str | None) -> None:
    assert moved_to(argument) == device


def test_a_computed_index_is_kept() -> None:
    assert moved_to("torch.cuda.current_device()") == moved_to("") == "device"
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
        ("torch.abs(y).get_device()", "torch.abs(y).device"),
        ("f(y).get_device()", None),
        ("self.get_device()", None),
        ("y.get_device(1)", None),
        ("y.get_device(a=1)", None),
        ("get_device()", None),
        ("y.get_device", None),
    ],
)
def test_the_device_of_a_tensor(code: str, device: str | None) -> None:
    context = context_of(f"import torch\ny = torch.ones(1)\nx.cuda({code})\n")
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
        ('"cuda:2"', f'x.to("cuda:2" if {AVAILABLE} else "cpu")'),
        ("2", "x.to(device2)"),
        ('torch.device("cuda")', "x.to(device)"),
        ('torch.device("cuda:2")', f'x.to("cuda:2" if {AVAILABLE} else "cpu")'),
        ("y.get_device()", f'x.to(y.get_device() if {AVAILABLE} else "cpu")'),
        ('f"cuda:{i}"', f'x.to(f"cuda:{{i}}" if {AVAILABLE} else "cpu")'),
        ("args.rank", f'x.to(args.rank if {AVAILABLE} else "cpu")'),
        ("torch.cuda.current_device()", "x.to(device)"),
        ('"cpu"', None),
        ("where", None),
    ],
)
def test_the_fix_of_a_device(code: str, new: str | None) -> None:
    assert fixed(context_of(f"import torch\n\nx.to({code})\n"), code) == new


SAFE, UNSAFE = True, False


@pytest.mark.parametrize(
    ("before", "code", "safe"),
    [
        ("gpu = 0", "gpu", SAFE),
        ("where = 0", "where", SAFE),
        ("where = 0\nif a:\n    where = 'cuda:1'", "where", SAFE),
        ("where = 0\nif a:\n    where = pick()", "where", UNSAFE),
        ("where = 0\nif a:\n    where = torch.device('mps')", "where", UNSAFE),
        ("gpus = [0, 1]", "gpus[0]", SAFE),
        ("gpu = torch.float16", "gpu", None),
        ("", "gpu", UNSAFE),
        ("", "args.local_rank", UNSAFE),
        ("p.add_argument('--local_rank', type=int)", "args.local_rank", SAFE),
        ("", "gpus[rank]", UNSAFE),
        ("", "gpus[1:]", None),
        ("", "device", None),
        ("", "f()", None),
        ("", "y.get_device()", SAFE),
        ("def get_device(): ...", "y.get_device()", None),
    ],
)
def test_the_number_of_a_gpu(before: str, code: str, safe: bool | None) -> None:
    context = context_of(f"import torch\n{before}\nx.to({code})\n")
    why = gpu_number(context, expression(context, code))
    assert (None if why is None else not why) is safe
