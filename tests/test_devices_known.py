"""The devices that a module has already."""

from __future__ import annotations

import pytest
from contexts import context_of, expression

from devicefix.devices.known import KnownDevices

DEVICE = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
DEFINED = f"import torch\n\ndevice = {DEVICE}\n"


def current(code: str, star_names: dict[str, bool] | None = None) -> str | None:
    context = context_of(code)
    return KnownDevices(context.facts, star_names or {}).current(expression(context, "x.cuda()"))


@pytest.mark.parametrize(
    "value",
    [
        DEVICE,
        '"cuda" if torch.cuda.is_available() else "cpu"',
        'torch.device("cuda")',
        '"cuda"',
        "torch.accelerator.current_accelerator()",
    ],
)
def test_a_name_of_the_current_device_is_known(value: str) -> None:
    assert current(f"import torch\n\ndevice = {value}\nx.cuda()\n") == "device"


@pytest.mark.parametrize("value", ['torch.device("cuda:1")', '"cpu"', "torch.device(name)", "1"])
def test_another_value_is_not_the_current_device(value: str) -> None:
    assert current(f"import torch\n\ndevice = {value}\nx.cuda()\n") is None


def test_a_string_counts_only_under_the_name_of_a_device() -> None:
    assert current('import torch\n\nkind = "cuda"\nx.cuda()\n') is None
    assert current('import torch\n\nkind = torch.device("cuda")\nx.cuda()\n') == "kind"


def test_a_name_that_is_bound_twice_is_not_known() -> None:
    assert current(f"{DEFINED}device = f()\nx.cuda()\n") is None
    assert current(f"{DEFINED}device = {DEVICE}\nx.cuda()\n") is None


def test_two_branches_of_an_if_statement_bind_one_device() -> None:
    both = 'import torch\n\nif torch.cuda.is_available():\n    device = "cuda"\nelse:\n    device = "cpu"\n'
    assert current(f"{both}x.cuda()\n") == "device"
    assert current(f"{both.replace('cpu', 'cuda')}x.cuda()\n") is None
    one = 'import torch\n\nif f():\n    device = "cuda"\n    device = "cpu"\n'
    assert current(f"{one}x.cuda()\n") is None


def test_device_is_preferred() -> None:
    assert current(f"import torch\n\ndev = {DEVICE}\ndevice = {DEVICE}\nx.cuda()\n") == "device"
    assert current(f"import torch\n\ndev = {DEVICE}\ngpu = {DEVICE}\nx.cuda()\n") == "dev"


def test_the_innermost_scope_comes_first() -> None:
    local = f"{DEFINED}\n\ndef f(x):\n    dev = {DEVICE}\n    x.cuda()\n"
    assert current(local) == "dev"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (f"{DEFINED}x.cuda()\n", "device"),
        (f"import torch\n\nx.cuda()\ndevice = {DEVICE}\n", None),
        (f"import torch\n\nif f():\n    device = {DEVICE}\nx.cuda()\n", None),
        (f"import torch\n\nif f():\n    device = {DEVICE}\n    x.cuda()\n", "device"),
        (f"{DEFINED}\n\ndef f(x):\n    x.cuda()\n", "device"),
        (f"{DEFINED}\n\ndef f(x, device):\n    x.cuda()\n", None),
        (f"{DEFINED}\n\ndef f(x):\n    global device\n    x.cuda()\n", None),
        (f"import torch\n\n\ndef f(x):\n    x.cuda()\n\n\ndevice = {DEVICE}\nf(1)\n", "device"),
        (f"import torch\n\n\ndef f(x):\n    x.cuda()\n\n\nf(1)\ndevice = {DEVICE}\n", None),
        (f"import torch\n\n\ndef f(x):\n    device = {DEVICE}\n    return lambda: x.cuda()\n", "device"),
        (f"import torch\n\n\ndef f(x):\n    g = lambda: x.cuda()\n    device = {DEVICE}\n", None),
    ],
)
def test_a_site_sees_only_what_is_bound_before(code: str, name: str | None) -> None:
    assert current(code) == name


def test_a_star_import_brings_a_device() -> None:
    names = {"other": False, "device": True}
    assert current("from other import *\n\nx.cuda()\n", names) == "device"
    assert current("from other import *\n\ndevice = 1\nx.cuda()\n", names) is None


def test_a_devices_flag_is_known() -> None:
    code = 'import torch\n\ndevice = torch.device("cuda" if use_gpu else "cpu")\nother = "cuda"\nx.cuda()\n'
    context = context_of(code)
    known = KnownDevices(context.facts, {})
    assert list(known.chosen_by_flag(expression(context, "x.cuda()"))) == [("device", "use_gpu")]
    assert list(known.chosen_by_flag(expression(context, "use_gpu"))) == []


def test_statements_in_a_block_around_a_site_precede_it() -> None:
    context = context_of("a = 1\nif f():\n    b = 1\n    y.cuda()\nx.cuda()\n")
    known = KnownDevices(context.facts, {})
    first, branch, _ = context.facts.tree.module.body
    inner = next(iter(getattr(branch, "body", [])))
    assert known.precedes(first, expression(context, "y.cuda()"))
    assert known.precedes(inner, expression(context, "y.cuda()"))
    assert not known.precedes(inner, expression(context, "x.cuda()"))
    assert not known.precedes(branch, expression(context, "y.cuda()"))


def test_the_first_use_of_a_local_function_is_known() -> None:
    code = "def f():\n    g()\n\n\ndef g():\n    pass\n\n\nh()\nx = [f]\ng()\n"
    assert KnownDevices(context_of(code).facts, {}).first_local_call == 10
    assert KnownDevices(context_of("h()\n").facts, {}).first_local_call > 2
