"""Functions of torch.cuda that raise an error without CUDA, and the fixes of their calls."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from devicefix.devices.context import Context
from devicefix.facts.effects import ASSIGNING
from devicefix.facts.flow.forwards import Use
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.needs import of_number, use_that_needs
from devicefix.facts.flow.parameters import argument_at
from devicefix.facts.flow.settled import becomes_cpu, counts, is_move
from devicefix.facts.guards.truth import of_no_gpus
from devicefix.facts.module import Facts
from devicefix.facts.names import Names
from devicefix.facts.refusals import PRINTING, prints
from devicefix.facts.scopes import Scope
from devicefix.facts.values import last_name, literal_index
from devicefix.model import Fix
from devicefix.rules.shared.torch_facts import INSTEAD, RAISING

# Context managers.
NVTX = "torch.autograd.profiler.emit_nvtx"
_CONTEXTS = ("nvtx.range", "profiler.profile", NVTX)


# Expressions that have no effect if their parts have none.
_MADE_OF_PARTS = (
    ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.operator, ast.Tuple, ast.Attribute, ast.Subscript,
    ast.Slice, ast.UnaryOp, ast.unaryop, ast.expr_context,
)  # fmt: skip
# GPUs have bfloat16 from this capability on; and what only chooses a dtype, such as `q = q.to(torch.half)`.
_ASKED = re.compile(r"(>=|<) \(?8\b|> \(?7\b")
_CHOSEN = re.compile(r"(return |\w+ = )?(\w+\.to\()?'?(\w+\.)?(b?f(loat|p)?(16|32)|half)'?\)?")
_BFLOAT16 = "(8, 0)"
_CONVERSIONS = {"format", "str", "int", "float", "round"}
_OPEN = "other code may use the stored state or the CPU generator"
ASSIGNS = "because the call's arguments have side effects"
_SHARED = "other code may use the CPU generator"


def _arguments(node: ast.expr) -> list[ast.expr]:
    """Return what a call prints or formats, with the text whose `format` it calls."""
    assert isinstance(node, ast.Call)
    text = [node.func.value] if isinstance(node.func, ast.Attribute) and node.func.attr == "format" else []
    return [*text, *node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "file")]


def _is_state(name: str, verb: str) -> bool:
    """Return whether a function gets, or sets, the random state of one GPU or of all."""
    return name.removesuffix("_all").endswith(f"{verb}_rng_state")


def _state_of(node: ast.Call) -> ast.expr | None:
    """Return the random state that a call restores, or the seed."""
    given = (argument_of(node, name, 0) for name in ("new_state", "new_states", "seed"))
    return next(filter(None, given), None)


def _takes_current(facts: Facts, call: ast.Call) -> bool:
    """Return whether what a call takes as `device` may be the current one without an index."""
    name = facts.resolve(call.func) or ""
    return is_move(call) or (name.startswith("torch.") and not name.startswith("torch.cuda."))


class Functions:
    """The calls of torch.cuda's functions in a module.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.devices = context.devices

    def raises(self, short: str) -> bool:
        """Return whether a function of torch.cuda raises an error without CUDA.

        Args:
            short: its name behind `torch.cuda.`, or the full name of `emit_nvtx`.
        """
        return short in (*RAISING, NVTX) or (short.endswith("set_rng_state") and self._has_states("get"))

    def _has_states(self, verb: str) -> bool:
        """Return whether the module gets, or sets, random states of GPUs: None on a CPU can't be restored."""
        return self.facts.once(_uses_states, self.facts.tree.root, verb)

    def fix(self, node: ast.Call, short: str) -> Fix | None:
        """Return the fix of a call, or None if a person has to decide what to do on a CPU.

        Args:
            node: the call.
            short: as for `raises`.
        """
        if self.assigns(node):
            return None  # a guard would skip it
        if (outer := self.outer(node)) is not None:
            return self.of_outer(outer)
        if (restored := self._of_cpu(node, short)) is not None:
            return restored
        if (statement := self._skipped(node, short)) is not None:
            return self.context.put_under_guard(statement)
        return self._value(node, short)

    def assigns(self, node: ast.Call) -> bool:
        """Return whether the arguments of a call assign a name, or wait for something."""
        return any(isinstance(part, ASSIGNING) for part in ast.walk(node))

    def _skipped(self, node: ast.Call, short: str) -> ast.Expr | None:
        """Return the statement that the fix of a call skips without CUDA, None if the fix uses another value."""
        statement = self._statement(node)
        if statement is None or self.facts.tree.f_string(node) is not None:
            return statement
        return None if short in INSTEAD and prints(statement) else statement

    def site(self, node: ast.Call, short: str) -> ast.expr | ast.stmt:
        """Return the code that the fix of a call puts under a condition.

        Args:
            node: the call.
            short: as for `raises`.
        """
        if (outer := self.outer(node)) is not None:
            return self.site(outer, self._name(outer))
        return self._skipped(node, short) or node

    def value(self, node: ast.Call, fix: Fix) -> str | None:
        """Return the code that the fix of a call replaces it by on all machines, None if it keeps the call."""
        span = self.context.source.span(node)
        return next((e.new for e in fix.edits if (e.start, e.end) == span and isinstance(e.new, str)), None)

    def _value(self, node: ast.Call, short: str) -> Fix | None:
        """Return the fix that uses another value on a CPU, None if there is none."""
        parent = self.facts.tree.parents.get(node)
        if short == "current_device":
            return self._current(node, parent)
        if _is_state(short, "get"):
            if not (restored := self._restored(node)) and short.endswith("_all"):
                return None
            keeps = not self._has_states("set") or self._keeps_cpu_state(node, anywhere=not restored)
            kept = "None" if keeps else f"{self.devices.torch(node).text}.get_rng_state()"
            # Under a condition of the program, the CPU's state is not restored.
            uses = self.context.forwards.of(node).uses
            alone = restored and (keeps or not any(map(self.facts.is_guarded, uses)))
            return self.context.when_cuda(node, kept, "" if alone else _OPEN)
        if short in INSTEAD:
            return self._with_instead(node, self.instead(node, short)) if self.failing(node) is None else None
        if short == "initial_seed":
            return self.context.when_cuda(node, f"{self.devices.torch(node).text}.initial_seed()")
        if short in _CONTEXTS and isinstance(parent, ast.withitem):
            return self.entered(node)
        return None

    def entered(self, node: ast.Call) -> Fix:
        """Return the fix that enters a context only with CUDA."""
        fix = self.context.when_cuda(node, "contextlib.nullcontext()")
        return replace(fix, needs=fix.needs | self.devices.imports("contextlib", node))

    def instead(self, node: ast.Call, short: str) -> str:
        """Return the code of what a CPU has instead: it has bfloat16, if the program asks for nothing else."""
        if short == "get_device_name" and self.context.accelerator is not None:
            device = self.devices.text(node)  # that of MPS, which has no other name
            return device[0]() if device is not None else INSTEAD[short]
        asked = [self.facts.tree.parents[use] for use in self._uses(node) if "capability" in short]
        tests = [each for each in asked if not isinstance(each, (ast.Assign, ast.Subscript))]
        known = [each for each in tests if _ASKED.search(ast.unparse(each)) and self._chooses_dtype(each)]
        return _BFLOAT16 if tests and tests == known else INSTEAD[short]

    def _chooses_dtype(self, test: ast.AST) -> bool:
        """Return whether a condition, or one that holds it, only chooses a dtype."""
        if isinstance(test, (ast.If, ast.IfExp)):
            arms = [ast.unparse(each) for each in ast.iter_child_nodes(test) if each is not test.test]
            return all(map(_CHOSEN.fullmatch, arms))
        if not isinstance(test, (ast.UnaryOp, ast.BoolOp, ast.Compare)):
            return False
        found = self.context.forwards.of(test)
        uses = [] if any(map(self.context.forwards.is_shared, found.variables)) else found.uses
        return bool(uses) and all(self._chooses_dtype(self.facts.tree.parents[use]) for use in uses)

    def _with_instead(self, node: ast.Call, instead: str) -> Fix:
        """Return the fix of a call that has a value on a CPU, or of the comparison of it with more than that."""
        outer = self.facts.tree.parents.get(node)
        part = outer if isinstance(outer, ast.Subscript) else node
        match self.facts.tree.parents.get(part):
            case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.In()]) as test if (
                name not in instead
            ):
                return self.context.test_with_cuda(test, otherwise=False)
            case ast.Compare(left=left, ops=[op], comparators=[right]) as test if left is part:
                number = literal_index(getattr(right, "elts", [right])[0])
                if number is not None and (answer := of_no_gpus(op, number)) is not None:
                    return self.context.test_with_cuda(test, otherwise=answer != (instead == _BFLOAT16))
        return self.context.when_cuda(node, instead)

    def outer(self, node: ast.Call) -> ast.Call | None:
        """Return the function of torch.cuda that raises an error and that a call is an argument of."""
        calls = self.facts.tree.around(node, ast.Call)
        return next((each for each in calls if self._name(each) in RAISING), None)

    def _name(self, node: ast.Call) -> str:
        return (self.facts.resolve(node.func) or "").removeprefix("torch.cuda.")

    def of_outer(self, outer: ast.Call) -> Fix | None:
        """Return the fix of an argument of a call: nothing where the fix of the call is enough, None if it has none."""
        return Fix(()) if self.fix(outer, self._name(outer)) is not None else None

    def _statement(self, node: ast.expr) -> ast.Expr | None:
        """Return the statement to guard if it only calls the function, or prints its result and nothing else."""
        statement = self.facts.tree.statement(node)
        if not isinstance(statement, ast.Expr):
            return None
        if prints(statement):
            return statement if all(map(self._is_of_cuda, _arguments(statement.value))) else None
        chain: ast.expr = statement.value
        while isinstance(chain, (ast.Call, ast.Attribute)) and chain is not node:
            chain = chain.func if isinstance(chain, ast.Call) else chain.value
        return statement if chain is node else None

    def _is_of_cuda(self, node: ast.AST) -> bool:
        """Return whether a value is a text, or made of one and what functions of torch.cuda return."""
        if isinstance(node, ast.Call):
            if (self.facts.resolve(node.func) or "").startswith("torch.cuda."):
                return True
            return last_name(node.func) in _CONVERSIONS and all(map(self._is_of_cuda, _arguments(node)))
        return isinstance(node, _MADE_OF_PARTS) and all(map(self._is_of_cuda, ast.iter_child_nodes(node)))

    def _current(self, node: ast.Call, parent: ast.AST | None) -> Fix | None:
        """Return the fix of the index of the current GPU: the CPU, or 0, by what it is used for."""
        if is_move(parent):
            return Fix(())  # the fix of the move is enough
        if self.facts.call(parent, "torch.device"):
            return self.context.when_cuda(node, '"cpu"') if len(parent.args) == 1 else None
        if isinstance(parent, ast.Call) and last_name(parent.func) in PRINTING:
            return self.context.when_cuda(node, "-1")  # the index of a CPU, as by `Tensor.get_device`
        values, (call, place) = self.context.forwards, argument_at(self.facts.tree, node) or (None, None)
        if place == "device" and call is not None and _takes_current(self.facts, call):
            device = self.devices.shared(node, define=True)
            if device is not None:
                return self.context.edit(node, device.text, device)
        if becomes_cpu(values, node):
            return self.context.when_cuda(node, '"cpu"')
        found = values.of(node)  # where it is a device, too, that has a fix of its own
        return self.context.when_cuda(node, "0") if any(counts(values, use) for use in found.uses) else None

    def _restored(self, node: ast.Call) -> bool:
        """Return whether the random state is only restored, and its variables hold nothing else."""
        tree, found = self.facts.tree, self.context.forwards.of(node)
        holder = tree.parents.get(node)
        key = holder.keys[holder.values.index(node)] if isinstance(holder, ast.Dict) else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):  # in a checkpoint, for example
            same = (each for each in tree.nodes_with_name(key.value) if isinstance(each, ast.Constant))
            reads = [tree.parents[each] for each in same if each.value == key.value and each is not key]
            items = [each for each in reads if isinstance(each, ast.Subscript)]
            alone = len(items) == len(reads) > 0 and not self.facts.others.is_mentioned(key.value)
            return alone and all(map(self._is_restored, items))
        return bool(found.uses) and not found.parameters and all(map(self._is_restored, found.uses))

    def _is_restored(self, node: ast.expr) -> bool:
        """Return whether a function of torch.cuda gets a random state, to restore it."""
        found = argument_at(self.facts.tree, node)
        name = self.facts.resolve(found[0].func) or "" if found is not None else ""
        return name.startswith("torch.cuda.") and _is_state(name, "set")

    def replays(self, node: ast.Call, short: str, *, guarded: bool) -> bool:
        """Return whether a call seeds GPUs, or saves or restores their states, so that only they draw numbers again."""
        if "manual_seed" in short:
            between = self._saved(node) is not None and not self._keeps_cpu_state(node)
            scope = self.facts.tree.scope(node) if between else self.facts.tree.root
            # Where any accelerator is the target, DF405 finds the seeds.
            alone = not (guarded or self.context.accelerator) and self.facts.once(_seeds_only_gpus, scope)
            return alone and (between or not self.facts.others.is_mentioned_around("manual_seed"))
        if not (_is_state(short, "get") if guarded else short.endswith("rng_state_all")):
            return False
        saved = node if _is_state(short, "get") else self._saved(node)
        if saved is None or not self._has_states("set") or self._keeps_cpu_state(saved):
            return False
        elsewhere = saved is node and not self._keeps_cpu_state(saved, anywhere=True)
        return elsewhere or self._restored(saved)

    def _saved(self, node: ast.Call) -> ast.Call | None:
        """Return the call that saves the state which a call restores, or seeds anew, None if that is not shown."""
        state, tree = _state_of(node), self.facts.tree
        calls = tree.nodes_with("get_rng_state") if state is not None else ()
        saves = (each for each in calls if isinstance(each, ast.Call) and _is_state(self._name(each), "get"))
        if "manual_seed" in self._name(node):
            beside = tree.block(tree.statement(node))
            own = (each for each in saves if tree.statement(each) in beside and self._restored(each))
            return next(own, None)
        return next((each for each in saves if state in (each, *self.context.forwards.of(each).uses)), None)

    def _of_cpu(self, node: ast.Call, short: str) -> Fix | None:
        """Return the fix that restores or seeds the CPU's generator, None where the program does so itself.

        Without CUDA all numbers come from that generator, and the program may draw the same ones again.
        """
        function = short.removesuffix("_all").rpartition(".")[2]
        state = _state_of(node) if function in ("set_rng_state", "manual_seed") else None
        saved = self._saved(node)
        known = saved is not None and self._restored(saved)
        if state is None or self._keeps_cpu_state(saved or node, anywhere=not known):
            return None
        if "get_rng_state(" in self.context.source.code(state):  # what is restored is the present state
            return None
        new = f"{self.devices.torch(node).text}.{function}({self.context.source.code(state)})"
        doubt = _OPEN if function == "set_rng_state" else _SHARED
        return self.context.when_cuda(node, new, "" if known else doubt)

    def _keeps_cpu_state(self, saved: ast.Call, *, anywhere: bool = False) -> bool:
        """Return whether the function that saves a state, or any, keeps that of the CPU's generator, too."""
        names = ("torch.get_rng_state", "torch.random.get_rng_state", "torch.random.fork_rng")
        kept = (node for node in self.facts.tree.nodes_with("_rng") if self.facts.call(node, *names))
        return any(anywhere or self.facts.tree.scope(node) is self.facts.tree.scope(saved) for node in kept)

    def failing(self, node: ast.expr) -> ast.expr | None:
        """Return a use that fails for what a value is on a CPU, if any: a divisor of 0, a key, a demand for more."""
        numbers = (each for use in self._uses(node) for each in of_number(self.context.forwards, use).uses)
        return use_that_needs(self.context.forwards, Use.DEMANDED | Use.DIVISOR, numbers)

    def _uses(self, node: ast.expr) -> list[ast.expr]:
        """Return where a value is used, or a part of it."""
        values, uses = self.context.forwards, [node, *self.context.forwards.of(node).uses]
        for use in uses:
            parent = self.facts.tree.parents.get(use)
            uses += [parent] if isinstance(parent, ast.Subscript) and parent.value is use else []
            targets = ast.walk(parent.targets[0]) if isinstance(parent, ast.Assign) else ()
            names = (each for each in targets if isinstance(each, ast.Name))
            uses += [each for name in names for each in values.variable(name).reads if each not in uses]
        return uses


