"""Report the findings on the corpus by code, and the faults, of which there must be none.

A file is at fault if

- devicefix crashes on it;
- it compiled before, and its rewrite does not;
- a second run, with the facts of the rewritten package, changes it again;
- a line changed outside the edited statements. A statement is edited if a finding that was fixed lies on
  its lines; of a statement with a body, the lines before the body count, and of the body those that the fix
  replaces (it may take the guard away round a move). The fix of a question whether there is CUDA (DF405) may
  also change what depends on the answer. A statement that is removed takes the comment above it and blank
  lines along. Lines that are only added may be next to an edited statement, and elsewhere if they are
  imports or ask which device there is;
- a comment got lost, moved or changed, and did not go with its statement (see `corpus_comments.py`).
"""

from __future__ import annotations

import ast
import difflib
import pickle
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from traceback import extract_tb

from corpus_comments import comments, lost_comments, parse

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile
from devicefix.files.text import Source
from devicefix.model import Edit, Finding, Result

CRASH, BROKEN, UNSTABLE, STRAY, COMMENT = FAULTS = (
    "crashes",
    "files that no longer parse",
    "files that change on a second run",
    "files whose untouched lines changed",
    "files that lost a comment",
)
CHUNK = 16  # files that a process takes at a time


@dataclass
class Report:
    """The observations in one file, or in many."""

    files: int = 0
    rewritten: int = 0
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)  # of (code, safety of the fix)
    faults: list[tuple[str, str]] = field(default_factory=list)  # (one of FAULTS, path and details)
    diff: str = ""
    output: bytes | None = None  # of one file

    def add(self, other: Report) -> None:
        """Add what was seen in other files."""
        self.files += other.files
        self.rewritten += other.rewritten
        self.findings += other.findings
        self.faults += other.faults
        self.diff += other.diff

    def count(self, code: str = "", safety: str = "") -> int:
        """Return the number of findings, by code, by safety, or in all."""
        return sum(n for (c, s), n in self.findings.items() if code in ("", c) and safety in ("", s))


def report(root: Path, settings: Settings, jobs: int, diff: Path | None = None) -> int:
    """Examine every package in `root`, print what was seen, and return the exit status.

    Args:
        root: the folder that holds the unpacked packages.
        settings: as for the engine.
        jobs: the number of processes.
        diff: a file to write the rewrites to, as a unified diff.
    """
    packages = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    total = Report()
    row("package", "files", "findings", "safe", "unsafe", "no fix", "rewritten")
    with ProcessPoolExecutor(jobs) as pool:
        for package in packages:
            seen = examine(package, settings, pool)
            numbers = (seen.count(safety=safety) for safety in ("", "safe", "unsafe", "none"))
            row(package.name, seen.files, *numbers, seen.rewritten)
            total.add(seen)
    show(total)
    if diff:
        diff.write_text(total.diff, "utf-8")
    return 1 if total.faults or not total.files else 0


def show(total: Report) -> None:
    """Print the figures of the whole corpus."""
    print()
    row("code", "findings", "safe", "unsafe", "no fix")
    for code in sorted({code for code, _ in total.findings}):
        row(code, *(total.count(code, safety) for safety in ("", "safe", "unsafe", "none")))
    print()
    for fault, details in sorted(total.faults):
        print(f"{fault}: {details}")
    row("files", total.files)
    row("findings", total.count())
    row("files rewritten", total.rewritten)
    for fault in FAULTS:
        row(fault, sum(fault == kind for kind, _ in total.faults))


def row(name: str, *cells: object) -> None:
    """Print one line of a table."""
    print(f"{name:<36}" + "".join(f"{cell!s:>10}" for cell in cells))


File = tuple[str, bytes | None]  # path, and the content where it is not the one on the disk


def examine(package: Path, settings: Settings, pool: ProcessPoolExecutor) -> Report:
    """Run devicefix twice over one package."""
    paths = [path for path in sorted(package.rglob("*.py")) if path.is_file() and not path.is_symlink()]
    files: list[File] = [(str(path), None) for path in paths]
    first = partial(first_run, settings, facts(files))
    reports = list(pool.map(first, files, chunksize=CHUNK))
    rewritten: list[File] = [(path, seen.output) for (path, _), seen in zip(files, reports, strict=True)]
    second = partial(second_run, settings, facts(rewritten))
    total = Report()
    for seen in reports:
        total.add(seen)
    for faults in pool.map(second, rewritten, chunksize=CHUNK):
        total.faults += faults
    return total


def content(file: File) -> bytes:
    """Return the content of a file."""
    path, data = file
    return Path(path).read_bytes() if data is None else data


def facts(files: list[File]) -> bytes:
    """Return the pickled project of these files."""
    return pickle.dumps(Project(ProjectFile(content(file), file[0]) for file in files))


@lru_cache(maxsize=1)
def unpickled(project: bytes) -> Project:
    """Return the project, read once by each process."""
    loaded: Project = pickle.loads(project)
    return loaded


