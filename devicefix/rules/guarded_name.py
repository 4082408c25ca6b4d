from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import Binding
from devicefix.model import Finding
from devicefix.rules.base import Changed, Rule


class GuardedName(Rule):
    """
    ## What it does
    Finds a name that is bound only where CUDA is available, and used where it may not be.

    ## Why it matters
    On a CPU the use is a NameError, or an UnboundLocalError.

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
    There is no fix: say what the name is on a CPU, before the guard or in an `else`.
    """

    code = "DF703"
    name = "guarded-name"
    summary = "A name is bound only where there is CUDA, and used elsewhere too"
    MATCHES = (
        Changed(
            "import torch\n\nif torch.cuda.is_available():\n    device = torch.device('cuda:0')\nnet.to(device)\n",
            None,
        ),
    )
    LEAVES = (
        "import torch\n\nif torch.cuda.is_available():\n    device = 'cuda'\nelse:\n    device = 'cpu'\nnet.to(device)\n",
        "import torch\n\ndevice = 'cpu'\nif torch.cuda.is_available():\n    device = 'cuda'\nnet.to(device)\n",
        "import torch\n\nuse = torch.cuda.is_available()\nif use:\n    d = 'cuda'\nif use:\n    net.to(d)\n",
        "import torch\n\nif torch.cuda.is_available():\n    d = 'cuda'\n    net.to(d)\n",
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
                        message = (
                            f"`{target.id}` is bound only where there is CUDA, but used in line {use.lineno}"
                        )
                        yield self.finding(target, f"{message}: say what it is on a CPU")

    def _only_here(self, bindings: list[Binding], node: ast.If) -> bool:
        """Whether every binding of a name is in the body of the `if`."""
        lines = range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)
        return bool(bindings) and all(
            isinstance(each.node, ast.stmt) and each.node.lineno in lines for each in bindings
        )

    def _used(self, target: ast.Name, node: ast.If) -> ast.expr | None:
        """The first place behind the `if`, in the same scope, that reads a name bound only in it.

        It does so without asking for CUDA.
        """
        tree = self.facts.tree
        scope = tree.scope(node)
        if not self._only_here(scope.bindings.get(target.id, []), node):
            return None
        uses = [
            each
            for each in tree.reads(target.id)
            if each.lineno > (node.end_lineno or 0)
            and tree.scope(each) is scope
            and not self.facts.is_guarded(each)
        ]
        return min(uses, key=lambda each: each.lineno, default=None)
