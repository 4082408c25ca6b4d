"""The fixes of questions whether there is CUDA, or whether a tensor is on it, with the code that they guard."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from devicefix.devices.arguments import device_argument, runtime_device, target_device
from devicefix.devices.context import Context
from devicefix.devices.expression import DeviceExpr
from devicefix.devices.methods import CustomCuda, custom_cuda, may_be_storage
from devicefix.facts.flow.kinds import NUMBERS
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.parameters import unpacks
from devicefix.facts.flow.sinks import LOADS
from devicefix.facts.refusals import PRINTING
from devicefix.facts.texts import text_of
from devicefix.facts.values import cuda_device, is_constant, last_name
from devicefix.model import Edit, Fix
from devicefix.rewrite.operations import Move
from devicefix.rules.guarded_move import GuardedMove
from devicefix.rules.shared.regions import Regions
from devicefix.rules.typed_tensor import default_type

_OTHERS = re.compile("mps|xpu|npu|hpu|mlu|musa|xla|tpu")
_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Assert, ast.Delete)
UNKNOWN = "the guarded code may need CUDA"


class Questions:
    """The questions of a module that other accelerators can answer as well.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        assert context.accelerator is not None and context.translation is not None
        self.context = context
        self.facts = context.facts
        self.devices = context.devices
        self.accelerator = context.accelerator
        self.translation = context.translation
        collapses = GuardedMove.code in context.options.enabled
        self._regions = Regions(context, context.accelerator, collapses=collapses)

    def fix(self, node: ast.expr, fix: Fix, *, counts: bool = False) -> tuple[Fix, ast.AST | None]:
        """Return the fix of a question with that of the code it guards, and what of this only CUDA supports.

        Args:
            node: the question.
            fix: the fix of the question alone.
            counts: whether the answer is a number of GPUs.

        Returns:
            The fix; it is unsafe where the guarded code is not known. And the first node that only CUDA supports:
            then the question has no fix. None if there is none.
        """
        regions = self._regions.of(node, counts)
        if regions is None:
            return replace(fix, why=UNKNOWN), None
        changes: dict[ast.AST, Fix] = {}
        own = self._own(regions)
        inside = {part for statement in own for part in ast.walk(statement)}
        parts = [part for region in regions for part in ast.walk(region)]
        inside.update(part.value for part in parts if isinstance(part, ast.MatchValue))  # which is compared
        for part in (part for part in parts if part not in inside):
            change = self._change(part)
            if change is None:
                references = (each for region in regions for each in self.accelerator.references(region))
                self.translation.planned.update(filter(self.accelerator.counterpart, references))
                return fix, part
            if change.edits and part not in self.translation.planned:
                changes[part] = change
        self.translation.planned |= changes.keys()
        guards = (self._default(each) or self.context.put_under_guard(each) for each in own)
        return fix.joined(*changes.values(), *guards), None

    def _own(self, regions: Sequence[ast.AST]) -> list[ast.Expr]:
        """Return the statements that get a guard for CUDA of their own: some of several that only call CUDA."""
        parts = [part for region in regions for part in ast.walk(region) if isinstance(part, _SIMPLE)]
        calls = [part for part in parts if isinstance(part, ast.Expr) and self._calls_cuda(part.value)]
        return calls if len(calls) < len(parts) else []

    def _default(self, statement: ast.Expr) -> Fix | None:
        """Return the fix of a statement that sets the default type of tensors, None for another one."""
        match statement:
            case ast.Expr(value=ast.Call(args=[kind])):
                name = text_of(kind) or self.facts.resolve(kind) or ""
                return default_type(self.context, kind, name.removeprefix("torch.cuda."))
        return None

    def _calls_cuda(self, node: ast.expr) -> bool:
        """Return whether an expression is a call that only CUDA supports."""
        if not isinstance(node, ast.Call):
            return False
        is_type = len(node.args) == 1 and self.accelerator.is_cuda_only(node.args[0])
        return self.accelerator.is_cuda_only(node.func) or (
            is_type and self.facts.call(node, "torch.set_default_tensor_type")
        )

    def excludes_mps(self, node: ast.expr) -> bool:
        """Return whether the code that depends on a question uses tensors in a way that fails on MPS."""
        return any(map(self.accelerator.excludes_mps, self.guarded(node)))

    def failing_on_mps(self, node: ast.expr) -> list[ast.expr]:
        """Return the calls that fail on MPS in the expressions that depend on a question."""
        regions = (region for region in self.guarded(node) if isinstance(region, ast.expr))
        parts = (part for region in regions for part in self.accelerator.references(region))
        return [part for part in parts if self.accelerator.fails_on_mps(part)]

    def is_one_of_many(self, node: ast.expr) -> bool:
        """Return whether a question is the test of a branch beside one for another accelerator."""
        choice = self.facts.tree.statement(node)
        while isinstance(choice, ast.If) and isinstance(outer := self.facts.tree.parents[choice], ast.If):
            if choice not in outer.orelse:
                break
            choice = outer
        tests: list[ast.expr] = []
        branches: list[ast.stmt] = [choice]
        while len(branches) == 1 and isinstance(branch := branches[0], ast.If):
            tests.append(branch.test)
            branches = branch.orelse
        is_test = any(node is part for test in tests for part in ast.walk(test))
        return is_test and any(_OTHERS.search(ast.unparse(test)) for test in tests)

    def guarded(self, node: ast.expr) -> list[ast.AST]:
        """Return the code that depends on the answer to a question, as far as it is known."""
        return self._regions.of(node, counts=False) or []

    def _change(self, node: ast.AST) -> Fix | None:
        """Return the fix that makes a guarded node work on any accelerator, or None if it is specific to CUDA."""
        nothing = Fix(())
        match node:
            case ast.Call(func=ast.Attribute(attr="cuda")):
                return self._move(node) if self.facts.resolve(node.func) is None else nothing
            case ast.Call() if self.facts.call(node, *LOADS):
                return nothing if self._is_located(argument_of(node, "map_location", -1)) else None
            case ast.Call(func=ast.Name()) if self._needs_cuda(node.func):
                return None
            case ast.Constant(value="nccl"):
                return self.devices.backend(node)
            case ast.expr() if cuda_device(self.facts, node) and self._value(node):
                accelerated = self.devices.accelerated(node)
                if accelerated is None or not self.facts.is_guarded(node):
                    return nothing  # a number, which fits any of them; a device that has a rule of its own
                use, change = accelerated
                return Fix((Edit(*self.context.source.span(node), change),), needs=use.needs)
            case ast.Constant() | ast.Name() | ast.Attribute() | ast.Import() | ast.ImportFrom():
                return None if self.accelerator.is_cuda_only(node) else nothing
        return nothing

    def _is_located(self, where: ast.expr | None) -> bool:
        """Return whether a checkpoint is loaded to a device: without a location, it may be CUDA."""
        where = self.facts.value(where) or where if where is not None else None
        if isinstance(where, ast.IfExp):
            return all(map(self._is_located, (where.body, where.orelse)))
        is_device = isinstance(where, (ast.Name, ast.Attribute)) or is_constant(where, "cpu")
        return is_device or (where is not None and cuda_device(self.facts, where))

    def _needs_cuda(self, function: ast.expr) -> bool:
        """Return whether a function of the module has what only CUDA supports in it."""
        own = self.facts.guards.refusals.own_function(function)
        return own is not None and self.accelerator.only_cuda(own) is not None

    def _move(self, node: ast.Call) -> Fix | None:
        """Return the fix that replaces `.cuda()` by `.to(device)`, or None."""
        assert isinstance(node.func, ast.Attribute)
        receiver, target = node.func.value, device_argument(node)
        if unpacks(node) or may_be_storage(self.context, receiver):
            return None
        if custom_cuda(self.context, receiver) is not CustomCuda.NEVER:
            return None
        use = target_device(self.context, node, target)
        if target is not None and self.facts.kinds.of(target).are(NUMBERS):
            use = DeviceExpr(self.context.source.code(target))  # of an accelerator, which is there
        if use is None and target is not None:
            use = runtime_device(self.context, node, target)
        return self.context.edit(node, Move(use.text), use) if use is not None else None

    def _value(self, node: ast.expr) -> bool:
        """Return whether a device is used as one, and not compared, printed, or part of another."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, (ast.Compare, ast.Subscript, ast.JoinedStr, ast.BinOp, ast.Expr)):
            return False
        if isinstance(parent, ast.Dict) and node in parent.keys:
            return False
        if isinstance(parent, ast.Call):
            # `torch.device("cuda")` is replaced as a whole.
            return last_name(parent.func) not in PRINTING and not cuda_device(self.facts, parent)
        return True
