"""Files of any bytes: only the fix changes them, or there is a clear finding."""

from __future__ import annotations

import codecs
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import Cli, CliResult, Git, devicefix

from devicefix.rewrite.edits import with_keyword
from devicefix.rewrite.transformer import parse_expression

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
_LINE_END = rb"(?:\r\n|\r|\n)"
_CHOICE = rb"(['\"])cuda\1 if torch\.cuda\.is_available\(\) else \1cpu\1"
DEVICE = re.compile(_LINE_END + rb"device = torch\.device\(" + _CHOICE + rb"\)" + _LINE_END)


def undone(data: bytes) -> bytes:
    """Return a rewritten file as it was."""
    return DEVICE.sub(b"", data, count=1).replace(b".to(device)", b".cuda()")


def encoded(encoding: str, text: str) -> bytes:
    return f"# -*- coding: {encoding} -*-\n{TIED}{text}y = x.cuda()\n".encode(encoding)


KEPT = {
    "utf-8": f"{TIED}s = 'é中😀'; y = x.cuda()\n".encode(),
    "BOM": codecs.BOM_UTF8 + TIED.encode(),
    "BOM and declaration": codecs.BOM_UTF8 + b"# coding: utf-8\n" + TIED.encode(),
    "utf-8-sig": b"# coding: utf-8-sig\n" + TIED.encode(),
    "latin-1": encoded("latin-1", "s = 'é\x85'; "),
    "cp1252": encoded("cp1252", "s = '€'; "),
    "gbk": encoded("gbk", "s = '中文'; "),
    "gb18030": encoded("gb18030", "s = '中😀'; "),
    "shift_jis": encoded("shift_jis", "s = 'ソ表'; "),  # whose second bytes are backslashes
    "euc-jp": encoded("euc-jp", "s = '日本'; "),
    "iso2022_jp": encoded("iso2022_jp", "s = '日本'; "),
    "big5hkscs": encoded("big5hkscs", "s = '功'; "),
    "koi8-r": encoded("koi8-r", "s = 'привет'; "),
    "declared twice": b"# coding: utf-8\n# coding: latin-1\n" + TIED.encode() + "s = 'é'\n".encode(),
    "CRLF": TIED.replace("\n", "\r\n").encode(),
    "CR": TIED.replace("\n", "\r").encode(),
    "mixed line ends": b"import torch\r\n\rx = torch.ones(2).cuda()\n\r\ny = x.cuda()\r",
    "form feeds": TIED.encode() + b"\f\nclass A:\n\f    def f(self):\n        return x.cuda()\n\f",
    "tabs": TIED.encode() + b"def f():\n\tif x:\n\t\treturn x.cuda()\t\n",
    "tabs and spaces": TIED.encode() + b"if x:\n        x.cuda()\nif x:\n\tx.cuda()\n",
    "no final newline": TIED.encode() + b"y = x.cuda()",
    "white space at the end": TIED.encode() + b"y = x.cuda()  \n  \n\t",
    "what str.splitlines splits":
        f"{TIED}s = '\u2028 \x1c \x85 \x0b'; x.cuda()\n# \x1c\x85\u2029\ny = x.cuda()\n".encode(),
    "combining identifiers": f"{TIED}e\u0301 = é\nﬁ = e\u0301.cuda()\n".encode(),
    "written surrogates": TIED.encode() + b"y = '\\ud800'; x.cuda()\n",
    "continued lines": TIED.encode() + b"y = x \\\r\n  .cuda()\\\n\n",
    "a long line": TIED.encode() + b"z = [" + b"1, " * 30_000 + b"x.cuda()]\n",
    "a long string": TIED.encode() + b"z = '" + b"a" * 1_000_000 + b"'; x.cuda()\n",
}  # fmt: skip

REPORTED = {
    "wrong declaration": b"# coding: ascii\n" + TIED.encode() + "s = 'é'\n".encode(),
    "BOM and another declaration": codecs.BOM_UTF8 + b"# coding: latin-1\n" + TIED.encode(),
    "no utf-8": TIED.encode() + b"s = '\xe9'\n",
    "unknown encoding": b"# coding: klingon\n" + TIED.encode(),
    "no text encoding": b"# coding: zlib\n" + TIED.encode(),
    "undefined": b"# coding: undefined\n" + TIED.encode(),
    "utf-16": b"# coding: utf-16\n" + TIED.encode(),
    "escapes that would be resolved": b"# coding: unicode_escape\n" + TIED.encode() + b"s = '\\\\x41'\n",
    "utf-7 written unusually": b"# coding: utf-7\n" + TIED.encode() + b"s = '+AGE-'\n",
    "hole in the code page": b"# coding: cp1252\n" + TIED.encode() + b"s = '\x81'\n",
    "encoded surrogate": TIED.encode() + b"s = '\xed\xa0\x80'\n",
    "NUL": TIED.encode() + b"y = '\0'\n",
    "NUL at the end": TIED.encode() + b"\0",
    "Ctrl-Z": TIED.encode() + b"\x1a",
    "long number": TIED.encode() + b"y = " + b"9" * 5000,
    "long number that Python reads": TIED.encode() + b"y = f.to(0x" + b"9" * 5000 + b")",
    "inconsistent tabs": TIED.encode() + b"if x:\n        y\n\tx.cuda()\n",
    "ends in a backslash": TIED.encode() + b"y = x.cuda() \\",
    "unterminated": TIED.encode() + b"y = '''abc\n",
}


