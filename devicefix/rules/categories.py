"""The categories of rules, by the first digit of their codes."""

from __future__ import annotations

from typing import NamedTuple


class Category(NamedTuple):
    """A category of rules: the start of their codes, its name and one sentence about it."""

    prefix: str
    name: str
    summary: str


CATEGORIES = (
    Category("DF0", "Suppression comments", "A `noqa` comment suppresses nothing."),
    Category("DF1", "Moves", "Tensors and modules are moved to a GPU."),
    Category("DF2", "Devices as values", "A CUDA device is named, passed on or selected."),
    Category("DF3", "Typed tensors", "Types that exist only for CUDA, such as `torch.cuda.FloatTensor`."),
    Category(
        "DF4", "Functions of torch.cuda", "Streams, events, and calls that raise an error without CUDA."
    ),
    Category("DF5", "Checkpoints", "A checkpoint saved on a GPU fails to load without CUDA."),
    Category("DF6", "Distributed training", "NCCL, device IDs and synchronization between GPUs."),
    Category("DF7", "Checks and guards", "Without CUDA, the program stops or skips something it needs."),
    Category("DF8", "Copies and old code", "Copies made only on a GPU, and APIs that PyTorch has removed."),
    Category("DF9", "Outside the code", "Libraries, settings and files that a rewrite cannot change."),
)


def category(code: str) -> Category:
    """Return the category of a rule by its code; for a plugin's rule, its name is the prefix."""
    prefix = code[:3]
    return next((known for known in CATEGORIES if known.prefix == prefix), Category(prefix, prefix, ""))
