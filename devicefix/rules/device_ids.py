from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from devicefix.facts.flow.parameters import argument_at
from devicefix.facts.scopes import dotted
from devicefix.facts.texts import text_of
from devicefix.facts.values import is_constant, last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

_OTHER_DEVICES = "the devices may belong to another accelerator"
_WRAPPERS = ("DistributedDataParallel", "DDP")
_OF_TORCH = (
    "torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel",
)  # fmt: skip
_OUTPUT = re.compile(r"\s*,\s*output_device\s*=\s*\w")
# The functions with an argument `device_id`, and its position: torch.distributed.distributed_c10d, torch 2.13.
_GROUPS = {"init_process_group": 8, "new_group": 6}


class DeviceIds(Rule):
    """
    ## What it does
    Finds arguments that select GPUs in distributed training: `device_ids` and `output_device` of
    `DistributedDataParallel`, `device_ids` of `barrier`, and `device_id` of `init_process_group` and `new_group`. Also
    finds the `devices` argument of `torch.random.fork_rng`.

    ## Why it matters
    On a CPU, many of these calls raise an error, such as "device_id is an int, but no accelerator support is found".

    ## Example
    ```python
    model = DistributedDataParallel(model, device_ids=[rank], output_device=rank)
    ```

    ## Use instead
    ```python
    model = DistributedDataParallel(model, device_ids=[rank] if torch.cuda.is_available() else None)
    ```

    You can omit `output_device`, which defaults to the device in `device_ids`.

    ## Fix safety
    The fix is usually safe: with CUDA, the call uses the same GPUs as before. It is unsafe for a `devices` argument
    that may refer to another accelerator. The rule ignores `DataParallel`, which, on a CPU, only calls the model.
    """

    code = "DF602"
    name = "device-ids"
    summary = "An argument such as `device_ids` selects GPUs"
    words = (b"DistributedDataParallel", b"init_process_group", b"fork_rng")
    common_words = (b"device",)
    INVALID = (
        Example(
            "the GPUs whose random state is kept",
            before="""
                import torch

                with torch.random.fork_rng(devices=[0]):
                    x = torch.rand(1)
            """,
            after="""
                import torch

                with torch.random.fork_rng(devices=[0] if torch.cuda.is_available() else []):
                    x = torch.rand(1)
            """,
        ),
        Example(
            "the devices of some accelerator whose random state is kept",
            before="""
                import torch

                with torch.random.fork_rng(devices=[0], device_type=q7):
                    x = torch.rand(1)
            """,
            after="""
                import torch

                with torch.random.fork_rng(devices=[0] if torch.cuda.is_available() else [], device_type=q7):
                    x = torch.rand(1)
            """,
            unsafe=True,
        ),
        Example(
            "the devices whose random state is kept, in a module that also serves another accelerator",
            before="""
                import torch

                if torch.xpu.is_available():
                    with torch.random.fork_rng(devices=[0]):
                        x = torch.rand(1)
            """,
            after="""
                import torch

                if torch.xpu.is_available():
                    with torch.random.fork_rng(devices=[0] if torch.cuda.is_available() else []):
                        x = torch.rand(1)
            """,
            unsafe=True,
        ),
        Example(
            "both keywords",
            before="""
                import torch
                from torch.nn.parallel import DistributedDataParallel as DDP

                net = DDP(net, device_ids=[rank], output_device=rank)
            """,
            after="""
                import torch
                from torch.nn.parallel import DistributedDataParallel as DDP

                net = DDP(net, device_ids=[rank] if torch.cuda.is_available() else None)
            """,
        ),
        Example(
            "an output device that is no other than the device",
            before="""
                import torch

                net = torch.nn.parallel.DistributedDataParallel(
                    net,
                    device_ids=[args.gpu],
                    output_device=args.gpu,
                    find_unused_parameters=True,
                )
                net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[one], output_device=two)
                net = torch.nn.parallel.DistributedDataParallel(
                    net,
                    device_ids=[args.gpu],  # a comment
                    output_device=args.gpu,
                )
            """,
            after="""
                import torch

                net = torch.nn.parallel.DistributedDataParallel(
                    net,
                    device_ids=[args.gpu] if torch.cuda.is_available() else None,
                    find_unused_parameters=True,
                )
                net = torch.nn.parallel.DistributedDataParallel(
                    net,
                    device_ids=[one] if torch.cuda.is_available() else None,
                    output_device=two if torch.cuda.is_available() else None,
                )
                net = torch.nn.parallel.DistributedDataParallel(
                    net,
                    device_ids=[args.gpu] if torch.cuda.is_available() else None,  # a comment
                    output_device=args.gpu if torch.cuda.is_available() else None,
                )
            """,
        ),
        Example(
            "the number of a GPU that is used for nothing else",
            before="""
                import os
                import torch
                from torch.nn.parallel import DistributedDataParallel

                rank = int(os.environ["LOCAL_RANK"])
                net = DistributedDataParallel(net, output_device=rank)
            """,
            after="""
                import os
                import torch
                from torch.nn.parallel import DistributedDataParallel

                rank = int(os.environ["LOCAL_RANK"])
                net = DistributedDataParallel(net, output_device=rank if torch.cuda.is_available() else None)
            """,
        ),
        Example(
            "a dictionary of options",
            before="""
                import torch

                options = {'device_ids': [rank]}
                net = torch.nn.parallel.DistributedDataParallel(net, **options)
            """,
            after="""
                import torch

                options = {'device_ids': [rank] if torch.cuda.is_available() else None}
                net = torch.nn.parallel.DistributedDataParallel(net, **options)
            """,
        ),
        Example(
            "device_ids by position",
            before="""
                import torch

                net = torch.nn.parallel.DistributedDataParallel(net, [gpu])
            """,
            after="""
                import torch

                net = torch.nn.parallel.DistributedDataParallel(net, [gpu] if torch.cuda.is_available() else None)
            """,
        ),
        Example(
            "the device of a process group",
            before="""
                import torch
                import torch.distributed as dist

                device = torch.device(f"cuda:{rank}")
                dist.init_process_group(backend, device_id=device)
                dist.init_process_group(backend, device_id=torch.device("cuda", rank))
                group = dist.new_group([0], device_id=self.q7)
            """,
            after="""
                import torch
                import torch.distributed as dist

                device = torch.device(f"cuda:{rank}" if torch.cuda.is_available() else "cpu")
                dist.init_process_group(backend, device_id=device if torch.cuda.is_available() else None)
                dist.init_process_group(backend, device_id=torch.device("cuda", rank) if torch.cuda.is_available() else None)
                group = dist.new_group([0], device_id=self.q7 if torch.cuda.is_available() else None)
            """,
        ),
        Example(
            "a device of a process group that is the CPU without CUDA",
            before="""
                import torch
                import torch.distributed as dist

                device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
                dist.init_process_group(device_id=device)
            """,
            after="""
                import torch
                import torch.distributed as dist

                device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
                dist.init_process_group(device_id=device if torch.cuda.is_available() else None)
            """,
        ),
    )
    VALID = (
        Example(
            "a device that is None without CUDA",
            """
                import torch
                import torch.distributed as dist

                device = torch.device("cuda", rank) if torch.cuda.is_available() else None
                dist.init_process_group(device_id=device)
            """,
        ),
        Example(
            "a dictionary with the number of another device",
            """
                import torch

                camera = {"device_id": 0}
                cuda = 1
            """,
        ),
        Example(
            "DataParallel",
            """
                import torch

                net = torch.nn.DataParallel(net, device_ids=[0, 1])
            """,
        ),
        Example(
            "the GPUs whose random state is kept, of which there may be none",
            """
                import torch

                devices = []
                if use_cuda:
                    devices = [0]
                with torch.random.fork_rng(devices=devices):
                    pass
            """,
        ),
        Example(
            "the devices of another accelerator, whose random state is kept",
            """
                import torch

                with torch.random.fork_rng(devices=[0], device_type="xpu"):
                    x = torch.rand(1)
            """,
        ),
        Example(
            "None",
            """
                import torch

                net = torch.nn.parallel.DistributedDataParallel(net, device_ids=None)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        wraps = name.endswith(_WRAPPERS) or last_name(node.func) in _WRAPPERS
        if (wraps or name == "torch.distributed.barrier") and not self.facts.is_guarded(node):
            named = (each for each in node.keywords if each.arg in ("device_ids", "output_device"))
            values = [*(each.value for each in named), *(node.args[1:3] if wraps else ())]
            names = "`device_ids` and `output_device`" if wraps else "`device_ids`"
            yield from self._report(node, names, *values)
        elif name in ("torch.random.fork_rng", "torch.fork_rng") and not self.facts.is_guarded(node):
            yield from self._of_kept_state(node)
        elif last_name(node.func) in _GROUPS and not self.facts.is_guarded(node):
            position = _GROUPS[last_name(node.func)]
            values = [keyword.value for keyword in node.keywords if keyword.arg == "device_id"]
            yield from self._report(node, "`device_id`", *values, *node.args[position : position + 1])

    def visit_Dict(self, node: ast.Dict) -> Iterator[Finding]:
        """Check a dictionary of arguments, which may be passed as `**options`."""
        for key, value in zip(node.keys, node.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else None
            if self.facts.is_guarded(value):
                continue
            if name == "device_ids" and isinstance(value, ast.List):
                yield from self._report(value, "`device_ids`", value)
            elif name == "device_id" and any(map(self._is_unpacked, self.context.forwards.of(node).uses)):
                yield from self._report(value, "`device_id`", value)

    def _of_kept_state(self, node: ast.Call) -> Iterator[Finding]:
        """Check the devices whose random state is kept: their type is an argument, or any accelerator's."""
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        devices = given.get("devices", node.args[0] if node.args else None)
        kind = given.get("device_type")
        named = text_of(kind) if kind is not None else None
        if devices is None or not self._is_list(devices) or named not in (None, "cuda"):
            return
        unknown = kind is not None and named is None
        why = _OTHER_DEVICES if unknown and "cuda" not in self.context.source.code(devices) else ""
        found = self._report(node, "`devices`", devices, instead="[]", why=why)
        translation = self.context.translation if kind is None else None
        yield from (
            found if translation is None else (translation.types.with_type(node, each) for each in found)
        )

    def _report(
        self,
        node: ast.expr,
        names: str,
        *values: ast.expr,
        instead: str = "None",
        why: str = "",
    ) -> Iterator[Finding]:
        """Yield the finding of arguments that should be None on a CPU, or an empty list."""
        values = tuple(value for value in values if not self._settled(value))
        if not values:
            return
        self.context.mark_handled(*values)
        repeated = self._repeated(node)
        fixes = [self._only_with_cuda(value, instead) for value in values if value is not repeated]
        edits: tuple[Edit, ...] = tuple(edit for fix in fixes for edit in fix.edits)
        edits += (self._without(node, repeated),) if repeated is not None else ()
        needs = frozenset().union(*(fix.needs for fix in fixes))
        rule = "should be None" if instead == "None" else "must be empty"
        advice = "on a CPU; pass GPUs only if CUDA is available"
        if self.context.accelerator is not None:
            advice = "on a CPU and on MPS; pass devices only on other accelerators"
        yield self.finding(node, f"{names} {rule} {advice}", Fix(edits, why, needs))

    def _repeated(self, node: ast.expr) -> ast.expr | None:
        """Return the `output_device` that is the default: the only one of `device_ids`, right above it."""
        if self.facts.resolve(getattr(node, "func", node)) not in _OF_TORCH:
            return None
        for first, second in pairwise(getattr(node, "keywords", ())):
            match first, second:
                case (
                    ast.keyword(
                        arg="device_ids", value=ast.List(elts=[ast.Name() | ast.Attribute() as only]) as ids
                    ),
                    ast.keyword(arg="output_device", value=output),
                ) if ast.dump(only) == ast.dump(output):
                    between = self.context.source.text[self.context.source.span(ids)[1] :]
                    return output if _OUTPUT.match(between) else None
        return None

    def _without(self, node: ast.expr, repeated: ast.expr) -> Edit:
        """Return the edit that removes an argument that follows another."""
        assert isinstance(node, ast.Call)
        at = [keyword.value for keyword in node.keywords].index(repeated)
        before = node.keywords[at - 1].value
        return Edit(self.context.source.span(before)[1], self.context.source.span(repeated)[1], "")

    def _only_with_cuda(self, value: ast.expr, instead: str) -> Fix:
        """Return the fix that passes a value only with CUDA; a choice that has nothing as well asks for both."""
        match value:
            case ast.IfExp(
                test=ast.Compare() | ast.Name() | ast.Attribute() as test,
                orelse=ast.Constant(value=None) | ast.List(elts=[]),
            ):
                return self.context.test_with_cuda(test, otherwise=False)
        # PyTorch takes the index of a device for DDP, and MPS has none.
        return self.context.when_cuda(value, instead, on_mps=instead != "None")

    def _is_unpacked(self, node: ast.expr) -> bool:
        """Return whether a function that makes a process group gets `**node`."""
        found = argument_at(self.facts.tree, node)
        return found is not None and found[1] is None and last_name(found[0].func) in _GROUPS

    def _is_list(self, value: ast.expr) -> bool:
        """Return whether a value is made as a list, or bound once, to such a one."""
        bound = self.facts.value(value) if isinstance(value, ast.Name) else None
        return isinstance(bound or value, (ast.List, ast.Tuple, ast.ListComp, ast.Call))

    def _settled(self, value: ast.expr) -> bool:
        """Return whether an argument is None, or None without CUDA."""
        if isinstance(value, ast.IfExp):
            if self.facts.guards.implies(value.test):
                return _is_none(value.orelse)
            return self.facts.guards.implies(value.test, False) and _is_none(value.body)
        bound = self.facts.value(value) if dotted(value) is not None else None
        if isinstance(bound, ast.IfExp):
            return self._settled(bound)
        return isinstance(value, ast.Starred) or _is_none(value)


def _is_none(node: ast.expr) -> bool:
    empty = isinstance(node, (ast.List, ast.Tuple)) and not node.elts
    return empty or is_constant(node, None)
