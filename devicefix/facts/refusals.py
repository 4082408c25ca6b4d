"""Refusals: statements that raise an error or end the program, and what catches the error."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from functools import cached_property
from weakref import proxy

from devicefix.facts.names import Names
from devicefix.facts.scopes import FUNCTIONS, dotted
from devicefix.facts.tree import TRIES
from devicefix.facts.values import last_name, without_call

_EXITS = {
    "exit", "quit", "sys.exit", "os._exit", "os.abort", "builtins.exit", "builtins.quit", "pytest.exit",
    "pytest.fail", "absl.logging.fatal", "SystemExit",
}  # fmt: skip
_PARSERS = ("argparse.ArgumentParser", "optparse.OptionParser")
# Functions and methods that only show something to the user.
PRINTING = {
    "print", "print_exc", "exception", "error", "warning", "warn", "info", "debug", "log", "critical", "echo",
    "write",
}  # fmt: skip
_LEAVING = (ast.Return, ast.Break, ast.Continue)
_YIELDS = (ast.Yield, ast.YieldFrom)
_CALLS = 4  # how many functions to follow that end the program by a call of the next


class Refusals:
    """The code of one module that refuses to go on."""

    def __init__(self, facts: Names) -> None:
        self.facts: Names = proxy(facts)

    def refuses(self, block: Sequence[ast.stmt], calls: int = _CALLS) -> bool:
        """Return whether a block always raises an error or ends the program, perhaps after a message.

        Args:
            block: the statements.
            calls: how many functions to follow that do so.
        """
        return self.last(block, calls) is not None

    def both(self, node: ast.If) -> bool:
        """Return whether both branches refuse to go on, so that the test only chooses the error."""
        return bool(node.orelse) and self.refuses(node.body) and self.refuses(node.orelse)

    def last(self, block: Sequence[ast.stmt], calls: int = _CALLS) -> ast.stmt | None:
        """Return the statement of a block that always refuses to go on, None if there is none."""
        for statement in block:
            match statement:
                case ast.Raise(exc=error):
                    return None if _skips_test(error) else statement
                case ast.Assert(test=ast.Constant(value=value)) if not value:
                    return statement
                case ast.Expr(value=value) if self.ends(value, calls):
                    return statement
                case ast.Return(value=ast.Constant(value=code)) if code and statement in self._statuses:
                    return statement
                case ast.If(body=body, orelse=[_, *_] as orelse):
                    if self.refuses(body, calls) and self.refuses(orelse, calls):
                        return statement
            if statement in self._leaving:
                return None
        return None

    @cached_property
    def _statuses(self) -> set[ast.AST]:
        """The nodes of the functions whose results end the program: `sys.exit(main())`."""
        calls = (call for name in ("exit", "SystemExit") for call in self.facts.tree.calls_with_name(name))
        exits = (call for call in calls if call.args and self._named(call.func) in _EXITS)
        given = (without_call(call.args[0]) for call in exits)
        return {node for own in map(self.own_function, given) if own for node in ast.walk(own)}

    @cached_property
    def _leaving(self) -> set[ast.AST]:
        """The nodes that hold a `return`, `yield`, `break` or `continue`."""
        found: set[ast.AST] = set()
        yields = (node for node in self.facts.tree.nodes_with("yield") if isinstance(node, _YIELDS))
        for node in (*self.facts.tree.of_kind(*_LEAVING), *yields):
            for each, _ in self.facts.tree.ancestors(node):
                if each in found:
                    break
                found.add(each)
        return found

    def ends(self, node: ast.expr, calls: int = _CALLS) -> bool:
        """Return whether an expression ends the program: `sys.exit(1)`, or a function that does so."""
        if not isinstance(node, ast.Call):
            return False
        function = node.func
        if self._named(function) in _EXITS:
            return True
        if isinstance(function, ast.Attribute) and function.attr in ("error", "exit"):
            made = self.facts.value(function.value)
            return self.facts.call(made, *_PARSERS)
        own = self.own_function(function)
        return own is not None and calls > 0 and self.refuses(own.body, calls - 1)

    def own_function(self, function: ast.expr) -> ast.FunctionDef | None:
        """Return the function of the module that a name is bound to, and to nothing else."""
        found = self.facts.tree.lookup(function)
        node = found[1][0].node if found is not None and len(found[1]) == 1 else None
        return node if isinstance(node, ast.FunctionDef) else None

    def handlers(self, node: ast.AST, error: str | None) -> list[ast.ExceptHandler]:
        """Return the handlers around a node, in its own function, that may catch an error.

        Args:
            node: the node that raises it.
            error: the name of its class, None if that is not known.
        """
        around = self.around(node) if self._handles else ()
        tries = (parent for child, parent in around if isinstance(parent, TRIES) and child in parent.body)
        return [handler for each in tries for handler in each.handlers if may_catch(handler, error)]

    @cached_property
    def _handles(self) -> bool:
        """Return whether the module may handle any error: in deeply nested code, the way up is long."""
        return any(True for _ in self.facts.tree.of_kind(*TRIES, ast.With, ast.AsyncWith))

    def is_handled(self, node: ast.AST, error: str | None) -> bool:
        """Return whether an error leads to other code of the same function: that is the path of the CPU."""
        if any(
            isinstance(parent, (ast.With, ast.AsyncWith)) and any(map(suppresses, parent.items))
            for _, parent in (self.around(node) if self._handles else ())
        ):
            return True
        handlers = self.handlers(node, error)
        return any(continues(handler.body) and not self.refuses(handler.body) for handler in handlers)

    def error_of(self, statement: ast.stmt | None) -> str | None:
        """Return the name of the class of the error that a statement raises, None if that is not known."""
        match statement:
            case ast.Assert():
                return AssertionError.__name__
            case ast.Raise(exc=ast.Call(func=error)) | ast.Raise(exc=ast.expr() as error):
                return last_name(error) or None
            case ast.Expr(value=ast.Call(func=function)) if self._named(function) in _EXITS:
                return SystemExit.__name__
        return None

    def around(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield pairs of a child and its parent, from a node up to what runs later: a function or class."""
        for child, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, ast.Lambda):
                if self.facts.tree.call_of(parent) is None:
                    return
            elif isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
                return
            yield child, parent

    def _named(self, function: ast.expr) -> str | None:
        """Return the full name of a function, by the imports or as a builtin."""
        name = self.facts.resolve(function)
        if name is None and (name := dotted(function)) is not None:
            root = name.partition(".")[0]
            return name if self.facts.tree.scope(function).lookup(root) is None else None
        return name


