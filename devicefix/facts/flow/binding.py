"""Find what statements bind, each target with the expression whose value it gets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.points import Point, is_view, without_index
from devicefix.facts.flow.tensors import FUNCTIONS, METHODS
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding, dotted
from devicefix.facts.values import last_name

_ITERATORS = {"iter", "map", "reversed", "values"}
_COLLECTIONS = {
    "dict", "list", "tuple", "set", "sorted", "OrderedDict", "defaultdict", "deque", "partial",
    "SimpleNamespace",
}  # fmt: skip

_KEEPING = {*METHODS["offer"], *METHODS["start"], *FUNCTIONS["add"]}

Pair = tuple[ast.expr, ast.expr]  # a target, and the expression whose value it gets


def bound_at(facts: Facts, point: Point) -> Iterator[Pair]:
    """Yield what is bound at a point: names, attributes and items, each with an expression of its value."""
    for node in point.nodes:
        if isinstance(node, ast.NamedExpr):
            yield node.target, node.value
    match point.node:
        case ast.With(items=items) | ast.AsyncWith(items=items):
            yield from (pair for item in items for pair in _entered(item))
        case ast.Assign() | ast.For() | ast.AsyncFor() if not point.binds:
            return
        case node:
            yield from bound_by(facts, node)


def bound_by(facts: Facts, node: ast.AST) -> Iterator[Pair]:
    """Yield what a statement, or a part of one that binds names, binds."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from (pair for target in targets for pair in unpacked(target, value))
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            yield from _in_loop(node)
        case ast.withitem():
            yield from _entered(node)
        case ast.match_case(pattern=pattern):
            yield from captured(pattern, next(facts.tree.around(node, ast.Match)).subject)
        case ast.FunctionDef(decorator_list=[ast.Lambda(body=ast.Call(func=ast.Name(), args=[]))]):
            yield from _called(node)
        case ast.pattern():
            yield from bound_by(facts, facts.tree.parents[node])


def _called(function: ast.FunctionDef) -> Iterator[Pair]:
    """Yield the name of a function that its decorator calls, `@(lambda f: f())`, with what it returns."""
    name = ast.copy_location(ast.Name(function.name, ast.Store()), function)
    values = (inner.value for inner in function.body if isinstance(inner, ast.Return))
    yield from ((name, value) for value in values if value)


def _in_loop(loop: ast.For | ast.AsyncFor | ast.comprehension) -> Iterator[Pair]:
    """Yield the variables of a loop over a display."""
    for target, collection in element_pairs(loop.target, loop.iter):
        for element in elements_of(collection) or ():
            yield from unpacked(target, element)


def _entered(item: ast.withitem) -> Iterator[Pair]:
    """Yield what `with nullcontext(x) as y` binds; what other context managers return is not known."""
    manager = item.context_expr
    if isinstance(manager, ast.Call) and last_name(manager.func) == "nullcontext" and manager.args:
        if item.optional_vars is not None:
            yield from unpacked(item.optional_vars, manager.args[0])


