"""Find devices that the program itself replaces where there is no CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted
from devicefix.facts.values import last_name

_STEPS = 3  # from a variable to the call that parses the command line, perhaps in a function


def is_replaced(facts: Facts, value: ast.expr) -> bool:
    """Return whether nothing reads a device without CUDA: the program has replaced it by then.

    Args:
        facts: the facts of the module.
        value: the device: the value of a variable, or the default of an option of the command line.
    """
    parent = facts.tree.parents.get(value)
    match parent:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return _replaces(facts, _next(facts, parent), name)
        case ast.keyword(arg="default"):
            option = _option(facts.tree.parents.get(parent))
            return option is not None and _is_option_replaced(facts, option)
    return False


def _next(facts: Facts, statement: ast.stmt) -> ast.stmt | None:
    """Return the statement below another one, in the same block."""
    block, following = facts.tree.block(statement), facts.tree.position(statement) + 1
    return block[following] if following < len(block) else None


def _replaces(facts: Facts, statement: ast.stmt | None, target: str) -> bool:
    """Return whether a statement binds a variable or attribute to something else without CUDA.

    Other branches of it, for other kinds of devices, do so as well.
    """
    if not isinstance(statement, ast.If) or not any(_binds(each, target) for each in statement.body):
        return False
    if _is_without_cuda(facts, statement.test, target):
        return True
    return len(statement.orelse) == 1 and _replaces(facts, statement.orelse[0], target)


def _binds(statement: ast.stmt, target: str) -> bool:
    return isinstance(statement, ast.Assign) and [dotted(each) for each in statement.targets] == [target]


def _is_without_cuda(facts: Facts, test: ast.expr, target: str) -> bool:
    """Return whether a test is true without CUDA, perhaps only for a device of CUDA."""
    tests = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    others = [each for each in tests if not facts.guards.implies(each, False)]
    return len(others) < len(tests) and all(_asks_for_cuda(each, target) for each in others)


def _asks_for_cuda(test: ast.expr, target: str) -> bool:
    """Return whether a test is whether a device is one of CUDA: `"cuda" in device`, `device == "cuda"`."""
    match test:
        case ast.Compare(left=ast.Constant(value="cuda"), ops=[ast.In()], comparators=[device]):
            return dotted(device) == target
        case ast.Compare(left=device, ops=[ast.Eq()], comparators=[ast.Constant(value="cuda")]):
            return dotted(device) == target
        case ast.Call(
            func=ast.Attribute(attr="startswith" | "__contains__"), args=[ast.Constant(value="cuda")]
        ):
            return isinstance(test.func, ast.Attribute) and dotted(test.func.value) == target
    return False


def _option(call: ast.AST | None) -> str | None:
    """Return the name of the option that a call of `add_argument` defines."""
    match call:
        case ast.Call(func=ast.Attribute(attr="add_argument"), args=[*_, ast.Constant(value=str(flag))]):
            named = any(keyword.arg == "dest" for keyword in call.keywords)
            return None if named else flag.lstrip("-").replace("-", "_")
    return None


def _is_option_replaced(facts: Facts, option: str) -> bool:
    """Return whether an option that only this module reads is replaced without CUDA in front of all uses."""
    reads = [read for read in facts.tree.nodes_with(f".{option}") if _reads(facts, read, option)]
    targets = {dotted(read) or "" for read in reads}
    if len(targets) != 1:
        return False
    [target] = targets
    reads.extend(_passed(facts, target.partition(".")[0]))
    return all(_is_read_replaced(facts, read, target) for read in reads)


def _reads(facts: Facts, node: ast.AST, option: str) -> bool:
    """Return whether a node reads an option from the arguments that a parser has returned."""
    match node:
        case ast.Attribute(value=ast.Name() as owner, attr=name, ctx=ast.Load()) if name == option:
            return Sources(facts, How.BOUND | How.RETURNED, _STEPS).first(owner, _parses) is not None
    return False


def _parses(node: ast.expr) -> bool:
    """Return whether an expression returns the arguments of the command line: `parser.parse_args()`."""
    return isinstance(node, ast.Call) and last_name(node.func) == "parse_args"


def _passed(facts: Facts, owner: str) -> Iterator[ast.AST]:
    """Yield the places that read the arguments as a whole, other than to return them."""
    for read in facts.tree.reads(owner):
        if not isinstance(facts.tree.parents.get(read), (ast.Attribute, ast.Return)):
            yield read


def _is_read_replaced(facts: Facts, read: ast.AST, target: str) -> bool:
    """Return whether an option is replaced without CUDA in front of a read, or its copy is."""
    statement = facts.tree.statement(read)
    if isinstance(read, ast.Attribute):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is read:
                if _replaces(facts, _next(facts, statement), name):
                    return True
    for node, parent in facts.tree.ancestors(read):
        if isinstance(node, ast.stmt):
            block = facts.tree.block(node)
            if any(_replaces(facts, each, target) for each in block[: block.index(node) + 1]):
                return True
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return False
    return False
