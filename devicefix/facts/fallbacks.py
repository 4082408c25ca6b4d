"""Find the handlers that serve a machine without CUDA: those of a probe, and those that use the CPU."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from weakref import proxy

from devicefix.facts.names import Names
from devicefix.facts.refusals import PRINTING, Refusals, caught, continues, may_catch, suppresses
from devicefix.facts.scopes import dotted
from devicefix.facts.tree import TRIES
from devicefix.facts.values import last_name

# What torch raises without CUDA, by `torch.cuda._lazy_init`: in builds without CUDA, and without a GPU.
_ERRORS = (AssertionError.__name__, RuntimeError.__name__)
_MOVES = ("cuda", "to")
_WORK = ("load", "save", "distributed", "multiprocessing", "jit", "hub", "compile")  # of torch
_BUILT_IN = (
    "print", "str", "int", "float", "bool", "round", "format", "len", "range", "repr", "__import__",
    "nullcontext",
)  # fmt: skip
_PURE = ("types", "functools", "contextlib", "itertools", "operator", "collections", "math")
_RESULTS = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return,
)  # fmt: skip
_BLOCKS = (ast.If, ast.With, ast.For, ast.While)
_SHOWING = (ast.Break, ast.Continue, ast.For, ast.withitem, ast.MatchAs, ast.MatchStar, ast.MatchMapping)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A handler that serves a machine without CUDA.

    Attributes:
        line: its line.
        certain: whether it serves all of them: it catches each error that torch raises.
    """

    line: int
    certain: bool


class Fallbacks:
    """The handlers of a module that serve a machine without CUDA.

    A handler does so in two cases. The block may be a probe: that nothing failed is all that it shows, as in
    `torch.zeros(1).cuda(); has_gpu = True`. Or the handler gives the CPU to what the block gives a GPU. Any
    other handler is for errors: it reports them, saves a checkpoint, or starts afresh.

    Args:
        facts: the names of the module.
        refusals: its refusals.
    """

    def __init__(self, facts: Names, refusals: Refusals) -> None:
        self._facts: Names = proxy(facts)
        self._refusals = refusals
        self._any = any(
            word in facts.source.text for word in ("except", "suppress", "raises", "assertRaises")
        )
        self._known: dict[tuple[ast.AST, tuple[str, ...]], Fallback | None] = {}

    def of(self, node: ast.AST, error: str | None = None, *more: str) -> Fallback | None:
        """Return the handler that serves a machine without CUDA if a node fails there, None if there is none.

        Args:
            node: the node.
            error: the name of the class of its error; one of torch's if it is not given.
            more: errors besides torch's.
        """
        if not self._any or isinstance(node, ast.Module):  # rules that search the whole module ask themselves
            return None
        errors = (error,) if error else (*_ERRORS, *more)
        around = (self._of_parent(child, parent, errors) for child, parent in self._refusals.around(node))
        return next((found for found in around if found is not None), None)

    def may_replace(self, node: ast.AST, error: str | None) -> bool:
        """Return whether a handler of the error of a node may give another result: it sets or returns one.

        Args:
            node: a call.
            error: the name of the class of its error, None if that is not known.
        """
        handlers = self._refusals.handlers(node, error)
        replaces = any(self.has_other_result(handler, error) for handler in handlers)
        return replaces or self.of(node, error) is not None

    def has_other_result(self, handler: ast.ExceptHandler, error: str | None) -> bool:
        """Return whether a handler names an error, or sets or returns something then."""
        names = error in caught(handler)
        return may_catch(handler, error) and not self._fails(handler) and (names or _has_result(handler.body))

    def _of_parent(self, child: ast.AST, parent: ast.AST, errors: tuple[str, ...]) -> Fallback | None:
        if not isinstance(parent, (*TRIES, ast.With, ast.AsyncWith)) or child not in parent.body:
            return None
        key = parent, errors
        if key not in self._known:
            if isinstance(parent, (ast.With, ast.AsyncWith)):
                self._known[key] = self._of_with(parent)
            else:
                self._known[key] = self._of_try(parent, errors)
        return self._known[key]

    def _of_with(self, node: ast.With | ast.AsyncWith) -> Fallback | None:
        suppressed = any(map(suppresses, node.items))
        probes = suppressed and _Block(self._facts, node.body, continues=False).is_probe()
        return Fallback(node.lineno, certain=False) if probes else None

    def _of_try(self, node: ast.Try, errors: Sequence[str]) -> Fallback | None:
        block = [*node.body, *node.orelse]
        for handler in node.handlers:
            catches = [may_catch(handler, error) for error in errors]
            if any(catches) and not self._fails(handler):
                # What follows in a loop that the handler leaves runs only where nothing failed.
                rest = self._facts.tree.after(node) if isinstance(handler.body[-1], ast.Break) else []
                grows = any(isinstance(part, ast.Mult) for each in rest for part in ast.walk(each))
                if not grows and _Block(self._facts, [*block, *rest], continues(handler.body)).is_probe():
                    return Fallback(handler.lineno, all(catches))
        return None

    def _fails(self, handler: ast.ExceptHandler) -> bool:
        """Return whether a handler ends the program, or raises an error again, if only for some errors."""
        raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
        return raises or self._refusals.refuses(handler.body)


