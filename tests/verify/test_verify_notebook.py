"""End-to-end tests of `devicefix verify` with notebooks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from running import NET, ProgramFolder


def write(folder: ProgramFolder, *cells: str, **metadata: object) -> None:
    """Write a notebook; a cell that starts with `#md` is no code."""
    found: list[dict[str, object]] = []
    for text in cells:
        cell: dict[str, object] = {"source": text.splitlines(keepends=True), "metadata": {}}
        if text.startswith("#md"):
            found.append({**cell, "cell_type": "markdown"})
        else:
            found.append({**cell, "cell_type": "code", "outputs": [], "execution_count": None})
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": found}
    (folder.path / "nb.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


CELLS = [
    "#md A notebook",
    "%matplotlib inline\nimport torch\nimport net",
    "%%writefile helper.py\nimport os\nplace = os.getcwd()",
    "files = !echo one\nassert files == ['one'], files\n!echo two\n!echo three \\\n  four\nnet.make();",
    "def move(x):\n    # a comment\n    y = x.cuda()\n    return y",
    "import asyncio\nawait asyncio.sleep(0)\nmove(torch.full((2,), 7.0))",
    "move(torch.full((2,), 8.0));",
    "%time z = torch.ones(2).cuda()",
    "%%time\nw = torch.ones(3).cuda()",
    "import os, sys, helper\nassert sys.argv[1:] == ['--x', '1']",
    "assert sys.path[0] == '' and helper.place == os.getcwd()",
    "class Kept: pass\nimport pickle\npickle.loads(pickle.dumps(Kept()))\nassert __name__ == '__main__'",
    "assert get_ipython().user_ns['z'] is z",
    "import inspect\nassert 'x.cuda()' in inspect.getsource(move)",
]


@pytest.mark.needs("IPython")
def test_the_cells_of_a_notebook_run_rewritten(folder: ProgramFolder) -> None:
    folder.write(net=NET)
    write(folder, *CELLS)
    done = folder.verify("--scratch", "nb.ipynb", "--x", "1")
    assert done.status == 0, (done.report["reason"], done.errors)
    ran = {(Path(place["file"]).name, place["line"]) for place in done.run["ran"]}
    assert ran == {("net.py", 5), ("nb.ipynb:cell 5", 3), ("nb.ipynb:cell 8", 1), ("nb.ipynb:cell 9", 2)}
    assert done.run["not_run"] == []
    assert "tensor([7., 7.])" in done.errors and "tensor([8., 8.])" not in done.errors
    assert "two\n" in done.errors and "three" in done.errors
    assert sorted(os.listdir(folder.path)) == ["nb.ipynb", "net.py"]


def test_a_library_that_asks_for_ipython(folder: ProgramFolder) -> None:
    """`get_ipython` is only there if IPython is, as for a plain Python: libraries ask for it."""
    probe = "try:\n    found = str(get_ipython())\nexcept NameError:\n    found = 'a plain Python'\n"
    folder.write(lib=f"import sys\nsys.modules['IPython'] = None\n{probe}")
    write(folder, "import lib\nassert lib.found == 'a plain Python'", "get_ipython()")
    done = folder.verify("nb.ipynb")
    assert done.report["reason"].startswith("ModuleNotFoundError: `get_ipython()` needs IPython"), done.errors


@pytest.mark.parametrize(
    ("last", "reason", "line"),
    [
        ("x = 1\n\nmissing(x)", "NameError: name 'missing' is not defined", 3),
        ("x = 1\nprint 'x'", "SyntaxError: Missing parentheses", 2),
        ("import sys\n!echo \\\n  x\n1 / 0", "ModuleNotFoundError: `!echo", 2),
    ],
)
def test_a_failure_is_reported_by_cell_and_line(
    last: str, reason: str, line: int, folder: ProgramFolder
) -> None:
    write(folder, "#md", "import sys\nsys.modules['IPython'] = None", "def f():\n    pass", last)
    done = folder.verify("nb.ipynb")
    assert done.status == 1 and done.report["reason"].startswith(reason), (done.report, done.errors)
    frame = done.run["failure"]["frames"][-1]
    assert (Path(frame["file"]).name, frame["line"]) == ("nb.ipynb:cell 4", line)
    assert f'nb.ipynb:cell 4", line {line}' in done.errors and last.splitlines()[line - 1] in done.errors


def test_lines_behind_a_long_command_are_right(folder: ProgramFolder) -> None:
    write(folder, "%time (\\\n 1)\n%load_ext \\\n  autoreload\nx = 1\n1 / 0")
    frame = folder.verify("nb.ipynb").run["failure"]["frames"][-1]
    assert (Path(frame["file"]).name, frame["line"]) == ("nb.ipynb:cell 1", 6)


def test_a_remaining_request_in_a_cell(folder: ProgramFolder) -> None:
    write(folder, "import torch", "\nx = torch.ones(1)\nx.cuda()")
    done = folder.verify("--ignore", "DF101", "nb.ipynb")
    assert (done.status, done.requests()) == (1, [("nb.ipynb:cell 2", 3, 1)])


@pytest.mark.slow
def test_a_notebook_is_compared(folder: ProgramFolder) -> None:
    write(folder, "import torch\nx = torch.randn(3).cuda()", "print(x.sum().item())", "x")
    done = folder.verify("--compare", "nb.ipynb", process=True)
    assert done.status == 0, (done.report, done.errors)
    assert done.report["comparison"]["observations"] >= 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1", "nb.ipynb:1: the notebook is not valid JSON"),
        ("{}", "nb.ipynb:1: this is not a Jupyter notebook"),
        (
            '{"nbformat": 4, "metadata": {"kernelspec": {"language": "R"}}, "cells": []}',
            "nb.ipynb:1: the notebook's language is R",
        ),
    ],
)
def test_what_is_no_notebook_with_python_is_an_error(
    content: str, message: str, folder: ProgramFolder
) -> None:
    (folder.path / "nb.ipynb").write_text(content)
    done = folder.verify("nb.ipynb")
    assert done.status == 2 and message in done.errors and "Traceback" not in done.errors