def _uses_states(facts: Names, _module: Scope, verb: str) -> bool:
    """Return whether a module gets, or sets, random states of GPUs."""
    calls = (node for node in facts.tree.nodes_with("_rng") if isinstance(node, ast.Call))
    names = (facts.resolve(call.func) or "" for call in calls)
    return any(name.startswith("torch.cuda.") and _is_state(name, verb) for name in names)


def _replaces_seed(facts: Names, call: ast.Call) -> bool:
    """Return whether a call is made where CUDA is not available, in place of one that seeds GPUs."""
    statement = facts.tree.statement(call)
    choice = facts.tree.parents[statement]
    is_else = isinstance(choice, ast.If) and facts.tree.block(statement) is choice.orelse
    other = choice.body[0] if is_else and isinstance(choice, ast.If) else statement
    return "cuda.manual_seed" in facts.source.code(other)


def _seeds_only_gpus(facts: Names, scope: Scope) -> bool:
    """Return whether a scope, or the module, seeds only the generators of GPUs, as far as its imports show."""
    nodes = (node for node in facts.tree.nodes_with("seed") if isinstance(node, ast.Call))
    calls = (node for node in nodes if "seed" in last_name(node.func))
    inside = (call for call in calls if scope.is_module or facts.tree.scope(call) is scope)
    names = (facts.resolve(call.func) or "random." for call in inside if not _replaces_seed(facts, call))
    return all(name.startswith(("torch.cuda.", "random.", "numpy.")) for name in names)
