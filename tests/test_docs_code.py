"""Code in Markdown and reStructuredText: rewritten inside of its blocks, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import Cli, Git, analyze_file
from hypothesis import given, settings
from hypothesis import strategies as st

from devicefix.config.settings import Settings
from devicefix.files.markdown import Docs
from devicefix.model import Outcome, Result

DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
CODE = ["import torch", "", "def f(x):", "    return x.cuda()"]
FIXED = ["import torch", "", DEVICE, "", "def f(x):", "    return x.to(device)"]


def look(text: str, path: str = "a.md", **options: Any) -> Outcome:
    return analyze_file(text, path, **options)


def rewritten(text: str, path: str = "a.md") -> str:
    output = look(text, path, fix=True).result.output
    after = text if output is None else output.decode(errors="surrogateescape")
    assert look(after, path, fix=True).result.output is None
    return after


def block(before: str, code: list[str], after: str, prefix: str) -> str:
    lines = (f"{prefix}{line}" if line else prefix.rstrip() for line in code)
    return "\n".join([before, *lines, after, ""])


MARKDOWN = [
    ("x.cuda()\n\n```python", "```\nx.cuda()", ""),
    ("```py title='x.py'", "```", ""),
    ("``` python3", "````\nmore", ""),
    ("~~~~ Python", "~~~~~", ""),
    ("```{.python .numberLines}", "```", ""),
    ("``` { .py .annotate }", "```", ""),
    ("```{code-block} python\n:caption: x\n:linenos:", "```", ""),
    ("- item\n\n  ```python", "  ```\n- more", "  "),
    ("1. ```python", "   ```", "   "),
    ('!!! note\n\n    === "Tab"\n\n        ```python', "        ```", "        "),
    ("\t~~~python", "\t~~~", "\t"),
    ("> > ```python", "> > ```\n> x", "> > "),
    ("````markdown\n```python\nx.cuda()\n```\n````\n```python", "```", ""),
    ("```python\n>>> x.cuda()\n```\n```python", "```", ""),
    ("é `x` ```python x.cuda()```\n\n```python", "```\n\udcff", ""),
]
RST = [
    ("x::\n\n    x.cuda()\n\n.. code-block:: python\n", "\nx.cuda()", "    "),
    (".. code:: py\n   :number-lines:\n   :name: x\n\n", "", "   "),
    ("- item\n\n  .. sourcecode:: python3\n\n", "\n  x.cuda()", "     "),
    (".. code-block:: python\n", "\n.. code-block:: bash\n\n    x.cuda()", "\t"),
    (".. code-block:: python\nx\n\n.. Code-Block:: Python\n\n", "x", " "),
]
BLOCKS = [("a.md", *each) for each in MARKDOWN] + [("a.rst", *each) for each in RST]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("path, before, after, prefix", BLOCKS)
def test_a_block_is_rewritten(path: str, before: str, after: str, prefix: str, newline: str) -> None:
    text, fixed = (block(before, code, after, prefix).replace("\n", newline) for code in (CODE, FIXED))
    assert rewritten(text, path) == fixed
    (finding,) = look(text, path).result.findings
    line = fixed.split(newline).index(f"{prefix}    return x.to(device)") - 1
    assert (finding.line, finding.column) == (line, len(prefix) + 12)


@pytest.mark.parametrize("path, before, after, prefix", BLOCKS)
def test_replacements_make_what_a_rewrite_does(path: str, before: str, after: str, prefix: str) -> None:
    text, fixed = (block(before, code, after, prefix) for code in (CODE, FIXED))
    (finding,) = look(text, path, replacements=True).result.findings
    assert finding.fix is not None
    lines = text.splitlines(keepends=True)
    for each in sorted(finding.fix.replacements, key=lambda each: each.line, reverse=True):
        head, tail = lines[each.line - 1][: each.column - 1], lines[each.end_line - 1][each.end_column - 1 :]
        lines[each.line - 1 : each.end_line] = [head + each.text + tail]
    assert "".join(lines) == fixed


@pytest.mark.parametrize(
    "path, text",
    [
        ("a.md", "```\nx.cuda()\n```\n"),
        ("a.md", "```pycon\n>>> x.cuda()\n```\n"),
        ("a.md", "```python-repl\nx.cuda()\n```\n"),
        ("a.md", "```bash\npython train.py # x.cuda()\n```\n"),
        ("a.md", "```python\nx = x.cuda()\n...\nprint 'x'\n```\n"),
        ("a.md", "```python\nimport torch\nx = x.cuda()  # noqa\n```\n"),
        ("a.md", "<!-- devicefix: skip-file -->\n```python\nimport torch\nx = x.cuda()\n```\n"),
        ("a.md", "    x.cuda()\n"),
        ("a.md", "- ```python\n\nx.cuda()\n"),
        ("a.md", "```python\nimport torch\nx = x.cuda()\n"),
        ("a.rst", ".. devicefix: skip-file\n\n.. code:: python\n\n    import torch\n    x = x.cuda()\n"),
        ("a.rst", ">>> x.cuda()\n\n.. code-block:: pycon\n\n    >>> x.cuda()\n"),
        ("a.rst", ".. code-block:: python\n"),
        ("a.rst", ".. code-block:: python\n\n    "),
    ],
)
def test_what_is_no_block_of_python(path: str, text: str) -> None:
    assert not look(text, path, fix=True).result.findings
    assert rewritten(text, path) == text


def test_each_block_is_a_module_of_its_own() -> None:
    text = block("```python", CODE, "```", "") + block("  ~~~py", CODE, "  ~~~", "  ")
    assert rewritten(text) == block("```python", FIXED, "```", "") + block("  ~~~py", FIXED, "  ~~~", "  ")
    assert [each.line for each in look(text).result.findings] == [5, 11]
    left = block("```py", ["import torch", "import pynvml"], "```", "")
    assert [each.line for each in look(text + left).result.findings] == [5, 11, 15]
    assert [each.line for each in look(text + left, fix=True).result.remaining] == [19]


LINE = st.sampled_from(
    ["```", "```python", "~~~py", "- ```py", "> ```py", "  x", "x", "", ":a:", "\t", ".. code:: py"]
)


@given(st.lists(st.tuples(LINE, st.sampled_from(["\n", "\r\n", "\r"]))), st.sampled_from(["a.md", "a.rst"]))
@settings(max_examples=300)
def test_what_does_not_change_stays(lines: list[tuple[str, str]], path: str) -> None:
    data = "".join(map("".join, lines)).encode()
    document = Docs(data, path)
    results = [Result(path, output=module) for module in document.modules]
    output = document.result(path, results, Settings()).output
    assert output == (data if results else None)


def test_folders_are_searched_with_the_option_only(tmp_path: Path, cli: Cli, git: Git) -> None:
    text = block("# Use\n\n```python", CODE, "```", "")
    (tmp_path / "a.md").write_text(text)
    assert cli("check", "--no-cache", ".").exit_code == 0
    line = "a.md:7:12: DF101 [*] `.cuda()` needs CUDA: use `.to(device)`"
    for arguments in (("--docs", "."), ("a.md",)):
        assert (
            line in cli("check", "--no-cache", "--output-format", "concise", *arguments).output.splitlines()
        )
    (tmp_path / "pyproject.toml").write_text("[tool.devicefix]\ndocs = true\n")
    assert cli("check", "--no-cache", ".").exit_code == 1
    assert cli("check", "--no-cache", "--no-docs", ".").exit_code == 0
    patch = cli("rewrite", "--no-cache", ".", "-q").stdout
    git("apply", data=patch)
    assert (tmp_path / "a.md").read_text() == rewritten(text)
