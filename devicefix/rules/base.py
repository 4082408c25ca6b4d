"""What a rule is, and what it is handed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from devicefix.config.values import TARGETS
from devicefix.devices.context import Context
from devicefix.model import Finding, Fix


@dataclass(frozen=True, slots=True)
class Changed:
    """An example that a rule matches.

    `after` is what becomes of it, None where the finding has no fix.
    """

    before: str
    after: str | None
    unsafe: bool = False


class Rule:
    """One kind of tie to CUDA: how to find it, and what to make of it.

    A rule looks at the syntax tree through methods named `visit_` and a class of `ast`, which yield
    findings. Its docstring is its page of documentation, and its examples are its tests.

    Attributes:
        code: `DF` and three digits, the first of which is the family.
        name: a few words in kebab-case.
        summary: one line for lists of rules.
        default: whether the rule is on when nothing selects it.
        targets: the targets with which it is on at all.
        words: what it looks for in files that hold none of the words of `gate`.
        sees_handled: whether it also sees nodes that other rules have marked as handled.
        MATCHES: examples that it matches, with what becomes of them.
        LEAVES: examples that it leaves alone.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    summary: ClassVar[str]
    default: ClassVar[bool] = True
    targets: ClassVar[tuple[str, ...]] = TARGETS
    words: ClassVar[tuple[bytes, ...]] = ()
    sees_handled: ClassVar[bool] = False
    MATCHES: ClassVar[tuple[Changed, ...]] = ()
    LEAVES: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.devices = context.devices

    def finding(self, node: ast.expr | ast.stmt | ast.arg, message: str, fix: Fix | None = None) -> Finding:
        """A finding of this rule at a node."""
        start, end = self.context.source.span(node)
        return Finding(
            self.code, message, *self.context.source.position(start), *self.context.source.position(end), fix
        )


def visitors(rule: Rule) -> Iterator[tuple[type[ast.AST], Callable[[ast.AST], Iterator[Finding]]]]:
    """The node classes that a rule looks at, each with its method."""
    for kind, name in visitors_of(type(rule)):  # type: ignore[arg-type]  # mypy takes the class for an object
        yield kind, getattr(rule, name)


@cache
def visitors_of(rule: type) -> tuple[tuple[type[ast.AST], str], ...]:
    """The node classes that a class of rules looks at, each with the name of its method.

    Raises:
        AttributeError: a method is for what is no class of `ast`.
    """
    names = (name for name in dir(rule) if name.startswith("visit_"))
    return tuple((getattr(ast, name.removeprefix("visit_")), name) for name in names)
