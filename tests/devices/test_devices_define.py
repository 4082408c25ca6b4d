"""The names of new devices, and the edits that define them."""

from __future__ import annotations

import ast

import pytest
from contexts import context_of, expression
from helpers import analyze, apply

from devicefix.devices.context import Context
from devicefix.devices.define import Definitions
from devicefix.devices.known import KnownDevices
from devicefix.facts.bound import Bound
from devicefix.model import Definition, Import, Need
from devicefix.rewrite.placement import Layout


def definitions(context: Context) -> Definitions:
    known = KnownDevices(
        context.facts, Bound(context.facts), lambda: context.project.star_names("m.py"), lambda _: True
    )
    return Definitions(context.facts, context.project, "m.py", Layout(context.facts), known)


def function_of(context: Context) -> ast.FunctionDef:
    return next(node for node in context.facts.tree.module.body if isinstance(node, ast.FunctionDef))


def inserted(context: Context, found: Definitions, *needs: Need) -> str:
    return apply(context.source.text, found.insertions(frozenset(needs)))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("x.cuda()\n", "device"),
        ("device = 1\nx.cuda()\n", "default_device"),
        ("device = default_device = 1\nx.cuda()\n", "_device"),
        ("def f():\n    global device\n    x.cuda()\n", "default_device"),
        ("print(device)\nx.cuda()\n", "default_device"),
        ("def f(device):\n    return device\n\n\nx.cuda()\n", "device"),
        ("f = lambda device: x.cuda()\n", "default_device"),
        ("xs = [x.cuda() for device in range(2)]\n", "default_device"),
        ("f = lambda device: x\nx.cuda()\n", "device"),
        ("def f(device):\n    return x.cuda()\n", "default_device"),
    ],
)
def test_a_module_gets_the_first_name_that_is_free(code: str, name: str) -> None:
    assert definitions(context_of(code)).name == name


def test_a_name_that_a_star_import_binds_is_not_free() -> None:
    found = definitions(
        context_of("from other import *\n\nx.cuda()\n", {"other.py": "import torch\n\ndevice = 1\n"})
    )
    assert found.name == "default_device"


def test_a_name_that_a_star_import_would_carry_away_is_not_free() -> None:
    code = "import torch\n\nx.cuda()\n"
    others = {"other.py": "import torch\nfrom m import *\n\ndevice = 1\n"}
    assert definitions(context_of(code, others)).name == "default_device"
    others = {"other.py": "import torch\nimport m\n\ndevice = 1\n"}
    assert definitions(context_of(code, others)).name == "device"


def test_a_function_gets_a_name_that_is_free_in_it() -> None:
    context = context_of("device = 1\n\n\ndef f(x):\n    return x.cuda()\n")
    assert definitions(context).name_in(function_of(context)) == "device"
    context = context_of("def f(x):\n    return [device for device in x.cuda()]\n")
    assert definitions(context).name_in(function_of(context)) == "default_device"
    context = context_of("def f(x):\n    return x.cuda() if device else x\n")
    assert definitions(context).name_in(function_of(context)) == "default_device"


def test_a_local_name_shadows_the_modules_device() -> None:
    context = context_of("def f(device):\n    return device\n\n\ndef g(y):\n    y.cuda()\n")
    found = definitions(context)
    assert found.is_shadowed(expression(context, "device"))
    assert not found.is_shadowed(expression(context, "y.cuda()"))


def test_a_name_that_a_flag_chooses_is_not_that_of_another_device() -> None:
    context = context_of("x.cuda()\n")
    found, site = definitions(context), expression(context, "x.cuda()")
    assert found.name_without_flag(site) == "device"
    found.add(Definition("device", "1", flag="use_gpu"))
    assert found.name_without_flag(site) == "default_device"
    assert found.name == "device"


def test_a_name_with_a_number_is_free_as_well() -> None:
    code = "device1 = 5\n\n\ndef f(default_device1=3):\n    return x.cuda(1)\n"
    context = context_of(code)
    found, site = definitions(context), expression(context, "x.cuda(1)")
    assert found.name_without_flag(site, "0") == "device0"
    assert found.name_without_flag(site, "1") == "_device1"
    assert found.name_in(function_of(context), "1") == "device1"


def test_a_class_that_binds_the_name_later_shadows_it() -> None:
    context = context_of("import torch\n\n\nclass A:\n    y = x.cuda()\n    device = 'cuda'\n")
    assert definitions(context).name_without_flag(expression(context, "x.cuda()")) is None


def test_a_name_is_defined_once() -> None:
    context = context_of("def f(x):\n    return x.cuda()\n")
    found = definitions(context)
    first = found.add(Definition("device", "1"))
    assert found.add(Definition("device", "2")) is first
    assert found.add(Definition("device", "2", flag="use_gpu")) is not first
    local = found.add(Definition("device", "2", function=function_of(context)))
    assert found.of_name("device")[0] is first and found.of_name("device")[-1] is local
    assert found.of_name("device1") == []


def test_imports_come_before_definitions_and_both_in_order() -> None:
    context = context_of("x.cuda()\n")
    found = definitions(context)
    second, first = (found.add(Definition(name, "1")) for name in ("device1", "device"))
    needs = (first, second, Import("torch"), Import("contextlib"))
    expected = "import contextlib\nimport torch\n\ndevice1 = 1\n\ndevice = 1\nx.cuda()\n"
    assert inserted(context, found, *needs) == expected


def test_only_the_first_definition_is_set_off_from_the_imports() -> None:
    context = context_of("import torch\nx.cuda()\n")
    found = definitions(context)
    after = context.facts.tree.module.body[0]
    needs = [found.add(Definition(name, "1", after)) for name in ("device", "device1")]
    assert inserted(context, found, *needs) == "import torch\n\ndevice = 1\n\ndevice1 = 1\nx.cuda()\n"
    assert inserted(context, found, needs[1]) == "import torch\n\ndevice1 = 1\n\nx.cuda()\n"


def test_a_definition_is_indented_as_its_function() -> None:
    context = context_of('def f(x):\n  """Doc."""\n  return x.cuda()\n')
    found = definitions(context)
    new = found.add(Definition("device", "1", function=function_of(context)))
    assert inserted(context, found, new) == 'def f(x):\n  """Doc."""\n  device = 1\n  return x.cuda()\n'


def test_what_no_fix_needs_is_not_inserted() -> None:
    found = definitions(context_of("x.cuda()\n"))
    found.add(Definition("device", "1"))
    assert found.insertions(frozenset()) == []


def test_an_import_is_a_line() -> None:
    assert Import("torch").line == "import torch"
    assert Import("torch", "_torch").line == "import torch as _torch"


def test_a_definition_in_a_function_is_above_the_first_statement_that_may_need_it() -> None:
    before = """import os, torch


class Net(torch.nn.Module):
    def __init__(self, n):
        \"\"\"Make it.\"\"\"
        super().__init__()
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        if n == 0:
            return
        # two of them
        for _ in range(n):
            self.x = torch.zeros(2).cuda()
        self.y = torch.ones(2).cuda()
"""
    output = analyze(before, fix=True).output
    assert output is not None
    assert output.decode() == before.replace(".cuda()", ".to(device)").replace(
        "        # two",
        '        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n        # two',
    )
