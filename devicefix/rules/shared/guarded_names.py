"""Names that are only bound under a guard, and used where the guard is not."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import chain

from devicefix.facts import Binding, Facts, Scope
from devicefix.facts.flow.reaching import blocks_around
from devicefix.facts.path_conditions import branches, conditions_around, conditions_on
from devicefix.facts.scopes import LEAVING, bound_names
from devicefix.facts.values import is_constant

_OTHERS = 20  # bindings that follow; the uses between more of them are not told apart
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class GuardedNames:
    """The names of one module that guards bind.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._asked: dict[ast.AST, bool] = {}

    def bound(self, body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
        """Yield the names that a block binds in its own scope, each with the first place."""
        scope = self.facts.tree.scope(body[0])
        seen: set[str] = set()
        for node in (node for statement in body for node in ast.walk(statement)):
            if isinstance(node, (ast.Name, ast.stmt)) and self.facts.tree.scope(node) is scope:
                for name in bound_names(node):
                    if name not in seen:
                        seen.add(name)
                        yield name, node

    def is_bound_beside(self, name: str, node: ast.If) -> bool:
        """Return whether another place than the body of an `if` binds a name, too."""
        found = self.facts.tree.scope(node).lookup(name)
        ways = (self.facts.tree.ancestors(each.node) for each in (found[1] if found else ()))
        return any(all(parent is not node or child not in node.body for child, parent in way) for way in ways)

    def use(self, name: str, node: ast.If) -> ast.expr | None:
        """Return the first use of a name where only the body of an `if` binds it, and the guard may not hold.

        Args:
            name: the name.
            node: the `if`.

        Returns:
            None where another place may have bound the name, or all uses are under a guard.
        """
        scope = self.facts.tree.scope(node)
        found = scope.lookup(name)
        if found is None or scope.is_class:
            return None
        others: list[Binding] = []
        bindings = (
            found[1] if _is_only_asked(self.facts, node, self._asked) else self.facts.once(_unasked, found[1])
        )
        for binding in bindings:
            if not self._is_under(binding, node):
                others.append(binding)
                if not self._is_after(binding, node) or len(others) > _OTHERS:
                    return None
        flag = ast.unparse(node.test)
        uses = self.facts.once(_unguarded, found[0], name)
        first = next((use for use in uses if self._is_open(use, name, node, flag)), None)
        return first if first is None or all(self._is_late(each, first, node) for each in others) else None

    def _is_under(self, binding: Binding, node: ast.If) -> bool:
        """Return whether a binding is in the body of an `if`, or where another accelerator is available."""
        for child, parent in self.facts.tree.ancestors(binding.node):
            if parent is node:
                return child in node.body
            if _is_asked(child, parent):
                return True
        return False

    def _is_after(self, binding: Binding, node: ast.If) -> bool:
        """Return whether a binding follows an `if` in its scope."""
        here = getattr(binding.node, "lineno", 0) > (node.end_lineno or 0)
        return here and self.facts.tree.scope(binding.node) is self.facts.tree.scope(node)

    def _is_late(self, binding: Binding, use: ast.expr, node: ast.If) -> bool:
        """Return whether a binding that follows an `if` binds the name after a use of it, and not in a loop before."""
        tree, statement = self.facts.tree, self.facts.tree.statement(use)
        if tree.scope(use) is not tree.scope(node) or binding.node.lineno <= (statement.end_lineno or 0):  # type: ignore[attr-defined]
            return False
        if tree.block(statement) is tree.block(node):
            return True  # in the first round, nothing has bound it
        loops = {*tree.around(binding.node, *_LOOPS)}
        return loops.isdisjoint(tree.around(use, *_LOOPS))

    def _is_open(self, use: ast.expr, name: str, node: ast.If, flag: str) -> bool:
        """Return whether a use that is not guarded may read what an `if` binds where its test does not hold."""
        tree = self.facts.tree
        if use.lineno <= (node.end_lineno or 0) and tree.scope(use) is tree.scope(node):
            return False
        blocks = blocks_around(tree, tree.statement(use))
        before = (each for block in blocks for each in block if each.lineno < use.lineno)
        left = (
            each.test
            for each in before
            if isinstance(each, ast.If) and any(map(self._leaves, branches(each)))
        )
        tests = chain((test for test, _ in conditions_around(tree, use)), left)
        return not any(test is node.test or _mentions(test, flag, name) for test in tests)

    def _leaves(self, block: list[ast.stmt]) -> bool:
        """Return whether what follows the statement around a block does not run after the block."""
        return isinstance(block[-1] if block else None, LEAVING) or self.facts.guards.refusals.refuses(block)


def _unasked(facts: Facts, bindings: Sequence[Binding]) -> Sequence[Binding]:
    """Return the bindings of a name that are also reached where no accelerator is available."""
    known: dict[ast.AST, bool] = {}  # what is nested deeply shares its way up
    return [binding for binding in bindings if not _is_only_asked(facts, binding.node, known)]


def _unguarded(facts: Facts, scope: Scope, name: str) -> Sequence[ast.expr]:
    """Return the reads of a scope's name that are not guarded, and whose error nothing handles, by line."""
    handled = facts.guards.refusals.is_handled
    reads = (read for read in facts.reads_in(scope, name) if not facts.is_guarded(read))
    failing = (read for read in reads if not handled(read, NameError.__name__))
    return sorted(failing, key=lambda read: read.lineno)


def _is_only_asked(facts: Facts, node: ast.AST, known: dict[ast.AST, bool]) -> bool:
    """Return whether a node is only reached where some accelerator is available; note it in what is known."""
    way: list[ast.AST] = []
    answer = False
    for child, parent in facts.tree.ancestors(node):
        way.append(child)
        answer = known.get(child, False) or _is_asked(child, parent)
        if answer or child in known:
            break
    known.update(dict.fromkeys(way, answer))
    return answer


def _is_asked(child: ast.AST, parent: ast.AST) -> bool:
    """Return whether a parent asks whether an accelerator is available before it evaluates a child."""
    return any(truth and _asks(test) for test, truth in conditions_on(child, parent))


def _asks(test: ast.expr) -> bool:
    """Return whether a test asks a question such as `torch.backends.mps.is_available()`, alone or with others."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return any(map(_asks, values))
        case ast.Call(func=ast.Attribute(attr="is_available")):
            return True
    return False


def _mentions(test: ast.expr, flag: str, name: str) -> bool:
    """Return whether a test holds a flag, or asks whether a name is there: `"x" in locals()`."""
    parts = (part for part in ast.walk(test) if isinstance(part, ast.expr))
    return any(is_constant(part, name) or ast.unparse(part) == flag for part in parts)
