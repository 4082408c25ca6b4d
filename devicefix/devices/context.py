"""Everything that a rule may ask about the module it looks at."""

from __future__ import annotations

import ast
from collections.abc import Callable

from devicefix.config.settings import Settings
from devicefix.devices.accelerator import Accelerator
from devicefix.devices.choose import DeviceExpr, Devices
from devicefix.facts import Facts
from devicefix.facts.project import Project
from devicefix.files.text import Source
from devicefix.model import Edit, Fix, Safety
from devicefix.rewrite import blocks as statements
from devicefix.rewrite.imports import without_import

_INNER = (ast.expr, ast.keyword, ast.arguments, ast.Assert)  # what holds no statements
# Where `a if b else c` may stand without parentheses, by parent and field.
_ROOMY = (
    ast.Call, ast.keyword, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.List,
    ast.Tuple, ast.Set, ast.Dict, ast.arguments, ast.NamedExpr, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.Yield, ast.Lambda, ast.withitem,
)  # fmt: skip


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
        self.handled: set[ast.AST] = set()

    def mark_handled(self, *nodes: ast.AST) -> None:
        """Keep the other rules from looking at nodes, and at the expressions inside them."""
        for node in nodes:
            self.handled.update(ast.walk(node) if isinstance(node, _INNER) else (node,))

    def replace(self, node: ast.expr, use: DeviceExpr, safety: Safety = Safety.SAFE) -> Fix:
        """A fix that puts another expression in a node's place, in parentheses where it needs them."""
        text = use.text
        if " if " in text and not self._roomy(node):
            text = f"({text})"
        return Fix((Edit(*self.source.span(node), text),), safety, use.needs)

    def when_cuda(
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
        self, node: ast.expr, new: str | Callable[[str], str], use: DeviceExpr, safety: Safety = Safety.SAFE
    ) -> Fix:
        """A fix that changes a node's text and needs the definitions of `use`."""
        return Fix((Edit(*self.source.span(node), new),), safety, use.needs)

    def put_under_guard(self, statement: ast.stmt, safety: Safety = Safety.SAFE) -> Fix:
        """A fix that puts a statement under `if torch.cuda.is_available():`."""
        use = self.devices.available(statement)
        return Fix((statements.under_guard(self.source, statement, use.text),), safety, use.needs)

    def without_import(self, name: str, *gone: ast.AST) -> tuple[Edit, ...]:
        """Return the edits that remove the import of a name which a fix leaves unused.

        Add them to the edits of the fix that removes the last use. There are none where the import has to stay:
        the name is used elsewhere, or the module is an `__init__.py`, whose imports others may use.

        Args:
            name: the name that the import binds, such as `Variable`.
            gone: nodes that the fix removes or replaces.
        """
        if self.devices.path.replace("\\", "/").endswith("__init__.py"):
            return ()
        return without_import(self.source, self.facts.tree.module, name, gone)

    def _roomy(self, node: ast.expr) -> bool:
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            return False
        if isinstance(parent, ast.Dict) and node not in parent.keys:
            return parent.keys[parent.values.index(node)] is not None  # `{**node}`
        return isinstance(parent, _ROOMY)
