"""Measure which replacement of autocast for CUDA computes the GPU's numbers best on a CPU (needs torch).

python benchmarks/autocast.py [--seeds N]

No GPU is needed: the reference is a CPU with the lists of operations that autocast for CUDA runs in low
precision, in float32, and in the widest type of their operands, from
https://docs.pytorch.org/docs/stable/amp.html. Kernels of a GPU add up in another order than those of a CPU:
the differences that come from it are not measured. Each program is small, and has tensors or modules in low
precision beside others in float32. The figures are relative distances to the reference (2-norm), the medians
over seeds.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

LOW = {
    "__matmul__", "__rmatmul__", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul",
    "multi_dot", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "linear", "matmul", "mm", "mv", "prelu", "scaled_dot_product_attention",
}  # fmt: skip
FLOAT32 = {
    "__pow__", "__rdiv__", "__rpow__", "__rtruediv__", "acos", "asin",
    "binary_cross_entropy_with_logits", "cosh", "cosine_embedding_loss", "cdist", "cosine_similarity",
    "cross_entropy", "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1", "group_norm",
    "hinge_embedding_loss", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log_softmax", "log1p",
    "log2", "margin_ranking_loss", "mse_loss", "multilabel_margin_loss", "multi_margin_loss",
    "nll_loss", "norm", "normalize", "pdist", "poisson_nll_loss", "pow", "prod", "reciprocal", "rsqrt",
    "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "sum", "renorm",
    "tan", "triplet_margin_loss",
}  # fmt: skip
WIDEST = {
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sample", "index_put",
    "scatter_add", "tensordot",
}  # fmt: skip

Cast = Callable[[Any, torch.dtype], Any]
Program = Callable[["Form"], torch.Tensor]


class CudaAutocast(TorchFunctionMode):
    """Autocast with CUDA's lists of operations, on a CPU."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in LOW:
            dtype = self.dtype
        elif name in FLOAT32:
            dtype = torch.float32
        elif name in WIDEST:
            dtypes = [each.dtype for each in args if is_cast(each)]
            dtype = torch.float32 if torch.float32 in dtypes else self.dtype
        else:
            return func(*args, **(kwargs or {}))
        return func(
            *cast_all(args, dtype), **{key: cast_all(each, dtype) for key, each in (kwargs or {}).items()}
        )


