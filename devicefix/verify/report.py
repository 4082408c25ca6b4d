"""What a verification has found: for a person who has ten seconds, and for machines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import click

from devicefix.report.wording import printable
from devicefix.verify.against_cuda import Comparison
from devicefix.verify.session import Report
from devicefix.verify.verdict import Copy, Place, Request, Verdict

_COLOURS = {Verdict.PASS: "green", Verdict.STOPPED: "yellow"}
_SHOWN = 10  # of each kind


def text(report: Report) -> str:
    """The report as lines of text."""
    return "".join(f"{line}\n" for line in _lines(report))


def as_json(report: Report) -> str:
    """The report as one object of JSON."""

    def plain(value: Any) -> Any:
        return (
            value.value
            if hasattr(value, "value")
            else list(value)
            if isinstance(value, frozenset)
            else str(value)
        )

    return json.dumps(asdict(report), default=plain, indent=2) + "\n"


def _lines(report: Report) -> Iterator[str]:
    run = report.run
    verdict = click.style(report.verdict.value, fg=_COLOURS.get(report.verdict, "red"), bold=True)
    steps = f", {_count(run.steps, 'optimizer step')}" if run.steps else ""
    reason = f": {printable(report.reason)}" if report.reason else ""
    yield f"verify: {verdict} in {run.seconds:.1f} s{steps}{reason}"
    yield from _failure(report)
    yield from _listed("CUDA requests", map(_request, run.requests))
    yield from _listed("shared memory", map(_copy, run.copies))
    yield from _fixes(report)
    if report.comparison:
        yield from _comparison(report.comparison)
    yield from _listed("warnings", [*report.errors, *run.warnings], none=False)


def _failure(report: Report) -> Iterator[str]:
    failure = report.run.failure
    for frame in failure.frames[-_SHOWN:] if failure else ():
        yield f"    {place(frame)}{f' in {frame.function}' if frame.function else ''}: {_source(frame)}"
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
    left = f" (not run: {_some(map(place, run.not_run))})" if run.not_run else ""
    yield _entry("fixes run", f"{len(run.ran)} of {total} lines in {_count(run.modules, 'module')}{left}")


def _comparison(comparison: Comparison) -> Iterator[str]:
    machine = "a simulated CUDA machine" if comparison.machine == "simulated" else "CUDA"
    if not (comparison.failure or comparison.on_cuda or comparison.on_cpu):
        seen = _count(comparison.observations, "observation")
        yield _entry(
            "numbers", f"equal: the original on {machine}, the rewritten one there and on the CPU ({seen})"
        )
    yield from _listed(f"differs on {machine}", comparison.on_cuda, none=False)
    yield from _listed("differs on the CPU", comparison.on_cpu, none=False)
    yield from _listed("only on CUDA", comparison.notes, none=False)


def _listed(title: str, items: Iterable[str], none: bool = True) -> Iterator[str]:
    found = list(items)
    if not found and none:
        yield _entry(title, "none")
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


def _copy(copy: Copy) -> str:
    changed = f"is changed at {place(copy.changed)}" if copy.changed else "is changed later"
    return (
        f"{place(copy.moved)} {copy.move} copies on CUDA; here the {copy.what} is the same memory, "
        f"which {changed} while both are in use"
    )


def place(where: Place) -> str:
    """A line of the program, as a path from the current folder."""
    try:
        path = os.path.relpath(where.file)
    except ValueError:  # on another drive
        path = where.file
    return f"{printable(where.file if path.startswith(os.pardir) else path)}:{where.line}"


def _source(where: Place) -> str:
    import linecache

    return printable(linecache.getline(where.file, where.line).strip())


def _some(items: Iterable[str]) -> str:
    found = list(items)
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
