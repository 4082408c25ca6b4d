"""Search for programs whose meaning a rewrite changes.

    python benchmarks/meaning.py [--seed N] [--programs N] [--out DIR]
    python benchmarks/meaning.py --kinds [--programs N]
    python benchmarks/meaning.py FILE ...

`meaning_programs.py` makes programs that print numbers and devices, and draw random numbers. Each runs as
it is on the simulated CUDA machine, then rewritten with the safe fixes there and on a CPU. The category of a
program is the first that applies:

- invalid: it fails on CUDA as it is, or differs from run to run, and does not count;
- internal error, unparsable: there is no rewrite, or it is not Python;
- unbound: the rewrite raises a NameError, on CUDA, or on the CPU where no finding covers it;
- wrong on CUDA: the rewrite prints something else, draws other random numbers, selects another GPU, or fails;
- broken on the CPU: there the rewrite fails or prints something else than the program as it is, which runs;
- failure on the CPU, numbers on the CPU: the rewrite fails or prints something else, and nothing is reported;
- reported elsewhere: the same, but there are findings left, and none of them covers it;
- reported: the same, and a finding that is left covers it;
- unstable: a second rewrite changes something;
- fine.

A finding covers a failure if a statement in the traceback, or the `if` or `try` around it, has the finding,
or reads a name whose value comes from a statement that has it, directly or through others. It covers a wrong
value in the same way, with the statement that prints it.

Failures are grouped by the category, the fixes, the error and the statement that fails. The shortest program
of each group is reduced, and written to DIR with its rewrite. FILE is a program to judge.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import hashlib
import json
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import meaning_programs
from meaning_programs import Program
from meaning_run import Machine, Run, names_gpu, same

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile
from devicefix.model import Finding, Result

FINE, REPORTED, ELSEWHERE, INVALID = "fine", "reported", "reported elsewhere", "invalid"
INTERNAL, UNPARSABLE, UNBOUND, UNSTABLE = "internal error", "unparsable", "unbound", "unstable"
ON_CUDA, BROKEN = "wrong on CUDA", "broken on the CPU"
FAILURE, NUMBERS = "failure on the CPU", "numbers on the CPU"
CATEGORIES = (
    FINE,
    REPORTED,
    ELSEWHERE,
    INTERNAL,
    UNPARSABLE,
    UNBOUND,
    ON_CUDA,
    BROKEN,
    FAILURE,
    NUMBERS,
    UNSTABLE,
    INVALID,
)
WRONG = frozenset(CATEGORIES) - {FINE, REPORTED, INVALID}

_MODULES = ("torch", "th", "np", "os", "nn", "io", "sys", "functools", "operator")  # they keep nothing

_SPECIAL = ("__call__", "__enter__", "__get__", "__getattr__", "__getitem__", "__iter__", "__missing__")

NOWHERE = ("main", 0)
_RAISED = "raise"  # what errors carry

Place = tuple[str, int]  # a module and a line
Files = Mapping[str, str]
Rewriter = Callable[[Files], dict[str, Result]]


def rewrite(files: Files) -> dict[str, Result]:
    """Rewrite the modules of a program with the safe fixes, as one project.

    Args:
        files: the sources, by the name of the module.
    """
    paths = {name: _path(name, files) for name in files}
    data = {name: source.encode() for name, source in files.items()}
    project = Project(ProjectFile(content, paths[name]) for name, content in data.items())
    options = Settings(fix=True)
    return {name: check_file(content, paths[name], options, project) for name, content in data.items()}


def _path(name: str, files: Files) -> str:
    package = any(other.startswith(f"{name}.") for other in files)
    return name.replace(".", "/") + ("/__init__.py" if package else ".py")


def rewritten(files: Files, results: Mapping[str, Result]) -> dict[str, str]:
    """Return the sources after a rewrite."""
    outputs = {name: result.output for name, result in results.items()}
    return {
        name: source if (output := outputs[name]) is None else output.decode()
        for name, source in files.items()
    }


@dataclass(slots=True)
class Verdict:
    """The verdict on one program.

    Attributes:
        program: the program.
        category: one of CATEGORIES.
        why: the error, or what differs.
        output: the sources after the rewrite.
        fixed: the codes of the findings that were fixed.
        remaining: the other findings, by module.
        place: where the rewrite fails, as module and line.
    """

    program: Program
    category: str
    why: str = ""
    output: dict[str, str] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    remaining: dict[str, list[Finding]] = field(default_factory=dict)
    place: Place = NOWHERE

    @property
    def group(self) -> str:
        """Return what failures of one cause share: the category, the fixes, the error and the statement."""
        error = self.why.split(" ")[0] if self.why.startswith(("printed", "drew")) else self.why
        error = re.sub(r"0x[0-9a-f]+|\d+|'[^']*'|\"[^\"]*\"", "_", error)[:100]
        return " | ".join((self.category, " ".join(self.fixed), error, self._statement()))

    def _statement(self) -> str:
        """Return the statement that fails, without names and values."""
        name, line = self.place
        for node in ast.walk(ast.parse(self.output[name])) if line else ():
            if isinstance(node, ast.stmt) and not _has_block(node):
                if node.lineno <= line <= (node.end_lineno or line):
                    return _anonymous(node)
        return ""


class Judge:
    """Runs programs and their rewrites.

    Args:
        rewriter: makes the rewrite.
    """

    def __init__(self, rewriter: Rewriter = rewrite) -> None:
        self.rewriter = rewriter
        self._cuda = Machine("cuda")
        self._cpu = Machine("cpu")

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self._cuda.close()
        self._cpu.close()

    def __call__(self, program: Program) -> Verdict:
        """Return the verdict on a program."""
        original = self._cuda.run(program.files, program.gpus)
        if original.error:
            return Verdict(program, INVALID, _error(original))
        try:
            results = self.rewriter(program.files)
        except Exception as problem:
            return Verdict(program, INTERNAL, _internal(problem))
        output = rewritten(program.files, results)
        fixed = tuple(sorted(_codes(results)))
        remaining = {name: result.remaining for name, result in results.items()}
        category, why, place = self._judged(program, original, output, remaining)
        if category in WRONG and _unlike(original, self._cuda.run(program.files, program.gpus), exactly=True):
            category = INVALID  # it differs from run to run
        return Verdict(program, category, why, output, fixed, remaining, place)

    def _judged(
        self, program: Program, original: Run, output: dict[str, str], remaining: Mapping[str, list[Finding]]
    ) -> tuple[str, str, Place]:
        """Return the category of a rewrite, the reason, and the place that shows it."""
        problem = _syntax(output)
        if problem:
            return UNPARSABLE, problem, NOWHERE
        if output != program.files:
            on_cuda = self._cuda.run(output, program.gpus)
            unlike = _unlike(original, on_cuda, exactly=True)
            if unlike:
                return (UNBOUND if _is_unbound(on_cuda) else ON_CUDA), unlike[0], _last(unlike[1])
        on_cpu = self._cpu.run(output)
        unlike = _unlike(original, on_cpu, exactly=False)
        if unlike:
            category = self._on_cpu(program, on_cpu, unlike[1], output, remaining)
            return category, unlike[0], _last(unlike[1])
        if output != program.files and any(map(names_gpu, on_cpu.values)):
            before = self._cpu.run(program.files)
            for (_, old), (line, new) in zip(before.printed, on_cpu.printed, strict=False):
                if old != new and names_gpu(new):
                    return BROKEN, f"printed {new} instead of {old}", ("main", line)
        again = self._again(output)
        return (UNSTABLE, again, NOWHERE) if again else (FINE, "", NOWHERE)

    def _on_cpu(
        self,
        program: Program,
        run: Run,
        places: list[Place],
        output: Files,
        remaining: Mapping[str, list[Finding]],
    ) -> str:
        """Return the category of a rewrite that fails, or prints other values, on the CPU."""
        if output != program.files:
            before = self._cpu.run(program.files)
            if not before.error and _unlike(before, run, exactly=True):
                return BROKEN
        if Cover(output, remaining).holds(places):
            return REPORTED
        if _is_unbound(run):
            return UNBOUND
        if any(remaining.values()):
            return ELSEWHERE
        return FAILURE if run.error else NUMBERS

    def _again(self, output: dict[str, str]) -> str:
        """Return the codes of the findings that a second rewrite fixes; empty if it changes nothing."""
        results = self.rewriter(output)
        if rewritten(output, results) == output:
            return ""
        return "fixed again: " + " ".join(sorted(_codes(results)))


def _codes(results: Mapping[str, Result]) -> set[str]:
    return {finding.code for result in results.values() for finding in result.fixed}


def _syntax(files: Files) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for name, source in files.items():
                compile(source, f"{name}.py", "exec", dont_inherit=True)
        except SyntaxError as problem:
            return str(problem)
    return ""


def _internal(problem: Exception) -> str:
    cause = problem.__cause__
    return f"{type(problem).__name__}: {problem}" + (f" <- {type(cause).__name__}: {cause}" if cause else "")


def _last(places: list[Place]) -> Place:
    return places[-1] if places else NOWHERE


def _anonymous(node: ast.stmt) -> str:
    """Return the code of a statement, without the names and values of the program."""
    copy = ast.parse(ast.unparse(node)) if not isinstance(node, (ast.Return, ast.Break)) else node
    for each in ast.walk(copy):
        if isinstance(each, ast.Name) and each.id not in _MODULES and not hasattr(builtins, each.id):
            each.id = "_"
        elif isinstance(each, ast.Constant) and isinstance(each.value, (str, int, float)):
            each.value = type(each.value)()
        elif isinstance(each, ast.Attribute) and re.search(r"\d", each.attr):
            each.attr = "_"
    return ast.unparse(copy)[:150]


def _error(run: Run) -> str:
    lines = [line for line in run.message.splitlines() if line.strip()]
    return f"{run.error}: {lines[0] if lines else ''}"


def _is_unbound(run: Run) -> bool:
    return run.error in ("NameError", "UnboundLocalError")


def _unlike(original: Run, run: Run, *, exactly: bool) -> tuple[str, list[Place]] | None:
    """Return how a run differs from that of the original on CUDA, and the lines that show it, or None."""
    if run.error:
        return _error(run), run.frames
    for (_, one), (line, other) in zip(original.printed, run.printed, strict=False):
        if not same(one, other, exactly=exactly):
            return f"printed {json.dumps(other)[:150]} instead of {json.dumps(one)[:150]}", [("main", line)]
    if len(original.printed) != len(run.printed):
        last = run.printed[-1:] if len(run.printed) > len(original.printed) else []
        lines = [("main", line) for line, _ in last]
        return f"printed {len(run.printed)} times instead of {len(original.printed)}", lines
    if exactly and original.draws != run.draws:
        return f"drew {run.draws} instead of {original.draws}"[:300], []
    if exactly and original.gpus != run.gpus:
        return f"selected GPU {run.gpus} instead of {original.gpus}", []
    return None


# -- which finding covers a failure ----------------------------------------------------------------------


class Cover:
    """The statements that have findings, and those that read what these bind.

    Args:
        files: the sources.
        findings: the findings in each.
    """

    def __init__(self, files: Files, findings: Mapping[str, list[Finding]]) -> None:
        self._statements = {name: list(_statements(ast.parse(source))) for name, source in files.items()}
        self._found = {(name, finding.line) for name, each in findings.items() for finding in each}
        self._names = self._spread()

    def holds(self, places: list[Place]) -> bool:
        """Return whether a finding covers one of the places, each a module and a line."""
        return any(self._is_covered(name, line) for name, line in places)

    def _is_covered(self, module: str, line: int) -> bool:
        at = [each for each in self._statements.get(module, ()) if each.first <= line <= each.last]
        return any(self._has_finding(module, each) or each.reads & self._names for each in at)

    def _has_finding(self, module: str, statement: _Statement) -> bool:
        lines = (line for name, line in self._found if name == module)
        return any(statement.first <= line <= statement.last or line in statement.tests for line in lines)

    def _spread(self) -> frozenset[str]:
        """Return the names that get their values from statements with findings."""
        every = [(name, each) for name, statements in self._statements.items() for each in statements]
        names = {bound for name, each in every if self._has_finding(name, each) for bound in each.binds}
        while True:
            more = {bound for _, each in every if each.reads & names for bound in each.binds}
            if more <= names:
                return frozenset(names)
            names |= more


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement without its blocks: its lines, and the names and attributes that it reads and binds."""

    first: int
    last: int
    reads: frozenset[str]
    binds: frozenset[str]
    tests: frozenset[int] = frozenset()  # the lines of the `if` statements that it is in branches of


