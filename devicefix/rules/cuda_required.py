from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.finding import Edit, Finding, Fix
from devicefix.rule import Changed, Rule


class CudaRequired(Rule):
    """
    ## What it does
    Finds `assert torch.cuda.is_available()`.

    ## Why it matters
    It forbids the CPU and does nothing where there is CUDA. Once the rest of the program runs on a CPU,
    there is nothing left for it to protect.

    ## Example
    ```python
    assert torch.cuda.is_available(), "needs a GPU"
    ```

    ## Use instead
    Nothing: the line goes.

    ## Fix safety
    Safe: with CUDA the assertion always holds.
    """

    code = "DF701"
    name = "cuda-required"
    summary = "The program refuses to run without CUDA"
    MATCHES = (
        Changed(
            'import torch\n\n\ndef main():\n    assert torch.cuda.is_available(), "needs a GPU"\n    run()\n',
            "import torch\n\n\ndef main():\n    run()\n",
        ),
        Changed(
            "import torch\n\n\ndef main():\n    assert torch.cuda.is_available()\n",
            "import torch\n\n\ndef main():\n    pass\n",
        ),
        Changed(
            "import torch\n\nassert torch.cuda.is_available() and args.data\n",
            "import torch\n\nassert args.data\n",
        ),
    )
    LEAVES = ("import torch\n\nassert args.data\n", "import torch\n\nassert not torch.cuda.is_available()\n")

    def visit_Assert(self, node: ast.Assert) -> Iterator[Finding]:
        message = "refuses to run without CUDA"
        if self._asks(node.test):
            self.context.claim(node)
            yield self.finding(node, message, self._removed(node))
        elif isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
            kept = [value for value in node.test.values if not self._asks(value)]
            if kept and len(kept) < len(node.test.values):
                code = " and ".join(self._code(value) for value in kept)
                edit = Edit(*self.context.source.span(node.test), code)
                yield self.finding(node, message, Fix((edit,)))

    def _asks(self, test: ast.expr) -> bool:
        return self.facts.call(test, "torch.cuda.is_available") or (
            isinstance(test, ast.Compare)
            and self.facts.call(test.left, "torch.cuda.device_count")
            and self.facts.guards.implies(test)
        )

    def _code(self, node: ast.expr) -> str:
        code = self.context.source.code(node)
        return f"({code})" if isinstance(node, (ast.BoolOp, ast.IfExp, ast.Lambda)) else code

    def _removed(self, node: ast.stmt) -> Fix:
        source = self.context.source
        start, end = source.span(node)
        if len(self.facts.tree.block(node)) == 1 or not self.context.alone(node):
            return Fix((Edit(start, end, "pass"),))
        _, column = source.position(start)
        begin = start - column + 1
        after = source.line_end(end)
        return Fix(
            (
                Edit(
                    begin,
                    after + len(source.text[after : after + 2].splitlines(keepends=True)[0])
                    if after < len(source.text)
                    else after,
                    "",
                ),
            )
        )
