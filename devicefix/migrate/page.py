"""The result of a migration as text: what is left first, then what was done, then the verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from devicefix.config.printable import printable, printable_path
from devicefix.files.kinds import environment_of
from devicefix.files.origin import Origin
from devicefix.migrate.proof import equal, passes, uncompared
from devicefix.migrate.session import Kept, Left, Migration, coverage
from devicefix.model import Safety
from devicefix.report.wording import count, place
from devicefix.rules.config_file import ConfigFile
from devicefix.verify.cause import Explanation
from devicefix.verify.places import place as shown_place
from devicefix.verify.places import shown_path
from devicefix.verify.report import ranges
from devicefix.verify.session import Report

SHOWN = 20  # findings of each group


def text(done: Migration) -> str:
    """Return the result as lines of text."""
    return "".join(f"{line}\n" for line in _lines(done))


def as_json(done: Migration) -> str:
    """Return the result as one JSON object."""
    ran, not_run = coverage(done.reports)
    look = done.look
    data: dict[str, Any] = {
        "verdict": done.verdict,
        "project": {
            "root": str(look.root),
            "files": look.files,
            "notebooks": len(look.notebooks),
            "lines": look.lines,
            "scripts": look.scripts,
        },
        "left": [
            {
                **_finding_as_data(left),
                "unsafe_fix": left.finding.safety is Safety.UNSAFE,
                "kind": left.origin.name.lower(),
                "stops_the_program": left.blamed,
                "unjustified": left.unjustified or None,
            }
            for left in done.left
        ],
        "justified_by_runs": [{**_finding_as_data(kept), "evidence": kept.evidence} for kept in done.kept],
        "install": [
            {"path": each.path, "from": each.original, "command": each.command, "new": not each.exists}
            for each in done.variants
        ],
        "unproven": done.unproven,
        "fixed": done.fixed,
        "changed": [outcome.path for outcome in done.changed],
        "failed": {outcome.path: outcome.error for outcome in done.failed},
        "runs": list(map(_run_as_data, done.commands, done.reports)),
        "fixed_lines": {
            "ran": len(ran),
            "all": len(ran | not_run),
            "not_run": [{"path": path, "line": line} for path, line in sorted(not_run)],
        }
        if done.reports
        else None,
    }
    return json.dumps(data, indent=2) + "\n"


def _finding_as_data(found: Left | Kept) -> dict[str, str]:
    finding = found.finding
    return {"path": found.path, "place": place(finding), "code": finding.code, "message": finding.message}


def _run_as_data(command: str, report: Report) -> dict[str, Any]:
    explanation, comparison = report.explanation, report.comparison
    return {
        "command": command,
        "passes": passes(report),
        "equal": equal(report),
        "reason": report.reason,
        "seconds": report.run.seconds,
        "compared": comparison.compared if comparison else None,
        "advice": explanation.advice if explanation else None,
        "evidence": evidence_of(explanation) if explanation else [],
    }


def _lines(done: Migration) -> Iterator[str]:
    yield f"{click.style(name(done), bold=True)}: {about(done)}"
    yield ""
    yield from _left(done)
    yield from _failed(done)
    yield from _done(done)
    yield from _environment(done)
    yield from _runs(done)
    colour = "red" if not done.runs else "green" if done.reports else "yellow"
    yield f"Verdict: {click.style(printable(done.verdict), fg=colour, bold=True)}{executed(done)}"
    if not done.reports:
        yield from _not_run(done)


def executed(done: Migration) -> str:
    """Return how much of the change ran, to be read behind the verdict; empty if nothing was proven."""
    ran, not_run = coverage(done.reports)
    lines = len(ran | not_run)
    return f" ({len(ran):,} of {count(lines, 'fixed line')} ran)" if lines and done.runs else ""


def name(done: Migration) -> str:
    """Return the name of the project."""
    return printable(done.look.root.resolve().name)


def about(done: Migration) -> str:
    """Return what the project is, in one line."""
    look = done.look
    parts = [count(look.files, "Python file"), f"{look.lines:,} lines"]
    if look.notebooks:
        parts.append(count(len(look.notebooks), "notebook"))
    return ", ".join(parts)


def _left(done: Migration) -> Iterator[str]:
    yield click.style(f"Left for you: {amount(done)}", bold=True)
    yield from _failing(done)
    for title, found in groups(done):
        yield from _group(title, found)
    yield ""


def groups(done: Migration) -> list[tuple[str, list[Left]]]:
    """Return what is left in groups with their titles, the most urgent first; none of them is empty."""
    code = [left for left in done.left if left.origin is Origin.CODE and not left.blamed]
    unsafe = [left for left in code if left.finding.safety is Safety.UNSAFE]
    others = [left for left in code if left.finding.safety is not Safety.UNSAFE]
    settings = [left for left in others if left.finding.code == ConfigFile.code]
    beside = [left for left in others if environment_of(left.path) is not None and left not in settings]
    found = [
        ("A run stopped here:", [left for left in done.left if left.blamed]),
        ("No automatic fix:", [left for left in others if left not in settings and left not in beside]),
        *_unjustified(unsafe),
        ("In environment files:", beside),
        ("In configuration files and scripts:", settings),
    ]
    for origin in list(Origin)[1:]:
        of_it = [left for left in done.left if left.origin is origin and not left.blamed]
        found.append((f"In {origin.value}:", of_it))
    return [(title, group) for title, group in found if group]


def _unjustified(unsafe: Sequence[Left]) -> Iterator[tuple[str, list[Left]]]:
    """Yield the unsafe fixes that are not made by the reason, with a title for each."""
    for why in dict.fromkeys(left.unjustified for left in unsafe):
        reason = f"{why}; " if why else ""
        advice = "review them, then use `check --fix --unsafe-fixes`"
        title = f"Unsafe fixes that no run justifies ({reason}{advice}):"
        yield title, [left for left in unsafe if left.unjustified == why]


def amount(done: Migration) -> str:
    """Return what is left in words."""
    failing = len(done.reports) - sum(map(passes, done.reports))
    commands = [f"{count(failing, 'command')} that {'fails' if failing == 1 else 'fail'}"] if failing else []
    findings = [count(len(done.left), "finding")] if done.left else []
    return " and ".join(commands + findings) or "no findings"


def _failing(done: Migration) -> Iterator[str]:
    for command, report in zip(done.commands, done.reports, strict=True):
        if not passes(report):
            yield f"  {printable(command)}: {result(report)}"
            yield from _why(report)
    if done.unproven:
        yield f"  devicefix tried other fixes, but the runs do not prove them: {printable(done.unproven)}"


def _group(title: str, found: Sequence[Left]) -> Iterator[str]:
    yield f"  {title}"
    for left in found[:SHOWN]:
        where = click.style(f"{printable_path(left.path)}:{place(left.finding)}", bold=True)
        yield f"    {where} {click.style(left.finding.code, fg='red')} {printable(left.finding.message)}"
    if len(found) > SHOWN:
        yield f"    and {len(found) - SHOWN} more: `devicefix check` lists them"


def _failed(done: Migration) -> Iterator[str]:
    if not done.failed:
        return
    yield click.style(f"Not checked: {count(len(done.failed), 'file')}", bold=True)
    for outcome in done.failed[:SHOWN]:
        yield f"    {printable_path(outcome.path)}: {printable(outcome.error or '')}"
    yield ""


def fixed_by_rule(done: Migration) -> list[tuple[str, int, str]]:
    """Return the code of each rule with fixes, the number of these and the rule's summary."""
    from devicefix.rules.registry import RULES

    codes = Counter(finding.code for outcome in done.changed for finding in outcome.result.fixed)
    return [(code, number, RULES[code].summary) for code, number in codes.most_common()]


