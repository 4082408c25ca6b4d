"""Find what a function saves before it loads it: without CUDA, nothing in them is of CUDA."""

from __future__ import annotations

import ast

from devicefix.facts.module import Facts
from devicefix.facts.reaching import blocks_around, position
from devicefix.facts.scopes import Binding, dotted

_SAVES = ("torch.save", "torch.jit.save")
_PATHS = ("os.path.join", "os.fspath", "pathlib.Path", "str")
_CONTENT = ("getvalue", "getbuffer")


def saved_before(facts: Facts, source: ast.expr) -> bool:
    """Return whether the function around a load has written what it loads, whenever it gets there.

    Args:
        facts: the facts of the module.
        source: the path, file or buffer that is loaded.
    """
    place = _place(facts, source)
    if not _is_steady(facts, place):
        return False
    key = ast.dump(place)
    for node in facts.tree.nodes_with("save("):
        if isinstance(node, ast.Call) and facts.call(node, *_SAVES):
            target = _target(node)
            if target is not None and ast.dump(_place(facts, target)) == key:
                if _runs_before(facts, node, source) and _is_kept(facts, place, node):
                    return True
    return False


def _target(save: ast.Call) -> ast.expr | None:
    """Return where `torch.save(value, f)` writes to."""
    if len(save.args) > 1:
        return save.args[1]
    return next((keyword.value for keyword in save.keywords if keyword.arg == "f"), None)


def _place(facts: Facts, source: ast.expr) -> ast.expr:
    """Return the path of what `with open(path) as f` opens, the buffer of a copy, or else the expression."""
    match source:
        case ast.Name(id=name):
            for _, parent in facts.tree.ancestors(source):
                for item in parent.items if isinstance(parent, ast.With) else ():
                    match item:
                        case ast.withitem(
                            context_expr=ast.Call(func=ast.Name(id="open"), args=[path, *_]),
                            optional_vars=ast.Name(id=bound),
                        ) if bound == name:
                            return path
        case ast.Call(args=[ast.Call(func=ast.Attribute(value=buffer, attr=attr), args=[])]) if (
            attr in _CONTENT and facts.call(source, "io.BytesIO")
        ):
            return buffer
    return source


def _is_steady(facts: Facts, place: ast.expr) -> bool:
    """Return whether an expression has the same value again, as long as its names have."""
    match place:
        case ast.Constant() | ast.Name():
            return True
        case ast.Attribute():
            return dotted(place) is not None
        case ast.BinOp(left=left, right=right):
            return _is_steady(facts, left) and _is_steady(facts, right)
        case ast.JoinedStr(values=values):
            return all(_is_steady(facts, value) for value in values)
        case ast.FormattedValue(value=value, format_spec=None):
            return _is_steady(facts, value)
        case ast.Call(args=arguments, keywords=[]):
            known = facts.resolve(place.func) in _PATHS or dotted(place.func) in _PATHS
            return known and all(_is_steady(facts, argument) for argument in arguments)
    return False


def _runs_before(facts: Facts, save: ast.Call, load: ast.expr) -> bool:
    """Return whether a save runs before a load in the same function, whenever that does."""
    statement: ast.stmt = facts.tree.statement(save)
    if not isinstance(statement, ast.Expr) or statement.value is not save:
        return False
    while isinstance(parent := facts.tree.parents[statement], ast.With):
        statement = parent
    around = {id(block) for block in blocks_around(facts.tree, facts.tree.statement(load))}
    return id(facts.tree.block(statement)) in around and position(save) < position(load)


def _is_kept(facts: Facts, place: ast.expr, save: ast.Call) -> bool:
    """Return whether nothing that a place is read from is bound anew after a save."""
    here = facts.tree.scope(save)

    def is_before(binding: Binding) -> bool:
        node = binding.node.context_expr if isinstance(binding.node, ast.withitem) else binding.node
        within = facts.tree.scope(node) is here and (0, 0) < position(node) < position(save)
        return binding.parameter or within

    for node in ast.walk(place):
        if isinstance(node, ast.Name) and (found := here.lookup(node.id)) is not None:
            if not all(map(is_before, found[1])) if found[0] is here else len(found[1]) > 1:
                return False
        elif isinstance(node, ast.Attribute):
            bindings = facts.tree.attributes.get(dotted(node) or "", ())
            if not all(is_before(each) or _in_constructor(facts, each) for each in bindings):
                return False
    return True


def _in_constructor(facts: Facts, binding: Binding) -> bool:
    owner = facts.tree.scope(binding.node).node
    return isinstance(owner, ast.FunctionDef) and owner.name == "__init__"
