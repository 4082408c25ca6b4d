"""Decide whether a condition implies that CUDA is available: a call, a flag, a number of GPUs, a device."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import proxy

from devicefix.facts.fallbacks import Fallbacks
from devicefix.facts.flow.parameters import arguments_of, described, has_star
from devicefix.facts.flow.points import own_nodes
from devicefix.facts.flow.reaching import reaching
from devicefix.facts.guards.answers import COUNTS, IMPLYING
from devicefix.facts.guards.truth import is_none, of_no_gpus, of_several, of_truth, truth
from devicefix.facts.names import Names
from devicefix.facts.refusals import Refusals
from devicefix.facts.scopes import Binding, Function, Scope, dotted
from devicefix.facts.texts import text_of
from devicefix.facts.values import PROPERTIES, backend_name, device_named, device_type, last_name

Answer = TypeVar("Answer")

_DEPTH = 8  # how many bindings to follow from one device to the next
_NESTED = 8  # how many flags, numbers and functions to follow whose values depend on others
_BACKENDS_IN_USE = tuple(
    f"{module}.get_backend"
    for module in ("torch.distributed", "torch.distributed.distributed_c10d", "deepspeed.comm")
)
_EQUALITIES = (ast.Eq, ast.NotEq)
# What takes names of the module itself by texts.
_TAKES_NAMES = re.compile(
    r"\b(?:globals|locals|vars)\b(?!\(\w)|_globals|(?<![.\w])(?:eval|exec)\(|\bsys\b.*\bmodules\b"
    r"|import_module|__import__|getmodule\b|run_(?:path|module)|import __main__"
)
_DEVICE_LIKE = re.compile(r"dev(ice)?s?$|device_?(type|name|kind|platform)$", re.I)


class Conditions(ABC):
    """The tests of one module that imply that CUDA is available.

    Args:
        facts: the names of the module.
    """

    def __init__(self, facts: Names) -> None:
        self.facts: Names = proxy(facts)  # they hold us: a circle would keep the tree until it is collected
        self.refusals = Refusals(facts)
        self.fallbacks = Fallbacks(facts, self.refusals)
        self._known: dict[object, Any] = {}
        self._asking: set[tuple[object, ...]] = set()  # the questions of `_remembered` without an answer yet
        self._guessed: set[tuple[object, ...]] = set()  # those of them whose answer was taken for unknown
        self._testing: list[tuple[ast.expr, str]] = []  # the tests whose values are being asked for

    @abstractmethod
    def is_guarded(self, node: ast.AST) -> bool:
        """Return whether `node` is evaluated only where CUDA is available."""

    def implies(self, test: ast.expr, truth: bool = True) -> bool:
        """Return whether `test` being true (or false, with `truth=False`) means that CUDA is available."""
        return self.without_cuda(test) is (not truth)

    def without_cuda(self, test: ast.expr) -> bool | None:
        """Return the value of a test where CUDA is not available, None where it depends on more."""
        return self._truth(test, self._of_part)

    def _truth(self, test: ast.expr, of_part: Callable[[ast.expr], bool | None]) -> bool | None:
        """Return the value of a test, None deep inside itself, as for `n = 1 if n is None else n`."""
        question = test, of_part.__name__
        if self._testing.count(question) > 1:  # flags in it are guessed at the second time
            self._guessed |= self._asking
            return None
        self._testing.append(question)
        try:
            return truth(test, of_part)
        finally:
            self._testing.pop()

    def _of_part(self, test: ast.expr) -> bool | None:
        """Return the value of a part of a test where CUDA is not available."""
        match test:
            case ast.NamedExpr(value=value):
                return self.without_cuda(value)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(left, op, right)
            case ast.Call(func=ast.Name(id="all" | "any" as name), args=[values]):
                return self._of_elements(values, decisive=name == "any")
            case ast.Attribute(attr="is_cuda" | "is_cpu" as name) if not self.facts.bindings(test):
                return name == "is_cpu"
        return False if self._is_false(test) else None

    def _of_elements(self, values: ast.expr, *, decisive: bool) -> bool | None:
        """Return the value of `any(values)`, or of `all(values)`: the decisive one if an element has it."""
        if isinstance(values, (ast.GeneratorExp, ast.ListComp)):
            answer = self.without_cuda(values.elt)
            return None if answer is decisive else answer  # there may be none
        answer = of_several(map(self.without_cuda, self._elements(values)), decisive)
        is_whole = isinstance(values, (ast.List, ast.Tuple))  # else there may be more
        return answer if is_whole or answer is decisive else None

    def _elements(self, node: ast.expr) -> list[ast.expr]:
        """Return the elements of a list, or the values of a dictionary whose `values()` are asked for."""
        match node:
            case ast.Call(func=ast.Attribute(attr="values", value=whole)):
                node = whole
        display = self.facts.value(node) or node
        return display.values if isinstance(display, ast.Dict) else getattr(display, "elts", [])

    def is_named(self, own: ast.AST) -> bool:
        """Return whether other code may get a function or class by its name: another file, or by a text.

        By the text of the name of anything but a method, only code that takes the names of a module gets it.
        """
        tree, name = self.facts.tree, getattr(own, "name", "")
        by_text = isinstance(tree.parents[own], ast.ClassDef) or _TAKES_NAMES.search(tree.text)
        texts = (node for node in tree.nodes_with_name(name) if isinstance(node, ast.Constant))
        shared = self.facts.others.is_imported() and self.facts.others.is_mentioned(name)
        return shared or (bool(by_text) and any(text.value == name for text in texts))

    def _is_false(self, test: ast.expr) -> bool:
        """Return whether an expression is false where CUDA is not available."""
        match test:
            case ast.IfExp(test=inner, body=body, orelse=orelse):
                arms = ((body, True), (orelse, False))  # each is false, or is not taken
                return all(self._is_falsy(arm) or self.implies(inner, taken) for arm, taken in arms)
            case ast.Call(
                func=ast.Attribute(attr="startswith", value=value), args=[ast.Constant(value=str(text))]
            ):
                return text.removeprefix("torch.").startswith("cuda") and self._may_be_device(value)
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
                name = self.facts.resolve(kind) or ""
                return name.startswith("torch.cuda.") and name.endswith("Tensor")
            case ast.Call() | ast.ListComp() if self.lists_gpus(test):
                return True
            case ast.Call(func=function):
                own = self.refusals.own_function(function)
                is_false = own is not None and not own.decorator_list and self._never_true(own)
                return is_false or self.facts.resolve(function) in IMPLYING
            case ast.Name() | ast.Attribute():
                return self._flag(test)
        return False

    def _is_falsy(self, value: ast.expr) -> bool:
        return falsy(value) or self.implies(value)

    # -- functions, properties and flags ---------------------------------------------------------------

    def _remembered(
        self, question: tuple[object, ...], find: Callable[[], Answer], unknown: Answer
    ) -> Answer:
        """Return the answer to a question; it is unknown while it is being asked, or if too many are.

        An answer that depends on such a guess is not kept.
        """
        if question in self._known:
            known: Answer = self._known[question]
            return known
        if question in self._asking or len(self._asking) == _NESTED:
            self._guessed |= {question} & self._asking or self._asking
            return unknown
        self._asking.add(question)
        try:
            answer = find()
        finally:
            self._asking.discard(question)
            self._guessed &= self._asking
        return self._kept(answer, question, unknown=unknown)

    def _kept(self, answer: Answer, *questions: object, unknown: Answer) -> Answer:
        """Keep an answer to some questions, if no guess could change it."""
        if answer != unknown or not self._guessed:
            self._known.update(dict.fromkeys(questions, answer))
        return answer

    def _own_property(self, node: ast.Attribute) -> bool:
        """Return whether a property of the class around a place is never true without CUDA."""
        scope = self.facts.tree.scope(node)
        owner = scope.parent if isinstance(scope.node, ast.FunctionDef) else None
        found = owner.bindings.get(node.attr, ()) if owner is not None and owner.is_class else ()
        own = found[0].node if len(found) == 1 else None
        return (
            isinstance(own, ast.FunctionDef)
            and [last_name(each) in PROPERTIES for each in own.decorator_list] == [True]
            and self._never_true(own)
        )

    def _never_true(self, own: ast.FunctionDef) -> bool:
        """Return whether a function never returns a true value without CUDA."""
        return self._remembered(("never true", own), lambda: self._returns_only_false(own), False)

    def _returns_only_false(self, own: ast.FunctionDef) -> bool:
        nodes = {statement: own_nodes(statement) for statement in own.body}
        if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for found in nodes.values() for node in found):
            return False
        for statement, found in nodes.items():
            returned = ((node, node.value) for node in found if isinstance(node, ast.Return))
            if not all(
                value is None or self._is_falsy(value) or self.is_guarded(node) for node, value in returned
            ):
                return False
            if isinstance(statement, ast.If) and _ends_falsely(statement.body[-1]):
                if self.implies(statement.test, False):
                    return True
        return True

    def _flag(self, node: ast.Name | ast.Attribute) -> bool:
        """Return whether every value that a flag may have here is true only where CUDA is available."""
        bindings = self.facts.bindings(node)
        if not bindings and isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            kept = self.facts.value(node.value)  # `self.args = args`: the same object
            if isinstance(kept, ast.Name) and not self.facts.others.is_imported():
                bindings = self.facts.bindings(ast.Attribute(kept, node.attr))
        if not bindings and isinstance(node, ast.Attribute) and dotted(node) == f"self.{node.attr}":
            return self.facts.others.is_flag(node.attr) or self._own_property(node)
        near = self._near(node) if isinstance(node, ast.Name) else ()
        question = ("flag", node if near else id(bindings))
        holding = near or bindings
        if not holding:
            return isinstance(node, ast.Name) and self._is_passed(node)
        return self._remembered(question, lambda: self._set_with_cuda(holding), False)

    def _is_passed(self, node: ast.Name) -> bool:
        """Return whether this is a parameter for which all calls of its function pass a question for CUDA.

        What they pass is not followed to other flags: chains of them would take exponential time.
        """
        found = self.facts.tree.lookup(node)
        own = found[0].node if found is not None else None
        if found is None or not isinstance(own, Function):
            return False
        given = self.facts.once(_passed, found[0], node.id)
        answers = {each and truth(self.facts.value(each) or each, self._asked_for) for each in given}
        return answers == {False} and not self.is_named(own)

    def _asked_for(self, part: ast.expr) -> bool | None:
        """Return that a part of a flag is false without CUDA if it is a question for it."""
        return False if falsy(part) or self.facts.call(part, *IMPLYING) else None

    def _near(self, node: ast.Name) -> Sequence[Binding]:
        """Return the bindings of a name that may hold where it is read, none if all of them may."""
        bindings = self.facts.tree.bound(node)
        near = reaching(self.facts.tree, node, bindings)
        return near if len(near) < len(bindings) else ()

    def _set_with_cuda(self, bindings: Sequence[Binding]) -> bool:
        """Return whether bindings set a flag, and to what is true only where CUDA is available."""
        values = [(binding, binding.value) for binding in bindings]
        return any(value is not None and not falsy(value) for _, value in values) and all(
            isinstance(binding.node, ast.Delete)  # nothing is read after that
            if value is None
            else self._is_falsy(value) or self.is_guarded(binding.node)
            for binding, value in values
        )

    # -- devices and backends --------------------------------------------------------------------------

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
        """Return the value of a comparison where CUDA is not available."""
        match right:
            case ast.Constant(value=bool(value)):
                return of_truth(op, self.without_cuda(left), value)
            case ast.Constant(value=None):
                return is_none(op, self.chosen(left, self.without_cuda))
            case ast.Constant(value=int(value)):
                least = self.number(left)
                return None if least is None else of_no_gpus(op, value - least)
        if isinstance(op, _EQUALITIES):
            equal = self._is_equal(left, right)
            return equal if equal is None or isinstance(op, ast.Eq) else not equal
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            named = "cpu" in map(text_of, right.elts) and self._type_of_device(left)
            return isinstance(op, ast.In) if named else None
        if isinstance(op, (ast.In, ast.NotIn)) and (text := text_of(left)) in ("cuda", "cpu"):
            named = self._may_be_device(right) if text == "cuda" else self._type_of_device(right)
            return (text == "cpu") is isinstance(op, ast.In) if named else None
        if isinstance(op, ast.In) and text_of(left) == "nccl" and self._backend_in_use(right):
            return False
        return None

    def chosen(self, node: ast.expr, value_of: Callable[[ast.expr], bool | None]) -> ast.expr | None:
        """Return the value that a test chooses for a name, also in a function; None if none does."""
        value: ast.expr | None = self.facts.value(node) or node
        own = self.refusals.own_function(value.func) if isinstance(value, ast.Call) else None
        if own is not None and isinstance(own.body[-1], ast.Return) and len(own.body) == 1:
            value = own.body[-1].value
        if not isinstance(value, ast.IfExp):
            return None
        answer = value_of(value.test)
        return None if answer is None else value.body if answer else value.orelse

    def _is_equal(self, left: ast.expr, right: ast.expr) -> bool | None:
        """Return whether a device or backend is the one that a literal names, if CUDA is not available."""
        text = text_of(right) or device_type(self.facts, right) or ""
        made = device_named(self.facts, right) or ""
        if text == "cpu":
            return True if self._type_of_device(left) else None
        if made == "cpu" and isinstance(left, ast.Attribute) and not self.facts.bindings(left):
            return True
        if backend_name(self.facts, right) == "gloo" and self._backend_in_use(left):
            return True if self._is_asserted(left) else None
        of_cuda = text.startswith("cuda") and self._may_be_device(left)
        of_nccl = backend_name(self.facts, right) == "nccl" and self._backend_in_use(left)
        is_false = of_cuda or of_nccl or made.startswith("cuda")
        return False if is_false else None

    def _is_asserted(self, backend: ast.expr) -> bool:
        """Return whether the program asserts that a backend in use is Gloo or NCCL."""
        parents, value = self.facts.tree.parents, self.facts.value(backend)
        for read in self.facts.tree.reads(last_name(backend)):
            match parents[parents[read]]:
                case ast.Assert(test=ast.Compare(left, [ast.In()], [known])) if left is read:
                    names = {backend_name(self.facts, each) for each in getattr(known, "elts", ())}
                    return self.facts.value(read) is value is not None and names == {"gloo", "nccl"}
        return False

    def _backend_in_use(self, node: ast.expr) -> bool:
        """Return whether a value is the backend of a process group that exists: NCCL needs CUDA."""
        value: ast.expr = self.facts.value(node) or node
        match value:
            case ast.Call(func=ast.Attribute(attr="lower", value=inner), args=[]):
                return self._backend_in_use(inner)
            case ast.Call(func=ast.Name(id="str"), args=[inner]):
                return self._backend_in_use(inner)
        return self.facts.call(value, *_BACKENDS_IN_USE)

    def _may_be_device(self, node: ast.expr) -> bool:
        """Return whether a node that is "cuda" is so only where CUDA is available.

        A name says so as well: where it is wrong, what other fixes make of its value is what is found.
        """
        return self._type_of_device(node) or _device_like(node)

    def _type_of_device(self, node: ast.expr, depth: int = _DEPTH) -> bool:
        """Return whether a node is "cpu" wherever CUDA is not available: `x.device.type`, or a choice.

        A `torch.device` is no string: `torch.device("cpu") != "cpu"` is true.
        """
        match node:
            case (
                ast.Attribute(attr="type")
                | ast.Call(func=ast.Attribute(attr="type"), args=[])
                | ast.Call(func=ast.Name(id="str"), args=[ast.Attribute(attr="device")])
            ):
                return True
            case ast.Constant(value=str(text)):
                return text == "cpu" or (text.startswith("cuda") and self.is_guarded(node))
            case ast.IfExp(body=body, orelse=orelse):
                return self._type_of_device(body, depth) and self._type_of_device(orelse, depth)
        values = [binding.value for binding in self.facts.bindings(node)] if depth else []
        known = (value is not None and self._type_of_device(value, depth - 1) for value in values)
        return bool(values) and all(known)

    # -- numbers of GPUs -------------------------------------------------------------------------------

    def counts_gpus(self, node: ast.expr) -> bool:
        """Return whether an expression is the number of GPUs, and 0 where there are none."""
        return self.number(node) == 0

    def lists_gpus(self, node: ast.expr) -> bool:
        """Return whether the length of a list is such a number: `[i for i in range(device_count())]`."""
        return self.length(node) == 0

    def number(self, node: ast.expr) -> int | None:
        """Return what a number of GPUs is where there are none: 0 or 1, None if it is no such number."""
        match node:
            case ast.IfExp():
                return _literal_number(self.chosen(node, self.without_cuda))
            case ast.Subscript(value=ast.IfExp() as choice, slice=ast.Constant(value=int(place))):
                chosen = self.chosen(choice, self.without_cuda)
                elements = chosen.elts[place:] if isinstance(chosen, ast.Tuple) else []
                return _literal_number(next(iter(elements), None))
            case ast.Call(func=ast.Name(id="min"), args=[*numbers]):
                return 0 if 0 in [self.number(each) for each in numbers] else None
            case ast.Call(func=ast.Name(id="len"), args=[listed]):
                return self.length(listed)
            case ast.Call(
                func=ast.Name(id="max"),
                args=[number, ast.Constant(value=1)] | [ast.Constant(value=1), number],
            ):
                return None if self.number(number) is None else 1
            case ast.Call(func=ast.Attribute(attr="get_device"), args=[]):
                return None if self.facts.resolve(node.func) else -1
            case ast.Call():
                return 0 if self.facts.resolve(node.func) in COUNTS else None
        return self._common(node, self.number)

    def length(self, node: ast.expr) -> int | None:
        """Return the length of a list of GPUs where there are none, None if it is no such list."""
        match node:
            case (
                ast.ListComp(generators=[ast.comprehension(iter=inner), *_])
                | ast.Call(func=ast.Name(id="list" | "tuple" | "sorted"), args=[inner])
            ):
                return self.length(inner)
            case ast.Call(func=ast.Name(id="range"), args=[count]):
                return self.number(count)
        return self._common(node, self.length)

    def _common(self, node: ast.expr, find: Callable[[ast.expr], int | None]) -> int | None:
        """Return what is found for each value of a name but those that are false, None if they differ."""
        bindings = self.facts.bindings(node)
        question = (find.__name__, id(bindings))
        return self._remembered(question, lambda: _common_answer(bindings, find), None) if bindings else None


def _common_answer(bindings: Sequence[Binding], find: Callable[[ast.expr], int | None]) -> int | None:
    values = (binding.value for binding in bindings if binding.value is None or not falsy(binding.value))
    answers = (None if value is None else find(value) for value in values)
    first = next(answers, None)
    return first if first is not None and all(each == first for each in answers) else None


def _literal_number(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _passed(facts: Names, scope: Scope, name: str) -> list[ast.expr | None]:
    """Return what the calls of a module's function pass for a parameter, nothing if it has other uses."""
    tree, own = facts.tree, scope.node
    if not isinstance(own, Function) or own.decorator_list or tree.parents[own] is not tree.module:
        return []
    reads = tree.reads(own.name)
    calls = [call for read in reads if (call := tree.call_of(read)) is not None and not has_star(call)]
    if len(calls) < len(reads) or [each.parameter for each in scope.bindings[name]] != [True]:
        return []
    _, (_, place) = described(tree, own, name)
    given = (dict(arguments_of(call)) for call in calls)
    return [each.get(name, each.get(place)) for each in given]


def falsy(node: ast.expr) -> bool:
    """Check whether an expression is a literal that is false."""
    return isinstance(node, ast.Constant) and not node.value


def _ends_falsely(last: ast.stmt) -> bool:
    """Return whether a block ends with a false value or an error."""
    if isinstance(last, ast.Return):
        return last.value is None or falsy(last.value)
    return isinstance(last, ast.Raise)


def _device_like(node: ast.expr) -> bool:
    """Return whether a node is a name or attribute that is called a device, or `str(...)` of one."""
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[inner, *_]):
            return _device_like(inner)
    name = dotted(node)
    return name is not None and _DEVICE_LIKE.search(name) is not None
