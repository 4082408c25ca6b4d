"""The number of a GPU becomes the CPU where it comes from or is kept, or else at each of its uses."""

from __future__ import annotations

from textwrap import dedent

import pytest

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile

NET = """
    import torch

    class Net:
        def __init__(self, size, device=torch.cuda.current_device()):
            self.model = torch.nn.Linear(size, size)
            self.device = device
            self.model.to(self.device)

    def move(model, device):
        return model.to(device)
"""
MAIN = "import os, torch\nfrom net import Net, move\n\n"
MOVER = """
    import torch

    class Mover:
        def __init__(self, device=0):
            self.device = device

        def move(self, x):
            return x.to(self.device)

        def zeros(self):
            return torch.zeros(2, device=self.device)
"""
USE = "from mover import Mover\n\nmover = Mover(device=0)\nprint(mover.move(x))\n"


def conditions(files: dict[str, str], first: str) -> list[str]:
    """Return the lines of a file that the safe fixes give a condition; a second run changes nothing."""
    data = {name: dedent(text).strip().encode() + b"\n" for name, text in files.items()}
    once = _fixed(data)
    assert _fixed(once) == once
    return [line.strip() for line in once[first].decode().splitlines() if "is_available()" in line]


def _fixed(data: dict[str, bytes]) -> dict[str, bytes]:
    project = Project(ProjectFile(content, name) for name, content in data.items())
    results = {
        name: check_file(content, name, Settings(fix=True), project.fresh()) for name, content in data.items()
    }
    return {name: results[name].output or content for name, content in data.items()}


DEFAULT = (
    'def __init__(self, size, device=torch.cuda.current_device() if torch.cuda.is_available() else "cpu"):'
)
AT_USE = [
    DEFAULT,
    'self.model.to(self.device if torch.cuda.is_available() else "cpu")',
]


@pytest.mark.parametrize(
    "main",
    [
        "",
        "Net(3)",
        'Net(3, torch.device("cpu"))',
        "Net(3, device=torch.cuda.current_device())",
        "rank = torch.cuda.current_device()\nx.to(rank)\nNet(3, rank)",
        "def build(where):\n    return Net(3, where)\n\n\nbuild(device)\ndevice = torch.device('cpu')",
    ],
)
def test_a_use_needs_no_fix_where_all_sources_have_one(main: str) -> None:
    assert conditions({"net.py": NET, "main.py": MAIN + main}, "net.py") == [DEFAULT]


@pytest.mark.parametrize(
    "main",
    [
        'Net(3, int(os.environ["LOCAL_RANK"]))',
        "Net(3, 0)",
        "def build(where):\n    return Net(3, where)",
        "def build(where):\n    return Net(3, where)\n\n\nbuild(0)",
        "Net(*options)",
        "Net(3, **options)",
        "builders = [Net]",
        "class Wide(Net):\n    def __init__(self, rank):\n        super().__init__(4, rank)",
        "class Wide(Net):\n    def use(self, rank):\n        self.device = int(rank)",
    ],
)
def test_a_use_is_fixed_where_a_source_may_be_a_number(main: str) -> None:
    assert conditions({"net.py": NET, "main.py": MAIN + main}, "net.py") == AT_USE


@pytest.mark.parametrize(
    "more",
    [
        "    @classmethod\n    def of(cls, rank):\n        return cls(3, int(rank))",
        "    def other(self, rank):\n        return self.__class__(3, int(rank))",
        "    def use(self, rank):\n        self.device = int(rank)",
        "class Wide(Net):\n    def __init__(self, rank):\n        super().__init__(3, int(rank))",
    ],
)
def test_a_use_is_fixed_where_the_module_itself_may_pass_a_number(more: str) -> None:
    net = dedent(NET).partition("def move")[0].rstrip() + f"\n\n{more}\n"
    assert conditions({"net.py": net}, "net.py") == AT_USE


