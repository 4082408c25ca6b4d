"""Programs whose names are bound late, or elsewhere: rewritten, they run on a CPU without a NameError."""

from __future__ import annotations

import json
import linecache
import runpy
from pathlib import Path
from textwrap import dedent

import pytest
from helpers import analyze, analyze_file

pytestmark = pytest.mark.needs("torch")

PROGRAMS = {
    "devices that are set under the main guard": """
        import os
        import torch

        class Net(torch.nn.Module):
            def forward(self, x):
                return x.cuda()

        def main():
            return Net()(torch.ones(1).cuda())

        if __name__ == "__main__":
            os.environ["CUDA_VISIBLE_DEVICES"] = "0"
            main()
    """,
    "devices that are set in between": """
        import os
        import torch

        def f():
            return torch.ones(1).cuda()

        f()
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        f()
    """,
    "torch under the main guard": """
        def f(x, device="cuda"):
            return x.to(device)

        def g(x):
            return x.cuda()

        if __name__ == "__main__":
            import torch

            f(g(torch.ones(1)))
    """,
    "torch in the last line": """
        def f(x, device="cuda"):
            return x.to(device)

        def g(x):
            return x.cuda()

        import torch
        f(g(torch.ones(1)))
    """,
    "torch in a branch": """
        import sys

        if "torch" in sys.argv:
            import torch

        def f(x):
            return x.cuda()

        import torch
        f(torch.ones(1))
    """,
    "torch in a branch that each function reads": """
        try:
            import torch
        except ImportError:
            pass

        def f():
            return torch.ones(1).cuda()

        f()
    """,
    "torch below code that runs": """
        def f(make):
            return make().cuda()

        def g():
            import torch
            return torch.ones(1)

        f(g)
        import torch
        f(torch.Tensor)
    """,
    "a local import after a local device": """
        try:
            import torch
        except ImportError:
            torch = None

        def f(x):
            import torch
            return x.cuda()

        f(torch.ones(1))
    """,
    "a local import after the use": """
        import torch

        def f(x):
            y = x.cuda()
            import torch
            return y

        f(torch.ones(1))
    """,
    "a function that runs before the device": """
        import torch
        f = lambda: torch.ones(1).cuda(); f(); device = torch.device("cuda")
    """,
    "a device in a loop": """
        import torch

        for _ in range(2):
            def f():
                return torch.ones(1).cuda()

            f()
            device = torch.device("cuda")
    """,
    "an async function before the device": """
        import asyncio
        import torch

        async def f():
            return torch.ones(1).cuda()

        asyncio.run(f())
        device = torch.device("cuda")
    """,
    "a function of a branch before the device": """
        import torch

        if torch:
            def f():
                return torch.ones(1).cuda()

            f()
        try:
            class A:
                x = torch.ones(1).cuda()
        finally:
            pass
        with torch.no_grad():
            class B:
                def __init__(self):
                    self.x = torch.ones(1).cuda()

            B()
        device = torch.device("cuda")
    """,
    "a device by choice": """
        import torch

        def f(x, no_cuda):
            device = torch.device("cuda" if torch.cuda.is_available() and not no_cuda else "cpu")
            return x.cuda(), device

        f(torch.ones(1), True)
    """,
    "a device by choice of the module": """
        import torch

        flag = True
        if flag:
            device = "cpu"
        else:
            device = torch.device("cuda")

        def f(x):
            return x.cuda()

        f(torch.ones(1))
    """,
    "contextlib in a branch": """
        import torch

        if not torch:
            import contextlib

        def f(s=None):
            with torch.cuda.nvtx.range("step"):
                return torch.ones(1)

        f()
    """,
}
CAPTURES = {
    "a name": ("d", "1"),
    "a name with as": ("int() as {}", "1"),
    "a mapping": ('{{"device": {}}}', '{"device": 1}'),
    "the rest of a mapping": ("{{**{}}}", '{"a": 1}'),
    "the rest of a sequence": ("[1, *{}]", "[1, 2]"),
    "an item": ("[_, {}]", "[1, 2]"),
    "a class": ("complex(real={})", "1j"),
    "one of several": ("[{0}] | (1, {0})", "[1]"),
}


