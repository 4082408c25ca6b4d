"""Find the modules whose global names a file writes, lists or asks for by other means than their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.facts.exports.export import of_facts
from devicefix.facts.exports.forks import Named, passed
from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted
from devicefix.facts.texts import text_of
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name

OWN = Named("")  # the file itself
TAKEN = ".__code__"  # ends the name of a module out of which a file takes the code of a function
_MAIN = "__main__"  # the module that is the program

_OF_CALLER = {"vars", "dir", "locals"}  # without arguments
_LISTING = {"vars", "dir", "inspect.getmembers", "inspect.getmembers_static"}
_OF_FUNCTIONS = ("f_globals", "__globals__")
_LOOKUPS = ("get", "__getitem__")
_WORDS = (
    "exec(", "globals()", "vars(", "locals()", "dir(", "__dict__", "getmembers", "hasattr(", "setattr(",
    "__code__", "getsource", "create=", "_globals", "def __getattr__", "run_path", "import_module(",
)  # fmt: skip
# `listdir(` lists no names, and `hasattr(x, "text")` asks for none that a fix binds.
_NOT_LISTING = ("dir(", "vars(", "hasattr(", "setattr(")
_OPEN = (
    r"""\b(?:dir|vars)\(|(?:has|set)attr\((?![^,()\[\]{}"'\n]*,\s*(["'])(?:(?!\1|device)[^\\\n])*\1\s*[,)])|"""
    + "|".join(re.escape(word) for word in _WORDS if word not in _NOT_LISTING)
)


@of_facts(*(word.encode() for word in _WORDS), pattern=_OPEN.encode(), anywhere=True)
def open_namespaces(facts: Facts) -> frozenset[Named]:
    """Return the modules in which a new global name may be seen, replaced or missed.

    Returns:
        The modules, as the file imports them, and `OWN` for the file itself.
    """
    found: set[Named] = set()
    for node in facts.tree.nodes_with(*_WORDS):
        found.update(_by_call(facts, node) if isinstance(node, ast.Call) else _by_dictionary(facts, node))
    return frozenset(found)


@of_facts(b"import_module(", pattern=rb"dir\(|vars\(|getmembers", anywhere=True)
def listed_packages(facts: Facts) -> frozenset[str]:
    """Return the packages whose modules a file imports by computed names; it lists the names of modules."""
    calls = (node for node in facts.tree.nodes_with("import_module(") if isinstance(node, ast.Call))
    names = (call.args[0].left for call in calls if call.args and isinstance(call.args[0], ast.BinOp))
    texts = (text_of(each) or "" for each in names)
    return frozenset(each.removesuffix(".") for each in texts if each.endswith("."))


def _by_dictionary(facts: Facts, node: ast.AST) -> Iterator[Named]:
    """Yield the module whose names are read as its dictionary."""
    if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
        if facts.tree.scope(node).is_module:
            yield OWN
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and "device" in node.attr:
        yield from _module(facts, node.value) if isinstance(node.value, ast.Call) else ()
    elif isinstance(node, ast.Attribute) and not _is_lookup(facts, node):
        if node.attr == "__dict__":
            yield from _module(facts, node.value)
            yield from passed(facts, node.value)
        elif node.attr in _OF_FUNCTIONS:
            yield OWN
        elif node.attr == TAKEN[1:] and not getattr(facts.tree.parents[node], "attr", "").startswith("co_"):
            yield Named(_module_of(facts, node.value) + TAKEN)


def _by_call(facts: Facts, call: ast.Call) -> Iterator[Named]:
    """Yield the module whose names a call lists, writes or asks for, or of which it takes a source."""
    name = facts.resolve(call.func) or dotted(call.func) or ""
    first = call.args[0] if call.args else None
    if first is None:
        scope = facts.tree.scope(call)
        in_module = name in _OF_CALLER and scope.function is None and not scope.is_class
        if (in_module or name == "globals") and not _is_lookup(facts, call):
            yield OWN
    elif name == "exec" and _writes_globals(call.args):
        yield OWN
    elif name == "runpy.run_path":
        texts = (each.value for each in walk(first) if isinstance(each, ast.Constant))
        yield from (Named(str(each).rpartition("/")[2].removesuffix(".py")) for each in texts)
    elif name == "inspect.getsource":  # the function works elsewhere, with other names
        yield Named(_module_of(facts, first))
    elif _lists(facts, name, call) or any(each.arg == "create" for each in call.keywords):  # of `mock.patch`
        yield from [Named(path.rpartition(".")[0])] if (path := text_of(first)) else _module(facts, first)
        yield from passed(facts, first)


def _lists(facts: Facts, name: str, call: ast.Call) -> bool:
    """Return whether a call lists the names of its first argument, or asks for one that may be a device's."""
    if name in _LISTING:
        return not _is_lookup(facts, call)
    return name in ("hasattr", "setattr") and len(call.args) > 1 and _may_be_device(call.args[1])


def _writes_globals(args: list[ast.expr]) -> bool:
    """Return whether `exec` may bind names of the module that calls it."""
    text = args[0] if args else None
    if isinstance(text, ast.Constant) and isinstance(text.value, str) and "device" not in text.value:
        return False
    return len(args) == 1 or (isinstance(args[1], ast.Call) and dotted(args[1].func) == "globals")


def _is_lookup(facts: Facts, names: ast.expr) -> bool:
    """Return whether a dictionary of names is only read by one name, as in `globals()[name]`."""
    parent = facts.tree.parents.get(names)
    match parent:
        case ast.Subscript(value=value, slice=key, ctx=context):
            return value is names and (isinstance(context, ast.Load) or not _may_be_device(key))
        case ast.Attribute(attr=attr):
            call = facts.tree.parents.get(parent)
            asked = call.args[:1] if isinstance(call, ast.Call) else []
            return attr in _LOOKUPS and not any("device" in (text_of(each) or "") for each in asked)
    return False


def _may_be_device(name: ast.expr) -> bool:
    """Return whether a name, which may be computed, may be one that a fix binds."""
    return not isinstance(name, ast.Constant) or "device" in str(name.value)


def _module(facts: Facts, owner: ast.expr) -> Iterator[Named]:
    """Yield the module that an expression is, if it is one that the file imports, or the file itself."""
    match facts.value(owner) or owner:
        case ast.Subscript(value=modules, slice=key) if facts.resolve(modules) == "sys.modules":
            if dotted(key) == "__name__" or text_of(key) == _MAIN:
                yield OWN
        case ast.Call(func=function, args=[module]) if last_name(function) == "import_module":
            name = text_of(module)
            yield OWN if name is None or name == _MAIN else Named(name)
        case _ if (name := facts.resolve(owner)) is not None:
            yield OWN if name == _MAIN else Named(name)


def _module_of(facts: Facts, function: ast.expr) -> str:
    """Return the module of a function, empty for the file itself."""
    return (facts.resolve(function) or "").rpartition(".")[0]
