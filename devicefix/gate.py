"""Which files can hold a tie to CUDA, judged by their bytes before anything is parsed."""

from __future__ import annotations

import re

_WORDS = re.compile(
    rb"cuda|nccl|\bpin_memory\b|\bnvtx\b|\bapex\b|torch[^\n]*\bload\b"
    rb"|\.to\(\s*(?:device\s*=\s*)?(?:\d|[\w.]*(?:rank|gpu))|\bdevice\s*[=(]\s*\d"
)
_LOADS = re.compile(rb"\.load\s*\(|import[^\n]*\bload\b")


def may_matter(data: bytes) -> bool:
    """Whether a file's bytes hold a word that a rule looks for."""
    if b"cuda" in data:
        return True
    return b"torch" in data and (_WORDS.search(data) is not None or _LOADS.search(data) is not None)
