"""Streams and events: where they are created and used, and the fixes of both."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from weakref import proxy

from devicefix.devices.context import Context
from devicefix.facts import Binding, dotted
from devicefix.facts.effects import has_effects
from devicefix.facts.flow.forwards import Followed, Use
from devicefix.facts.flow.needs import divisor, needs_of, of_number
from devicefix.facts.refusals import PRINTING
from devicefix.facts.values import is_constant, last_name
from devicefix.model import Fix
from devicefix.rewrite.lines import alone
from devicefix.rules.shared.event_statements import EventStatements

_MAKERS = {
    "torch.cuda.Stream", "torch.cuda.Event", "torch.cuda.ExternalStream", "torch.cuda.current_stream",
    "torch.cuda.default_stream", "torch.cuda.streams.Stream", "torch.cuda.streams.Event",
}  # fmt: skip
# Methods of streams, events and tensors that only order the work of a GPU, and return None; a CPU needs none.
_ORDERING = {"wait_stream", "wait_event", "record_stream", "record", "wait", "synchronize"}
_RECORDS = "record_event"  # returns an event
# What the other methods return where no work is waiting; a time is 0.0 instead where `nan` would decide something.
_NAN = 'float("nan")'
_ANSWERS = {"elapsed_time": _NAN, "query": "True"}
# They accept None.
_ENTERED = ("torch.cuda.stream", "torch.cuda.StreamContext", "torch.cuda.set_stream")
_COLLECTING = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.Assign)
_METHODS = {*_ORDERING, *_ANSWERS, _RECORDS}
_WORDS = ("tream", "Event")
_DEPTH = 4  # how many names to follow to the values they are bound to


class Streams:
    """The streams and events of a module.

    Those whose uses are all known become None without CUDA, with their uses. Two that are used together, as the
    start and the end of a time, become None together or not at all.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.uses = context.forwards
        self._guarded: set[ast.AST] = set()  # what a fix puts under a guard
        this: Streams = proxy(self)  # we hold them: a circle would keep the tree until it is collected
        self._statements = EventStatements(
            context,
            lambda node: this._is_known(node),  # noqa: PLW0108 (a bound method holds its object)
            lambda node: this._method_of(node),  # noqa: PLW0108
        )

    def is_maker(self, node: ast.expr) -> bool:
        """Return whether a node is a call that creates a stream or event, or gets the current one."""
        return isinstance(node, ast.Call) and self.facts.resolve(node.func) in _MAKERS

    def is_method(self, node: ast.Call) -> bool:
        """Return whether a node may be the call of a method of a stream or event."""
        return isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS

    def of_maker(self, node: ast.Call) -> Fix | None:
        """Return the fix of a call that creates a stream or event, or gets the current one, or None."""
        statement = self._ordering(node)
        if statement is not None:
            return self._under_guard(statement)
        if node not in self._followed:
            return None
        comparison = self.facts.tree.parents.get(node)
        if isinstance(comparison, ast.Compare) and self._compares_streams(comparison):
            return self._compared(comparison)
        return self._made(node)

    def _made(self, node: ast.Call) -> Fix:
        """Return the fix of a call that makes a stream or event, or returns None."""
        making = self._statements.making(node)
        return self._under_guard(making) if making is not None else self.context.when_cuda(node, "None")

    def _is_known(self, node: ast.expr) -> bool:
        """Return whether an expression holds a stream or event all of whose uses are fixed."""
        return node in self._followed

    def _compares_streams(self, node: ast.Compare) -> bool:
        """Return whether a comparison asks whether two streams are the same, as two that are None would be."""
        match node:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                return self.context.accelerator is None and {left, right} <= self._followed
        return False

    def _compared(self, node: ast.Compare) -> Fix:
        """Return the fix of a comparison: one serves both streams."""
        fix = self.context.test_with_cuda(node, otherwise=isinstance(node.ops[0], ast.Eq))
        seen = node in self._guarded
        self._guarded.add(node)
        return replace(fix, edits=()) if seen else fix

    def of_method(self, node: ast.Call) -> Fix | None:
        """Return the fix of a method call with a stream or event that is followed, or None if it needs none."""
        if not self.is_method(node) or not any(map(self._needs_fix, _operands(node))):
            return None
        method = last_name(node.func)
        if method in _ANSWERS:
            answer = self._time(node) or _NAN if method == "elapsed_time" else _ANSWERS[method]
            statement = self.facts.tree.statement(node)
            if answer == "0.0" and self._is_added(statement, self._scaled(node)):
                return self._under_guard(statement)
            if answer == _NAN and not self.context.has_builtin(node, "float"):
                answer = f"{self.context.devices.torch(node).text}.nan"
            return self.context.when_cuda(self._scaled(node) if method == "elapsed_time" else node, answer)
        if self._is_statement(node):
            statement = self.facts.tree.statement(node)
            assert isinstance(statement, ast.Expr)
            # A call inside it that makes a stream is found itself, with the same fix.
            return None if any(map(self.is_maker, _operands(node))) else self._under_guard(statement)
        return self._made(node)

    def _is_added(self, statement: ast.stmt, time: ast.expr) -> bool:
        """Return whether a statement, which has its lines to itself, only adds a time, or subtracts it."""
        match statement:
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub(), value=value) if value is time:
                return alone(self.context.source, statement) and not has_effects(self.facts, target)
        return False

    def _scaled(self, node: ast.expr) -> ast.expr:
        """Return a time with the constants that it is multiplied or divided by."""
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.BinOp(left=left, op=ast.Div() | ast.Mult(), right=right) if left is node:
                value = self.facts.value(right) or right
                if isinstance(value, ast.Constant) and type(value.value) in (int, float):
                    return self._scaled(parent)
        return node

    def _is_statement(self, node: ast.expr) -> bool:
        return isinstance(self.facts.tree.parents.get(node), ast.Expr)

    def _needs_fix(self, node: ast.expr) -> bool:
        return node in self._followed and not self.is_maker(node) and not self._is_tested(node)

    def _under_guard(self, statement: ast.stmt) -> Fix:
        """Return the fix that puts a statement under a guard: one serves all streams in it."""
        if statement in self._guarded:
            return Fix(())
        self._guarded.add(statement)
        return self.context.put_under_guard(statement)

    def _ordering(self, node: ast.expr) -> ast.Expr | None:
        """Return the statement around a stream if it only orders the work of the GPU, or None."""
        statement = self.facts.tree.statement(node)
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            return None
        call = statement.value
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in (*_ORDERING, _RECORDS):
            return None
        return statement if node in _operands(call) else None

    # -- what is followed ----------------------------------------------------------------------------

    @cached_property
    def _followed(self) -> set[ast.expr]:
        """The calls that make streams and events whose uses can all be fixed, and the expressions that hold them."""
        if not any(word in self.context.source.text for word in _WORDS):
            return set()
        makers = [node for node in self.facts.tree.nodes_with(*_WORDS, _RECORDS) if self._makes(node)]
        followed = {maker: self.uses.of(maker) for maker in makers if isinstance(maker, ast.Call)}
        held = {maker: {maker, *_held(found)} for maker, found in followed.items()}
        fixed = {maker for maker, found in followed.items() if self._is_closed(found)}
        holders: dict[ast.expr, set[ast.Call]] = {}
        for maker, nodes in held.items():
            for node in nodes:
                holders.setdefault(node, set()).add(maker)
        while True:
            known = {node for node, those in holders.items() if those <= fixed}
            whole = (
                each for each in fixed if held[each] <= known and self._is_whole(each, held[each], known)
            )
            halves = fixed.difference(whole)
            if not halves:
                return known
            fixed -= halves

    def _makes(self, node: ast.AST) -> bool:
        """Return whether a node makes a stream or event; `s.record_event()` does, for a stream s."""
        if not isinstance(node, ast.Call):
            return False
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        return self.is_maker(node) or (method == _RECORDS and not self.facts.is_guarded(node))

    def _is_whole(self, maker: ast.Call, held: set[ast.expr], known: set[ast.expr]) -> bool:
        """Return whether what a stream or event is used with can be fixed as well."""
        if not self.is_maker(maker):
            assert isinstance(maker.func, ast.Attribute)
            if maker.func.value not in known:
                return False
        for node in held:
            parent = self.facts.tree.parents.get(node)
            if isinstance(parent, ast.Compare) and not self._are_known(parent, known):
                return False
            call = self._method_of(node)
            if call is None or self.facts.is_guarded(node) or self._is_tested(node):
                continue
            assert isinstance(call.func, ast.Attribute)
            if call.func.attr == "elapsed_time" and not all(each in known for each in _operands(call)):
                return False
            # `x.record(s)` and `x.wait(s)` may be methods of anything.
            if call.func.attr in ("record", "wait") and call.func.value not in known:
                return False
            if call.func.attr == _RECORDS and not self._is_statement(call) and call not in known:
                return False
        return True

    def _are_known(self, node: ast.Compare, known: set[ast.expr]) -> bool:
        """Return whether a comparison is one of known streams, or with None."""
        others = (each for each in (node.left, *node.comparators) if each not in known)
        return all(is_constant(each, None) for each in others)

    def _is_closed(self, found: Followed) -> bool:
        """Return whether all uses of a stream or event can be fixed, and its variables hold nothing else."""
        only = all(self._holds_only_streams(variable.bindings) for variable in found.variables)
        closed = only and not found.parameters and all(map(self._is_bearable, found.uses))
        return closed and not any(map(self.context.forwards.is_shared, found.variables))

    def _holds_only_streams(self, bindings: Sequence[Binding]) -> bool:
        values = (binding.value for binding in bindings if not isinstance(binding.node, ast.Delete))
        return all(value is not None and self._is_stream_or_none(value) for value in values)

    def _is_stream_or_none(self, node: ast.expr, depth: int = _DEPTH) -> bool:
        """Return whether an expression is a stream, an event or None, and nothing else."""
        match node:
            case ast.Constant(value=None):
                return True
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_stream_or_none(body, depth) and self._is_stream_or_none(orelse, depth)
            case ast.BoolOp(values=values):
                return all(self._is_stream_or_none(value, depth) for value in values)
            case ast.NamedExpr(value=value):
                return self._is_stream_or_none(value, depth)
            case ast.Name() | ast.Attribute() if depth:
                bindings = self.facts.bindings(node)
                return bool(bindings) and all(
                    binding.value is not None and self._is_stream_or_none(binding.value, depth - 1)
                    for binding in bindings
                )
        return self._makes(node)

    def _is_bearable(self, node: ast.expr) -> bool:
        """Return whether a use of a stream or event can be fixed, or needs no fix."""
        if self.facts.is_guarded(node) or self._is_tested(node):
            return True
        parent = self.facts.tree.parents.get(node)
        call = self._method_of(node)
        if call is not None:
            assert isinstance(call.func, ast.Attribute)
            if call.func.attr == "elapsed_time":
                return self._time(call) is not None
            return call.func.attr in {*_ORDERING, *_ANSWERS, _RECORDS}
        if isinstance(parent, ast.Call):
            return self.facts.call(parent, *_ENTERED)
        return self._asks(node, parent)

    def _method_of(self, node: ast.expr) -> ast.Call | None:
        """Return the call of a method of a node, or of a method of streams and tensors that gets it."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Attribute):
            return self.facts.tree.call_of(parent)
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and node in parent.args:
            return parent if parent.func.attr in {*_ORDERING, *_ANSWERS} else None
        return None

    def _time(self, call: ast.Call) -> str | None:
        """Return the code of a time without CUDA, None where no value serves all its uses."""
        found = of_number(self.uses, call)
        needs = needs_of(self.uses, found)
        compared, divides = Use.ORDERED in needs, Use.DIVISOR in needs
        leaves = not divides and any(map(self._leaves, found.uses)) and not self._divides
        logs = leaves and any(self.facts.call(n, "math.log") for n in self.facts.tree.nodes_with("log("))
        none = (compared and divides) or logs or Use.DEMANDED in needs
        return None if none else "0.0" if compared or leaves else _NAN

    def _leaves(self, node: ast.expr) -> bool:
        """Return whether a time goes where its uses are not followed: into a collection, or another function."""
        parent = self.facts.tree.parents.get(node)
        harmless = (*PRINTING, "round", "float", "str")
        known = isinstance(parent, ast.Call) and last_name(parent.func) in harmless
        return isinstance(parent, (*_COLLECTING, ast.Call)) and not known

    @cached_property
    def _divides(self) -> bool:
        """Return whether the module divides by a value that may be a time."""
        divisors = filter(None, map(divisor, self.facts.tree.of_kind(ast.BinOp, ast.AugAssign)))
        return any(not isinstance(each, ast.Constant) and _called(each) != "len" for each in divisors)

    def _asks(self, node: ast.expr, parent: ast.AST | None) -> bool:
        """Return whether a use only compares a stream or event, or asks whether there is one."""
        if not isinstance(parent, (ast.Compare, ast.If, ast.IfExp, ast.BoolOp, ast.UnaryOp)):
            return False
        statement = self.facts.tree.statement(node)
        refuses = isinstance(statement, ast.If) and self.facts.guards.refusals.refuses(statement.body)
        return not refuses and not isinstance(statement, ast.Assert)

    def _is_tested(self, node: ast.expr) -> bool:
        """Return whether a node is evaluated only where it is not None, as the program itself checks."""
        path = dotted(node)
        return path is not None and any(
            isinstance(parent, (ast.If, ast.IfExp))
            and (child is parent.body or (isinstance(parent, ast.If) and child in parent.body))
            and _is_not_none(parent.test, path)
            for child, parent in self.facts.tree.ancestors(node)
        )


def _held(found: Followed) -> Iterator[ast.expr]:
    """Yield the expressions that hold a followed value."""
    yield from found.uses
    for variable in found.variables:
        yield from variable.reads


def _called(node: ast.expr) -> str:
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def _operands(call: ast.Call) -> tuple[ast.expr, ...]:
    """Return the receiver and the arguments of a method call."""
    receiver = (call.func.value,) if isinstance(call.func, ast.Attribute) else ()
    return (*receiver, *call.args, *(keyword.value for keyword in call.keywords))


def _is_not_none(test: ast.expr, path: str) -> bool:
    """Return whether a test is true only if what has a path is not None."""
    match test:
        case ast.Name() | ast.Attribute():
            return dotted(test) == path
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return dotted(left) == path
        case ast.BoolOp(op=ast.And(), values=values):
            return any(_is_not_none(value, path) for value in values)
    return False
