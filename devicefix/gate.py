"""Which files can hold a tie to CUDA, judged by their bytes before anything is parsed."""

from __future__ import annotations

import re

_WORDS = (
    b"pin_memory", b"nvtx", b"apex", b"DistributedDataParallel", b"Variable(", b"volatile",
    b".data[", b"cupy", b"CUDAExtension", b"get_device(", b"SyncBatchNorm",
)  # fmt: skip
_LOAD = re.compile(rb"\.load\s*\(|import[^\n]*\bload\b|torch[^\n]*\bload\b")
_MOVE = re.compile(rb"\.to\(\s*(?:device\s*=\s*)?(?:\d|[\w.]*(?:rank|gpu))")
_NUMBER = re.compile(rb"device\s*[=(]\s*\d")


def may_matter(data: bytes) -> bool:
    """Whether a file's bytes hold a word that a rule looks for."""
    if b"cuda" in data or b"nccl" in data:
        return True
    if b"torch" not in data:
        return False
    # A plain search for the word comes before each regular expression: it is a hundred times as fast.
    return (
        any(word in data for word in _WORDS)
        or (b"load" in data and _LOAD.search(data) is not None)
        or (b".to(" in data and _MOVE.search(data) is not None)
        or (b"device" in data and _NUMBER.search(data) is not None)
    )
