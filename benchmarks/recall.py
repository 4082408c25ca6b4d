"""Estimate how many of the corpus's ties to CUDA are found: list what is not, sample it, extrapolate.

    python benchmarks/recall.py list [DIR] [--left-out harmless|guarded]
    python benchmarks/recall.py sample [DIR] [--size N] [--seed N] [--sheet FILE] [--wide]
    python benchmarks/recall.py score [DIR] [--wide]

The list holds every line of code with a word that could be a tie (`occurrences` says which) that

- no finding covers: it lies in no finding's span and in nothing that a fix replaces,
- no guard covers: it may run without CUDA (`devicefix.facts.guards`),
- and that is not known to be harmless, by the rules H1 to H6 in `harmless` only.

A line counts once, under the first of its categories. `list --left-out` shows what the last two leave off: a
wrong guard would hide a missed tie. A person reads a random sample of the list; each line is a `missed` tie,
or `harmless`, already `guarded` (by something that the facts don't see), or `not-torch` (the business of
another library). The verdicts are kept in `verdicts-recall.toml`. With F the lines that findings begin on, L
the length of the list now, n the judged lines still on it, and m those of them that are missed ties:

    missed = L * m / n        recall = F / (F + missed)

Judged lines that findings cover by now are left out of m and n alike. What is left of a random sample is a
random sample of what is left of the list; but what was mended because of the sample makes it look better than
the rest, so the figure to report is that of a sample drawn, with a new seed, after the last mending. F holds
wrong findings too: multiply it by the precision where that matters.

With `--wide` nothing that a grep finds is left off. Four strata are sampled and extrapolated one by one: the
list, the lines left off as harmless, those left off as guarded, and every other line of code outside of the
findings that has one of the words of `_WORDS`; they are half of the sample. A library's tie counts as found
if its import is reported. The interval is a simulation, with Jeffreys' prior for the share of each stratum.
"""

from __future__ import annotations

import ast
import io
import random
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from samples import (
    Entry,
    Verdict,
    add_sample,
    draw,
    entries,
    interval,
    parser,
    place,
    read_verdicts,
    write_sheet,
)

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts import Facts, dotted
from devicefix.facts.exports.shared import bound_names
from devicefix.facts.project import Project
from devicefix.files.text import DecodeError, Source, parse
from devicefix.model import Finding

VERDICTS = Path(__file__).with_name("verdicts-recall.toml")
ALLOWED = ("missed", "harmless", "guarded", "not-torch")
FOUND = "found"  # the kind of an entry for a line on which a finding begins
LISTED, HARMLESS, GUARDED, WORD = STRATA = ("", "harmless", "guarded", "word")  # why it is left off the list
DRAWS = 10_000  # of the simulation

_DEVICE = re.compile(r"(?<![\w.-])cuda(?=:?(\d|\{|%|\Z))|\bcuda:\Z|torch\.cuda\.\w*Tensor", re.I)
_INDEX = re.compile(r"(^|_)(gpu|rank|cuda|device(?=_?i))(_?(id|idx|index|num|no))?\Z", re.I)
_LOADS = {"torch.load": 2, "torch.jit.load": 2, "torch.hub.load_state_dict_from_url": 3}
# H1. Measured on torch 2.13 without CUDA: they answer truthfully, or do nothing.
_HARMLESS_CALLS = frozenset((
    "is_available", "is_initialized", "is_bf16_supported", "manual_seed", "manual_seed_all", "seed",
    "seed_all", "empty_cache", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "memory_cached", "max_memory_cached", "memory_stats", "set_rng_state",
    "set_rng_state_all", "get_rng_state_all", "device_of", "set_stream", "get_arch_list",
    "OutOfMemoryError", "amp.autocast", "amp.GradScaler", "amp.custom_fwd", "amp.custom_bwd",
    "amp.autocast_mode", "amp.grad_scaler",
))  # fmt: skip
_WORDS = re.compile(
    r"cuda|gpu|nccl|device|half|b?fp?(loat)?16|pin_memory|map_location|autocast|triton|apex|xformers|flash_attn",
    re.I,
)
_TESTS = (ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.Assert)


