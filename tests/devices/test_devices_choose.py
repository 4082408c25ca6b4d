"""The devices that code gets in place of CUDA, and the questions whether there are any."""

from __future__ import annotations

import ast

import pytest
from contexts import context_of, expression
from helpers import analyze

from devicefix.devices.context import Context
from devicefix.model import Definition, Import, Need, Refused

CPU_OR_CUDA = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
HERE = "torch.accelerator.current_accelerator()"
ASKED = "torch.accelerator.is_available()"


def current(context: Context) -> str:
    return context.devices.current(expression(context, "x.cuda()")).text


def definitions(context: Context, code: str = "x.cuda()") -> list[Definition]:
    """Return the definitions that the current device of a site needs."""
    needs = context.devices.current(expression(context, code)).needs
    return [need for need in needs if isinstance(need, Definition)]


def test_a_device_of_the_module_needs_nothing() -> None:
    context = context_of(f"import torch\n\ndev = {CPU_OR_CUDA}\nx.cuda()\n")
    found = context.devices.current(expression(context, "x.cuda()"))
    assert (found.text, found.needs) == ("dev", frozenset())


def test_a_new_device_is_defined() -> None:
    context = context_of("import torch\n\nx.cuda()\n")
    (new,) = definitions(context)
    assert (current(context), new.line) == ("device", f"device = {CPU_OR_CUDA}")
    assert new.after is context.facts.tree.module.body[0] and new.function is None


def test_sites_share_a_definition() -> None:
    context = context_of("import torch\n\nx.cuda()\ny.cuda()\n")
    assert definitions(context) == definitions(context, "y.cuda()")


def test_a_site_that_nothing_can_be_defined_for_gets_the_expression() -> None:
    context = context_of("import torch; x.cuda()\n")
    assert current(context) == '"cuda" if torch.cuda.is_available() else "cpu"'
    assert definitions(context) == []


def test_a_function_that_may_run_on_another_machine_asks_there() -> None:
    known = f"device = {CPU_OR_CUDA}\n"
    for code in ("", known):
        start = f"import ray\nimport torch\n\n{code}\n\n@ray.remote\ndef f(x):\n    "
        context = context_of(f"{start}x.cuda()\n")
        assert current(context) == "device"
        assert [each.function for each in definitions(context)] == [context.facts.tree.module.body[-1]]
        for inner in ("def g():\n        x.cuda()", "lambda: x.cuda()"):
            expected = '"cuda" if torch.cuda.is_available() else "cpu"'
            assert current(context_of(f"{start}{inner}\n")) == expected


def test_a_main_block_has_its_own_device_where_the_module_can_ask_for_none() -> None:
    code = (
        "import torch\nfrom multiprocessing import Pool\n\n\n"
        "def run():\n    return Pool(2)\n\n\n"
        'if __name__ == "__main__":\n    n = 3\n    x = torch.ones(n).cuda()\n    y = torch.ones(n).cuda()\n'
    )
    after = code.replace("    x =", f"    device = {CPU_OR_CUDA}\n    x =").replace(".cuda()", ".to(device)")
    output = analyze(code, fix=True).output
    assert output is not None
    assert output.decode() == after.replace("'", '"')


def test_a_function_in_which_the_name_is_taken_gets_the_expression() -> None:
    context = context_of(f"import torch\n\n\ndef f(x):\n    x.cuda()\n    device = {CPU_OR_CUDA}\n")
    assert current(context) == '"cuda" if torch.cuda.is_available() else "cpu"'


def test_quotes_are_those_of_the_file() -> None:
    context = context_of("import torch\n\nprint('a', 'b')\nx.cuda()\n")
    assert definitions(context)[0].value == CPU_OR_CUDA.replace('"', "'")


def test_an_index_is_part_of_the_name() -> None:
    context = context_of("import torch\n\nx.cuda(1)\ny.cuda(1)\n")
    found = context.devices.indexed(expression(context, "x.cuda(1)"), 1)
    (new,) = (need for need in found.needs if isinstance(need, Definition))
    assert (found.text, new.line) == (
        "device1",
        'device1 = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")',
    )


def test_an_index_of_one_place_needs_no_name() -> None:
    context = context_of("import torch\n\nx.cuda(1)\ny.cuda(10)\n")
    found = context.devices.indexed(expression(context, "x.cuda(1)"), 1)
    assert found.text == '"cuda:1" if torch.cuda.is_available() else "cpu"'


