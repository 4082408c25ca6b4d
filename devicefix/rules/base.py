"""The base class of rules, and their examples."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from textwrap import dedent
from typing import ClassVar

from devicefix.config.evidence import Seen
from devicefix.config.values import TARGETS
from devicefix.devices.context import Context
from devicefix.facts import Facts
from devicefix.facts.exports.imports import full_names
from devicefix.facts.flow.merged import merged_devices
from devicefix.facts.scopes import Scope
from devicefix.model import Finding, Fix

Visit = Callable[[ast.AST], Iterator[Finding]]

_BREAK = re.compile(r"\s*[\r\n]\s*")  # in code that a message quotes
_CLASSES = [each for each in vars(ast).values() if isinstance(each, type)]
_STATEMENTS = tuple(each for each in _CLASSES if issubclass(each, ast.stmt) and each._fields)


class Example:
    """An example of code that a rule reports or leaves alone.

    Write the code as an indented block. A text that begins with a newline is dedented and loses that newline;
    any other text is taken as it is, for an example that needs exact tabs or line endings.

    Args:
        name: what is special about the example, in words; unique within the rule.
        before: the code.
        after: the code once it is rewritten, or None if the finding has no fix.
        unsafe: whether the fix needs `--unsafe-fixes`.
        seen: what runs have shown in the code, for a rule that needs it.
    """

    def __init__(
        self,
        name: str,
        before: str,
        after: str | None = None,
        unsafe: bool = False,
        seen: Sequence[Seen] = (),
    ) -> None:
        self.name = name
        self.unsafe = unsafe
        self.seen = seen
        self._before = before  # dedented when asked for: a run loads all examples and needs none
        self._after = after

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @cached_property
    def before(self) -> str:
        """The code, dedented."""
        return _dedent(self._before)

    @cached_property
    def after(self) -> str | None:
        """The code once it is rewritten, dedented."""
        return None if self._after is None else _dedent(self._after)


class Rule:
    """The base class of rules, which find code that is tied to CUDA and build its fixes.

    devicefix creates a new instance of a rule for each file. A method named after a class of `ast`, such as
    `visit_Call`, receives the nodes of this class and yields findings. There are two more methods:

    - `visit_statement(node)` receives every statement except `pass`, `break` and `continue`.
    - `visit_reference(node, name)` receives the names and attributes that resolve to one of `references`, under
      any alias.

    Statements are visited in the order of the source. In each statement, the rules that declare `before` visit
    all nodes first. Then the other rules visit the nodes, outer expressions before inner ones. A node that a rule
    has marked as handled (`self.context.mark_handled`) is hidden from the rules that have not visited it yet.

    The docstring of a rule is its page in the documentation, and its examples are its tests.

    Attributes:
        code: capital letters and digits. The codes of devicefix's own rules are `DF` and three digits, the first of
            which is the category.
        name: a few words in kebab-case.
        summary: one line for lists of rules.
        default: whether the rule is enabled by default.
        targets: the targets for which the rule can be enabled.
        words: the words that the rule searches for, as bytes. A file is parsed if it contains `torch` and a word
            of any enabled rule. In this file, only statements that contain a word are visited, regardless of
            case. An alias counts as a word if the full name of the import contains one. By default, the words
            are the last parts of `references`.
        companions: more words. A file is parsed for `words` only if it also contains one of these. By default,
            there are none, and `words` are sufficient.
        common_words: words that are too common to parse a file for, such as `device`. In parsed files, the
            statements that contain one of these words are visited as well.
        references: the fully qualified names whose uses are passed to `visit_reference`, such as
            `torch.cuda.amp.custom_fwd`.
        attributes: the attributes that `visit_Attribute` receives, such as `index` for `x.index`. By default, it
            receives all attributes.
        before: the codes of rules that must run after this rule. This rule visits each statement first. If its
            fix overlaps with a fix of those rules, its own fix is applied.
        sees_handled: whether the rule also visits nodes that other rules have handled.
        needs_run: whether the rule reports only what a run has shown.
        fails: whether the code that the rule finds raises an error without CUDA.
        only_cuda: whether the code that the rule finds works only with CUDA, even if it does not name CUDA.
        INVALID: examples that the rule reports, with their rewritten code.
        VALID: examples that look similar, but are not reported.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    summary: ClassVar[str]
    default: ClassVar[bool] = True
    targets: ClassVar[tuple[str, ...]] = TARGETS
    words: ClassVar[tuple[bytes, ...]] = ()
    companions: ClassVar[tuple[bytes, ...]] = ()
    common_words: ClassVar[tuple[bytes, ...]] = ()
    references: ClassVar[tuple[str, ...]] = ()
    attributes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    sees_handled: ClassVar[bool] = False
    needs_run: ClassVar[bool] = False
    fails: ClassVar[bool] = True
    only_cuda: ClassVar[bool] = False
    INVALID: ClassVar[tuple[Example, ...]] = ()
    VALID: ClassVar[tuple[Example, ...]] = ()

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.devices = context.devices
        self._wanted = "CUDA" if context.accelerator is None else "an accelerator"  # for messages
        of_cuda = "it only if CUDA is available"
        self._advised = of_cuda if context.accelerator is None else "an accelerator if one is available"

    def _wanted_at(self, site: ast.AST) -> str:
        """Return what a condition around code asks for, in the words of a message."""
        accelerator = self.context.accelerator
        return "CUDA" if accelerator is None or accelerator.only_cuda(site) is not None else "an accelerator"

    def _advice_to_call(self, call: ast.Call, site: ast.AST) -> str:
        """Return what the fix of a call to torch.cuda does, in the words of a message.

        Args:
            call: the call.
            site: the code that the fix puts under a condition.
        """
        accelerator, wanted = self.context.accelerator, self._wanted_at(site)
        found = accelerator.counterpart(call.func) if accelerator is not None and wanted != "CUDA" else None
        advice = f"use `torch.{found.name}`" if found is not None else "call it only"
        if found is not None and accelerator is not None and accelerator.fails_on_mps(call.func):
            wanted += " other than MPS"
        return f"{advice} if {wanted} is available"

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        """Check a name or attribute that resolves to one of `references`.

        Args:
            node: the expression, such as `amp.custom_fwd`.
            name: its full name by the imports of the module, such as `torch.cuda.amp.custom_fwd`.

        Yields:
            The findings.
        """
        yield from ()

    def finding(
        self,
        node: ast.expr | ast.stmt | ast.arg | ast.keyword,
        message: str,
        fix: Fix | None = None,
        unless: str = "",
    ) -> Finding:
        """Return a finding of this rule at a node.

        Args:
            node: the code that the finding is about.
            message: what is wrong, then what to do, in lower case and without a period.
            fix: the fix, or None.
            unless: why this finding has no fix. Use it if other findings with the same message have one.
        """
        start, end = self.context.source.span(node)
        message = _BREAK.sub(" ", message) + (f" (unsafe: {fix.why})" if fix and fix.why else "")
        places = *self.context.source.position(start), *self.context.source.position(end)
        found = Finding(self.code, message, *places, fix)
        merged = self.facts.once(merged_devices, self.facts.tree.root) if fix is not None else {}
        if node in merged and not found.is_unsafe_for(["may equal another one"]):
            why = f"line {merged[node]} distinguishes this device from another one, but after the fix, both can be the CPU"
            found = found.unsafe(why)
        return found.unfixed(unless) if unless and fix is None else found


