"""The keys and values that need CUDA or a number of GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DEVICE = re.compile(r"(?:\w+_)?(?:device|devices|accelerator|map_location|platform)(?:_(?:type|name|str))?")
_IDS = re.compile(
    r"(?:which_|select_|selected_|use_)?gpus?|(?:gpu|cuda)_?(?:ids?|idx|index|indices|list|devices?|device_ids?|ranks?|no)"
    r"|gpus?_?(?:to_use|used)|device_?ids?|device"
)
_COUNT = re.compile(
    r"(?:n|num|nb|number_of|min|max|total)_?gpus?(?:_per_\w+)?|gpus?_(?:num|count|number)|gpus?_per_\w+"
)
_FLAG = re.compile(
    r"(?:(?:use|using|with|enable|run_on|on|to|is|require|need|multi|use_multi)_?)?(?:cuda|gpus?)(?:_enabled)?"
)
_VISIBLE = re.compile(r"(?:cuda|nvidia)_visible_devices")
# The values of these keys are plain words, even if they name a device.
_WORDS = re.compile(
    r"(?:\w+_)?(?:names?|ids?|titles?|tags?|labels?|topics?|keywords?|groups?|extras?|packages?|markers?|words?|text"
    r"|description|include|exclude|ignore|channels?|dependencies|needs)"
)
_NUMBERS = re.compile(r"[(\[]?\s*(\d{1,2})(?:\s*[, ]\s*\d{1,2})*\s*,?\s*[)\]]?")
_TRUE = re.compile(r"true|yes|on|y|t|1", re.I)
_NONE = ("", "-1", "none", "void", "nodevfiles", "null", "~", "''", '""')


def tie(key: str, values: Sequence[str], several: bool = False, shell: bool = False) -> str | None:
    """Return what is wrong with a key and its values, or None.

    Args:
        key: the key as written: `gpu-ids`, `useCuda`, `trainer.gpus`.
        values: the value, or the values of a list.
        several: whether the value is a list.
        shell: whether the key is an option or variable of a script.
    """
    name = _normal(key)
    value = values[0].strip().lower() if len(values) == 1 else ""
    if re.fullmatch(r"gpu(:\w+)*", value) and name == "gres":
        return _REQUESTED
    if value == "gpu" and name == "nproc_per_node":
        return "needs CUDA; without a GPU, use `auto`, which starts one process per CPU"
    if _VISIBLE.fullmatch(name):
        return None if value in _NONE and not several else _SELECTED
    is_gpu = value == "gpu" or (name, value) == ("accelerator", "cuda")
    if is_gpu and not several and _DEVICE.fullmatch(name):
        return "selects a GPU, which may not exist; use `cpu` or `auto`, or let the program choose the device"
    if _names_cuda(name, values, several):
        return "selects CUDA, which may not be available; use `cpu`, or let the program choose the device"
    if value == "nccl" and not _WORDS.fullmatch(name):
        return "needs CUDA; without CUDA, use `gloo`"
    if value == "multi_gpu":
        return _REQUESTED
    return _numbers(name, values, several, shell) or (
        "enables the GPU, which may not exist; let the program choose the device"
        if _FLAG.fullmatch(name) and not several and _TRUE.fullmatch(value)
        else None
    )


_REQUESTED = "requests GPUs, which may not exist; let the program choose the devices"
_SELECTED = "selects GPUs that may not exist; check that the program also works without them"


def _names_cuda(name: str, values: Sequence[str], several: bool) -> bool:
    cuda = [bool(re.fullmatch(r"cuda(:\d+)?", value.strip().lower())) for value in values]
    if several:
        # A list of choices that includes the CPU is fine.
        return bool(cuda) and all(cuda) and bool(_DEVICE.fullmatch(name))
    return cuda == [True] and not _WORDS.fullmatch(name)


def _numbers(name: str, values: Sequence[str], several: bool, shell: bool) -> str | None:
    """Return what is wrong with GPU numbers or a GPU count, where 0 is a number but not a count."""
    text = ",".join(value.strip() for value in values)
    match = _NUMBERS.fullmatch(text) if len(text) < 100 else None
    if _COUNT.fullmatch(name):
        many = match is not None and not several and int(match[1]) > 0
        return _REQUESTED if many else None
    if not _IDS.fullmatch(name):
        return None
    if text.lower() == "all" and name != "device":
        return _REQUESTED
    # `gpus: 0` means no GPU in one program, and the first GPU in another.
    if match is None or (text == "0" and name == "gpus" and not shell and not several):
        return None
    return _REQUESTED if "gpus" in name else _SELECTED


def _normal(key: str) -> str:
    """Return `use_cuda` for `useCuda`, `use-cuda`, `trainer.use_cuda` and `nvidia.com/use_cuda`."""
    last = re.split(r"[./@]", key.strip())[-1]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last).replace("-", "_").lower()