def _statements(
    tree: ast.AST,
    function: str = "",
    tests: frozenset[int] = frozenset(),
    asked: frozenset[str] = frozenset(),
) -> Iterator[_Statement]:
    for node in ast.iter_child_nodes(tree):
        inside = function
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inside = node.name
            if isinstance(tree, ast.ClassDef) and node.name in _SPECIAL:
                inside = tree.name  # what reads the object, or one made of it, calls the method
        if isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            found = _statement(node, function, tests)
            if isinstance(tree, ast.ClassDef):
                owners = ("", "self", tree.name, f"{tree.name}()")
                names = {f"{owner}.{name}" for owner in owners for name in found.binds}
                found = replace(found, binds=found.binds | names)
            if isinstance(node, ast.Raise):  # the tests decide that it runs
                found = replace(found, reads=found.reads | asked)
            yield found
            if inside != function:
                yield from _statements(node, inside)
            elif isinstance(node, (ast.If, ast.Match)):
                patterns = [case.pattern.lineno for case in getattr(node, "cases", ())]
                around = tests.union(range(found.first, found.last + 1), patterns)
                yield from _statements(node, inside, around, asked | found.reads)
            elif isinstance(node, ast.ExceptHandler) and isinstance(tree, ast.Try):  # the block decides it
                block = range(tree.body[0].lineno, (tree.body[-1].end_lineno or 0) + 1)
                yield from _statements(node, inside, tests.union(block), asked)
            else:
                yield from _statements(node, inside, tests, asked)


