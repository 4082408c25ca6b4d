from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from devicefix.devices.arguments import gpu_number
from devicefix.facts import dotted
from devicefix.facts.flow.forwards import Use
from devicefix.facts.values import cuda_literal, cuda_string, is_current_object, is_negative
from devicefix.model import Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.device_numbers import is_fixed_where_bound
from devicefix.rules.shared.device_uses import checked_for_uses

_OFTEN = 2  # so many arguments are worth a definition of their own


class TorchDevice(Rule):
    """
    ## What it does
    Finds `torch.device("cuda")` and its variants with an index, a formatted string or only a number.

    ## Why it matters
    You can create `torch.device("cuda")` on any machine, but without CUDA, moving a tensor to it fails.

    ## Example
    ```python
    device = torch.device("cuda")
    device = torch.device("cuda:{:d}".format(rank))
    device = torch.device("cuda", rank)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device("cuda:{:d}".format(rank) if torch.cuda.is_available() else "cpu")
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the device is the same as before. The fix is unsafe if the program uses the
    device's index, as in `device.index + 1`, distinguishes the device from another one, or may stop on the CPU, as in
    `assert device.type == "cuda"`.

    The rule ignores `torch.device("cuda")` beside `==` and `!=`, as in `x.device == torch.device("cuda")`, and usually
    in calls to `torch.cuda` functions.
    """

    code = "DF201"
    name = "torch-device"
    summary = "`torch.device(...)` selects CUDA even if it is not available"
    words = (b"cuda",)
    common_words = (b"device", b"gpu", b"rank")
    INVALID = (
        Example(
            "the current device",
            before="""
                import torch

                device = torch.device("cuda")
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a numbered device under another name of torch",
            before="""
                import torch as th

                device = th.device('cuda:1')
            """,
            after="""
                import torch as th

                device = th.device('cuda:1' if th.cuda.is_available() else 'cpu')
            """,
        ),
        Example(
            "a formatted string",
            before="""
                import torch

                device = torch.device("cuda:{:d}".format(rank))
            """,
            after="""
                import torch

                device = torch.device("cuda:{:d}".format(rank) if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a type and a number",
            before="""
                import torch

                device = torch.device("cuda", args.local_rank)
            """,
            after="""
                import torch

                device = torch.device("cuda", args.local_rank) if torch.cuda.is_available() else torch.device("cpu")
            """,
        ),
        Example(
            "a number alone",
            before="""
                import torch

                x = torch.ones(2, device=torch.device(0))
            """,
            after="""
                import torch

                x = torch.ones(2, device=torch.device(0 if torch.cuda.is_available() else "cpu"))
            """,
        ),
        Example(
            "arguments, for which the module has a device, and a default parameter",
            before="""
                import torch

                where = torch.device("cuda")


                def f(x, y=torch.device("cuda")):
                    return g(x.to(y), torch.device("cuda"), at=torch.device("cuda"))
            """,
            after="""
                import torch

                where = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def f(x, y=where):
                    return g(x.to(y), where, at=where)
            """,
        ),
        Example(
            "an argument, for which the module has only the name of a device",
            before="""
                import torch

                device = "cuda"
                x = g(torch.ones(2, device=device), torch.device("cuda"))
            """,
            after="""
                import torch

                device = "cuda" if torch.cuda.is_available() else "cpu"
                x = g(torch.ones(2, device=device), torch.device("cuda" if torch.cuda.is_available() else "cpu"))
            """,
        ),
        Example(
            "a default device beside a move",
            before="""
                import torch

                x = torch.ones(1).cuda()
                with torch.device("cuda"):
                    y = torch.ones(1)
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = torch.ones(1).to(device)
                with device:
                    y = torch.ones(1)
            """,
        ),
        Example(
            "a number that becomes a device of the same name",
            before="""
                import torch


                def start(ranks):
                    rank = int(ranks[0])
                    torch.cuda.set_device(rank)
                    return rank, len(ranks)


                device, size = start(ranks)
                device = torch.device(device)
                x = torch.zeros(size).to(device)
            """,
            after="""
                import torch


                def start(ranks):
                    rank = int(ranks[0])
                    if torch.cuda.is_available():
                        torch.cuda.set_device(rank)
                    return rank, len(ranks)


                device, size = start(ranks)
                device = torch.device(device if torch.cuda.is_available() else "cpu")
                x = torch.zeros(size).to(device)
            """,
        ),
        Example(
            "an argument beside a move, which share one definition",
            before="""
                import torch


                def f(x):
                    return g(x.cuda(), torch.device("cuda"))


                f(y)
            """,
            after="""
                import torch


                def f(x):
                    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                    return g(x.to(device), device)


                f(y)
            """,
        ),
        Example(
            "attributes of other objects beside a move, which share its definition",
            before="""
                import torch


                def place(app):
                    app.net.mean = app.net.mean.cuda()
                    app.net.device = torch.device("cuda")
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def place(app):
                    app.net.mean = app.net.mean.to(device)
                    app.net.device = device
            """,
        ),
        Example(
            "so many arguments that they get a definition",
            before="""
                import torch


                def f(x):
                    return g(x, torch.device("cuda")), g(x, torch.device(type="cuda"))
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def f(x):
                    return g(x, device), g(x, device)
            """,
        ),
        Example(
            "an argument in front of the module's device",
            before="""
                import torch

                f(torch.device("cuda"))
                device = torch.device("cuda")
                f(device)
            """,
            after="""
                import torch

                f(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                f(device)
            """,
        ),
        Example(
            "an object for an unknown class, where nothing can be defined",
            before="""
                import ray
                import torch


                def build():
                    return lambda: Encoder(device=torch.device("cuda"))
            """,
            after="""
                import ray
                import torch


                def build():
                    return lambda: Encoder(device=torch.device("cuda" if torch.cuda.is_available() else "cpu"))
            """,
        ),
        Example(
            "a device whose number is used",
            before="""
                import torch

                where = torch.device("cuda:1")
                q7 = where.index + 1
            """,
            after="""
                import torch

                where = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")
                q7 = where.index + 1
            """,
            unsafe=True,
        ),
        Example(
            "a key beside the CPU, which must stay another one",
            before="""
                import torch

                backends = {torch.device("cpu"): "gloo", torch.device("cuda"): "nccl"}
            """,
            after="""
                import torch

                backends = {torch.device("cpu"): "gloo", torch.device("cuda" if torch.cuda.is_available() else "cpu"): "nccl"}
            """,
            unsafe=True,
        ),
        Example(
            "a device that the program requires, and a number that may go on",
            before="""
                import torch

                launch([torch.device("cuda:1").index])
                q7 = torch.device("cuda")
                assert q7.type == "cuda"
            """,
            after="""
                import torch

                launch([torch.device("cuda:1" if torch.cuda.is_available() else "cpu").index])
                q7 = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                assert q7.type == "cuda"
            """,
            unsafe=True,
        ),
        Example(
            "a device in a check that allows the CPU",
            before="""
                import torch

                NAMES = ["cuda", "cpu"]
                q7 = torch.device("cuda")
                if q7.type not in NAMES or next(net.parameters()).device != q7:
                    raise ValueError(q7)
            """,
            after="""
                import torch

                NAMES = ["cuda", "cpu"]
                q7 = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                if q7.type not in NAMES or next(net.parameters()).device != q7:
                    raise ValueError(q7)
            """,
        ),
        Example(
            "a device whose number is kept, and ordered later",
            before="""
                import torch

                q7 = torch.device("cuda:1").index
                if q7 >= 0:
                    print(q7)
            """,
            after="""
                import torch

                q7 = torch.device("cuda:1" if torch.cuda.is_available() else "cpu").index
                if q7 >= 0:
                    print(q7)
            """,
            unsafe=True,
        ),
    )
    VALID = (
        Example(
            "a choice inside the call",
            """
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a choice between two devices",
            """
                import torch

                device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
            """,
        ),
        Example(
            "a comparison",
            """
                import torch

                if x.device != torch.device("cuda"):
                    print(x)
                if args.where == torch.device("cuda").type and not torch.cuda.is_available():
                    raise ValueError("no GPU")
            """,
        ),
        Example(
            "the device of a function that returns 0 without CUDA",
            """
                import torch

                peak = torch.cuda.max_memory_allocated(torch.device("cuda"))
                peak = torch.cuda.max_memory_reserved(device=torch.device("cuda:1"))
            """,
        ),
        Example(
            "a table in which a device is looked up",
            """
                import torch

                backend = {torch.device("cpu"): "gloo", torch.device("cuda"): "nccl"}[x.device]
            """,
        ),
        Example(
            "what nothing uses",
            """
                import torch


                def f(n, where=torch.device("cuda")):
                    device = torch.device("cuda")
                    return torch.ones(n)
            """,
        ),
        Example(
            "the CPU",
            """
                import torch

                device = torch.device("cpu")
            """,
        ),
        Example(
            "a name that is not known",
            """
                import torch

                device = torch.device(name)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self.facts.call(node, "torch.device"):
            return
        if self._is_compared(node) or self.facts.is_guarded(node) or self._needs_nothing(node):
            return
        fix = self._fix(node)
        if fix is not None:
            self.context.mark_handled(
                *(part for each in node.args for part in ast.walk(each)), *node.keywords
            )
            code = self.context.source.code(node)
            of_cuda = any(map(cuda_string, _arguments(node)))
            needed = "CUDA" if of_cuda else self._wanted  # an index is that of any accelerator
            message = f"`{code}` can't be used without {needed}; select {self._advised}"
            finding = self.finding(node, message, fix)
            yield checked_for_uses(self.context, node, finding)

    def _is_compared(self, node: ast.Call) -> bool:
        """Return whether a device, or its type, is only compared: by an operator, or as a key of `{...}[key]`."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Dict) and node in parent.keys:
            return isinstance(self.facts.tree.parents.get(parent), ast.Subscript)
        if isinstance(parent, ast.Attribute) and parent.attr == "type":
            parent = self.facts.tree.parents.get(parent)
        return isinstance(parent, ast.Compare)

    def _needs_nothing(self, node: ast.Call) -> bool:
        """Return whether nothing uses a device but functions of torch.cuda.

        Without CUDA these ignore the device, as `torch.cuda.max_memory_allocated` does, or fail with any: then they
        have findings of their own.
        """
        harmless = Use.NAMED if self.devices.accelerator else Use.NAMED | Use.OF_CUDA
        return not self.context.forwards.use_of(node) & ~harmless

    def _fix(self, node: ast.Call) -> Fix | None:
        shared = self.devices.shared(node, define=self._is_common) if self._is_argument(node) else None
        return self._choice(node) if shared is None else self.context.replace(node, shared)

    def _is_argument(self, node: ast.AST) -> bool:
        """Return whether a node is `torch.device("cuda")`, which an argument, default or other object takes."""
        match self.facts.tree.parents.get(node):
            case ast.Assign(targets=[ast.Attribute(value=owner)]) if dotted(owner) != "self":
                return is_current_object(self.facts, node)
            case ast.Call() | ast.keyword() | ast.arguments() | ast.withitem():
                return is_current_object(self.facts, node)
        return False

    @cached_property
    def _is_common(self) -> bool:
        """Return whether the module passes the device so often that it deserves a name."""
        arguments = (node for node in self.facts.tree.nodes_with("cuda") if self._is_argument(node))
        return sum(not self.facts.is_guarded(node) for node in arguments) >= _OFTEN

    def _choice(self, node: ast.Call) -> Fix | None:
        """Return the fix that chooses the device where it is made, or None."""
        arguments = _arguments(node)
        if len(arguments) == 1:
            only = arguments[0]
            if self.devices.accelerator and cuda_literal(only) is None:
                return self.context.when_cuda(node, f'{self.devices.torch(node).text}.device("cpu")')
            number = None if is_fixed_where_bound(self.context, only) else gpu_number(self.context, only)
            why = "" if cuda_string(only) else number
            return None if why is None else self.context.when_cuda(only, '"cpu"', why)
        if len(arguments) == 2 and cuda_string(arguments[0]) and not is_negative(arguments[1]):
            torch = self.devices.torch(node)
            return self.context.when_cuda(node, f'{torch.text}.device("cpu")')
        return None


def _arguments(call: ast.Call) -> list[ast.expr]:
    """Return the values of all arguments of a call."""
    given = [part for each in call.args for part in _unpacked(each)]
    return given + [keyword.value for keyword in call.keywords]


def _unpacked(argument: ast.expr) -> list[ast.expr]:
    """Return the arguments that `*("cuda", 0)` stands for, or the argument itself."""
    match argument:
        case ast.Starred(value=ast.Tuple(elts=elements) | ast.List(elts=elements)):
            return elements
    return [argument]
