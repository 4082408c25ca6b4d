"""The context of a rule: what it can ask about the module, and the fixes that it can make."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from devicefix.config.settings import RuleOptions
from devicefix.devices.accelerator import Accelerator
from devicefix.devices.choose import Devices
from devicefix.devices.expression import DeviceExpr
from devicefix.devices.translation import Translation
from devicefix.facts import AVAILABLE, Facts, dotted
from devicefix.facts.effects import has_effects
from devicefix.facts.flow.forwards import Forwards
from devicefix.facts.project import Project
from devicefix.facts.torchscript import TorchScript
from devicefix.facts.values import literal_index
from devicefix.files.text import Source
from devicefix.model import Edit, Finding, Fix, New, Removal
from devicefix.rewrite import blocks
from devicefix.rewrite.imports import without_import
from devicefix.rewrite.lines import alone
from devicefix.rewrite.operations import Chain, Conditional

_WITHOUT_STATEMENTS = (ast.expr, ast.keyword, ast.arguments, ast.Assert)
# The parents of an expression that accept `a if b else c` without parentheses.
_NO_PARENTHESES = (
    ast.Call, ast.keyword, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.List,
    ast.Tuple, ast.Set, ast.Dict, ast.arguments, ast.NamedExpr, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.Yield, ast.Lambda, ast.withitem,
)  # fmt: skip

# The parents of an expression that do not accept `a and b` without parentheses.
_OPERATIONS = (ast.UnaryOp, ast.BinOp, ast.Compare, ast.Attribute, ast.Subscript, ast.Await)
_LONGEST_REPEATED = 60  # characters
SKIPS = "without CUDA, the program also skips nested calls, which may have side effects"


class Context:
    """The facts of a module, and the fixes that several rules make.

    Args:
        source: The module's text.
        facts: The module's facts.
        project: The facts of all files.
        path: The module's path.
        options: The settings that rules may ask for.

    Attributes:
        accelerator: What any accelerator supports; None where the target is CUDA.
        devices: The devices of the module.
        translation: What translates calls of torch.cuda; None where the target is CUDA.
        is_held: Returns whether a node only runs, or is only used, where CUDA is available.
        handled: The nodes that only rules with `sees_handled` visit.
    """

    def __init__(
        self, source: Source, facts: Facts, project: Project, path: str, options: RuleOptions
    ) -> None:
        self.source = source
        self.facts = facts
        self.project = project
        self.options = options
        any_will_do = options.target == "accelerator"
        self.accelerator = Accelerator(facts, options.torch_version) if any_will_do else None
        self.devices = Devices(facts, project, path, self.accelerator)
        self.translation = (
            Translation(facts, self.devices, self.accelerator) if self.accelerator is not None else None
        )
        self.is_held: Callable[[ast.AST], bool] = facts.is_guarded
        self.handled: set[ast.AST] = set()
        self.needs_cuda: Finding | None = None  # that of an import without which the module can't be imported
        self._joined: set[ast.stmt] = set()  # what shares the guard of another statement

    @cached_property
    def forwards(self) -> Forwards:
        """Where the values of the module go."""
        return Forwards(self.facts)

    @cached_property
    def compiled(self) -> TorchScript:
        """Return what TorchScript compiles of the module."""
        return TorchScript(self.facts, self.project.compiled(self.devices.path))

    def has_builtin(self, site: ast.AST, name: str) -> bool:
        """Return whether a name is a builtin at a site: `from torch import *` also brings `max`."""
        project, path = self.project, self.devices.path
        known = all(project.has_module(path, module) for module in self.facts.tree.star_imports)
        is_bound = self.facts.tree.scope(site).lookup(name) is not None
        return known and not is_bound and name not in project.star_names(path)

    def mark_handled(self, *nodes: ast.AST) -> None:
        """Hide nodes, and the expressions inside them, from other rules."""
        for node in nodes:
            self.handled.update(ast.walk(node) if isinstance(node, _WITHOUT_STATEMENTS) else (node,))

    def hold(self, node: ast.AST) -> None:
        """Keep other fixes from translating what is inside a node, which has a fix of its own."""
        if self.translation is not None:
            self.translation.planned.update(ast.walk(node))

    def release(self, node: ast.AST) -> None:
        """Let other fixes translate what is inside a node, whose finding is dropped."""
        if self.translation is not None:
            self.translation.planned.difference_update(ast.walk(node))

    def replace(self, node: ast.expr, new: DeviceExpr, why: str = "") -> Fix:
        """Return a fix that replaces an expression, with parentheses where the new one needs them."""
        is_operand = isinstance(self.facts.tree.parents.get(node), _OPERATIONS)
        is_part = " and " in new.text and is_operand
        needs_parentheses = is_part or (" if " in new.text and not self._accepts_conditional(node))
        fix = self.edit(node, f"({new.text})" if needs_parentheses else new.text, new, why)
        is_number = literal_index(node) is not None  # of whatever accelerator there is
        return replace(fix, needs=fix.needs | self.devices.of_others) if is_number else fix

    def may_repeat(self, node: ast.expr) -> bool:
        """Return whether a fix may write an expression twice, because it is short."""
        code = self.source.code(node)
        return len(code) <= _LONGEST_REPEATED and not {"\n", "\r"} & {*code}

    def when_cuda(
        self, node: ast.expr, otherwise: New, why: str = "", *, of_cuda: bool = False, on_mps: bool = True
    ) -> Fix:
        """Return a fix that makes an expression `expression if torch.cuda.is_available() else otherwise`.

        Args:
            node: The expression. If the target is any accelerator, a device becomes the accelerator's.
            otherwise: The code for a machine without CUDA, or what makes it from the expression.
            why: Why the fix is not safe; empty if it is.
            of_cuda: Whether the expression needs CUDA whatever the target, as a checkpoint's device does.
            on_mps: Whether the expression is right on MPS, too.
        """
        if otherwise == '"gloo"' and not of_cuda and (fix := self.devices.backend(node)) is not None:
            return replace(fix, why=why)
        accelerated = None if of_cuda else self.devices.accelerated(node)
        if self.accelerator is not None and not on_mps:
            question = self.devices.beyond_mps(node)
        else:
            question = accelerated[0] if accelerated else self.devices.question(node, of_cuda=of_cuda)
        if isinstance(otherwise, str):
            otherwise = self.source.quoted(otherwise, self.source.code(node))
        needs = question.needs
        match self.facts.tree.parents.get(node):
            case ast.Expr() as statement if isinstance(otherwise, str) and not accelerated:
                edits = blocks.choose(self.facts, statement, question.text, otherwise)
            case ast.Assign(targets=[target]) as statement if self.source.code(target) == otherwise:
                edits = blocks.choose(self.facts, statement, question.text, otherwise)
            case ast.IfExp(test, body, other) if body is node and self.source.code(other) == otherwise:
                joined = f" and {question.text}"
                edits = (Edit(*self.source.span(test), lambda code: blocks.operand(code) + joined),)
            case parent:
                choice = Conditional(question.text, otherwise, brackets=not self._accepts_conditional(node))
                new: New = Chain((accelerated[1], choice)) if accelerated else choice
                around = None if accelerated else self._shared_condition(node, choice)
                is_part = isinstance(parent, ast.IfExp) or self.facts.call(parent, "torch.device")
                shared = None if is_part else self.devices.of_function(node, choice)
                if shared is not None:
                    new, needs = shared[0], needs | {shared[1]}
                edits = (Edit(*self.source.span(node), new, removal=around),)
        fix = self._translated(Fix(edits, why, needs), *(() if of_cuda else (node,)))
        if isinstance(otherwise, str) and not why and has_effects(self.facts, node):
            fix = replace(fix, why=SKIPS)
        return fix

    def keep_for_cuda(self, node: ast.expr, otherwise: New, device: DeviceExpr) -> Fix:
        """Return the fix that keeps an expression for CUDA; other accelerators, and the CPU, get another one.

        Args:
            node: The expression.
            otherwise: What makes the other expression from it.
            device: The device that the other expression uses.
        """
        self.hold(node)
        return self.when_cuda(node, otherwise, of_cuda=True).joined(Fix((), needs=device.needs))

    def serves_others(self, node: ast.AST) -> bool:
        """Return whether code is that of CUDA in a choice whose other arm uses the device of the accelerator.

        Args:
            node: The question, or a part of the arm for CUDA.
        """
        for child, choice in self.facts.tree.ancestors(node):
            if not isinstance(choice, (ast.IfExp, ast.If)) or not self.facts.call(choice.test, AVAILABLE):
                continue
            arms = choice.orelse if isinstance(choice.orelse, list) else [choice.orelse]
            device = self.devices.shared(choice, may_be_text=True)
            names = [device.text] if device is not None else []
            parts = (part for arm in arms if arm is not child for part in ast.walk(arm))
            if any(isinstance(part, ast.expr) and self._is_accelerator(part, names) for part in parts):
                return child not in arms
        return False

    def _is_accelerator(self, node: ast.expr, names: list[str]) -> bool:
        """Return whether an expression is the device of the accelerator, by one of its names or itself."""
        return dotted(node) in names or (self.facts.resolve(node) or "").startswith("torch.accelerator.")

    def _shared_condition(self, node: ast.expr, choice: Conditional) -> Removal | None:
        """Return how the arms of a conditional expression share a condition that they all get."""
        parent = self.facts.tree.parents.get(node)
        if not isinstance(parent, ast.IfExp) or node is parent.test or has_effects(self.facts, parent.test):
            return None
        span = self.source.span(parent)
        choice = replace(choice, brackets=not self._accepts_conditional(parent))
        return Removal(span[0], 2, Edit(*span, choice, removal=self._shared_condition(parent, choice)))

    def test_with_cuda(self, test: ast.expr, *, otherwise: bool) -> Fix:
        """Return a fix that evaluates a test only with CUDA, and has another result without it.

        Args:
            test: The test.
            otherwise: The result without CUDA.
        """
        question = self.devices.question(test)
        guard = f"not {question.text} or" if otherwise else f"{question.text} and"
        parent = self.facts.tree.parents.get(test)
        operator = ast.Or if otherwise else ast.And
        is_operand = isinstance(parent, ast.BoolOp) and isinstance(parent.op, operator)
        is_test = isinstance(parent, (ast.If, ast.While, ast.Assert, ast.IfExp))
        bare = is_operand or is_test or self._accepts_conditional(test)
        fix = self.edit(test, lambda text: f"{guard} {text}" if bare else f"({guard} {text})", question)
        fix = self._translated(fix, test)
        return replace(fix, why=SKIPS) if has_effects(self.facts, test) else fix

    def chosen_with_cuda(self, node: ast.expr) -> Fix | None:
        """Return the fix that adds CUDA to the condition for an expression, None if it is no arm of one."""
        choice = self.facts.tree.parents.get(node)
        if not isinstance(choice, ast.IfExp) or node is choice.test or self.accelerator is not None:
            return None
        chosen, available = node is choice.body, self.devices.available(choice.test)
        code = f"and {available.text}" if chosen else f"or not {available.text}"
        return self.edit(choice.test, lambda text: f"{blocks.operand(text)} {code}", available)

    def edit(self, node: ast.expr, new: New, use: DeviceExpr, why: str = "") -> Fix:
        """Return a fix that changes the code of a node.

        Args:
            node: The node.
            new: The new code, or an operation or function that makes it from the old code.
            use: The expression that the new code uses, for what it needs.
            why: Why the fix is not safe; empty if it is.
        """
        return Fix((Edit(*self.source.span(node), new),), why, use.needs)

    def replace_statement(self, statement: ast.stmt, code: str, why: str = "") -> Fix:
        """Return a fix that replaces a statement without blocks, such as an assignment, by other code.

        Args:
            statement: The statement.
            code: One or more statements on one line.
            why: Why the fix is not safe; empty if it is.
        """
        return Fix((blocks.replace_statement(self.source, statement, self.source.quoted(code)),), why)

    def put_under_guard(self, statement: ast.stmt) -> Fix:
        """Return a fix that puts a statement under `if torch.cuda.is_available():`."""
        question = self.devices.question(statement)
        match statement:
            case ast.Expr(value=ast.Call(func=func, args=args, keywords=keywords)):
                parts: list[ast.AST] = [*ast.iter_child_nodes(func), *args, *keywords]
            case _:
                parts = [statement]
        why = SKIPS if any(has_effects(self.facts, part) for part in parts) else ""
        statements = [statement, *(() if why else self._neighbours(statement))]
        edits = (blocks.put_under_guard(self.facts, each, question.text) for each in statements)
        return self._translated(Fix(tuple(edits), why, question.needs), *statements)

    def _translated(self, fix: Fix, *sites: ast.AST) -> Fix:
        """Return a fix that puts sites under a guard for the target, and translates the calls inside."""
        if self.translation is None:
            return fix
        return fix.joined(*map(self.translation.inside, sites))

    def _neighbours(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """Yield the statements right above and below one that do nothing without CUDA."""
        if self.accelerator is not None or self.facts.is_guarded(statement):
            return
        block, at = self.facts.tree.block(statement), self.facts.tree.position(statement)
        for step in (-1, 1):
            last = statement
            for place in range(at + step, len(block) if step > 0 else -1, step):
                each = block[place]
                upper, lower = (each, last) if step < 0 else (last, each)
                touch = upper.end_lineno is not None and lower.lineno == upper.end_lineno + 1
                if not touch or not self._does_nothing(each) or each in self._joined:
                    break
                self._joined.add(each)
                yield each
                last = each

    def _does_nothing(self, statement: ast.stmt) -> bool:
        """Return whether a statement on lines of its own does nothing without CUDA, and raises no error."""
        match statement:
            case ast.Expr(value=ast.Call(args=[], keywords=[]) as call):
                return self.facts.call(call, "torch.cuda.empty_cache") and alone(self.source, statement)
        return False

    def without_import(self, name: str, *gone: ast.AST) -> tuple[Edit, ...]:
        """Return the edits that remove the import of a name that a fix leaves unused.

        Add them to the edits of the fix that removes the last use. There are none if the name is used
        elsewhere, also in another file, or if the module is an `__init__.py`, whose imports others may use.

        Args:
            name: The name that the import binds, such as `Variable`.
            gone: The nodes that the fix removes or replaces.
        """
        path = self.devices.path
        if path.replace("\\", "/").endswith("__init__.py") or self.project.is_read_elsewhere(path, name):
            return ()
        return without_import(self.facts, name, gone)

    def _accepts_conditional(self, node: ast.expr) -> bool:
        """Return whether `a if b else c` can replace an expression without parentheses."""
        parent = self.facts.tree.parents.get(node)
        if self.facts.tree.call_of(node) is not None:
            return False
        if isinstance(parent, ast.Dict):
            return parent.keys[self.facts.tree.place(node)] is not None  # `{**node}`
        start, end = self.source.span(node)
        has_brackets = self.source.text[start - 1 : start] + self.source.text[end : end + 1] == "()"
        return has_brackets or isinstance(parent, _NO_PARENTHESES)