def words_of(rule: type[Rule]) -> tuple[bytes, ...]:
    """Return the words that a rule declares, or by default the last parts of its references."""
    return rule.words or tuple(name.rpartition(".")[2].encode() for name in rule.references)


def visitors(rule: Rule) -> Iterator[tuple[type[ast.AST], Visit]]:
    """Yield each class of node that a rule visits, with the method that does."""
    for kind, name in visitors_of(type(rule)):  # type: ignore[arg-type]  # mypy takes the class for an object
        visit: Visit = getattr(rule, name)
        yield kind, visit
    if rule.references:
        visit = _reference_visitor(rule)
        yield ast.Attribute, visit
        imported = rule.facts.once(_imported_names, rule.facts.tree.root)
        if not imported.isdisjoint(_importing(rule.references)):  # else a mere name can't stand for one
            yield ast.Name, visit


@cache
def visitors_of(rule: type) -> tuple[tuple[type[ast.AST], str], ...]:
    """Return each class of node that a rule visits, with the name of its method.

    Raises:
        AttributeError: a method is named after something that is not a class of `ast`.
    """
    found: list[tuple[type[ast.AST], str]] = []
    for name in dir(rule):
        kind = name.removeprefix("visit_")
        if kind == "statement":
            found += ((statement, name) for statement in _STATEMENTS)
        elif kind not in (name, "reference"):
            found.append((getattr(ast, kind), name))
    return tuple(found)


@cache
def attributes_of(rules: tuple[type[Rule], ...]) -> frozenset[str] | None:
    """Return the names of the attributes that some rules visit, None if one of them visits all."""
    names: set[str] = set()
    for rule in rules:
        if any(kind is ast.Attribute for kind, _ in visitors_of(rule)):  # type: ignore[arg-type]  # as in `visitors`
            if not rule.attributes:
                return None
            names.update(rule.attributes)
        names.update(_endings(rule.references))
    return frozenset(names)


def _imported_names(facts: Facts, _module: Scope) -> frozenset[str]:
    """Return the full names of what a module imports."""
    return frozenset(name for node in facts.tree.imports for name in full_names(node))


@cache
def _importing(references: tuple[str, ...]) -> frozenset[str]:
    """Return what imports of some names import, by the names or by a star."""
    return frozenset(each for name in references for each in (name, f"{name.rpartition('.')[0]}.*"))


@cache
def _endings(references: tuple[str, ...]) -> frozenset[str]:
    """Return the last parts of some names."""
    return frozenset(name.rpartition(".")[2] for name in references)


def _reference_visitor(rule: Rule) -> Visit:
    """Return a method for names and attributes that calls `visit_reference` for those of `references`."""
    references = tuple(rule.references)
    endings = _endings(references)
    facts = rule.facts
    nothing: Iterator[Finding] = iter(())

    def visit(node: ast.AST) -> Iterator[Finding]:
        assert isinstance(node, (ast.Attribute, ast.Name))
        if isinstance(node, ast.Attribute):
            if node.attr not in endings:
                return nothing
        elif not isinstance(node.ctx, ast.Load) or any(binding.value for binding in facts.bindings(node)):
            return nothing  # a variable: the reference is where it gets its value
        name = facts.resolve(node)
        return rule.visit_reference(node, name) if name in references else nothing

    return visit


def _dedent(text: str) -> str:
    return dedent(text.removeprefix("\n")) if text.startswith("\n") else text
