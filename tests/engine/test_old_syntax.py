"""Files older than Python 3.7: `async` as a name is renamed, and Python 2 is reported."""

from __future__ import annotations

import ast
import codecs
import json
import subprocess
import sys
from typing import Any

import pytest
from helpers import Cli, ProjectFolder, analyze, analyze_file

from devicefix.config.settings import Settings
from devicefix.facts.project import Project
from devicefix.files.text import parse
from devicefix.server.flake8 import Plugin
from devicefix.server.inspect import inspect

DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
BEFORE = f"""\
import torch

{DEVICE}


def load(x, y, async=False):
    '''async=True is the default of nothing: é 表'''
    x = x.cuda(async = True)  # async=True
    y = (y
         .cuda(None,
               async=async))
    return x.copy_(y, async=not async), "async=1"


async def other(z):
    async with z as y:
        return [w async for w in y]
"""
AFTER = f"""\
import torch

{DEVICE}


def load(x, y, non_blocking=False):
    '''async=True is the default of nothing: é 表'''
    x = x.to(device, non_blocking = True)  # async=True
    y = (y
         .to(device,
               non_blocking=non_blocking))
    return x.copy_(y, non_blocking=not non_blocking), "async=1"


async def other(z):
    async with z as y:
        return [w async for w in y]
"""


def codes(data: str | bytes, **options: Any) -> list[str]:
    return [finding.code for finding in analyze(data, **options).findings]


# -- async as a name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "newline"),
    [("utf-8", "\n"), ("utf-8", "\r"), ("utf-8-sig", "\r\n"), ("gbk", "\n"), ("latin-1", "\r\n")],
)
def test_the_rest_of_the_file_stays_as_it_is(encoding: str, newline: str) -> None:
    def spelled(text: str) -> bytes:
        if encoding in ("gbk", "latin-1"):
            text = f"# coding: {encoding}\n{text}".replace("é" if encoding == "gbk" else "表", "")
        return text.replace("\n", newline).encode(encoding)

    result = analyze(spelled(BEFORE), fix=True)
    assert result.output == spelled(AFTER)
    assert not result.remaining
    assert analyze(result.output, fix=True).output is None


def test_the_rewritten_program_computes_the_same() -> None:
    torch = pytest.importorskip("torch")
    output = analyze(BEFORE, fix=True).output
    assert output is not None
    names: dict[str, object] = {}
    exec(output.decode(), names)
    x, text = names["load"](torch.zeros(2), torch.ones(2), non_blocking=True)  # type: ignore[operator]
    assert x.tolist() == [1.0, 1.0]
    assert text == "async=1"


def test_the_tree_has_the_names_and_places_of_the_text() -> None:
    text = "f(x, async=1, y=async.async)\nfrom async import async as async\nglobal async\naaaaa = 'aaaaa'\n"
    module = parse(text)
    assert ast.unparse(module) == text.rstrip()
    (keyword,) = (node for node in ast.walk(module) if isinstance(node, ast.keyword) and node.arg == "async")
    assert ast.get_source_segment(text, keyword) == "async=1"


@pytest.mark.parametrize(
    "code",
    ["async def f(): pass", "async(1)", "x = async", "x.async(1).async", "def async(): pass", "print(async)",
     "class A(async): pass", "lambda async: 1", "try: pass\nexcept E as async: pass", "async = async = 1"],
)  # fmt: skip
def test_every_name_is_reported(code: str) -> None:
    found = codes(f"import torch\n{code}\nx = y.cuda()\n")
    assert "DF901" not in found
    assert ("DF814" in found) is (code != "async def f(): pass")
    assert "DF101" in found


@pytest.mark.parametrize(
    ("code", "remains"),
    [
        ("x = x.cuda(async=True, non_blocking=True)\n", "DF814"),
        ("def f(x, async, non_blocking):\n    return x.to(0, non_blocking, async)\n", "DF814"),
        ("def f(x):\n    def g():\n        nonlocal async\n    async = 1\n    return x.cuda()\n", "DF814"),
        ("def f(x, **more):\n    async = more.pop('async')\n\n\nf(cuda, async=True)\n", "DF814"),
        ("x = f'{x.cuda(async=True)}'\n", "DF901" if sys.version_info < (3, 12) else ""),
    ],
)
def test_what_has_no_safe_fix_is_reported(code: str, remains: str) -> None:
    result = analyze(f"import torch\n\n{code}", fix=True)
    assert remains in {"", *(finding.code for finding in result.remaining)}


