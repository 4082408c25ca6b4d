"""Find what a program loads that it has saved itself, without CUDA or from tensors on a CPU."""

from __future__ import annotations

import ast
import re

from devicefix.facts.flow.kinds.calls import results
from devicefix.facts.flow.reaching import blocks_around, position, reaching
from devicefix.facts.flow.steps import Steps
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, dotted
from devicefix.facts.values import last_name

_SAVES = ("torch.save", "torch.jit.save")
_PATHS = ("os.path.join", "os.fspath", "pathlib.Path", "str")
_CONTENT = ("getvalue", "getbuffer")
_FOLDERS = ("tmp_path", "tmpdir")  # what pytest calls them
# What may put a file there that another program has saved.
_COPIES = re.compile(
    r"cop(y|ied)|download|retrieve|extract|unpack|untar|unzip|link|rename|move$|fetch|snapshot|Popen|check_call",
    re.IGNORECASE,
)
_HOPS = 4  # from one name or function to the next


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


def cached_from_cpu(facts: Facts, source: ast.expr) -> bool:
    """Return whether a function also saves what it loads, and only tensors on a CPU: the file is its cache.

    Args:
        facts: the facts of the module.
        source: the path or file that is loaded.
    """
    place = _place(facts, source)
    here, key = facts.tree.scope(source), ast.dump(place)
    if here.is_module or not _is_steady(facts, place):
        return False
    values = [
        node.args[0] if node.args else None
        for node in facts.tree.nodes_with("save(")
        if isinstance(node, ast.Call) and facts.call(node, *_SAVES) and facts.tree.scope(node) is here
        if (target := _target(node)) is not None and ast.dump(_place(facts, target)) == key
    ]
    return bool(values) and all(value is not None and _on_cpu(facts, value) for value in values)


def saved_by_test(facts: Facts, source: ast.expr) -> bool:
    """Return whether a test loads a file from its temporary folder, and puts no file of others there.

    pytest makes the folder, so that the test has saved the file: https://docs.pytest.org/en/stable/how-to/tmp_path.html.
    """
    function = facts.tree.scope(source).node
    if not isinstance(function, ast.FunctionDef) or not function.name.startswith("test"):
        return False
    if any(map(_may_copy, ast.walk(function))):
        return False
    return _is_temporary(facts, source, _HOPS)


def _may_copy(node: ast.AST) -> bool:
    """Return whether a call may put a file into a folder that another program has saved."""
    return isinstance(node, ast.Call) and (
        _COPIES.search(last_name(node.func)) is not None
        or any(each.arg in ("cache_dir", "local_dir", "root") for each in node.keywords)
    )


def _is_temporary(facts: Facts, node: ast.expr, hops: int) -> bool:
    """Return whether a path begins with the temporary folder of a test."""
    match node:
        case ast.Name(id=name):
            found = facts.tree.scope(node).lookup(name)
            bindings = found[1] if found is not None else []
            if len(bindings) != 1 or not hops:
                return False
            if bindings[0].parameter:
                return name in _FOLDERS
            return bindings[0].value is not None and _is_temporary(facts, bindings[0].value, hops - 1)
        case ast.BinOp(left=left, op=ast.Div() | ast.Add()):
            return _is_temporary(facts, left, hops)
        case ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
            return _is_temporary(facts, first, hops)
        case ast.Call(func=ast.Attribute(value=owner, attr="join" | "joinpath" | "mkdir" | "resolve")) if (
            facts.resolve(node.func) is None
        ):
            return _is_temporary(facts, owner, hops)
        case ast.Call(args=[first, *_]):
            known = facts.resolve(node.func) in _PATHS or dotted(node.func) in _PATHS
            return known and _is_temporary(facts, first, hops)
    return False


def _on_cpu(facts: Facts, node: ast.expr | None, hops: int = _HOPS) -> bool:
    """Return whether an expression only has tensors on a CPU, also with CUDA."""
    match node:
        case ast.Name(id=name) if hops and (found := facts.tree.scope(node).lookup(name)) is not None:
            bindings = reaching(facts.tree, node, found[1])
            return bool(bindings) and all(_on_cpu(facts, each.value, hops - 1) for each in bindings)
        case ast.Dict(values=elements) | ast.List(elts=elements) | ast.Tuple(elts=elements):
            return all(_on_cpu(facts, each, hops) for each in elements)
        case ast.Constant():
            return True
        case ast.Call() if facts.call(node, "torch.from_numpy"):
            return True
        case ast.Call(func=ast.Attribute(attr="cpu" | "numpy" | "tolist" | "item"), args=[]):
            return True
        case ast.Call(func=function) if hops and (own := Steps(facts).function(function)) is not None:
            returned, _ = facts.once(results, facts.tree.scopes[own])
            plain = bool(returned) and not own.decorator_list
            return plain and all(_on_cpu(facts, each, hops - 1) for each in returned)
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