def test_a_computed_index_is_used_in_place() -> None:
    context = context_of("import torch as t\n\nx.cuda(rank)\n")
    found = context.devices.computed(expression(context, "x.cuda(rank)"), "rank")
    assert found.text == 't.device("cuda", rank) if t.cuda.is_available() else "cpu"'


def test_the_accelerator_takes_the_place_of_cuda() -> None:
    context = context_of("import torch\n\nx.cuda(1)\n", target="accelerator")
    site = expression(context, "x.cuda(1)")
    (new,) = (need for need in context.devices.current(site).needs if isinstance(need, Definition))
    assert new.value == f'{HERE} if {ASKED} else torch.device("cpu")'
    (new,) = (need for need in context.devices.indexed(site, 1).needs if isinstance(need, Definition))
    assert new.value == f'torch.device({HERE}.type, 1) if {ASKED} else torch.device("cpu")'
    index = expression(context, "1")
    found = context.devices.computed(index, "1")
    assert found.text == f'torch.device({HERE}.type, 1) if {ASKED} else "cpu"'
    assert context.devices.device_type(site) == f"{HERE}.type"


def test_the_accelerator_takes_the_place_of_cuda_in_an_expression() -> None:
    context = context_of("import torch; x.cuda(1)\n", target="accelerator")
    site = expression(context, "x.cuda(1)")
    assert context.devices.current(site).text == f'{HERE}.type if {ASKED} else "cpu"'
    assert context.devices.indexed(site, 1).text == f'f"{{{HERE}.type}}:1" if {ASKED} else "cpu"'


def test_what_only_cuda_supports_asks_for_cuda() -> None:
    context = context_of(
        'import torch\n\ntorch.cuda.nvtx.mark("a")\ntorch.cuda.synchronize()\n', target="accelerator"
    )
    own, portable = (
        expression(context, code) for code in ('torch.cuda.nvtx.mark("a")', "torch.cuda.synchronize()")
    )
    assert context.devices.available(own).text == "torch.cuda.is_available()"
    assert context.devices.available(portable).text == ASKED
    assert context.devices.available(portable, of_cuda=True).text == "torch.cuda.is_available()"


def test_a_cuda_device_is_made_the_accelerators() -> None:
    context = context_of('import torch\n\nx.to("cuda:1")\n', target="accelerator")
    found = context.devices.accelerated(expression(context, '"cuda:1"'))
    assert found is not None
    question, change = found
    assert (question.text, change('"cuda:1"')) == (ASKED, f'f"{{{HERE}.type}}:1"')
    assert context.devices.accelerated(expression(context, "x")) is None
    context = context_of('import torch\n\nx.to("cuda:1")\n')
    assert context.devices.accelerated(expression(context, '"cuda:1"')) is None


@pytest.mark.parametrize(
    ("code", "name", "needed"),
    [
        ("import torch\n\nx.cuda()\n", "torch", None),
        ("import torch as t\n\nx.cuda()\n", "t", None),
        ("x.cuda()\n", "torch", Import("torch")),
        ("torch = 1\nx.cuda()\n", "_torch", Import("torch", "_torch")),
        ("def f(torch):\n    x.cuda()\n", "_torch", Import("torch", "_torch")),
    ],
)
def test_torch_is_imported_where_it_is_missing(code: str, name: str, needed: Import | None) -> None:
    context = context_of(code)
    found = context.devices.torch(expression(context, "x.cuda()"))
    assert (found.text, found.needs) == (name, frozenset([needed] if needed else []))


def needs(code: str) -> frozenset[Need]:
    """Return what code at `x.cuda()` needs that uses `contextlib`."""
    context = context_of(code)
    return context.devices.imports("contextlib", expression(context, "x.cuda()"))


def test_a_module_is_imported_once() -> None:
    assert needs("import contextlib\n\nx.cuda()\n") == frozenset()
    assert needs("x.cuda()\n") == {Import("contextlib")}
    assert needs("x.cuda()\nimport contextlib\n") == {Import("contextlib")}


def test_a_module_whose_name_is_taken_is_refused() -> None:
    (need,) = needs("import torch\n\n\ndef f(x, contextlib):\n    x.cuda()\n")
    assert isinstance(need, Refused)


FLAG = "import torch\n\nuse = f()\n"