def is_cast(value: object) -> bool:
    """Return whether autocast changes the type of a value."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64


def cast_all(value: Any, dtype: torch.dtype) -> Any:
    """Return a value, or a collection of values, in another type."""
    if isinstance(value, (list, tuple)):
        return type(value)(cast_all(each, dtype) for each in value)
    return value.to(dtype) if is_cast(value) else value


class Form:
    """A way to run a program that is written for CUDA.

    Args:
        context: Makes what replaces `torch.autocast("cuda", dtype=...)`.
        lowers: Whether `.to(torch.bfloat16)`, `.half()` and the like are as in the program.
        scales: Whether the loss is scaled.
    """

    def __init__(
        self,
        context: Callable[[torch.dtype], AbstractContextManager[Any]],
        lowers: bool,
        scales: bool = False,
    ) -> None:
        self.autocast = context
        self.scaler = torch.amp.GradScaler("cpu", enabled=scales)
        self._lowers = lowers

    def low(self, value: Any, dtype: torch.dtype) -> Any:
        """Return a tensor or module in low precision, where the form has any."""
        return value.to(dtype) if self._lowers else value


def forms() -> Iterator[tuple[str, Form]]:
    """Yield the forms by name, the reference first."""
    yield "reference", Form(CudaAutocast, lowers=True, scales=True)
    yield "autocast of the CPU", Form(lambda dtype: torch.autocast("cpu", dtype=dtype), lowers=True)
    yield (
        "autocast and scaler of the CPU",
        Form(lambda dtype: torch.autocast("cpu", dtype=dtype), True, scales=True),
    )
    yield "all in float32", Form(lambda _: nullcontext(), lowers=False)
    yield "off", Form(lambda _: nullcontext(), lowers=True)


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int, heads: int = 4, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        split = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = split.unbind()
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        added: torch.Tensor = self.down(F.gelu(self.up(self.norms[1](x))))
        return x + added


def language_model(form: Form) -> torch.Tensor:
    """Train a language model whose embeddings are in bfloat16; return its logits."""
    wte = form.low(nn.Embedding(64, 64), torch.bfloat16)
    body = nn.Sequential(Block(64, causal=True), Block(64, causal=True), nn.LayerNorm(64), nn.Linear(64, 64))
    optimizer = torch.optim.AdamW([*wte.parameters(), *body.parameters()], lr=1e-3)
    tokens = torch.randint(64, (20, 4, 33))
    logits = torch.empty(0)
    for batch in tokens:
        with form.autocast(torch.bfloat16):
            logits = body(wte(batch[:, :-1]))
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]  # of torch
        optimizer.step()
        optimizer.zero_grad()
    return logits


def diffusion(form: Form) -> torch.Tensor:
    """Sample from a diffusion transformer that gets text features in bfloat16."""
    embed, body = nn.Linear(32, 64), nn.Sequential(Block(64), Block(64), nn.Linear(64, 64))
    text, x = form.low(torch.randn(2, 8, 32), torch.bfloat16), torch.randn(2, 16, 64)
    with torch.no_grad(), form.autocast(torch.bfloat16):
        for _ in range(10):
            x = x - 0.1 * body(torch.cat([x, embed(text)], 1))[:, :16].float()
    return x


def images(form: Form) -> torch.Tensor:
    """Classify images in half precision with a network in float32."""
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.GroupNorm(4, 16),
        nn.GELU(),
        nn.Conv2d(16, 32, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1152, 10),
    )
    with torch.no_grad(), form.autocast(torch.float16):
        probabilities: torch.Tensor = net(form.low(torch.rand(8, 3, 16, 16), torch.float16)).softmax(-1)
        return probabilities


def vision_language(form: Form) -> torch.Tensor:
    """Project the features of an encoder in half precision by a projector in float32."""
    encoder = form.low(nn.Sequential(nn.Linear(48, 64), Block(64), Block(64)), torch.float16)
    projector = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    with torch.no_grad(), form.autocast(torch.float16):
        tokens: torch.Tensor = projector(encoder(form.low(torch.randn(2, 16, 48), torch.float16)))
        return tokens


def video(form: Form) -> torch.Tensor:
    """Segment frames with a memory of the last ones, kept in bfloat16."""
    encoder, decoder = nn.Linear(48, 64), nn.Sequential(Block(64), nn.Linear(64, 1))
    memory = form.low(torch.zeros(1, 0, 64), torch.bfloat16)
    masks = []
    with torch.no_grad(), form.autocast(torch.bfloat16):
        for frame in torch.randn(8, 1, 16, 48):
            x = encoder(frame)
            mask = decoder(torch.cat([x, encoder.weight.new_zeros(1, 0, 64), memory], 1))[:, :16]
            memory = form.low(torch.cat([memory, x * mask.sigmoid()], 1)[:, -32:], torch.bfloat16)
            masks.append(mask)
    return torch.cat(masks)


def scaled(form: Form) -> torch.Tensor:
    """Train on inputs in half precision with small gradients, which the scaler keeps from vanishing."""
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e4)
    y = torch.empty(0)
    for x in torch.randn(20, 16, 32):
        with form.autocast(torch.float16):
            y = net(form.low(x, torch.float16))
            loss = (y.float() - 1).pow(2).mean() * 1e-5
        form.scaler.scale(loss).backward()
        form.scaler.step(optimizer)
        form.scaler.update()
        optimizer.zero_grad()
    return y


PROGRAMS: tuple[Program, ...] = (language_model, diffusion, images, vision_language, video, scaled)


def run(program: Program, form: Form, seed: int) -> torch.Tensor | None:
    """Return what a program computes in a form; None if it fails."""
    torch.manual_seed(seed)
    try:
        return program(copy.copy(form)).detach().double()
    except RuntimeError:
        return None


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    warnings.simplefilter("ignore")
    _, *others = forms()
    print(f"torch {torch.__version__}\n\n| Program | {' | '.join(name for name, _ in others)} |")
    print("| --- |" + " --- |" * len(others))
    for program in PROGRAMS:
        cells = []
        expected = [run(program, next(forms())[1], seed) for seed in seeds]
        for name, _ in others:
            found = [run(program, dict(forms())[name], seed) for seed in seeds]
            distances = [
                ((a - b).norm() / b.norm()).item()
                for a, b in zip(found, expected, strict=True)
                if a is not None and b is not None
            ]
            cells.append(f"{statistics.median(distances):.1e}" if distances else "fails")
        print(f"| {str(program.__doc__).split('.')[0].split(';')[0]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