def run(folder: Path, code: str | bytes) -> None:
    """Run a program, in this process since importing torch takes long."""
    path = folder / "program.py"
    path.write_bytes(code if isinstance(code, bytes) else code.encode())
    linecache.checkcache(str(path))  # from which TorchScript reads it
    runpy.run_path(str(path), run_name="__main__")


def assert_runs(folder: Path, code: str, *, unsafe: bool = False) -> None:
    """Rewrite a program and run it on a CPU; if that takes unsafe fixes, there are no others."""
    code = dedent(code).lstrip("\n")
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA|NVTX"):
        run(folder, code)
    assert not unsafe or analyze(code, fix=True).output is None
    result = analyze(code, fix=True, unsafe_fixes=unsafe)
    assert result.output is not None
    run(folder, result.output)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what programs set."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_rewritten_program_runs(tmp_path: Path, name: str) -> None:
    assert_runs(tmp_path, PROGRAMS[name])


@pytest.mark.parametrize("place", ["before", "after", "of the module"])
@pytest.mark.parametrize("name", CAPTURES)
def test_a_captured_device_is_no_device(tmp_path: Path, name: str, place: str) -> None:
    pattern, value = CAPTURES[name]
    match = f"match {value}:\n    case {pattern.format('device')}:\n        pass\n"
    use = "torch.ones(1).cuda()\n"
    if place == "of the module":
        assert_runs(tmp_path, f"import torch\n\ndef f():\n    {use}\n{match}f()\n")
    else:
        body = use + match if place == "before" else match + use
        body = body.replace("\n", "\n    ").rstrip()
        assert_runs(tmp_path, f"import torch\n\ndef f():\n    {body}\n\nf()\n")


def test_a_notebook_defines_the_device_below_the_import_that_runs(tmp_path: Path) -> None:
    cells = [
        "import sys\nif 'torch' in sys.argv:\n    import torch",
        "x = 1",
        "import torch",
        "torch.ones(x).cuda()",
    ]
    form: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {"cells": [{**form, "source": cell} for cell in cells], "metadata": {}}
    outcome = analyze_file(json.dumps({**notebook, "nbformat": 4, "nbformat_minor": 5}), "a.ipynb", fix=True)
    assert outcome.result.output is not None
    sources = ["".join(cell["source"]) for cell in json.loads(outcome.result.output)["cells"]]
    assert sources[2].startswith("import torch\n\ndevice = ")
    run(tmp_path, "\n".join(sources))


SCRIPTED = {
    "a function": """
        @torch.jit.script
        def f(x: torch.Tensor):
            return x.cuda() + 1
    """,
    "a function with a device": """
        @torch.jit.script
        def f(x: torch.Tensor):
            return torch.zeros(1, device="cuda") + x.to("cuda")
    """,
    "a method": """
        class Net(torch.nn.Module):
            def forward(self, x):
                return self.move(x)

            def move(self, x):
                return x.cuda()

        torch.jit.script(Net())
    """,
    "a module in a module": """
        class Inner(torch.nn.Module):
            def forward(self, x):
                return x.cuda()

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()

            def forward(self, x):
                return self.inner(x)

        torch.jit.script(Net())
    """,
    "a script module": """
        class Net(torch.jit.ScriptModule):
            @torch.jit.script_method
            def forward(self, x):
                return x.cuda()

        Net()
    """,
    "an exported method": """
        class Net(torch.nn.Module):
            def forward(self, x):
                return x

            @torch.jit.export
            def move(self, x):
                return x.cuda()

        torch.jit.script(Net())
    """,
}


@pytest.mark.parametrize("name", SCRIPTED)
def test_what_torchscript_compiles_still_compiles(tmp_path: Path, name: str) -> None:
    code = f"import torch\n{dedent(SCRIPTED[name])}"
    run(tmp_path, code)
    result = analyze(code, fix=True)
    assert result.findings and all("TorchScript" in finding.message for finding in result.remaining)
    run(tmp_path, result.output or code)


def test_torch_in_another_function(tmp_path: Path) -> None:
    """The module can be used without torch, but not with the fix."""
    other = "def g(x):\n    return x.cuda()\n\n\ng(f())\n"
    code = f"def f():\n    import torch\n\n    return torch.ones(1)\n\n\n{other}"
    assert_runs(tmp_path, code, unsafe=True)