def _done(done: Migration) -> Iterator[str]:
    if not done.changed:
        yield click.style("Fixed: nothing", bold=True)
        yield ""
        return
    files = count(len(done.changed), "file")
    yield click.style(f"Fixed: {count(done.fixed, 'finding')} in {files}", bold=True)
    for code, number, summary in fixed_by_rule(done):
        yield f"  {number:>5} {code} {summary}"
    if done.kept:
        yield "  These fixes are unsafe, but the runs justify them:"
        for evidence, found in kept_by_evidence(done):
            for kept in found[:SHOWN]:
                where = f"{printable_path(kept.path)}:{place(kept.finding)}"
                yield f"    {where} {kept.finding.code} {printable(kept.finding.message)}"
            if len(found) > SHOWN:
                yield f"    and {len(found) - SHOWN} more"
            yield f"    Evidence: each fix {printable(evidence)}"
    yield ""


def kept_by_evidence(done: Migration) -> list[tuple[str, list[Kept]]]:
    """Return the unsafe fixes that are kept, grouped by what justifies them."""
    groups: dict[str, list[Kept]] = {}
    for kept in done.kept:
        groups.setdefault(kept.evidence, []).append(kept)
    return list(groups.items())


def _environment(done: Migration) -> Iterator[str]:
    if not done.variants:
        return
    written = "" if all(variant.exists for variant in done.variants) else ", once the changes are written"
    yield click.style(f"To install without CUDA{written}", bold=True)
    for variant in done.variants:
        if variant.exists:
            name = printable_path(variant.path)
            yield f"  {name} already exists; devicefix does not replace it"
        else:
            yield f"  {printable(variant.command)}  (new, based on {printable_path(variant.original)})"
    yield ""