class _Block:
    """A block of statements that may be a probe.

    Args:
        facts: the names of the module.
        statements: those of the block.
        continues: whether its handler does more than print the error.
    """

    def __init__(self, facts: Names, statements: Sequence[ast.stmt], continues: bool) -> None:
        self._facts = facts
        self._statements = statements
        self._continues = continues
        self._made: set[str] = set()  # the names that it binds to what torch made
        self._shows = False  # whether it sets or returns what only says that nothing failed

    def is_probe(self) -> bool:
        """Return whether that nothing failed is all that the block shows."""
        return all(map(self._is_neutral, self._statements)) and (self._shows or self._continues)

    def _is_neutral(self, node: ast.AST) -> bool:
        """Return whether a statement, or a part of one, does no work.

        It asks for CUDA, moves something, or binds what computes nothing.
        """
        match node:
            case ast.Return(value=value):
                self._shows = True
                return value is None or self._is_constant(value)
            case ast.Raise():
                return True
            case ast.FunctionDef() | ast.ClassDef():
                self._shows = True
                return True
            case ast.AugAssign(op=op) if not isinstance(op, ast.Add):
                return False  # a size that grows, and is no number of GPUs that are found
            case (
                ast.Assign(value=value)
                | ast.AugAssign(value=value)
                | ast.AnnAssign(value=ast.expr() as value)
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                return all(self._is_neutral_binding(target, value) for target in targets)
            case ast.expr():
                return self._calls_nothing_else(node)
        self._shows |= isinstance(node, _SHOWING)
        return all(map(self._is_neutral, ast.iter_child_nodes(node)))

    def _is_neutral_binding(self, target: ast.expr, value: ast.expr) -> bool:
        if self._is_constant(value):
            self._shows = True
            return True
        if not self._calls_nothing_else(value):
            return False
        if isinstance(value, ast.Call) and last_name(value.func) in _MOVES:
            moved = value.func.value if isinstance(value.func, ast.Attribute) else value
            if dotted(target) and dotted(target) == dotted(moved):  # it is the same without CUDA
                return True
        if not isinstance(target, ast.Name) or self._is_read_later(target):
            return False
        self._made.add(target.id)
        return True

    def _is_constant(self, value: ast.expr) -> bool:
        """Return whether an expression computes nothing but, perhaps, what CUDA answers."""
        return all(
            self._is_answer(node) for node in ast.walk(value) if isinstance(node, (ast.Call, ast.Await))
        ) and not (isinstance(value, ast.Name) and value.id in self._made)

    def _is_answer(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = self._facts.resolve(node.func) or ""
        of_cuda = name.startswith("torch.cuda.") and not name.endswith("Tensor")
        is_built_in = isinstance(node.func, ast.Name) and node.func.id in _BUILT_IN
        return of_cuda or is_built_in or name == "torch.device"

    def _calls_nothing_else(self, value: ast.expr) -> bool:
        """Return whether an expression calls only torch, what torch made, or moves something."""
        return all(self._is_neutral_call(node) for node in ast.walk(value) if isinstance(node, ast.Call))

    def _is_neutral_call(self, call: ast.Call) -> bool:
        neutral = (*_MOVES, *_BUILT_IN, *PRINTING)
        if self._is_made(call) or last_name(call.func) in neutral or isinstance(call.func, ast.Lambda):
            return True
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        made = list(map(self._is_made, arguments))
        constant = list(map(self._is_constant, arguments))
        if (self._facts.resolve(call.func) or "").partition(".")[0] in _PURE:
            return all(constant)
        # A message alone is no path without the result of a function of the program.
        return self._continues and any(made) and all(a or b for a, b in zip(made, constant, strict=True))

    def _is_made(self, node: ast.AST) -> bool:
        """Return whether torch makes a value, from nothing that the program has."""
        match node:
            case ast.Call(func=function) if (name := self._facts.resolve(function)) is not None:
                root, _, rest = name.partition(".")
                return root == "torch" and rest.partition(".")[0] not in _WORK
            case ast.Call(func=ast.Attribute(value=value)) | ast.Attribute(value=value):
                return self._is_made(value)
            case ast.Subscript(value=value) | ast.UnaryOp(operand=value):
                return self._is_made(value)
            case ast.BinOp(left=left, right=right):
                return self._is_made(left) or self._is_made(right)
            case ast.Name(id=name):
                return name in self._made
        return False

    def _is_read_later(self, target: ast.Name) -> bool:
        """Return whether a variable is read outside of the block."""
        inside = {node for statement in self._statements for node in ast.walk(statement)}
        tree = self._facts.tree
        own = tree.lookup(target)
        return any(tree.lookup(read) == own for read in tree.reads(target.id) if read not in inside)


def _has_result(block: Iterable[ast.stmt]) -> bool:
    """Return whether a block binds something or returns."""
    for statement in block:
        inner = [*statement.body, *getattr(statement, "orelse", ())] if isinstance(statement, _BLOCKS) else []
        if isinstance(statement, _RESULTS) or _has_result(inner):
            return True
    return False