def test_other_rules_fix_the_file_without_this_one() -> None:
    result = analyze(BEFORE, fix=True, ignore=("DF814",))
    assert result.output is not None
    expected = AFTER.replace("non_blocking", "async")
    assert result.output.decode() == expected
    assert "DF814" in codes(result.output)


def test_a_comment_silences_it() -> None:
    assert codes("import torch\nx = f(cuda, async=1)  # noqa: DF814\n") == []


def test_notebook() -> None:
    def notebook(call: str) -> bytes:
        cells = ["import torch\n", DEVICE, f"x = x{call}", "print 'cuda'"]
        made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": [cell]} for cell in cells]
        return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()

    result = analyze_file(notebook(".cuda(async=True)"), "a.ipynb", fix=True).result
    assert result.output == notebook(".to(device, non_blocking=True)")
    (left,) = result.remaining
    assert (left.code, left.cell) == ("DF901", 4)
    assert "it is Python 2 (`print` without parentheses)" in left.message


def test_block_in_documentation() -> None:
    before = f"# How\n\n  ```python\n  import torch\n  {DEVICE}\n  x.cuda(async=True)\n  ```\n"
    output = analyze_file(before.encode(), "a.md", fix=True).result.output
    assert output == before.replace(".cuda(async=True)", ".to(device, non_blocking=True)").encode()


def test_diff_and_exit_status(project: ProjectFolder, cli: Cli) -> None:
    project.write({"a.py": "import torch\n\nx.copy_(y, async=True)  # from cuda\n", "b.py": "print 'cuda'\n"})
    shown = cli("rewrite", "--diff", ".")
    assert (
        "-x.copy_(y, async=True)  # from cuda\n+x.copy_(y, non_blocking=True)  # from cuda\n" in shown.stdout
    )
    assert cli("check", "b.py").exit_code == 1
    done = cli("rewrite", "--in-place", ".")
    assert done.exit_code == 1
    assert project.read("a.py") == "import torch\n\nx.copy_(y, non_blocking=True)  # from cuda\n"
    assert project.read("b.py") == "print 'cuda'\n"


def test_language_server() -> None:
    found = inspect("a.py", BEFORE, Settings(), Project)
    assert {finding.code for finding in found.findings} == {"DF101", "DF814"}
    assert found.with_all_fixed() == AFTER
    assert "non_blocking = True" in found.with_rule_fixed("DF814")


@pytest.mark.usefixtures("project")
def test_flake8() -> None:
    lines = BEFORE.splitlines(keepends=True)
    codes = {message.split()[0] for _, _, message, _ in Plugin(ast.parse(""), "a.py", lines).run()}
    assert codes == {"DF101", "DF814"}


@pytest.mark.slow
def test_libcst_refuses_the_file_before_the_codemod_sees_it(project: ProjectFolder) -> None:
    project.write({"a.py": BEFORE})
    command = [sys.executable, "-m", "libcst.tool", "codemod", "-x", "--no-format", "--hide-progress"]
    command += ["devicefix.codemod.DeviceAgnostic", "a.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=project.path)
    assert "Syntax Error" in done.stderr
    assert project.read("a.py") == BEFORE


# -- Python 2 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "form"),
    [
        ("print 'x'", "`print` without parentheses"),
        ("if x: print y,", "`print` without parentheses"),
        ("exec code in names", "`exec` without parentheses"),
        ("raise E, 'text'", "`raise E, text`"),
        ("x = `y`", "backticks"),
        ("if a <> b: pass", "`<>`"),
        ("x = 0777", "an old number literal"),
        ("x = 10L", "an old number literal"),
        ("x = 0xFFL", "an old number literal"),
        ("x = ur'a'", "a `ur` string"),
        ("def f(a, (b, c)): pass", "a tuple as a parameter"),
        ("f = lambda (a, b): a", "a tuple as a parameter"),
        ("x.cuda(async=True)\nprint 'x'", "`print` without parentheses"),
    ],
)
def test_python_2_is_named(code: str, form: str) -> None:
    (finding,) = analyze(f"import torch  # cuda\n{code}\n").findings
    assert finding.code == "DF901"
    assert finding.message == (
        f"this code is not checked: it is Python 2 ({form}); convert it to"
        " Python 3 first, for example with `2to3` from Python 3.12 or older"
    )
    assert finding.line == 1 + len(code.splitlines())