def occurrences(  # noqa: C901 - a table of cases
    facts: Facts, module: ast.Module
) -> Iterator[tuple[str, ast.AST]]:
    """Yield whatever in the code could be a tie, harmless or not, with its category.

    Comments are not code, nor are docstrings. `function` is `torch.cuda.x`, `type` a tensor type of CUDA,
    `move` a call of `.cuda(...)`, `attribute` that name without a call (a method, or a flag), `string` a text
    that names a device or a type, `text` any other text with the word, `name` any other name with it, `own`
    the definition of a method `cuda`, `load` a `torch.load` without `map_location`, `pin` a call of
    `.pin_memory()`, `index` the number of a GPU passed to a call.
    """
    nodes = list(ast.walk(module))
    documentation = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if node not in documentation:
                if text.lower() == "nccl":
                    yield "nccl", node
                elif "cuda" in text.lower():
                    yield ("string" if _DEVICE.search(text) else "text"), node
            case ast.Attribute() | ast.Name():
                yield from _name(facts, node)
            case ast.Import() | ast.ImportFrom():
                if "cuda" in ast.unparse(node).lower():
                    yield "import", node
            case ast.FunctionDef(name="cuda"):
                yield "own", node
            case ast.arg(arg=str(name)) | ast.keyword(arg=str(name)) if "cuda" in name.lower():
                yield "name", node
            case ast.Call():
                yield from _call(facts, node)


def _name(facts: Facts, node: ast.Attribute | ast.Name) -> Iterator[tuple[str, ast.AST]]:
    parent = facts.tree.parents.get(node)
    full = facts.resolve(node) or ""
    last = node.attr if isinstance(node, ast.Attribute) else node.id
    if full.startswith("torch.cuda"):
        if not isinstance(parent, ast.Attribute):
            yield ("type" if full.endswith("Tensor") else "function"), node
    elif last == "cuda" and isinstance(node, ast.Attribute):
        called = isinstance(parent, ast.Call) and parent.func is node
        yield ("move" if called else "attribute"), node
    elif "cuda" in last.lower():
        yield "name", node


def _call(facts: Facts, node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    position = _LOADS.get(facts.resolve(node.func) or "")
    if position and len(node.args) < position and "map_location" not in given:
        yield "load", node
    if name == "pin_memory":
        yield "pin", node
    first = node.args[:1] if name == "to" else []
    for value in (*first, *(given[key] for key in ("device", "map_location", "device_ids") if key in given)):
        for element in value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]:
            number = isinstance(element, ast.Constant) and type(element.value) is int
            if number or _INDEX.search((dotted(element) or "").rpartition(".")[2]):
                yield "index", element


def harmless(  # noqa: PLR0911 - a table of cases
    facts: Facts, project: Project, path: str, category: str, node: ast.AST
) -> bool:
    """Return whether an occurrence is known to do no harm without CUDA.

    H1: functions of `torch.cuda` that answer truthfully or do nothing there.
    H2: names that hold the word: what is behind them is an occurrence itself. Not so where one is given
        `True` or the number of a GPU: `cuda=True`.
    H3: questions: `x.is_cuda`, `device.type == "cuda"`, a flag `args.cuda` as a test.
    H4: texts that name no device (messages, options, environment variables, files), and any with a blank.
    H5: imports from torch and from the program itself.
    H6: `torch.autocast("cuda")` and `torch.amp.GradScaler("cuda")`, which switch themselves off.
    """
    parent = facts.tree.parents.get(node)
    match category, node:
        case "function", ast.expr():
            return (facts.resolve(node) or "").removeprefix("torch.cuda.") in _HARMLESS_CALLS
        case "name", ast.keyword(value=value):
            return not _on(value)
        case "name", _:
            return not (isinstance(parent, ast.Assign) and node in parent.targets and _on(parent.value))
        case "attribute", _:
            return isinstance(parent, _TESTS)
        case "string", ast.Constant(value=str(text)):
            return " " in text or isinstance(parent, ast.Compare) or _switches_off(facts, parent)
        case "text", _:
            return True
        case "import", ast.ImportFrom(level=level, module=module, names=names):
            return level > 0 or _own_import(project, path, module or "", [name.name for name in names])
        case "import", ast.Import(names=names):
            return all(_own_import(project, path, name.name, []) for name in names)
    return False


def _switches_off(facts: Facts, parent: ast.AST | None) -> bool:
    name = facts.resolve(parent.func) if isinstance(parent, ast.Call) else None
    return (name or "").endswith(("autocast", "GradScaler"))


