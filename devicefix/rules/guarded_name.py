from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import Binding
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule


class GuardedName(Rule):
    """
    ## What it does
    Finds names that are only defined if CUDA is available, and used where it may not be.

    ## Why it matters
    On a CPU the use raises a NameError or an UnboundLocalError.

    ## Example
    ```python
    if torch.cuda.is_available():
        device = torch.device("cuda:0")
    model.to(device)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    model.to(device)
    ```

    ## Fix safety
    There is no fix: define the name for the CPU, before the guard or in an `else`.
    """

    code = "DF703"
    name = "guarded-name"
    summary = "A name is only defined with CUDA, but used without it"
    words = (b"cuda",)
    common_words = (b"device", b"gpu")
    INVALID = (
        Example(
            "a device that is used behind the guard",
            before="""
                import torch

                if torch.cuda.is_available():
                    device = torch.device('cuda:0')
                net.to(device)
            """,
        ),
    )
    VALID = (
        Example(
            "both branches bind the name",
            """
                import torch

                if torch.cuda.is_available():
                    device = 'cuda'
                else:
                    device = 'cpu'
                net.to(device)
            """,
        ),
        Example(
            "bound before the guard",
            """
                import torch

                device = 'cpu'
                if torch.cuda.is_available():
                    device = 'cuda'
                net.to(device)
            """,
        ),
        Example(
            "used under the same flag",
            """
                import torch

                use = torch.cuda.is_available()
                if use:
                    d = 'cuda'
                if use:
                    net.to(d)
            """,
        ),
        Example(
            "used under the guard only",
            """
                import torch

                if torch.cuda.is_available():
                    d = 'cuda'
                    net.to(d)
            """,
        ),
    )

    def visit_If(self, node: ast.If) -> Iterator[Finding]:
        guards = self.facts.guards
        if not guards.implies(node.test) or guards.refusal(node) is not None or guards.is_guarded(node):
            return
        uses: dict[str, ast.expr | None] = {}
        for statement in node.body:
            if not isinstance(statement, ast.Assign):
                continue
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    if target.id not in uses:
                        uses[target.id] = self._used(target, node)
                    use = uses[target.id]
                    if use is not None:
                        message = f"`{target.id}` is only defined with CUDA, but used in line {use.lineno}"
                        yield self.finding(target, f"{message}; define it for the CPU too")

    def _only_here(self, bindings: list[Binding], node: ast.If) -> bool:
        """Return whether every binding of a name is in the body of the `if`."""
        lines = range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)
        return bool(bindings) and all(
            isinstance(binding.node, ast.stmt) and binding.node.lineno in lines for binding in bindings
        )

    def _used(self, target: ast.Name, node: ast.If) -> ast.expr | None:
        """Return the first use of a name after the only `if` that defines it, or None.

        The use is in the same scope, and not under a guard.
        """
        tree = self.facts.tree
        scope = tree.scope(node)
        if not self._only_here(scope.bindings.get(target.id, []), node):
            return None
        uses = [
            use
            for use in tree.reads(target.id)
            if use.lineno > (node.end_lineno or 0)
            and tree.scope(use) is scope
            and not self.facts.is_guarded(use)
        ]
        return min(uses, key=lambda each: each.lineno, default=None)
