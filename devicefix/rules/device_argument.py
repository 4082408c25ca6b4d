from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from devicefix.devices.arguments import device_fix, gpu_number, name_fix
from devicefix.facts.flow.forwards import Use
from devicefix.facts.flow.needs import use_by_function
from devicefix.facts.flow.parameters import arguments_of
from devicefix.facts.flow.settled import has_own_fix, moves_number
from devicefix.facts.flow.sinks import LOADS, OFF_BY_THEMSELVES
from devicefix.facts.prefilter import brings_torch
from devicefix.facts.scopes import dotted
from devicefix.facts.texts import text_of
from devicefix.facts.values import (
    cuda_device,
    cuda_string,
    device_name,
    index_name,
    integer,
    is_current_object,
    last_name,
)
from devicefix.model import Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.device_numbers import is_fixed_where_bound
from devicefix.rules.shared.device_uses import checked_for_uses

_OTHER_DEVICE = "this may be the index of another kind of device, such as a camera"
_NUMBERED = "the program adds an index to the device, but a CPU has no index"
# Other rules check these, or they ignore their devices on a CPU.
_OTHER_RULES = (
    *LOADS,
    "torch.device",
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)


class DeviceArgument(Rule):
    """
    ## What it does
    Finds CUDA devices passed as arguments, as in `device="cuda"`, `device=0` and `torch.set_default_device("cuda")`.
    The argument can also be a variable that contains a GPU index.

    ## Why it matters
    Without CUDA, either the call itself or a later use of the device fails.

    ## Example
    ```python
    noise = torch.randn(4, 3, device="cuda")
    encoder = Encoder(device="cuda")
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    noise = torch.randn(4, 3, device=device)
    encoder = Encoder(device="cuda" if torch.cuda.is_available() else "cpu")
    ```

    ## Fix safety
    The fix is usually safe: most `torch` functions accept a `torch.device` as well as a name. With CUDA, any other function
    receives the same value as before.

    The fix is unsafe if:

    - the function needs an index or does not allow the CPU.
    - the function adds an index to the name, as in `torch.device(device, 1)`. Without CUDA, the result `cpu:1` never
      equals a tensor's device.
    - the argument may be something other than a GPU index, such as the index of a camera.
    """

    code = "DF202"
    name = "device-argument"
    summary = "A CUDA device is passed as an argument"
    words = (b"cuda", b"'cu'", b'"cu"', b"get_device(", b"device=0", b"device=1")
    common_words = (b"device", b"gpu", b"rank")
    INVALID = (
        Example(
            "a factory function",
            before="""
                import torch

                x = torch.randn(4, device="cuda")
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = torch.randn(4, device=device)
            """,
        ),
        Example(
            "a text beside moves, which take one as well",
            before="""
                import torch

                encoder = Encoder(device="cuda")
                net = Net().cuda()
            """,
            after="""
                import torch

                device = "cuda" if torch.cuda.is_available() else "cpu"

                encoder = Encoder(device=device)
                net = Net().to(device)
            """,
        ),
        Example(
            "texts beside what must be an object",
            before="""
                import torch

                encoder = Encoder(device="cuda")
                decoder = Decoder(device=torch.device("cuda"))
                first = Encoder(device="cuda:0")
                other = Decoder(device=torch.device("cuda:0"))
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                device0 = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

                encoder = Encoder(device=device.type)
                decoder = Decoder(device=device)
                first = Encoder(device=str(device0))
                other = Decoder(device=device0)
            """,
        ),
        Example(
            "a text where the function has a device",
            before="""
                import torch


                def build():
                    device = torch.device("cuda")
                    return Encoder(device="cuda"), Net().to(device)
            """,
            after="""
                import torch


                def build():
                    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                    return Encoder(device=device.type), Net().to(device)
            """,
        ),
        Example(
            "the constructor of an unknown class",
            before="""
                import torch

                encoder = Encoder(device='cuda:0', depth=2)
            """,
            after="""
                import torch

                encoder = Encoder(device='cuda:0' if torch.cuda.is_available() else 'cpu', depth=2)
            """,
        ),
        Example(
            "the constructor of an unknown class, which gets an object as before, not the module's text",
            before="""
                import torch

                device = "cuda"
                encoder = Encoder(device=torch.device("cuda")).to(device)
                decoder = Decoder(device=torch.device("cuda")).to(device)
            """,
            after="""
                import torch

                default_device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                device = "cuda" if torch.cuda.is_available() else "cpu"
                encoder = Encoder(device=default_device).to(device)
                decoder = Decoder(device=default_device).to(device)
            """,
        ),
        Example(
            "the device of another tensor by get_device",
            before="""
                import torch

                y = torch.ones(3, device="cuda")
                x = torch.zeros(3, device=y.get_device())
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                y = torch.ones(3, device=device)
                x = torch.zeros(3, device=y.device)
            """,
        ),
        Example(
            "get_device of what may be no tensor",
            before="""
                import torch

                x = torch.zeros(3, device=y.get_device())
            """,
            after="""
                import torch

                x = torch.zeros(3, device=y.get_device() if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a number for an unknown function",
            before="""
                import torch

                generate = pipeline(device=0)
            """,
            after="""
                import torch

                generate = pipeline(device=0 if torch.cuda.is_available() else "cpu")
            """,
            unsafe=True,
        ),
        Example(
            "a number for a function of a library with torch",
            before="""
                import torch
                from transformers import pipeline

                generate = pipeline("text-generation", device=0)
            """,
            after="""
                import torch
                from transformers import pipeline

                generate = pipeline("text-generation", device=0 if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "the default device",
            before="""
                import torch

                torch.set_default_device("cuda")
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                torch.set_default_device(device)
            """,
        ),
        Example(
            "the number of a GPU for a library",
            before="""
                import argparse

                import torch
                from transformers import pipeline

                parser = argparse.ArgumentParser()
                parser.add_argument("--local_rank", type=int, default=0)
                args = parser.parse_args()
                pipe = pipeline("fill-mask", device=args.local_rank)
            """,
            after="""
                import argparse

                import torch
                from transformers import pipeline

                parser = argparse.ArgumentParser()
                parser.add_argument("--local_rank", type=int, default=0)
                args = parser.parse_args()
                pipe = pipeline("fill-mask", device=args.local_rank if torch.cuda.is_available() else "cpu")
            """,
            unsafe=True,
        ),
        Example(
            "a number in a tuple of a loop, and in an attribute of a class",
            before="""
                import torch

                for q7 in [(0, "name")]:
                    x = torch.ones(2, device=q7[0])


                class Config:
                    for q8 in [1]:
                        pass


                y = torch.ones(2, device=Config().q8)
            """,
            after="""
                import torch

                for q7 in [(0, "name")]:
                    x = torch.ones(2, device=q7[0] if torch.cuda.is_available() else "cpu")


                class Config:
                    for q8 in [1]:
                        pass


                y = torch.ones(2, device=Config().q8 if torch.cuda.is_available() else "cpu")
            """,
            unsafe=True,
        ),
        Example(
            "a name that gets a number",
            before="""
                import torch

                def build(device, index):
                    return torch.device(device, index)

                where = build(device="cuda", index=1)
            """,
            after="""
                import torch

                device = "cuda" if torch.cuda.is_available() else "cpu"

                def build(device, index):
                    return torch.device(device, index)

                where = build(device=device, index=1)
            """,
            unsafe=True,
        ),
        Example(
            "a number for functions that are not known, several times",
            before="""
                import torch


                def load():
                    first = one(device=0)
                    return first, other(device=0)
            """,
            after="""
                import torch


                def load():
                    target_device = 0 if torch.cuda.is_available() else "cpu"
                    first = one(device=target_device)
                    return first, other(device=target_device)
            """,
            unsafe=True,
        ),
    )
    VALID = (
        Example(
            "a get_device of the project, which returns a device",
            """
                import torch


                class Net(torch.nn.Module):
                    def get_device(self):
                        return self.weight.device


                x = torch.zeros(1, device=net.get_device())
                cuda = 1
            """,
        ),
        Example(
            "an unknown variable",
            """
                import torch

                evaluator = Evaluator(device=gpu_id)
            """,
        ),
        Example(
            "a parameter that is used as a number",
            """
                import torch


                def run(device):
                    return device >= 0


                run(device=args.gpu)
                cuda = 1
            """,
        ),
        Example(
            "the device numbers of DataParallel",
            """
                import torch

                net = torch.nn.DataParallel(net, device_ids=[0], output_device=0)
            """,
        ),
        Example(
            "a device_id keyword",
            """
                import torch

                detector = Detector(path, device_id=0)
            """,
        ),
        Example(
            "the device type of autocast",
            """
                import torch

                with torch.autocast(device_type="cuda"):
                    pass
            """,
        ),
        Example(
            "a variable",
            """
                import torch

                x = torch.randn(4, device=device)
            """,
        ),
        Example(
            "a number that is no GPU's",
            """
                import torch
                from library import Camera

                camera = Camera(device=options.camera)
                number = 0 if kind == "cuda" else -1
                other = Camera(device=number)
            """,
        ),
        Example(
            "a call that has nothing to do with torch",
            """
                import cv2

                camera = cv2.VideoCapture(0)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if name in OFF_BY_THEMSELVES or name in _OTHER_RULES or name.startswith("torch.cuda."):
            return
        of_torch = name.startswith("torch.")
        for value in self._devices(node, name):
            device = self.facts.call(value, "torch.device") and cuda_device(self.facts, value)
            literal = cuda_string(value) or integer(value)
            if not (device or literal or self._is_number(value)):
                continue
            if value in self.context.handled or self.facts.is_guarded(value):
                continue
            if not of_torch and is_current_object(self.facts, value):
                # What takes an object may not take the name of a device.
                new = self.devices.shared(value, define=True)
                fix = self.context.replace(value, new) if new is not None else None
            elif of_torch or device or has_own_fix(self.context.forwards, value):
                fix = device_fix(self.context, value)
            else:
                fix = name_fix(self.context, value) or self._otherwise_cpu(node, value, bool(literal))
            if fix is None:
                continue  # the rule for torch.device checks it, or the parts of which it is composed
            self.context.mark_handled(value)
            what = "the index of a GPU" if dotted(value) is not None else "a CUDA device"
            certain = not fix.why or device or cuda_string(value)
            problem = f"is {what}, which may not exist" if certain else f"may be {what}"
            message = f"`{self.context.source.code(value)}` {problem}; use {self._advised}"
            finding = self.finding(value, message, fix)
            finding = checked_for_uses(self.context, value, finding)
            numbered = finding.fix and not of_torch and self._gets_number(value)
            yield finding.unsafe(_NUMBERED) if numbered else finding

    def _otherwise_cpu(self, node: ast.Call, value: ast.expr, literal: bool) -> Fix:
        """Return the fix that passes the CPU without CUDA: unsafe if the number may be of another device."""
        fix = self.context.when_cuda(value, '"cpu"', "" if literal else _OTHER_DEVICE)
        name = self.facts.resolve(node.func)
        brings = name is not None and brings_torch(name)
        if brings or not integer(value) or Use.DEVICE in use_by_function(self.context.forwards, value):
            return fix
        return replace(fix, why=_OTHER_DEVICE)

    def _gets_number(self, value: ast.expr) -> bool:
        """Return whether the name of a device without a number gets one: `torch.device(name, 1)`."""
        name = text_of(value) or ""
        return name.lower() == "cuda" and Use.NUMBERED in self.context.forwards.use_of(value)

    def _is_number(self, value: ast.expr) -> bool:
        return not is_fixed_where_bound(self.context, value) and gpu_number(self.context, value) is not None

    def _devices(self, node: ast.Call, name: str) -> Iterator[ast.expr]:
        """Yield the arguments that are devices, by their keyword or by the parameter of a function of the project."""
        for keyword in node.keywords:
            if self._is_device_keyword(keyword, node.func, of_torch=name.startswith("torch.")):
                yield keyword.value
        yield from (each for _, each in arguments_of(node) if has_own_fix(self.context.forwards, each))
        if name in ("torch.Generator", "torch.set_default_device"):
            yield from node.args[:1]

    def _is_device_keyword(self, keyword: ast.keyword, function: ast.expr, of_torch: bool) -> bool:
        """Return whether a keyword argument is a device."""
        value = keyword.value
        if keyword.arg is None or not takes_device(keyword.arg):
            return False
        if of_torch or cuda_string(value):
            return True
        literal = integer(value) or self.facts.call(value, "torch.device")
        if literal and moves_number(self.facts, value):
            return True
        # For another library, `device_id=0` is also valid on a CPU.
        if keyword.arg != "device":
            return False
        if not literal and (not index_name(last_name(value)) or self.facts.resolve(function) is None):
            return False
        if not literal and gpu_number(self.context, value) is None:  # it may be -1, which often is the CPU
            return False
        return not self._is_of_project(function)

    def _is_of_project(self, function: ast.expr) -> bool:
        """Return whether a function is defined in the module, or imported from the project."""
        name = self.facts.resolve(function)
        if name is not None:
            return self.context.project.has_module(self.devices.path, name.rpartition(".")[0])
        return isinstance(function, ast.Name) and bool(self.facts.tree.scope(function).lookup(function.id))


def takes_device(keyword: str) -> bool:
    """Return whether an argument of this name is a device."""
    return keyword == "map_location" or device_name(keyword)