def flagged(code: str, flag: str = "use") -> tuple[str, list[str]] | None:
    """Return the device of a flag, and the lines that define it."""
    context = context_of(code)
    site = expression(context, "x.cuda()")
    found = context.devices.flagged(site, expression(context, flag))
    if found is None:
        return None
    return found.text, [need.line for need in found.needs if isinstance(need, Definition)]


def test_a_flags_device_is_defined_below_the_flag() -> None:
    context = context_of(f"{FLAG}if use:\n    x.cuda()\n")
    found = context.devices.flagged(expression(context, "x.cuda()"), expression(context, "use"))
    assert found is not None
    (new,) = (need for need in found.needs if isinstance(need, Definition))
    assert new.line == 'device = torch.device("cuda" if use else "cpu")'
    assert new.after is context.facts.tree.module.body[1]


@pytest.mark.parametrize(
    "code",
    [
        f"{FLAG}use = g()\nif use:\n    x.cuda()\n",
        "import torch\n\nif use:\n    x.cuda()\nuse = f()\n",
        "import torch\n\n\ndef g(use):\n    if use:\n        x.cuda()\n",
        "import torch\n\n\ndef g(x):\n    if use:\n        x.cuda()\n\n\ng(1)\nuse = f()\n",
        f"{FLAG}device = {CPU_OR_CUDA}\nif use:\n    x.cuda()\n",
    ],
)
def test_a_flag_without_a_single_definition_before_has_no_device(code: str) -> None:
    assert flagged(code) is None


def test_a_device_that_the_flag_chooses_is_used() -> None:
    code = f'{FLAG}dev = torch.device("cuda" if use else "cpu")\nif use:\n    x.cuda()\n'
    assert flagged(code) == ("dev", [])


def test_a_flag_that_is_availability_uses_the_known_device() -> None:
    code = f"import torch\n\nuse = torch.cuda.is_available()\ndevice = {CPU_OR_CUDA}\nif use:\n    x.cuda()\n"
    assert flagged(code) == ("device", [])


def test_a_second_flag_gets_no_device_of_the_same_name() -> None:
    context = context_of(f"{FLAG}other = f()\nif use:\n    x.cuda()\nif other:\n    y.cuda()\n")
    site, second = expression(context, "x.cuda()"), expression(context, "y.cuda()")
    assert context.devices.flagged(site, expression(context, "use")) is not None
    assert context.devices.flagged(second, expression(context, "other")) is None
    assert current(context) == "default_device"


def test_a_new_device_without_a_flag_leaves_none_to_a_flag() -> None:
    code = "use = f()\nany_gpu = torch.cuda.is_available()\nx.cuda()\nif use and any_gpu:\n    y.cuda()\n"
    context = context_of(f"import torch\n\n{code}")
    site, use, any_gpu = (expression(context, each) for each in ("y.cuda()", "use", "any_gpu"))
    assert current(context) == "device"
    assert context.devices.flagged(site, use) is None
    available = context.devices.flagged(site, any_gpu)
    assert available is not None and available.text == "device"


def test_a_device_of_one_flag_is_not_that_of_availability() -> None:
    code = "use = f()\nany_gpu = torch.cuda.is_available()\nif use and any_gpu:\n    y.cuda()\n"
    context = context_of(f"import torch\n\n{code}")
    site, use, any_gpu = (expression(context, each) for each in ("y.cuda()", "use", "any_gpu"))
    assert context.devices.flagged(site, use) is not None
    assert context.devices.flagged(site, any_gpu) is None


def test_safety_is_that_of_the_place() -> None:
    context = context_of('import os\nimport torch\n\nf(x)\nos.environ["CUDA_VISIBLE_DEVICES"] = "1"\n')
    assert context.devices.why_unsafe(expression(context, "f(x)"))


def device_of(code: str, call: str) -> str | None:
    """Return the definition of the device of the parameter that a call moves to, None if there is none."""
    context = context_of(code)
    node = expression(context, call)
    assert isinstance(node, ast.Call)
    found = context.devices.of_variable(node, node.args[0])
    definitions = [need for need in found.needs if isinstance(need, Definition)] if found else []
    return definitions[0].line if definitions else None


def moving(head: str, *lines: str) -> str:
    return "\n    ".join(("import torch\n\n" + head, *lines, "x.cuda(gpu)", "y.cuda(gpu)")) + "\n"


