"""The names of variables don't decide which fixes are safe."""

from __future__ import annotations

import ast
import builtins
import io
import tokenize
from collections import Counter

import pytest
from helpers import analyze

from devicefix.model import Safety
from devicefix.rules.registry import RULES
from devicefix.testing import Case, examples

# An example may leave out the import of a module.
KEPT = {"self", "cls", "_", "torch", "sys", "os", "version", *dir(builtins)}
CASES = [case for case in examples(*RULES.values()) if not case.valid]


def variables(code: str) -> list[str]:
    """Return the names of the variables, parameters and captures in a module."""
    tree = ast.parse(code)
    bound: dict[str, None] = {}
    other: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name):
                bound[name] = None
            case (
                ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                bound[name] = None
            case ast.keyword(arg=str(name)) | ast.Attribute(attr=name):
                other.add(name)  # part of an interface
            case ast.Call(func=ast.Name(id=name)):
                other.add(name)
            case ast.alias(name=name, asname=alias):
                other.add(alias or name.partition(".")[0])
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                other.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                other.add(name)  # of a field, perhaps
    return [name for name in bound if name not in other | KEPT]


def renamed(code: str, names: dict[str, str]) -> str:
    """Return a module with other names for its variables, without a change of anything else."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    lines = code.splitlines(keepends=True)
    found = [token for token in tokens if token.type == tokenize.NAME and token.string in names]
    for token in reversed(found):
        row, column = token.start
        line = lines[row - 1]
        lines[row - 1] = line[:column] + names[token.string] + line[token.end[1] :]
    return "".join(lines)


def safe_fixes(code: str, rule: str) -> Counter[int]:
    """Return the lines of the findings of a rule with a safe fix."""
    result = analyze(code, select=(rule,))
    return Counter(each.line for each in result.findings if each.fix and each.fix.safety is Safety.SAFE)


def has_variables(case: Case) -> bool:
    """Return whether an example is a module with variables, whose tokens have the lines of its text."""
    try:
        return "\r" not in case.example.before and bool(variables(case.example.before))
    except SyntaxError:
        return False


@pytest.mark.parametrize("case", [case for case in CASES if has_variables(case)], ids=str)
def test_a_variable_may_have_any_name(case: Case) -> None:
    code, rule = case.example.before, case.rule.code
    expected = safe_fixes(code, rule)
    for name in variables(code):
        other = renamed(code, {name: "q7" if "q7" not in code else "q8"})
        assert safe_fixes(other, rule) == expected, other
