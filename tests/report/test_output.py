"""The output formats of `devicefix check`, read by the libraries that other programs use."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import unquote
from urllib.request import urlopen

import jsonschema
import pytest
from helpers import ROOT, Cli, CliResult
from junitparser import Error, JUnitXml

from devicefix.config.installation import install_command
from devicefix.files.notebook.lines import file_line
from devicefix.model import Finding, Outcome, Replacement
from devicefix.model import Result as Found
from devicefix.report import FORMATS
from devicefix.report.checked import File
from devicefix.report.full import LEFT
from devicefix.report.hunks import hunks
from devicefix.runner import run as runner

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
FREE = "import torch\n\nx = torch.ones(2)\n"
# What is hard to count: a byte order mark, line ends of two bytes, tabs, letters of several bytes and widths.
HARD = (
    "\ufeffimport torch\r\n\r\n\r\ndef check(net, path):\r\n"
    '\tx = "漢字é", net.cuda(), torch.cuda.FloatTensor(3)\r\n'
    "\ttorch.cuda.synchronize()\r\n\treturn x, torch.load(\r\n\t\tpath\r\n\t)\r\n"
)
ODD = ["a b.py", "new\nline.py", "100%25,a:b.py", "<b>&\"'.py", "esc\x1b[31m.py", os.fsdecode(b"\xff.py")]
FOR_PROGRAMS = [name for name, each in FORMATS.items() if not each.for_people]

Check = Callable[..., CliResult]


@pytest.fixture
def check(cli: Cli) -> Check:
    """Return `devicefix check`, in an empty folder."""
    return lambda *arguments, **options: cli("check", "--no-cache", *arguments, **options)


@pytest.fixture
def hard(tmp_path: Path) -> Path:
    file = tmp_path / "hard.py"
    file.write_bytes(HARD.encode())
    return file


def test_full_shows_the_place_and_the_fix_as_ruff_does(check: Check, hard: Path) -> None:
    done = check("--output-format", "full", "--select", "DF1,DF4,DF5", "--ignore", "DF301")
    assert (
        done.stdout
        == """\
DF101 [*] `.cuda()` needs CUDA; use `.to(device)` (cuda-call)
 --> hard.py:5:13
  |
4 | def check(net, path):
5 |     x = "漢字é", net.cuda(), torch.cuda.FloatTensor(3)
  |                  ^^^^^^^^^^