def returns(body: Sequence[ast.stmt]) -> bool:
    """Return whether a block ends with a return, break or continue, or with what skips a test."""
    match body[-1:]:
        case [ast.Expr(value=ast.Call(func=function))]:
            return dotted(function) == "pytest.skip" or last_name(function) == "skipTest"
        case [ast.Raise(exc=error)]:
            return _skips_test(error)
        case [last]:
            return isinstance(last, _LEAVING)
    return False


def _skips_test(error: ast.expr | None) -> bool:
    """Return whether an error skips a test, such as `unittest.SkipTest`."""
    kind = error.func if isinstance(error, ast.Call) else error
    return kind is not None and "Skip" in (dotted(kind) or "")


def caught(handler: ast.ExceptHandler) -> list[str]:
    """Return the names of the classes of errors that a handler catches."""
    if handler.type is None:
        return [BaseException.__name__]
    return [last_name(kind) for kind in getattr(handler.type, "elts", [handler.type])]


def may_catch(handler: ast.ExceptHandler, error: str | None) -> bool:
    """Return whether a handler may catch an error of a class, by its name; unknown classes may be related."""
    raised = getattr(builtins, error or "", None)
    kinds = [getattr(builtins, name, None) for name in caught(handler)]
    return any(kind is None or raised is None or issubclass(raised, kind) for kind in kinds)


def continues(body: Sequence[ast.stmt]) -> bool:
    """Return whether a handler does more than print the error."""
    return not all(isinstance(statement, ast.Pass) or prints(statement) for statement in body)


def prints(statement: ast.stmt) -> bool:
    """Return whether a statement only shows something to the user."""
    match statement:
        case ast.Expr(value=ast.Call(func=function)):
            return last_name(function) in PRINTING
    return False


def suppresses(item: ast.withitem) -> bool:
    """Return whether a context manager expects an error: `contextlib.suppress`, `pytest.raises`."""
    call = item.context_expr
    names = ("suppress", "raises", "assertRaises", "assertRaisesRegex")
    return isinstance(call, ast.Call) and last_name(call.func) in names
