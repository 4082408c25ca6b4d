"""Follow a value through the expressions around it."""

from __future__ import annotations

import ast

from devicefix.facts.flow.destinations.arguments import Arguments
from devicefix.facts.flow.destinations.stores import SHOWS, Use
from devicefix.facts.flow.parameters import Function
from devicefix.facts.flow.sinks import Place
from devicefix.facts.flow.steps import Layers, Steps, text_of_literal
from devicefix.facts.module import Facts
from devicefix.facts.scopes import captures


class Trail(Arguments):
    """The places that one value reaches."""

    def follow_parameter(self, function: Function, place: Place) -> Use:
        """Follow what a function gets for a parameter."""
        self._parameter(function, place, ())
        return self._finish()

    def _step(self, node: ast.expr, layers: Layers) -> None:  # noqa: C901, PLR0912 (one case a kind of node)
        parent = self.tree.parents.get(node)
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
            case ast.BoolOp() | ast.BinOp() | ast.FormattedValue() | ast.JoinedStr() | ast.Await():
                self._reach(parent, layers)
            case ast.List() | ast.Tuple():
                self._reach(parent, (str(self.tree.place(node)), *layers))
            case ast.Set() | ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._reach(parent, ("", *layers))
            case ast.Dict(keys=keys, values=values) if values[place := self.tree.place(node)] is node:
                self._reach(parent, (text_of_literal(keys[place]), *layers))
            case ast.Starred():
                self._starred(parent, layers)
            case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated) | ast.comprehension(iter=iterated) if (
                node is iterated
            ):
                self._store(parent.target, layers[1:])
            case ast.Subscript(value=value):
                self._subscript(parent, layers, value is node)
            case ast.Attribute(attr=name):
                self._attribute_of(parent, name, layers)
            case ast.keyword(arg=name):
                call = self.tree.parents[parent]
                if isinstance(call, ast.Call):
                    self._keyword(call, name, layers)
                else:
                    self.use |= Use.UNKNOWN
            case ast.Call(args=arguments) if node in arguments:
                self._argument(parent, parent.func, position_of(parent, node), layers)
            case _:
                self._outside(node, parent, layers)

    def _outside(self, node: ast.expr, parent: ast.AST | None, layers: Layers) -> None:
        """Follow a value on from the whole of an expression."""
        match parent:
            case ast.Return():
                self._returned(self.tree.scope(parent).node, layers)
            case ast.Yield():
                self._returned(self.tree.scope(parent).node, ("", *layers))
            case ast.Lambda():
                self._result_of(parent, layers)
            case ast.arguments():
                self._name(*self.steps.with_default(parent, node), layers)
            case ast.Compare() if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
                self.use |= Use.SHOWN  # what another value is compared with
            case ast.Compare():
                self._compared(node)
            case ast.If() | ast.While() | ast.IfExp() | ast.UnaryOp() | ast.Assert():
                self.use |= Use.SHOWN  # any name of a device is true
            case ast.Match():
                self.use |= Use.UNKNOWN if captures(parent) else Use.SHOWN
            case ast.Expr():
                self.use |= Use.SHOWN
            case _:
                self.use |= Use.UNKNOWN

    def _subscript(self, node: ast.Subscript, layers: Layers, is_container: bool) -> None:
        if not is_container or not layers:
            self.use |= Use.UNKNOWN
            return
        if isinstance(node.slice, ast.Slice):
            self._reach(node, ("", *layers[1:]))
            return
        wanted = _key_of(node.slice)
        if not wanted or not layers[0] or wanted == layers[0]:
            if isinstance(node.ctx, ast.Load):
                self._reach(node, layers[1:])

    def _attribute_of(self, node: ast.Attribute, name: str, layers: Layers) -> None:
        call = self.tree.parents.get(node)
        if isinstance(call, ast.Call) and call.func is node:
            self._method(call, name, layers)
        elif layers and layers[0] == name:
            self._reach(node, layers[1:])
        else:
            self.use |= Use.UNKNOWN

    def _method(self, call: ast.Call, name: str, layers: Layers) -> None:
        """Follow what a method of a string or of a container returns."""
        if name in ("get", "pop", "popleft") and layers:
            wanted = text_of_literal(call.args[0]) if call.args else ""
            if not wanted or not layers[0] or wanted == layers[0]:
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
            self.use |= Use.SHOWN if name in SHOWS else Use.UNKNOWN

    def _starred(self, node: ast.Starred, layers: Layers) -> None:
        parent = self.tree.parents.get(node)
        if isinstance(parent, ast.Call) and layers and layers[0].isdigit():
            position = position_of(parent, node)
            place = None if position is None else position + int(layers[0])
            self._argument(parent, parent.func, place, layers[1:])
        elif isinstance(parent, (ast.List, ast.Tuple, ast.Set)):
            self._reach(parent, ("", *layers[1:]))
        else:
            self.use |= Use.UNKNOWN


def _key_of(index: ast.expr) -> str:
    """Return the key or position that an index names, empty for one that is computed."""
    match index:
        case ast.Constant(value=bool(value)):
            return str(int(value))
        case ast.Constant(value=value):
            return str(value)
    return ""


class Destinations:
    """The destinations of the values of a module.

    Args:
        facts: the facts of the module, with what the other files show.
    """

    def __init__(self, facts: Facts) -> None:
        self._steps = Steps(facts)
        self._known: dict[tuple[object, Layers], Use] = {}

    def of(self, node: ast.expr) -> Use:
        """Return what becomes of the value of an expression."""
        return Trail(self._steps, self._known).follow(node, ())

    def of_parameter(self, function: Function, place: Place) -> Use:
        """Return what becomes of what a function gets for a parameter."""
        return Trail(self._steps, self._known).follow_parameter(function, place)


def position_of(call: ast.Call, node: ast.expr) -> int | None:
    """Return the position of an argument, None behind `*arguments`."""
    position = call.args.index(node)
    return None if any(isinstance(before, ast.Starred) for before in call.args[:position]) else position