CODER = """
    import torch

    class Coder:
        def __init__(self, size, device="cuda"):
            self.device = device
            self.net = torch.nn.Linear(size, size).to(device)
            self.scale = torch.ones(size, device=device)

        def __call__(self, x, device):
            y = x.to(device)
            return self.net(y * self.scale.to(device))

        def source(self, size, device):
            return torch.zeros(size, device=device)

    def move(xs, device):
        if isinstance(xs, torch.Tensor):
            return xs.to(device)
        return [move(x, device) for x in xs]
"""
CUDA_DEFAULT = 'def __init__(self, size, device="cuda" if torch.cuda.is_available() else "cpu"):'


def test_a_number_is_fixed_where_it_is_passed_for_what_may_be_another_device() -> None:
    others = """
        from coder import Coder, move

        def run(net, x):
            coder = Coder(4, torch.device("cpu"))
            return coder(move(coder.source(4, net.device), net.device), net.device)
    """
    main = (
        'import os, torch\nfrom coder import Coder, move\n\nrank = int(os.environ["LOCAL_RANK"])\n'
        "torch.cuda.set_device(rank)\nprint(rank + 1)\ncoder = Coder(4, device=rank)\n"
        "x = coder.source(4, rank)\nx = move([x], rank)\ny = coder(x, rank)"
    )
    files = {"coder.py": CODER, "main.py": main, "others.py": others}
    at = 'rank if torch.cuda.is_available() else "cpu"'
    assert conditions(files, "coder.py") == [CUDA_DEFAULT]
    assert conditions(files, "main.py") == [
        "if torch.cuda.is_available():",
        f"coder = Coder(4, device={at})",
        f"x = coder.source(4, {at})",
        f"x = move([x], {at})",
        f"y = coder(x, {at})",
    ]
    del files["others.py"]
    assert [line for line in conditions(files, "main.py") if at in line] == []
    assert len(conditions(files, "coder.py")) == 5


def test_all_uses_of_a_number_as_a_device_get_one_name() -> None:
    main = """
        import torch
        from coder import Coder, move

        def spread(x, gpu):
            return x.to(gpu)

        def worker(gpu, steps):
            steps.rank = 2 + gpu
            coder = Coder(4, device=gpu)
            steps.set(3, device=gpu)
            x = spread(coder.source(3, gpu), gpu)
            return coder(move(x.to(gpu), gpu), gpu)

        if __name__ == "__main__":
            torch.multiprocessing.spawn(worker, nprocs=torch.cuda.device_count())
    """
    files = {"coder.py": CODER, "main.py": main}
    once = _fixed({name: dedent(text).strip().encode() + b"\n" for name, text in files.items()})
    function = once["main.py"].decode().partition("def worker")[2]
    assert 'gpu_device = gpu if torch.cuda.is_available() else "cpu"\n' in function
    assert "2 + gpu\n" in function
    assert function.count("gpu_device") == 8
    assert function.count("is_available") == 1
    assert conditions(files, "coder.py") == [CUDA_DEFAULT]


@pytest.mark.parametrize(
    "function",
    [
        "def move(x, device):\n    return x.to(device) if device != 1 else x",
        "def move(x, device):\n    log(device)\n    return x.to(device)",
        "def move(x, rank):\n    return x.to(rank)",
        "def move(x, device):\n    print(device == 0)\n    return to(x, device)",
        "@counted\ndef move(x, device):\n    return x.to(device)",
        "def move(x, device):\n    x.device_number = device\n    return x.to(device)",
    ],
)
def test_a_function_that_may_need_the_number_gets_it(function: str) -> None:
    main = (
        'import os, torch\nfrom net import move\n\nrank = int(os.environ["LOCAL_RANK"])\nprint(rank + 1)\n'
        "y = move(x, rank)\nprint(y.device_number)"
    )
    imports = "import torch\nfrom coder import move as to\nfrom shown import counted, log\n\n"
    net = f"{imports}torch.cuda.empty_cache()\n\n{function}"
    files = {"net.py": net, "main.py": main, "coder.py": CODER}
    assert conditions(files, "main.py") == []
    assert len(conditions(files, "net.py") + conditions(files, "coder.py")) == 2


