"""The harm that the number of GPUs does where it is used, if it is 0."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cached_property

from devicefix.facts import COUNTS, Facts, of_any_count
from devicefix.facts.scopes import captures
from devicefix.facts.uses import Followed, Uses
from devicefix.facts.values import last_name
from devicefix.rules.shared.functions import RAISING

_RAISING = frozenset(f"torch.cuda.{name}" for name in RAISING)
_PROCESSES = re.compile(
    r"(^|_)(nprocs?|n_procs|num_procs|world_size|worldsize|num_processes|nproc_per_node|num_replicas)\Z"
)
# Arguments of libraries, for which 0 is the CPU and 1 a GPU.
_LIBRARY = re.compile(r"(n_?|num_?)?(gpus?|devices)(_per_\w+)?")
_SPAWNS = ("spawn", "start_processes")
_FACTORIES = {"zeros", "ones", "empty", "full", "rand", "randn", "eye", "arange", "randperm"}
_RESHAPES = {"view", "reshape", "expand", "repeat", "unflatten", "new_zeros", "new_ones", "new_empty"}
_ELEMENTS = {"choice", "max", "min", "next", "cat", "concat", "concatenate", "stack", "vstack", "hstack"}
_PASSING = {"min", "int", "abs", "get", "getenv", "getattr"}  # they return 0 for 0, or the default
_OBJECTS = {"dict", "Namespace", "SimpleNamespace"}
_DEPTH = 4  # how many names to follow to the values they are bound to
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


# Options of torchrun, accelerate and deepspeed.
_OPTION = re.compile(r"--(nproc|n|num)[_-](per[_-]node|processes|gpus)[ =]\Z")


class Harm(Enum):
    """The harm that a number of 0 does to a program."""

    NOTHING_DONE = 0  # also where the user of a machine with CUDA asks for 0
    ERROR = 1  # on every machine


class Counts:
    """The uses of the number of GPUs in one module.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.uses = Uses(facts, zero=True)
        self._asked: set[ast.Call] = set()  # the ranges over GPUs that are being judged

    def follow(self, count: ast.expr) -> Followed:
        """Return where a number goes that is 0 without CUDA, also through functions that return 0 for 0."""
        found = Followed()
        todo, seen = [count], set[ast.expr]()
        while todo:
            part = self.uses.of(todo.pop())
            found.variables += part.variables
            for use in part.uses:
                call = self._passing(use)
                if call is None:
                    found.uses.append(use)
                elif call not in seen:
                    seen.add(call)
                    todo.append(call)
        return found

    def _passing(self, node: ast.expr) -> ast.Call | None:
        """Return the call that returns 0 if an argument is, or returns that argument as a default."""
        call = self.facts.tree.parents.get(node)
        if not isinstance(call, ast.Call) or node not in call.args:
            return None
        if last_name(call.func) == "range" and call.args == [node]:
            outer = self.facts.tree.parents.get(call)
            return outer if isinstance(outer, ast.Call) and last_name(outer.func) == "len" else None
        return call if last_name(call.func) in _PASSING else None

    def judge(self, count: ast.expr) -> tuple[dict[ast.expr, Harm], bool]:
        """Return the uses that a number of 0 harms, and whether it has to be at least 1 where it is made.

        Otherwise only the uses that it harms need at least 1, since others ask whether it is 0.
        """
        found = self.follow(count)
        uses = (use for use in found.uses if not self._is_for_cuda(use))
        harmed = {use: harm for use in uses if (harm := self.harm(use)) is not None}
        differs = any(map(self.differs, found.uses))
        needed = harmed or _counts_processes(found)
        whole = not isinstance(count, ast.Constant) and bool(needed) and not differs
        return harmed, count in harmed or whole

    def _is_for_cuda(self, use: ast.expr) -> bool:
        """Return whether a use is in the arguments of a function that the program calls only with CUDA, once mended."""
        calls = (parent for _, parent in self.facts.tree.ancestors(use) if isinstance(parent, ast.Call))
        return any(self.facts.resolve(call.func) in _RAISING for call in calls)

    def is_idle(self, node: ast.AST) -> bool:
        """Return whether code is part of a loop over all GPUs, which does nothing without CUDA, also after fixes."""
        return self._counts_gpus and any(map(self._stays_empty, self._iterated(node)))

    @cached_property
    def _counts_gpus(self) -> bool:
        """Whether the module may count GPUs."""
        return "device_count" in self.facts.tree.text  # the last part of each of COUNTS

    def _iterated(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield what the loops around a node iterate over, in statements and comprehensions."""
        for child, parent in self.facts.tree.ancestors(node):
            match parent:
                case ast.For(body=body, iter=iterated) if child in body:
                    yield iterated
                case ast.comprehension(ifs=tests, iter=iterated) if child in tests:
                    yield iterated
                case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                    inner = parent.generators.index(child) if isinstance(child, ast.comprehension) else None
                    yield from (each.iter for each in parent.generators[:inner])

    def _stays_empty(self, iterated: ast.expr) -> bool:
        """Return whether a loop over `range(…)` is one over all GPUs, of which none are needed."""
        if not isinstance(iterated, ast.Call) or not self.facts.guards.lists_gpus(iterated):
            return False
        [number] = iterated.args
        judged = map(self.judge, self._origins(number, set()))
        return not self._is_needed(iterated) and not any(
            whole or number in harmed for harmed, whole in judged
        )

    def _origins(self, number: ast.expr, seen: set[ast.AST]) -> Iterator[ast.expr]:
        """Yield the calls that count GPUs, and each 0, that a number of GPUs may be."""
        for node in {*ast.walk(number)} - seen:
            seen.add(node)
            match node:
                case ast.Call() | ast.Constant() if is_zero(node) or self.facts.call(node, *COUNTS):
                    yield node
                case ast.Name() | ast.Attribute():
                    for value in filter(None, (binding.value for binding in self.facts.bindings(node))):
                        yield from self._origins(value, seen)

    def harm(self, node: ast.expr) -> Harm | None:
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
            case ast.Subscript(slice=index, value=table) if node is index:
                return Harm.ERROR if self._lacks_zero(table) else None
            case ast.Tuple() | ast.List():
                return self._as_element(parent)
            case ast.FormattedValue():
                return Harm.NOTHING_DONE if self._is_option(parent) else None
        return None

    def _is_option(self, node: ast.FormattedValue) -> bool:
        """Return whether a part of an f-string is the number of processes in a command: `--nproc_per_node={n}`."""
        text = self.facts.tree.parents[node]
        assert isinstance(text, ast.JoinedStr)
        before = text.values[: text.values.index(node)][-1:]
        return any(isinstance(part, ast.Constant) and _OPTION.search(str(part.value)) for part in before)

    def escapes(self, node: ast.expr) -> bool:
        """Return whether a use binds a name to the number, or to a list of as many, in a way that is not followed."""
        call = self.facts.tree.parents.get(node)
        made = self._made_of(call) if isinstance(call, ast.Call) and last_name(call.func) == "range" else None
        uses = self.uses.of(made).uses if made is not None else []
        return self._is_lost(node) or any(self._is_lost(use) for use in uses if not self._needs_element(use))

    def _is_lost(self, node: ast.expr) -> bool:  # noqa: C901, PLR0911, PLR0912 (one case a kind of node)
        """Return whether a use binds a name to a value in a way that is not followed."""
        for child, parent in self.facts.tree.ancestors(node):
            match parent:
                case ast.List() | ast.Tuple() | ast.Set() | ast.Dict() | ast.Starred():
                    continue
                case ast.ListComp(elt=element) | ast.SetComp(elt=element) if child is element:
                    continue
                case ast.BoolOp(op=ast.And(), values=[*_, last]):
                    tested = isinstance(
                        self.facts.tree.parents.get(parent), (ast.If, ast.While, ast.IfExp, ast.Expr)
                    )
                    return isinstance(last, ast.Call) and not tested
                case ast.Subscript(value=value) if child is value:
                    return True
                case ast.Call(func=function) if child is not function:
                    if isinstance(function, ast.Lambda) or self._is_needed(parent):
                        return True
                    if last_name(function) == "next":
                        return True
                    if last_name(function) not in ("iter", "nullcontext", "len", "int"):
                        return False
                case ast.For(iter=iterated) | ast.comprehension(iter=iterated):
                    return child is iterated and child is not node
                case ast.Assign(targets=[ast.Tuple() | ast.List()]):
                    return child is not node
                case ast.Match():
                    return captures(parent)
                case ast.keyword():
                    call = self.facts.tree.parents.get(parent)
                    return isinstance(call, ast.Call) and last_name(call.func) in _OBJECTS
                case ast.Return():
                    decorators = getattr(self.facts.tree.scope(parent).node, "decorator_list", ())
                    return any(isinstance(each, ast.Lambda) for each in decorators)  # the name is no function
                case ast.Compare(left=left, comparators=others):
                    if any(map(self.facts.guards.counts_gpus, (left, *others))):
                        return False  # the rule for refusals checks it
                case ast.Assert(test=test):
                    return not self.facts.guards.implies(test)
                case _:
                    return isinstance(parent, (ast.withitem, ast.Lambda, ast.Yield))
        return False

    def _is_needed(self, call: ast.Call) -> bool:
        """Return whether an error follows a loop over `range(…)` that leaves the function in its body."""
        loop = self.facts.tree.parents.get(call)
        if last_name(call.func) != "range" or not isinstance(loop, ast.For):
            return False
        block = self.facts.tree.block(loop)
        after = [*loop.orelse, *block[block.index(loop) + 1 :]][:1]
        return (
            isinstance(loop.body[-1], (ast.Return, ast.Break))
            and bool(after)
            and isinstance(after[0], ast.Raise)
        )

    def differs(self, node: ast.expr) -> bool:
        """Return whether a use means something else for 1 than for 0, or may do so."""
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.Compare(ops=[op, *_], comparators=[ast.Constant(value=int(value)), *_]):
                return of_any_count(op, value) is not None
            case ast.If() | ast.IfExp() | ast.BoolOp() | ast.While() | ast.UnaryOp(op=ast.Not()):
                return True
            case ast.keyword(arg=str(name)):
                return bool(_LIBRARY.fullmatch(name))
            case ast.Call(func=ast.Name(id="range")):
                return self._asks_gpus(parent)
        return False

    def is_checked(self, node: ast.expr) -> bool:
        """Return whether a number of GPUs makes a list, and the program checks whether that is empty."""
        call = self.facts.tree.parents.get(node)
        made = self._made_of(call) if isinstance(call, ast.Call) and last_name(call.func) == "range" else None
        uses = self.uses.of(made).uses if made is not None else []
        return any(self.differs(use) or self.differs(self._length(use)) for use in uses)

    def _length(self, node: ast.expr) -> ast.expr:
        """Return the call of `len` around a list, or else the list."""
        call = self.facts.tree.parents.get(node)
        return call if isinstance(call, ast.Call) and last_name(call.func) == "len" else node

    def is_natural(self, node: ast.expr, depth: int = _DEPTH) -> bool:
        """Return whether an expression is the number of GPUs, or a literal number that is not negative."""
        match node:
            case ast.Constant(value=value):
                return type(value) is int and value >= 0
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_natural(body, depth) and self.is_natural(orelse, depth)
            case ast.BoolOp(values=values):
                return all(self.is_natural(value, depth) for value in values)
        return self.is_count(node, depth) or self._are_bound(node, self.is_natural, depth)

    def is_count(self, node: ast.expr, depth: int = _DEPTH) -> bool:
        """Return whether an expression is the number of GPUs, and nothing that a user chose."""
        return self.facts.call(node, *COUNTS) or self._are_bound(node, self.is_count, depth)

    def _are_bound(self, node: ast.expr, question: Callable[[ast.expr, int], bool], depth: int) -> bool:
        """Return whether the answer is yes for all values that a name or an attribute is bound to."""
        if not depth or (isinstance(node, ast.Attribute) and node.attr in self._options):
            return False
        bindings = self.facts.bindings(node)
        return bool(bindings) and all(
            binding.value is not None and question(binding.value, depth - 1) for binding in bindings
        )

    @cached_property
    def _options(self) -> set[str]:
        """The attributes that hold an option of the command line."""
        return {name for name, _ in self.facts.options}

    def _asks_gpus(self, call: ast.Call) -> bool:
        """Return whether something is asked of each GPU in a range, which fails where there is none."""
        loop = self.facts.tree.parents.get(call)
        if isinstance(loop, ast.comprehension):
            loop = self.facts.tree.parents.get(loop)
        return isinstance(loop, (ast.For, ast.expr)) and any(
            (self.facts.resolve(node.func) or "").startswith("torch.cuda.")
            for node in ast.walk(loop)
            if isinstance(node, ast.Call) and node not in call.args
        )

    def _as_right(self, parent: ast.AST, op: ast.operator, left: ast.expr) -> Harm | None:
        """Return what a number that is 0 does on the right of an operator."""
        if isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)):
            formats = isinstance(left, ast.JoinedStr) or (
                isinstance(left, ast.Constant) and isinstance(left.value, (str, bytes))
            )
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
        counts = _PROCESS_POSITIONS.get(function) == position or (
            keyword is not None and _PROCESSES.search(keyword)
        )
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
        parent = self.facts.tree.parents.get(node)
        call = self.facts.tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call):
            return None
        handed = last_name(call.func) in (*_SPAWNS, "Process")
        return Harm.NOTHING_DONE if handed or (node in call.args and self._is_sized(call)) else None

    def _of_range(self, call: ast.Call) -> Harm | None:
        """Return what an empty range does."""
        if call in self._asked:
            return None  # what is part of the loop itself does not need it to run
        self._asked.add(call)
        try:
            parent = self.facts.tree.parents.get(call)
            if isinstance(parent, ast.For):
                return Harm.NOTHING_DONE if _starts_processes(parent) or self._leaves_empty(parent) else None
            made = self._made_of(call)
            return self._of_empty(made) if made is not None else None
        finally:
            self._asked.discard(call)

    def _made_of(self, call: ast.Call) -> ast.expr | None:
        """Return the list that is made of a range, or the range itself."""
        made: ast.AST | None = call
        parent = self.facts.tree.parents.get(call)
        if isinstance(parent, ast.comprehension):
            made = parent = self.facts.tree.parents.get(parent)
            parent = self.facts.tree.parents.get(parent)
        if isinstance(parent, ast.Call) and last_name(parent.func) in ("list", "tuple"):
            made = parent
        return made if isinstance(made, ast.expr) else None

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
        uses = (use for use in self.uses.of(node).uses if self._needs_element(use))
        return None if all(map(self._in_harmless_loop, uses)) else Harm.NOTHING_DONE

    def _in_harmless_loop(self, node: ast.AST) -> bool:
        """Return whether code is part of a loop over all GPUs that may do nothing."""
        return any(
            isinstance(iterated, ast.Call)
            and self.facts.guards.lists_gpus(iterated)
            and self._of_range(iterated) is None
            for iterated in self._iterated(node)
        )

    def _needs_element(self, node: ast.expr) -> bool:
        """Return whether a list is used in a way that raises an error if it is empty."""
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.Subscript(value=value, slice=index):
                return node is value and not isinstance(index, ast.Slice)
            case ast.Attribute(attr="pop"):
                return True
            case ast.Call(func=func) if node in parent.args:
                if last_name(func) == "len":
                    return any(map(self.harm, self.follow(parent).uses))
                return last_name(func) in _ELEMENTS
        return False

    def _lacks_zero(self, table: ast.expr) -> bool:
        """Return whether a dictionary has no entry for 0."""
        value = table if isinstance(table, ast.Dict) else self.facts.value(table)
        return isinstance(value, ast.Dict) and all(
            isinstance(key, ast.Constant) and key.value != 0 for key in value.keys
        )


def _counts_processes(found: Followed) -> bool:
    """Return whether an attribute that holds a value is a number of processes, judged by its name."""
    return any(variable.attribute and _PROCESSES.search(variable.name) for variable in found.variables)


def is_zero(node: ast.AST) -> bool:
    """Return whether a node is the literal 0."""
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0


def _starts_processes(node: ast.For) -> bool:
    """Return whether a loop starts a process in every iteration."""
    return any(
        isinstance(inner, ast.Call) and last_name(inner.func) in ("Popen", "Process")
        for statement in node.body
        for inner in ast.walk(statement)
    )
