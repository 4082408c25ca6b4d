"""Find in the bytes of a file where it makes CUDA the default of new tensors, without parsing it."""

from __future__ import annotations

import re

from devicefix.facts.exports.export import of_bytes

_TYPE = re.compile(rb"^[^#\n]*\bset_default_tensor_type\([^)]*\bcuda\.\w+Tensor", re.M)
_WITHIN = re.compile(rb"^[ \t]*with[ \t]+torch\.device\(", re.M)


@of_bytes(b"set_default_tensor_type(", b"torch.device(")
def default_devices(data: bytes) -> frozenset[str]:
    """Return how a module sets the device of new tensors: by a CUDA `type`, or in a `with` statement."""
    found = {"type": _TYPE.search(data), "with": _WITHIN.search(data)}
    return frozenset(kind for kind, match in found.items() if match is not None)