def test_a_variable_to_which_a_function_moves_twice_has_a_device() -> None:
    asked = ' if torch.cuda.is_available() else "cpu"'
    assert (
        device_of(moving("def f(gpu):"), "y.cuda(gpu)")
        == f'gpu_device = ("cuda" if gpu is None else gpu){asked}'
    )
    assert device_of(moving("def f(gpu: int):"), "x.cuda(gpu)") == f"gpu_device = gpu{asked}"
    assert device_of(moving("def f(g: int):", "gpu = g + 1"), "x.cuda(gpu)") == f"gpu_device = gpu{asked}"
    optional = device_of(moving("def f(gpu: int = None):"), "x.cuda(gpu)")
    assert optional == f'gpu_device = ("cuda" if gpu is None else gpu){asked}'


@pytest.mark.parametrize(
    "code",
    [
        moving("def f(gpu):", "gpu = gpu or 0"),
        moving("def f(gpu, gpu_device):"),
        moving("def f(gpu):", "import os", "os.environ['CUDA_VISIBLE_DEVICES'] = str(gpu)"),
        moving("def f(g):", "if g:", "    gpu = g"),
        moving("def f(gpu):", "print(locals())"),
        moving("def f(gpu):").replace("    y.cuda", "    if torch.cuda.is_available(): y.cuda"),
        "import torch\n\ndef f(gpu): x.cuda(gpu); y.cuda(gpu)\n",
    ],
)
def test_a_variable_that_changes_is_used_once_or_can_have_no_device(code: str) -> None:
    assert device_of(code, "x.cuda(gpu)") is None


def test_two_parameters_of_a_function_do_not_share_a_device() -> None:
    code = moving("def f(gpu, gpu_id):", "x.cuda(gpu_id)", "y.cuda(gpu_id)")
    context = context_of(code)
    found = []
    for call in ("x.cuda(gpu_id)", "x.cuda(gpu)"):
        node = expression(context, call)
        assert isinstance(node, ast.Call)
        found.append(context.devices.of_variable(node, node.args[0]))
    assert found[0] is not None and found[1] is None


def test_an_optional_torch_under_another_name_is_not_imported() -> None:
    imported = "try:\n    import torch as th\nexcept ImportError:\n    pass\n"
    code = f"{imported}if __name__ == '__main__':\n    n = th\n    x.cuda()\n"
    assert not any(isinstance(need, (Import, Definition)) for need in needs_of(code))


def needs_of(code: str) -> frozenset[Need]:
    context = context_of(code)
    return context.devices.current(expression(context, "x.cuda()")).needs


def test_a_script_that_imports_torch_late_keeps_doing_so() -> None:
    """The import takes long: the script reads its options first."""
    main = (
        "if __name__ == '__main__':\n    options = read()\n    import torch\n\n    x = net(options).cuda()\n"
    )
    output = analyze(f"import argparse\n\n{main}", fix=True).output
    assert output is not None
    assert output.startswith(b"import argparse\n\nif __name__")
    assert b"    import torch\n\n    device = torch.device(" in output
    in_function = analyze(f"import argparse\n\n\ndef f(x):\n    return x.cuda()\n\n\n{main}", fix=True).output
    assert in_function is not None
    assert in_function.startswith(b"import argparse\nimport torch\n\ndevice = ")


def test_torch_that_only_functions_import_is_not_imported_by_the_module() -> None:
    """The rest of the module works without torch."""
    lazy = (
        "def f(x, backend='nccl'):\n    import torch\n\n    torch.distributed.init_process_group(backend)\n"
    )
    output = analyze(f"{lazy}    return torch.ones(3, device='cuda').add(x.cuda())\n", fix=True).output
    assert output is not None
    assert output.decode() == (
        f"{lazy}    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "    return torch.ones(3, device=device).add(x.to(device))\n"
    )


def rewritten(code: str, others: dict[str, str] | None = None) -> str:
    output = analyze(code, fix=True, others=others or {}).output
    assert output is not None
    return output.decode()


ASKED_HERE = ' if torch.cuda.is_available() else "cpu"'
SHARED = """\
import torch


class Trainer:
    def __init__(self, net, rank: int):
        self.net, self.rank = net, rank
        self.net.train()

    @torch.no_grad()
    def step(self, x, y):
        print(x)
        x = x.to(self.rank)
        if y is not None:
            y = y.to(self.rank)
        return self.net(x), y


Trainer(net, rank=1)
"""