def _statement(node: ast.AST, function: str, tests: frozenset[int]) -> _Statement:
    parts = list(_header(node))
    reads, binds = set[str](), set[str]()
    for part in parts:
        _sort(part, reads, binds)
    if isinstance(node, ast.Match):  # the patterns take the subject apart
        for case in node.cases:
            for part in ast.walk(case.pattern):
                _sort(part, reads, binds)
    if isinstance(node, (ast.Return, ast.Expr)) and function:
        binds |= {function, f".{function}"}  # what it returns or yields is the value of the call
    if isinstance(node, (ast.AugAssign,)):
        reads |= binds
    if isinstance(node, ast.Raise):
        binds.add(_RAISED)
    if isinstance(node, ast.ExceptHandler) and node.name:  # it takes the error apart
        reads.add(_RAISED)
        binds.add(node.name)
    binds.difference_update(_MODULES)
    lines = [line for part in parts for line in (getattr(part, "lineno", 0), getattr(part, "end_lineno", 0))]
    known = [line for line in lines if line]
    return _Statement(min(known, default=0), max(known, default=0), frozenset(reads), frozenset(binds), tests)


def _header(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that are in none of its blocks, with itself."""
    if not isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)) or not _has_block(node):
        yield from ast.walk(node)
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield ast.copy_location(ast.Name(node.name, ast.Store()), _first_line(node))
    for name, value in ast.iter_fields(node):
        if name in ("body", "orelse", "finalbody", "handlers", "cases"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from ast.walk(part)


def _has_block(node: ast.AST) -> bool:
    return isinstance(getattr(node, "body", None), list) or isinstance(node, ast.Match)


def _first_line(node: ast.AST) -> ast.AST:
    """Return a node at the first line of a definition."""
    line = getattr(node, "lineno", 1)
    return ast.Pass(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)


def _sort(node: ast.AST, reads: set[str], binds: set[str]) -> None:  # noqa: C901 (one case a kind of node)
    """Add the names that a node reads or binds."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            reads.add(name)
        case ast.Attribute(ctx=ast.Load()):
            reads.add(_attribute(node))
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                reads.add(".__getattr__")
        case ast.Attribute():
            binds.add(_attribute(node))
        case ast.Name(id=name) | ast.arg(arg=name):
            binds.add(name)
        case ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=str(name)), _]):
            binds |= {f".{name}", f"{ast.unparse(owner)}.{name}"}
        case ast.Call(func=ast.Name(), keywords=keywords):
            binds.update(keyword.arg for keyword in keywords if keyword.arg)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            binds.add(name)
        case ast.alias(name=name, asname=other):
            reads.add(name)
            binds.add(other or name)
        case (
            ast.Subscript(value=ast.Name(id=name), ctx=ast.Store())
            | ast.Subscript(value=ast.Call(func=ast.Name("globals")), slice=ast.Constant(value=str(name)))
        ):
            binds.add(name)
        case ast.Subscript(
            value=ast.Attribute(attr="__dict__"), slice=ast.Constant(value=str(name)), ctx=ast.Store()
        ):
            binds.add(f".{name}")
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name not in _MODULES:
            binds.add(name)  # a method may keep its arguments


