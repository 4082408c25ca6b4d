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


@of_facts(b"is_available", pattern=rb"is_available[ \t]*=[^=]|setattr\(torch\.cuda,[ \t]*\w", anywhere=True)
def replaces_question(facts: Facts) -> bool:
    """Return whether a file assigns another function to `torch.cuda.is_available`."""
    computed = (
        isinstance(node, ast.Call) and node.args[1:] and facts.resolve(node.args[0]) == "torch.cuda"
        for node in facts.tree.nodes_with("setattr(")
        if not isinstance(node, ast.Attribute)
    )
    return any(computed) or any(
        path.endswith(".is_available")
        and isinstance(target, ast.Attribute)
        and facts.resolve(target) == "torch.cuda.is_available"
        for path, bindings in facts.tree.attributes.items()
        for binding in bindings
        for target in getattr(binding.node, "targets", ())
    )


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
