"""The migration report for a team: owners, paths, CSV, JSON, and what changed since an earlier report."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import Cli, CliResult, Git

from devicefix.report.earlier import Entry

pytestmark = pytest.mark.needs("jinja2", "markdown_it")

TIED = "import torch\n\nx = torch.zeros(2).cuda()\n"
STATE = "import torch\n\nstate = torch.cuda.get_rng_state()\nimport apex.amp\n"

Report = Callable[..., CliResult]


@pytest.fixture
def report(cli: Cli, tmp_path: Path) -> Report:
    """Return `devicefix report`, in a folder with three findings in two packages."""
    for name, text in {"net/a.py": TIED, "lib/state.py": STATE, "lib/free.py": "import torch\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return lambda *arguments, **options: cli("report", "-o", "-", *arguments, **options)


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a CSV report."""
    return list(csv.DictReader(io.StringIO(text)))


def findings(text: str) -> list[dict[str, Any]]:
    """Return the findings of a JSON report."""
    found: list[dict[str, Any]] = json.loads(text)["findings"]
    return found


def test_csv_has_a_row_for_each_finding(report: Report) -> None:
    found = rows(report("--output-format", "csv").stdout)
    shown = [(each["path"], each["line"], each["code"], each["fix"], each["folder"]) for each in found]
    assert shown == [
        ("lib/state.py", "3", "DF401", "unsafe", "lib"),
        ("lib/state.py", "4", "DF902", "none", "lib"),
        ("net/a.py", "3", "DF101", "safe", "net"),
    ]
    assert found[2]["name"] == "cuda-call" and found[2]["category"] == "Moves"
    assert {each["status"] + each["ran"] + each["cell"] + each["owners"] for each in found} == {""}


def test_json_holds_the_same(report: Report) -> None:
    text = report("--output-format", "json").stdout
    document = json.loads(text)
    assert document["version"] == 1 and document["since"] is None and document["gone"] == []
    assert document["files"] == {"checked": 3, "with_findings": 2, "failed": 0}
    assert document["total"] == {"files": 2, "lines": 3, "findings": 3, "safe": 1, "unsafe": 1, "left": 1}
    assert document["folders"]["lib"] == {
        "files": 1, "lines": 2, "findings": 2, "safe": 0, "unsafe": 1, "left": 1,
    }  # fmt: skip
    assert tuple(document["findings"][0]) == Entry._fields
    assert [each["fingerprint"] for each in document["findings"]] == [
        each["fingerprint"] for each in rows(report("--output-format", "csv").stdout)
    ]
    assert text.count('{"status"') == text.count('\n    {"status"') == 3  # one a line


def test_the_name_of_the_output_decides_the_format(cli: Cli, report: Report, tmp_path: Path) -> None:
    assert report().stdout.startswith("<!doctype html>")
    assert cli("report", "-o", "found.csv").exit_code == 0
    assert (tmp_path / "found.csv").read_text().startswith("status,path,")
    assert cli("report", "-o", "page.csv", "--output-format", "html").exit_code == 0
    assert (tmp_path / "page.csv").read_text().startswith("<!doctype html>")
    done = cli("report", "--output-format", "json")
    assert done.stdout == "Wrote the report to devicefix-report.json\n"
    assert json.loads((tmp_path / "devicefix-report.json").read_text())["version"] == 1