def _own_import(project: Project, path: str, module: str, names: list[str]) -> bool:
    """Return whether an import is from torch, except its compiler, or from a Python file of the package."""
    if module.partition(".")[0] == "torch":
        return not module.endswith("cpp_extension")
    found = project.find(path, module)
    return found is not None and all(
        name in found.export(bound_names) or project.find(path, f"{module}.{name}")
        for name in names
        if "cuda" in name
    )


def _on(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and (value.value is True or type(value.value) is int)


def reason(facts: Facts, project: Project, path: str, category: str, node: ast.AST) -> str:
    """Return why an occurrence is left off the list, or an empty text."""
    if harmless(facts, project, path, category, node):
        return HARMLESS
    return GUARDED if facts.is_guarded(node) else LISTED


def unfound(root: Path, strata: Collection[str], project: Project, path: Path, data: bytes) -> list[Entry]:
    """Return the lines of a file that may hold a missed tie, and those with findings, of the kind `found`.

    Args:
        root: the folder of the packages.
        strata: which lines: those on the list, or those left off for a reason.
        project: the facts of all files.
        path: the file.
        data: its content.
    """
    base, name = place(path, root), str(path)
    settings = Settings(ignore_noqa=True)
    findings = check_file(data, name, settings, project).findings
    # A fix can make others possible; their findings are at their origin, what remains is not.
    findings += check_file(data, name, replace(settings, fix=True, unsafe_fixes=True), project).fixed
    numbers = sorted({finding.line for finding in findings})
    found = [Entry(f"{base}:{line}:found", name, line, line, FOUND) for line in numbers]
    try:
        source = Source(data)
        module = parse(source.text)
    except (DecodeError, SyntaxError, ValueError, RecursionError):
        return found  # one finding says so
    facts = Facts(source, module).informed(project.view(str(path)))
    spans = list(covered(source, findings))
    listed: dict[int, tuple[str, str]] = {}  # the stratum and the category of a line
    for category, node in occurrences(facts, module):
        line: int = node.lineno  # type: ignore[attr-defined]
        start, end = span(facts, node)
        if not any(first <= start and end <= last for first, last in spans):
            here = reason(facts, project, name, category, node), category
            listed[line] = min(listed.get(line, here), here, key=lambda each: STRATA.index(each[0]))
    if WORD in strata:
        known = {line for start, end in spans for line in lines(source, start, end)}.union(listed)
        listed |= {line: (WORD, text) for line, text in worded(source, module) if line not in known}
    return found + [
        Entry(f"{base}:{line}", name, line, line, stratum, category)
        for line, (stratum, category) in listed.items()
        if stratum in strata
    ]


def lines(source: Source, start: int, end: int) -> range:
    """Return the numbers of the lines of a span."""
    return range(source.position(start)[0], source.position(end)[0] + 1)


def worded(source: Source, module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the lines of code that have a word that a grep looks for, each with the word."""
    documentation = {
        line
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in lines(source, *source.span(node))
    }
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        found = _WORDS.search(token.string)
        if found and token.type != tokenize.COMMENT and token.start[0] not in documentation:
            yield token.start[0], found.group().lower()


def span(facts: Facts, node: ast.AST) -> tuple[int, int]:
    """Return the span of an occurrence; inside an f-string, that of the whole f-string."""
    for _, parent in facts.tree.ancestors(node):
        if isinstance(parent, ast.JoinedStr):
            node = parent
    if isinstance(node, ast.FunctionDef):
        return facts.source.offset(node.lineno, 0), facts.source.offset(node.lineno, 0)
    return facts.source.span(node)  # type: ignore[arg-type]


def covered(source: Source, findings: list[Finding]) -> Iterator[tuple[int, int]]:
    """Return the spans of findings and of what their fixes replace."""
    starts = source.line_starts
    for found in findings:
        yield (
            starts[found.line - 1] + found.column - 1,
            starts[found.end_line - 1] + found.end_column - 1,
        )
        if found.fix:
            yield from ((edit.start, edit.end) for edit in found.fix.edits)


# --- the commands ---


def show(listed: list[Entry]) -> Iterator[str]:
    """Yield the list: each line with its category and source, then the counts by category."""
    for entry in listed:
        text = Path(entry.path).read_bytes().decode("utf-8", "replace").splitlines()[entry.line - 1]
        yield f"{entry.path}:{entry.line}: {entry.shown}: {text.strip()}"
    yield ""
    for category, number in Counter(entry.shown for entry in listed).most_common():
        yield f"{category:<12}{number:>6}"
    yield f"{'listed':<12}{len(listed):>6}"


def score(verdicts: dict[str, Verdict], listed: list[Entry], found: int) -> list[str]:
    """Return the figures, as lines to print."""
    still = {entry.id: entry.kind for entry in listed if entry.id in verdicts}
    missed = [name for name in still if verdicts[name].verdict == "missed"]
    lines = []
    shares: list[tuple[int, int, int]] = []  # the lines of each stratum; of the judged, the missed and all
    for stratum, number in sorted(Counter(entry.kind for entry in listed).items()):
        judged = [name for name, kind in still.items() if kind == stratum]
        counts = Counter(verdicts[name].verdict for name in judged)
        shares.append((number, counts["missed"], len(judged)))
        title = stratum or "list"
        lines.append(f"{title}: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in ALLOWED))
        lines.append(f"{title + ', judged of all':<24}{len(judged):>6}{number:>7}")
    lines.append(f"{'judged, found by now':<24}{len(verdicts) - len(still):>6}")
    lines.append(f"{'listed (L)':<24}{len(listed):>6}")
    lines.append(f"{'lines found (F)':<24}{found:>6}")
    if found and all(judged for _, _, judged in shares):
        total = sum(number * hits / judged for number, hits, judged in shares)
        low, high = missed_interval(shares)
        lines.append(f"missed, extrapolated: {total:.1f}")
        recall = [found / (found + each) for each in (total, high, low)]
        lines.append(f"recall {recall[0]:.1%} (95 %: {recall[1]:.1%} to {recall[2]:.1%})")
    return [*lines, *(f"missed: {name}" for name in sorted(missed))]


def missed_interval(shares: Sequence[tuple[int, int, int]]) -> tuple[float, float]:
    """Return the 95 % interval of the number of missed ties: Wilson's for one stratum, else a simulation."""
    if len(shares) == 1:
        number, hits, judged = shares[0]
        low, high = interval(hits, judged)
        return number * low, number * high
    draw_from = random.Random(0).betavariate
    totals = sorted(
        sum(
            hits + (number - judged) * draw_from(hits + 0.5, judged - hits + 0.5)
            for number, hits, judged in shares
        )
        for _ in range(DRAWS)
    )
    return totals[DRAWS // 40], totals[-DRAWS // 40]


def stratified(listed: list[Entry], size: int, seed: int) -> list[Entry]:
    """Draw a random sample of each stratum: half of it words, the other strata with equal parts."""
    strata = {stratum: [entry for entry in listed if entry.kind == stratum] for stratum in STRATA}
    sizes = {stratum: size // 2 if stratum == WORD else size // 6 for stratum in STRATA}
    return [entry for stratum in STRATA for entry in draw(strata[stratum], sizes[stratum], seed)]


def main() -> int:
    """Run the command that was asked for."""
    top, common = parser(__doc__, VERDICTS)
    commands = top.add_subparsers(dest="command", required=True)
    common.add_argument("--wide", action="store_true", help="everything that a grep finds, by strata")
    listing = commands.add_parser("list", parents=[common], help="print what is not accounted for")
    reasons = [HARMLESS, GUARDED]
    listing.add_argument("--left-out", choices=reasons, default="", help="what is left off for a reason")
    add_sample(commands, common)
    commands.add_parser("score", parents=[common], help="count the verdicts and extrapolate")
    arguments = top.parse_args()
    root = arguments.dir.resolve()
    if not root.is_dir():
        top.error(f"there is no corpus at {root}: run corpus.py fetch")
    strata = STRATA if arguments.wide else [getattr(arguments, "left_out", LISTED)]
    work = partial(unfound, root, strata)
    seen = entries(root, work, arguments.jobs)
    listed = [entry for entry in seen if entry.kind != FOUND]
    if arguments.command == "list":
        print("\n".join(show(listed)))
    elif arguments.command == "sample":
        chosen = stratified(listed, arguments.size, arguments.seed) if arguments.wide else listed
        write_sheet(arguments, chosen, arguments.verdicts, ALLOWED)
    else:
        print("\n".join(score(read_verdicts(arguments.verdicts, ALLOWED), listed, len(seen) - len(listed))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
