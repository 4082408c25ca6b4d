from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.device_numbers import defined_as_device


class NumberAsDevice(Rule):
    """
    ## What it does
    Finds variables that contain a GPU index and are used only as a device, in calls to `torch.cuda` functions, or in
    output. Also finds attributes that a class uses as a device several times.

    ## Why it matters
    As a device, an int is the index of an accelerator. Without an accelerator, `.to(0)` and `device=0` raise an error.

    ## Example
    ```python
    device = rank % torch.cuda.device_count()
    torch.cuda.set_device(device)
    model.to(device)
    ```

    ## Use instead
    ```python
    device = rank % torch.cuda.device_count() if torch.cuda.is_available() else "cpu"
    if torch.cuda.is_available():
        torch.cuda.set_device(device)
    model.to(device)
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the value is the same as before.

    If a variable has other uses, or if code outside the class may use the attribute, rules such as `DF102` fix each use
    separately.
    """

    code = "DF205"
    name = "number-as-device"
    summary = "A variable or attribute that holds a GPU index is used as a device"
    words = (b"cuda", b"get_rank(", b"LOCAL_RANK")
    companions = (b".to", b"device")
    common_words = (b".to", b"device", b"gpu", b"rank")
    before = ("DF402", "DF401")
    INVALID = (
        Example(
            "the rank on this machine",
            before="""
                import torch
                import torch.distributed as dist

                rank = dist.get_rank()
                device = rank % torch.cuda.device_count()
                torch.cuda.set_device(device)
                print(f"{rank} on {device}")
                model = Net().to(device)
                x = torch.zeros(3, device=device)
                sample(x, device=device)
                score(**{"batch_size": 2, "device": device})
            """,
            after="""
                import torch
                import torch.distributed as dist

                rank = dist.get_rank()
                device = rank % torch.cuda.device_count() if torch.cuda.is_available() else "cpu"
                if torch.cuda.is_available():
                    torch.cuda.set_device(device)
                print(f"{rank} on {device}")
                model = Net().to(device)
                x = torch.zeros(3, device=device)
                sample(x, device=device)
                score(**{"batch_size": 2, "device": device})
            """,
        ),
        Example(
            "by another name, in a function",
            before="""
                import os

                import torch


                def main():
                    where = int(os.environ["LOCAL_RANK"])
                    return torch.zeros(3, device=where), model.to(where)
            """,
            after="""
                import os

                import torch


                def main():
                    where = int(os.environ["LOCAL_RANK"]) if torch.cuda.is_available() else "cpu"
                    return torch.zeros(3, device=where), model.to(where)
            """,
        ),
        Example(
            "a number in one branch, the name of a device in the other",
            before="""
                import torch


                def main(net, distributed, rank):
                    if distributed:
                        device = rank % torch.cuda.device_count()
                    else:
                        device = "cuda"
                    return net.to(device)
            """,
            after="""
                import torch


                def main(net, distributed, rank):
                    if distributed:
                        device = rank % torch.cuda.device_count() if torch.cuda.is_available() else "cpu"
                    else:
                        device = "cuda" if torch.cuda.is_available() else "cpu"
                    return net.to(device)
            """,
        ),
        Example(
            "an attribute to which a class moves several times",
            before="""
                import torch


                class Mover:
                    def __init__(self, device=0):
                        self.device = device

                    def move(self, x):
                        return x.to(self.device)

                    def noise(self):
                        return torch.randn(3, device=self.device)


                mover = Mover(device=1)
                x = mover.move(mover.noise())
            """,
            after="""
                import torch


                class Mover:
                    def __init__(self, device=0):
                        self.device = device if torch.cuda.is_available() else "cpu"

                    def move(self, x):
                        return x.to(self.device)

                    def noise(self):
                        return torch.randn(3, device=self.device)


                mover = Mover(device=1)
                x = mover.move(mover.noise())
            """,
        ),
    )
    VALID = (
        Example(
            "an attribute that a function sets, which no class shows to be a method",
            """
                import torch


                class Net(torch.nn.Module):
                    def load(self, path):
                        self.x = self.x.to(self.rank)
                        return torch.load(path, map_location=self.rank)


                def choose(self, rank):
                    self.rank = rank % max(torch.cuda.device_count(), 1)
            """,
        ),
        Example(
            "an attribute that is used as a number, too",
            """
                import torch


                class Mover:
                    def __init__(self, device=0):
                        self.device = device

                    def move(self, x):
                        return x.to(self.device) if self.device > 0 else x.to(self.device, torch.half)
            """,
        ),
        Example(
            "a number that is used as a number, too",
            """
                import os

                import torch

                rank = int(os.environ["LOCAL_RANK"])
                torch.manual_seed(rank)
            """,
        ),
        Example(
            "a number that only calls get that are fixed one by one",
            """
                import os

                import torch

                rank = int(os.environ["LOCAL_RANK"])
                net.cuda(rank)
                net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank], output_device=rank)
            """,
        ),
        Example(
            "the number that a function returns which does more",
            """
                import torch
                import torch.distributed as dist


                def init():
                    dist.init_process_group("gloo")
                    return dist.get_rank()


                device = init()
                x = torch.zeros(3, device=device)
            """,
        ),
        Example(
            "a choice by availability",
            """
                import torch

                device = 0 if torch.cuda.is_available() else "cpu"
                model.to(device)
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._found: set[ast.expr] = set()

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        yield from self._check(node.targets[0])

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        # The line of the assignment may hold no word that it is visited for.
        for argument in (*node.args[:1], *(keyword.value for keyword in node.keywords)):
            yield from self._check(argument)

    def _check(self, name: ast.expr) -> Iterator[Finding]:
        value = defined_as_device(self.context, name)
        if value is None or value in self._found:
            return
        self._found.add(value)
        self.context.mark_handled(value)
        code = self.context.source.code(name)
        message = f"`{code}` is a GPU index that is used as a device; without {self._wanted}, use the CPU"
        yield self.finding(value, message, self.context.when_cuda(value, '"cpu"'))
