"""Find the code that is reached only where CUDA is available, and the refusals to run without it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile

from devicefix.facts.flow.parameters import reads_of
from devicefix.facts.guards.answers import ASKS, COUNTS, CUDNN, VERSION
from devicefix.facts.guards.conditions import Conditions, falsy
from devicefix.facts.guards.truth import is_none, of_any_count, of_truth
from devicefix.facts.names import Names
from devicefix.facts.path_conditions import conditions_on
from devicefix.facts.refusals import returns
from devicefix.facts.scopes import FUNCTIONS, captured, dotted
from devicefix.facts.values import last_name, without_call

_SKIPS = re.compile(
    r"(?i)(require|skip|need|only|if|unless)\w*_?(cuda|gpu|multigpu)|(cuda|gpu)_?(only|test|require)"
    r"|\bmark\.(multi_?)?(cuda|gpu)s?$",  # a mark by which the project says which tests need a GPU
)
_MINIMA = ("min_gpus", "min_cuda_gpus")  # of a test, as in Lightning's `RunIf`
_KERNELS = re.compile(
    r"(?i)(?<![a-z])(fa[23]|flash_?attn|flash_attention|triton|tensorrt)(?![a-z])"
)  # of a GPU
_LONGEST = 200  # characters of a name
_NEVER = 1 << 30  # beyond the last line
_QUESTIONS = ("is_available", "device_count", "is_initialized", "version.cuda", "cudnn.version", "get_device")


class Guards(Conditions):
    """The guards of one module.

    Args:
        facts: the names of the module.
    """

    def __init__(self, facts: Names) -> None:
        super().__init__(facts)
        self._tails: dict[ast.BoolOp, set[ast.expr]] = {}
        self._left: dict[int, int] = {}  # by block: the line of the statement that leaves it without CUDA

    def is_guarded(self, node: ast.AST) -> bool:
        """Return whether `node` is evaluated only where CUDA is available."""
        answer = False
        inside: list[ast.AST] = []
        for child, parent in self.facts.tree.ancestors(node):
            if child in self._known:
                answer = self._known[child]
                break
            inside.append(child)
            if self._only_with_cuda(child, parent):
                answer = True
                break
        else:
            answer = self.facts.others.is_guarded()
        return self._kept(answer, *inside, unknown=False)

    def settled(self, test: ast.expr) -> bool | None:
        """Return the value of a test on every machine with CUDA, None where it depends on more."""
        return self._truth(test, self._with_cuda)

    def _with_cuda(self, part: ast.expr) -> bool | None:
        match part:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=bool(value))]):
                return of_truth(op, self.settled(left), value)
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]):
                return is_none(op, self.chosen(left, self.settled))
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=int(value))]):
                # Of a variable it may depend on more: what is refused here would be 0 later.
                return of_any_count(op, value) if self.facts.call(left, *COUNTS) else None
            case ast.Call():
                return True if self.facts.call(part, *ASKS, *COUNTS) else None
            case ast.Name():
                bound = self.facts.value(part)
                return self.settled(bound) if isinstance(bound, ast.Call) else None
        return None

    def conditions(self, test: ast.expr) -> list[ast.expr]:
        """Return the parts of a test that may be true or false on a machine with CUDA."""
        if self.settled(test) is not None and not isinstance(test, (ast.BoolOp, ast.UnaryOp)):
            return []
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.conditions(operand)
            case ast.BoolOp(values=values):
                return [part for value in values for part in self.conditions(value)]
        return [test]

    def refusal(self, node: ast.If) -> list[ast.stmt] | None:
        """Return the statements that end the program without CUDA, and never run with it.

        They are a branch of the `if`, or what follows it where its body leaves the block:
        `if torch.cuda.is_available(): return x.cuda()` and then `raise RuntimeError`.
        """
        answer = self.settled(node.test)
        if answer is None or answer is self.without_cuda(node.test):
            return None
        branch = self.otherwise(node) if answer else node.body
        last = self.refusals.last(branch)
        if last is None or self.refusals.both(node):
            return None
        return None if self.fallbacks.of(node, self.refusals.error_of(last)) else branch

    def otherwise(self, node: ast.If) -> list[ast.stmt]:
        """Return what runs where a test is false: the `else` branch, or what follows a body that leaves."""
        if node.orelse or not returns(node.body):
            return node.orelse
        return self.facts.tree.after(node)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of what holds an answer of torch: a flag, a number, a version, or a function with one."""
        words = self.facts.tree.words
        lines = {line for question in _QUESTIONS for line in words.lines_with(question)}
        asked, found = set[int](), set[str]()
        while lines:
            names = {path.rpartition(".")[2] for path in self._answered(sorted(lines))} - found - {""}
            found |= names
            lines = {line for name in names for line in words.lines_with_name(name)} - asked
            asked |= lines
        return frozenset(found)

    @cached_property
    def lines(self) -> frozenset[int]:
        """The lines with one of these names.

        What such a name is called says nothing: without these lines, `if q7:` would not be visited.
        """
        words = self.facts.tree.words
        return frozenset(line for name in self.names for line in words.lines_with_name(name))

    def _answered(self, lines: list[int]) -> Iterator[str]:
        """Yield the names that some lines bind to an answer, and the functions that return one."""
        for node in self.facts.tree.nodes_at(lines):
            match node:
                case ast.Return(value=ast.expr() as value) if self._answers(value):
                    owner = self.facts.tree.scope(node).node
                    if isinstance(owner, ast.FunctionDef):
                        yield owner.name
                case ast.Assign(targets=targets, value=value) if self._holds_answer(value):
                    yield from (dotted(part) or "" for target in targets for part in ast.walk(target))
                case (
                    ast.AnnAssign(target=target, value=ast.expr() as value)
                    | ast.NamedExpr(target=target, value=value)
                    | ast.For(target=target, iter=value)
                ) if self._holds_answer(value):
                    yield from (dotted(part) or "" for part in ast.walk(target))
                case ast.Match(subject=value) if self._holds_answer(value):
                    yield from captured(*node.cases)

    def _holds_answer(self, value: ast.expr) -> bool:
        """Return whether a value is an answer, or made of one: a collection, or what a call returns."""
        parts = (part for part in ast.walk(value) if isinstance(part, (ast.Call, ast.Compare)))
        return self._answers(value) or any(map(self._answers, parts))

    def _answers(self, value: ast.expr) -> bool:
        return self._is_version(value) or self.without_cuda(value) is not None or self.counts_gpus(value)

    def _is_version(self, node: ast.expr) -> bool:
        """Return whether an expression is the version of CUDA or cuDNN, None in a build without it."""
        return self.facts.resolve(node) == VERSION or self.facts.call(self.facts.value(node) or node, CUDNN)

    def _only_with_cuda(self, child: ast.AST, parent: ast.AST) -> bool:
        """Return whether a node is evaluated only where CUDA is available, judged by its parent alone."""
        if isinstance(child, ast.stmt):
            return self._statement_only_with_cuda(child, parent)
        if isinstance(parent, ast.BoolOp):
            return child in self._behind(parent)
        if isinstance(parent, ast.Call) and child in parent.args and self._skips_row(parent):
            return True
        return any(self.implies(test, value) for test, value in conditions_on(child, parent))

    def _statement_only_with_cuda(self, child: ast.stmt, parent: ast.AST) -> bool:
        if isinstance(parent, ast.FunctionDef) and child in parent.body:
            if any(map(self._used_with_cuda, (parent, self.facts.tree.parents[parent]))):
                return True
        if isinstance(parent, (ast.If, ast.While)):
            if self._arm(parent, child.lineno <= parent.body[-1].lineno):
                return True
        if any(map(self._skips, getattr(child, "decorator_list", ()))):
            return True
        if parent in self._marked and getattr(child, "name", "").lower().startswith("test"):
            return True
        # An earlier `if not torch.cuda.is_available(): return` keeps the rest for CUDA.
        return child.lineno > self._left_in(self.facts.tree.block(child))

    def _is_passed(self, node: ast.Name) -> bool:
        return super()._is_passed(node) or self._is_parametrized(node)

    def _is_parametrized(self, node: ast.Name) -> bool:
        """Return whether pytest passes a true value for a parameter only in rows that it skips without CUDA.

        https://docs.pytest.org/en/stable/how-to/parametrize.html
        """
        found = self.facts.tree.lookup(node)
        for decorator in getattr(found[0].node, "decorator_list", ()) if found is not None else ():
            match decorator:
                case ast.Call(
                    args=[ast.Constant(value=str(listed)), ast.List(elts=rows) | ast.Tuple(elts=rows)]
                ):
                    names = [name.strip() for name in listed.split(",")]
                    if last_name(decorator.func) == "parametrize" and node.id in names:
                        place = names.index(node.id) if len(names) > 1 else None
                        return all(self._is_false_in_row(row, place) for row in rows)
        return False

    def _is_false_in_row(self, row: ast.expr, place: int | None) -> bool:
        """Return whether one of several values, or the only one, is false in a row, or the row is skipped."""
        values: Sequence[ast.expr] = [row] if place is None else _several(row)
        if isinstance(row, ast.Call) and last_name(row.func) == "param":
            values = row.args
            if self._skips_row(row):
                return True
        return falsy(next(iter(values[place or 0 :]), row))

    def _skips_row(self, row: ast.Call) -> bool:
        """Return whether a `pytest.param` has a mark that skips it without CUDA."""
        marks = (each.value for each in row.keywords if each.arg == "marks")
        return last_name(row.func) == "param" and any(
            self._skips(each) for mark in marks for each in _several(mark)
        )

    def _used_with_cuda(self, own: ast.AST) -> bool:
        """Return whether this is a private function or class that is used, and only where CUDA is available.

        A decorator or a class of a library may use it, too.
        """
        owner, name = self.facts.tree.parents.get(own), getattr(own, "name", None) or "__"
        is_private = (name.startswith("_") and not name.endswith("__")) or isinstance(owner, FUNCTIONS)
        if not is_private or getattr(own, "decorator_list", False) or getattr(owner, "bases", ()):
            return False

        def find() -> bool:
            reads = reads_of(self.facts.tree, own)
            return bool(reads) and all(map(self.is_guarded, reads)) and not self.is_named(own)

        return self._remembered(("used", own), find, False)

    def _arm(self, node: ast.If | ast.While, truth: bool) -> bool:
        """Return whether the body, or the `else` branch, runs only where CUDA is available."""
        arm = node, truth
        if arm in self._known:
            known: bool = self._known[arm]
            return known
        # A guard against a refusal goes, with the refusal.
        goes = isinstance(node, ast.If) and self.refusal(node) is not None
        return self._kept(not goes and self.implies(node.test, truth), arm, unknown=False)

    def _behind(self, node: ast.BoolOp) -> set[ast.expr]:
        """Return the values of an `and` or `or` after the first one that implies CUDA."""
        if node in self._tails:
            return self._tails[node]
        before = takewhile(lambda value: not self.implies(value, isinstance(node.op, ast.And)), node.values)
        found = set(node.values[len(list(before)) + 1 :])
        if not self._guessed:
            self._tails[node] = found
        return found

    def _skips(self, decorator: ast.expr) -> bool:
        """Return whether a decorator skips a test without CUDA."""
        function, arguments = decorator, []
        if isinstance(decorator, ast.Call):
            function, arguments = decorator.func, decorator.args
        short = last_name(function).lower()
        if short in ("skipif", "skipunless") and arguments:
            test, wanted = arguments[0], short == "skipunless"
            if isinstance(test, ast.UnaryOp):
                test, wanted = test.operand, not wanted
            kernel = _KERNELS.search((dotted(without_call(test)) or "")[:_LONGEST])
            return self.implies(test, wanted) or (wanted and bool(kernel))
        own = self.refusals.own_function(function)
        if own is not None:  # its code decides, not its name
            return self._needs_cuda_for_function(own, is_factory=isinstance(decorator, ast.Call))
        least = any(keyword.arg in _MINIMA for keyword in getattr(decorator, "keywords", ()))
        return least or bool(_SKIPS.search((dotted(function) or "")[:_LONGEST]))

    def _needs_cuda_for_function(self, decorator: ast.FunctionDef, *, is_factory: bool) -> bool:
        """Return whether a decorator of the module uses the decorated function only with CUDA.

        A timer that asks for CUDA calls it on every machine, and so does a decorator that refuses the CPU,
        once the refusal is gone.
        """
        returned = (node.value for node in ast.walk(decorator) if isinstance(node, ast.Return))
        names = {value.id for value in returned if isinstance(value, ast.Name)}
        functions = (node for node in ast.walk(decorator) if isinstance(node, ast.FunctionDef))
        inner = [node for node in functions if node.name in names]
        for function in inner if is_factory else [decorator]:
            parameters = [*function.args.posonlyargs, *function.args.args]
            scope = self.facts.tree.scopes[function]
            reads = list(self.facts.reads_in(scope, parameters[0].arg)) if parameters else []
            used = [read for read in reads if not self._only_describes(read)]
            if used and all(self.is_guarded(read) or self._is_skipped(read) for read in used):
                return True
        return False

    def _only_describes(self, function: ast.expr) -> bool:
        """Return whether a use of a function does not run it: `wraps(f)`, `f.__name__`."""
        parent = self.facts.tree.parents.get(function)
        if isinstance(parent, ast.Call) and function in parent.args:
            return last_name(parent.func) in ("wraps", "update_wrapper")
        return isinstance(parent, ast.Attribute)

    def _is_skipped(self, function: ast.expr) -> bool:
        """Return whether a function is passed to a decorator that skips it: `skipUnless(...)(f)`."""
        parent = self.facts.tree.parents.get(function)
        if not isinstance(parent, ast.Call) or function not in parent.args:
            return False
        skip = parent.func
        always = isinstance(skip, ast.Call) and last_name(skip.func) == "skip"
        return always or self._skips(skip)

    @cached_property
    def _marked(self) -> set[ast.AST]:
        """The module and its classes if `pytestmark` skips their tests without CUDA.

        https://docs.pytest.org/en/stable/example/markers.html#marking-whole-classes-or-modules
        """
        found = set()
        for node in self.facts.tree.nodes_with("pytestmark"):
            match node:
                case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                    if any(map(self._skips, _several(value))):
                        found.add(self.facts.tree.parents[node])
        return found

    def _left_in(self, block: list[ast.stmt]) -> int:
        """Return the line of the statement that leaves a block without CUDA."""
        key = id(block)
        if key in self._left:
            return self._left[key]
        self._left[key] = _NEVER  # a test may ask for a value in the block
        line = next((statement.lineno for statement in block if self._leaves(statement)), _NEVER)
        self._left[key] = line
        if self._guessed:
            del self._left[key]
        return line

    def _leaves(self, statement: ast.stmt) -> bool:
        """Return whether a statement leaves its block without CUDA, for a path that the CPU has."""
        last: ast.stmt | None = None
        match statement:
            case ast.Assert(test=test) if self.implies(test):
                last = statement
            case ast.If(test=test, body=body) if self.implies(test, False):
                last = self.refusals.last(body)
                if last is None and returns(body):
                    return True
        return last is not None and self.fallbacks.of(last, self.refusals.error_of(last)) is not None


def _several(node: ast.expr) -> Sequence[ast.expr]:
    """Return the elements of a list or tuple, or a node that is none."""
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]


class Built(Guards):
    """The guards that imply that torch is built with CUDA: `torch.version.cuda` is not None."""

    def _of_part(self, test: ast.expr) -> bool | None:
        match test:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]):
                if self._is_version(left):
                    return isinstance(op, (ast.Is, ast.Eq))
            case ast.Name() | ast.Attribute() | ast.Call() if self._is_version(test):
                return False
        return super()._of_part(test)
