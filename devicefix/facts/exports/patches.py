"""Find the functions and methods of torch that a file replaces, as tests do with `mock.patch`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.facts.exports.export import of_facts
from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted
from devicefix.facts.values import last_name

_OWNER = re.compile(r"(?:.*\.)?(torch\.(?:cuda|Tensor|nn\.Module))")
_QUESTION = "is_available"
_PATCHED = re.compile(rf"{_OWNER.pattern}\.(\w+)")


# A file without these replaces nothing: a call with a text such as `setattr(torch.cuda, "synchronize", f)`,
# `patch("torch.cuda.synchronize")` or `patch.multiple(torch.cuda, …)`, or an assignment.
_REPLACES = (
    rb"setattr\(\s*[^,\n]+,\s*[\"']|patch(?:\.\w+)?\(|setattr\(\s*[\"']"
    rb"|torch\.(?:cuda|Tensor|nn\.Module)\.[\w.]+[ \t]*(?:,[^\n]*)?=(?!=)"
)


@of_facts(
    b"mock", b"monkeypatch", b"setattr(", b"torch.Tensor.", b"torch.cuda.", b"nn.Module.", pattern=_REPLACES
)
def patched_names(facts: Facts) -> frozenset[str]:
    """Return the names of what is replaced in `torch.cuda`, `torch.Tensor` and `torch.nn.Module`.

    https://docs.python.org/3/library/unittest.mock.html, https://docs.pytest.org/en/stable/how-to/monkeypatch.html
    """
    return frozenset(_replaced(facts))


@of_facts(
    b"is_available",
    pattern=rb"is_available(?:[\"']\])?[ \t]*[=,]|setattr\([\w.]*cuda,|\.start\(",
    anywhere=True,
)
def replaces_question(facts: Facts) -> bool:
    """Return whether a file replaces `torch.cuda.is_available` for the rest of the run."""
    return any(_replaces_question(facts, node) for node in facts.tree.nodes_with(_QUESTION, "setattr("))


def _replaces_question(facts: Facts, node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="is_available", ctx=ast.Store(), value=owner):
            name = facts.resolve(owner) or dotted(owner) or "cuda"
            return name.rpartition(".")[2] == "cuda"
        case ast.Subscript(slice=ast.Constant(value="is_available"), ctx=ast.Store()):
            return True
        case ast.Call(func=ast.Attribute(attr="update"), keywords=keywords):
            return any(each.arg == _QUESTION for each in keywords)
        case ast.Call(func=ast.Attribute(attr="start", value=ast.Call() as patch)):
            return _QUESTION in _patched_by(facts, patch)
        case ast.Call(func=ast.Name(id="setattr"), args=[owner, name, *_]):
            replaced = name.value if isinstance(name, ast.Constant) else _QUESTION  # it may be any
            return replaced == _QUESTION and facts.resolve(owner) == "torch.cuda"
    return False


def _replaced(facts: Facts) -> Iterator[str]:
    for path in facts.tree.attributes:
        yield from _named(path)
    for node in facts.tree.nodes_with("patch", "setattr"):
        yield from _patched_by(facts, node)


def patching(facts: Facts, name: str) -> frozenset[ast.AST]:
    """Return the functions and classes that replace a function of `torch.cuda`, also by a decorator.

    Args:
        facts: the facts of the module.
        name: the name of the function, without `torch.cuda`.
    """
    found = set()
    for node in facts.tree.nodes_with(name) if "patch" in facts.tree.text else ():
        if name in _patched_by(facts, node):
            owner = facts.tree.parents.get(node)
            is_decorator = node in getattr(owner, "decorator_list", ())
            found.add(owner if is_decorator else facts.tree.scope(node).node)
    return frozenset(filter(None, found))


def _patched_by(facts: Facts, node: ast.AST) -> Iterator[str]:
    """Yield the names of what a call such as `mock.patch("torch.cuda.synchronize")` replaces."""
    match node:
        case ast.Call(func=function, args=[ast.Constant(value=str(path)), *_]):
            if re.search("patch|setattr", dotted(function) or ""):
                yield from _named(path)
        case ast.Call(func=function, args=[owner, ast.Constant(value=str(name)), *_]):
            if last_name(function) in ("setattr", "object") and _OWNER.fullmatch(_path(facts, owner)):
                yield name
        case ast.Call(func=ast.Attribute(attr="multiple"), args=[owner], keywords=keywords):
            if _OWNER.fullmatch(_path(facts, owner)):
                yield from (keyword.arg for keyword in keywords if keyword.arg is not None)


def _named(path: str) -> Iterator[str]:
    patched = _PATCHED.fullmatch(path)
    if patched is not None:
        yield patched[2]


def _path(facts: Facts, owner: ast.expr) -> str:
    return facts.resolve(owner) or dotted(owner) or ""