def _runs(done: Migration) -> Iterator[str]:
    if not done.reports:
        return
    yield click.style("Runs", bold=True)
    for command, report in zip(done.commands, done.reports, strict=True):
        yield f"  {printable(command)}: {result(report)}"
        yield from (f"    warning: {printable(warning)}" for warning in report.run.warnings)
    if done.changed:
        first, *files = lines_ran(done)
        yield f"  {first}"
        yield from (f"    {each}" for each in files[:SHOWN])
        if len(files) > SHOWN:
            yield f"    and {count(len(files) - SHOWN, 'more file')}"
    yield ""


def lines_ran(done: Migration) -> list[str]:
    """Return how many of the fixed lines ran, then for each file the lines that did not."""
    ran, not_run = coverage(done.reports)
    of_file: dict[str, list[int]] = {}
    for path, line in sorted(not_run):
        of_file.setdefault(path, []).append(line)
    more = "; the others are not proven:" if not_run else ""
    first = f"{len(ran):,} of {count(len(ran | not_run), 'fixed line')} ran{more}"
    return [first, *(f"{shown_path(path)}: {ranges(lines)}" for path, lines in of_file.items())]


def result(report: Report) -> str:
    """Return the result of a command in words."""
    run, comparison = report.run, report.comparison
    steps = f", {count(run.steps, 'optimizer step')}" if run.steps else ""
    if not passes(report):
        return f"{click.style(report.verdict.value, fg='red')}: {printable(report.reason)}"
    numbers = "no numbers to compare"
    if comparison is not None and equal(report):
        values = count(comparison.compared or 0, "value")
        numbers = f"{values} equal on the CPU and simulated CUDA"
    elif why := uncompared(report):
        numbers = f"the original fails on the simulated CUDA machine: {printable(why)}"
    return f"{click.style('pass', fg='green')} in {run.seconds:.1f} s on the CPU{steps}; {numbers}"


def _why(report: Report) -> Iterator[str]:
    explanation = report.explanation
    if explanation is None:
        return
    yield f"    why: {explanation.cause.summary}"
    yield from (f"         {printable(evidence)}" for evidence in evidence_of(explanation))
    yield f"    do:  {printable(explanation.advice)}"
    if report.output:
        yield "    its output ends with:"
        yield from (f"      | {printable(line)}" for line in report.output)


def evidence_of(explanation: Explanation) -> list[str]:
    """Return the evidence of a cause, and the findings at its lines."""
    ties = ((shown_place(tie.place), tie.finding) for tie in explanation.findings)
    return [*explanation.evidence, *(f"{where} {each.code} {each.message}" for where, each in ties)]


def _not_run(done: Migration) -> Iterator[str]:
    look = done.look
    examples = [*(f"python {name}" for name in look.scripts), *look.notebooks, "python SCRIPT"]
    yield f'To prove the result, add `--run "COMMAND"`, such as `--run "{printable(examples[0])}"`.'
