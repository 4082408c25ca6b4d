"""The harm that a number of 0 does where it is used."""

from __future__ import annotations

import ast
from enum import Enum

from devicefix.facts import Facts
from devicefix.facts.flow.parameters import argument_at
from devicefix.facts.values import last_name
from devicefix.rules.shared.counts.followed import PROCESSES, CountUses
from devicefix.rules.shared.counts.ranges import iterated, made_of

_SPAWNS = ("spawn", "start_processes")
_FACTORIES = {"zeros", "ones", "empty", "full", "rand", "randn", "eye", "arange", "randperm"}
_RESHAPES = {"view", "reshape", "expand", "repeat", "unflatten", "new_zeros", "new_ones", "new_empty"}
_ELEMENTS = {"choice", "max", "min", "next", "cat", "concat", "concatenate", "stack", "vstack", "hstack"}
_ANY = range(8)  # the positions of arguments
_SPLITS = (_ANY, {"chunks", "split_size", "split_size_or_sections", "sections", "indices_or_sections"})
_POOL = (range(1), {"processes", "max_workers"})
# The arguments, by function, for which 0 is an error: their positions and keywords.
_NOT_ZERO = {
    **dict.fromkeys(("chunk", "split", "tensor_split", "array_split", "hsplit", "vsplit", "dsplit"), _SPLITS),
    **dict.fromkeys(("Pool", "ThreadPool", "ThreadPoolExecutor", "ProcessPoolExecutor"), _POOL),
    "DistributedSampler": (range(1, 2), {"num_replicas"}),
    "randrange": (_ANY, set[str]()),
    "integers": (_ANY, {"high"}),
    "randint": (_ANY, {"high"}),
}
# The positions of arguments that are numbers of processes, by function.
_PROCESS_POSITIONS = {"spawn": 2, "start_processes": 2, "init_process_group": 3}


class Harm(Enum):
    """The harm that a number of 0 does to a program."""

    NOTHING_DONE = 0  # also where the user of a machine with CUDA asks for 0
    ERROR = 1  # on every machine