6 |     torch.cuda.synchronize()
7 |     return x, torch.load(
  |
help: Replace with `net.to(device)`
  |
2 |
3 + device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
4 +
--------------------------------------------------------------------------------
6 | def check(net, path):
  -     x = "漢字é", net.cuda(), torch.cuda.FloatTensor(3)
7 +     x = "漢字é", net.to(device), torch.cuda.FloatTensor(3)
8 |     torch.cuda.synchronize()
  |

DF401 [*] `torch.cuda.synchronize` raises an error without CUDA; call it only if CUDA is available \
(cuda-function)
 --> hard.py:6:2
  |
4 | def check(net, path):
5 |     x = "漢字é", net.cuda(), torch.cuda.FloatTensor(3)
6 |     torch.cuda.synchronize()
  |     ^^^^^^^^^^^^^^^^^^^^^^^^
7 |     return x, torch.load(
8 |         path
  |
help: Put it under `if torch.cuda.is_available():`
  |
5 |     x = "漢字é", net.cuda(), torch.cuda.FloatTensor(3)
  -     torch.cuda.synchronize()
6 +     if torch.cuda.is_available():
7 +         torch.cuda.synchronize()
8 |     return x, torch.load(
  |

DF501 [*] loading a GPU checkpoint fails without CUDA; pass `map_location` \
(checkpoint-load)
 --> hard.py:7:12
  |
5 |     x = "漢字é", net.cuda(), torch.cuda.FloatTensor(3)
6 |     torch.cuda.synchronize()
7 |     return x, torch.load(
  |               ^^^^^^^^^^^
8 |         path
9 |     )
help: Rewrite it for any device
  |
7 |     return x, torch.load(
  -         path
8 +         path, map_location=None if torch.cuda.is_available() else "cpu"
9 |     )
  |

Found 3 findings in 1 of 1 file.
[*] 3 fixable with `--fix`.
"""
    )


def test_full_says_which_fix_is_unsafe(check: Check, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text("import torch\n\nself.state = torch.cuda.get_rng_state()\n")
    shown = check("--output-format", "full").stdout
    assert shown.startswith("DF401 `torch.cuda.get_rng_state`")
    assert "\nnote: This is an unsafe fix and may change the program's behavior\n" in shown


def test_full_escapes_control_characters(check: Check, tmp_path: Path) -> None:
    line = f'x = torch.ones(2).cuda(), "{"a" * 300}\x1b[2J", torch.ones(1).cuda()\n'
    (tmp_path / "odd.py").write_text(f"import torch\n{line}")
    shown = check("--output-format", "full", "--color", "always").stdout
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "\x1b" not in plain and "\\x1b[2J" in plain and "2 | …a" in plain
    lines = plain.splitlines()
    assert max(map(len, lines)) < 200
    assert all(  # also where the beginning of the line is left out
        above[below.index("^") : below.rindex("^") + 1].endswith(".cuda()")
        for above, below in pairwise(lines)
        if "^" in below
    )


def test_full_leaves_out_the_middle_of_long_findings(check: Check, tmp_path: Path) -> None:
    arguments = "".join(f"    nn.Linear({number}, 1),\n" for number in range(50))
    (tmp_path / "long.py").write_text(f"from torch import nn\n\nnet = nn.Sequential(\n{arguments}).cuda()\n")
    shown = check("--output-format", "full").stdout
    assert len(shown.splitlines()) < 40


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_a_terminal_gets_the_full_format(tmp_path: Path, variable: str) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_COLOR")}
    reader, terminal = os.openpty()
    program = [sys.executable, "-m", "devicefix", "check", "--no-cache"]
    subprocess.run(program, cwd=tmp_path, stdout=terminal, env=environment | {variable: "xterm"}, check=False)
    shown = os.read(reader, 10_000)
    os.close(terminal)
    os.close(reader)
    assert b"-->" in shown and b"^^^^" in shown
    assert (b"\x1b[" in shown) is (variable != "NO_COLOR")


HOSTILE = "\x1b[31m \x1b]0;title\x07 \x9b1m \u202e \x7f"


@pytest.mark.parametrize("output_format", FORMATS)
def test_no_format_prints_control_characters_of_files(cli: Cli, tmp_path: Path, output_format: str) -> None:
    name = f"odd {HOSTILE} new\nline.py".replace("/", "")
    (tmp_path / name).write_text(
        f'import torch\n\nx = f("{HOSTILE}", torch.ones(1).cuda())\ntorch.load("{HOSTILE}")\n'
    )
    (tmp_path / f"broken {HOSTILE}.py").write_text(f"cuda = '{HOSTILE}\n")
    done = cli("check", "--no-cache", "--output-format", output_format, ".", f"{HOSTILE}none.py")
    for shown in (done.stdout, done.stderr):
        assert not [c for c in shown if c not in "\n\t" and not c.isprintable()], shown


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_patch_on_a_terminal_has_no_control_characters_of_files(tmp_path: Path) -> None:
    (tmp_path / f"odd {HOSTILE}.py").write_text(f"import torch\nx = torch.ones(1).cuda()  # {HOSTILE}\n")
    reader, terminal = os.openpty()
    program = [sys.executable, "-m", "devicefix", "rewrite", "--no-cache"]
    subprocess.run(program, cwd=tmp_path, stdout=terminal, env=os.environ | {"NO_COLOR": "1"}, check=False)
    shown = os.read(reader, 10_000).decode().replace("\r\n", "\n")
    os.close(terminal)
    os.close(reader)
    assert "+x = torch.ones(1).to(device)" in shown
    assert not [c for c in shown if c not in "\n\t" and not c.isprintable()], shown


@pytest.mark.parametrize(
    ("options", "environment", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),  # as ruff has it
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "auto"], {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colours(
    cli: Cli, check: Check, tmp_path: Path, options: list[str], environment: dict[str, str], coloured: bool
) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    assert ("\x1b[" in check(*options, env=environment).stdout) is coloured
    everywhere = cli(*options, "check", "--no-cache", env=environment)
    assert ("\x1b[" in everywhere.stdout) is coloured
    assert "\x1b[" not in check("--output-format", "sarif", *options, env=environment).stdout


def test_grouped_is_aligned(check: Check, tmp_path: Path) -> None:
    blank = "\n" * 6
    (tmp_path / "tied.py").write_text(f"{TIED}{blank}if x:\n    y = [1, x.cuda()]\n")
    shown = check("--output-format", "grouped", "--quiet").stdout
    assert [line[:14] for line in shown.splitlines()] == ["tied.py:", "   3:5  DF101 ", "  11:13 DF101 ", ""]


def test_the_documentation_shows_what_is_printed(check: Check, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "output.md").read_text(encoding="utf-8")
    source, full, concise, document = re.findall(r"^```(?:python|text|json)\n(.*?)^```", text, re.M | re.S)
    (tmp_path / "train.py").write_text(source)
    assert check("--output-format", "full").stdout == full
    assert check("--quiet").stdout == concise
    (first,) = json.loads(check("--output-format", "json").stdout)
    assert first | {"filename": "/home/me/project/train.py"} == json.loads(document)
    named = re.findall(r"^\| `([a-z-]+)`(?:, `([a-z-]+)`)? \|", text.partition("## Count")[0], re.M)
    assert {name for names in named for name in names if name} == set(FORMATS)


# -- JSON ------------------------------------------------------------------------------------------------


def test_json_has_ruffs_field_names(check: Check, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED + "import os\n")
    ruff = subprocess.run(
        ["ruff", "check", "--isolated", "--no-cache", "--select", "F401", "--output-format", "json", "."],
        capture_output=True,
        check=False,
    )
    (theirs,), (ours,) = json.loads(ruff.stdout), json.loads(check("--output-format", "json").stdout)
    more = {"review": "none", "version": 1}
    assert {name: ours.pop(name) for name in more} == more and shape(ours) == shape(theirs)
    assert ours["filename"] == str(tmp_path / "tied.py")
    assert ours["url"] == "https://devicefix.github.io/devicefix/rules/DF101/"


def shape(value: Any) -> Any:
    """Return the names in a JSON value, with the types of their values."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return [shape(value[0])] if isinstance(value, list) else type(value)


def test_json_lines_holds_the_same_objects_as_json(check: Check, hard: Path) -> None:
    whole = json.loads(check("--output-format", "json").stdout)
    assert len(whole) == 4
    lines = check("--output-format", "json-lines").stdout.splitlines()
    assert list(map(json.loads, lines)) == whole


def test_json_says_how_much_of_a_fix_to_review(check: Check, tmp_path: Path) -> None:
    code = "import torch\nx.cuda()\nx.cuda(**options)\ny = x.cuda(start())\n"
    (tmp_path / "tied.py").write_text(code)
    found = json.loads(check("--output-format", "json").stdout)
    fixes = [each["fix"] and each["fix"]["applicability"] for each in found]
    expected = {"safe": "none", "unsafe": "glance", None: "needed"}
    assert [each["review"] for each in found] == [expected[fix] for fix in fixes] and {*fixes} == {*expected}


@pytest.mark.parametrize("code", ["DF101", "DF301", "DF401", "DF501"])
def test_the_edits_of_json_and_sarif_equal_the_rewrite(cli: Cli, check: Check, hard: Path, code: str) -> None:
    (finding,) = json.loads(check("--select", code, "--output-format", "json").stdout)
    (log,) = json.loads(check("--select", code, "--output-format", "sarif").stdout)["runs"]
    (change,) = log["results"][0]["fixes"][0]["artifactChanges"]
    from_json = [
        (
            *(each[end][part] for end in ("location", "end_location") for part in ("row", "column")),
            each["content"],
        )
        for each in finding["fix"]["edits"]
    ]
    names = ("startLine", "startColumn", "endLine", "endColumn")
    from_sarif = [
        (*(replacement["deletedRegion"][name] for name in names), replacement["insertedContent"]["text"])
        for replacement in change["replacements"]
    ]
    cli("rewrite", "--in-place", "--select", code, hard)
    assert hard.read_bytes() != HARD.encode()
    for edits in (from_json, from_sarif):
        assert "\ufeff" + edited(HARD[1:], edits) == hard.read_bytes().decode()


def edited(text: str, edits: list[tuple[Any, ...]]) -> str:
    """Return a text with edits applied, the last one first."""
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]
    for line, column, end_line, end_column, new in sorted(edits, reverse=True):
        start, end = starts[line - 1] + column - 1, starts[end_line - 1] + end_column - 1
        text = text[:start] + new + text[end:]
    return text


def test_noqa_row_is_where_a_comment_silences(check: Check, tmp_path: Path) -> None:
    code = 'import torch\nx = torch.ones(2).cuda(), """\na\n"""\ny = \\\n    x.cuda()\n'
    file = tmp_path / "tied.py"
    file.write_text(code)
    findings = json.loads(check("--output-format", "json").stdout)
    assert len(findings) == 2
    for finding in findings:
        lines = code.splitlines()
        lines[finding["noqa_row"] - 1] += "  # noqa: DF101"
        file.write_text("\n".join(lines))
        assert ast.dump(ast.parse(file.read_text())) == ast.dump(ast.parse(code))
        left = json.loads(check("--output-format", "json").stdout)
        assert [each["location"]["row"] for each in left if each["code"] == "DF101"] == [
            row for row in (2, 6) if row != finding["location"]["row"]
        ]


# -- SARIF -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sarif_is_valid_by_the_schema_that_it_names(
    check: Check, hard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema may not be copied here; DEVICEFIX_SARIF_SCHEMA names one that is there already."""
    (tmp_path / "broken.py").write_text("import torch\nx = torch.ones(2.cuda()\n")
    (tmp_path / "book.ipynb").write_text(json.dumps(notebook("import torch", "x = torch.ones(2).cuda()")))
    if os.name == "posix":
        for name in ODD:
            (tmp_path / name).write_text(TIED)
    fail_on(monkeypatch, "hard.py")
    log = json.loads(check("--output-format", "sarif").stdout)
    assert len(log["runs"][0]["results"]) > 1
    local = os.environ.get("DEVICEFIX_SARIF_SCHEMA")
    try:
        with urlopen(Path(local).as_uri() if local else log["$schema"], timeout=20) as answer:
            schema = json.load(answer)
    except URLError:
        pytest.skip("no network")
    jsonschema.validate(log, schema, format_checker=jsonschema.FormatChecker())


def fail_on(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make the check of a file fail."""
    run_all = runner.check_files

    def run(files: list[Path], resolver: Any, named: Any) -> list[Outcome]:
        outcomes = run_all([file for file in files if file.name != name], resolver, named)
        return [*outcomes, Outcome(name, Found(name), error="it's <gone>\x00")]

    monkeypatch.setattr(runner, "check_files", run)


def test_sarif_names_rules_places_and_failures(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "tied%.py").write_text(TIED)
    fail_on(monkeypatch, "gone.py")
    done = check("--output-format", "sarif")
    assert done.exit_code == 2 and "gone.py: error: it's <gone>" in done.stderr
    (log,) = json.loads(done.stdout)["runs"]
    (result,), rules = log["results"], log["tool"]["driver"]["rules"]
    rule = rules[result["ruleIndex"]]
    assert (result["ruleId"], rule["id"], rule["name"]) == ("DF101", "DF101", "cuda-call")
    assert "DF201" in {each["id"] for each in rules} and "DF405" not in {each["id"] for each in rules}
    assert rule["helpUri"].endswith("/rules/DF101/") and "## Fix safety" in rule["help"]["markdown"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b/tied%25.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 25}
    assert log["originalUriBaseIds"]["%SRCROOT%"]["uri"] == f"{tmp_path.resolve().as_uri()}/"
    (invocation,) = log["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "it's <gone>\x00"


def test_sarif_paths_are_those_of_the_repository(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "tied.py").write_text(TIED)
    monkeypatch.chdir(tmp_path / "package")
    (log,) = json.loads(check("--output-format", "sarif").stdout)["runs"]
    (result,) = log["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "package/tied.py"


def test_a_finding_in_a_cell_has_the_lines_of_the_file(check: Check, tmp_path: Path) -> None:
    """GitHub's code scanning refuses a result without a region, and knows no cells."""
    book = notebook("import torch", "x = torch.ones(2).cuda()\n")
    text = json.dumps(book, indent=1)
    (tmp_path / "book.ipynb").write_text(text)
    (log,) = json.loads(check("--output-format", "sarif").stdout)["runs"]
    (result,) = log["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    line = text.split("\n")[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == '"x = torch.ones(2).cuda()\\n"'
    assert region["endLine"] == region["startLine"]
    assert "cell 2, line 1" in result["message"]["text"] and "fixes" not in result
    (issue,) = json.loads(check("--output-format", "gitlab").stdout)
    assert issue["location"]["positions"]["begin"]["line"] == region["startLine"]
    annotation = check("--output-format", "github").stdout
    assert f",line={region['startLine']},endLine={region['startLine']}," in annotation
    assert f'line="{region["startLine"]}"' in check("--output-format", "junit").stdout
    (tmp_path / "book.ipynb").write_text(json.dumps(book))  # on one line
    (log,) = json.loads(check("--output-format", "sarif").stdout)["runs"]
    assert log["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 1


@pytest.mark.parametrize(
    ("cell", "line", "held"), [(2, 1, '"a\\n"'), (2, 3, '"c"'), (3, 2, '"x\\ny"'), (4, 2, '"s"'), (9, 1, "{")]
)
def test_the_lines_of_a_cell_in_its_file(cell: int, line: int, held: str) -> None:
    sources: list[Any] = [[], ["a\n", "b\n", "c"], "x\ny", ["", "q", "\n", "s"]]
    text = json.dumps({"cells": [{"source": source} for source in sources]}, indent=1)
    assert held in text.split("\n")[file_line(text.encode(), cell, line) - 1]


def test_the_formats_agree_on_the_number_of_findings(check: Check, hard: Path, tmp_path: Path) -> None:
    (tmp_path / "book.ipynb").write_text(json.dumps(notebook("import torch", "x = torch.ones(2).cuda()")))
    (tmp_path / "broken.py").write_text("import torch\nx = torch.ones(2.cuda()\n")
    found = re.search(r"Found (\d+) findings", check("--output-format", "concise").stdout)
    assert found is not None
    number = int(found[1])
    assert len(json.loads(check("--output-format", "json").stdout)) == number > 3
    assert len(check("--output-format", "json-lines").stdout.splitlines()) == number
    assert len(json.loads(check("--output-format", "sarif").stdout)["runs"][0]["results"]) == number
    assert len(json.loads(check("--output-format", "gitlab").stdout)) == number
    assert len(check("--output-format", "github").stdout.splitlines()) == number
    assert f'failures="{number}"' in check("--output-format", "junit").stdout.partition("<testsuite ")[0]
    assert check("--output-format", "html").stdout.count("data-rule=") == number
    counts = json.loads(check("--statistics", "--output-format", "json").stdout)
    assert sum(each["count"] for each in counts) == number


def test_the_text_of_a_cell(check: Check, tmp_path: Path) -> None:
    (tmp_path / "book.ipynb").write_text(json.dumps(notebook("import torch", "x = torch.ones(2).cuda()\n")))
    shown = check("--output-format", "full").stdout
    assert " --> book.ipynb:cell 2:1:5\n" in shown and "1 | x = torch.ones(2).cuda()\n  |     ^^^^" in shown
    assert "\n ::: cell 1\n" in shown


def notebook(*cells: str) -> dict[str, Any]:
    """Return a notebook with code cells."""
    made: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": [cell]}
        for cell in cells
    ]
    return {
        "cells": made,
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 4,
    }


@pytest.mark.parametrize("name", ["gitlab", "sarif"])
def test_fingerprints_stay_when_lines_move_and_tell_all_findings_apart(
    check: Check, tmp_path: Path, name: str
) -> None:
    def fingerprints() -> list[str]:
        found = json.loads(check("--output-format", name).stdout)
        if name == "gitlab":
            return [issue["fingerprint"] for issue in found]
        return [result["partialFingerprints"]["lines/v1"] for result in found["runs"][0]["results"]]

    same = "x = torch.ones(2).cuda()\n" * 3
    (tmp_path / "tied.py").write_text(f"import torch\n{same}")
    before = fingerprints()
    (tmp_path / "tied.py").write_text(f"import torch\n\n\ny = 1\n{same}z = x.cuda()\n")
    after = fingerprints()
    assert len(set(after)) == len(after) == 4
    assert after[:3] == before


# -- other programs ------------------------------------------------------------------------------------


def test_github_annotations(check: Check, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED + "y = torch.nn.Sequential(\n    x,\n).cuda()\n")
    one, several = check("--output-format", "github").stdout.splitlines()
    path = str(tmp_path / "tied.py").replace(":", "%3A")
    assert one == (
        f"::error title=devicefix (DF101),file={path},line=3,endLine=3,col=5,endColumn=25"
        "::tied.py:3:5: DF101 `.cuda()` needs CUDA; use `.to(device)`"
    )
    assert "line=4,endLine=6::" in several  # GitHub refuses columns in different lines


@pytest.mark.skipif(os.name != "posix", reason="such names can't be had")
def test_special_characters_in_paths_are_kept(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ODD:
        (tmp_path / name).write_text(TIED)
    paths = {str(tmp_path / name).replace("\udcff", "\ufffd") for name in ODD}
    names = {os.path.basename(path) for path in paths}
    github = check("--output-format", "github").stdout_bytes.decode().splitlines()
    files = [re.search("file=([^,]*),", line)[1] for line in github]  # type: ignore[index]
    shown = {path.replace("\x1b", r"\x1b") for path in paths}  # what GitHub itself does not escape
    assert {unquote(file) for file in files} == shown and not any(":" in file for file in files)
    assert {each["filename"] for each in json.loads(check("--output-format", "json").stdout)} == paths
    assert {
        each["location"]["path"] for each in json.loads(check("--output-format", "gitlab").stdout)
    } == names
    (log,) = json.loads(check("--output-format", "sarif").stdout)["runs"]
    uris = [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in log["results"]]
    assert {unquote(uri, errors="surrogateescape") for uri in uris} == set(ODD)
    assert len(list(JUnitXml.fromstring(check("--output-format", "junit").stdout_bytes))) == len(ODD)
    page = check("--output-format", "html").stdout
    assert not any(name in page for name in ODD if "<" in name)
    for name in ("full", "concise", "grouped"):
        assert len(check("--output-format", name, "-q").stdout.splitlines()) % len(ODD) == 0
    monkeypatch.chdir(tmp_path.parent)
    issues = json.loads(
        check("--output-format", "gitlab", str(tmp_path), env={"CI_PROJECT_DIR": str(tmp_path)}).stdout
    )
    assert {each["location"]["path"] for each in issues} == names


def test_junit(check: Check, hard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_on(monkeypatch, "gone.py")
    report = JUnitXml.fromstring(check("--output-format", "junit").stdout_bytes)
    assert (report.tests, report.failures, report.errors) == (5, 4, 1)
    broken, suite = report
    ((error,),) = (test.result for test in broken)
    assert isinstance(error, Error) and error.message == "it's <gone>\\x00"
    assert suite.name == str(hard)
    assert next(iter(suite)).result[0].text == "line 5, col 13, `.cuda()` needs CUDA; use `.to(device)`"


def test_html_names_a_missing_package_before_checking(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for module in ("environment", "migration_page"):
        monkeypatch.delitem(sys.modules, f"devicefix.report.{module}", raising=False)
    done = check("--output-format", "html")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"Error: --output-format html needs jinja2: {install_command('report')}\n"


# -- all of them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOR_PROGRAMS)
def test_no_findings_are_a_complete_document(check: Check, tmp_path: Path, name: str) -> None:
    (tmp_path / "free.py").write_text(FREE)
    done = check("--output-format", name)
    assert done.exit_code == 0 and done.stderr == ""
    if name in ("json", "gitlab"):
        assert json.loads(done.stdout) == []
    elif name == "sarif":
        assert json.loads(done.stdout)["runs"][0]["results"] == []
    elif name == "junit":
        assert [test.is_passed for suite in JUnitXml.fromstring(done.stdout_bytes) for test in suite] == [
            True
        ]
    elif name == "html":
        assert "No code tied to CUDA was found." in done.stdout
    else:
        assert done.stdout == ""


@pytest.mark.parametrize("name", FORMATS)
def test_the_standard_input_is_shown_like_a_file(check: Check, name: str) -> None:
    done = check("--output-format", name, "-", input=TIED)
    assert done.exit_code == 1 and done.stderr == ""
    assert "DF101" in done.stdout
    if name in ("full", "html"):
        assert "torch.ones(2)" in done.stdout


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_gets_the_output_and_the_terminal_the_summary(check: Check, tmp_path: Path, name: str) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    (tmp_path / "out").write_text("old")
    on_terminal = check("--output-format", name, "--quiet").stdout
    done = check("--output-format", name, "-o", "out", "--color", "always")
    assert (tmp_path / "out").read_bytes().decode() == on_terminal
    assert "Found 1 finding" in done.stdout and "DF101" not in done.stdout
    assert check("--output-format", name, "-o", "out", "--quiet").stdout == ""


def test_a_file_in_a_missing_folder(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "check_files", lambda *_: pytest.fail("files were checked first"))
    done = check("-o", "missing/out.json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"Error: {Path('missing/out.json')}: the folder 'missing' does not exist\n"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="whose user may write anywhere")
def test_a_file_that_cannot_be_written(check: Check, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    (tmp_path / "out").touch(mode=0o400)
    done = check("-o", "out")
    assert (done.exit_code, done.stderr) == (2, "Error: out: Permission denied\n")


def test_a_closed_output_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED + "x = x.cuda()\n" * 1000)
    program = [sys.executable, "-m", "devicefix", "check", "--no-cache", "--output-format", "json"]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_statistics_are_laid_out_as_ruffs(check: Check, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(f"{TIED}x.cuda()\ns = torch.cuda.Stream()\nf(s)\n")
    done = check("--statistics")
    assert done.stdout.splitlines()[:2] == ["2\tDF101\t[*] cuda-call", "1\tDF404\t[ ] cuda-stream"]
    assert done.stdout.splitlines()[2] == "Found 3 findings in 1 of 1 file."
    first, _ = json.loads(check("--statistics", "--output-format", "json").stdout)
    assert first == {"code": "DF101", "name": "cuda-call", "count": 2, "fixable": True, "fixable_count": 2}
    refused = check("--statistics", "--output-format", "sarif")
    assert (
        refused.exit_code == 2 and "--statistics cannot be used with --output-format sarif" in refused.stderr
    )


def test_the_page_explains_the_marks_of_statistics(check: Check, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(f"{TIED}s = torch.cuda.Stream()\nf(s)\n")
    marks = re.findall(r"\[.\]", check("--statistics", "--select", "DF101,DF404").stdout)
    page = (ROOT / "docs" / "output.md").read_text(encoding="utf-8")
    assert marks and all(f"`{mark}`" in page.partition("## Count findings")[2] for mark in [*marks, "[-]"])


def test_what_fix_leaves_comes_last_or_alone(check: Check, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{TIED}s = torch.cuda.Stream()\nf(s)\n")
    (tmp_path / "b.py").write_text(TIED)
    full = check("--output-format", "full").stdout
    first, last = full.split(f"{LEFT}\n")
    assert re.findall(r"^DF\d+|(?<=--> )\S+\.py", first, re.M) == ["DF101", "a.py", "DF101", "b.py"]
    assert re.findall(r"^DF\d+|(?<=--> )\S+\.py", last, re.M) == ["DF404", "a.py"]
    alone = check("--output-format", "full", "--unfixed").stdout
    assert alone.partition("Found ")[0] == last.partition("Found ")[0].lstrip("\n")
    assert [found["code"] for found in json.loads(check("--unfixed", "--output-format", "json").stdout)] == [
        "DF404"
    ]
    (tmp_path / "a.py").unlink()
    done = check("--unfixed")
    assert (done.exit_code, LEFT in check("--output-format", "full").stdout) == (0, False)
    refused = check("--unfixed", "--fix")
    assert (refused.exit_code, refused.stderr.splitlines()[-1]) == (
        2,
        "Error: --unfixed and --fix cannot be used together",
    )


def test_counts_of_folders_and_files(check: Check, tmp_path: Path) -> None:
    for name, text in {
        "net/a.py": f"{TIED}x.cuda()\ns = torch.cuda.Stream()\nf(s)\n",
        "net/b.py": TIED,
        "net/tests/gpu/test_a.py": TIED,
        "tests/test_c.py": TIED,
        "api/c_pb2.py": TIED,
        "api/d.py": f"# Generated by make_api. DO NOT EDIT.\n{TIED}",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    titles, *rows = check("--group-by", "folder").stdout.splitlines()[:5]
    assert titles.split() == ["findings", "fixable", "unsafe", "no", "fix", "folder"]
    assert [row.split(maxsplit=4) for row in rows] == [
        ["4", "3", "0", "1", "net"],
        ["1", "1", "0", "0", "tests (tests)"],
        ["1", "1", "0", "0", "net/tests/gpu (tests for GPUs)"],
        ["2", "2", "0", "0", "api (generated files)"],
    ]
    first, *_ = json.loads(check("--group-by", "file", "--output-format", "json").stdout)
    assert first == {
        "file": "net/a.py",
        "kind": "code",
        "count": 3,
        "fixable_count": 2,
        "unsafe_count": 0,
        "no_fix_count": 1,
    }
    refused = check("--group-by", "folder", "--output-format", "sarif")
    assert refused.exit_code == 2 and "--group-by cannot be used with" in refused.stderr


def test_the_configuration_and_the_environment_choose_the_format(check: Check, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    (tmp_path / "devicefix.toml").write_text('output-format = "json"\n')
    assert check().stdout.startswith("[\n")
    assert check(env={"DEVICEFIX_OUTPUT_FORMAT": "github"}).stdout.startswith("::error")
    assert check("--output-format", "concise").stdout.startswith("tied.py:3:5:")
    (tmp_path / "devicefix.toml").write_text('output-format = "jsno"\n')
    done = check()
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: devicefix.toml:1:1: ") or "devicefix.toml:1:1" in done.stderr
    assert "did you mean 'json'?" in done.stderr


def test_a_file_that_was_removed_since_the_check_has_no_lines() -> None:
    gone = File(Outcome("gone.py", Found("gone.py", [Finding("DF101", "m", 7, 3, 8, 4)])))
    assert gone.lines() == [""] and len(gone.fingerprints("gone.py")) == 1
    assert list(hunks(["x"], [Replacement(7, 1, 7, 2, "y")])) == []
