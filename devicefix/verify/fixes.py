"""Requests for CUDA that a fix makes, rather than a tie that is left."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from devicefix.verify.case import Case
from devicefix.verify.cause import Cause, Explanation
from devicefix.verify.places import place as shown
from devicefix.verify.places import source
from devicefix.verify.tried import wrong_fix
from devicefix.verify.verdict import Location

_CUDA_CALL = re.compile(r"^(?:torch\.cuda\.|\.|Module\.)(?:\w+\.)*?(\w+)\(\)$")


def blamed(case: Case, explanation: Explanation | None) -> Explanation | None:
    """Return the explanation of a request for CUDA, or that of the fix that makes it.

    Args:
        case: the run.
        explanation: the explanation by a tie that is left.
    """
    if explanation is None or explanation.cause is not Cause.TIE or explanation.findings:
        return explanation
    places = [at for at in _places(case) if case.fixed(at) and (_remains(case, at) or _chooses(case, at))]
    if not places:
        return explanation
    evidence = f"{shown(places[0])} still requests CUDA after its fix, regardless of the chosen device"
    return wrong_fix(case, explanation.evidence[0], evidence, at=places)


def _places(case: Case) -> Iterable[Location]:
    places = [*(request.place for request in case.requests), *case.frames[:1]]
    return dict.fromkeys(Location(at.file, at.line) for at in places)


def _remains(case: Case, at: Location) -> bool:
    """Return whether a line still makes the very call for CUDA that its fix was to remove or guard."""
    words = set(re.findall(r"\w+", source(at)))
    for request in case.requests:
        call = _CUDA_CALL.match(request.call)
        if request.place == at and call and call[1] in words:
            if call[1] == "cuda" or request.call.startswith("torch.cuda."):
                return True
    return False


def _chooses(case: Case, at: Location) -> bool:
    """Return whether the fixes of a line choose the device themselves, without a value of the program.

    A line whose device comes from the program, such as from its arguments, may be right.
    """
    real = os.path.realpath(at.file)
    module = case.program.modules.get(real)
    if module is None:
        return False
    text = module.content.decode(errors="replace")
    covered = {line for fix in case.fixed(at) for line in range(fix.line, fix.end_line + 1)}
    old = "\n".join(source(Location(at.file, line)) for line in sorted(covered))
    try:
        before, after = ast.parse(Path(at.file).read_bytes()), ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return False
    lines = text.splitlines()
    made = "\n".join(line.strip() for line, its in zip(lines, module.origins, strict=False) if its in covered)
    if made == old:
        return True  # its fix is lost
    brought = set(re.findall(r"\w+", made)) - set(re.findall(r"\w+", old))
    theirs = set(_bound(before)) - {""}
    own = {name: value for name, value in _assigned(after) if name not in theirs}
    values = [node for name, value in own.items() if name in brought for node in ast.walk(value)]
    if any(_name(node) in theirs for node in values) or brought & theirs:
        return False
    return "is_available" in brought or bool(brought & own.keys())


def _bound(tree: ast.AST) -> Iterator[str]:
    """Yield the names and attributes that a module gives a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            yield _name(node)


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _name(node: ast.AST) -> str:
    """Return a name, or that of an attribute; empty for any other node."""
    return str(getattr(node, "id", getattr(node, "attr", "")))
