from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.copies.buffers import without_gradients
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_GATHERING = ("torch.distributed.all_gather_into_tensor", "torch.distributed._all_gather_base")


class GatheredGradient(Rule):
    """
    ## What it does
    Finds calls to `all_gather_into_tensor` with an input that requires a gradient.

    ## Why it matters
    NCCL bypasses autograd. gloo, the backend for CPUs, copies the tensors with torch operators in another thread.
    Depending on timing, the call then fails with "A view was created in no_grad mode and is being modified inplace", or
    the result requires a gradient, unlike with NCCL.

    ## Example
    ```python
    y = model(x)
    dist.all_gather_into_tensor(out, y)
    ```

    ## Use instead
    ```python
    y = model(x)
    dist.all_gather_into_tensor(out, y.detach())
    ```

    ## Fix safety
    There is no fix: whether a tensor requires a gradient is known only at run time. The rule reports tensors that a
    module returns outside `torch.no_grad()`, and tensors on which the program calls `requires_grad_()`.
    """

    code = "DF604"
    name = "gathered-gradient"
    summary = "A gathered tensor requires a gradient, which gloo does not support"
    references = _GATHERING
    INVALID = (
        Example(
            "what a module returns",
            before="""
                import torch
                import torch.distributed as dist

                net = torch.nn.Linear(2, 2)


                def gather(x):
                    y = net(x)
                    out = torch.empty(8, 2)
                    dist.all_gather_into_tensor(out, y)
                    return out
            """,
        ),
        Example(
            "a tensor whose gradient is asked for",
            before="""
                import torch
                import torch.distributed as dist


                def gather(y):
                    y.requires_grad_()
                    out = torch.empty(8)
                    dist.all_gather_into_tensor(output_tensor=out, input_tensor=y)
                    return out
            """,
        ),
    )
    VALID = (
        Example(
            "without a gradient",
            """
                import torch
                import torch.distributed as dist

                net = torch.nn.Linear(2, 2)


                def gather(x, out):
                    dist.all_gather_into_tensor(out, net(x).detach())
                    dist.all_gather_into_tensor(out, x)


                @torch.no_grad()
                def evaluate(x, out):
                    y = net(x)
                    dist.all_gather_into_tensor(out, y)
            """,
        ),
        Example(
            "only with NCCL",
            """
                import torch
                import torch.distributed as dist

                net = torch.nn.Linear(2, 2)


                def gather(x, out):
                    if torch.cuda.is_available():
                        dist.all_gather_into_tensor(out, net(x))
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.parents[node]
        if not isinstance(call, ast.Call) or call.func is not node or self.facts.is_guarded(node):
            return
        given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "input_tensor")]
        if given and self._requires_gradient(given[0]) and not without_gradients(self.facts, call):
            code = self.context.source.code(given[0])
            yield self.finding(
                call, f"gloo fails to gather a tensor that requires a gradient; pass `{code}.detach()`"
            )

    def _requires_gradient(self, tensor: ast.expr) -> bool:
        """Return whether a module returns a tensor, or its gradient is asked for."""
        values = [tensor, *(binding.value for binding in self.facts.bindings(tensor) if binding.value)]
        if any(isinstance(value, ast.Call) and self._is_module(value.func) for value in values):
            return True
        return isinstance(tensor, ast.Name) and any(map(self._asks, self.facts.tree.reads(tensor.id)))

    def _is_module(self, function: ast.expr) -> bool:
        return self.facts.kinds.of(function).are({Kind.MODULE})

    def _asks(self, use: ast.expr) -> bool:
        """Return whether a use of a tensor asks for its gradient."""
        method = self.facts.tree.parents.get(use)
        call = self.facts.tree.parents.get(method) if method is not None else None
        asked = isinstance(method, ast.Attribute) and last_name(method) == "requires_grad_"
        return asked and isinstance(call, ast.Call) and not call.args
