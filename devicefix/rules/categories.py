"""The families of rules: what the first digit of a code stands for."""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """Rules whose codes begin alike, in a few words and in a sentence."""

    prefix: str
    name: str
    summary: str


_FAMILIES = (
    Family("DF0", "Comments for devicefix", "What a `noqa` comment silences that is not there."),
    Family("DF0", "Comments for devicefix", "What is said to devicefix itself."),
    Family("DF1", "Moves", "Tensors and modules are sent to a GPU."),
    Family("DF2", "Devices as values", "A CUDA device is named, handed on or chosen."),
    Family("DF3", "Typed tensors", "Types that exist on CUDA only, such as `torch.cuda.FloatTensor`."),
    Family("DF4", "Functions of torch.cuda", "Calls that raise an error without CUDA, streams and events."),
    Family("DF5", "Checkpoints", "What was saved on a GPU is loaded where there may be none."),
    Family("DF6", "Distributed training", "NCCL, numbers of GPUs, what is synchronized between them."),
    Family("DF7", "Questions and guards", "Without CUDA it refuses to run, or leaves something out."),
    Family("DF8", "Copies and old code", "Copies that only a GPU makes, and what PyTorch has since removed."),
    Family("DF9", "Outside of the code", "Libraries, settings and files that a rewrite can't change."),
)  # fmt: skip


def family(code: str) -> Family:
    """The family of a rule, by its code; that of a rule from elsewhere has the name of its code alone."""
    prefix = code[:3]
    return next((each for each in _FAMILIES if each.prefix == prefix), Family(prefix, prefix, ""))
