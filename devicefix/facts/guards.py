"""Guards: tests that imply that CUDA is available, and the code that runs only under one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from weakref import proxy

from devicefix.facts.flow import own_nodes
from devicefix.facts.names import Names
from devicefix.facts.prefilter import lines_with, lines_with_name
from devicefix.facts.refusals import Refusals, returns
from devicefix.facts.scopes import Binding, dotted

AVAILABLE = "torch.cuda.is_available"
VERSION = "torch.version.cuda"
# True on a machine with CUDA, false on a CPU.
ASKS = (AVAILABLE, "torch.accelerator.is_available")
_COUNTS = ("torch.cuda.device_count", "torch.accelerator.device_count")
# Calls that are true or more than 0 only where there is more than a CPU.
_IMPLYING = {*ASKS, *_COUNTS, "torch.cuda.is_initialized"}
_SKIPS = re.compile(
    r"(require|skip|need|only|if|unless)\w*_?(cuda|gpu|multigpu)|(cuda|gpu)_?(only|test|require)", re.I
)
_QUESTIONS = ("is_available", "device_count", "is_initialized", "version.cuda")
_DEPTH = 8  # how many bindings to follow from one flag to the next
_FLAGS = 8  # how many flags to follow that are set where others are true


class Guards:
    """The guards of one module."""

    def __init__(self, facts: Names) -> None:
        self.facts: Names = proxy(facts)  # they hold us: a circle would keep the tree until it is collected
        self.refusals = Refusals(facts)
        self.asked: set[int] = set()  # the flags, by their bindings, that are being asked about
        self.supposed: set[int] = set()  # those of them that were taken for false meanwhile
        self.known: dict[ast.AST, bool] = {}
        self.flags: dict[tuple[int, int], bool] = {}
        self.arms: dict[tuple[ast.AST, bool], bool] = {}
        self.behind: dict[ast.AST, set[ast.expr]] = {}
        self.left: dict[int, int] = {}  # by block: the line of the statement that leaves it without CUDA

    def implies(self, test: ast.expr, truth: bool = True, depth: int = _DEPTH) -> bool:  # noqa: C901, PLR0911, PLR0912 (one case a kind)
        """Return whether `test` being true (or false, with `truth=False`) means that CUDA is available."""
        if depth == 0:
            return False
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.implies(operand, not truth, depth)
            case ast.BoolOp(op=op, values=values):
                answers = (self.implies(value, truth, depth) for value in values)
                return any(answers) if isinstance(op, ast.And) is truth else all(answers)
            case ast.NamedExpr(value=value):
                return self.implies(value, truth, depth)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(left, op, right, truth, depth)
            case ast.IfExp(test=inner, body=body, orelse=orelse) if truth:
                return self._both(inner, body, orelse, depth)
            case ast.Call(func=ast.Name(id="bool"), args=[argument]):
                return self.implies(argument, truth, depth)
            case ast.Call(func=ast.Name(id="all" | "any" as name), args=[argument]):
                return self._of_several(name == "all", argument, truth, depth)
            case ast.Call(
                func=ast.Attribute(attr="startswith", value=value), args=[ast.Constant(value=str(text))]
            ):
                return truth and text.startswith("cuda") and self._may_be_device(value, depth)
            case ast.Call():
                return truth and self._telling(test, depth - 1)
            case ast.Attribute(attr="is_cuda") if not self.facts.bindings(test):
                return truth
            case ast.Attribute(attr="is_cpu") if not self.facts.bindings(test):
                return not truth
            case ast.Name() | ast.Attribute():
                return truth and self._flag(test, depth)
        return False

    def _of_several(self, every: bool, values: ast.expr, truth: bool, depth: int) -> bool:
        """Return whether `all(values)` or `any(values)` being true or false means that CUDA is available."""
        match values:
            case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element):
                return every is not truth and self.implies(element, truth, depth)  # there may be none
            case ast.List(elts=elements) | ast.Tuple(elts=elements) if elements:
                answers = (self.implies(element, truth, depth) for element in elements)
                return any(answers) if every is truth else all(answers)
        return False

    def settled(self, test: ast.expr) -> bool | None:
        """Return the value of a test on every machine with CUDA, None where it depends on more."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.settled(operand)
                return None if inner is None else not inner
            case ast.BoolOp(op=op, values=values):
                answers = [self.settled(value) for value in values]
                decisive = isinstance(op, ast.Or)
                if decisive in answers:
                    return decisive
                return None if None in answers else not decisive
            case ast.Compare(
                left=left, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=bool(value))]
            ):
                inner = self.settled(left)
                return None if inner is None else inner is value
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=int(value))]):
                # Of a variable it may depend on more: what is refused here would be 0 later.
                counts = isinstance(left, ast.Call) and self.counts_gpus(left)
                return of_any_count(op, value) if counts else None
            case ast.Call():
                return True if self.facts.resolve(test.func) in (*ASKS, *_COUNTS) else None
            case ast.Name():
                bound = self.facts.value(test)
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
        if answer is None:
            return None
        branch = node.orelse if answer else node.body
        if answer and not branch and isinstance(node.body[-1], (ast.Return, ast.Break, ast.Continue)):
            block = self.facts.tree.block(node)
            branch = block[block.index(node) + 1 :]
        last = self.refusals.last(branch)
        if last is None:
            return None
        return None if self.refusals.is_handled(node, self.refusals.error_of(last)) else branch

    @cached_property
    def lines(self) -> frozenset[int]:
        """The lines that name an answer of torch: a flag, a number, a version, or a function with one.

        What such a name is called says nothing: without these lines, `if q7:` would not be visited.
        """
        text = self.facts.tree.text
        lines = {line for question in _QUESTIONS for line in lines_with(text, question)}
        found: set[int] = set()
        seen: set[str] = set()
        while lines:
            names = set(map(_last, self._answered(sorted(lines)))) - seen - {""}
            seen |= names
            lines = {line for name in names for line in lines_with_name(text, name)} - found
            found |= lines
        return frozenset(found)

    def _answered(self, lines: list[int]) -> Iterator[str]:
        """Yield the names that some lines bind to an answer, and the functions that return one."""
        for node in self.facts.tree.nodes_at(lines):
            match node:
                case ast.Return(value=ast.expr() as value) if self._answers(value):
                    owner = self.facts.tree.scope(node).node
                    if isinstance(owner, ast.FunctionDef):
                        yield owner.name
                case ast.Assign(targets=[target], value=value) if self._answers(value):
                    yield dotted(target) or ""
                case ast.NamedExpr(target=target, value=value) if self._answers(value):
                    yield target.id

    def _answers(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Attribute) and self.facts.resolve(value) == VERSION:
            return True
        return self.implies(value) or self.implies(value, False) or self.counts_gpus(value)

    def is_guarded(self, node: ast.AST) -> bool:
        """Return whether `node` is evaluated only where CUDA is available."""
        answer = False
        inside: list[ast.AST] = []
        for child, parent in self.facts.tree.ancestors(node):
            if child in self.known:
                answer = self.known[child]
                break
            inside.append(child)
            if self._only_with_cuda(child, parent):
                answer = True
                break
        if answer or not self.supposed:
            self.known.update(dict.fromkeys(inside, answer))
        return answer

    def _telling(self, call: ast.Call, depth: int) -> bool:
        if isinstance(call.func, ast.Name) and call.func.id == "isinstance" and len(call.args) == 2:
            kind = self.facts.resolve(call.args[1]) or ""
            return kind.startswith("torch.cuda.") and kind.endswith("Tensor")
        return self.facts.resolve(call.func) in _IMPLYING or self._own_function(call.func, depth)

    def _own_function(self, function: ast.expr, depth: int) -> bool:
        """Return whether a function of the module never returns a true value without CUDA."""
        own = self.refusals.own_function(function)
        if own is None or own.decorator_list or any(map(_has_yield, own.body)):
            return False
        for statement in own.body:
            if not self._returns_false(statement, depth):
                return False
            if isinstance(statement, ast.If) and _ends_falsely(statement.body[-1]):
                if self.implies(statement.test, False, depth):
                    return True
        return True

    def _returns_false(self, statement: ast.stmt, depth: int) -> bool:
        """Return whether a statement returns nothing that is true without CUDA."""
        return all(
            node.value is None
            or _falsy(node.value)
            or self.implies(node.value, True, depth)
            or self.is_guarded(node)
            for node in own_nodes(statement)
            if isinstance(node, ast.Return)
        )

    def _both(self, test: ast.expr, body: ast.expr, orelse: ast.expr, depth: int) -> bool:
        """Return whether `a if t else b` is true only with CUDA: each arm is, is false, or is not taken."""
        return all(
            _falsy(arm) or self.implies(arm, True, depth) or self.implies(test, taken, depth)
            for arm, taken in ((body, True), (orelse, False))
        )

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr, truth: bool, depth: int) -> bool:
        if isinstance(right, ast.Constant):
            value = right.value
            if isinstance(value, bool) and isinstance(op, (ast.Is, ast.Eq, ast.IsNot, ast.NotEq)):
                same = isinstance(op, (ast.Is, ast.Eq))
                return self.implies(left, truth is (value is same), depth)
            if isinstance(value, int) and self.counts_gpus(left, depth):
                return _at_least_one(op, value, truth)
            if value == "nccl" and isinstance(op, (ast.Eq, ast.NotEq)) and _backend_in_use(left):
                return truth is isinstance(op, ast.Eq)
            if value == "cuda" and isinstance(op, (ast.Eq, ast.NotEq)):
                return truth is isinstance(op, ast.Eq) and self._may_be_device(left, depth)
            if value == "cpu" and isinstance(op, (ast.Eq, ast.NotEq)):
                return truth is isinstance(op, ast.NotEq) and self._type_of_device(left, depth)
        if isinstance(op, (ast.Eq, ast.NotEq)) and (named := self._named_device(right)) is not None:
            of_cpu = named == "cpu" and isinstance(left, ast.Attribute) and not self.facts.bindings(left)
            return (of_cpu or named.startswith("cuda")) and truth is isinstance(
                op, ast.NotEq if of_cpu else ast.Eq
            )
        if isinstance(left, ast.Constant) and left.value == "cuda" and isinstance(op, (ast.In, ast.NotIn)):
            return truth is isinstance(op, ast.In) and self._may_be_device(right, depth)
        return False

    def _named_device(self, node: ast.expr) -> str | None:
        """Return the name of the device in `torch.device("cuda:0")`, None for other expressions."""
        match node:
            case ast.Call(args=[ast.Constant(value=str(text))]) if self.facts.call(node, "torch.device"):
                return text
        return None

    def _may_be_device(self, node: ast.expr, depth: int) -> bool:
        """Return whether a node that is "cuda" is so by the user's choice, or where CUDA is available.

        A name says so as well: where it is wrong, what other fixes make of its value is what is found.
        """
        return self._type_of_device(node, depth) or _device_like(node)

    def _type_of_device(self, node: ast.expr, depth: int) -> bool:
        """Return whether a node is "cpu" wherever CUDA is not available: `x.device.type`, or a choice.

        A `torch.device` is no string: `torch.device("cpu") != "cpu"` is true.
        """
        if depth == 0:
            return False
        match node:
            case ast.Attribute(attr="type"):
                return True
            case ast.Constant(value=str(text)):
                return text == "cpu" or (text.startswith("cuda") and self.is_guarded(node))
            case ast.IfExp(body=body, orelse=orelse):
                return self._type_of_device(body, depth - 1) and self._type_of_device(orelse, depth - 1)
            case ast.Call(func=ast.Name(id="str"), args=[argument]):
                value = self.facts.value(argument)
                made = argument if value is None else value
                return (
                    isinstance(made, ast.Call)
                    and self.facts.call(made, "torch.device")
                    and len(made.args) == 1
                    and self._type_of_device(made.args[0], depth - 1)
                )
        values = [binding.value for binding in self.facts.bindings(node)]
        return bool(values) and all(
            value is not None and self._type_of_device(value, depth - 1) for value in values
        )

    def counts_gpus(self, node: ast.expr, depth: int = _DEPTH) -> bool:
        """Return whether an expression is the number of GPUs, or something that is 0 where there are none."""
        if depth == 0:
            return False
        if isinstance(node, ast.Call):
            return self.facts.resolve(node.func) in _COUNTS
        bindings = self.facts.bindings(node)
        return bool(bindings) and self.facts.once(_all_count_gpus, bindings, self, depth - 1)

    def _flag(self, node: ast.expr, depth: int) -> bool:
        """Return whether every value of a flag is true only where CUDA is available."""
        bindings = self.facts.bindings(node)
        if not bindings and isinstance(node, ast.Attribute) and dotted(node) == f"self.{node.attr}":
            return self.facts.is_flag(node.attr)
        if not bindings:
            return False
        flag = id(bindings)
        key = flag, depth
        if key in self.flags:
            return self.flags[key]
        if flag in self.asked or len(self.asked) == _FLAGS:
            self.supposed |= {flag} & self.asked or self.asked
            return False
        self.asked.add(flag)
        try:
            answer = all(self._set_with_cuda(binding, depth - 1) for binding in bindings) and any(
                binding.value is not None and not _falsy(binding.value) for binding in bindings
            )
        finally:
            self.asked.discard(flag)
            self.supposed &= self.asked
        if answer or not self.supposed:
            self.flags[key] = answer
        return answer

    def _set_with_cuda(self, binding: Binding, depth: int) -> bool:
        if binding.value is None:
            return False
        return (
            _falsy(binding.value) or self.implies(binding.value, True, depth) or self.is_guarded(binding.node)
        )

    def _only_with_cuda(self, child: ast.AST, parent: ast.AST) -> bool:
        """Return whether a node is evaluated only where CUDA is available, judged by its parent alone."""
        if isinstance(child, ast.stmt):
            return self._statement_only_with_cuda(child, parent)
        match parent:
            case ast.IfExp(test=test, body=body):
                return child is not test and self.implies(test, child is body)
            case ast.BoolOp():
                return child in self._behind(parent)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                tests = (test for generator in parent.generators for test in generator.ifs)
                return not isinstance(child, ast.comprehension) and any(map(self.implies, tests))
        return False

    def _statement_only_with_cuda(self, child: ast.stmt, parent: ast.AST) -> bool:
        if isinstance(parent, (ast.If, ast.While)):
            if self._arm(parent, child.lineno <= parent.body[-1].lineno):
                return True
        if any(map(self._skips, getattr(child, "decorator_list", ()))):
            return True
        if isinstance(child, ast.FunctionDef) and child.name in self._waiting:
            return True
        return self._left_before(child, parent)

    def _arm(self, node: ast.If | ast.While, truth: bool) -> bool:
        """Return whether the body, or the `else` branch, runs only where CUDA is available."""
        key = node, truth
        answer = self.arms.get(key)
        if answer is None:
            # A guard against a refusal goes, with the refusal.
            goes = isinstance(node, ast.If) and self.refusal(node) is not None
            answer = not goes and self.implies(node.test, truth)
            if answer or not self.supposed:
                self.arms[key] = answer
        return answer

    def _behind(self, node: ast.BoolOp) -> set[ast.expr]:
        """Return the values of an `and` or `or` after the first one that implies CUDA."""
        found = self.behind.get(node)
        if found is None:
            implied = (self.implies(value, isinstance(node.op, ast.And)) for value in node.values)
            first = next((index for index, answer in enumerate(implied) if answer), len(node.values))
            found = set(node.values[first + 1 :])
            if not self.supposed:
                self.behind[node] = found
        return found

    @cached_property
    def _waiting(self) -> set[str]:
        """Return the functions that torch calls only once CUDA is in use."""
        return {
            argument.id
            for node in self.facts.tree.nodes_with("_lazy_call")
            if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("_lazy_call")
            for argument in node.args
            if isinstance(argument, ast.Name)
        }

    def _skips(self, decorator: ast.expr) -> bool:
        """Return whether a decorator skips a test without CUDA."""
        name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
        if isinstance(decorator, ast.Call) and decorator.args:
            short = name.rpartition(".")[2].lower()
            if short == "skipif":
                return self.implies(decorator.args[0], False)
            if short == "skipunless":
                return self.implies(decorator.args[0], True)
        own = self.refusals.own_function(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if own is not None:  # its code decides, not its name
            return any(isinstance(node, ast.Call) and self.facts.call(node, *ASKS) for node in ast.walk(own))
        return bool(_SKIPS.search(name))

    def _left_before(self, statement: ast.stmt, parent: ast.AST) -> bool:
        """Return whether an earlier `if not torch.cuda.is_available(): return` keeps the rest for CUDA."""
        for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and block and block[0].lineno <= statement.lineno <= block[-1].lineno:
                return statement.lineno > self._left_in(block)
        return False

    def _left_in(self, block: list[ast.stmt]) -> int:
        """Return the line of the statement that leaves a block without CUDA."""
        line = self.left.get(id(block))
        if line is None:
            line = next((statement.lineno for statement in block if self._leaves(statement)), 1 << 30)
            if not self.supposed:
                self.left[id(block)] = line
        return line

    def _leaves(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Assert(test=test):
                return self.implies(test) and self.refusals.is_handled(statement, AssertionError.__name__)
            case ast.If(test=test, body=body, orelse=[]) if self.implies(test, False):
                last = self.refusals.last(body)
                return returns(body) or (
                    last is not None and self.refusals.is_handled(last, self.refusals.error_of(last))
                )
        return False


class Built(Guards):
    """The guards that imply that torch is built with CUDA: `torch.version.cuda` is not None."""

    def implies(self, test: ast.expr, truth: bool = True, depth: int = _DEPTH) -> bool:
        """Return whether `test` being true (or false, with `truth=False`) means that torch has CUDA."""
        match test:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]) if self._is_version(
                left
            ):
                return truth is isinstance(op, (ast.IsNot, ast.NotEq))
            case ast.Name() | ast.Attribute() if self._is_version(test):
                return truth
        return super().implies(test, truth, depth)

    def _is_version(self, node: ast.expr) -> bool:
        return self.facts.resolve(node) == VERSION