class Harms:
    """The harm that a number of GPUs does where it is used, if it is 0.

    Args:
        facts: the facts of the module.
        uses: where numbers go.
    """

    def __init__(self, facts: Facts, uses: CountUses) -> None:
        self.facts = facts
        self.uses = uses
        self._asked: set[ast.Call] = set()  # the ranges over GPUs that are being judged

    def of(self, node: ast.expr) -> Harm | None:
        """Return what a number that is 0 does where it is used, None if nothing is known to be wrong."""
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.Call():
                return self._as_argument(parent, node, None)
            case ast.keyword(arg=str(name)):
                call = self.facts.tree.parents.get(parent)
                return self._as_argument(call, node, name) if isinstance(call, ast.Call) else None
            case ast.BinOp(left=left, op=op, right=right):
                return self._as_right(parent, op, left) if node is right else self._as_left(parent, op, right)
            case ast.AugAssign(op=op, target=target):
                return self._as_right(parent, op, target)
            case ast.Tuple() | ast.List():
                return self._as_element(parent)
            case ast.Slice(step=step) if step is node:
                return Harm.ERROR
        return None

    def _as_right(self, parent: ast.AST, op: ast.operator, left: ast.expr) -> Harm | None:
        """Return what a number that is 0 does on the right of an operator."""
        if isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)):
            is_text = isinstance(left, ast.Constant) and isinstance(left.value, (str, bytes))
            formats = is_text or isinstance(left, ast.JoinedStr)
            return None if formats else Harm.ERROR
        return self._as_factor(parent, left) if isinstance(op, ast.Mult) else None

    def _as_left(self, parent: ast.BinOp, op: ast.operator, right: ast.expr) -> Harm | None:
        """Return what a number that is 0 does on the left of an operator."""
        if isinstance(op, ast.Mult):
            return self._as_factor(parent, right)
        if not isinstance(op, ast.Sub):
            return None
        outer = self.facts.tree.parents.get(parent)
        match outer:
            case ast.Subscript(slice=index) if index is parent:
                return Harm.NOTHING_DONE
            case ast.Compare(ops=[ast.Eq() | ast.NotEq()]):
                return Harm.NOTHING_DONE
            case ast.Call(func=func) if self.facts.resolve(func) == "random.randint":
                return Harm.ERROR
        return None

    def _as_factor(self, parent: ast.AST, other: ast.expr) -> Harm | None:
        if not isinstance(other, ast.List):
            return Harm.NOTHING_DONE
        return self._of_empty(parent) if isinstance(parent, ast.expr) else None

    def _as_argument(self, call: ast.Call, node: ast.expr, keyword: str | None) -> Harm | None:
        """Return what a number that is 0 does as an argument."""
        function = last_name(call.func)
        if function == "range":
            return self._of_range(call)
        position = call.args.index(node) if keyword is None and node in call.args else -1
        if self._is_error(call, function, position, keyword):
            return Harm.ERROR
        counts = _PROCESS_POSITIONS.get(function) == position or PROCESSES.search(keyword or "")
        return Harm.NOTHING_DONE if counts or (position >= 0 and self._is_sized(call)) else None

    def _is_error(self, call: ast.Call, function: str, position: int, keyword: str | None) -> bool:
        """Return whether 0 is an error as an argument."""
        if keyword == "num_workers":
            return any(each.arg in ("persistent_workers", "prefetch_factor") for each in call.keywords)
        positions, keywords = _NOT_ZERO.get(function, ((), ()))
        includes = self.facts.resolve(call.func) == "random.randint"  # its upper bound is drawn, too
        return not includes and (position in positions or keyword in keywords)

    def _is_sized(self, call: ast.Call) -> bool:
        """Return whether the arguments of a call are the size of a tensor or array."""
        name = self.facts.resolve(call.func)
        if name is None:
            return isinstance(call.func, ast.Attribute) and call.func.attr in _RESHAPES
        return name.startswith(("torch.", "numpy.")) and last_name(call.func) in _FACTORIES

    def _as_element(self, node: ast.Tuple | ast.List) -> Harm | None:
        """Return what a number that is 0 does among the arguments of a process, or in a size."""
        call, _ = argument_at(self.facts.tree, node) or (None, None)
        if call is None:
            return None
        starts = last_name(call.func) in (*_SPAWNS, "Process")
        return Harm.NOTHING_DONE if starts or (node in call.args and self._is_sized(call)) else None

    def _of_range(self, call: ast.Call) -> Harm | None:
        """Return what an empty range does."""
        if call in self._asked:
            return None  # what is part of the loop itself does not need it to run
        self._asked.add(call)
        try:
            parent = self.facts.tree.parents.get(call)
            if isinstance(parent, ast.For):
                return Harm.NOTHING_DONE if _starts_processes(parent) or self._leaves_empty(parent) else None
            made = made_of(self.facts.tree, call)
            return self._of_empty(made) if made is not None else None
        finally:
            self._asked.discard(call)

    def _leaves_empty(self, loop: ast.For) -> bool:
        """Return whether a list, of which an element is used, gets its elements in a loop alone."""
        for part in ast.walk(loop):
            match part:
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name() as filled, attr="append"))):
                    made = (binding.value for binding in self.facts.bindings(filled))
                    empty = (each for each in made if isinstance(each, ast.List) and not each.elts)
                    if any(self._of_empty(each) is not None for each in empty):
                        return True
        return False

    def _of_empty(self, node: ast.expr) -> Harm | None:
        """Return what an empty list does where it is used."""
        uses = (use for use in self.uses.of(node).uses if self.needs_element(use))
        return None if all(map(self._in_harmless_loop, uses)) else Harm.NOTHING_DONE

    def _in_harmless_loop(self, node: ast.AST) -> bool:
        """Return whether code is part of a loop over all GPUs that may do nothing."""
        calls = (each for each in iterated(self.facts.tree, node) if isinstance(each, ast.Call))
        return any(self.facts.guards.lists_gpus(each) and self._of_range(each) is None for each in calls)

    def needs_element(self, node: ast.expr) -> bool:
        """Return whether a list is used in a way that raises an error if it is empty."""
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.Subscript(value=value, slice=index):
                return node is value and not isinstance(index, ast.Slice)
            case ast.Attribute(attr="pop") | ast.keyword(arg="choices"):
                return True
            case ast.Call(func=func) if node in parent.args:
                if last_name(func) == "len":
                    return any(map(self.of, self.uses.follow(parent).uses))
                return last_name(func) in _ELEMENTS
        return False


def _starts_processes(node: ast.For) -> bool:
    """Return whether a loop starts a process in every iteration."""
    parts = (part for statement in node.body for part in ast.walk(statement))
    return any(isinstance(part, ast.Call) and last_name(part.func) in ("Popen", "Process") for part in parts)
