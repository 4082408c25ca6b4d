"""The parts of the outputs, one by one: groups of changes, marks, rows, figures and summaries."""

from __future__ import annotations

import click
import pytest

from devicefix.cli.errors import exit_status, missing_package, os_error
from devicefix.config import values
from devicefix.config.installation import install_command
from devicefix.config.printable import printable
from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.model import Finding, Fix, Outcome, Replacement, Result
from devicefix.report import FORMATS, changes, side_by_side, statistics
from devicefix.report.checked import Checked, File, absolute, as_text
from devicefix.report.hunks import Row, hunks
from devicefix.report.migration import migration
from devicefix.report.migration_ties import LEFT, SAFE, UNSAFE
from devicefix.report.totals import UNPROVEN, Totals
from devicefix.report.wording import count, place

LINES = ["import torch", "", "x = f().cuda()", "y = 1", "z = 2", "w = g().cuda()", ""]
DEFINITION = Replacement(2, 1, 2, 1, "\ndevice = 'cpu'\n")
FIRST = Replacement(3, 9, 3, 15, "to(device)")
SECOND = Replacement(6, 9, 6, 15, "to(device)")
SYNC = "torch.cuda.set_rng_state(old)"


def finding(line: int = 3, *replacements: Replacement, code: str = "DF101", **options: object) -> Finding:
    """Return a finding of a `.cuda()` on a line, with a safe fix if there are replacements."""
    fix = Fix((), replacements=replacements) if replacements else None
    return Finding(code, "`.cuda()` needs CUDA", line, 5, line, 15, fix, **options)  # type: ignore[arg-type]


def unsafe(line: int) -> Finding:
    """Return a finding with an unsafe fix."""
    return Finding("DF401", "m", line, 5, line, 15, Fix((), "w", replacements=(FIRST,)))


def checked(**files: list[Finding]) -> Checked:
    """Return the results of a run over modules with these findings."""
    text = "\n".join(LINES).encode()
    outcomes = [Outcome(f"{name}.py", Result(f"{name}.py", found), text) for name, found in files.items()]
    return Checked(outcomes, [Outcome("gone.py", Result("gone.py"), error="gone")], Everywhere(Settings()))


# -- wording -------------------------------------------------------------------------------------------


def test_place() -> None:
    assert place(finding()) == "3:5"
    assert place(finding(cell=4)) == "cell 4:3:5"


