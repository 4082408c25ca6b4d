"""The categories of rules, by the first digit of their codes."""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """A category of rules: the start of their codes, its name and one sentence about it."""

    prefix: str
    name: str
    summary: str


FAMILIES = (
    Family("DF0", "Suppression comments", "A `noqa` comment suppresses nothing."),
    Family("DF1", "Moves", "Tensors and modules are moved to a GPU."),
    Family("DF2", "Devices as values", "A CUDA device is named, passed on or selected."),
    Family("DF3", "Typed tensors", "Types that only exist for CUDA, such as `torch.cuda.FloatTensor`."),
    Family("DF4", "Functions of torch.cuda", "Calls that raise an error without CUDA, streams and events."),
    Family("DF5", "Checkpoints", "A checkpoint saved on a GPU is loaded where there may be none."),
    Family("DF6", "Distributed training", "NCCL, device IDs and synchronization between GPUs."),
    Family("DF7", "Checks and guards", "Without CUDA, the program stops or skips something it needs."),
    Family("DF8", "Copies and old code", "Copies that only a GPU makes, and APIs that PyTorch has removed."),
    Family("DF9", "Outside the code", "Libraries, settings and files that a rewrite cannot change."),
)


def family(code: str) -> Family:
    """Return the category of a rule by its code; the category of a plugin's rule has no name of its own."""
    prefix = code[:3]
    return next((each for each in FAMILIES if each.prefix == prefix), Family(prefix, prefix, ""))
