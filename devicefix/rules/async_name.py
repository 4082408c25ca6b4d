from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import chain

from devicefix.devices.methods import CustomCuda, custom_cuda
from devicefix.facts.flow.parameters import called
from devicefix.facts.scopes import FUNCTIONS
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

_OLD, _NEW = "async", "non_blocking"
_BROKEN = "`async` has been a keyword since Python 3.7"
# The methods of tensors and storages that had the argument:
# https://github.com/pytorch/pytorch/blob/v0.3.1/torch/_utils.py, and `to` since 0.4
_METHODS = {"cuda", "type", "copy_", "to", "_cuda", "_type"}


class AsyncName(Rule):
    """
    ## What it does
    Finds arguments, parameters and other names spelled `async`, as in `x.cuda(async=True)`.

    ## Why it matters
    `async` has been a keyword since Python 3.7, so importing or running the file raises a `SyntaxError`. PyTorch 0.4
    renamed the argument to `non_blocking`.

    ## Example
    ```python
    def put(x, async=False):
        return x.cuda(async=async)
    ```

    ## Use instead
    ```python
    def put(x, non_blocking=False):
        return x.cuda(non_blocking=non_blocking)
    ```

    ## Fix safety
    The fix is safe for the tensor methods `cuda`, `to`, `type` and `copy_`, except for a `cuda` that a class of the
    project may define. It is also safe for a function in the same file if the fix renames its parameter. Otherwise, it
    is unsafe, because the function may have its own `async` parameter.

    Only arguments, parameters and local variables can have a fix. Parameters and local variables have none if the file
    also names something else `async`, or has a variable or parameter named `non_blocking`.
    """

    code = "DF814"
    name = "async-name"
    summary = "`async` is a keyword and can't be used as a name"
    words = (b"async=", b"async =")
    common_words = (b"async",)
    INVALID = (
        Example(
            "an argument of cuda",
            before="""
                import torch

                x = x.cuda(async=True)
                y = y.cuda(0, async = True)  # async
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = x.to(device, non_blocking=True)
                y = y.to("cuda:0" if torch.cuda.is_available() else "cpu", non_blocking = True)  # async
            """,
        ),
        Example(
            "a method without CUDA, over several lines",
            before="""
                import torch

                buffer.copy_(
                    torch.zeros(3),  # async=
                    async=True,
                )
            """,
            after="""
                import torch

                buffer.copy_(
                    torch.zeros(3),  # async=
                    non_blocking=True,
                )
            """,
        ),
        Example(
            "a parameter, and the argument for it",
            before="""
                import torch


                class Batch:
                    def to_gpu(self, async=False):
                        self.x.copy_(self.pinned, async=async)
                        return lambda: async


                def load(batch):
                    return batch.to_gpu(async=True)
            """,
            after="""
                import torch


                class Batch:
                    def to_gpu(self, non_blocking=False):
                        self.x.copy_(self.pinned, non_blocking=non_blocking)
                        return lambda: non_blocking


                def load(batch):
                    return batch.to_gpu(non_blocking=True)
            """,
        ),
        Example(
            "a local variable",
            before="""
                import torch


                def load(x, workers):
                    async = workers > 0
                    return x.type(torch.HalfTensor, async=async)
            """,
            after="""
                import torch


                def load(x, workers):
                    non_blocking = workers > 0
                    return x.type(torch.HalfTensor, non_blocking=non_blocking)
            """,
        ),
        Example(
            "an argument that a function reads",
            before="""
                import torch


                def put(x, **kwargs):
                    return x.copy_(y, non_blocking=kwargs.pop("async"), **kwargs)


                put(torch.zeros(3), async=True)
            """,
            after="""
                import torch


                def put(x, **kwargs):
                    return x.copy_(y, non_blocking=kwargs.pop("async"), **kwargs)


                put(torch.zeros(3), non_blocking=True)
            """,
            unsafe=True,
        ),
        Example(
            "a method of the project",
            before="""
                import torch


                class Holder:
                    def cuda(self, **options):
                        self.x.copy_(self.y, non_blocking=options["async"])


                def put(holder):
                    holder.cuda(async=True)
            """,
            after="""
                import torch


                class Holder:
                    def cuda(self, **options):
                        self.x.copy_(self.y, non_blocking=options["async"])


                def put(holder):
                    if torch.cuda.is_available():
                        holder.cuda(non_blocking=True)
            """,
            unsafe=True,
        ),
        Example(
            "an argument of a function of another file",
            before="""
                import torch
                import transfer


                def put(x, async=False):
                    return x.cuda(async=async)


                transfer.put(torch.zeros(3), async=True)
            """,
            after="""
                import torch
                import transfer

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def put(x, non_blocking=False):
                    return x.to(device, non_blocking=non_blocking)


                transfer.put(torch.zeros(3), non_blocking=True)
            """,
            unsafe=True,
        ),
        Example(
            "a name that is taken",
            before="""
                import torch


                def put(x, non_blocking, async=False):
                    return x
            """,
        ),
        Example(
            "an attribute",
            before="""
                import torch

                if options.async == True:
                    pass
            """,
        ),
        Example(
            "a variable of the module",
            before="""
                import torch

                async = True
            """,
        ),
    )
    VALID = (
        Example(
            "the keyword, and other names",
            """
                import torch


                async def load(x, use_async=True):
                    async with x as y:
                        return [z async for z in y.get(use_async=True)]
            """,
        ),
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        tree = self.facts.tree
        named = [part for part in tree.nodes_with(_OLD) if _is_called_async(part)]
        variables = [part for part in named if isinstance(part, (ast.Name, ast.arg))]
        others = [part for part in named if not isinstance(part, (ast.Name, ast.arg, ast.keyword))]
        names = (part for part in tree.nodes_with(_NEW) if isinstance(part, (ast.Name, ast.arg)))
        taken = any(_NEW in vars(name).values() for name in names)
        can_rename = not others and not taken and all(map(self._is_local, variables))
        fix = self._edited(variables) if can_rename else None
        if variables:
            advice = f"rename it to `{_NEW}`, as PyTorch 0.4 did" if fix else "use another name"
            yield self.finding(variables[0], f"{_BROKEN}; {advice}", fix)
        parameters = (part for part in variables if fix and isinstance(part, ast.arg))
        functions = (tree.parents[tree.parents[part]] for part in parameters)
        renamed = {called(tree, each) for each in functions if isinstance(each, FUNCTIONS)} - {""}
        for part in named:
            if isinstance(part, ast.keyword):
                yield self._argument(part, renamed)
        for part in others:
            place = part if isinstance(part, ast.Attribute) else tree.statement(part)
            yield self.finding(place, f"{_BROKEN}; use another name")

    def _is_local(self, node: ast.Name | ast.arg) -> bool:
        """Return whether a node is a parameter, or a variable of a function."""
        found = self.facts.tree.scope(node).lookup(_OLD)
        return isinstance(node, ast.arg) or (found is not None and isinstance(found[0].node, FUNCTIONS))

    def _argument(self, node: ast.keyword, functions: set[str]) -> Finding:
        """Return the finding for an argument; the functions are those whose parameter is renamed."""
        call = self.facts.tree.parents[node]
        if not isinstance(call, ast.Call):
            return self.finding(node, f"{_BROKEN}; use another name")
        function = last_name(call.func)
        if any(other.arg == _NEW for other in call.keywords):
            advice = f"keep only `{_NEW}`" if function in _METHODS else "use another name"
            return self.finding(node, f"{_BROKEN}; {advice}")
        is_own = function in functions and self.facts.resolve(call.func) is None
        is_renamed = is_own or (function in _METHODS and self._is_of_torch(call))
        fix = self._edited([node], "" if is_renamed else "the function may have its own `async` parameter")
        return self.finding(node, f"{_BROKEN}; rename the argument to `{_NEW}`, as PyTorch 0.4 did", fix)

    def _is_of_torch(self, call: ast.Call) -> bool:
        """Return whether a call is one of a method, and not of a `cuda` that the project defines."""
        if not isinstance(call.func, ast.Attribute):
            return False
        return call.func.attr != "cuda" or custom_cuda(self.context, call.func.value) is CustomCuda.NEVER

    def _edited(self, places: Sequence[ast.Name | ast.arg | ast.keyword], why: str = "") -> Fix:
        starts = (self.context.source.span(place)[0] for place in places)
        return Fix(tuple(Edit(start, start + len(_OLD), _NEW) for start in starts), why)


def _is_called_async(node: ast.AST) -> bool:
    """Return whether a node names `async` itself, whatever is inside it."""
    if isinstance(node, ast.Constant):
        return False
    lists = (value if isinstance(value, list) else [value] for value in vars(node).values())
    return any(isinstance(value, str) and _OLD in value.split(".") for value in chain.from_iterable(lists))
