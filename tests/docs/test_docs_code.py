"""Tests of code blocks in Markdown and reStructuredText."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import Cli, Git, analyze_file
from hypothesis import given, settings
from hypothesis import strategies as st

from devicefix.files.markdown.document import Docs
from devicefix.model import Outcome, Result

DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
CODE = ["import torch", "", "def f(x):", "    return x.cuda()"]
FIXED = ["import torch", "", DEVICE, "", "def f(x):", "    return x.to(device)"]


def check(text: str, path: str = "a.md", **options: Any) -> Outcome:
    return analyze_file(text, path, **options)


def rewritten(text: str, path: str = "a.md") -> str:
    output = check(text, path, fix=True).result.output
    after = text if output is None else output.decode(errors="surrogateescape")
    assert check(after, path, fix=True).result.output is None
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
BLOCKS = [("a.md", *case) for case in MARKDOWN] + [("a.rst", *case) for case in RST]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("path", "before", "after", "prefix"), BLOCKS)
def test_a_block_is_rewritten(path: str, before: str, after: str, prefix: str, newline: str) -> None:
    text, fixed = (block(before, code, after, prefix).replace("\n", newline) for code in (CODE, FIXED))
    assert rewritten(text, path) == fixed
    (finding,) = check(text, path).result.findings
    line = fixed.split(newline).index(f"{prefix}    return x.to(device)") - 1
    assert (finding.line, finding.column) == (line, len(prefix) + 12)


@pytest.mark.parametrize(
    ("path", "text", "blank"),
    [
        ("a.rst", ".. code-block:: python\n\n\timport torch\n{}\n\tx = x.cuda()\n", "      "),
        ("a.md", "> ```python\n> import torch\n{}\n> x = x.cuda()\n> ```\n", ">      "),
    ],
)
def test_new_lines_start_like_the_code_and_not_like_a_blank_line(path: str, text: str, blank: str) -> None:
    prefix = text.partition("import")[0].rpartition("\n")[2]
    assert f"\n{prefix}{DEVICE}\n" in rewritten(text.format(blank), path)


@pytest.mark.parametrize(("path", "before", "after", "prefix"), BLOCKS)
def test_replacements_equal_the_rewrite(path: str, before: str, after: str, prefix: str) -> None:
    text, fixed = (block(before, code, after, prefix) for code in (CODE, FIXED))
    assert replaced(text, path) == fixed


def replaced(text: str, path: str) -> str:
    """Return a text with one finding, with the replacements of its fix made."""
    (finding,) = check(text, path, replacements=True).result.findings
    assert finding.fix is not None
    lines = text.splitlines(keepends=True)
    for new in sorted(finding.fix.replacements, key=lambda new: (new.line, new.column), reverse=True):
        head, tail = lines[new.line - 1][: new.column - 1], lines[new.end_line - 1][new.end_column - 1 :]
        lines[new.line - 1 : new.end_line] = [head + new.text + tail]
    return "".join(lines)


LONG = [
    "import torch",
    "batch_loss = criterion(",
    "'a', network, labels_of_all_images.cuda(gpu), weights_of_the_classes, len(images), 'mean', 3)",
]


@pytest.mark.parametrize("prefix", ["  ", "> "])
def test_lines_that_a_replacement_breaks_are_indented_like_the_block(prefix: str) -> None:
    text = block(f"{prefix}```python", LONG, f"{prefix}```", prefix)
    fixed = rewritten(text)
    assert replaced(text, "a.md") == fixed
    assert len(fixed.splitlines()) == len(text.splitlines()) + 1
    assert all(line.startswith(prefix) for line in fixed.splitlines())


@pytest.mark.parametrize(
    ("path", "text"),
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
def test_other_text_is_skipped(path: str, text: str) -> None:
    assert not check(text, path, fix=True).result.findings
    assert rewritten(text, path) == text


def test_each_block_is_a_separate_module() -> None:
    text = block("```python", CODE, "```", "") + block("  ~~~py", CODE, "  ~~~", "  ")
    assert rewritten(text) == block("```python", FIXED, "```", "") + block("  ~~~py", FIXED, "  ~~~", "  ")
    assert [finding.line for finding in check(text).result.findings] == [5, 11]
    left = block("```py", ["import torch", "import pynvml"], "```", "")
    assert [finding.line for finding in check(text + left).result.findings] == [5, 11, 15]
    assert [finding.line for finding in check(text + left, fix=True).result.remaining] == [19]


LINE = st.sampled_from(
    ["```", "```python", "~~~py", "- ```py", "> ```py", "  x", "x", "", ":a:", "\t", ".. code:: py"]
)


def test_a_carriage_return_before_a_blank_line_leaves_the_block_alone() -> None:
    assert not Docs(b".. code:: py\n\n  x.cuda()\r\t\n  y\n", "a.rst").modules


@given(st.lists(st.tuples(LINE, st.sampled_from(["\n", "\r\n", "\r"]))), st.sampled_from(["a.md", "a.rst"]))
@settings(max_examples=300, deadline=None)
def test_unchanged_modules_leave_the_document_unchanged(lines: list[tuple[str, str]], path: str) -> None:
    data = "".join(map("".join, lines)).encode()
    document = Docs(data, path)
    results = [Result(path, output=module) for module in document.modules]
    output = document.result(path, results, []).output
    assert output == (data if results else None)


def test_documents_in_folders_need_the_option(tmp_path: Path, cli: Cli, git: Git) -> None:
    text = block("# Use\n\n```python", CODE, "```", "")
    (tmp_path / "a.md").write_text(text)
    assert cli("check", "--no-cache", ".").exit_code == 0
    line = "a.md:7:12: DF101 [*] `.cuda()` needs CUDA; use `.to(device)`"
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
