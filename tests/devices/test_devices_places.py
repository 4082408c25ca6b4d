"""Where a device can be defined, and where asking for CUDA is safe."""

from __future__ import annotations

import pytest
from contexts import context_of, expression

from devicefix.devices.context import Context
from devicefix.devices.places import InsertionPoint, Places
from devicefix.facts.bound import Bound
from devicefix.facts.project import Project, ProjectFile
from devicefix.rewrite.placement import Layout

SET = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"'
IMPORTS = "import os\nimport torch\n\n"


def places(context: Context) -> Places:
    return Places(context.facts, Bound(context.facts), context.project, "m.py", Layout(context.facts))


def place(code: str, others: dict[str, str] | None = None) -> InsertionPoint | None:
    context = context_of(code, others)
    site, found = expression(context, "x.cuda()"), places(context)
    of_module = (place for place in found.of_module if found.precedes(place, site))
    return next(of_module, None) or next(found.of_function(site), None)


def line_of(found: InsertionPoint | None) -> int | None:
    """Return the line of the statement that a definition follows."""
    assert found is not None
    return found.after.lineno if found.after else None


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x.cuda()\n", None),
        ("import torch\n\nx.cuda()\n", 1),
        ('"""Doc."""\nimport torch\nimport os\n\nx.cuda()\n', 3),
        ("import os\n\nf()\nimport torch\n\nx.cuda()\n", 4),
        ("import os\n\nif f():\n    import torch\n\nx.cuda()\n", 3),
        (f"{IMPORTS}{SET}\nx.cuda()\n", 4),
        (f"{IMPORTS}if f():\n    {SET}\nx.cuda()\n", 4),
        (f"import os\n{SET}\nimport torch\n\n\ndef f(x):\n    x.cuda()\n", 3),
    ],
)
def test_a_module_defines_it_below_imports_and_settings(code: str, line: int | None) -> None:
    found = place(code)
    assert line_of(found) == line
    assert found is not None and found.function is None


@pytest.mark.parametrize("code", ["x.cuda(); import torch\n", "import torch; x.cuda()\n"])
def test_code_among_the_imports_has_no_place(code: str) -> None:
    assert place(code) is None


def test_a_function_among_the_imports_can_use_the_modules_device() -> None:
    assert line_of(place("import os\ndef f(x):\n    x.cuda()\nimport torch\n")) == 4


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("    x.cuda()\n", None),
        ("    y = 1; x.cuda()\n", None),
        (f"    {SET}\n    x.cuda()\n", 5),
        (f"    if y:\n        {SET}\n    x.cuda()\n", 5),
        (f"    {SET}\n    {SET}\n    x.cuda()\n", 6),
        (f"    x.cuda()\n    {SET}\n", "no place"),
        ("    g()\n    x.cuda()\n", 5),
        ("    x.cuda()\n    g()\n", "no place"),
        ("    h()\n    x.cuda()\n", 5),
    ],
)
def test_a_function_defines_it_where_devices_are_set_in_functions(body: str, line: int | str | None) -> None:
    found = place(f"{IMPORTS}def f(x):\n{body}\ndef g():\n    {SET}\n\ndef h():\n    g()\n")
    if line == "no place":
        assert found is None
    else:
        assert line_of(found) == line
        assert found is not None and found.function is not None and found.function.name == "f"


@pytest.mark.parametrize("call", ["choose()", "gpu.choose()", "gpu.Gpus()"])
def test_a_function_defines_it_below_the_call_of_another_file_that_sets_devices(call: str) -> None:
    other = f"def choose():\n    {SET}\n\nclass Gpus:\n    def __init__(self):\n        {SET}\n"
    code = f"{IMPORTS}import gpu\nfrom gpu import choose\n\ndef f(x):\n    {call}\n    x.cuda()\n"
    assert line_of(place(code, {"gpu.py": f"{IMPORTS}{other}"})) == 8


def test_a_function_defines_it_where_devices_are_set_only_in_a_script() -> None:
    code = f"{IMPORTS}def f(x):\n    x.cuda()\n\n\nif __name__ == '__main__':\n    {SET}\n    f(1)\n"
    found = place(code)
    assert found is not None and found.function is not None


def test_a_function_that_runs_before_the_modules_line_has_its_own() -> None:
    code = "import os\n\n\ndef f(x):\n    x.cuda()\n\n\nf(1)\nimport torch\n"
    found = place(code)
    assert found is not None and found.function is not None
    found = place(code.replace("f(1)", "g(1)"))
    assert found is not None and found.function is None


def test_a_function_can_define_it_below_its_own_import_of_torch() -> None:
    context = context_of("def f(x):\n    import torch\n    x.cuda()\n")
    found = places(context).of_function(expression(context, "x.cuda()"))
    assert [place.after and place.after.lineno for place in found] == [None, 2]


def test_a_function_on_one_line_has_no_place() -> None:
    assert place(f"{IMPORTS}def f(x): x.cuda()\n\ndef g():\n    {SET}\n") is None


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n\n\ndef f(x):\n    x.cuda()\n",
        "import torch\nfrom multiprocessing import Pool\n\n\ndef f(x):\n    x.cuda()\n\n\nPool()\n",
    ],
)
def test_a_function_defines_it_where_import_must_not_ask(code: str) -> None:
    found = place(code)
    assert found is not None and found.function is not None and found.after is None


