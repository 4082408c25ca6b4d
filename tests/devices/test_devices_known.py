"""The devices that a module has already."""

from __future__ import annotations

import pytest
from contexts import context_of, expression
from helpers import analyze

from devicefix.devices.known import KnownDevices
from devicefix.facts.bound import Bound

DEVICE = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
DEFINED = f"import torch\n\ndevice = {DEVICE}\n"


def current(code: str, star_names: dict[str, bool] | None = None) -> str | None:
    context = context_of(code)
    known = KnownDevices(context.facts, Bound(context.facts), lambda: star_names or {}, lambda _: True)
    return known.current(expression(context, "x.cuda()"))


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


@pytest.mark.parametrize("code", ['device = "cuda"\n', 'kind = "cuda"\n    device = kind\n'])
def test_a_string_that_may_not_be_fixed_is_not_used(code: str) -> None:
    setter = "import os, torch\n\ndef choose():\n    os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n\n"
    function = f"{setter}def f(x):\n    {code}    {{}}\n    y = x.cuda()\n"
    for call, name in (("choose()", "default_device"), ("print()", "device")):
        context = context_of(function.format(call))
        assert context.devices.current(expression(context, "x.cuda()")).text == name


def test_a_name_that_is_bound_twice_is_known_if_both_are_such_devices() -> None:
    assert current(f"{DEFINED}device = f()\nx.cuda()\n") is None
    assert current(f'{DEFINED}if f():\n    device = "cpu"\nx.cuda()\n') is None
    assert current(f"{DEFINED}device = {DEVICE}\nx.cuda()\n") == "device"
    assert (
        current(f'import torch\n\ndevice = torch.device("cuda")\ndevice = {DEVICE}\nx.cuda()\n') == "device"
    )


def test_two_branches_of_an_if_statement_bind_one_device() -> None:
    both = 'import torch\n\nif torch.cuda.is_available():\n    device = "cuda"\nelse:\n    device = "cpu"\n'
    assert current(f"{both}x.cuda()\n") == "device"
    assert current(f"{both.replace('cpu', 'cuda:1')}x.cuda()\n") is None
    one = 'import torch\n\nif f():\n    device = "cuda"\n    device = "cpu"\n'
    assert current(f"{one}x.cuda()\n") is None


def test_other_devices_may_come_between() -> None:
    """Where they are available, the program uses them for the rest as well."""
    code = (
        "import torch\n\nif torch.cuda.is_available():\n    device = torch.device('cuda')\n"
        "elif torch.backends.mps.is_available():\n    device = torch.device('mps')\n"
        "else:\n    device = torch.device('cpu')\nx.cuda()\n"
    )
    assert current(code) == "device"
    for old, new in (
        ("torch.cuda.is_available()", "wanted"),
        ("torch.backends.mps.is_available()", "wanted"),
        ("'mps'", "'cuda'"),
        ("else:", "elif wanted:"),
        ("device = torch.device('mps')", "pass"),
    ):
        assert current(code.replace(old, new)) is None


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
        (f"import torch\n\n\ndef f(x):\n    g = lambda: x.cuda()\n    device = {DEVICE}\n", "device"),
        (f"import torch\n\n\ndef f(x):\n    g = lambda: x.cuda()\n    g()\n    device = {DEVICE}\n", None),
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
    known = KnownDevices(context.facts, Bound(context.facts), dict, lambda _: True)
    site, flag = expression(context, "x.cuda()"), expression(context, "use_gpu")
    assert list(known.chosen_by_flag(site, flag)) == ["device"]
    assert list(known.chosen_by_flag(flag, flag)) == []


