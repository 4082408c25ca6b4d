"""What a rule is, and what it is handed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from devicefix import statements
from devicefix.accelerator import Accelerator
from devicefix.config import TARGETS, Settings
from devicefix.device import Devices, Use
from devicefix.facts import Facts
from devicefix.finding import Edit, Finding, Fix, Safety
from devicefix.project import Project
from devicefix.source import Source

_INNER = (ast.expr, ast.keyword, ast.arguments, ast.Assert)  # what holds no statements
# Where `a if b else c` may stand without parentheses, by parent and field.
_ROOMY = (
    ast.Call, ast.keyword, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.List,
    ast.Tuple, ast.Set, ast.Dict, ast.arguments, ast.NamedExpr, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.Yield, ast.Lambda, ast.withitem,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Changed:
    """An example that a rule matches.

    `after` is what becomes of it, None where the finding has no fix.
    """

    before: str
    after: str | None
    unsafe: bool = False


class Context:
    """Everything that a rule may ask about the module it looks at.

    `accelerator` is None unless the target is any accelerator.
    """

    def __init__(self, source: Source, facts: Facts, project: Project, path: str, settings: Settings) -> None:
        self.source = source
        self.facts = facts
        self.project = project
        self.settings = settings
        any_will_do = settings.target == "accelerator"
        self.accelerator = Accelerator(facts, settings.torch_version) if any_will_do else None
        self.devices = Devices(facts, project, path, self.accelerator)
        self.claimed: set[ast.AST] = set()

    def claim(self, *nodes: ast.AST) -> None:
        """Keep the other rules from looking at nodes, and at the expressions inside them."""
        for node in nodes:
            self.claimed.update(ast.walk(node) if isinstance(node, _INNER) else (node,))

    def replace(self, node: ast.expr, use: Use, safety: Safety = Safety.SAFE) -> Fix:
        """A fix that puts another expression in a node's place, in parentheses where it needs them."""
        text = use.text
        if " if " in text and not self._roomy(node):
            text = f"({text})"
        return Fix((Edit(*self.source.span(node), text),), safety, use.needs)

    def conditional(
        self,
        node: ast.expr,
        otherwise: str | Callable[[str], str],
        safety: Safety = Safety.SAFE,
        *,
        of_cuda: bool = False,
    ) -> Fix:
        """A fix that makes an expression `expression if torch.cuda.is_available() else otherwise`.

        `otherwise` may be made from the text of the expression.

        With any accelerator as the target, a device becomes the accelerator's, unless it is `of_cuda`, such
        as the place that a checkpoint was saved from.
        """
        named = None if of_cuda else self.devices.accelerated(node)
        use = named[0] if named else self.devices.available(node, of_cuda=of_cuda)
        roomy = self._roomy(node)
        if isinstance(otherwise, str):
            otherwise = self.source.quoted(otherwise, self.source.code(node))

        loose = isinstance(node, (ast.IfExp, ast.Lambda, ast.NamedExpr))

        def new(text: str) -> str:
            text = named[1](text) if named else f"({text})" if loose else text
            instead = otherwise if isinstance(otherwise, str) else otherwise(text)
            text = f"{text} if {use.text} else {instead}"
            return text if roomy else f"({text})"

        return Fix((Edit(*self.source.span(node), new),), safety, use.needs)

    def edit(
        self, node: ast.expr, new: str | Callable[[str], str], use: Use, safety: Safety = Safety.SAFE
    ) -> Fix:
        """A fix that changes a node's text and needs the definitions of `use`."""
        return Fix((Edit(*self.source.span(node), new),), safety, use.needs)

    def guarded(self, statement: ast.stmt, safety: Safety = Safety.SAFE) -> Fix:
        """A fix that puts a statement under `if torch.cuda.is_available():`."""
        use = self.devices.available(statement)
        return Fix((statements.under_guard(self.source, statement, use.text),), safety, use.needs)

    def _roomy(self, node: ast.expr) -> bool:
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            return False
        if isinstance(parent, ast.Dict) and node not in parent.keys:
            return parent.keys[parent.values.index(node)] is not None  # `{**node}`
        return isinstance(parent, _ROOMY)


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
        heeds_claims: whether it passes over what other rules have claimed.
        MATCHES: examples that it matches, with what becomes of them.
        LEAVES: examples that it leaves alone.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    summary: ClassVar[str]
    default: ClassVar[bool] = True
    targets: ClassVar[tuple[str, ...]] = TARGETS
    words: ClassVar[tuple[bytes, ...]] = ()
    heeds_claims: ClassVar[bool] = True
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