def test_count() -> None:
    assert [count(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("naïve `x`", "naïve `x`"), ("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("\u202e", "\\u202e")],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


# -- changes -------------------------------------------------------------------------------------------


def test_replacements_are_grouped_if_their_context_meets() -> None:
    assert list(changes.grouped([SECOND, FIRST], 1)) == [[FIRST], [SECOND]]
    assert list(changes.grouped([SECOND, FIRST], 2)) == [[FIRST, SECOND]]
    assert list(changes.grouped([], 2)) == []


def test_replaced_lines() -> None:
    assert changes.replaced(LINES, 2, 3, [FIRST]) == ["x = f().to(device)"]
    assert changes.replaced(LINES, 1, 4, [DEFINITION, FIRST]) == [
        "", "device = 'cpu'", "", "x = f().to(device)", "y = 1",
    ]  # fmt: skip
    removed = Replacement(3, 1, 5, 1, "")
    assert changes.replaced(LINES, 1, 5, [removed]) == ["", "z = 2"]


def test_long_lines_are_shortened_in_the_middle() -> None:
    assert changes.shortened("a" * changes.MAX_WIDTH) == "a" * changes.MAX_WIDTH
    shown = changes.shortened("a" * 200 + "b" * 200)
    assert shown == "a" * 80 + " … " + "b" * 80


def test_the_finding_is_marked_within_its_lines() -> None:
    found = Finding("DF101", "m", 2, 3, 4, 4)
    marked = [changes.mark_finding("  abc()", number, found) for number in range(1, 6)]
    assert marked == [
        ["  abc()"], ["  ", "abc()", ""], ["  ", "abc()", ""], ["  ", "a", "bc()"], ["  abc()"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("x.cuda()", "x.to(device)", ["x.", "cuda(", ")"], ["x.", "to(device", ")"]),
        ("f(a, b)", "f(a, b)", ["f(a, b)"], ["f(a, b)"]),
        ("a", "", ["", "a", ""], ["", "", ""]),
        ("a.cuda() + b.cuda()", "a.to(d) + b.to(d)", ["a.", "cuda(", ") + b.", "cuda(", ")"],
         ["a.", "to(d", ") + b.", "to(d", ")"]),
    ],
)  # fmt: skip
def test_differences_are_marked(before: str, after: str, old: list[str], new: list[str]) -> None:
    assert changes.mark_differences(before, after) == (old, new)
    assert ("".join(old), "".join(new)) == (before, after)


def test_hunks_number_the_lines_of_the_new_text() -> None:
    first, second = hunks(LINES, [DEFINITION, SECOND])
    assert first == [
        Row(" ", 2, [""]), Row("+", 3, ["device = 'cpu'"]), Row("+", 4, [""]), Row(" ", 5, ["x = f().cuda()"])
    ]  # fmt: skip
    assert [(row.sign, row.number) for row in second] == [(" ", 7), ("-", 0), ("+", 8)]
    assert second[1:] == [
        Row("-", 0, ["w = g().", "cuda(", ")"]), Row("+", 8, ["w = g().", "to(device", ")"])
    ]  # fmt: skip


def test_rows_of_a_fix_and_of_a_place() -> None:
    fixed = side_by_side.rows(finding(3, DEFINITION, FIRST), lambda _: LINES)
    assert [4 if len(row) == 4 else 3 for row in fixed] == [3, 3, 4, 3, 3]
    assert fixed[2] == [3, ["x = f().", "cuda(", ")"], 5, ["x = f().", "to(device", ")"]]
    assert fixed[3] == [4, 6, ["y = 1"]]
    placed = side_by_side.rows(finding(6), lambda _: LINES)
    assert placed == [[4, ["y = 1"]], [5, ["z = 2"]], [6, ["w = ", "g().cuda()", ""]]]


def test_shared_definitions_are_shown_once() -> None:
    found = [finding(3, DEFINITION, FIRST), finding(6, DEFINITION, SECOND)]
    assert side_by_side.definitions(found, lambda _: LINES) == [
        [0, [""], 0, ["device = 'cpu'"]], [2, 2, [""]],
    ]  # fmt: skip


# -- results -------------------------------------------------------------------------------------------


def test_fingerprints_depend_on_the_lines_and_not_on_their_numbers() -> None:
    def fingerprints(lines: list[str], *found: Finding) -> list[str]:
        data = "\n".join(lines).encode()
        return File(Outcome("a.py", Result("a.py", list(found)), data)).fingerprints("a.py")

    before = fingerprints(LINES, finding(3), finding(6))
    assert fingerprints(["#", *LINES], finding(4), finding(7)) == before
    assert len({*before, *fingerprints([*LINES[:2], "x = 1"], finding(3))}) == 3
    assert len(set(fingerprints(LINES, finding(3), finding(3)))) == 2


def test_undecodable_paths_are_text() -> None:
    assert as_text("b\udcff.py") == "b\ufffd.py"
    assert absolute("-") == "-"


def test_statistics_are_ordered_by_count() -> None:
    found = checked(a=[finding(3, FIRST), unsafe(3)], b=[finding(3), unsafe(6), unsafe(6)])
    assert statistics.counts(found) == [
        statistics.Count("DF401", "cuda-function", 3, False, 0),
        statistics.Count("DF101", "cuda-call", 2, False, 1),
    ]  # fmt: skip
    lines = [click.unstyle(line) for line in statistics.text(found)]
    assert lines == ["3\tDF401\t[ ] cuda-function\n", "2\tDF101\t[-] cuda-call\n"]


def result(*found: Finding, fixed: tuple[Finding, ...] = ()) -> Outcome:
    """Return the outcome of a file, with new content if findings are fixed."""
    return Outcome("a.py", Result("a.py", [*found, *fixed], list(fixed), b"" if fixed else None))


def totals(outcomes: list[Outcome], failed: int) -> Totals:
    """Return the numbers of a run without unsafe fixes."""
    return Totals.of(outcomes, failed, Everywhere(Settings()))


@pytest.mark.parametrize(
    ("results", "failed", "summary"),
    [
        ([], 0, "Nothing found in 0 files."),
        ([result()], 1, "Nothing found in 1 file; 1 file failed (see the errors)."),
        ([result(finding()), result()], 0, "Found 1 finding in 1 of 2 files."),
        (
            [result(finding(3, FIRST), unsafe(3), unsafe(6))],
            0,
            "Found 3 findings in 1 of 1 file.\n[*] 1 fixable with `--fix`, 2 more with `--unsafe-fixes`.\n"
            "To show only the 2 findings that `--fix` leaves, use `--unfixed`.",
        ),
        (
            [result(unsafe(3))],
            0,
            "Found 1 finding in 1 of 1 file.\n1 fixable with `--fix --unsafe-fixes`.",
        ),
    ],
)
def test_summary_of_check(results: list[Outcome], failed: int, summary: str) -> None:
    assert totals(results, failed).checked() == summary


@pytest.mark.parametrize(
    ("results", "written", "summary"),
    [
        ([result()], True, "Nothing found in 1 file."),
        ([result(finding())], True, "Nothing to fix; 1 finding remains."),
        ([result(fixed=(finding(),))], True, f"Fixed 1 finding in 1 file; 0 findings remain.\n{UNPROVEN}"),
        (
            [result(unsafe(3), finding(6), fixed=(finding(3, FIRST),))],
            False,
            "Would fix 1 finding in 1 file (apply with --in-place); 2 findings remain, "
            f"1 of them fixable with --unsafe-fixes.\n{UNPROVEN}",
        ),
    ],
)
def test_summary_of_rewrite(results: list[Outcome], written: bool, summary: str) -> None:
    assert totals(results, 0).rewritten(written) == summary


def test_summary_of_a_verified_rewrite_does_not_ask_for_a_run() -> None:
    done = totals([result(fixed=(finding(),))], 0)
    assert done.rewritten(written=True, verified=True) == "Fixed 1 finding in 1 file; 0 findings remain."


@pytest.mark.parametrize(
    ("left", "summary"),
    [
        ([], "Nothing found in 1 file that `--fix` leaves.\nNot shown: 3 fixable with `--fix`."),
        (
            [unsafe(3)],
            "Found 1 finding that `--fix` leaves in 1 of 1 file.\n1 fixable with `--fix --unsafe-fixes`.\n"
            "Not shown: 2 fixable with `--fix`.",
        ),
    ],
)
def test_summary_of_what_is_left(left: list[Finding], summary: str) -> None:
    every = totals([result(unsafe(3), finding(6), finding(7))], 0)
    assert totals([result(*left)], 0).hiding(every).checked() == summary


def test_summary_of_fixes() -> None:
    done = totals([result(unsafe(3), fixed=(finding(3, FIRST), finding(6)))], 1)
    failed = "; 1 file failed (see the errors)"
    assert done.fixed_and_checked() == (
        f"Found 3 findings (2 fixed, 1 remaining){failed}.\n1 fixable with `--fix --unsafe-fixes`."
    )
    assert done.only_fixed(written=True) == f"Fixed 2 findings{failed}."
    assert done.only_fixed(written=False) == f"Would fix 2 findings{failed}."
    nothing = totals([result(finding())], 0)
    assert nothing.fixed_and_checked() == nothing.checked()
    assert nothing.only_fixed(written=True) == "Nothing to fix in 1 file."


# -- the marks inside lines ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        ([SYNC], ["if torch.cuda.is_available():", f"    {SYNC}"], [(None, 0), (0, 1)]),
        (
            ["a.one()", "a.two()", "a.one()"],
            ["if a.ok():", "    a.one()", "    a.two()", "    a.one()"],
            [(None, 0), (0, 1), (1, 2), (2, 3)],
        ),
        (["x = f(a, b)"], ["x = f(", "    a, b", ")"], [(0, 0), (None, 1), (None, 2)]),
        (["x = 1", "y = 2"], ["x = 3", "y = 4"], [(0, 0), (1, 1)]),
        (["x = 1"], ["zzz", "www"], [(0, None), (None, 0), (None, 1)]),
    ],
)
def test_a_line_below_a_new_guard_stays_the_same_line(
    before: list[str], after: list[str], pairs: list[tuple[int | None, int | None]]
) -> None:
    assert list(changes.paired(before, after)) == pairs


def test_the_marks_of_a_guard() -> None:
    lines = ["import torch", "torch.cuda.synchronize()", ""]
    guard = Replacement(2, 1, 2, 25, "if torch.cuda.is_available():\n    torch.cuda.synchronize()")
    (rows,) = hunks(lines, [guard])
    assert [(row.sign, row.parts) for row in rows] == [
        (" ", ["import torch"]),
        ("-", ["", "", "torch.cuda.synchronize()"]),
        ("+", ["if torch.cuda.is_available():"]),
        ("+", ["", "    ", "torch.cuda.synchronize()"]),
    ]


# -- the migration report ------------------------------------------------------------------------------


def test_figures_of_a_migration() -> None:
    one, two = [finding(3, FIRST)], [unsafe(3), finding(6)]
    figures = migration(checked(a=one, b=two, c=[finding(3), finding(6)], d=[]))
    assert (figures.checked, figures.failed, figures.total, len(figures.files)) == (4, 1, 5, 3)
    assert figures.counts == {"safe": 1, "unsafe": 1, "left": 3}
    assert figures.amount(SAFE) == {"ties": 1, "files": 1, "rules": 1, "messages": 1}
    assert figures.amount(LEFT) == {"ties": 3, "files": 2, "rules": 1, "messages": 1}
    assert [file.path for file in figures.most_left] == ["c.py", "b.py"]
    assert [(group.key, group.total, group.files) for group in figures.categories] == [
        ("DF1", 4, 3),
        ("DF4", 1, 1),
    ]
    (rule,) = figures.by_rule(UNSAFE)
    assert (rule.key, rule.name, rule.total, rule.files) == ("DF401", "cuda-function", 1, 1)
    assert "What it does" in rule.page


def test_packages_are_folders_below_the_common_one() -> None:
    paths = ["p/a.py", "p/net/b.py", "p/net/deep/c.py"]
    outcomes = [Outcome(path, Result(path, [finding()]), "\n".join(LINES).encode()) for path in paths]
    figures = migration(Checked(outcomes, [], Everywhere(Settings())))
    assert {group.key: group.total for group in figures.packages} == {"p": 1, "p/net": 1, "p/net/deep": 1}


def test_many_packages_are_cut_at_a_depth() -> None:
    paths = [f"p/{number % 3}/{number}/a.py" for number in range(60)]
    outcomes = [Outcome(path, Result(path, [finding()]), "\n".join(LINES).encode()) for path in paths]
    figures = migration(Checked(outcomes, [], Everywhere(Settings())))
    assert {group.key: group.total for group in figures.packages} == {"p/0": 20, "p/1": 20, "p/2": 20}


# -- formats and errors --------------------------------------------------------------------------------


def test_the_configuration_names_every_format() -> None:
    assert set(values.FORMATS) == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_rendered(name: str) -> None:
    if name == "html":
        pytest.importorskip("jinja2")
    text = "".join(FORMATS[name].renderer()(checked(a=[finding(3, DEFINITION, FIRST)])))
    assert "DF101" in text


def test_exit_statuses() -> None:
    assert [exit_status(0, False), exit_status(0, True), exit_status(1, True)] == [0, 1, 2]


def test_errors_are_on_one_line() -> None:
    assert (
        missing_package("report", "jinja2", "report").message
        == f"report needs jinja2: {install_command('report')}"
    )
    error = os_error("a\nb.py", PermissionError(13, "Permission denied"))
    assert (error.message, error.exit_code) == ("a\\nb.py: Permission denied", 2)