CHOSEN = 'torch.device("cuda" if {} else "cpu")'


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (DEVICE, "device"),
        (CHOSEN.format("torch.cuda.device_count() > 0"), "device"),
        ('torch.device("cpu" if not torch.cuda.is_available() else "cuda")', "device"),
        (CHOSEN.format("torch.cuda.is_available() and not no_cuda"), None),
        (CHOSEN.format("torch.cuda.is_available() or wanted"), None),
        (CHOSEN.format("use_gpu"), None),
        (CHOSEN.format("torch.cuda.device_count() > 1"), None),
    ],
)
def test_a_device_that_may_be_the_cpu_by_choice_is_not_the_current_one(value: str, name: str | None) -> None:
    assert current(f"import torch\n\ndevice = {value}\nx.cuda()\n") == name


def test_a_device_by_choice_in_an_if_statement_is_not_the_current_one() -> None:
    both = "import torch\n\nif {}:\n    device = 'cpu'\nelse:\n    device = torch.device('cuda')\nx.cuda()\n"
    assert current(both.format("flag")) is None
    assert current(both.format("not torch.cuda.is_available()")) == "device"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("if use:\n    x.cuda()\n", "device"),
        ("if use:\n    pass\nelse:\n    x.cuda()\n", None),
        ("y = x.cuda() if use else x\n", "device"),
        ("if other:\n    x.cuda()\n", None),
        ("use = g()\nif use:\n    x.cuda()\n", None),
    ],
)
def test_a_device_by_choice_is_the_current_one_where_the_choice_is_cuda(code: str, name: str | None) -> None:
    assert current(f"import torch\n\nuse = f()\ndevice = {CHOSEN.format('use')}\n{code}") == name


OWN = """\
import torch


class Trainer:
    def __init__(self, net):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.net = net

    def step(self, x):
        return self.net(x, torch.ones(2).cuda())
"""


def moved(source: str, **others: str) -> str:
    """Return where the fix moves the tensor of `OWN`, beside other files."""
    files = {f"{name}.py": text for name, text in others.items()}
    output = analyze(source, fix=True, others=files).output
    assert output is not None
    return output.decode().rpartition(".to(")[2].partition(")")[0]


def test_an_object_has_its_device() -> None:
    assert moved(OWN, use="from module import Trainer\nTrainer(net).step(x)\n") == "self.device"
    assert moved(OWN.replace("__init__(self, net)", "__init__(self, net, device=None)")) == "self.device"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.net = net", 'self.device = net.device if net else "cpu"'),
        ("self.net = net", "self.net = net\n        net.device = None"),
        ("self.net = net", "self.net = net\n        setattr(self, net, None)"),
        ("self.net = net", "self.net = net\n        self.__dict__.update(net)"),
        ("self.device =", "self.step(net)\n        self.device ="),
        ("def step(self, x)", "@staticmethod\n    def step(self, x)"),
        ("class Trainer:", "class Trainer(Base):"),
        ("def step(self, x):", "def step(self, x):\n        self = x"),
        ("        self.device", "        if net:\n            self.device"),
    ],
)
def test_an_attribute_that_may_be_another_device(old: str, new: str) -> None:
    assert moved(OWN.replace(old, new)) != "self.device"


@pytest.mark.parametrize(
    "other",
    [
        'def use(trainer):\n    trainer.device = "cpu"\n',
        'def use(trainer):\n    setattr(trainer, "device", "cpu")\n',
        "from module import Trainer\nclass Mine(Trainer):\n    pass\n",
        "from module import Trainer\nfor name in names:\n    setattr(trainer, name, None)\n",
    ],
)
def test_an_attribute_that_another_file_sets(other: str) -> None:
    assert moved(OWN, other=other) != "self.device"


def test_an_accelerator_that_may_be_none_has_no_type() -> None:
    """Without one, `x.to(None)` moves nothing, but None has no `type`."""
    device = "torch.accelerator.current_accelerator()"
    for value, name in (
        (device, None),
        (f"{device} if torch.accelerator.is_available() else torch.device('cpu')", "device.type"),
    ):
        context = context_of(f"import torch\n\ndevice = {value}\nx.cuda()\n")
        known = KnownDevices(context.facts, Bound(context.facts), dict, lambda _: True)
        assert known.name_of_current(expression(context, "x.cuda()")) == name
