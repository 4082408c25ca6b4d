"""Decide what has to become of a number of GPUs that may be 0."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from devicefix.facts import COUNTS, Facts, of_any_count
from devicefix.facts.scopes import captured, dotted
from devicefix.facts.values import last_name
from devicefix.rules.shared.counts.followed import CountUses, counts_processes
from devicefix.rules.shared.counts.harm import Harm, Harms
from devicefix.rules.shared.counts.ranges import is_needed, made_of
from devicefix.rules.shared.torch_facts import RAISING_IN_FULL

# Arguments of libraries, for which 0 is the CPU and 1 a GPU.
_LIBRARY = re.compile(r"(n_?|num_?)?(gpus?|devices)(_per_\w+)?")
_DEPTH = 4  # how many names to follow to the values they are bound to
_OBJECTS = {"dict", "Namespace", "SimpleNamespace"}


class Counts:
    """The numbers of GPUs in one module.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.uses = CountUses(facts)
        self._harms = Harms(facts, self.uses)

    def judge(self, count: ast.expr) -> tuple[dict[ast.expr, Harm], bool]:
        """Return the uses that a number of 0 harms, and whether it has to be at least 1 where it is made.

        Otherwise only the uses that it harms need at least 1, since others ask whether it is 0.
        """
        found = self.uses.follow(count)
        uses = (use for use in found.uses if not self._is_for_cuda(use))
        harmed = {use: harm for use in uses if (harm := self._harms.of(use)) is not None}
        differs = any(map(self.differs, found.uses))
        needed = harmed or counts_processes(found)
        whole = not isinstance(count, ast.Constant) and bool(needed) and not differs
        return harmed, count in harmed or whole

    def _is_for_cuda(self, use: ast.expr) -> bool:
        """Return whether a use is in the arguments of a function that the program calls only with CUDA, once mended."""
        calls = self.facts.tree.around(use, ast.Call)
        return any(self.facts.resolve(call.func) in RAISING_IN_FULL for call in calls)

    def escapes(self, node: ast.expr) -> bool:
        """Return whether a use binds a name to the number, or to a list of as many, in a way that is not followed."""
        listed = (use for use in self._uses_of_list(node) if not self._harms.needs_element(use))
        return self._is_lost(node) or any(map(self._is_lost, listed))

    def _is_lost(self, node: ast.expr) -> bool:  # noqa: C901, PLR0911, PLR0912 (one case a kind of node)
        """Return whether a use binds a name to a value in a way that is not followed."""
        for child, parent in self.facts.tree.ancestors(node):
            match parent:
                case ast.List() | ast.Tuple() | ast.Set() | ast.Dict() | ast.Starred():
                    continue
                case ast.ListComp(elt=element) | ast.SetComp(elt=element) if child is element:
                    continue
                case ast.BoolOp(op=ast.And(), values=[*_, last]):
                    outer = self.facts.tree.parents.get(parent)
                    tested = isinstance(outer, (ast.If, ast.While, ast.IfExp, ast.Expr))
                    return isinstance(last, ast.Call) and not tested
                case ast.Subscript(value=value) if child is value:
                    return True
                case ast.Call(func=function) if child is not function:
                    if isinstance(function, ast.Lambda) or is_needed(self.facts.tree, parent):
                        return True
                    if last_name(function) in ("next", "cls"):
                        return True
                    if last_name(function) not in ("iter", "nullcontext", "len", "int"):
                        return False
                case ast.For(iter=iterated) | ast.comprehension(iter=iterated):
                    return child is iterated and child is not node
                case ast.Assign(targets=[ast.Tuple() | ast.List()]):
                    return child is not node
                case ast.Match():
                    return any(captured(*parent.cases))
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

    def works(self, node: ast.expr) -> bool:
        """Return whether a use makes a loop that works on each GPU, and fills what the program reads, unchecked."""
        loop = self.facts.tree.parents.get(self.facts.tree.parents[node])
        if not isinstance(loop, ast.For) or loop.orelse or self._asks_gpus(loop.iter):
            return False
        parts = {part for statement in loop.body for part in ast.walk(statement)}
        working = self.facts.guards.lists_gpus(loop.iter) and any(map(self._works, parts))
        reads = [read for path in _filled(parts) for read in self.facts.tree.reads(path) if read not in parts]
        return working and bool(reads) and not any(self.differs(self._length(read)) for read in reads)

    def _works(self, node: ast.AST) -> bool:
        """Return whether a node moves or makes a tensor, or calls a function of the program or a thread."""
        if not isinstance(node, ast.Call):
            return getattr(node, "arg", "") == "device"
        own = self.facts.guards.refusals.own_function(node.func)
        return own is not None or last_name(node.func) in ("cuda", "to", "put", "submit")

    def is_checked(self, node: ast.expr) -> bool:
        """Return whether a number of GPUs makes a list, and the program checks whether that is empty."""
        return any(self.differs(use) or self.differs(self._length(use)) for use in self._uses_of_list(node))

    def _uses_of_list(self, node: ast.expr) -> Sequence[ast.expr]:
        """Return the uses of the list that is made of a range up to a number."""
        call = self.facts.tree.parents.get(node)
        if not isinstance(call, ast.Call) or last_name(call.func) != "range":
            return ()
        made = made_of(self.facts.tree, call)
        return self.uses.of(made).uses if made is not None else ()

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
        values = [binding.value for binding in self.facts.bindings(node)]
        return bool(values) and all(value is not None and question(value, depth - 1) for value in values)

    @cached_property
    def _options(self) -> set[str]:
        """The attributes that hold an option of the command line."""
        return {name for name, *_ in self.facts.options}

    def _asks_gpus(self, call: ast.expr) -> bool:
        """Return whether something is asked of each GPU in a range, which fails where there is none."""
        loop = self.facts.tree.parents.get(call)
        if isinstance(loop, ast.comprehension):
            loop = self.facts.tree.parents.get(loop)
        parts = ast.walk(loop) if isinstance(loop, (ast.For, ast.expr)) else ()
        names = {self.facts.resolve(part.func) or "" for part in parts if isinstance(part, ast.Call)}
        return any(name.startswith("torch.cuda.") for name in names - {*COUNTS, "torch.cuda.device"})


def _filled(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names and attributes to which some nodes add something."""
    for node in nodes:
        match node:
            case ast.AugAssign(target=owner) | ast.Subscript(value=owner, ctx=ast.Store()):
                yield dotted(owner) or ""
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner))):
                yield dotted(owner) or ""
