"""Comparing two versions over a corpus, and finding lost comments, on packages of a few lines."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import corpus
import corpus_comments
import corpus_compare
import corpus_report
import pytest
from corpus_compare import Version

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project

ROOT = Path(__file__).parents[2]

# Another version of devicefix: it prints what the present one has printed, with a change.
OTHER = """
import os, pathlib, sys

old, new = os.environ.get("CHANGE", "a -> a").split(" -> ")
recorded = pathlib.Path(__file__).with_name(sys.argv[1] + ".txt").read_text(encoding="utf-8")
print(recorded.replace(old, new), end="")
raise SystemExit(int(os.environ.get("STATUS", "0")))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one package, which has two findings with a fix and one without."""
    folder = tmp_path_factory.mktemp("corpus")
    package = folder / "pack-1.0"
    package.mkdir()
    (package / "tied.py").write_text("import torch\n\nx = y.cuda()\n\n\n\n\n\n\n\nz = y.cuda()\n")
    (package / "library.py").write_text("import torch\nimport apex\n")
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """Return the tree of another version."""
    tree = tmp_path_factory.mktemp("other")
    module = tree / "devicefix"
    module.mkdir()
    (module / "__init__.py").touch()
    (module / "__main__.py").write_text(OTHER)
    for command, option in (("check", "--output-format=json"), ("rewrite", "--quiet")):
        printed = Version(ROOT).run(command, option, str(folder / "pack-1.0")).stdout
        (module / f"{command}.txt").write_text(printed, encoding="utf-8")
    return tree


def changed(tree: Path, change: str, **environment: str) -> Version:
    return Version(tree, environment=tuple({"CHANGE": change, **environment}.items()))


def test_a_version_does_not_differ_from_itself(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert corpus_compare.compare(Version(ROOT), Version(ROOT), [folder], messages=True) == 0
    summary = "1 packages, 3 findings, 1 rewritten files; differences: findings: +0 -0 ~0, rewritten files: 0"
    assert capsys.readouterr().out.strip() == summary


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ('"DF101" -> "DF102"', ["findings: +2 -2 ~0", "+ tied.py:3:5 DF102", "- tied.py:3:5 DF101"]),
        ('"row": 11 -> "row": 12', ["+1 -1 ~0", "+ tied.py:12:5 DF101", "- tied.py:11:5 DF101"]),
        ('"applicability": "safe" -> "applicability": "unsafe"', ["+0 -0 ~2", "fix: unsafe", "fix: safe"]),
        ("+z = y.to -> +z = w.to", ["rewritten files: 1", "- +z = y.to(device)", "+ +z = w.to(device)"]),
    ],
)  # fmt: skip
def test_differences_are_printed_by_package(
    folder: Path, other: Path, change: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert corpus_compare.compare(Version(other), changed(other, change), [folder]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("pack-1.0: ")
    assert [part for part in expected if part not in printed] == []


def test_only_the_hunks_that_differ_are_printed(
    folder: Path, other: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus_compare.compare(Version(other), changed(other, "+z = y -> +z = w"), [folder])
    printed = capsys.readouterr().out
    assert "+z = w" in printed
    assert "+x = y" not in printed


def test_messages_are_compared_on_request(folder: Path, other: Path) -> None:
    new = changed(other, '"message": " -> "message": "now: ')
    assert corpus_compare.compare(Version(other), new, [folder]) == 0
    assert corpus_compare.compare(Version(other), new, [folder], messages=True) == 1


def test_a_crash_is_a_difference(folder: Path, other: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert corpus_compare.compare(Version(other), changed(other, "a -> a", STATUS="3"), [folder]) == 1
    assert "`check` exits with 3: no output" in capsys.readouterr().out


def test_nothing_to_compare_is_an_error(tmp_path: Path) -> None:
    assert corpus_compare.compare(Version(ROOT), Version(ROOT), [tmp_path]) == 2
    assert corpus_compare.compare(Version(ROOT), Version(ROOT), [tmp_path / "none"]) == 2
    assert corpus_comments.report(Version(ROOT), [tmp_path]) == 2


def test_a_revision_is_checked_out_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setattr(corpus_compare, "ROOT", tmp_path)
    git("init", "-q")
    (tmp_path / "a.py").write_text("old")
    git("add", "a.py")
    git("commit", "-qm", "old")
    (tmp_path / "a.py").write_text("new")
    with corpus_compare.checkout("HEAD") as tree:
        assert (tree / "a.py").read_text() == "old"
    assert len(git("worktree", "list").splitlines()) == 1
    assert (tmp_path / "a.py").read_text() == "new"
    with pytest.raises(subprocess.CalledProcessError), corpus_compare.checkout("no-such-revision"):
        pass


def test_the_command_line_is_understood(folder: Path) -> None:
    arguments = corpus.parser().parse_args(["compare", "main", str(folder), "--unsafe-fixes", "--messages"])
    assert (arguments.base, arguments.dirs, arguments.messages) == ("main", [folder], True)
    assert corpus.version(arguments, ROOT).rewrite_options == ("--unsafe-fixes",)


# --- comments ---

BEFORE = """\
# license
import torch