def first_run(settings: Settings, project: bytes, file: File) -> Report:
    """Check and rewrite one file, and look at the result."""
    seen = Report(files=1)
    path, data = file[0], content(file)
    try:
        result = check_file(data, path, settings, unpickled(project))
    except Exception as problem:
        seen.faults.append((CRASH, f"{path}: {described(problem)}"))
        return seen
    seen.findings.update((f.code, f.safety.value if f.safety else "none") for f in result.findings)
    if result.output is not None:
        seen.rewritten, seen.output = 1, result.output
        seen.diff = unified(path, data, result.output)
        seen.faults += faults_of(data, result)
    return seen


def second_run(settings: Settings, project: bytes, file: File) -> list[tuple[str, str]]:
    """Rewrite the result of the first run: nothing may change."""
    path, data = file[0], content(file)
    try:
        output = check_file(data, path, settings, unpickled(project)).output
    except Exception as problem:
        return [(CRASH, f"{path}: on the second run, {described(problem)}")] if file[1] else []
    return [] if output is None else [(UNSTABLE, f"{path}\n{unified(path, data, output)}")]


def described(problem: Exception) -> str:
    """Return an exception and where it was raised, in one line."""
    frame = extract_tb(problem.__traceback__)[-1]
    return f"{type(problem).__name__}: {problem} ({Path(frame.filename).name}:{frame.lineno})"


def unified(path: str, before: bytes, after: bytes) -> str:
    """Return a unified diff."""
    old, new = (data.decode("utf-8", "replace").splitlines() for data in (before, after))
    return "".join(line.rstrip("\n") + "\n" for line in difflib.unified_diff(old, new, path, path, n=1))


# --- faults of a rewrite ---


def faults_of(before: bytes, result: Result) -> Iterator[tuple[str, str]]:
    """Yield the faults of one rewritten file."""
    after = result.output or b""
    if compiled(before) is None and (error := compiled(after)):
        yield BROKEN, f"{result.path}: {error}"
        return
    if lines := list(stray_lines(before, after, edited_lines(before, result.fixed))):
        yield STRAY, f"{result.path}: line {', '.join(map(str, lines))}"
    removed = {loss.comment for loss in lost_comments(before, after) if loss.with_statement}
    kept = iter([comment.text for comment in comments(after)])
    if lost := [each for each in comments(before) if each not in removed and each.text not in kept]:
        yield COMMENT, f"{result.path}:{lost[0].line}: {lost[0].text}"


def compiled(data: bytes) -> str | None:
    """Return why the compiler refuses a source, None where it does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, "<corpus>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as problem:
            return str(problem)
    return None


def edited_lines(before: bytes, fixed: Iterable[Finding]) -> set[int]:
    """Return the numbers of the lines of the statements that were edited."""
    source = Source(before)
    statements = [node for node in ast.walk(parse(before)) if isinstance(node, ast.stmt)]
    edited: set[int] = set()
    for finding in fixed:
        edited.update(range(finding.line, finding.end_line + 1))
        replaced = (
            {line for edit in finding.fix.edits for line in lines_of(edit, source)} if finding.fix else set()
        )
        if finding.code == "DF405":
            edited |= replaced
        edited |= {line for line in removed_lines(finding, source) if not has_code(source, line)}
        for statement in statements:
            own = own_lines(statement)
            if own.start <= finding.end_line and finding.line < own.stop:
                edited.update(own)
                edited |= replaced.intersection(all_lines(statement))
    return edited


def lines_of(edit: Edit, source: Source) -> range:
    """Return the lines that an edit touches."""
    return range(source.position(edit.start)[0], source.position(max(edit.start, edit.end - 1))[0] + 1)


def removed_lines(finding: Finding, source: Source) -> set[int]:
    """Return the numbers of the lines that a fix removes."""
    spans = [span for edit in finding.fix.edits for span in edit.effect.removed] if finding.fix else []
    return {
        line
        for start, end in spans
        for line in range(source.position(start)[0], source.position(end - 1)[0] + 1)
    }


def has_code(source: Source, line: int) -> bool:
    """Return whether a line is neither blank nor a comment alone."""
    start = source.line_starts[line - 1]
    text = source.text[start : source.line_end(start)].strip()
    return bool(text) and not text.startswith("#")


def all_lines(statement: ast.stmt) -> range:
    """Return the lines of a statement with its blocks."""
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def own_lines(statement: ast.stmt) -> range:
    """Return the lines of a statement, without its body."""
    body = getattr(statement, "body", None)
    return (
        range(statement.lineno, max(body[0].lineno, statement.lineno + 1)) if body else all_lines(statement)
    )


def stray_lines(before: bytes, after: bytes, edited: set[int]) -> Iterator[int]:
    """Yield the numbers of the lines that changed without a reason."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for tag, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if tag == "equal":
            continue
        changed = range(start + 1, end + 1)
        if changed and not edited.issuperset(changed):
            yield min(set(changed) - edited)
        elif not changed and not edited & {start, start + 1} and not is_definition(new[new_start:new_end]):
            yield start + 1


def is_definition(lines: list[bytes]) -> bool:
    """Return whether lines hold only imports, and statements that ask which device there is."""
    text = textwrap.dedent(b"".join(lines).decode("utf-8", "replace"))
    body = parse(text.encode()).body
    return (bool(body) or not text.strip()) and all(
        isinstance(s, ast.Import | ast.ImportFrom)
        or "is_available()" in ast.unparse(s)
        or ".device(" in ast.unparse(s)
        for s in body
    )
