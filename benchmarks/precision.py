"""Estimate how many findings on the corpus are right: draw a sample, judge it, count the verdicts.

    python benchmarks/precision.py sample [DIR] [--size N] [--seed N] [--sheet FILE] [--safe]
    python benchmarks/precision.py score [DIR] [--safe]

A finding is `right` if it is a tie to CUDA, if its message says what is wrong and what to do, and if its fix
keeps the promise: with CUDA exactly the same, without it the program runs on the CPU with the same numbers.
Else it is a `wrong-finding`, `wrong-message` or `wrong-fix`, with a note in our own words. The verdicts are
kept in `verdicts-precision.toml`; precision = right / judged. What was mended since is counted separately:
`mended` says how, and the verdict stays as it was.

With `--safe` the population is the fixes that are made without `--unsafe-fixes`; `--verdicts
verdicts-safe-fixes.toml` keeps those on the repositories of `modern.toml`.

`score` also checks the packages again: which of the judged findings are found no more, and whose message or
fix has changed since (`seen` is a digest of them), so that they have to be read again.
"""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from corpus_report import is_definition, lines_of
from samples import Entry, Verdict, add_sample, entries, interval, parser, place, read_verdicts, write_sheet

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project
from devicefix.files.text import Source
from devicefix.model import Finding, Result

VERDICTS = Path(__file__).with_name("verdicts-precision.toml")
ALLOWED = ("right", "wrong-finding", "wrong-message", "wrong-fix")


def findings(root: Path, safe: bool, project: Project, path: Path, data: bytes) -> list[Entry]:
    """Return the findings in one file, each with its message and its part of the rewrite.

    Args:
        root: the folder of the packages.
        safe: whether to return only those that a rewrite fixes, which makes no unsafe fixes then.
        project: the facts of all files.
        path: the file.
        data: its content.
    """
    result = check_file(data, str(path), Settings(fix=True, unsafe_fixes=not safe), project)
    fixed = {id(finding) for finding in result.fixed}
    return [
        Entry(
            f"{place(path, root)}:{finding.line}:{finding.code}",
            str(path),
            finding.line,
            finding.end_line,
            finding.code,
            f"{finding.code} ({finding.safety.value if finding.safety else 'no fix'}) {finding.message}\n"
            + ("\n".join(changes(finding, data, result)) if id(finding) in fixed else ""),
        )
        for finding in (result.fixed if safe else result.findings)
    ]


def changes(finding: Finding, data: bytes, result: Result) -> list[str]:
    """Return the lines that a fix removes and adds, with the definitions that it needs."""
    assert finding.fix is not None
    source = Source(data)
    own = {line for edit in finding.fix.edits for line in lines_of(edit, source)}
    before, after = data.splitlines(keepends=True), (result.output or data).splitlines(keepends=True)
    shown = []
    for tag, start, end, new, new_end in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        if tag == "equal":
            continue
        parts = [(slice(start, end), slice(new, new_end))]
        if end - start == new_end - new:  # line by line: the neighbours may belong to other findings
            parts = [
                (slice(start + i, start + i + 1), slice(new + i, new + i + 1)) for i in range(end - start)
            ]
        for old_lines, new_lines in parts:
            first, last = old_lines.start, old_lines.stop
            inserted = first == last and bool(finding.fix.needs) and is_definition(after[new_lines])
            if inserted or not own.isdisjoint(range(first + (first < last), last + 1)):
                shown.append(f"@@ {first + 1}")
                shown += [f"-{line.decode('utf-8', 'replace').rstrip()}" for line in before[old_lines]]
                shown += [f"+{line.decode('utf-8', 'replace').rstrip()}" for line in after[new_lines]]
    return shown


def score(verdicts: dict[str, Verdict], now: list[Entry] | None) -> list[str]:
    """Return the figures, as lines to print."""
    counts = Counter(value.verdict for value in verdicts.values())
    right, judged = counts["right"], len(verdicts)
    mended = sum(value.verdict != "right" and bool(value.mended) for value in verdicts.values())
    low, high = interval(right, judged)
    lines = [f"{verdict:<16}{counts[verdict]:>6}" for verdict in ALLOWED]
    lines.append(f"{'judged':<16}{judged:>6}")
    if judged:
        lines.append(f"precision {right / judged:.1%} (95 %: {low:.1%} to {high:.1%})")
        lines.append(f"with what was mended since: {(right + mended) / judged:.1%}")
    codes = sorted({name.split("#")[0].rpartition(":")[2] for name in verdicts})
    for code in codes:
        of_code = [each for name, each in verdicts.items() if name.split("#")[0].endswith(f":{code}")]
        lines.append(f"  {code}: {sum(each.verdict == 'right' for each in of_code)} of {len(of_code)}")
    if now is not None:
        current = {entry.id: entry.seen for entry in now}
        for name, each in sorted(verdicts.items()):
            if name not in current:
                lines.append(f"found no more: {name} ({each.verdict})")
            elif each.seen not in ("", current[name]):
                lines.append(f"changed, read it again: {name} ({each.verdict})")
    return lines


def main() -> int:
    """Run the command that was asked for."""
    top, common = parser(__doc__, VERDICTS)
    common.add_argument("--safe", action="store_true", help="only the fixes that are safe")
    commands = top.add_subparsers(dest="command", required=True)
    add_sample(commands, common)
    commands.add_parser("score", parents=[common], help="count the verdicts")
    arguments = top.parse_args()
    root = arguments.dir.resolve()
    work = partial(findings, root, arguments.safe)
    found = entries(root, work, arguments.jobs) if root.is_dir() else None
    if arguments.command == "score":
        print("\n".join(score(read_verdicts(arguments.verdicts, ALLOWED), found)))
    elif found is None:
        top.error(f"there is no corpus at {root}: run corpus.py fetch")
    else:
        write_sheet(arguments, found, arguments.verdicts, ALLOWED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
