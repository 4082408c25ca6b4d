"""The places of new lines: above the comment of the next statement or below an import, never between."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from devicefix.facts import Facts
from devicefix.model import Import
from devicefix.rewrite.placement import Layout

NEW = "device = 1"


def block(text: str) -> str:
    return dedent(text).removeprefix("\n")


def inserted(text: str, place: tuple[int, str]) -> str:
    at, new = place
    return text[:at] + new + text[at:]


def in_function(text: str, after: int | None = None) -> str:
    """Insert a line into the first function of a module, below one of its statements."""
    facts = Facts.read(text.encode())
    function = next(node for node in facts.tree.module.body if isinstance(node, ast.FunctionDef))
    statement = None if after is None else function.body[after]
    return inserted(text, Layout(facts).line_in(function.body, statement, NEW))


def in_module(text: str) -> str:
    """Insert a line below the leading imports of a module."""
    layout = Layout(Facts.read(text.encode()))
    return inserted(text, layout.line_after(layout.leading_imports, NEW, group=True))


FUNCTIONS = {
    "at its start": ("def f():\n    x()\n", "def f():\n    device = 1\n    x()\n"),
    "above a comment": (
        "def f():\n    # one\n  # two\n    x()\n",
        "def f():\n    device = 1\n    # one\n  # two\n    x()\n",
    ),
    "below a heading": (
        "def f():\n    # heading\n\n    # one\n    x()\n",
        "def f():\n    # heading\n\n    device = 1\n    # one\n    x()\n",
    ),
    "below the types": (
        "def f(a):\n    # type: (int) -> int\n    # one\n    x()\n",
        "def f(a):\n    # type: (int) -> int\n    device = 1\n    # one\n    x()\n",
    ),
    "below a docstring": (
        'def f():\n    """A."""  # why\n    # one\n    x()\n',
        'def f():\n    """A."""  # why\n    device = 1\n    # one\n    x()\n',
    ),
    "above a decorator": (
        "def f():\n    # one\n    @d\n    def g(): pass\n",
        "def f():\n    device = 1\n    # one\n    @d\n    def g(): pass\n",
    ),
    "with tabs": ("def f():\n\t# one\n\tx()\n", "def f():\n\tdevice = 1\n\t# one\n\tx()\n"),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_line_in_a_function(name: str, newline: str) -> None:
    before, after = (text.replace("\n", newline) for text in FUNCTIONS[name])
    assert in_function(before) == after


def test_a_line_below_a_block_is_below_its_comments() -> None:
    before = "def f():\n    if a:\n        b()\n        # end\n    # one\n    x()\n"
    assert in_function(before, 0) == before.replace("    # one", "    device = 1\n    # one")


MODULES = {
    "below the imports": ("import a\nx()\n", "import a\n\ndevice = 1\n\nx()\n"),
    "above a comment": ("import a\n# one\nx()\n", "import a\n\ndevice = 1\n\n# one\nx()\n"),
    "below comments that belong to the imports": (
        "import a\n# import b\n# import c\n\nx()\n",
        "import a\n# import b\n# import c\n\ndevice = 1\n\nx()\n",
    ),
    "a cell in comments": ("import a\n# In[2]:\n\nx()\n", "import a\n\ndevice = 1\n\n# In[2]:\n\nx()\n"),
    "below a block of imports": (
        "try:\n    import a\nexcept E:\n    pass\n    # end\n# one\nx()\n",
        "try:\n    import a\nexcept E:\n    pass\n    # end\n\ndevice = 1\n\n# one\nx()\n",
    ),
    "no imports": ("x()\n", "device = 1\n\nx()\n"),
    "no imports, a comment": ("# one\nx()\n", "device = 1\n\n# one\nx()\n"),
    "a header": ("# A program\n\n# one\nx()\n", "# A program\n\ndevice = 1\n\n# one\nx()\n"),
    "an encoding": (
        "#!/bin/sh\n# coding: utf-8\n# one\nx()\n",
        "#!/bin/sh\n# coding: utf-8\ndevice = 1\n\n# one\nx()\n",
    ),
    "a licence": ("# Copyright\n# me\nx()\n", "# Copyright\n# me\ndevice = 1\n\nx()\n"),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", MODULES)
def test_a_line_in_a_module(name: str, newline: str) -> None:
    before, after = (text.replace("\n", newline) for text in MODULES[name])
    assert in_module(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import os\n# vision\nimport torchvision\n",
            "import os\nimport torch\n# vision\nimport torchvision\n",
        ),
        ("# A program\nimport torchvision\n", "# A program\nimport torch\nimport torchvision\n"),
        ("import os\nx()\n", "import os\nimport torch\nx()\n"),
        (
            "import os\n\nimport numpy\nimport typer\nfrom PIL import a\n\nfrom .a import b\n",
            "import os\n\nimport numpy\nimport torch\nimport typer\nfrom PIL import a\n\nfrom .a import b\n",
        ),
        ("from PIL import a\nfrom .a import b\n", "import torch\nfrom PIL import a\nfrom .a import b\n"),
        (
            "import numpy\nos.environ['A'] = '1'\nimport scipy\nfrom own import b\n",
            "import numpy\nos.environ['A'] = '1'\nimport scipy\nimport torch\nfrom own import b\n",
        ),
    ],
)
def test_an_import_is_beside_those_of_its_kind(before: str, after: str) -> None:
    layout = Layout(Facts.read(before.encode()), lambda name: name == "own")
    assert inserted(before, layout.import_line(Import("torch"))) == after
