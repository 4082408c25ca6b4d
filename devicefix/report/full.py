"""Each finding with its lines, carets below them, and the diff of its fix, laid out as in ruff."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from devicefix.config.printable import printable
from devicefix.model import Finding, Replacement, Safety
from devicefix.report.changes import MAX_WIDTH, shortened
from devicefix.report.checked import Checked, File
from devicefix.report.concise import mark
from devicefix.report.hunks import Row, by_cell
from devicefix.report.wording import place
from devicefix.rewrite.preview import title
from devicefix.rules.registry import RULES

CONTEXT = 2  # lines around a finding
MAX_LINES = 8  # lines of a finding and its context
TAB = "    "
SEPARATOR = "-" * 80
LEFT = "Findings that `--fix` leaves:"
UNSAFE = "This is an unsafe fix and may change the program's behavior"


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces: first what `--fix` fixes, then what it leaves."""
    fixable = any(checked.is_fixable(file.path, each) for file in checked.files for each in file.findings)
    if fixable:
        yield from _blocks(checked, fixable=True)
    for index, block in enumerate(_blocks(checked, fixable=False)):
        if fixable and index == 0:
            yield f"{LEFT}\n\n"
        yield block


def _blocks(checked: Checked, fixable: bool) -> Iterator[str]:
    """Yield the text of each finding that `--fix` fixes, or of each that it leaves."""
    for file in checked.files:
        for finding in file.findings:
            if checked.is_fixable(file.path, finding) is fixable:
                lines = _block(file, finding, mark(fixable))
                yield "".join(f"{line.rstrip(' ')}\n" for line in lines) + "\n"


def _block(file: File, finding: Finding, mark: str) -> Iterator[str]:
    """Yield the lines of the output for one finding."""
    message = click.style(printable(finding.message), bold=True)
    label = click.style(f"({RULES[finding.code].name})", dim=True)
    yield f"{click.style(finding.code, fg='red', bold=True)} {mark}{message} {label}"
    lines = file.lines(finding.cell)
    first, last = _line_range(lines, finding)
    margin = _Margin(len(str(last)))
    yield f"{'':{margin.width}}{_blue('-->')} {printable(file.path)}:{place(finding)}"
    if finding.line <= len(lines):
        yield margin.line(0)
        yield from _snippet(lines, finding, first, last, margin)
    if finding.fix and finding.fix.replacements:
        yield _remark("help", "cyan", printable(title(finding)))
        yield from _difference(file, finding.fix.replacements)
        if finding.safety is Safety.UNSAFE:
            yield _remark("note", "yellow", UNSAFE)


def _remark(kind: str, colour: str, text: str) -> str:
    return click.style(kind, fg=colour, bold=True) + click.style(f": {text}", bold=True)


class _Margin(NamedTuple):
    """The left margin, with line numbers.

    Attributes:
        width: the number of digits.
    """

    width: int

    def number(self, number: int) -> str:
        return f"{number or '':<{self.width}}"

    def line(self, number: int, text: str = "") -> str:
        return f"{_blue(f'{self.number(number)} |')} {text}"


def _blue(text: str) -> str:
    return click.style(text, fg="blue", bold=True)


# -- the lines of a finding ----------------------------------------------------------------------------


def _line_range(lines: list[str], finding: Finding) -> tuple[int, int]:
    """Return the numbers of the first and the last line to show, without blank lines at the ends."""
    first = max(finding.line - CONTEXT, 1)
    last = min(finding.end_line + CONTEXT, first + MAX_LINES, len(lines))
    while first < min(finding.line, last + 1) and not lines[first - 1].strip():
        first += 1
    while last > finding.end_line and not lines[last - 1].strip():
        last -= 1
    return first, max(last, first)


def _snippet(lines: list[str], finding: Finding, first: int, last: int, margin: _Margin) -> Iterator[str]:
    """Yield the lines of a finding and its context; carets mark the first line of the finding."""
    for number in range(first, last + 1):
        if number == finding.line:
            yield from _marked(lines[number - 1], finding, margin)
        else:
            yield margin.line(number, _shown(lines[number - 1][:MAX_WIDTH]))
    if last > finding.end_line:
        yield margin.line(0)


def _marked(text: str, finding: Finding, margin: _Margin) -> Iterator[str]:
    """Yield the first line of a finding, and carets below it."""
    start = min(finding.column - 1, len(text))
    last = finding.end_column - 1 if finding.end_line <= finding.line else len(text)
    end = max(min(last, len(text)), start)
    cut = max(min(start - MAX_WIDTH // 2, len(text) - MAX_WIDTH), 0)
    before, within = text[cut:start], text[start : min(end, cut + MAX_WIDTH)]
    dots = "…" if cut else ""
    yield margin.line(finding.line, f"{dots}{_shown(text[cut : cut + MAX_WIDTH])}")
    carets = click.style("^" * max(_width(_shown(within)), 1), fg="red", bold=True)
    yield margin.line(0, " " * _width(dots + _shown(before)) + carets)


def _shown(text: str) -> str:
    """Return a part of a line as it is printed."""
    return printable(text.replace("\t", TAB))


def _width(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


# -- the diff of a fix ---------------------------------------------------------------------------------


def _difference(file: File, replacements: tuple[Replacement, ...]) -> Iterator[str]:
    """Yield the lines that a fix changes."""
    found = by_cell(file, replacements)
    numbers = [row.number for changed in found.values() for rows in changed for row in rows]
    margin = _Margin(len(str(max(numbers, default=0))))
    for cell, changed in found.items():
        if cell is not None:
            yield f"{'':{margin.width}}{_blue(':::')} cell {cell}"
        yield margin.line(0)
        for number, rows in enumerate(changed):
            if number:
                yield SEPARATOR
            yield from (_row(row, margin) for row in rows)
        yield margin.line(0)


def _row(row: Row, margin: _Margin) -> str:
    """Return a line of the diff."""
    parts = [_shown(shortened(part)) for part in row.parts]
    if row.sign == " ":
        return margin.line(row.number, "".join(parts))
    colour = "red" if row.sign == "-" else "green"
    text = "".join(click.style(part, fg=colour, bold=bool(at % 2)) for at, part in enumerate(parts) if part)
    number = _blue(margin.number(row.number))
    return f"{number} {click.style(row.sign, fg=colour, bold=True)} {text}"
