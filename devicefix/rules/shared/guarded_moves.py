"""Guards that only move something, and their replacement by `.to(device)`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.devices.arguments import device_argument
from devicefix.devices.choose import DeviceExpr
from devicefix.devices.context import Context
from devicefix.devices.methods import CustomCuda, custom_cuda
from devicefix.facts import ASKS, dotted
from devicefix.model import Edit, Fix
from devicefix.rewrite.blocks import can_unwrap, unwrap
from devicefix.rewrite.calls import first_choice, moved


class GuardedMoves:
    """The guards of a module that only move something.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.devices = context.devices

    def of_guard(self, node: ast.If) -> Fix | None:
        """Return the fix that moves without a guard, or None if the guard does anything else."""
        moves = self._moves(node)
        if not moves or node.orelse or not can_unwrap(self.context.source, node):
            return None
        use = self._device(node, node.test)
        if use is None:
            return None
        edits = [self._moved(call, use) for call in moves]
        return Fix((*edits, unwrap(self.facts, node)), needs=use.needs)

    def of_choice(self, node: ast.IfExp) -> Fix | None:
        """Return the fix that replaces `x.cuda() if use_cuda else x` by `x.to(device)`, or None."""
        if not self._plain(node.body) or self.facts.is_guarded(node):
            return None
        assert isinstance(node.body, ast.Call)
        assert isinstance(node.body.func, ast.Attribute)
        receiver = node.body.func.value
        if type(receiver) is not type(node.orelse) or ast.dump(receiver) != ast.dump(node.orelse):
            return None
        use = self._device(node, node.test)
        if use is None:
            return None
        choice = Edit(*self.context.source.span(node), first_choice)
        return Fix((self._moved(node.body, use), choice), needs=use.needs)

    def _moves(self, node: ast.If) -> list[ast.Call]:
        """Return the calls of `.cuda()` in the body, or nothing if it does anything else."""
        moves: list[ast.Call] = []
        for statement in node.body:
            found = self._moves_of(statement)
            if not found:
                return []
            moves += found
        return moves

    def _moves_of(self, statement: ast.stmt) -> list[ast.Call]:
        match statement:
            case ast.Expr(value=ast.Call() as call) if self._plain(call):
                return [call]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                return self._pairs(targets, values)
            case ast.Assign(targets=[target], value=value):
                return self._pairs([target], [value])
        return []

    def _pairs(self, targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> list[ast.Call]:
        """Return the calls if each value is its own target, moved: `x, y = x.cuda(), y.cuda()`."""
        calls = []
        for target, value in zip(targets, values, strict=False):
            if not (
                isinstance(value, ast.Call) and self._plain(value) and isinstance(value.func, ast.Attribute)
            ):
                return []
            if ast.unparse(target) != ast.unparse(value.func.value):
                return []
            calls.append(value)
        return calls if len(targets) == len(values) else []

    def _plain(self, node: ast.expr) -> bool:
        """Return whether a node moves a name, an attribute or an item to the current device: `x.cuda()`."""
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr != "cuda"
        ):
            return False
        receiver = node.func.value
        if not isinstance(receiver, (ast.Name, ast.Attribute, ast.Subscript)):
            return False
        if custom_cuda(self.context, receiver) is not CustomCuda.NEVER:
            return False
        return device_argument(node) is None and all(
            keyword.arg == "non_blocking" for keyword in node.keywords
        )

    def _device(self, site: ast.AST, test: ast.expr) -> DeviceExpr | None:
        if self.facts.call(test, *ASKS):
            return self.devices.current(site)
        if dotted(test) is not None and self.facts.guards.implies(test):
            return self.devices.flagged(site, test)
        return None

    def _moved(self, call: ast.Call, use: DeviceExpr) -> Edit:
        """Return the edit that replaces `.cuda()` by `.to(device)`."""
        return Edit(*self.context.source.span(call), moved(use.text))
