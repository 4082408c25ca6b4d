from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import may_ask_tensor
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.needs import used_as_number
from devicefix.facts.flow.taken_numbers import parsed_device
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule


class TensorDeviceNumber(Rule):
    """
    ## What it does
    Finds code that uses a tensor's device index in arithmetic or as a list index. Also finds code that reads the index
    from a device name.

    ## Why it matters
    On a CPU, `x.get_device()` returns -1, which selects the last item of a list, and `x.device.index` is `None`. The
    name `"cpu"` contains no number, so `int("cpu")` and `"cpu".split(":")[1]` raise errors.

    ## Example
    ```python
    buffer = buffers[x.get_device()]
    rank = int(str(device).split(":")[1])
    ```

    ## Use instead
    ```python
    buffer = buffers[x.get_device() if x.is_cuda else 0]
    rank = int(str(device).split(":")[1]) if ":" in str(device) else 0
    ```

    ## Fix safety
    There is no fix. For the CPU, choose a number that is right for your program. If the number is used only as a device,
    another rule usually fixes that use.
    """

    code = "DF206"
    name = "tensor-device-number"
    summary = "The code needs a device index, which a CPU does not have"
    words = (b"get_device(", b".device.index")
    common_words = (b"cuda", b'split(":")', b"split(':')", b'partition(":")', b"partition(':')", b"[5:]")
    attributes = ("index",)
    INVALID = (
        Example(
            "the index of a list",
            before="""
                import torch

                buffer = buffers[x.get_device()]
                number = x.get_device()
                print(number)
                count[number] += 1
            """,
        ),
        Example(
            "a sum",
            before="""
                import torch

                x = torch.ones(2)
                following = x.device.index + 1
            """,
        ),
        Example(
            "a number out of the name of a device",
            before=r"""
                import re

                import torch

                class Worker:
                    def __init__(self, device, place):
                        self.device = device
                        self.rank = int(str(self.device).strip("cuda:"))
                        self.other = int(device.split(":")[-1]) + int(str(x.device)[5:])
                        self.visible = place.split("cuda:")[1]
                        kind, index = str(x.device).split(":")
                        self.last = re.search(r"cuda:(\d+)", place).group(1)
            """,
        ),
    )
    VALID = (
        Example(
            "numbers that are only compared and printed",
            """
                import torch

                if x.get_device() >= 0:
                    print(x.get_device(), y.device.index)
            """,
        ),
        Example(
            "names that are asked about, and other texts with a colon",
            """
                import torch

                host, port = address.split(":")[0], int(address.split(":")[1])
                if device.startswith("cuda:"):
                    rank = int(device.split(":")[1])
                try:
                    rank = int(device.replace("cuda:", ""))
                except ValueError:
                    rank = 0


                def number(device):
                    if ":" not in device:
                        return 0
                    return int(device.split(":")[1])
            """,
        ),
        Example(
            "a tensor on a GPU",
            """
                import torch

                if x.is_cuda:
                    buffer = buffers[x.get_device()]
            """,
        ),
        Example(
            "a get_device of the project, which returns a device",
            """
                import torch

                class Net:
                    def get_device(self):
                        return next(self.parameters()).device

                buffer = buffers[net.get_device()]
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if may_ask_tensor(self.context, node):
            yield from self._check(node, "-1")
        yield from self._parsed(node)

    def visit_Subscript(self, node: ast.Subscript) -> Iterator[Finding]:
        yield from self._parsed(node)

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        yield from self._parsed(node)
        match node:
            case ast.Attribute(attr="index", value=ast.Attribute(attr="device", value=tensor)):
                if Kind.TENSOR in self.facts.kinds.of(tensor).seen:
                    yield from self._check(node, "`None`")

    def _parsed(self, node: ast.expr) -> Iterator[Finding]:
        """Check code that takes the number out of the name of a device."""
        name = parsed_device(self.facts, node)
        if name is not None:
            code = self.context.source.code(name)
            yield self.finding(
                node,
                f"this reads the device index from `{code}`, but `cpu` has no index; check for the CPU first",
            )

    def _check(self, node: ast.expr, without: str) -> Iterator[Finding]:
        used = used_as_number(self.context.forwards, node)
        if used is not None:
            code = self.context.source.code(node)
            problem = f"`{code}` is {without} on a CPU, and line {used.lineno} uses it as a number"
            yield self.finding(node, f"{problem}; check for the CPU first")