def unpacked(target: ast.expr, value: ast.expr) -> Iterator[Pair]:
    """Yield the parts of a target with those of a value, where the value is a display."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
    elif isinstance(value, (ast.Tuple, ast.List)):
        for name, its in _aligned(target.elts, value.elts):
            if isinstance(name, ast.Starred):
                yield name.value, its
            else:
                yield from unpacked(name, its)
    elif isinstance(value, ast.IfExp):
        yield from unpacked(target, value.body)
        yield from unpacked(target, value.orelse)
    else:
        for element in elements_of(value) or ():  # `x, y = [t.cuda() for t in (x, y)]`
            for name in target.elts:
                if not isinstance(name, ast.Starred):
                    yield from unpacked(name, element)


def _aligned(targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> Iterator[Pair]:
    """Yield targets with values; all values in the middle go to a target with a star."""
    star = next((index for index, each in enumerate(targets) if isinstance(each, ast.Starred)), None)
    if any(isinstance(value, ast.Starred) for value in values):
        return
    if star is None:
        if len(targets) == len(values):
            yield from zip(targets, values, strict=True)
        return
    rest = len(targets) - star - 1
    end = len(values) - rest
    yield from zip(targets[:star], values, strict=False)
    yield from ((targets[star], value) for value in values[star:end])
    yield from zip(targets[star + 1 :], values[end:], strict=False)


def captured(pattern: ast.pattern, subject: ast.expr) -> Iterator[Pair]:
    """Yield the names that a pattern captures, each with the expression of its value."""
    match pattern:
        case ast.MatchAs(pattern=inner, name=name):
            if name is not None:
                yield _name(name, pattern), subject
            yield from captured(inner, subject) if inner is not None else ()
        case ast.MatchOr(patterns=patterns):
            for each in patterns:
                yield from captured(each, subject)
        case ast.MatchSequence(patterns=patterns) if isinstance(subject, (ast.List, ast.Tuple)):
            yield from _of_sequence(patterns, subject.elts)
        case ast.MatchMapping() if isinstance(subject, ast.Dict):
            yield from _of_mapping(pattern, subject)
        case ast.MatchClass() if isinstance(subject, ast.Call):
            for name, each in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
                if (given := argument_of(subject, name, -1)) is not None:
                    yield from captured(each, given)


def _name(name: str, at: ast.pattern) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Store()), at)


def _of_sequence(patterns: Sequence[ast.pattern], values: Sequence[ast.expr]) -> Iterator[Pair]:
    """Yield the captures of a sequence of patterns; all values in the middle go to one with a star."""
    star = next((index for index, each in enumerate(patterns) if isinstance(each, ast.MatchStar)), None)
    middle = len(values) - len(patterns) + 1
    for index, each in enumerate(patterns):
        if index == star:
            if isinstance(each, ast.MatchStar) and each.name:
                for value in values[index : index + middle]:
                    yield _name(each.name, each), value
        else:
            at = index if star is None or index < star else index + middle - 1
            if 0 <= at < len(values):
                yield from captured(each, values[at])


def _of_mapping(pattern: ast.MatchMapping, subject: ast.Dict) -> Iterator[Pair]:
    """Yield the captures of a mapping pattern; its rest gets the values of other keys."""
    pairs = zip(subject.keys, subject.values, strict=True)
    values = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
    for key, each in zip(pattern.keys, pattern.patterns, strict=True):
        if isinstance(key, ast.Constant) and key.value in values:
            yield from captured(each, values.pop(key.value))
    if pattern.rest:
        for value in values.values():
            yield _name(pattern.rest, pattern), value


def elements_of(node: ast.expr) -> list[ast.expr] | None:
    """Return the expressions that the elements of a collection or iterator are, None if that is not shown."""
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [inner for element in elements for inner in _element(element)]
        case ast.Dict(values=values):
            return values
        case (
            ast.ListComp(elt=element)
            | ast.SetComp(elt=element)
            | ast.GeneratorExp(elt=element)
            | ast.DictComp(value=element)
            | ast.Call(func=ast.Name(id="map"), args=[ast.Lambda(body=element), *_])
        ):
            return [element]
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return [given.value for given in keywords]
        case ast.BinOp(op=ast.Add() | ast.BitOr(), left=left, right=right):
            sides = elements_of(left), elements_of(right)
            return None if sides == (None, None) else [each for side in sides for each in side or ()]
        case ast.Call(func=ast.Attribute(attr="values", value=value), args=[]):
            return elements_of(value)
        case ast.Call(func=function, args=[argument]) if (
            collects(function) or last_name(function) in _ITERATORS
        ):
            return elements_of(argument)
    return None


def element_pairs(target: ast.expr, iterated: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Return the targets of a loop with what they are elements of, through `enumerate`, `items` and `zip`."""
    match target, iterated:
        case ast.Tuple(elts=[_, inner]), ast.Call(func=ast.Name(id="enumerate"), args=[argument, *_]):
            yield from element_pairs(inner, argument)
        case ast.Tuple(elts=[_, inner]), ast.Call(func=ast.Attribute(attr="items", value=value), args=[]):
            yield from element_pairs(inner, value)
        case _, ast.Call(func=ast.Attribute(attr="values", value=value), args=[]):
            yield from element_pairs(target, value)
        case ast.Tuple(elts=inners), ast.Call(func=ast.Name(id="zip"), args=arguments):
            for inner, argument in zip(inners, arguments, strict=False):
                yield from element_pairs(inner, argument)
        case _:
            yield target, iterated


def _element(node: ast.expr) -> list[ast.expr]:
    return elements_of(node.value) or [] if isinstance(node, ast.Starred) else [node]


def collects(function: ast.expr) -> bool:
    """Return whether a function makes a collection of the elements of its argument."""
    return last_name(function) in _COLLECTIONS


# -- what is kept ---------------------------------------------------------------------------------------


