"""Guards that only move something, and their replacement by `.to(device)`."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from devicefix.devices.arguments import device_argument
from devicefix.devices.context import Context
from devicefix.devices.expression import DeviceExpr
from devicefix.devices.methods import CustomCuda, custom_cuda, may_be_storage
from devicefix.facts import ASKS, Binding, Facts, dotted
from devicefix.model import Edit, Fix
from devicefix.rewrite.blocks import can_unwrap, unwrap
from devicefix.rewrite.operations import KeepFirst, Move
from devicefix.rules.shared.guarded_names import GuardedNames


class GuardedMoves:
    """The guards of a module that only move something.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.devices = context.devices
        self._names = GuardedNames(context.facts)

    def of_guard(self, node: ast.If) -> Fix | None:
        """Return the fix that moves without a guard, or None if the guard does anything else."""
        moves = self._moves(node)
        if not moves or node.orelse or not can_unwrap(self.context.source, node):
            return None
        names = (each for part in node.body for each in ast.walk(part) if isinstance(each, ast.Name))
        is_right = len(moves) == 1 and not any(self._is_missing(each, node) for each in names)
        optional = is_right and self.devices.accelerator is None
        use = self._device(node, node.test, optional=optional)
        if use is None:
            return None
        edits = [self._moved(call, use) for call in moves]
        return Fix(
            (*edits, unwrap(self.facts, node)), needs=use.needs | self.devices.of_others, optional=optional
        )

    def defines(self, node: ast.If) -> str:
        """Return a name that only a guard defines, and that the program needs without CUDA; empty if there is none."""
        assigned = (target for each in node.body if isinstance(each, ast.Assign) for target in each.targets)
        targets = (each for target in assigned for each in getattr(target, "elts", [target]))
        names = {each.id: each for each in targets if isinstance(each, ast.Name)}
        return next((name for name, target in names.items() if self._is_missing(target, node)), "")

    def of_choice(self, node: ast.IfExp) -> Fix | None:
        """Return the fix that replaces `x.cuda() if use_cuda else x` by `x.to(device)`, or None."""
        receiver = self._moved_by(node.body)
        if type(receiver) is not type(node.orelse) or self.facts.is_guarded(node):
            return None
        is_same = ast.unparse(receiver) == ast.unparse(node.orelse)
        optional = self.devices.accelerator is None
        use = self._device(node, node.test, optional=optional) if is_same else None
        if use is None:
            return None
        choice = Edit(*self.context.source.span(node), KeepFirst())
        return Fix(
            (self._moved(node.body, use), choice), needs=use.needs | self.devices.of_others, optional=optional
        )

    def _moves(self, node: ast.If) -> list[ast.expr]:
        """Return the calls of `.cuda()` in the body, or nothing if it does anything else."""
        found = [self._moves_of(statement, node) for statement in node.body]
        moves = [call for calls in found for call in calls]
        return moves if all(found) and all(self._is_defined(call, node) for call in moves) else []

    def _moves_of(self, statement: ast.stmt, guard: ast.If) -> list[ast.expr]:
        match statement:
            case ast.Expr(value=ast.Call() as call) if self._moved_by(call) is not None:
                return [call]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                return self._pairs(targets, values, guard)
            case ast.Assign(targets=[target], value=value):
                return self._pairs([target], [value], guard)
        return []

    def _pairs(
        self, targets: Sequence[ast.expr], values: Sequence[ast.expr], guard: ast.If
    ) -> list[ast.expr]:
        """Return the calls if each value is its own target, moved: `x, y = x.cuda(), y.cuda()`.

        The target may also be a name that is not defined without the guard, and used there: that is an error on
        a CPU, which `x, y = batch[1].to(device), batch[0].to(device)` corrects.
        """
        calls = []
        for target, value in zip(targets, values, strict=False):
            receiver = self._moved_by(value)
            if receiver is None:
                return []
            if ast.unparse(target) != ast.unparse(receiver) and not self._is_missing(target, guard):
                return []
            calls.append(value)
        return calls if len(targets) == len(values) else []

    def _is_missing(self, target: ast.expr, guard: ast.If) -> bool:
        """Return whether only a guard defines a name, and a use fails where the guard does not hold."""
        if not isinstance(target, ast.Name) or self._names.use(target.id, guard) is None:
            return False
        tree = self.facts.tree
        in_module = tree.scope(guard).is_module
        return not (in_module and (hasattr(builtins, target.id) or tree.star_imports))

    def _is_defined(self, node: ast.expr, guard: ast.If) -> bool:
        """Return whether what an expression reads is also defined where no guard holds.

        What the guard itself defines is, once it is gone.
        """
        bindings: Sequence[Binding]
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                bindings = self.facts.tree.bound(part)
            elif isinstance(part, ast.Attribute):
                bindings = self.facts.bindings(part)
            else:
                continue
            guarded = self.facts.once(_all_guarded, bindings) if bindings else False
            if guarded and self.facts.once(_are_elsewhere, bindings, guard):
                return False
        return True

    def _moved_by(self, node: ast.expr) -> ast.expr | None:
        """Return the name, attribute or item that `x.cuda()` moves to the current device, None for anything else."""
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Name() | ast.Attribute() | ast.Subscript() as receiver, attr="cuda"
                )
            ) if device_argument(node) is None and all(each.arg == "non_blocking" for each in node.keywords):
                is_own = custom_cuda(self.context, receiver) is not CustomCuda.NEVER
                return None if is_own or may_be_storage(self.context, receiver) else receiver
        return None

    def _device(self, site: ast.AST, test: ast.expr, *, optional: bool) -> DeviceExpr | None:
        if self.facts.call(test, *ASKS):
            named = self.devices.shared(site, define=True, may_be_text=True)
            return named or (None if optional else self.devices.current(site))
        if dotted(test) is not None and self.facts.guards.implies(test):
            return self.devices.flagged(site, test)
        return None

    def _moved(self, call: ast.expr, use: DeviceExpr) -> Edit:
        """Return the edit that replaces `.cuda()` by `.to(device)`."""
        return Edit(*self.context.source.span(call), Move(use.text))


def _all_guarded(facts: Facts, bindings: Sequence[Binding]) -> bool:
    return all(facts.is_guarded(binding.node) for binding in bindings)


def _are_elsewhere(facts: Facts, bindings: Sequence[Binding], guard: ast.If) -> bool:
    return any(facts.tree.parents[binding.node] is not guard for binding in bindings)
