"""The categories of rules, by the first digit of their codes."""

from __future__ import annotations

from typing import NamedTuple


class Category(NamedTuple):
    """A category of rules: the start of their codes, its name and one sentence about it."""

    prefix: str
    name: str
    summary: str


CATEGORIES = (
    Category("DF0", "Suppression comments", "A `noqa` code suppresses nothing."),
    Category("DF1", "Moves", "Tensors and modules are moved to a GPU, or memory is pinned."),
    Category("DF2", "Devices as values", "A CUDA device or its index is used as a value."),
    Category("DF3", "Typed tensors", "A tensor type such as `torch.cuda.FloatTensor` needs CUDA."),
    Category("DF4", "torch.cuda functions", "A function, stream or event may not work without CUDA."),
    Category("DF5", "Checkpoints", "A checkpoint saved on a GPU fails to load without CUDA."),
    Category("DF6", "Distributed training", "Code uses NCCL, device IDs or synchronization between GPUs."),
    Category(
        "DF7",
        "Checks and guards",
        "A check for CUDA stops the program, skips code that the program needs, or is unnecessary.",
    ),
    Category("DF8", "Copies and old code", "A copy is made only on a GPU, or `async` is used as a name."),
    Category(
        "DF9",
        "Outside the code",
        "Libraries, requirements or configuration files need CUDA, or a file cannot be checked.",
    ),
)


def category(code: str) -> Category:
    """Return the category of a rule by its code; for a plugin's rule, its name is the prefix."""
    prefix = code[:3]
    return next((known for known in CATEGORIES if known.prefix == prefix), Category(prefix, prefix, ""))