def test_csv_and_json_need_no_template_library(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jinja2", "markdown_it"):
        monkeypatch.setitem(sys.modules, name, None)
    for module in ("environment", "migration_page"):
        monkeypatch.delitem(sys.modules, f"devicefix.report.{module}", raising=False)
    for form in ("csv", "json"):
        assert report("--output-format", form).exit_code == 0


def test_no_cell_is_a_formula(report: Report, tmp_path: Path) -> None:
    (tmp_path / "=1+2.py").write_text(TIED)
    (tmp_path / "CODEOWNERS").write_text("* @team\n")
    found = rows(report("--output-format", "csv").stdout)
    assert found[0]["path"] == "'=1+2.py" and found[0]["owners"] == "'@team"
    assert not [cell for each in found for cell in each.values() if cell.startswith(("=", "+", "-", "@"))]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
@pytest.mark.parametrize("name", ["a\nb\x1b[1m\u202e.py", "\udcff.py", 'a,"b.py'])
def test_odd_names(report: Report, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TIED)
    for form in ("csv", "json", "html"):
        text = report("--output-format", form).stdout
        assert all(character.isprintable() or character == "\n" for character in text)
    found = {each["path"] for each in rows(report("--output-format", "csv").stdout)}
    assert found & {name, "a\\nb\\x1b[1m\\u202e.py", "\\udcff.py"}
    (tmp_path / "old.json").write_bytes(report("--output-format", "json").stdout_bytes)
    since = json.loads(report("--output-format", "json", "--since", "old.json").stdout)["since"]
    assert (since["new"], since["known"], since["fixed"]) == (0, 4, 0)


# -- paths and owners ----------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [False, True])
def test_paths_are_relative(
    report: Report, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    git.commit_all()
    if inside:
        monkeypatch.chdir(tmp_path / "net")
    found = findings(report("--output-format", "json", tmp_path / "net").stdout)
    assert [each["path"] for each in found] == ["net/a.py"]
    page = report(tmp_path).stdout
    assert '<span class="path">net/a.py</span>' in page and str(tmp_path) not in page


def test_paths_without_a_repository(
    report: Report, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [each["path"] for each in findings(report("--output-format", "json", "net").stdout)] == [
        "net/a.py"
    ]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    found = findings(report("--output-format", "json", tmp_path / "net").stdout)
    assert [each["path"] for each in found] == ["a.py"]


def test_ties_by_owner(report: Report, tmp_path: Path) -> None:
    assert 'id="owners"' not in report().stdout
    (tmp_path / "CODEOWNERS").write_text("lib/ @org/lib @sam\n/lib/free.py @nobody\n")
    document = json.loads(report("--output-format", "json").stdout)
    assert [each["owners"] for each in document["findings"]] == [["@org/lib", "@sam"]] * 2 + [[]]
    counts = {owner: each["findings"] for owner, each in document["owners"].items()}
    assert counts == {"@org/lib": 2, "@sam": 2, "none": 1}
    page = report().stdout
    assert "<code>CODEOWNERS</code>." in page
    assert 'href="#owner=%40org/lib"' in page and 'data-owners="@org/lib @sam"' in page
    assert 'data-owners="none"' in page and ">no owner</a>" in page


def test_owners_of_other_files(
    report: Report, git: Git, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tmp_path / "CODEOWNERS").write_text("* @all\n/linked/ @linked\n")
    git.commit_all()
    assert findings(report("-", "--output-format", "json", input=TIED).stdout)[0]["owners"] == []
    other = tmp_path_factory.mktemp("other")
    (other / "b.py").write_text(TIED)
    (tmp_path / "linked").symlink_to(other)
    found = findings(report("--output-format", "json", "net", "linked/b.py").stdout)
    assert {each["path"]: each["owners"] for each in found} == {
        "linked/b.py": ["@linked"],
        "net/a.py": ["@all"],
    }


def test_owners_that_cannot_be_read(report: Report, tmp_path: Path) -> None:
    (tmp_path / "CODEOWNERS").write_bytes(b"#" * (3 * 2**20 + 1))
    done = report()
    assert done.exit_code == 0 and 'id="owners"' not in done.stdout
    assert "CODEOWNERS: warning: the file is larger than 3M; the report shows no owners" in done.stderr


# -- since an earlier report ---------------------------------------------------------------------------


@pytest.fixture
def old(report: Report, tmp_path: Path) -> Path:
    """Return an earlier report."""
    file = tmp_path / "old.json"
    file.write_text(report("--output-format", "json", "--timestamp").stdout)
    return file


def progress(document: dict[str, Any]) -> tuple[int, ...]:
    """Return the numbers of new, known, fixed and unchecked findings."""
    return tuple(document["since"][name] for name in ("new", "known", "fixed", "unchecked"))


def test_what_is_new_fixed_and_still_there(report: Report, old: Path, tmp_path: Path) -> None:
    (tmp_path / "lib/state.py").write_text("import torch\n\n\nimport apex.amp\n")  # moved, and one fixed
    (tmp_path / "net/b.py").write_text(TIED)
    document = json.loads(report("--output-format", "json", "--since", old).stdout)
    assert progress(document) == (1, 2, 1, 0)
    statuses = {(each["path"], each["code"]): each["status"] for each in document["findings"]}
    assert statuses == {
        ("lib/state.py", "DF902"): "known",
        ("net/a.py", "DF101"): "known",
        ("net/b.py", "DF101"): "new",
    }
    (gone,) = document["gone"]
    assert (gone["path"], gone["line"], gone["code"], gone["status"]) == ("lib/state.py", 3, "DF401", "fixed")
    last = rows(report("--output-format", "csv", "--since", old).stdout)[-1]
    assert (last["status"], last["path"], last["folder"]) == ("fixed", "lib/state.py", "lib")
    page = report("--since", old).stdout
    assert "<strong>1</strong> is fixed" in page and '<a href="#status=new">1</a> is new' in page
    assert "The earlier report, created on 20" in page
    table = page.partition('class="plain progress"')[2].partition("</table>")[0]
    assert re.findall(r">(lib|net|\d+)<", table) == ["lib", "1", "1", "0", "net", "0", "1", "1"]
    assert "<dt>fixed since then</dt><dd>1</dd>" in page


def test_without_changes(report: Report, old: Path) -> None:
    assert progress(json.loads(report("--output-format", "json", "--since", old).stdout)) == (0, 3, 0, 0)


@pytest.mark.parametrize(
    ("change", "arguments", "expected"),
    [
        (lambda folder: (folder / "lib/state.py").unlink(), (), (0, 1, 0, 2)),
        (lambda folder: None, ("net",), (0, 1, 0, 2)),
        (lambda folder: None, ("--ignore", "DF902"), (0, 2, 0, 1)),
        (lambda folder: (folder / "lib/state.py").write_text(STATE + "("), (), (1, 1, 0, 2)),
        (lambda folder: (folder / "lib/state.py").write_text("import torch\n"), (), (0, 1, 2, 0)),
        (lambda folder: (folder / "net/a.py").write_text(TIED + TIED), (), (1, 3, 0, 0)),
    ],
)
def test_only_what_was_checked_again_is_fixed(
    report: Report,
    old: Path,
    tmp_path: Path,
    change: Callable[[Path], None],
    arguments: tuple[str, ...],
    expected: tuple[int, ...],
) -> None:
    change(tmp_path)
    document = json.loads(report("--output-format", "json", "--since", old, *arguments).stdout)
    assert progress(document) == expected


def test_the_version_of_the_earlier_report_is_named(report: Report, old: Path) -> None:
    assert "It was created by" not in report("--since", old).stdout
    old.write_text(old.read_text().replace('"devicefix": "', '"devicefix": "0.0.<b>', 1))
    assert "It was created by devicefix 0.0.&lt;b&gt;" in report("--since", old).stdout


def _broken() -> Iterator[tuple[object, str]]:
    whole = {"version": 1, "devicefix": "1", "revision": "", "created": "", "findings": []}
    finding = {
        "path": "a.py", "cell": None, "line": 1, "column": 1, "end_line": 1, "end_column": 2, "code": "DF101",
        "name": None, "fix": "safe", "message": "m", "category": "c", "fingerprint": "f",
    }  # fmt: skip
    yield [], 'it has no "version"'
    yield whole | {"version": 2}, "its version is 2, but this devicefix supports only version 1"
    yield whole | {"findings": {}}, 'it must have "devicefix", "revision", "created" and "findings"'
    yield whole | {"created": 1}, 'it must have "devicefix", "revision", "created" and "findings"'
    wrongs: list[dict[str, object]] = [
        {"path": 1}, {"line": "1"}, {"line": 0}, {"line": -1}, {"cell": 0.5}, {"fix": "all"}, {"message": []},
        {"path": "/" * 5000}, {"code": None},
    ]  # fmt: skip
    for wrong in wrongs:
        yield whole | {"findings": [finding, finding | wrong]}, '"findings"[1] is not a valid finding'


@pytest.mark.parametrize(("document", "message"), list(_broken()))
def test_a_file_that_is_no_report(report: Report, tmp_path: Path, document: object, message: str) -> None:
    (tmp_path / "old.json").write_text(json.dumps(document))
    done = report("--since", "old.json")
    assert done.exit_code == 2 and not done.stdout
    hint = "; create it with `devicefix report --output-format json`"
    assert done.stderr == f"Error: old.json: not a JSON report: {message}{hint}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<!doctype html>", "old.json:1:1: not a JSON report: Expecting value"),
        ("[" * 100_000, "old.json: not a JSON report: "),
        ("\udcff", "old.json: not a JSON report: "),
        ('{"version": ' + "1" * 5000 + "}", "old.json: not a JSON report: "),
    ],
)
def test_a_file_that_is_no_json(report: Report, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "old.json").write_bytes(content.encode(errors="surrogateescape"))
    done = report("--since", "old.json")
    assert done.exit_code == 2 and message in done.stderr and "Traceback" not in done.stderr
    done = report("--since", "none.json")
    assert done.exit_code == 2 and "none.json: No such file or directory; create it with" in done.stderr


def test_an_earlier_report_is_only_text(report: Report, old: Path) -> None:
    document = json.loads(old.read_text())
    document["revision"] = document["created"] = "</p><script>alert(1)</script>"
    for number, each in enumerate(document["findings"]):
        hostile = {"path": "../../<img src=x>/\u202e", "message": "`<b>`\x1b[1m", "code": "<i>"}
        each.update(hostile, fingerprint=f"<{number}>")
    old.write_text(json.dumps(document))
    page = report("--since", old).stdout
    assert all(character.isprintable() or character == "\n" for character in page)
    assert page.count("<script>") == 1 and "<img" not in page and "<i>" not in page
    assert "<code>&lt;b&gt;</code>\\x1b[1m" in page
    document = json.loads(report("--since", old, "--output-format", "json").stdout)
    assert progress(document) == (3, 0, 0, 3)