def test_mixed_tabs_are_to_be_replaced() -> None:
    code = "import torch\nif x:\n\ty = 1\n        z = y.cuda()\n"
    (finding,) = analyze(code).findings
    assert finding.message == (
        "this code is not checked: it is Python 2 (tabs mixed with spaces); expand each"
        " tab to the next multiple of 8 columns, for example with `expand -t 8`"
    )
    assert finding.line == 4
    assert codes(code.expandtabs(8)) == ["DF101"]


@pytest.mark.parametrize(
    ("cell", "advice"),
    [
        ("print 'cuda'", "convert it to Python 3 first"),
        ("if cuda:\n\ty = 1\n        z = 1", "expand each tab to the next multiple of 8 columns"),
    ],
)
def test_no_program_that_reads_files_is_named_for_a_cell(cell: str, advice: str) -> None:
    code = {"cell_type": "code", "metadata": {}, "outputs": [], "source": [cell]}
    data = json.dumps({"cells": [code], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()
    (finding,) = analyze_file(data, "a.ipynb").result.findings
    assert (finding.code, finding.cell) == ("DF901", 1)
    assert finding.message.endswith(f"); {advice}")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 parses them")
@pytest.mark.parametrize("code", ["def f[T](x): ...", "class A[T]: ...", "type X = int"])
def test_the_python_that_a_file_needs_is_named(code: str) -> None:
    (finding,) = analyze(f"import torch  # cuda\n{code}\n").findings
    assert finding.message.endswith("needs Python 3.12; run devicefix with that version, or a later one")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 parses them")
def test_template_strings_are_read_as_f_strings() -> None:
    code = """\
import torch

x = torch.ones(1, device="cuda")
y = t"{x.cuda()} t'{(w := torch.ones(1).cuda())!r:>{x.numel()}}'"
print(rT'''{x.to("cuda")}
''', w.cuda(), "a t'b", Rt"{torch.cuda.current_device()}")
"""
    as_f_string = code.replace("= t", "= f").replace("rT", "rF").replace("Rt", "Rf")
    found, expected = (
        [(each.code, each.line, each.column, each.message) for each in analyze(text).findings]
        for text in (code, as_f_string)
    )
    assert found == expected
    assert [each for each, *_ in found] == ["DF202", "DF101", "DF102", "DF101", "DF401"]
    fixed = analyze(code, fix=True).output
    assert fixed is not None and b"''', w.to(device), \"a t'b\", Rt\"{" in fixed


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 parses it in an f-string")
def test_a_template_string_that_is_no_older_f_string() -> None:
    (finding,) = analyze("import torch  # cuda\nx = t'{d['x'].cuda()}'\n").findings
    assert finding.message.endswith("needs Python 3.14; run devicefix with that version, or a later one")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="since Python 3.14 that is two exceptions")
def test_except_of_python_2_is_named() -> None:
    (finding,) = analyze("import torch  # cuda\ntry:\n    x\nexcept (A, B), e:\n    pass\n").findings
    assert "Python 2 (`except E, e:`)" in finding.message


@pytest.mark.parametrize("code", ["x = (", "x = 'print y", "print('raise E, 1') x", "def f(:", "x = 1 +"])
def test_other_errors_are_not_taken_for_python_2(code: str) -> None:
    (finding,) = analyze(f"import torch  # cuda\n{code}\n").findings
    assert finding.code == "DF901"
    assert "Python 2" not in finding.message


def test_a_file_that_is_not_text_is_no_python_2() -> None:
    (finding,) = analyze(codecs.BOM_UTF8 + b"import torch.cuda\n\xff print\n").findings
    assert "is not valid utf-8" in finding.message
