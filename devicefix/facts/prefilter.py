"""Which files can hold a tie to CUDA, judged by their bytes before anything is parsed."""

from __future__ import annotations

import re

_WORDS = (
    b"pin_memory", b"nvtx", b"DistributedDataParallel", b"CUDAExtension", b"get_device(", b"SyncBatchNorm",
    b".accelerator.",
)  # fmt: skip
_LOAD = re.compile(rb"\b(\w+)\s*\.\s*load\s*\(")
_LOAD_IMPORTED = re.compile(rb"\btorch\b[^\n]*\bimport\b(?:\s*\([^)]*|[^\n]*)\bload")
_LOADERS = {b"torch", b"jit", b"hub"}
_MOVE = re.compile(rb"\.to\(\s*(?:device\s*=\s*)?(?:\d|[\w.]*(?:rank|gpu))")
_NUMBER = re.compile(rb"device\s*[=(]\s*\d")


def may_matter(data: bytes) -> bool:
    """Whether a file's bytes hold a word that most rules look for."""
    if b"cuda" in data or b"nccl" in data:
        return True
    if b"torch" not in data:
        return False
    # A plain search for the word comes before each regular expression: it is a hundred times as fast.
    return (
        any(word in data for word in _WORDS)
        or (b"load" in data and _loads(data))
        or (b".to(" in data and _MOVE.search(data) is not None)
        or (b"device" in data and _NUMBER.search(data) is not None)
    )


def _loads(data: bytes) -> bool:
    """Whether `torch.load` or the like may be called, by whatever name torch goes."""
    if b"load_state_dict_from_url" in data or _LOAD_IMPORTED.search(data):
        return True
    loaders = set(_LOAD.findall(data))
    return not loaders.isdisjoint(_LOADERS) or any(
        re.search(rb"\b(torch|jit|hub)\s+as\s+%b\b|\b%b\s*=\s*torch\b" % (name, name), data)
        for name in loaders
    )
