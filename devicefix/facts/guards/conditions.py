"""Decide whether a condition implies that CUDA is available: a call, a flag, a number of GPUs, a device."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from weakref import proxy

from devicefix.facts.fallbacks import Fallbacks
from devicefix.facts.flow.order import own_nodes
from devicefix.facts.flow.reaching import reaching
from devicefix.facts.guards.answers import COUNTS, IMPLYING, at_least_one, falsy
from devicefix.facts.names import Names
from devicefix.facts.refusals import Refusals
from devicefix.facts.scopes import Binding, dotted
from devicefix.facts.texts import text_of
from devicefix.facts.values import backend_name, device_named, device_type, last_name

DEPTH = 8  # how many bindings to follow from one flag to the next
_BACKENDS_IN_USE = tuple(
    f"{module}.get_backend"
    for module in ("torch.distributed", "torch.distributed.distributed_c10d", "deepspeed.comm")
)
_PROPERTIES = ("property", "cached_property")
_FLAGS = 8  # how many flags to follow that are set where others are true


class Conditions(ABC):
    """The tests of one module that imply that CUDA is available.

    Args:
        facts: the names of the module.
    """

    def __init__(self, facts: Names) -> None:
        self.facts: Names = proxy(facts)  # they hold us: a circle would keep the tree until it is collected
        self.refusals = Refusals(facts)
        self.fallbacks = Fallbacks(facts, self.refusals)
        self.asked: set[int] = set()  # the flags, by their bindings or site, that are being asked about
        self.supposed: set[int] = set()  # those of them that were taken for false meanwhile
        self.flags: dict[tuple[int, int], bool] = {}

    @abstractmethod
    def is_guarded(self, node: ast.AST) -> bool:
        """Return whether `node` is evaluated only where CUDA is available."""

    def implies(self, test: ast.expr, truth: bool = True, depth: int = DEPTH) -> bool:  # noqa: C901, PLR0911, PLR0912 (one case a kind)
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
                return truth and (self._telling(test, depth - 1) or self.lists_gpus(test, depth - 1))
            case ast.ListComp():
                return truth and self.lists_gpus(test, depth - 1)
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

    def _telling(self, call: ast.Call, depth: int) -> bool:
        if isinstance(call.func, ast.Name) and call.func.id == "isinstance" and len(call.args) == 2:
            kind = self.facts.resolve(call.args[1]) or ""
            return kind.startswith("torch.cuda.") and kind.endswith("Tensor")
        return self.facts.resolve(call.func) in IMPLYING or self._own_function(call.func, depth)

    def _own_function(self, function: ast.expr, depth: int) -> bool:
        """Return whether a function of the module never returns a true value without CUDA."""
        own = self.refusals.own_function(function)
        return own is not None and not own.decorator_list and self._never_true(own, depth)

    def _own_property(self, node: ast.Attribute, depth: int) -> bool:
        """Return whether a property of the class around a place is never true without CUDA."""
        scope = self.facts.tree.scope(node)
        owner = scope.parent if isinstance(scope.node, ast.FunctionDef) else None
        found = owner.bindings.get(node.attr, ()) if owner is not None and owner.is_class else ()
        own = found[0].node if len(found) == 1 else None
        return (
            isinstance(own, ast.FunctionDef)
            and [last_name(each) in _PROPERTIES for each in own.decorator_list] == [True]
            and depth > 0
            and self._never_true(own, depth - 1)
        )

    def _never_true(self, own: ast.FunctionDef, depth: int) -> bool:
        """Return whether a function never returns a true value without CUDA."""
        if any(map(_has_yield, own.body)):
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
            or falsy(node.value)
            or self.implies(node.value, True, depth)
            or self.is_guarded(node)
            for node in own_nodes(statement)
            if isinstance(node, ast.Return)
        )

    def _both(self, test: ast.expr, body: ast.expr, orelse: ast.expr, depth: int) -> bool:
        """Return whether `a if t else b` is true only with CUDA: each arm is, is false, or is not taken."""
        return all(
            falsy(arm) or self.implies(arm, True, depth) or self.implies(test, taken, depth)
            for arm, taken in ((body, True), (orelse, False))
        )

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr, truth: bool, depth: int) -> bool:
        value = right.value if isinstance(right, ast.Constant) else text_of(right)
        if value is None:
            value = device_type(self.facts, right)
        if value is not None:
            if isinstance(value, bool) and isinstance(op, (ast.Is, ast.Eq, ast.IsNot, ast.NotEq)):
                same = isinstance(op, (ast.Is, ast.Eq))
                return self.implies(left, truth is (value is same), depth)
            if isinstance(value, int) and (least := self._least(left, depth)) is not None:
                return at_least_one(op, value - least, truth)
            if value == "cuda" and isinstance(op, (ast.Eq, ast.NotEq)):
                return truth is isinstance(op, ast.Eq) and self._may_be_device(left, depth)
            if value == "cpu" and isinstance(op, (ast.Eq, ast.NotEq)):
                return truth is isinstance(op, ast.NotEq) and self._type_of_device(left, depth)
        if isinstance(op, (ast.Eq, ast.NotEq)) and (named := device_named(self.facts, right)) is not None:
            of_cpu = named == "cpu" and isinstance(left, ast.Attribute) and not self.facts.bindings(left)
            return (of_cpu or named.startswith("cuda")) and truth is isinstance(
                op, ast.NotEq if of_cpu else ast.Eq
            )
        if isinstance(op, (ast.Eq, ast.NotEq)) and backend_name(self.facts, right) == "nccl":
            return truth is isinstance(op, ast.Eq) and self._backend_in_use(left)
        if isinstance(op, (ast.In, ast.NotIn)) and text_of(left) == "cuda":
            return truth is isinstance(op, ast.In) and self._may_be_device(right, depth)
        return False

    def _backend_in_use(self, node: ast.expr) -> bool:
        """Return whether a value is the backend of a process group that exists: NCCL needs CUDA."""
        value = self.facts.value(node)
        return self.facts.call(node if value is None else value, *_BACKENDS_IN_USE)

    def _may_be_device(self, node: ast.expr, depth: int) -> bool:
        """Return whether a node that is "cuda" is so by the user's choice, or where CUDA is available.

        A name says so as well: where it is wrong, what other fixes make of its value is what is found.
        """
        return self._type_of_device(node, depth) or _device_like(node) or self._chosen_outside(node, depth)

    def _chosen_outside(self, node: ast.expr, depth: int) -> bool:
        """Return whether only a user says that a node is "cuda": in the environment, or as an argument."""
        match node:
            case ast.Subscript(value=items):
                return self.facts.resolve(items) in ("os.environ", "sys.argv")
            case ast.Call(args=[_, *default]) if self.facts.call(node, "os.getenv", "os.environ.get"):
                return all(
                    isinstance(each, ast.Constant) and "cuda" not in str(each.value) for each in default
                )
        values = [binding.value for binding in self.facts.bindings(node)]
        return (
            depth > 0
            and bool(values)
            and all(value is not None and self._chosen_outside(value, depth - 1) for value in values)
        )

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

    def _least(self, node: ast.expr, depth: int) -> int | None:
        """Return what a number of GPUs is where there are none, None if it is no such number."""
        return next((least for least in (0, 1) if self.counts_gpus(node, depth, least)), None)

    def counts_gpus(self, node: ast.expr, depth: int = DEPTH, least: int = 0) -> bool:
        """Return whether an expression is the number of GPUs, and 0, or `least`, where there are none."""
        if depth <= 0:
            return False
        match node:
            case ast.Call(func=ast.Name(id="len"), args=[listed]):
                return self.lists_gpus(listed, depth - 1, least)
            case ast.Call(
                func=ast.Name(id="max"),
                args=[number, ast.Constant(value=1)] | [ast.Constant(value=1), number],
            ) if least:
                return self.counts_gpus(number, depth - 1)
            case ast.Call() if least:
                return False
            case ast.Call():
                return self.facts.resolve(node.func) in COUNTS
        bindings = self.facts.bindings(node)
        return bool(bindings) and self.facts.once(_all_count_gpus, bindings, self, depth - 1, least)

    def lists_gpus(self, node: ast.expr, depth: int = DEPTH, least: int = 0) -> bool:
        """Return whether the length of a list is such a number: `[i for i in range(device_count())]`."""
        if depth <= 0:
            return False
        match node:
            case ast.ListComp(generators=[ast.comprehension(iter=iterated), *_]):
                return self.lists_gpus(iterated, depth - 1, least)
            case ast.Call(func=ast.Name(id="list" | "tuple" | "sorted"), args=[listed]):
                return self.lists_gpus(listed, depth - 1, least)
            case ast.Call(func=ast.Name(id="range"), args=[count]):
                return self.counts_gpus(count, depth - 1, least)
            case ast.Attribute(attr="default_generators") if not least:
                return self.facts.resolve(node) == "torch.cuda.default_generators"
            case ast.Name() | ast.Attribute():
                bindings = self.facts.bindings(node)
                return bool(bindings) and self.facts.once(_all_list_gpus, bindings, self, depth - 1, least)
        return False

    def _flag(self, node: ast.expr, depth: int) -> bool:
        """Return whether every value that a flag may have here is true only where CUDA is available."""
        bindings = self.facts.bindings(node)
        if not bindings and isinstance(node, ast.Attribute) and dotted(node) == f"self.{node.attr}":
            return self.facts.others.is_flag(node.attr) or self._own_property(node, depth)
        flag = id(bindings)
        if isinstance(node, ast.Name) and (near := self._near(node)):
            flag, bindings = id(node), near
        if not bindings:
            return False
        key = flag, depth
        if key in self.flags:
            return self.flags[key]
        if flag in self.asked or len(self.asked) == _FLAGS:
            self.supposed |= {flag} & self.asked or self.asked
            return False
        self.asked.add(flag)
        try:
            answer = all(self._set_with_cuda(binding, depth - 1) for binding in bindings) and any(
                binding.value is not None and not falsy(binding.value) for binding in bindings
            )
        finally:
            self.asked.discard(flag)
            self.supposed &= self.asked
        if answer or not self.supposed:
            self.flags[key] = answer
        return answer

    def _near(self, node: ast.Name) -> Sequence[Binding]:
        """Return the bindings of a name that may hold where it is read, none if all of them may."""
        found = self.facts.tree.scope(node).lookup(node.id)
        near = reaching(self.facts.tree, node, found[1]) if found is not None else ()
        return near if found is not None and len(near) < len(found[1]) else ()

    def _set_with_cuda(self, binding: Binding, depth: int) -> bool:
        if binding.value is None:
            return isinstance(binding.node, ast.Delete)  # nothing is read after that
        return (
            falsy(binding.value) or self.implies(binding.value, True, depth) or self.is_guarded(binding.node)
        )


def _all_count_gpus(
    _facts: Names, bindings: Sequence[Binding], guards: Conditions, depth: int, least: int
) -> bool:
    """Return whether a name is bound to the number of GPUs, and to nothing else but what is false."""
    counts = [binding.value for binding in bindings if binding.value is None or not falsy(binding.value)]
    return bool(counts) and all(
        value is not None and guards.counts_gpus(value, depth, least) for value in counts
    )


def _all_list_gpus(
    _facts: Names, bindings: Sequence[Binding], guards: Conditions, depth: int, least: int
) -> bool:
    """Return whether a name is bound to lists whose length is the number of GPUs."""
    return all(
        binding.value is not None and guards.lists_gpus(binding.value, depth, least) for binding in bindings
    )


def _has_yield(statement: ast.stmt) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own_nodes(statement))


def _ends_falsely(last: ast.stmt) -> bool:
    """Return whether a block ends with a false value or an error."""
    if isinstance(last, ast.Return):
        return last.value is None or falsy(last.value)
    return isinstance(last, ast.Raise)


def _device_like(node: ast.expr) -> bool:
    """Return whether a node is a name or attribute that is called a device, or `str(...)` of one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        return _device_like(node.args[0])
    name = dotted(node)
    return name is not None and bool(re.search(r"dev(ice)?s?$|device_?(type|name)$", name, re.I))