def kept_at(facts: Facts, point: Point) -> Iterator[tuple[str, ast.expr, bool]]:
    """Yield what keeps values at a point, each with such a value, and whether it is one of a collection."""
    for path, added, value in chain(_stored(facts, point), _offered(point)):
        yield from ((path, each, added or contained) for each, contained in contents(facts, value))


def _stored(facts: Facts, point: Point) -> Iterator[tuple[str, bool, ast.expr]]:
    """Yield what keeps values at a point, whether it is a collection that gets one more, and the value."""
    for target, value in bound_at(facts, point):
        if isinstance(target, ast.Subscript):
            path = dotted(without_index(target))
            if path and facts.once(all_collections, facts.bindings(without_index(target))):
                yield path, True, value
            match target:
                case ast.Subscript(value=ast.Call(func=ast.Name("globals")), slice=ast.Constant(str(name))):
                    yield name, False, value
            continue
        named = target.value if isinstance(target, ast.Attribute) and is_view(target) else target
        if (path := dotted(named)) and not path.endswith(".grad"):
            yield path, False, value
    given: list[ast.expr]
    match point.node:
        case ast.AugAssign(target=target, value=value) if elements_of(value) is not None:
            given = [value]
        case ast.FunctionDef(name=name, args=arguments):
            target = ast.Name(name)
            given = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr, value=target), args=given)) if (
            attr in METHODS["add"]
        ):
            pass
        case _:
            return
    if path := dotted(without_index(target)):
        yield from ((path, True, value) for value in given)


def _offered(point: Point) -> Iterator[tuple[str, bool, ast.expr]]:
    """Yield the same of what takes values to other code: a queue, a cache, a heap, a thread."""
    for call in (node for node in point.nodes if isinstance(node, ast.Call)):
        name, given = last_name(call.func), [*call.args, *(keyword.value for keyword in call.keywords)]
        holder = given[0] if given and name in FUNCTIONS["add"] else getattr(call.func, "value", None)
        if holder is not None and (path := dotted(holder)) and name in _KEEPING:
            keeper = f"{path}.{name}()" if name in METHODS["start"] else path
            yield from ((keeper, True, each) for each in given)


def all_collections(_facts: Facts, bindings: Sequence[Binding]) -> bool:
    """Return whether a name is bound to dicts or lists, whose items are kept and not copied into."""
    values = [binding.value for binding in bindings]
    return bool(values) and all(
        isinstance(value, (ast.Dict, ast.List, ast.DictComp, ast.ListComp))
        or (isinstance(value, ast.Call) and collects(value.func))
        for value in values
    )


def _makes_object(facts: Facts, function: ast.expr) -> bool:
    """Return whether a call makes an object of a class, which may keep what it is given."""
    name = facts.resolve(function)
    if name is not None:
        return name not in FUNCTIONS["view"] and re.search(r"\.[A-Z]\w*(?<!Tensor)\Z", name) is not None
    bindings = facts.tree.bound(function)
    return bool(bindings) and all(
        isinstance(each.node, ast.ClassDef)
        or (isinstance(each.value, ast.Call) and last_name(each.value.func) == "namedtuple")
        for each in bindings
    )


def contents(facts: Facts, value: ast.expr) -> Iterator[tuple[ast.expr, bool]]:  # noqa: C901 (one case a kind)
    """Yield the expressions whose values are kept where `value` is kept, and whether in a collection."""
    todo = [(value, False)]
    while todo:
        each, contained = todo.pop()
        match each:
            case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other]):
                todo += [(other, contained), (one, contained)]
            case ast.Lambda(args=arguments):
                todo += [(kept, True) for kept in (*arguments.defaults, *filter(None, arguments.kw_defaults))]
            case ast.GeneratorExp():
                continue  # it has not run yet
            case ast.Starred(value=value) | ast.NamedExpr(value=value):
                todo.append((value, contained or isinstance(each, ast.Starred)))
            case ast.Call(func=ast.Lambda(body=inner), args=[]) | ast.Subscript(value=ast.List(elts=[inner])):
                todo.append((inner, contained))
            case ast.Attribute(attr=attr, value=ast.Call() as made) if (
                kept := argument_of(made, attr, -1)
            ) is not None:  # `SimpleNamespace(x=tensor).x`
                todo.append((kept, contained))
            case ast.Call(func=function) if not collects(function) and not _makes_object(facts, function):
                yield each, contained
            case _:
                parts = elements_of(each)
                if parts is None and isinstance(each, ast.Call):
                    parts = [*each.args, *(given.value for given in each.keywords)]
                if parts is None:
                    yield each, contained
                else:
                    todo += [(part, True) for part in reversed(parts)]