def f(x):
    # on the GPU
    if torch.cuda.is_available():  # guard
        x = x.cuda()  # move
        # done
    else:  # otherwise
        # no GPU
        raise RuntimeError("no GPU")  # stop
    return x  # result
"""


def losses(after: str, before: str = BEFORE) -> list[tuple[str, bool]]:
    found = corpus_comments.lost_comments(dedent(before).encode(), dedent(after).encode())
    return [(loss.comment.text, loss.with_statement) for loss in found]


def test_no_comment_is_lost_where_all_are_kept() -> None:
    assert losses(BEFORE) == []
    assert (
        losses(BEFORE.replace("x.cuda()", "x.to(device)").replace("# license\n", "# license\nimport os\n"))
        == []
    )


def test_comments_may_move() -> None:
    after = BEFORE.replace("# license\n", "").replace("return x", "# license\n    return x")
    assert losses(after) == []


@pytest.mark.parametrize(
    "lost", ["# license", "# on the GPU", "# guard", "# move", "# done", "# stop", "# result"]
)
def test_a_comment_without_its_statement_is_lost(lost: str) -> None:
    assert losses(BEFORE.replace(lost, "")) == [(lost, False)]
    assert losses(BEFORE.replace(lost, "").replace("x.cuda()", "x.to(device)")) == [(lost, False)]


def test_comments_of_a_removed_branch_go_with_it() -> None:
    start = BEFORE.index("    else:")
    after = BEFORE[:start] + BEFORE[BEFORE.index("    return x") :]
    assert losses(after) == [("# otherwise", True), ("# no GPU", True), ("# stop", True)]


def test_a_comment_that_there_are_two_of() -> None:
    before = "x = 1  # same\ny = 2  # same\n"
    assert losses("x = 1\ny = 2  # same\n", before) == [("# same", False)]
    assert losses("y = 2  # same\n", before) == [("# same", True)]


@pytest.mark.parametrize("newline", [b"\r", b"\r\n"])
def test_other_line_ends(newline: bytes) -> None:
    before, after = (
        text.replace(b"\n", newline) for text in (b"x = 1  # a\ny = 2  # b\n", b"x = 1  # a\ny = 3\n")
    )
    assert [str(loss) for loss in corpus_comments.lost_comments(before, after)] == ["2: # b"]


def test_a_changed_comment_is_lost() -> None:
    assert losses("x = 1  # new\n", "x = 1  # old\n") == [("# old", False)]


def test_lost_comments_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strip = "import pathlib, sys\nfor p in pathlib.Path(sys.argv[-1]).rglob('*.py'):\n"
    strip += "    p.write_text(p.read_text().split('#')[0])\n"
    version, package = tmp_path / "tree" / "devicefix", tmp_path / "corpus" / "pack-1.0"
    version.mkdir(parents=True)
    package.mkdir(parents=True)
    (version / "__init__.py").touch()
    (version / "__main__.py").write_text(strip)
    (package / "a.py").write_text("x = 1\n")
    assert corpus_comments.report(Version(version.parent), [package.parent]) == 0
    (package / "a.py").write_text("x = 1  # here\n")
    assert corpus_comments.report(Version(version.parent), [package.parent]) == 1
    assert "LOST: pack-1.0/a.py:1: # here" in capsys.readouterr().out
    assert (package / "a.py").read_text() == "x = 1  # here\n"


# --- faults ---

REFUSAL = b"""\
import torch


def f(x):

    # the GPU
    if not torch.cuda.is_available():
        raise RuntimeError("no GPU")

    # the move
    return x.cuda()  # result
"""


def test_a_removed_statement_takes_its_comment_and_blank_lines_along() -> None:
    result = check_file(REFUSAL, "a.py", Settings(fix=True, unsafe_fixes=True), Project([]))
    assert result.output is not None
    assert b"# the GPU" not in result.output
    assert list(corpus_report.faults_of(REFUSAL, result)) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("    # the move\n", "", corpus_report.COMMENT),
        ("# result", "# the result", corpus_report.COMMENT),
        ("def f(x)", "def f(x, y)", corpus_report.STRAY),
        ("def f(x)", "def f(x", corpus_report.BROKEN),
    ],
)
def test_other_changes_are_faults(old: str, new: str, fault: str) -> None:
    result = check_file(REFUSAL, "a.py", Settings(fix=True, unsafe_fixes=True), Project([]))
    assert result.output is not None and old.encode() in result.output
    result = replace(result, output=result.output.replace(old.encode(), new.encode()))
    assert fault in [kind for kind, _ in corpus_report.faults_of(REFUSAL, result)]
