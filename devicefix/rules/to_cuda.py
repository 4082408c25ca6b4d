from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import asks_for_index, device_argument, device_fix
from devicefix.facts.flow.kinds import NUMBERS
from devicefix.facts.scopes import dotted
from devicefix.facts.values import cuda_string, current_device
from devicefix.model import Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.device_numbers import is_fixed_where_bound


class ToCuda(Rule):
    """
    ## What it does
    Finds `x.to(...)` with a CUDA device: `"cuda"`, `"cuda:1"`, `0`, `torch.device("cuda")`, `f"cuda:{rank}"` or a
    variable that contains a GPU index.

    ## Why it matters
    Without CUDA, the call usually raises an error such as "Torch not compiled with CUDA enabled".

    ## Example
    ```python
    model.to("cuda")
    batch = batch.to(f"cuda:{rank}", non_blocking=True)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    model.to(device)
    batch = batch.to(f"cuda:{rank}" if torch.cuda.is_available() else "cpu", non_blocking=True)
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the device is the same as before. The fix is unsafe if a variable may contain
    something other than a GPU index, or if only its name suggests a GPU index.
    """

    code = "DF102"
    name = "to-cuda"
    summary = "`.to(...)` moves a tensor or module to a CUDA device"
    words = (b"cuda", b"get_device(", b"get_rank(", b"LOCAL_RANK", b".to(0", b".to(1")
    companions = (b".to", b"device")
    common_words = (b".to", b"device", b"gpu", b"rank")
    INVALID = (
        Example(
            "the current GPU",
            before="""
                import torch

                x = x.to(device=torch.cuda.current_device())
                y = y.to(torch.cuda.current_device())
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = x.to(device=device)
                y = y.to(device)
            """,
        ),
        Example(
            "the device of another tensor by get_device",
            before="""
                import torch

                y = torch.zeros(3, device="cuda")
                x = x.to(y.get_device())
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                y = torch.zeros(3, device=device)
                x = x.to(y.device)
            """,
        ),
        Example(
            "an int called device",
            before="""
                import os

                import torch

                device = int(os.environ["LOCAL_RANK"])
                torch.manual_seed(device)
                model.to(device)
            """,
            after="""
                import os

                import torch

                device = int(os.environ["LOCAL_RANK"])
                torch.manual_seed(device)
                model.to(device if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "an item of a list that is filled with numbers",
            before="""
                import torch

                options.gpu_ids = []
                for text in options.text.split(","):
                    number = int(text)
                    options.gpu_ids.append(number)
                model.to(options.gpu_ids[0])
            """,
            after="""
                import torch

                options.gpu_ids = []
                for text in options.text.split(","):
                    number = int(text)
                    options.gpu_ids.append(number)
                model.to(options.gpu_ids[0] if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a parameter with a number as its default",
            before="""
                import torch


                def move(x, where=0):
                    return x.to(where)  # cuda
            """,
            after="""
                import torch


                def move(x, where=0):
                    return x.to(where if torch.cuda.is_available() else "cpu")  # cuda
            """,
        ),
        Example(
            "a parameter that is called rank",
            before="""
                import torch


                def move(x, rank):
                    return x.to(rank)  # cuda
            """,
            after="""
                import torch


                def move(x, rank):
                    return x.to(rank if torch.cuda.is_available() else "cpu")  # cuda
            """,
            unsafe=True,
        ),
        Example(
            "a module to the string cuda",
            before="""
                import torch

                model.to("cuda")
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                model.to(device)
            """,
        ),
        Example(
            "a device by keyword, with a dtype",
            before="""
                import torch

                x = x.to(device=torch.device('cuda:1'), dtype=torch.half)
            """,
            after="""
                import torch

                x = x.to(device='cuda:1' if torch.cuda.is_available() else 'cpu', dtype=torch.half)
            """,
        ),
        Example(
            "the f-string and the number of a rank",
            before="""
                import os

                import torch

                rank = int(os.environ["LOCAL_RANK"])
                torch.manual_seed(rank)
                x = x.to(f"cuda:{rank}")
                y = y.to(rank)
            """,
            after="""
                import os

                import torch

                rank = int(os.environ["LOCAL_RANK"])
                torch.manual_seed(rank)
                x = x.to(f"cuda:{rank}" if torch.cuda.is_available() else "cpu")
                y = y.to(rank if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "the function instead of the method",
            before="""
                import torch
                from torch.cuda import amp

                where = int(rank)
                y = torch.Tensor.to(x, where)
            """,
            after="""
                import torch
                from torch.cuda import amp

                where = int(rank)
                y = torch.Tensor.to(x, where if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a number that a pattern takes out of a tuple",
            before="""
                import torch

                torch.cuda.empty_cache()
                match (0, x):
                    case (place, _):
                        y = y.to(place)
            """,
            after="""
                import torch

                torch.cuda.empty_cache()
                match (0, x):
                    case (place, _):
                        y = y.to(place if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a number that calls pass on, or that is one of several",
            before="""
                import functools, torch


                def move(x, q7):
                    return x.to(q7)


                x = functools.partial(move, x, max(0, -1))()
                y = y.to(*[int("0")])
            """,
            after="""
                import functools, torch


                def move(x, q7):
                    return x.to(q7 if torch.cuda.is_available() else "cpu")


                x = functools.partial(move, x, max(0, -1))()
                y = y.to(*[int("0") if torch.cuda.is_available() else "cpu"])
            """,
            unsafe=True,
        ),
        Example(
            "a move unless a tensor is there already",
            before="""
                import torch


                def keep(x):
                    if x.device != torch.device("cuda"):
                        x = x.to(torch.device("cuda"))
                    return x
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def keep(x):
                    if x.device != device:
                        x = x.to(device)
                    return x
            """,
        ),
    )
    VALID = (
        Example(
            "a tensor, or a number that is not moved to",
            """
                import torch


                def as_type(x, q7):
                    if torch.is_tensor(x) and torch.is_tensor(q7):
                        return x.to(q7)
                    return x.to(q7) if isinstance(q7, torch.Tensor) else x  # cuda


                as_type(x, 0)
            """,
        ),
        Example(
            "a dtype beside numbers, in the dictionaries of a loop",
            """
                import torch

                for q7 in [{"labels": 2, "dtype": torch.long}, {"labels": 1, "dtype": torch.float}]:
                    x = x.to(q7["dtype"])  # cuda
            """,
        ),
        Example(
            "a variable",
            """
                x = x.to(device)
            """,
        ),
        Example(
            "the CPU",
            """
                x = x.to("cpu")
            """,
        ),
        Example(
            "a dtype",
            """
                import torch

                x = x.to(torch.float32)
            """,
        ),
        Example(
            "a choice by availability",
            """
                import torch

                x = x.to("cuda" if torch.cuda.is_available() else "cpu")
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("to", "to_empty"):
            return
        target = device_argument(node)
        if self.facts.resolve(node.func) in ("torch.Tensor.to", "torch.nn.Module.to"):
            target = node.args[1] if len(node.args) > 1 else None
        match target:
            case ast.Starred(value=ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_])):
                target = first
        if target is not None and target is not device_argument(node) and cuda_string(target):
            return  # it has a rule of its own
        if target is None or self.facts.is_guarded(node):
            return
        if is_fixed_where_bound(self.context, target) or self._is_chosen(target):
            return
        fix = device_fix(self.context, target)
        if fix is not None:
            self.context.mark_handled(target)
            code = self.context.source.code(target)
            of_cuda = cuda_string(target) or self.facts.call(
                target, "torch.device", "torch.cuda.current_device"
            )
            needed = "CUDA" if of_cuda else self._wanted  # an index is that of any accelerator
            is_guess = bool(fix.why) and dotted(target) is None
            message = f"`.to({code})` {'may need' if is_guess else 'needs'} {needed}"
            use_cpu = f"without {self._wanted}, use the CPU"
            if dotted(target) is not None:
                since = ", because" if self._is_index(target) else " if"
                message += f"{since} `{code}` is a GPU index; {use_cpu}"
            else:
                message += "; use `.to(device)`" if of_cuda and ":" not in code else f"; {use_cpu}"
                fix = self._with_test(node, target, fix)
            yield self.finding(node, message, fix)

    def _is_index(self, target: ast.expr) -> bool:
        """Return whether a value is certainly the number of a GPU; `x.get_device()` may be -1, for the CPU."""
        value = self.facts.value(target)
        is_asked = value is not None and asks_for_index(value)
        return not is_asked and self.facts.kinds.of(target).are(NUMBERS)

    def _is_chosen(self, target: ast.expr) -> bool:
        """Return whether a device is chosen by a test for CUDA, and is the module's own without it."""
        match target:
            case ast.IfExp(test=test, orelse=ast.Name() as other):
                return self.facts.guards.implies(test) and current_device(self.facts, other)
        return False

    def _with_test(self, node: ast.Call, target: ast.expr, fix: Fix) -> Fix:
        """Return the fix of a move, with that of a test whether something is on the same device already."""
        match self.facts.tree.parents.get(self.facts.tree.statement(node)):
            case ast.If(test=ast.Compare(ops=[ast.NotEq()], comparators=[ast.Call() as other])):
                if ast.unparse(other) == ast.unparse(target) and (more := device_fix(self.context, other)):
                    return Fix(fix.edits + more.edits, fix.why, fix.needs | more.needs)
        return fix