SLOW = {"a long line"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in KEPT])
def test_bytes_are_kept_but_for_the_fix(cli: Cli, git: Git, name: str) -> None:
    file = Path("a.py")
    file.write_bytes(KEPT[name])
    assert cli("check").exit_code == 1
    patch = cli("rewrite", "--diff")
    assert patch.exit_code == 1
    assert file.read_bytes() == KEPT[name]
    assert cli("rewrite", "-i").exit_code == 0
    new = file.read_bytes()
    assert DEVICE.search(new)
    assert b".cuda()" not in new
    assert undone(new) == KEPT[name]
    assert cli("rewrite", "-i").stdout.startswith("Nothing found")
    assert file.read_bytes() == new
    file.write_bytes(KEPT[name])
    git("apply", "--whitespace=nowarn", "-", data=patch.stdout_bytes)
    assert file.read_bytes() == new


@pytest.mark.parametrize("name", REPORTED)
def test_what_cannot_be_read_is_reported(cli: Cli, name: str) -> None:
    file = Path("a.py")
    file.write_bytes(REPORTED[name])
    assert re.match(r"a\.py:\d+:\d+: DF901 this code is not checked: ", cli("check").stdout)
    for option in ("--diff", "-i"):
        done = cli("rewrite", option)
        assert done.exit_code == 1
        assert "Nothing to fix; 1 finding remains" in done.output
        assert file.read_bytes() == REPORTED[name]


def nested(kind: str, depth: int) -> str:
    """Return code that is nested deeply, with a tie inside."""
    blocks = "".join(f"{' ' * level}{{0}}\n" for level in range(depth))
    string = "x.cuda()"
    for _ in range(depth if kind == "strings" else 0):
        string = 'f"{' + string + '}"'
    return {
        "parentheses": "y = " + "(" * depth + "x.cuda()" + ")" * depth,
        "calls": "y = " + "f(" * depth + "x.cuda()" + ")" * depth,
        "lists": "y = " + "[" * depth + "x.cuda()" + "]" * depth,
        "dictionaries": "y = " + "{1: " * depth + "x.cuda()" + "}" * depth,
        "functions": blocks.replace("{0}", "def f():") + " " * depth + "x.cuda()",
        "ifs": blocks.replace("{0}", "if a:") + " " * depth + "import b\nx.cuda()",
        "signs": "y = " + "-" * depth + "x.cuda()",
        "not": "y = " + "not " * depth + "x.cuda()",
        "lambda": "y = " + "lambda: " * depth + "x.cuda()",
        "conditions": "y = " + "1 if a else " * depth + "x.cuda()",
        "powers": "y = " + "2 ** " * depth + "x.cuda()",
        "sum": "y = " + "a + " * depth + "x.cuda()",
        "sum inside": "y = x.cuda(" + "a + " * depth + "a)",
        "and inside": "y = x.cuda(" + "a and " * depth + "a)",
        "strings inside": "y = x.cuda(" + "'a' " * depth + ")",
        "attributes": "y = x" + ".a" * depth + ".cuda()",
        "attributes behind": "y = x.cuda()" + ".a" * depth,
        "subscripts": "y = x" + "[0]" * depth + ".cuda()",
        "moves": "y = x" + ".cuda()" * min(depth, 40),
        "elif": "if a: pass\n" + "elif a: pass\n" * depth + "elif a: x.cuda()",
        "comparisons": "y = " + "a < " * depth + "x.cuda()",
        "targets": "a = " * depth + "x.cuda()",
        "decorators": "@a\n" * depth + "def f(): x.cuda()",
        "strings": f"y = {string}",
        "await": "async def f(): " + "await " * min(depth, 1) + "(" + "yield " * min(depth, 1) + "x.cuda())",
        "cases": "match x:\n case " + "[" * depth + "]" * depth + ": x.cuda()",
        "slices": "y = x" + "[0:x" * depth + ".cuda()" + "]" * depth,
    }[kind]


KINDS = [
    "parentheses", "calls", "lists", "dictionaries", "functions", "ifs", "signs", "not", "lambda",
    "conditions", "powers", "sum", "sum inside", "and inside", "strings inside", "attributes",
    "attributes behind",
    "moves", "subscripts", "elif", "comparisons", "targets", "decorators", "strings", "await", "cases",
    "slices",
]  # fmt: skip


