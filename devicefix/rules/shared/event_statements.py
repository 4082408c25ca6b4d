"""The statements of streams and events that go under a guard as a whole: where they are made, and timings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from devicefix.devices.context import Context
from devicefix.facts import Scope
from devicefix.facts.effects import has_effects
from devicefix.rewrite.lines import alone

_EVALUATE = ("exec", "eval")  # they may read any variable
_LOOK_UP = ("locals", "vars")  # so may these; what they find of an event is of no use without CUDA
_OF_PRINT = {"sep", "end", "flush"}
_PLAIN = (
    ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop,
    ast.expr_context,
)  # fmt: skip
_LOGS = ("debug", "info")
_CONVERSIONS = ("float", "str", "round", "format")


class EventStatements:
    """The statements that use streams and events, and nothing else of the program.

    Args:
        context: the context of the module.
        is_known: whether an expression holds a stream or event all of whose uses are fixed.
        method_of: returns the call of a method that an expression is the receiver or an argument of.
    """

    def __init__(
        self,
        context: Context,
        is_known: Callable[[ast.expr], bool],
        method_of: Callable[[ast.expr], ast.Call | None],
    ) -> None:
        self.context = context
        self.facts = context.facts
        self._is_known = is_known
        self._method_of = method_of
        self._makes: dict[ast.stmt, bool] = {}

    def making(self, maker: ast.expr) -> ast.Assign | None:
        """Return the statement that makes a stream or event, if the guard of a statement beside it serves both.

        All that reads its variables is evaluated only with CUDA, once it is fixed.
        """
        statement = self.facts.tree.statement(maker)
        if not isinstance(statement, ast.Assign) or not self._is_making(statement):
            return None
        return statement if any(map(self._goes_under_guard, self._beside(statement))) else None

    def _beside(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements above and below one, in its block."""
        block = self.facts.tree.block(statement)
        at = block.index(statement)
        return [*block[max(at - 1, 0) : at], *block[at + 1 : at + 2]]

    def _goes_under_guard(self, statement: ast.stmt) -> bool:
        """Return whether a statement makes a stream or event, or calls a method of one and nothing else."""
        match statement:
            case ast.Assign():
                return self._is_making(statement)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=receiver), args=args)):
                return alone(self.context.source, statement) and any(map(self._is_known, (receiver, *args)))
        return False

    def _is_making(self, statement: ast.Assign) -> bool:
        if statement not in self._makes:
            self._makes[statement] = self._may_be_skipped(statement)
        return self._makes[statement]

    def _may_be_skipped(self, statement: ast.Assign) -> bool:
        """Return whether an assignment only makes streams or events that are only used with CUDA."""
        match statement:
            case ast.Assign(targets=[ast.Name() as name], value=value):
                pairs: list[tuple[ast.expr, ast.expr]] = [(name, value)]
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = list(zip(names, values, strict=False)) if len(names) == len(values) else []
            case _:
                return False
        makes = all(isinstance(value, ast.Call) and self._is_known(value) for _, value in pairs)
        if not pairs or not makes or self.facts.is_guarded(statement):
            return False
        if any(has_effects(self.facts, value) for _, value in pairs):
            return False
        return alone(self.context.source, statement) and all(self._is_only_used(name) for name, _ in pairs)

    def _is_only_used(self, target: ast.expr) -> bool:
        """Return whether a variable has one value, and only methods of it are called."""
        scope = self._scope(target)
        if scope is None or len(scope.bindings[target.id]) != 1:  # type: ignore[attr-defined]
            return False
        reads = self.facts.reads_in(scope, target.id)  # type: ignore[attr-defined]
        return all(self.facts.is_guarded(read) or self._is_called(read) for read in reads)

    def _scope(self, target: ast.expr) -> Scope | None:
        """Return the scope that binds a variable, None where something may read it unseen."""
        scope = self.facts.tree.scope(target)
        if not isinstance(target, ast.Name) or scope.is_class or target.id not in scope.bindings:
            return None
        if target.id in self.facts.tree.declared_elsewhere:
            return None
        return None if any(map(self.facts.tree.reads, _EVALUATE)) else scope

    def _is_called(self, read: ast.expr) -> bool:
        return self._is_known(read) and self._method_of(read) is not None

    # -- timings -------------------------------------------------------------------------------------

    def timing(self, call: ast.Call) -> list[ast.stmt]:
        """Return the statements that take a time of two events and do nothing but print it, or none.

        Without CUDA there is no such time.
        """
        statement = self.facts.tree.statement(call)
        if isinstance(statement, ast.Expr):
            return [statement] if self._prints(statement, set()) else []
        if not isinstance(statement, ast.Assign) or not self._is_taking(statement):
            return []
        target = statement.targets[0]
        scope = self._scope(target)
        if scope is None:
            return []
        assert isinstance(target, ast.Name)
        if self.context.is_read_elsewhere(self.context.uses.variable(target)):
            return []
        if any(map(self.facts.tree.reads, _LOOK_UP)):
            return []
        takes = [binding.node for binding in scope.bindings[target.id]]
        if not all(isinstance(each, ast.Assign) and self._is_taking(each) for each in takes):
            return []
        printing = {each: self._printed(each, target.id) for each in takes if isinstance(each, ast.stmt)}
        printed = {id(self.facts.tree.statement(read)) for read in self.facts.reads_in(scope, target.id)}
        if not printed or not printed <= {id(each) for block in printing.values() for each in block}:
            return []
        return [statement, *printing[statement]]

    def _is_taking(self, statement: ast.Assign) -> bool:
        """Return whether an assignment binds one variable to a time, perhaps after arithmetic."""
        match statement:
            case ast.Assign(targets=[ast.Name()], value=value) if alone(self.context.source, statement):
                return self._is_time(value, set())
        return False

    def _printed(self, statement: ast.stmt, name: str) -> list[ast.stmt]:
        """Return the statements right below one that only print a variable."""
        block = self.facts.tree.block(statement)
        return list(self._printing(block[block.index(statement) + 1 :], name))

    def _printing(self, block: Sequence[ast.stmt], name: str) -> Iterator[ast.stmt]:
        for statement in block:
            if not isinstance(statement, ast.Expr) or not self._prints(statement, {name}):
                return
            yield statement

    def _prints(self, statement: ast.Expr, names: set[str]) -> bool:
        """Return whether a statement prints or logs times, and nothing else that the program computes."""
        match statement.value:
            case ast.Call(func=function, args=[*args], keywords=keywords) if self._is_output(function):
                texts = [keyword for keyword in keywords if keyword.arg not in _OF_PRINT]
                kept = (keyword.value for keyword in keywords)
                if texts or not all(isinstance(value, ast.Constant) for value in kept):
                    return False
                if not alone(self.context.source, statement):
                    return False
                times = [each for each in args if self._is_time(each, names)]
                return bool(times) and all(each in times or isinstance(each, ast.Constant) for each in args)
        return False

    def _is_output(self, function: ast.expr) -> bool:
        """Return whether a function is `print`, or one of the module `logging` or of a logger of it."""
        match function:
            case ast.Name(id="print"):
                return self.context.has_builtin(function, "print")
            case ast.Attribute(value=logger, attr=level) if level in _LOGS:
                made = self.facts.value(logger)
                is_logger = made is not None and self.facts.call(made, "logging.getLogger")
                return is_logger or self.facts.resolve(function) == f"logging.{level}"
        return False

    def _is_time(self, value: ast.expr, names: set[str]) -> bool:
        """Return whether an expression is made of times and constants, and of no other value."""
        return self._has_time(value, names) and self._holds_only_times(value, names)

    def _has_time(self, value: ast.expr, names: set[str]) -> bool:
        return any(
            self._is_elapsed(node) or (isinstance(node, ast.Name) and node.id in names)
            for node in ast.walk(value)
        )

    def _holds_only_times(self, node: ast.AST, names: set[str]) -> bool:
        if self._is_elapsed(node) or (isinstance(node, ast.Name) and node.id in names):
            return True
        match node:
            case ast.Call(func=ast.Name(id=name) as function, args=args, keywords=[]):
                known = name in _CONVERSIONS and self.context.has_builtin(function, name)
                return known and all(self._holds_only_times(each, names) for each in args)
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="format"), args=args, keywords=[]):
                return all(self._holds_only_times(each, names) for each in args)
        children = ast.iter_child_nodes(node)
        return isinstance(node, _PLAIN) and all(self._holds_only_times(each, names) for each in children)

    def _is_elapsed(self, node: ast.AST) -> bool:
        """Return whether a node is `start.elapsed_time(end)` of two known events."""
        match node:
            case ast.Call(func=ast.Attribute(value=start, attr="elapsed_time"), args=[end], keywords=[]):
                return self._is_known(start) and self._is_known(end)
        return False
