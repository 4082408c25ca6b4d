"""The report of a verification, as text and as JSON."""

from __future__ import annotations

import json
import os
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import click

from devicefix.config.printable import printable
from devicefix.report.json import entry
from devicefix.verify.against_cuda import Comparison
from devicefix.verify.cause import Explanation
from devicefix.verify.coverage import Total
from devicefix.verify.places import parts, place, shown_path, source
from devicefix.verify.session import Report
from devicefix.verify.verdict import CopyHazard, Module, Request, Run, Verdict

_COLOURS = {Verdict.PASS: "green", Verdict.STOPPED: "yellow"}
_SHOWN = 5  # of each kind
_INDENT = re.compile(r" {4,}|  (?:why: |do:  |.{14} )|")  # where the lines of a paragraph begin
_WORTH_SAYING = 0.5  # seconds


def text(report: Report, verbose: bool = False, width: int = 0, compare: str = "", apply: str = "") -> str:
    """Return the report as lines of text.

    Args:
        report: the report.
        verbose: whether to list all items of each kind, and the lines with fixes that did not run.
        width: the width of the terminal, for paragraphs; 0 for lines of any length.
        compare: the command that also compares the results, for a report without a comparison.
        apply: the command that applies the fixes, without its paths, for a report with one.
    """
    lines = _lines(report, None if verbose else _SHOWN, compare, apply)
    return "".join(f"{each}\n" for line in lines for each in _wrapped(line, width))


def _wrapped(line: str, width: int) -> list[str]:
    if not width or "\x1b" in line:  # colours have no width
        return [line]
    indent = " " * len(_INDENT.findall(line)[0])
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)


def as_json(report: Report) -> str:
    """Return the report as one JSON object."""
    data = asdict(report)
    if report.explanation:
        for tie, shown in zip(report.explanation.findings, data["explanation"]["findings"], strict=True):
            shown["finding"] = entry(tie.finding, parts(tie.place.file)[0])
    return json.dumps(data, default=_plain, indent=2) + "\n"


def _plain(value: Any) -> Any:
    """Return what JSON holds instead of an enum, a set or a path."""
    if hasattr(value, "value"):
        return value.value
    return list(value) if isinstance(value, frozenset) else str(value)


def _lines(report: Report, most: int | None, compare: str, apply: str) -> Iterator[str]:
    run = report.run
    verdict = click.style(report.verdict.value, fg=_COLOURS.get(report.verdict, "red"), bold=True)
    steps = f", {_count(run.steps, 'optimizer step')}" if run.steps else ""
    reason = f": {printable(report.reason)}" if report.reason else ""
    more = report.seconds >= run.seconds + _WORTH_SAYING
    total = f" ({report.seconds:.1f} s with all runs and copies)" if more else ""
    yield f"verify: {verdict} in {run.seconds:.1f} s{total}{steps}{reason}"
    yield from _failure(report, most)
    if report.comparison:
        yield from _comparison(report.comparison, run)
    if report.python:
        yield _entry("python", printable(report.python))
    yield from _section("CUDA requests", map(_request, run.requests), most)
    yield from _section("copy hazards", map(_hazard, run.copies), most)
    yield from _fixes(run, most)
    if report.coverage:
        yield from _coverage(report.coverage)
    notes = report.comparison.notes if report.comparison else []
    yield from _section("notes", notes, most, if_empty="")
    yield from _section("warnings", [*report.errors, *run.warnings], most, if_empty="")
    if report.verdict is Verdict.PASS:
        yield from _next_step(report.comparison, _imported(run.modules), compare, apply)


def _next_step(comparison: Comparison | None, imported: str, compare: str, apply: str) -> Iterator[str]:
    if not imported:
        if comparison is not None:
            where = "on the last commit without the fixes"
            yield f"  do:  to compare with the original, run this command {where}"
    elif comparison is not None and apply:
        yield f"  do:  to apply the fixes, run `{printable(apply)} {imported}`"
    elif comparison is None and compare:
        what = "to compare the results with those of the original on simulated CUDA"
        yield f"  do:  {what}, run `{printable(compare)}`"


def _imported(modules: Iterable[Module]) -> str:
    """Return the module that ran, or the folder that holds all of these, for a command line."""
    files = [module.file for module in modules if module.imported]
    return (
        shlex.quote(shown_path(files[0] if len(files) == 1 else os.path.commonpath(files))) if files else ""
    )


def _failure(report: Report, most: int | None) -> Iterator[str]:
    failure, comparison = report.run.failure, report.comparison
    for frame in failure.frames[-(most or 0) :] if failure else ():
        function = f" in {printable(frame.function)}" if frame.function else ""
        yield f"    {place(frame)}{function}: {source(frame)}"
    if report.explanation:
        yield from _explanation(report.explanation, comparison, most)


def _explanation(explanation: Explanation, comparison: Comparison | None, most: int | None) -> Iterator[str]:
    yield f"  why: {explanation.cause.summary} [{explanation.cause.value}]"
    unlike = comparison.on_cuda + comparison.on_cpu if comparison else []  # the evidence has only the first
    yield from (f"       {line}" for line in _some(unlike or explanation.evidence, most))
    if comparison and comparison.output:
        yield "       its output ends with:"
        yield from (f"         | {printable(line)}" for line in comparison.output[-(most or 0) :])
    for tie in explanation.findings[:most]:
        yield f"       {place(tie.place)} {tie.finding.code} {printable(tie.finding.message)}"
        if tie.advice != explanation.advice:
            yield f"       {printable(tie.advice)}"
    yield f"  do:  {printable(explanation.advice)}"