def test_a_device_that_a_function_reads_twice_has_a_name() -> None:
    new = f"        rank_device = self.rank{ASKED_HERE}\n        x = x.to(rank_device)\n"
    output = rewritten(SHARED)
    assert new in output and "y = y.to(rank_device)" in output
    once = rewritten(SHARED.replace("x = x.to(self.rank)", "pass"))
    assert f"y = y.to(self.rank{ASKED_HERE})" in once


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.net.train()", "self.step(1, 2)\n        self.rank = rank"),
        ("print(x)", "self.rank = 2"),
        ("print(x)", "rank_device = 2"),
        ("class Trainer:", "class Trainer(Base):"),
        ("@torch.no_grad()", "@wrapped"),
    ],
)
def test_a_device_that_may_change_has_none(old: str, new: str) -> None:
    assert "rank_device = self.rank" not in rewritten(SHARED.replace(old, new))


@pytest.mark.parametrize("device", ['f"cuda:{number}"', '"cuda"'])
def test_two_arguments_of_a_call_share_a_device(device: str) -> None:
    code = f"import torch\n\n\ndef f(x, number: int):\n    return g(x.to({device}), y=x.to({device}))\n"
    output = rewritten(code)
    assert output.count("is_available()") == 1 and "cuda_device" not in output


def test_a_text_with_a_format_is_read_where_it_was() -> None:
    code = 'import torch\n\n\ndef f(x, n):\n    return x.to(f"cuda:{n:d}"), x.to(f"cuda:{n:d}")\n'
    assert rewritten(code).count("is_available()") == 2


def test_a_default_and_a_move_share_a_device() -> None:
    code = (
        'import torch\n\n\ndef f(x, device="cuda"):\n    return x.to(device)\n\n\n'
        'if __name__ == "__main__":\n    f(net.to("cuda"))\n'
    )
    output = rewritten(code)
    assert f'DEFAULT_DEVICE = "cuda"{ASKED_HERE}\n' in output
    assert "device=DEFAULT_DEVICE" in output and "net.to(DEFAULT_DEVICE)" in output


def test_moves_of_both_kinds_share_the_device_of_a_number() -> None:
    """Whichever comes first, the name is bound."""
    lines = ["x.to(gpu)", "y.cuda(gpu)"]
    for order in (lines, lines[::-1]):
        code = f"import torch\n\n\ndef f(x, y, gpu: int):\n    return {', '.join(order)}\n\n\nf(1, 2, 3)\n"
        output = rewritten(code)
        assert "x.to(gpu_device)" in output and "y.to(gpu_device)" in output


def test_the_only_function_beside_a_class_with_a_device_has_its_own() -> None:
    """A reader would take a `device` of the module for the one of the object."""
    code = (
        "import torch\n\n\nclass Trainer:\n    def __init__(self, rank):\n"
        f'        self.device = torch.device(f"cuda:{{rank}}"{ASKED_HERE})\n\n'
        "    def load(self, x):\n        return x.cuda()\n"
    )
    assert "        device = torch.device(" in rewritten(code)
    assert "\ndevice = torch.device(" in rewritten(code.replace("self.device", "self.where"))


def test_what_defines_a_device_needs_no_name() -> None:
    lines = [
        f'    if x == {i}:\n        device = torch.device(f"cuda")\n        x = g(device)\n' for i in (1, 2)
    ]
    output = rewritten(f"import torch\n\n\ndef f(x):\n{''.join(lines)}    return x\n")
    assert output.count(f'device = torch.device(f"cuda"{ASKED_HERE})') == 2


def test_a_number_that_is_moved_to_and_passed_on_has_one_device_above_both() -> None:
    output = rewritten(
        "import torch\n\n\ndef noise(size, device):\n    return torch.randn(size, device=device)\n\n\n"
        "def worker():\n    rank = torch.distributed.get_rank()\n    net = Net().cuda(rank)\n"
        "    return net(noise(4, rank), torch.zeros(4, device=rank)), rank + 1\n"
    )
    assert (
        '    rank_device = rank if torch.cuda.is_available() else "cpu"\n    net = Net().to(rank_device)'
        in output
    )
    assert "noise(4, rank_device), torch.zeros(4, device=rank_device)), rank + 1" in output
