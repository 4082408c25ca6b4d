"""Do some statements let low precision meet float32, without autocast?"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from devicefix.facts.flow.reaching import blocks_around, position, reaching
from devicefix.facts.precision.calls import Calls
from devicefix.facts.precision.expressions import STEPS
from devicefix.facts.precision.tables import AUTOCASTS, BUILTINS, LOW, PLAIN, SAME_METHODS, TO
from devicefix.facts.precision.values import Given, Module, Tensor, Value
from devicefix.facts.scopes import Binding, dotted
from devicefix.facts.tree import children


class Precision(Calls):
    """The types of tensors and modules in one module.

    Args:
        facts: The module's names.
        is_mixing: Whether a call of an imported class's instances lets two types meet.
    """

    def meets(self, statements: Sequence[ast.stmt]) -> bool:
        """Return whether some statements of a function, or of the module, show an operation on two types."""
        return self._asks(lambda: self._run(statements, self._of_self(statements[0])))

    def takes_low(self, statements: Sequence[ast.stmt]) -> bool:
        """Return whether some statements pass a tensor in low precision on that was made before them."""
        return any(
            self._is_low(argument)
            for statement in statements
            for node in ast.walk(statement)
            if isinstance(node, ast.Call)
            for argument in (*node.args, *(each.value for each in node.keywords))
            if isinstance(argument, ast.Name)
        )

    def may_be_low(self, node: ast.expr) -> str:
        """Return the low precision that a name's tensor may have without CUDA, empty if none is shown."""
        while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
            if isinstance(node, ast.Call):
                if not (isinstance(node.func, ast.Attribute) and node.func.attr in SAME_METHODS):
                    return ""
                node = node.func
            node = node.value
        found = self._tree.scope(node).lookup(node.id) if isinstance(node, ast.Name) else None
        for binding in reaching(self._tree, node, found[1]) if found is not None else ():
            if isinstance(binding.node, ast.comprehension):
                return self.may_be_low(binding.node.iter)
            value = self.value(binding.value) if binding.value is not None else None
            if isinstance(value, Tensor) and value.dtype in LOW.values():
                if not self._facts.is_guarded(binding.node):
                    return value.dtype
        return ""

    def _is_low(self, node: ast.Name) -> bool:
        """Return whether a name is a tensor in low precision wherever it is a tensor."""
        values = [each.value for each in self._bound_last(node)]
        made = [each for each in values if not (isinstance(each, ast.Constant) and each.value is None)]
        known = [self.value(each) if each is not None else None for each in made]
        return bool(known) and all(isinstance(each, Tensor) and each.dtype in LOW.values() for each in known)

    def _bound_last(self, node: ast.Name) -> list[Binding]:
        """Return the bindings of a name that hold where it is read, without those that others replace."""
        found = self._tree.scope(node).lookup(node.id)
        if found is None:
            return []
        bindings = self._first_time(reaching(self._tree, node, found[1]), node)
        blocks = {
            id(each): {id(block) for block in blocks_around(self._tree, self._tree.statement(each.node))}
            for each in bindings
            if not each.parameter and len(bindings) > 1
        }
        return [
            each
            for each in bindings
            if not any(
                position(each.node) < position(other.node)
                and id(self._tree.block(self._tree.statement(other.node))) in blocks.get(id(each), ())
                for other in bindings
                if id(other) in blocks and other.value is not None
            )
        ]

    def may_cast(self, statements: Sequence[ast.stmt]) -> bool:
        """Return whether autocast may cast operands in some statements: not if all operations are known."""
        return any(map(self._may_cast, (node for each in statements for node in ast.walk(each))))

    def _may_cast(self, node: ast.AST) -> bool:
        if isinstance(node, (ast.BinOp, ast.AugAssign)):
            return isinstance(node.op, ast.MatMult)
        if not isinstance(node, ast.Call):
            return False
        name = self._facts.resolve(node.func)
        if name is not None:
            module, _, function = name.rpartition(".")
            return module not in ("torch", "torch.nn.functional", "builtins", "") or function not in PLAIN
        match node.func:
            case ast.Name(id=function):
                return function not in BUILTINS or self._tree.scope(node).lookup(function) is not None
            case ast.Attribute(value=owner, attr=method) if method in PLAIN:
                literal = all(isinstance(each, (ast.Constant, ast.UnaryOp)) for each in node.args)
                return not (method in (*TO, "to", "type", "append") or (literal and dotted(owner) != "self"))
        return True

    def value(self, node: ast.expr) -> Value | None:
        """Return the value of an expression where it is, as far as it is known."""
        self._asks(lambda: None)
        return self.of(node, self._of_self(node))

    def _of_self(self, node: ast.AST) -> Given:
        """Return the object of a method that a node is in."""
        owner = self._tree.parents.get(self._tree.scope(node).node)
        return {"self": Module(definition=owner)} if isinstance(owner, ast.ClassDef) else {}

    def mixing_classes(self) -> Iterator[str]:
        """Yield the classes of modules in which two types meet, whatever their methods are given."""
        for node in self._tree.scopes:
            if isinstance(node, ast.ClassDef) and self._tree.parents.get(node) is self._tree.module:
                module = Module(definition=node)
                if self._asks(partial(self._forward, module, ())):
                    yield node.name

    def _asks(self, question: Callable[[], object]) -> bool:
        self._steps = self._depth = 0
        self._found = False
        self._known.clear()
        question()
        return self._found

    def _run(self, statements: Iterable[ast.stmt], given: Given) -> None:
        """Look at what statements evaluate without CUDA."""
        for statement in statements:
            for block in self._blocks(statement):
                self._run(block, given)
            if isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return)):
                if statement.value is not None:
                    self._evaluated(statement.value, given)
            if self._found or self._steps > STEPS:
                return

    def _blocks(self, statement: ast.stmt) -> Iterator[list[ast.stmt]]:
        """Yield the blocks of a statement that may run without CUDA, and in the same precision."""
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            if not any(self._is_autocast(item.context_expr) for item in statement.items):
                yield statement.body
        elif isinstance(statement, (ast.For, ast.AsyncFor, ast.While, ast.Try)):
            yield statement.body
        elif isinstance(statement, ast.If):
            for block in filter(None, (statement.body, statement.orelse)):
                if not self._facts.is_guarded(block[0]):
                    yield block

    def _evaluated(self, node: ast.AST, given: Given) -> None:
        """Look at the operations in an expression."""
        if isinstance(node, (ast.Call, ast.BinOp)):
            self.of(node, given)
        if not isinstance(node, (ast.Lambda, ast.IfExp, ast.BoolOp)):
            for part in children(node):
                self._evaluated(part, given)

    def _is_autocast(self, node: ast.expr) -> bool:
        """Return whether a context may be an autocast of its own."""
        return not isinstance(node, ast.Call) or self._facts.call(node, *AUTOCASTS)