@pytest.mark.parametrize(
    ("code", "is_safe"),
    [
        ("import torch\n\ng7('cuda')\n", True),
        (f"{IMPORTS}g7('cuda')\n{SET}\n", False),
        (f"{IMPORTS}{SET}\ng7('cuda')\n", True),
        (f"{IMPORTS}{SET}\ng7('cuda')\n{SET}\n", False),
        (f"{IMPORTS}def f(x):\n    g7('cuda')\n{SET}\n", True),
        (f"{IMPORTS}g7('cuda')\n\n\ndef f():\n    {SET}\n", False),
        (f"{IMPORTS}def f(x):\n    g7('cuda')\n    {SET}\n", False),
        (f"{IMPORTS}def f(x):\n    {SET}\n    g7('cuda')\n", True),
        (f"{IMPORTS}def f(x):\n    g7('cuda')\n\n\nf(1)\n{SET}\n", False),
        (f"{IMPORTS}def f(x):\n    g7('cuda')\n\n\n{SET}\nf(1)\n", True),
        (f"{IMPORTS}def f(x):\n    g7('cuda')\n\n\ndef g():\n    f(1)\n    {SET}\n", False),
        (f"{IMPORTS}torch.ones(2, device='cuda')\n{SET}\n", True),
        (f"{IMPORTS}torch.load(path, 'cuda')\n{SET}\n", False),
        (f"{IMPORTS}x = 2 if torch.cuda.is_available() and f('cuda') else 3\n{SET}\n", True),
        (f"{IMPORTS}def f():\n    {SET}\n\n\nif __name__ == '__main__':\n    f()\n    g7('cuda')\n", True),
        (f"{IMPORTS}def f():\n    {SET}\n\n\nif __name__ == '__main__':\n    g7('cuda')\n    f()\n", False),
    ],
)
def test_asking_before_devices_are_set_is_unsafe(code: str, is_safe: bool) -> None:
    context = context_of(code)
    assert (not places(context).why_unsafe(expression(context, "'cuda'"))) is is_safe


@pytest.mark.parametrize(
    ("site", "is_safe"),
    [
        ("def f(device='cuda'):\n    pass", False),
        ("def f(x, device=torch.device('cuda')):\n    pass", False),
        ("def f(x):\n    x.to('cuda')", True),
        ("x = torch.zeros(2, device='cuda')", True),
        ("x.to('cuda')", True),
    ],
)
def test_asking_on_import_is_unsafe_before_a_fork(site: str, is_safe: bool) -> None:
    context = context_of(f"import torch\nfrom multiprocessing import Pool\n\n\n{site}\nPool()\n")
    assert (not places(context).why_unsafe(expression(context, "'cuda'"))) is is_safe


@pytest.mark.parametrize(
    ("between", "is_safe"),
    [
        ("net.to(device)", True),
        ("", False),
        ("if net:\n        net.to(device)", False),
        ("print(len(loader))\n    net.to(device)", False),
        ("with torch.no_grad():\n        torch.ones(2)", False),
    ],
)
def test_asking_is_safe_where_the_program_starts_cuda_before_the_workers(between: str, is_safe: bool) -> None:
    context = context_of(f"""import torch
from torch.utils.data import DataLoader, Dataset
class Ones(Dataset):
    def __getitem__(self, i): return torch.ones(1).cuda()

def run(net):
    device = g7('cuda')
    loader = DataLoader(Ones(), num_workers=2)
    {between}
    for x in loader:
        net(x.to(device))
""")
    assert (not places(context).why_unsafe(expression(context, "'cuda'"))) is is_safe


@pytest.mark.parametrize(("called", "line"), [("show", None), ("start", 13), ("begin", 13)])
def test_a_function_defines_it_below_the_call_of_a_function_that_forks(called: str, line: int | None) -> None:
    code = f"""from multiprocessing import Process
import torch
def work(): torch.ones(2).cuda()
def show(): print("a")
def start(): Process(target=work).start()
def begin():
    start()
class Main:
    def run(self): begin()

def f(x):
    print(1)
    {called}()
    x.cuda()
"""
    assert line_of(place(code)) == line


def test_a_decorator_of_the_same_name_is_no_call() -> None:
    imports = "import hydra\nimport torch\nfrom multiprocessing import Pool\n\n\n"
    function = "@hydra.main(None)\ndef main(x):\n    f('cuda')\n\n\n"
    context = context_of(f"{imports}{function}if __name__ == '__main__':\n    main()\n    Pool()\n")
    assert not places(context).why_unsafe(expression(context, "'cuda'"))


def test_a_module_that_is_imported_before_devices_are_set_must_not_ask() -> None:
    main = f"import os\nimport m\n\n\ndef main():\n    {SET}\n"
    context = context_of("import torch\n\nf('cuda')\n", {"main.py": main})
    assert places(context).why_unsafe(expression(context, "'cuda'"))
    summary = ProjectFile(b"import torch\n\nf('cuda')\n", "m.py")
    alone = Places(context.facts, Bound(context.facts), Project([summary]), "m.py", Layout(context.facts))
    assert not alone.why_unsafe(expression(context, "'cuda'"))


@pytest.mark.parametrize(
    ("other", "is_safe"),
    [
        ("device = 'cuda' if torch.cuda.is_available() else 'cpu'", True),
        ("device = name or torch.cuda.is_available()", False),
        ("if name:\n    device = torch.cuda.is_available()", False),
        ("def f():\n    device = torch.cuda.is_available()", False),
    ],
)
def test_asking_on_import_again_changes_nothing(other: str, is_safe: bool) -> None:
    code = "import torch\nimport other\n\n\ndef f(device='cuda'):\n    pass\n"
    forks = "from m import f\nfrom multiprocessing import Pool\n\nPool(2, initializer=lambda: f('cuda:0'))\n"
    files = {"other.py": f"import torch\n{other}\n", "main.py": forks}
    context = context_of(code, files)
    assert (not places(context).why_unsafe(expression(context, "'cuda'"))) is is_safe