def clear(done: CliResult) -> bool:
    return done.exit_code in (0, 1) and "internal" not in done.output and "Recursion" not in done.output


@pytest.mark.parametrize("depth", [90, 2_000])
@pytest.mark.parametrize("kind", KINDS)
def test_deep_nesting_is_fixed_or_reported(cli: Cli, kind: str, depth: int) -> None:
    data = f"{TIED}{nested(kind, depth)}\n".encode()
    file = Path("a.py")
    file.write_bytes(data)
    checked = cli("check")
    assert checked.exit_code == 1, checked.output
    assert clear(checked), checked.output
    done = cli("rewrite", "-i")
    assert clear(done), done.output
    new = file.read_bytes()
    # What has an argument becomes a condition around it, and is not as easily undone.
    inside = kind.endswith("inside") and (depth == 90 or kind == "strings inside")
    assert new == data or undone(new) == data or inside
    assert new != data or "remain" in done.stdout
    if depth == 90 and kind not in ("strings", "strings inside"):
        assert new != data, done.output
    assert ("fixable" in checked.stdout) == (new != data), checked.output


@pytest.mark.parametrize(
    ("kind", "length"), [("sum", 450), ("attributes behind", 900), ("comparisons", 5_000), ("elif", 900)]
)
def test_chains_of_a_plain_length_are_fixed(cli: Cli, kind: str, length: int) -> None:
    data = f"{TIED}{nested(kind, length)}\n"
    Path("a.py").write_text(data)
    assert cli("rewrite", "-i").exit_code == 0
    new = Path("a.py").read_bytes()
    assert DEVICE.search(new)
    assert undone(new).decode() == data


@pytest.mark.parametrize("kind", ["sum inside", "and inside", "attributes", "subscripts"])
def test_what_is_nested_too_deeply_is_not_called_fixable_and_leaves_others_so(cli: Cli, kind: str) -> None:
    Path("a.py").write_text(f"{TIED}{nested(kind, 450)}\n")
    checked = cli("check").stdout.splitlines()
    assert "[*]" in checked[0]
    assert checked[1].endswith("(not fixed because the code is nested too deeply)")
    assert checked[-2] == "[*] 1 fixable with `--fix`."
    assert "Fixed 1 finding in 1 file; 1 finding remains" in cli("rewrite", "-i").output


def test_as_many_parentheses_as_python_allows_are_no_error(cli: Cli) -> None:
    Path("a.py").write_text(f"{TIED}y = {'(' * 200}x{')' * 200}.cuda()\n")
    assert "Fixed 2 findings" in cli("rewrite", "-i").output


def test_deep_nesting_does_not_end_the_process_of_libcst() -> None:
    """LibCST's parser has no depth limit: a call of 20,000 `and` ends its process."""
    code = (
        "from devicefix.rewrite.transformer import parse_expression\n"
        "try: parse_expression('f(' + 'a and ' * 20_000 + 'a)')\n"
        "except RecursionError: print('too deep')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "too deep\n")
    flat = "f(" + "a, " * 20_000 + "a"
    parse_expression(f"{flat})")
    assert with_keyword("k", "v")(f"{flat})") == f"{flat}, k=v)"


@pytest.mark.slow
def test_what_is_nested_deeply_does_not_keep_others_from_being_fixed(tmp_path: Path) -> None:
    for number in range(48):
        (tmp_path / f"plain{number}.py").write_text(TIED)
    deep = {
        tmp_path / f"deep{number}.py": f"{TIED}{nested(kind, 2_000)}\n" for number, kind in enumerate(KINDS)
    }
    deep[tmp_path / "nul.py"] = TIED + "\0"
    for file, text in deep.items():
        file.write_text(text)
    done = devicefix("rewrite", "-i", "-j", "2", ".", cwd=tmp_path)
    assert done.returncode == 1
    assert "error" not in done.stderr
    assert all(DEVICE.search(file.read_bytes()) for file in tmp_path.glob("plain*.py"))
    for file, text in deep.items():  # each is fixed or left
        assert undone(file.read_bytes()).decode().replace(" if torch.cuda.is_available() else x", "") == text


@pytest.mark.slow
def test_a_file_over_the_limit_of_megabytes(cli: Cli) -> None:
    data = TIED.encode() + b"def f(a):\n    return a * 2 + 1  # as any other\n" * 47_000 + b"y = x.cuda()\n"
    assert len(data) > 2 * 2**20
    Path("a.py").write_bytes(data)
    size = ("--max-file-size", "100M")
    assert cli("check", *size).stdout.startswith("a.py:3:")
    assert cli("rewrite", "-i", *size).exit_code == 0
    assert undone(Path("a.py").read_bytes()) == data