def _all_count_gpus(_facts: Names, bindings: Sequence[Binding], guards: Guards, depth: int) -> bool:
    """Return whether a name is bound to the number of GPUs, and to nothing else but what is false."""
    counts = [binding.value for binding in bindings if binding.value is None or not _falsy(binding.value)]
    return bool(counts) and all(value is not None and guards.counts_gpus(value, depth) for value in counts)


def _has_yield(statement: ast.stmt) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own_nodes(statement))


def _ends_falsely(last: ast.stmt) -> bool:
    """Return whether a block ends with a false value or an error."""
    if isinstance(last, ast.Return):
        return last.value is None or _falsy(last.value)
    return isinstance(last, ast.Raise)


def _backend_in_use(node: ast.expr) -> bool:
    """Return whether a node is `torch.distributed.get_backend()`: NCCL needs CUDA."""
    return isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("get_backend")


def of_any_count(op: ast.cmpop, value: int) -> bool | None:
    """Return what `n op value` is for every n from 1 up, or None where that depends on n."""
    match op:
        case ast.Gt() | ast.NotEq() if value == 0:
            return True
        case ast.GtE() if value == 1:
            return True
        case ast.Eq() | ast.LtE() if value == 0:
            return False
        case ast.Lt() if value == 1:
            return False
    return None


def _at_least_one(op: ast.cmpop, value: int, truth: bool) -> bool:
    """Return whether `n op value` being true (or false) means that n is not 0."""
    match op:
        case ast.Gt() | ast.NotEq():
            return truth and (value >= 0 if isinstance(op, ast.Gt) else value == 0)
        case ast.GtE():
            return truth and value >= 1
        case ast.Lt() | ast.Eq():
            return not truth and (value >= 1 if isinstance(op, ast.Lt) else value == 0)
        case ast.LtE():
            return not truth and value >= 0
    return False


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _falsy(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _device_like(node: ast.expr) -> bool:
    """Return whether a node is a name or attribute that is called a device, or `str(...)` of one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        return _device_like(node.args[0])
    name = dotted(node)
    return name is not None and bool(re.search(r"dev(ice)?s?$|device_?(type|name)$", name, re.I))
