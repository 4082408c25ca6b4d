from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.kinds import NUMBERS, Kind
from devicefix.facts.kinds.library import CURRENT_ACCELERATOR
from devicefix.facts.values import last_name
from devicefix.model import Finding, Safety
from devicefix.rules.base import Example, Rule

_OPTIMIZERS = tuple(
    f"torch.optim.{name}"
    for name in ("ASGD", "Adadelta", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
)
_KERNEL = "torch.nn.attention.sdpa_kernel"
_OLD_KERNEL = "torch.backends.cuda.sdp_kernel"
_SWITCHES = ("torch.backends.cuda.enable_flash_sdp", "torch.backends.cuda.enable_math_sdp")
_FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
_DEVICE = "torch.device"
_ASKING = (ast.Compare, ast.If, ast.IfExp, ast.BoolOp, ast.UnaryOp, ast.Assert)
_CPU_KERNELS = ("MATH", "FLASH_ATTENTION")  # the others have no kernel for a CPU
_NO_KERNEL = "leaves no kernel of scaled dot product attention for a CPU; allow `MATH` without CUDA"


class CudaOnlySetting(Rule):
    """
    ## What it does
    Finds settings of torch with which it needs CUDA: optimizers with `capturable=True`, kernels of scaled dot
    product attention that a CPU does not have, attributes and names of
    `torch.accelerator.current_accelerator()`, and `FullyShardedDataParallel` without a `device_id` that is a device.

    ## Why it matters
    Measured on torch 2.13 without CUDA: the step of a capturable optimizer raises an `AssertionError`. Attention
    raises `RuntimeError: No viable backend` unless its math or flash kernels are allowed. The current accelerator is
    `None`, which has no `type`. `FullyShardedDataParallel` needs an accelerator unless it is given a device.

    ## Example
    ```python
    optimizer = torch.optim.Adam(net.parameters(), capturable=True)
    ```

    ## Use instead
    ```python
    optimizer = torch.optim.Adam(net.parameters(), capturable=True if torch.cuda.is_available() else False)
    ```

    ## Fix safety
    Unsafe for `capturable`: it computes the corrections of a step in float32, and other optimizers do so in float64,
    which may differ in the last digits. The other settings are reported without a fix.
    """

    code = "DF411"
    name = "cuda-only-setting"
    summary = "A setting of torch only works with CUDA"
    references = (*_OPTIMIZERS, _KERNEL, _OLD_KERNEL, *_SWITCHES, _FSDP, CURRENT_ACCELERATOR, _DEVICE)
    words = (b"capturable", b"sdpa_kernel", b"FullyShardedDataParallel", b"current_accelerator")
    common_words = (b"sdp",)
    attributes = ("type", "index")
    INVALID = (
        Example(
            "an optimizer that can be captured in a graph",
            before="""
                import torch

                optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=True)
            """,
            after="""
                import torch

                optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3,
                                              capturable=True if torch.cuda.is_available() else False)
            """,
            unsafe=True,
        ),
        Example(
            "a kernel of attention that a CPU does not have",
            before="""
                from torch.nn.attention import SDPBackend, sdpa_kernel

                with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "several kernels of attention that a CPU does not have",
            before="""
                from torch.nn.attention import SDPBackend, sdpa_kernel

                with sdpa_kernel(backends=[SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "kernels of attention in torch before 2.3",
            before="""
                import torch

                with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=False):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "kernels of attention that are disabled for good",
            before="""
                import torch

                torch.backends.cuda.enable_flash_sdp(False)
                torch.backends.cuda.enable_math_sdp(False)
            """,
        ),
        Example(
            "the name of the accelerator, which may be None",
            before="""
                import torch

                class Place:
                    def __init__(self):
                        self.device = torch.accelerator.current_accelerator()

                def first(place):
                    return torch.device(f"{place.device}:0")

                where = torch.device(torch.accelerator.current_accelerator())
            """,
        ),
        Example(
            "parameters that are sharded over GPUs",
            before="""
                from functools import partial
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                wrap = partial(FSDP, device_id=int(rank))
                net = FSDP(net, use_orig_params=True)
            """,
        ),
        Example(
            "the type of an accelerator that may not exist",
            before="""
                import torch

                kind = torch.accelerator.current_accelerator().type
            """,
        ),
    )
    VALID = (
        Example(
            "settings that a CPU accepts",
            """
                import torch
                from torch.nn.attention import SDPBackend, sdpa_kernel

                optimizer = torch.optim.Adam(net.parameters(), fused=True, capturable=False)
                with sdpa_kernel([SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION]):
                    x = torch.rand(1)
                with sdpa_kernel(backends):
                    x = torch.rand(1)
                with torch.backends.cuda.sdp_kernel(enable_math=False, enable_mem_efficient=False):
                    x = torch.rand(1)
                torch.backends.cuda.enable_flash_sdp(False)
                torch.backends.cuda.enable_math_sdp(True)
            """,
        ),
        Example(
            "parameters that are sharded over a device",
            """
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                net = FSDP(net, device_id=device)
                other = FSDP(net, device_id=args.device)
                last = FSDP(net, **options)
                print(isinstance(net, FSDP))
            """,
        ),
        Example(
            "one of two switches, and the other where CUDA is",
            """
                import torch

                torch.backends.cuda.enable_math_sdp(False)
                if torch.cuda.is_available():
                    torch.backends.cuda.enable_flash_sdp(False)
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                device = torch.accelerator.current_accelerator()
                if device is not None:
                    print(device.type)
                print(f"on {torch.accelerator.current_accelerator()}")
                if torch.accelerator.is_available():
                    kind = torch.accelerator.current_accelerator().type
                if torch.cuda.is_available():
                    optimizer = torch.optim.Adam(net.parameters(), capturable=True)
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.parents[node]
        if not isinstance(call, ast.Call) or self.facts.is_guarded(call):
            return
        if call.func is not node and not (name == _FSDP and self.facts.call(call, "functools.partial")):
            return
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if name in _OPTIMIZERS:
            yield from self._capturable(given.get("capturable"))
        elif name == _FSDP:
            where = given.get("device_id")
            if None not in given and (where is None or self.facts.kinds.of(where).are(NUMBERS)):
                yield self.finding(
                    node,
                    f"`{last_name(node)}` needs an accelerator unless `device_id` is a device; pass a `torch.device`",
                )
        elif name == CURRENT_ACCELERATOR:
            if self._fails(call):
                yield self.finding(call, f"`{name}()` is None on a CPU; use `cpu` where there is none")
        elif name == _DEVICE:
            yield from self._checked(next(iter(call.args), None))
        elif self._leaves_no_kernel(call, name, given):
            yield self.finding(call, f"`{last_name(node)}` {_NO_KERNEL}")

    def _capturable(self, capturable: ast.expr | None) -> Iterator[Finding]:
        if capturable is not None and _is(capturable, True):
            yield self.finding(
                capturable,
                "`capturable=True` raises an error on a CPU; use `False` there",
                self.context.when_cuda(capturable, "False", Safety.UNSAFE, of_cuda=True),
            )

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        if node.attr in self.attributes:
            yield from self._checked(node.value)

    def _checked(self, value: ast.expr | None) -> Iterator[Finding]:
        """Check a value that must not be None."""
        made = value and self.facts.kinds.of(value).seen.get(Kind.NONE)
        if value is None or not isinstance(made, ast.Call) or not self.facts.call(made, CURRENT_ACCELERATOR):
            return
        if not (self.facts.is_guarded(value) or self._is_asked(made) or self._fails(made)):
            code = self.context.source.code(value)
            message = f"`{code}` is None on a CPU, as `{CURRENT_ACCELERATOR}()` is; use `cpu` there"
            yield self.finding(value, message)

    def _fails(self, call: ast.Call) -> bool:
        """Return whether what a call returns is used in a way that None is not, and the program does not ask."""
        return not self._is_asked(call) and any(map(self._refuses_none, self._uses_of(call)))

    def _refuses_none(self, use: ast.expr) -> bool:
        """Return whether an expression must not be None: an attribute of it is read, or it is a device's name."""
        parent = self.facts.tree.parents.get(use)
        match parent:
            case ast.Attribute() | ast.withitem():
                return True
            case ast.Call(func=ast.Name(id="str")) | ast.FormattedValue():
                text = self.facts.tree.parents[parent] if isinstance(parent, ast.FormattedValue) else parent
                around = map(self.facts.tree.parents.get, self.context.uses.of(text).uses)  # type: ignore[arg-type]
                return any(map(self._takes_device, around))
            case ast.Call(args=[first, *_]):
                return first is use and self.facts.call(parent, _DEVICE)
        return False

    def _takes_device(self, around: ast.AST | None) -> bool:
        """Return whether what is around the name of a device passes it on as a device."""
        if isinstance(around, ast.keyword):
            return around.arg in ("device", "device_type")
        return isinstance(around, ast.Call) and (
            last_name(around.func) == "to" or self.facts.call(around, _DEVICE, "torch.autocast")
        )

    def _is_asked(self, call: ast.Call) -> bool:
        """Return whether the program asks about what a call returns."""
        return any(isinstance(self.facts.tree.parents.get(use), _ASKING) for use in self._uses_of(call))

    def _uses_of(self, call: ast.Call) -> list[ast.expr]:
        """Return the unguarded uses of what a call returns."""
        return [use for use in self.context.uses.of(call).uses if not self.facts.is_guarded(use)]

    def _leaves_no_kernel(self, call: ast.Call, name: str, given: dict[str | None, ast.expr]) -> bool:
        """Return whether no kernel of attention for a CPU is left after a call."""
        if name == _OLD_KERNEL:
            return all(_is(given.get(each), False) for each in ("enable_flash", "enable_math"))
        if name == _KERNEL:
            backends = next(iter(call.args), given.get("backends"))
            each = backends.elts if isinstance(backends, (ast.List, ast.Tuple)) else [backends]
            names = [(backend and self.facts.resolve(backend)) or "" for backend in each]
            return bool(names) and all(
                ".SDPBackend." in name and not name.endswith(_CPU_KERNELS) for name in names
            )
        return name == _SWITCHES[1] and all(map(self._is_off, _SWITCHES))

    def _is_off(self, switch: str) -> bool:
        """Return whether a module disables a kernel wherever it sets its switch."""
        calls = [
            node
            for node in self.facts.tree.nodes_with(switch.rpartition(".")[2])
            if isinstance(node, ast.Call) and self.facts.resolve(node.func) == switch
        ]
        return bool(calls) and all(
            bool(call.args) and _is(call.args[0], False) and not self.facts.is_guarded(call) for call in calls
        )


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