def _fixes(run: Run, most: int | None) -> Iterator[str]:
    """Yield how many of the lines with fixes ran, in total and by module."""
    modules = run.modules
    if not modules:
        yield _entry("fixes", "nothing to rewrite")
        return
    imported = [module for module in modules if module.imported]
    others = [module for module in modules if not module.imported]
    ran, total = sum(len(module.ran) for module in imported), sum(module.lines for module in imported)
    shown = f"{ran:,} of {_count(total, 'line')} in {_count(len(imported), 'module')}"
    if not imported:
        shown = "none, since no module that ran has fixes"
    if others:
        left = _count(sum(module.lines for module in others), "line")
        were = "was" if len(others) == 1 else "were"
        shown += f"; {_count(len(others), 'module')} with {left} {were} not imported"
    yield _entry("fixes run", shown)
    if most is None:
        yield from (_entry("", _module(module, _missing(module, run))) for module in [*imported, *others])
        return
    incomplete = [module for module in imported if module.not_run]
    rows = incomplete if len(imported) == 1 else sorted(imported, key=lambda module: not module.not_run)
    yield from (_entry("", line) for line in _some(map(_module, rows), most, " modules"))
    if incomplete or others:
        yield _entry("", "`--verbose` lists the fixed lines that did not run")


def _coverage(total: Total) -> Iterator[str]:
    """Yield what a coverage file holds."""
    shown = f"{total.ran:,} of {_count(total.lines, 'line')} in {_count(total.modules, 'module')}"
    yield _entry("in all runs", f"{shown} ({printable(total.file)})")
    for path in total.dropped:
        dropped = f"older runs of {printable(path)} are dropped"
        yield _entry("", f"{dropped}, because the file or its fixes have changed")


def _module(module: Module, missing: str = "") -> str:
    ran = f"{len(module.ran):,} of {_count(module.lines, 'line')}" if module.imported else "not imported"
    return f"{shown_path(module.file)}: {ran}" + (f" (not run: {missing})" if missing else "")


def _missing(module: Module, run: Run) -> str:
    """Return the lines of a module that did not run; in a notebook they are those of cells."""
    in_cells = [place(each) for each in run.not_run if each.file.startswith(f"{module.file}:")]
    return ", ".join(in_cells) or ranges(module.not_run)


def ranges(lines: Iterable[int]) -> str:
    """Return sorted lines with consecutive ones as ranges, as in `3, 7-9`."""
    found: list[list[int]] = []
    for line in lines:
        if found and line == found[-1][-1] + 1:
            found[-1][1:] = [line]
        else:
            found.append([line])
    return ", ".join("-".join(map(str, each)) for each in found)


def _comparison(comparison: Comparison, run: Run) -> Iterator[str]:
    machine = "a simulated CUDA machine" if comparison.machine == "simulated" else "CUDA"
    other = f"on a simulated {comparison.accelerator.upper()}" if comparison.accelerator else ""
    rewritten = other or "on the same machine and on the CPU"
    if run.modules:
        yield _entry("runs", f"the original on {machine}, the rewritten program {rewritten}")
    else:
        yield _entry("runs", f"the program, which has no fixes, on {machine} and {other or 'on the CPU'}")
    if not (comparison.failure or comparison.on_cuda or comparison.on_cpu):
        seen = _count(comparison.observations, "value")
        if not comparison.observations:
            yield _entry("numbers", "none to compare: the program reads, prints and saves no tensor values")
        elif comparison.compared is not None and comparison.compared < comparison.observations:
            others = "the run ended before the others" if run.limit else "the others are read only on CUDA"
            yield _entry("numbers", f"{comparison.compared:,} of {seen} equal; {others}")
        else:
            yield _entry("numbers", f"{seen} equal")


def _section(title: str, items: Iterable[str], most: int | None, if_empty: str = "none") -> Iterator[str]:
    """Yield the lines of a section: the first items, and how many more there are."""
    for index, item in enumerate(_some(list(items) or filter(None, [if_empty]), most)):
        yield _entry("" if index else title, item)


def _some(items: Iterable[str], most: int | None, kind: str = "") -> Iterator[str]:
    """Yield the first of some items, and how many more there are."""
    found = list(items)
    yield from map(printable, found[:most])
    if most is not None and len(found) > most:
        yield f"and {len(found) - most} more{kind}; `--verbose` shows all"


def _entry(title: str, content: str) -> str:
    return f"  {title:<14} {content}"


def _request(request: Request) -> str:
    times = f" ({request.count} times)" if request.count > 1 else ""
    by = f", by {request.library}" if request.library else ""
    return f"{place(request.place)} {request.call}{times}{by}: {source(request.place)}"


def _hazard(hazard: CopyHazard) -> str:
    where = f"at {place(hazard.changed)}" if hazard.changed else "later"
    shared = f"the shared {hazard.what} is changed {where} while the source and the result are in use"
    return f"{place(hazard.moved)} `{hazard.move}` copies on CUDA but not on a CPU; {shared}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
