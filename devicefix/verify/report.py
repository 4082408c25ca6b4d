"""The report of a verification, as text and as JSON."""

from __future__ import annotations

import json
import linecache
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import click

from devicefix.config.printable import printable
from devicefix.verify.against_cuda import Comparison
from devicefix.verify.session import Report
from devicefix.verify.verdict import CopyHazard, Location, Request, Verdict

_COLOURS = {Verdict.PASS: "green", Verdict.STOPPED: "yellow"}
_SHOWN = 10  # of each kind
_WORTH_SAYING = 0.5  # seconds


def text(report: Report) -> str:
    """Return the report as lines of text."""
    return "".join(f"{line}\n" for line in _lines(report))


def as_json(report: Report) -> str:
    """Return the report as one JSON object."""
    return json.dumps(asdict(report), default=_plain, indent=2) + "\n"


def _plain(value: Any) -> Any:
    """Return what JSON holds instead of an enum, a set or a path."""
    if hasattr(value, "value"):
        return value.value
    return list(value) if isinstance(value, frozenset) else str(value)


def _lines(report: Report) -> Iterator[str]:
    run = report.run
    verdict = click.style(report.verdict.value, fg=_COLOURS.get(report.verdict, "red"), bold=True)
    steps = f", {_count(run.steps, 'optimizer step')}" if run.steps else ""
    reason = f": {printable(report.reason)}" if report.reason else ""
    copying = f" (and {report.copying:.1f} s for scratch copies)" if report.copying >= _WORTH_SAYING else ""
    yield f"verify: {verdict} in {run.seconds:.1f} s{copying}{steps}{reason}"
    yield from _failure(report)
    if report.python:
        yield _entry("python", printable(report.python))
    yield from _section("CUDA requests", map(_request, run.requests))
    yield from _section("copy hazards", map(_hazard, run.copies))
    yield from _fixes(report)
    if report.not_imported:
        what = (
            "module that was not imported and"
            if report.not_imported == 1
            else "modules that were not imported and"
        )
        yield _entry("not rewritten", f"{report.not_imported:,} {what} may need fixes")
    if report.comparison:
        yield from _comparison(report.comparison)
    yield from _section("warnings", [*report.errors, *run.warnings], if_empty=None)


def _failure(report: Report) -> Iterator[str]:
    failure = report.run.failure
    for frame in failure.frames[-_SHOWN:] if failure else ():
        function = f" in {printable(frame.function)}" if frame.function else ""
        yield f"    {place(frame)}{function}: {_source(frame)}"
    for cause in report.causes:
        finding = cause.finding
        yield f"  why: {place(cause.place)} {finding.code} {printable(finding.message)}"
        yield f"  do:  {cause.advice}"
    if report.advice:
        yield f"  do:  {report.advice}"


def _fixes(report: Report) -> Iterator[str]:
    run = report.run
    total = len(run.ran) + len(run.not_run)
    if not total:
        yield _entry("fixes", "nothing to rewrite")
        return
    left = f" (not run: {_first(map(place, run.not_run))})" if run.not_run else ""
    yield _entry("fixes run", f"{len(run.ran)} of {total} lines in {_count(run.modules, 'module')}{left}")


def _comparison(comparison: Comparison) -> Iterator[str]:
    machine = "a simulated CUDA machine" if comparison.machine == "simulated" else "CUDA"
    if not (comparison.failure or comparison.on_cuda or comparison.on_cpu):
        seen = _count(comparison.observations, "observation")
        if comparison.compared is not None and comparison.compared < comparison.observations:
            seen = f"{comparison.compared:,} of {seen}; the others are made on CUDA only"
        runs = f"the original on {machine}, the rewritten program there and on the CPU"
        yield _entry("numbers", f"equal: {runs} ({seen})")
    yield from _section(f"differs on {machine}", comparison.on_cuda, if_empty=None)
    yield from _section("differs on the CPU", comparison.on_cpu, if_empty=None)
    yield from _section("only on CUDA", comparison.notes, if_empty=None)


def _section(title: str, items: Iterable[str], if_empty: str | None = "none") -> Iterator[str]:
    """Yield the lines of a section: the first items, and how many more there are."""
    found = list(items)
    if not found and if_empty is not None:
        yield _entry(title, if_empty)
    for index, item in enumerate(found[:_SHOWN]):
        yield _entry(title if index == 0 else "", printable(item))
    if len(found) > _SHOWN:
        yield _entry("", f"and {len(found) - _SHOWN} more")


def _entry(title: str, content: str) -> str:
    return f"  {title:<14} {content}"


def _request(request: Request) -> str:
    times = f" ({request.count} times)" if request.count > 1 else ""
    by = f", by {request.library}" if request.library else ""
    return f"{place(request.place)} {request.call}{times}{by}: {_source(request.place)}"


def _hazard(hazard: CopyHazard) -> str:
    where = f"at {place(hazard.changed)}" if hazard.changed else "later"
    if hazard.what == "parameter":
        return (
            f"{place(hazard.moved)} `{hazard.move}` returns the parameter itself on a CPU, but on CUDA "
            f"a tensor that is no parameter: the module that gets it {where} has one parameter less there"
        )
    return (
        f"{place(hazard.moved)} `{hazard.move}` copies on CUDA but not on a CPU; "
        f"the shared {hazard.what} is changed {where} while both sides are in use"
    )


def place(location: Location) -> str:
    """Return a location as `file:line`, relative to the current folder if it is inside it."""
    try:
        path = os.path.relpath(location.file)
    except ValueError:  # on another drive
        path = location.file
    return f"{printable(location.file if path.startswith(os.pardir) else path)}:{location.line}"


def _source(location: Location) -> str:
    return printable(linecache.getline(location.file, location.line).strip())


def _first(items: Iterable[str]) -> str:
    """Return the first three items, and how many more there are."""
    found = list(items)
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
