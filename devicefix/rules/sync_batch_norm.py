from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.forwards import Use
from devicefix.model import Finding, Fix
from devicefix.rules.base import Example, Rule

_LAYERS = ("torch.nn.SyncBatchNorm", "torch.nn.modules.batchnorm.SyncBatchNorm")
_CONVERTS = "convert_sync_batchnorm"
# The dimensions of the plain layer behind a layer, which give its inputs one dimension each for batch and channel.
_DIMENSIONS = {
    "torch.nn.Linear": 1,
    **{f"torch.nn.Conv{size}d": size for size in (1, 2, 3)},
    **{f"torch.nn.ConvTranspose{size}d": size for size in (1, 2, 3)},
}
_FEATURES = ("num_features", "out_features", "out_channels")
_OPTIONS = ("eps", "momentum", "affine", "track_running_stats")
_HOLDERS = (
    ast.Call, ast.keyword, ast.arguments, ast.Assign, ast.IfExp, ast.Return, ast.List, ast.Dict, ast.Tuple, ast.BinOp,
)  # fmt: skip


class SyncBatchNorm(Rule):
    """
    ## What it does
    Finds `torch.nn.SyncBatchNorm` layers and calls to `torch.nn.SyncBatchNorm.convert_sync_batchnorm`.

    ## Why it matters
    In distributed training on CPUs, these layers cause errors such as "SyncBatchNorm layers only work with GPU
    modules".

    ## Example
    ```python
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    ```

    ## Use instead
    ```python
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model) if torch.cuda.is_available() else model
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the model is the same as before. On a CPU, each process computes its own
    statistics, so with several processes, the results can differ from those on GPUs.

    A `SyncBatchNorm` layer has a fix only if it follows a linear or convolutional layer in `nn.Sequential`: without
    CUDA, the fixed program uses the matching `BatchNorm` layer.
    """

    code = "DF603"
    name = "sync-batch-norm"
    summary = "Batch normalization is synchronized between GPUs"
    words = (b"SyncBatchNorm",)
    common_words = (b"batchnorm",)
    references = _LAYERS
    INVALID = (
        Example(
            "a model that is converted",
            before="""
                import torch
                from torch import nn

                net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
            """,
            after="""
                import torch
                from torch import nn

                if torch.cuda.is_available():
                    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
            """,
        ),
        Example(
            "layers behind others",
            before="""
                import torch
                from collections import OrderedDict
                from torch import nn

                head = nn.Sequential(
                    nn.Linear(4, n),
                    nn.SyncBatchNorm(n, eps=1e-3),
                )
                body = nn.Sequential(
                    OrderedDict([
                        ("conv", nn.Conv2d(3, 8, 1)),
                        ("norm", nn.SyncBatchNorm(8)),
                    ])
                )
            """,
            after="""
                import torch
                from collections import OrderedDict
                from torch import nn

                head = nn.Sequential(
                    nn.Linear(4, n),
                    (nn.SyncBatchNorm if torch.cuda.is_available() else nn.BatchNorm1d)(n, eps=1e-3),
                )
                body = nn.Sequential(
                    OrderedDict([
                        ("conv", nn.Conv2d(3, 8, 1)),
                        ("norm", (nn.SyncBatchNorm if torch.cuda.is_available() else nn.BatchNorm2d)(8)),
                    ])
                )
            """,
        ),
        Example(
            "layers whose inputs may have any number of dimensions",
            before="""
                from torch import nn

                norm = nn.SyncBatchNorm(8)
                net = nn.Sequential(nn.ReLU(), nn.SyncBatchNorm(8), nn.Linear(8, 4), nn.SyncBatchNorm(2))
                net = ResNet(norm_layer=nn.SyncBatchNorm)


                def make(kind=nn.SyncBatchNorm):
                    return kind(8)
            """,
        ),
        Example(
            "several layers, which share a choice",
            before="""
                import torch
                from torch import nn

                net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.SyncBatchNorm(4), nn.Conv2d(4, 4, 3), nn.SyncBatchNorm(4))
            """,
            after="""
                import torch
                from torch import nn

                SyncBatchNorm2d = nn.SyncBatchNorm if torch.cuda.is_available() else nn.BatchNorm2d

                net = nn.Sequential(nn.Conv2d(3, 4, 3), SyncBatchNorm2d(4), nn.Conv2d(4, 4, 3), SyncBatchNorm2d(4))
            """,
        ),
    )
    VALID = (
        Example(
            "a question",
            """
                from torch import nn

                def has_norm(net):
                    kinds = (nn.BatchNorm1d, nn.SyncBatchNorm)
                    return any(isinstance(layer, kinds) for layer in net.modules())


                synchronized = isinstance(layer, (nn.BatchNorm2d, nn.SyncBatchNorm))
                if type(layer) is nn.SyncBatchNorm:
                    pass
                norm: nn.SyncBatchNorm = layer
            """,
        ),
        Example(
            "a base class",
            """
                from torch import nn


                class Norm(nn.SyncBatchNorm):
                    pass
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if not name.endswith(f"SyncBatchNorm.{_CONVERTS}") or self.facts.is_guarded(node):
            return
        fix = None
        if len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
            fix = self.context.when_cuda(node, self.context.source.code(node.args[0]), of_cuda=True)
        message = "`SyncBatchNorm` needs a GPU in distributed training; don't convert the model on a CPU"
        yield self.finding(node, message, fix, "because of the call's arguments")

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.call_of(node)
        if self.facts.is_guarded(node) or not self._is_value(node):
            return
        fix = self._as_plain(node, call) if call is not None else None
        message = "`SyncBatchNorm` needs a GPU in distributed training; on a CPU, use `BatchNorm1d`, `BatchNorm2d` or `BatchNorm3d`"
        before = self._before(call) if call is not None else None
        is_known = before is not None and self.facts.resolve(before.func) in _DIMENSIONS
        is_of_nn = isinstance(node, ast.Attribute) and self.facts.resolve(node.value) == "torch.nn"
        if not is_known:
            unless = "because the number of input dimensions is unknown"
        elif is_of_nn:
            unless = "because of the call's arguments"
        else:
            unless = "because of how the class is imported"
        yield self.finding(node, message, fix, unless)

    def _is_value(self, node: ast.expr) -> bool:
        """Return whether a class is called or passed on, and not only asked for, or a base of another class."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.AnnAssign):
            return parent.value is node
        return isinstance(parent, _HOLDERS) and self.context.forwards.use_of(node) is not Use.SHOWN

    def _as_plain(self, node: ast.expr, call: ast.Call) -> Fix | None:
        """Return the fix that makes a layer a plain one without CUDA, if the layer before shows its dimensions."""
        before = self._before(call)
        size = _DIMENSIONS.get(self.facts.resolve(before.func) or "") if before is not None else None
        if before is None or size is None or len(call.args) > 1 + len(_OPTIONS):
            return None
        if any(keyword.arg not in (*_FEATURES, *_OPTIONS) for keyword in call.keywords):
            return None
        inputs, outputs = _features(call, 0), _features(before, 1)
        if inputs is None or outputs is None or ast.dump(inputs) != ast.dump(outputs):
            return None
        owner = node.value if isinstance(node, ast.Attribute) else None
        if owner is None or self.facts.resolve(owner) != "torch.nn":
            return None
        code = self.context.source.code(owner)
        return self._chosen(node, f"{code}.BatchNorm{size}d", f"SyncBatchNorm{size}d")

    def _chosen(self, node: ast.expr, plain: str, name: str) -> Fix:
        """Return the fix that uses a plain layer without CUDA, by a name that the layers of a module share."""
        layer = self.devices.either(node, self.context.source.code(node), plain, of_cuda=True)
        code, use = self.devices.constant(node, (name,), layer)

        def new(_: str) -> str:
            text = code()
            return f"({text})" if " if " in text else text

        return self.context.edit(node, new, use)

    def _before(self, call: ast.Call) -> ast.Call | None:
        """Return the layer before one in `nn.Sequential(…)`, also of a list of pairs in an `OrderedDict`."""
        parents = self.facts.tree.parents
        layer: ast.AST = call
        around = parents.get(call)
        if isinstance(around, ast.Tuple):
            layer, around = around, parents.get(around)
        ordered = parents.get(around) if isinstance(around, ast.List) else around
        outer = parents.get(ordered) if isinstance(around, ast.List) and ordered is not None else ordered
        if not isinstance(outer, ast.Call) or self.facts.resolve(outer.func) != "torch.nn.Sequential":
            return None
        layers = around.elts if isinstance(around, ast.List) else outer.args
        position = next((at for at, each in enumerate(layers) if each is layer), 0)
        before: ast.AST | None = layers[position - 1] if position else None
        if isinstance(before, ast.Tuple):
            before = before.elts[-1]
        return before if isinstance(before, ast.Call) else None


def _features(layer: ast.Call, position: int) -> ast.expr | None:
    """Return the argument of a layer that is the number of its features."""
    named = (keyword.value for keyword in layer.keywords if keyword.arg in _FEATURES)
    return next(named, layer.args[position] if len(layer.args) > position else None)
