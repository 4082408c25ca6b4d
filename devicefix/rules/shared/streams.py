"""Streams and events: where they are created and used, and the fixes of both."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from devicefix.devices.context import Context
from devicefix.facts import dotted
from devicefix.model import Fix

_WORDS = re.compile("tream|Event")
_MAKERS = {
    f"torch.cuda.{name}"
    for name in (
        "Stream",
        "Event",
        "ExternalStream",
        "current_stream",
        "default_stream",
        "streams.Stream",
        "streams.Event",
    )
}
# Methods of streams, events and tensors that only synchronize the work of a GPU; a CPU needs none.
_ORDERING = {
    "wait_stream", "wait_event", "record_stream", "record_event", "record", "wait", "synchronize",
}  # fmt: skip
_TIMES = "elapsed_time"
_ENTERED = "torch.cuda.stream"


class Streams:
    """The streams and events of a module.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self._guarded: set[ast.AST] = set()  # statements that a fix puts under a guard

    def is_maker(self, node: ast.expr) -> bool:
        """Return whether a node is a call that creates a stream or event, or gets the current one."""
        return isinstance(node, ast.Call) and self.facts.resolve(node.func) in _MAKERS

    def is_followed(self, node: ast.expr) -> bool:
        """Return whether a node holds a stream or event whose uses can all be fixed."""
        return bool(self.followed) and dotted(node) in self.followed

    def of_maker(self, node: ast.Call) -> Fix | None:
        """Return the fix of a call that creates a stream or event, or gets the current one, or None."""
        statement = self._ordering(node)
        if statement is not None:
            # One guard serves two of them in one statement.
            seen = statement in self._guarded
            self._guarded.add(statement)
            return Fix(()) if seen else self.context.put_under_guard(statement)
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Call) and self.facts.call(parent, _ENTERED):
            return self.context.when_cuda(node, "None")
        target = self._target(node)
        if target is not None and dotted(target) in self.followed:
            return self.context.when_cuda(node, "None")
        return None

    def of_method(self, node: ast.Call) -> Fix | None:
        """Return the fix of a method call on a stream or event, or None if it needs none."""
        assert isinstance(node.func, ast.Attribute)
        if dotted(node.func.value) not in self.followed:
            return None
        if node.func.attr == _TIMES:
            return self.context.when_cuda(node, 'float("nan")')
        statement = self.facts.tree.statement(node)
        if node.func.attr in _ORDERING and isinstance(statement, ast.Expr) and statement not in self._guarded:
            self._guarded.add(statement)
            return self.context.put_under_guard(statement)
        return None

    def _ordering(self, node: ast.expr) -> ast.Expr | None:
        """Return the statement around a stream if it only synchronizes the GPU, or None."""
        statement = self.facts.tree.statement(node)
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            return None
        function = statement.value.func
        return statement if isinstance(function, ast.Attribute) and function.attr in _ORDERING else None

    def _target(self, node: ast.expr) -> ast.expr | None:
        """Return the variable or attribute that a value is assigned to, or None."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            return parent.targets[0]
        outer = self.facts.tree.parents.get(parent) if isinstance(parent, ast.Tuple) else None
        if isinstance(parent, ast.Tuple) and isinstance(outer, ast.Assign):
            target = outer.targets[0]
            if isinstance(target, ast.Tuple) and len(target.elts) == len(parent.elts):
                return target.elts[parent.elts.index(node)]
        return None

    @cached_property
    def followed(self) -> set[str]:
        """The variables and attributes that hold streams and events whose uses can all be fixed."""
        if not _WORDS.search(self.context.source.text):
            return set()
        makers = [
            node for node in self.facts.tree.nodes if isinstance(node, ast.Call) and self.is_maker(node)
        ]
        targets = {dotted(target) for target in map(self._target, makers) if target is not None} - {None}
        return {name for name in targets if name and all(map(self._bearable, self.facts.tree.reads(name)))}

    def _bearable(self, node: ast.expr) -> bool:
        """Return whether a use of a stream or event can be fixed, or needs no fix."""
        if self.facts.is_guarded(node):
            return True
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Attribute):
            call = self.facts.tree.parents.get(parent)
            if not (isinstance(call, ast.Call) and call.func is parent):
                return False
            if parent.attr == _TIMES:
                return True
            return parent.attr in _ORDERING and isinstance(self.facts.tree.parents.get(call), ast.Expr)
        if isinstance(parent, ast.Call):
            method = parent.func.attr if isinstance(parent.func, ast.Attribute) else ""
            known = self.facts.call(parent, _ENTERED) or method == _TIMES
            return known or self._ordering(node) is not None
        return isinstance(parent, ast.Compare)
