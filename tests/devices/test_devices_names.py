"""One name for a device in a file, where another variable has the name `device`."""

from __future__ import annotations

import pytest
from helpers import analyze

TORCH = "import torch\n\n"
CHOICE = '"cuda" if torch.cuda.is_available() else "cpu"'
DEVICE = f"device = torch.device({CHOICE})\n"
DEFAULT = f"default_device = torch.device({CHOICE})\n"
CONSTANT = f"DEFAULT_DEVICE = {CHOICE}\n"
TAKEN = (
    'def g(device, x):\n    x.to(device, "cuda:1")\n\n\n'  # `device` means something else in code for CUDA
)


def rewritten(code: str, others: dict[str, str] | None = None) -> str:
    output = analyze(code, fix=True, others=others).output
    assert output is not None
    again = analyze(output, fix=True, others=others).output
    assert again is None
    return output.decode()


def test_one_site_gets_the_condition() -> None:
    new = rewritten(f"{TORCH}\n{TAKEN}def f(x):\n    return x.cuda()\n")
    assert new.endswith(f"def f(x):\n    return x.to({CHOICE})\n") and "default_device" not in new


def test_an_unsafe_site_does_not_count() -> None:
    unsafe = "with torch.cuda.amp.autocast(dtype=x.dtype):\n    pass\n"
    new = rewritten(f"{TORCH}\nif f():\n    device = g()\nx.cuda()\n{unsafe}")
    assert new.endswith(f"x.to({CHOICE})\n{unsafe}") and "default_device" not in new


def test_several_sites_of_a_function_share_a_local() -> None:
    new = rewritten(f"{TORCH}\n{TAKEN}def f(x, y):\n    return x.cuda() + y.cuda()\n")
    assert new.endswith(f"def f(x, y):\n    {DEVICE}    return x.to(device) + y.to(device)\n")


def test_sites_of_several_functions_share_a_global_of_the_plain_name() -> None:
    sites = "def f(x):\n    return x.cuda()\n\n\ndef h(x):\n    return x.cuda()\n"
    annotated = "import module, torch\n\ndef f(\n    device: torch.device = torch.device(0),\n): pass\n"
    new = rewritten(f"{TORCH}\n{TAKEN}{sites}", {"a.py": annotated})
    assert new.startswith(f"{TORCH}{DEVICE}") and new.endswith(sites.replace("cuda()", "to(device)"))


@pytest.mark.parametrize(
    ("taken", "others"),
    [
        ("def f(device, x):\n    return x.cuda()\n\n\n", None),
        (f"{TAKEN}device = f()\n", None),
        (TAKEN, {"a.py": 'import module\n\nmodule.device = "cpu"\n'}),
    ],
)
def test_a_plain_name_that_means_something_else_is_not_taken(
    taken: str, others: dict[str, str] | None
) -> None:
    sites = "def h(x):\n    return x.cuda()\n\n\ndef i(x):\n    return x.cuda()\n"
    new = rewritten(f"{TORCH}\n{taken}{sites}", others)
    assert new.startswith(f"{TORCH}{DEFAULT}") and new.endswith(sites.replace("cuda()", "to(default_device)"))


def test_a_default_and_arguments_share_a_constant() -> None:
    code = 'class A:\n    def f(self, device="cuda"):\n        return torch.ones(3, device=device)\n\n\n'
    used = 'A().f(device="cuda")\n'
    new = rewritten(f"{TORCH}\n{code}{used}")
    expected = (code + used).replace('"cuda"', "DEFAULT_DEVICE")
    assert new == f"{TORCH}{CONSTANT}\n\n{expected}"


def test_a_field_and_what_sees_only_the_plain_name_share_a_constant() -> None:
    field = 'class A(BaseModel):\n    device: str = "cuda"\n\n\n'
    used = (
        'def f(path):\n    return torch.ones(3, device="cuda") + load(path, device="cuda").to(A().device)\n'
    )
    new = rewritten(f"{TORCH}from pydantic import BaseModel\n\n\n{field}{used}")
    assert new.endswith((field + used).replace('"cuda"', "DEFAULT_DEVICE")) and CONSTANT in new


def test_a_variable_of_the_module_that_is_a_rank_has_one_device() -> None:
    start = f"{TORCH}rank = torch.distributed.get_rank()\n"
    sites = "print(rank == 0)\n\n\ndef f(x):\n    return x.to(rank)\n\n\nprint(f(x), x.to(rank))\n"
    new = rewritten(start + sites)
    rank_device = 'rank_device = rank if torch.cuda.is_available() else "cpu"\n'
    assert new == start + rank_device + sites.replace("to(rank)", "to(rank_device)")


@pytest.mark.parametrize(
    ("code", "others"),
    [
        ("rank = torch.distributed.get_rank()\nif f():\n    rank = 0\n", None),
        ("rank_device = 0\nrank = torch.distributed.get_rank()\n", None),
        ("rank = torch.distributed.get_rank()\n", {"a.py": "import module\n\nmodule.rank = 1\n"}),
        ("import ray\n\nrank = torch.distributed.get_rank()\n", None),
    ],
)
def test_a_variable_of_the_module_that_is_set_again_has_no_device(
    code: str, others: dict[str, str] | None
) -> None:
    code = f"{TORCH}{code}print(rank == 0)\n\n\ndef f(x):\n    return x.to(rank) + x.to(rank)\n"
    new = rewritten(code, others)
    assert "rank_device = rank" not in new and "rank if torch.cuda.is_available()" in new


def test_a_device_is_defined_inside_the_block_that_sets_the_environment() -> None:
    start = "import os\nimport torch\n\n\ndef f(x):\n    with open(x) as file:\n        os.environ"
    start += '["CUDA_VISIBLE_DEVICES"] = file.read()\n'
    sites = "        for y in x:\n            y.cuda()\n            z = y.cuda()\n"
    new = rewritten(start + sites)
    assert new == f"{start}        {DEVICE}{sites.replace('cuda()', 'to(device)')}"