def test_the_current_gpu_of_another_file_needs_no_fix_where_it_is_used() -> None:
    main = MAIN + "device = torch.cuda.current_device()\nmove(model.to(device), device)"
    assert conditions({"net.py": NET, "main.py": main}, "net.py") == [DEFAULT]
    assert conditions({"net.py": NET, "main.py": f"{main}\nmove(model, 0)"}, "net.py") == [
        DEFAULT,
        'return model.to(device if torch.cuda.is_available() else "cpu")',
    ]


@pytest.mark.parametrize("called", ["", '\n\ndef run(net):\n    worker(net, torch.device("cpu"))'])
@pytest.mark.parametrize("parameter", ["gpu", "gpu: int"])
def test_a_use_is_fixed_where_nothing_shows_what_the_number_comes_from(called: str, parameter: str) -> None:
    main = f"import torch\n\ndef worker(net, {parameter}):\n    torch.cuda.set_device(gpu)\n    net.to(gpu)"
    assert conditions({"main.py": main + called}, "main.py") == [
        "if torch.cuda.is_available():",
        'net.to(gpu if torch.cuda.is_available() else "cpu")',
    ]


def test_an_argument_is_fixed_instead_of_its_uses() -> None:
    main = "import torch\n\ndef move(x, device):\n    return x.to(device)\n\n\nmove(x, device=0)"
    assert conditions({"main.py": main}, "main.py") == [
        'move(x, device=0 if torch.cuda.is_available() else "cpu")'
    ]


BOUND = ['self.device = device if torch.cuda.is_available() else "cpu"']
MOVED = [
    'return x.to(self.device if torch.cuda.is_available() else "cpu")',
    'return torch.zeros(2, device=self.device if torch.cuda.is_available() else "cpu")',
]


@pytest.mark.parametrize(
    "main",
    [
        "",
        "mover.zeros()",
        "def run(a):\n    return a.move(x)\n\n\nrun(mover)",
        "print(x.device.type, mover.move(x))",
        "rank = int(text)\nMover(rank).move(x)",
    ],
)
def test_an_attribute_is_fixed_where_it_is_bound(main: str) -> None:
    files = {"mover.py": MOVER, "main.py": USE + main}
    assert conditions(files, "mover.py") == BOUND
    assert conditions(files, "main.py") == []


@pytest.mark.parametrize(
    "main",
    [
        "print(mover.device + 1)",
        "if mover.device == 0:\n    print('first')",
        "mover.device = 1",
        "run(mover)",
        "vars(mover)",
        "print(mover.__dict__)",
        "class Own(Mover):\n    def first(self):\n        return self.device == 0",
        "movers = [Mover]",
    ],
)
def test_an_attribute_is_fixed_at_its_uses_where_its_objects_may_need_the_number(main: str) -> None:
    assert conditions({"mover.py": MOVER, "main.py": USE + main}, "mover.py") == MOVED


@pytest.mark.parametrize(
    "more",
    [
        "    def first(self):\n        return self.device == 0",
        "    def show(self):\n        report(self)",
        "    def change(self):\n        self.device = 1",
        "    @classmethod\n    def of(cls):\n        return keep(cls(0))",
        "class Own(Mover):\n    def seed(self):\n        return 3 + self.device",
        "mover = Mover(1)\nprint(mover.device % 2)",
    ],
)
def test_an_attribute_is_fixed_at_its_uses_where_the_module_may_need_the_number(more: str) -> None:
    mover = f"{dedent(MOVER).rstrip()}\n\n{more}\n"
    assert conditions({"mover.py": mover}, "mover.py")[:2] == MOVED


def test_an_attribute_is_fixed_at_its_uses_where_a_base_of_another_file_may_need_the_number() -> None:
    base = "class Base:\n    def first(self):\n        return self.device == 0"
    mover = MOVER.replace("import torch", "import torch\n    from base import Base").replace(
        "Mover:", "Mover(Base):"
    )
    assert conditions({"mover.py": mover, "base.py": base}, "mover.py") == MOVED
