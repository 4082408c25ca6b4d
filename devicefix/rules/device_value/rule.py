"""Report the names of CUDA devices that the program uses as devices, and make them depend on CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from devicefix.devices.context import Context
from devicefix.facts.flow.forwards import Use
from devicefix.facts.replaced import is_replaced
from devicefix.facts.torch_use import uses_torch
from devicefix.facts.values import cuda_literal
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.device_value import arguments, defaults, literals, safety
from devicefix.rules.shared.device_uses import checked_for_uses


class DeviceValue(Rule):
    """
    ## What it does
    Finds CUDA device names, such as `"cuda:0"`, that the program uses as devices. The names can be in variables,
    attributes, lists and dictionaries, arguments, return values, and defaults of parameters and command-line options.

    ## Why it matters
    Without CUDA, moving a tensor to such a device fails.

    ## Example
    ```python
    DEVICE = "cuda"
    parser.add_argument("--device", default="cuda:3")
    def encode(text, device="cuda"): ...
    ```

    ## Use instead
    ```python
    DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default="cuda:3" if torch.cuda.is_available() else "cpu")
    def encode(text, device="cuda" if torch.cuda.is_available() else "cpu"): ...
    ```

    ## Fix safety
    The fix is usually safe if the value is used as a device. A string stays a string, a value from the user still
    overrides the default, and with CUDA, the value is the same as before.

    The fix is unsafe if:

    - only the name of the variable, option or key, or a `"cpu"` next to the value, suggests that the value is a
      device.
    - the value is a positional argument to another library's function, as in `clip.load(name, "cuda")`.
    - on a CPU, the value may equal another one, as in a set, an enumeration, or a list that contains the CPU.
    - the program reads an index from the value, as in `device.split(":")[1]`, or adds an index, as in
      `torch.device(device, 1)`. The CPU has no index.
    - the program stops if the value is the CPU, as in `assert device == "cuda"`.
    - the fix checks for CUDA before the program sets `CUDA_VISIBLE_DEVICES`, which then has no effect, or forks
      processes, in which CUDA may then fail.
    """

    code = "DF203"
    name = "device-value"
    summary = "A value, such as a default or an option, is a CUDA device"
    words = (b"cuda", b"'cu'", b'"cu"')  # the last ones for "cu" + "da"
    common_words = (b"device", b"gpu", b"rank")
    INVALID = (
        *safety.INVALID,
        *literals.INVALID,
        *defaults.INVALID,
        *arguments.INVALID,
        Example(
            "a constant",
            before="""
                import torch

                DEVICE = "cuda"
                net.to(DEVICE)
            """,
            after="""
                import torch

                DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
                net.to(DEVICE)
            """,
        ),
        Example(
            "a parameter that a method passes on to the same method of another object",
            before="""
                import torch

                class Engine:
                    def load(self, path, device="cuda"):
                        return self.model_class.load(path, device=device)
            """,
            after="""
                import torch

                class Engine:
                    def load(self, path, device="cuda" if torch.cuda.is_available() else "cpu"):
                        return self.model_class.load(path, device=device)
            """,
        ),
        Example(
            "the default of a parameter of another name",
            before="""
                import torch

                def f(n, where="cuda"):
                    return torch.ones(n, device=where)
            """,
            after="""
                import torch

                def f(n, where="cuda" if torch.cuda.is_available() else "cpu"):
                    return torch.ones(n, device=where)
            """,
        ),
        Example(
            "a dictionary and its get method",
            before="""
                import torch

                hparams = {"device": "cuda", "dim": 3}
                net.to(hparams.get("device", "cuda"))
            """,
            after="""
                import torch

                hparams = {"device": "cuda" if torch.cuda.is_available() else "cpu", "dim": 3}
                net.to(hparams.get("device", "cuda" if torch.cuda.is_available() else "cpu"))
            """,
        ),
        Example(
            "a value in place of none",
            before="""
                import torch

                def f(x, device=None):
                    device = device or "cuda"
                    return x.to(device if device else "cuda")
            """,
            after="""
                import torch

                def f(x, device=None):
                    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
                    return x.to(device if device else ("cuda" if torch.cuda.is_available() else "cpu"))
            """,
        ),
        Example(
            "an attribute in place of none",
            before="""
                import torch

                class Trainer:
                    def __init__(self, device=None):
                        self.device = device or "cuda"

                    def step(self, x):
                        return x.to(self.device)
            """,
            after="""
                import torch

                class Trainer:
                    def __init__(self, device=None):
                        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")

                    def step(self, x):
                        return x.to(self.device)
            """,
        ),
        Example(
            "a mesh of devices, also of a type in a variable",
            before="""
                import torch
                from torch.distributed.device_mesh import init_device_mesh

                mesh = init_device_mesh("cuda", (2,))


                def start():
                    kind = "cuda"
                    return init_device_mesh(device_type=kind, mesh_shape=(2,))
            """,
            after="""
                import torch
                from torch.distributed.device_mesh import init_device_mesh

                device = "cuda" if torch.cuda.is_available() else "cpu"

                mesh = init_device_mesh(device, (2,))


                def start():
                    kind = "cuda" if torch.cuda.is_available() else "cpu"
                    return init_device_mesh(device_type=kind, mesh_shape=(2,))
            """,
        ),
        Example(
            "a device map of a library, and its variable",
            before="""
                import torch
                from transformers import AutoModel


                def load(name):
                    where = "cuda:1"
                    return AutoModel.from_pretrained(name, device_map={"": where})


                class Net(AutoModel):
                    @classmethod
                    def open(cls, name, where="cuda"):
                        return cls.from_pretrained(name, device_map=where)
            """,
            after="""
                import torch
                from transformers import AutoModel


                def load(name):
                    where = "cuda:1" if torch.cuda.is_available() else "cpu"
                    return AutoModel.from_pretrained(name, device_map={"": where})


                class Net(AutoModel):
                    @classmethod
                    def open(cls, name, where="cuda" if torch.cuda.is_available() else "cpu"):
                        return cls.from_pretrained(name, device_map=where)
            """,
        ),
        Example(
            "a choice inside an argument",
            before="""
                import torch

                x = x.to(args.place or "cuda")
            """,
            after="""
                import torch

                x = x.to(args.place or ("cuda" if torch.cuda.is_available() else "cpu"))
            """,
        ),
        Example(
            "devices by turns",
            before="""
                import torch

                from itertools import cycle

                places = cycle(["cuda:0", "cuda:1"])
                net.to(next(places))
            """,
            after="""
                import torch

                from itertools import cycle

                places = cycle(
                    ["cuda:0" if torch.cuda.is_available() else "cpu", "cuda:1" if torch.cuda.is_available() else "cpu"]
                )
                net.to(next(places))
            """,
        ),
        Example(
            "a returned value",
            before="""
                import torch

                def pick():
                    return "cuda"


                net.to(pick())
            """,
            after="""
                import torch

                def pick():
                    return "cuda" if torch.cuda.is_available() else "cpu"


                net.to(pick())
            """,
        ),
        Example(
            "a choice of code that needs CUDA",
            before="""
                import torch

                def run(x, device="cuda"):
                    if device == "cuda":
                        x = x.cuda()
                    return x
            """,
            after="""
                import torch

                def run(x, device="cuda" if torch.cuda.is_available() else "cpu"):
                    if device == "cuda":
                        x = x.cuda()
                    return x
            """,
        ),
        Example(
            "a variable that is used as a device",
            before="""
                from torch import nn

                target = "cuda"
                net = nn.Linear(1, 1).to(target)
            """,
            after="""
                import torch
                from torch import nn

                target = "cuda" if torch.cuda.is_available() else "cpu"
                net = nn.Linear(1, 1).to(target)
            """,
        ),
        Example(
            "an option of which only one copy is replaced without CUDA",
            before="""
                import argparse

                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--device", default="cuda")
                args = parser.parse_args()
                device = args.device
                if not torch.cuda.is_available():
                    device = "cpu"
                net.to(device)
                x.to(args.device)
            """,
            after="""
                import argparse

                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
                args = parser.parse_args()
                device = args.device
                if not torch.cuda.is_available():
                    device = "cpu"
                net.to(device)
                x.to(args.device)
            """,
        ),
    )
    VALID = (
        *literals.VALID,
        *safety.VALID,
        Example(
            "under a guard",
            """
                import torch

                device = "cpu"
                if torch.cuda.is_available():
                    device = "cuda"
            """,
        ),
        Example(
            "a variable that is replaced without CUDA",
            """
                import torch

                device = "cuda"
                if not torch.cuda.is_available():
                    device = "cpu"
                net.to(device)
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._defaults = defaults.Defaults(context)

    def visit_Constant(self, node: ast.Constant) -> Iterator[Finding]:
        if isinstance(node.value, str) and node.value[:1] in ("c", "C"):
            parent = self.facts.tree.parents.get(node)
            if not isinstance(parent, ast.JoinedStr):
                yield from self._check(literals.whole_name(self.facts, node))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Iterator[Finding]:
        yield from self._check(literals.whole_name(self.facts, node))

    def _check(self, value: ast.expr | None) -> Iterator[Finding]:
        """Check an expression whose value is the name of a CUDA device."""
        if value is None or value in self.context.handled or self.facts.is_guarded(value):
            return
        if literals.is_of_another_rule(self.facts, value):
            return
        if is_replaced(self.facts, value) or self._is_fallback(value):
            return
        use = self.context.forwards.use_of(value)
        why = safety.why_unsafe(self.context, value, use)
        if why is not None:
            yield self._report(value, why)
        elif Use.UNKNOWN in use and (type(cuda_literal(value)) is int or self._uses_torch):
            message = self._message(value, "may be used as a CUDA device")
            yield self.finding(value, message, unless="because the value's uses are unknown")

    def _is_fallback(self, value: ast.expr) -> bool:
        """Return whether a type is CUDA's only without an accelerator, where it turns autocast off."""
        parent = self.facts.tree.parents.get(value)
        if not isinstance(parent, ast.IfExp) or value is not parent.orelse:
            return False
        return self.facts.call(parent.test, "torch.accelerator.is_available")

    @cached_property
    def _uses_torch(self) -> bool:
        return uses_torch(self.facts)

    def _report(self, value: ast.expr, why: str) -> Finding:
        self.context.mark_handled(value)
        fix = None
        if not why:
            fix = arguments.argument_fix(self.context, value, self._defaults) or self._defaults.fix(value)
        fix = fix or self.context.when_cuda(value, '"cpu"', why)
        finding = self.finding(value, self._message(value, "is a CUDA device"), fix)
        return checked_for_uses(self.context, value, finding)

    def _message(self, value: ast.expr, problem: str) -> str:
        code = self.context.source.code(value)
        return f"`{code}` {problem}, which may not exist; use {self._advised}"