def _attribute(node: ast.Attribute) -> str:
    """Return the key of an attribute: its name, with the object where every tensor has such an attribute."""
    common = node.attr in ("device", "type", "data", "grad", "to", "cuda", "cpu")
    return ast.unparse(node) if common else f".{node.attr}"


# -- reduction -------------------------------------------------------------------------------------------


def reduced(verdict: Verdict, judge: Callable[[Program], Verdict], seconds: float) -> Verdict:
    """Return the verdict on a smaller program of the same category.

    A failure that is reported elsewhere may become one that is not reported.

    Args:
        verdict: the verdict.
        judge: judges the programs that are tried.
        seconds: the time after which the smallest one so far is returned.
    """
    wanted = {verdict.category} if verdict.category != ELSEWHERE else {ELSEWHERE, FAILURE, NUMBERS, UNBOUND}
    error = verdict.why.split(":")[0] if verdict.category not in (NUMBERS, ON_CUDA) else ""
    until = time.monotonic() + seconds
    best, at, failed = verdict, 0, 0
    smaller = _smaller(best.program.files)
    while failed < len(smaller) and time.monotonic() < until:
        at %= len(smaller)
        found = judge(replace(best.program, files=smaller[at]))
        if found.category in wanted and found.why.startswith(error):
            best, failed = found, 0
            smaller = _smaller(best.program.files)
        else:
            at, failed = at + 1, failed + 1
    return best


