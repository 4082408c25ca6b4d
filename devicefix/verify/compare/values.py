"""Comparison of tensor summaries, exactly or within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from devicefix.verify.compare.streams import Value

_ZERO = 1e-3  # of the tolerance: a smaller absolute difference is rounding


def unlike(
    one: Value, other: Value, *, same_machine: bool, tolerance: float
) -> Iterator[tuple[str, str, Value | None, Value | None]]:
    """Yield the differences between two observations.

    Args:
        one: the summary of a tensor, or of the tensors in a saved object.
        other: the summary to compare it with.
        same_machine: whether different devices are a difference.
        tolerance: the relative tolerance for numbers.

    Yields:
        The kind of difference, the path inside the saved object, and the two summaries of tensors.
    """
    if "tensors" not in one or "tensors" not in other:
        yield from ((kind, "", one, other) for kind in _kinds(one, other, same_machine, tolerance))
        return
    ones, others = one["tensors"], other["tensors"]
    if not same_machine and ones.keys() != others.keys():
        ones, others = _unwrapped(ones), _unwrapped(others)
    for path in dict.fromkeys((*ones, *others)):
        left, right = ones.get(path), others.get(path)
        if left is None or right is None:
            yield "missing", path, left, right
        else:
            yield from ((kind, path, left, right) for kind in _kinds(left, right, same_machine, tolerance))


def _unwrapped(tensors: dict[str, Value]) -> dict[str, Value]:
    """Return the tensors of a saved object as if no module was wrapped in `DataParallel`.

    Many programs wrap a module on CUDA only, which adds `module.` to the names of its parameters.
    """
    return {".".join(part for part in path.split(".") if part != "module"): tensors[path] for path in tensors}


def _kinds(one: Value, other: Value, same_machine: bool, tolerance: float) -> Iterator[str]:
    if same_machine and one["device"] != other["device"]:
        yield "device"
    for kind in ("dtype", "shape"):
        if one[kind] != other[kind]:
            yield kind
            return
    if not same_numbers(one, other, tolerance):
        yield "value"


def same_numbers(one: Value, other: Value, tolerance: float) -> bool:
    """Return whether two summaries have the same numbers, within a relative tolerance."""
    if "item" in one and "item" in other:
        return is_close(one["item"], other["item"], tolerance)
    if one.get("digest") == other.get("digest"):
        return "item" not in one and "item" not in other
    if not tolerance or one.get("nonfinite") != other.get("nonfinite"):
        return False
    if "digest" not in one or "digest" not in other:
        return False
    scale = max(one["abs"], other["abs"])
    samples = zip(one.get("sample", ()), other.get("sample", ()), strict=False)
    pairs = (one["mean"], other["mean"]), (one["abs"], other["abs"]), *samples
    return all(is_close(left, right, tolerance, scale) for left, right in pairs)


def is_close(one: Any, other: Any, tolerance: float, scale: float = 0.0) -> bool:
    """Return whether two numbers are equal within a tolerance, relative to the largest of them and `scale`.

    NaN equals NaN; booleans and infinities have no tolerance.
    """
    if one == other:
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    if math.isinf(one) or math.isinf(other):
        return False
    return bool(abs(one - other) <= tolerance * max(abs(one), abs(other), scale, _ZERO))
