"""Follow a value through the expressions around it."""

from __future__ import annotations

import ast

from devicefix.facts.flow.binding import bound_by
from devicefix.facts.flow.forwards.calls import Calls
from devicefix.facts.flow.forwards.library import CALLED, SHOWS
from devicefix.facts.flow.forwards.trail import Followed, Known, Use
from devicefix.facts.flow.parameters import Function, Place, argument_at
from devicefix.facts.flow.steps import Layers, Steps, text_of_literal
from devicefix.facts.module import Facts
from devicefix.facts.scopes import captured

# The parents of an expression through which its value certainly goes on, or ends for certain; and those that
# put it among others, whose elements a loop or an assignment may take again.
_CERTAIN = (
    ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.IfExp, ast.BoolOp, ast.Await, ast.List, ast.Tuple, ast.For,
    ast.AsyncFor, ast.comprehension, ast.keyword, ast.Call, ast.Return, ast.arguments, ast.Match, ast.Expr,
)  # fmt: skip
_AMONG_OTHERS = (ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


class Walk(Calls):
    """The way of one value through a module."""

    def to_parameter(self, function: Function | ast.ClassDef, place: Place) -> Followed:
        """Follow what a function, or the constructor of a class, gets for a parameter."""
        self._parameter(function, place, ())
        return self._finish()

    def _step(self, node: ast.expr, layers: Layers) -> None:  # noqa: C901, PLR0912 (one case a kind of node)
        parent = self.tree.parents.get(node)
        if self.certain and not isinstance(parent, _CERTAIN):
            self._end()
            if not (isinstance(parent, _AMONG_OTHERS) or (layers and isinstance(parent, ast.Attribute))):
                return
        match parent:
            case ast.Assign(targets=targets):
                for target in targets:
                    self._store(target, layers)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                self._store(target, layers)
            case ast.NamedExpr(target=target):
                self._store(target, layers)
                self._reach(parent, layers)
            case ast.IfExp(test=test) if node is not test:
                self._reach(parent, layers)
            case ast.BoolOp() if self.certain:
                self._choice(node, parent, layers)
            case ast.BinOp(op=ast.Div()) if not layers:
                self._end(Use.SHOWN)  # a number, or a path
            case ast.BoolOp() | ast.BinOp() | ast.FormattedValue() | ast.JoinedStr() | ast.Await():
                self._reach(parent, layers)
            case ast.List() | ast.Tuple():
                self._reach(parent, (self._element(node, parent), *layers))
            case ast.Set() | ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._reach(parent, ("", *layers))
            case ast.Dict(keys=keys, values=values) if values[place := self.tree.place(node)] is node:
                self._name_holder(text_of_literal(keys[place]), layers)
                self._reach(parent, (text_of_literal(keys[place]), *layers))
            case ast.Starred():
                self._starred(parent, layers)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if node is parent.iter and (
                layers or not self.certain
            ):
                self._store(parent.target, layers[1:])
            case ast.Subscript(value=value):
                self._subscript(parent, layers, value is node)
            case ast.Attribute(attr=name):
                self._attribute_of(parent, name, layers)
            case ast.Call(func=function) if function is node and layers[:1] == (CALLED,):
                self._reach(parent, layers[1:])
            case ast.keyword() | ast.Call() if (found := argument_at(self.tree, node)) is not None:
                self._passed(*found, layers, by_keyword=isinstance(parent, ast.keyword))
            case _:
                self._outside(node, parent, layers)

    def _choice(self, node: ast.expr, parent: ast.BoolOp, layers: Layers) -> None:
        """Follow a value certainly out of `a or b`, which also tests it unless it is the last one."""
        is_last = node is parent.values[-1]
        if not is_last:
            self._end()
        if is_last or not (self.steps.zero and isinstance(parent.op, ast.Or)):
            self._reach(parent, layers)

    def _outside(self, node: ast.expr, parent: ast.AST | None, layers: Layers) -> None:  # noqa: C901
        """Follow a value on from the whole of an expression."""
        match parent:
            case ast.Return():
                self._returned(self.tree.scope(parent).node, layers)
            case ast.Yield():
                self._returned(self.tree.scope(parent).node, ("", *layers))
            case ast.Lambda():
                self._returned(parent, layers)
            case ast.arguments():
                self._default(node, parent, layers)
            case ast.Compare() if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
                self._end(Use.SHOWN)  # what another value is compared with
            case ast.Compare():
                self._compared(node)
            case ast.If() | ast.While() | ast.IfExp() | ast.UnaryOp() | ast.Assert():
                self._end(Use.SHOWN)  # any name of a device is true
            case ast.Dict():
                self._end(self._as_name())
            case ast.Match():
                self._matched(parent)
            case ast.Expr() if self.certain:
                return
            case ast.Expr():
                self._end(Use.SHOWN)
            case _:
                self._end()

    def _default(self, node: ast.expr, arguments: ast.arguments, layers: Layers) -> None:
        """Follow the default of a parameter."""
        scope, name = self.steps.with_default(arguments, node)
        if self.certain:
            self._hold(self.steps.name(scope, name), self.found.parameters, layers)
        else:
            self._name(scope, name, layers)

    def _matched(self, match: ast.Match) -> None:
        """Follow what a `match` statement compares certainly to the names that its patterns bind."""
        pairs = (pair for case in match.cases for pair in bound_by(self.facts, case))
        names = [target for target, value in pairs if value is self._value] if self.certain else []
        for name in names:
            self._store(name, (), match)
        if not names:
            self._end(Use.UNKNOWN if any(captured(*match.cases)) else Use.SHOWN)

    def _passed(self, call: ast.Call, place: Place | None, layers: Layers, *, by_keyword: bool) -> None:
        """Follow an argument, or the options in `f(**options)`."""
        if place is None and by_keyword and layers:
            place, layers = layers[0] or None, layers[1:]
        self._argument(call, call.func, place, layers)

    def _subscript(self, node: ast.Subscript, layers: Layers, is_container: bool) -> None:
        if not is_container:
            self._end(self._as_name())
        elif not layers:
            self._end()
        elif isinstance(node.slice, ast.Slice):
            self._reach(node, ("", *layers[1:]))
        elif isinstance(node.ctx, ast.Load) and _may_be(_key_of(node.slice), layers[0]):
            self._reach(node, layers[1:])

    def _attribute_of(self, node: ast.Attribute, name: str, layers: Layers) -> None:
        if (call := self.tree.call_of(node)) is not None:
            self._method(call, name, layers)
        elif layers and layers[0] == name:
            self._reach(node, layers[1:])
        else:
            self._end()

    def _method(self, call: ast.Call, name: str, layers: Layers) -> None:
        """Follow what a method of a string or of a container returns."""
        if name in ("get", "pop", "popleft") and layers:
            if _may_be(text_of_literal(call.args[0]) if call.args else "", layers[0]):
                self._reach(call, layers[1:])
        elif name in ("values", "copy") and layers:
            self._reach(call, ("", *layers[1:]))
        elif name == "items" and layers:
            self._reach(call, ("", "1", *layers[1:]))
        elif name in ("format", "join", "strip", "lower"):
            self._reach(call, ())
        elif name in ("startswith", "endswith"):
            self._compared(call)
        else:
            self._end(Use.SHOWN if name in SHOWS else Use.UNKNOWN)

    def _element(self, node: ast.expr, parent: ast.List | ast.Tuple) -> str:
        """Return the position of an element, empty if that is not known; behind a star, from the end."""
        place, holder = self.tree.place(node), self.tree.parents[parent]
        if not self.facts.once(_has_star, parent.elts):
            return str(place)
        unpacked = isinstance(holder, ast.Assign) and all(map(_is_several, holder.targets))
        after = any(isinstance(each, ast.Starred) for each in parent.elts[place:])
        return str(place - len(parent.elts)) if unpacked and not after else ""

    def _starred(self, node: ast.Starred, layers: Layers) -> None:
        parent = self.tree.parents.get(node)
        call, position = argument_at(self.tree, node) or (None, None)
        if call is not None and layers and layers[0].isdigit():
            place = position + int(layers[0]) if isinstance(position, int) else None
            self._argument(call, call.func, place, layers[1:])
        elif isinstance(parent, (ast.List, ast.Tuple, ast.Set)):
            self._reach(parent, ("", *layers[1:]))
        else:
            self._end()


class Forwards(Steps):
    """The ways of the values of a module.

    Args:
        facts: the facts of the module, with what the other files show.
        zero: whether the values are numbers that are 0 without CUDA, and certainly followed only as such:
            not where they are evaluated only with CUDA, not through `n or 1`, and not through the attributes
            of any object.
    """

    def __init__(self, facts: Facts, zero: bool = False) -> None:
        super().__init__(facts, zero=zero)
        self._known: Known = {}
        self._followed: dict[ast.expr, Followed] = {}

    def of(self, value: ast.expr) -> Followed:
        """Return where the value of an expression certainly goes."""
        if value not in self._followed:
            walk = Walk(self, self._known, certain=True)
            self._followed[value] = walk.follow([value])
        return self._followed[value]

    def use_of(self, value: ast.expr) -> Use:
        """Return what the value of an expression may be used for, as far as it may go."""
        return Walk(self, self._known).follow([value]).use

    def of_parameter(self, function: Function | ast.ClassDef, place: Place) -> Followed:
        """Return where the value that a function gets for a parameter certainly goes."""
        return Walk(self, self._known, certain=True).to_parameter(function, place)

    def use_of_parameter(self, function: Function | ast.ClassDef, place: Place) -> Use:
        """Return what the value that a function gets for a parameter may be used for."""
        return Walk(self, self._known).to_parameter(function, place).use


def _is_several(target: ast.expr) -> bool:
    """Return whether a target is several, none of them with a star."""
    elements = getattr(target, "elts", ())
    return bool(elements) and not any(isinstance(each, ast.Starred) for each in elements)


def _has_star(_facts: Facts, elements: list[ast.expr]) -> bool:
    return any(isinstance(element, ast.Starred) for element in elements)


def _may_be(wanted: str, key: str) -> bool:
    """Return whether a key that is read may be the one that a value is under; an empty key is any."""
    return not wanted or not key or wanted == key


def _key_of(index: ast.expr) -> str:
    """Return the key or position that an index names, empty for one that is computed."""
    match index:
        case ast.Constant(value=bool(value)):
            return str(int(value))
        case ast.Constant(value=value):
            return str(value)
    return ""