def _smaller(files: Files) -> list[dict[str, str]]:
    """Return smaller versions of a program, those that lack most first."""
    found = [{other: files[other] for other in files if other != name} for name in files if name != "main"]
    found += [{**files, name: text} for name, source in files.items() for text in _shorter(source)]
    return sorted(found, key=lambda each: sum(map(len, each.values())))


def _shorter(source: str) -> Iterator[str]:
    """Yield versions of a source that lack a statement, or a header, and a plainer one."""
    tree = ast.parse(source)
    plain = ast.unparse(tree) + "\n"
    if len(plain) < len(source):
        yield plain
    for node in ast.walk(tree):
        for block in _blocks(node):
            for index in range(len(block)):
                yield from _without(tree, block, index)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block


def _without(tree: ast.Module, block: list[ast.stmt], index: int) -> Iterator[str]:
    """Yield the source without a statement, and with the statements of its block in its place."""
    kept = block[index]
    for inner in ([], *_blocks(kept)):
        if isinstance(kept, ast.Pass) and len(block) == 1:
            continue
        if isinstance(kept, ast.ClassDef) and inner:
            continue
        block[index : index + 1] = inner
        lone = not block and block is not tree.body
        if lone:
            block.append(ast.Pass())
        try:
            text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        finally:
            block[index : index + (len(inner) or lone)] = [kept]
        try:
            compile(text, "main.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        yield text


# -- the search ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Group:
    """Failures of one kind: the seeds of their programs, and the shortest one."""

    seeds: list[int]
    shortest: Verdict


class Search:
    """Judges programs, and groups the failures.

    Args:
        judge: judges the programs.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.found: dict[
            str, Group
        ] = {}  # by the group of the whole program, and its situation if it has one
        self.groups: dict[str, Group] = {}  # by the group of the reduced program

    def add(self, seed: int) -> Verdict:
        """Judge the program of a seed."""
        verdict = self.judge(meaning_programs.program(Random(seed)))
        self.counts[verdict.category] += 1
        if verdict.category == INVALID:
            self.kinds[f"invalid: {verdict.why[:100]}"] += 1
            return verdict
        self.kinds.update(verdict.program.kinds)
        if verdict.category in WRONG:
            situations = [kind for kind in verdict.program.kinds if kind.startswith("situation:")]
            kind = " ".join((verdict.group, *(situations if len(situations) == 1 else ())))
            _add(self.found, kind, Group([seed], verdict))
        return verdict

    def reduce(self, out: Path, seconds: float) -> None:
        """Reduce a failure of each kind, the most frequent kinds first, and write the groups.

        Args:
            out: the folder.
            seconds: the time for each failure.
        """
        waiting = sorted(self.found.items(), key=lambda item: len(item[1].seeds))
        self._store(out, waiting)
        while waiting:
            _, group = waiting.pop()
            verdict = reduced(group.shortest, self.judge, seconds)
            _add(self.groups, verdict.group, Group(group.seeds, verdict))
            self._store(out, waiting)

    def report(self) -> str:
        """Return the counts as text."""
        judged = sum(self.counts.values())
        counted = judged - self.counts[INVALID]
        lines = [f"{counted} programs, {self.counts[INVALID]} of {judged} invalid"]
        lines += [f"{self.counts[name]:7} {name}" for name in CATEGORIES if name != INVALID]
        return "\n".join(lines)

    def _store(self, out: Path, waiting: list[tuple[str, Group]]) -> None:
        """Write the groups, and what is not reduced yet, the most frequent first."""
        ordered = sorted([*self.groups.items(), *waiting], key=lambda item: -len(item[1].seeds))
        groups = [
            {
                "group": name,
                "count": len(group.seeds),
                "seeds": group.seeds[:5],
                "text": shown(group.shortest),
            }
            for name, group in ordered
        ]
        found = {"report": self.report(), "kinds": self.kinds.most_common(), "groups": groups}
        (out / "groups.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
        for name, group in self.groups.items():
            path = out / f"{hashlib.sha256(name.encode()).hexdigest()[:10]}.txt"
            path.write_text(f"{name}\n{shown(group.shortest)}", encoding="utf-8")


def _add(groups: dict[str, Group], name: str, new: Group) -> None:
    old = groups.get(name)
    if old is None:
        groups[name] = new
        return
    old.seeds += new.seeds
    old.shortest = min(old.shortest, new.shortest, key=_length)


def _length(verdict: Verdict) -> int:
    return sum(map(len, verdict.program.files.values()))


def shown(verdict: Verdict) -> str:
    """Return a verdict as text: the program, its rewrite, the findings and the category."""
    parts = []
    for name, source in verdict.program.files.items():
        parts.append(f"--- {name}.py\n{source}")
        if verdict.output.get(name, source) != source:
            parts.append(f"--- {name}.py, rewritten\n{verdict.output[name]}")
    parts += [
        f"remaining: {name}.py:{finding.line} {finding.code} {finding.message}"
        for name, findings in verdict.remaining.items()
        for finding in findings
    ]
    fixed = f"fixed: {' '.join(verdict.fixed)}"
    return "\n".join([*parts, fixed, f"=> {verdict.category}: {verdict.why}", ""])


def main() -> int:
    """Judge programs, and print the counts of the categories."""
    given = _arguments()
    if given.kinds:
        kinds = Counter(
            kind for seed in _seeds(given) for kind in meaning_programs.program(Random(seed)).kinds
        )
        print("\n".join(f"{count:7} {kind}" for kind, count in sorted(kinds.items())))
        return 0
    with Judge() as judge:
        if given.file:
            return _judge_files(given, judge)
        search = Search(judge)
        started = time.monotonic()
        for number, seed in enumerate(_seeds(given), 1):
            search.add(seed)
            if number % 100 == 0:
                speed = number / (time.monotonic() - started)
                print(
                    f"{number} programs, {speed:.1f} a second, {len(search.found)} kinds of failures",
                    flush=True,
                )
        print(search.report(), flush=True)
        given.out.mkdir(parents=True, exist_ok=True)
        search.reduce(given.out, given.seconds)
        print(f"{len(search.groups)} groups of failures in {given.out}")
        return int(any(search.counts[name] for name in WRONG))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="*")
    parser.add_argument("--seed", type=int, default=0, help="a seed stands for a million programs")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("meaning-failures"))
    parser.add_argument("--seconds", type=float, default=20, help="the time to reduce a failure")
    parser.add_argument("--kinds", action="store_true", help="count the kinds of code, and run nothing")
    parser.add_argument("--reduce", action="store_true", help="reduce the files")
    return parser.parse_args()


def _seeds(given: argparse.Namespace) -> range:
    first = given.seed * 1_000_000
    return range(first, first + given.programs)


def _judge_files(given: argparse.Namespace, judge: Judge) -> int:
    wrong = False
    for path in given.file:
        verdict = judge(Program({"main": path.read_text(encoding="utf-8")}))
        wrong |= verdict.category in WRONG
        if given.reduce and verdict.category in WRONG:
            verdict = reduced(verdict, judge, given.seconds)
        print(f"{path}\n{shown(verdict)}")
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
