"""Find in the bytes of a file where it uses low precision and autocast, without parsing it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devicefix.facts.exports.export import of_bytes

_AUTOCAST = re.compile(rb"autocast\((?:[^()]|\([^()]*\))*\)")
_STOPPED = re.compile(rb"autocast\((?:False|(?:[^()]|\([^()]*\))*?(?<!_)enabled[ \t]*=[ \t]*False)")
# An autocast that is on, or may be: with the module that it is an attribute of, and its first argument.
_ON = re.compile(rb"([\w.]*)autocast\(\s*(?:device_type[ \t]*=[ \t]*)?([\"']\w*|\w*)")
_OF_CUDA = re.compile(
    rb"from[ \t]+torch\.cuda(?:\.amp)?[ \t]+import[^\n]*\b(?:autocast|amp)\b|import[ \t]+torch\.cuda\.amp"
)
_GIVEN = re.compile(rb"(?<!_)enabled[ \t]*=(?![ \t]*True)")
# One by one: each begins with a letter or a dot, which is found fast. Behind `(`, `=` or `= `, but not `==`.
_CONVERTED = re.compile(rb"\.(?:(?:half|bfloat16)\(\)(?!\.float\(\))|(?:Half|BFloat16)Tensor\b)")
_LOW_DTYPE = re.compile(rb"t(?:(?<=[(=]t)(?<!=[(=]t)|(?<== t)(?<!== t))(?:orch|h)\.(?:b?float16|half)\b")
_BOUND = re.compile(rb"[ \t]*(\w+)[ \t]*=[ \t]*")
_LOW_WORDS = (b"loat16", b"alf")  # of `float16`, `BFloat16`, `half` and `Half`

_INDENT = re.compile(rb"[ \t]*")
_FLAG = rb"[A-Za-z_][\w.]*(?:[ \t]*(?:==|is)[ \t]*True)?"
_IF = re.compile(rb"(?:el)?if[ \t(]+(%b(?:[ \t]+and[ \t]+%b)*)[ \t)]*:" % (_FLAG, _FLAG))
# `x.half() if fp16 else x`, `torch.float16 if fp16 else torch.float32`
_CHOSEN = re.compile(
    rb"[ \t)]+if[ \t]+([\w.]+)(?:[ \t]*(?:==|is)[ \t]*True)?[ \t]+else\b(?![ \t]*torch\.(?:b?float16|half))"
)
_NAME = re.compile(rb"[A-Za-z_][\w.]*")
_WORDS = (b"and", b"is", b"True")
_NO_FLAG = (b"", b"True", b"dtype", b"enabled", b"cache_enabled", b'"cuda', b"'cuda")
_LEVELS = 4  # of conditions around a conversion


@of_bytes(b"loat16", b"alf")
def has_low_precision(data: bytes) -> bool:
    """Return whether a module makes or converts values in half precision or bfloat16, outside of autocast."""
    return any(True for _ in _low_precision(data))


def _low_precision(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the places of low precision outside of autocast, each in the bytes without those."""
    if not any(word in data for word in _LOW_WORDS):
        return
    calls = b"".join(_AUTOCAST.findall(data))
    data = _AUTOCAST.sub(b"", data)
    for found in _CONVERTED.finditer(data):
        yield data, found.start(), found.end()
    used: dict[bytes, bool] = {}
    for found in _LOW_DTYPE.finditer(data):
        line = data[data.rfind(b"\n", 0, found.start()) + 1 : found.start()]
        if line not in used:
            used[line] = _is_used(data, line, calls)
        if used[line]:
            yield data, found.start(), found.end()


def _is_used(data: bytes, line: bytes, calls: bytes) -> bool:
    """Return whether a dtype is used, by the line before it: not in a comparison, nor for autocast alone."""
    bound = _BOUND.fullmatch(line)
    if bound is not None:
        return not _is_read(calls, bound[1]) or _is_read(data, bound[1])
    return not line.endswith(b" in (") or b"for " in line


def _is_read(data: bytes, name: bytes) -> bool:
    """Return whether a variable is read anywhere, and not only bound; the name of an argument is not read."""
    return re.search(rb"(?<![\w.])(?:self\.)?%b\b(?![ \t]*=(?!=))" % re.escape(name), data) is not None


@of_bytes(b"loat16", b"alf")
def low_flags(data: bytes) -> frozenset[str]:
    """Return the flags that a module makes or converts values in low precision for, by their last names."""
    return frozenset(flag.rpartition(b".")[2].decode() for flag in _low_flags(data))


def _low_flags(data: bytes) -> Iterator[bytes]:
    for code, start, end in _low_precision(data):
        chosen = _CHOSEN.match(code, end)
        if chosen is not None:
            yield chosen[1]
        yield from _conditions(code, start)


def _conditions(data: bytes, start: int) -> Iterator[bytes]:
    """Yield the flags of the conditions around a line, from the inside out."""
    end = data.rfind(b"\n", 0, start) + 1
    indent = _indent(data, end)
    levels = 0
    while indent and end and levels < _LEVELS:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        here = _indent(data, begin)
        if here < indent and data[begin:end].strip():
            indent, levels = here, levels + 1
            condition = _IF.match(data, begin + here)
            if condition is not None:
                yield from (name for name in _NAME.findall(condition[1]) if name not in _WORDS)
        end = begin


def _indent(data: bytes, start: int) -> int:
    found = _INDENT.match(data, start)
    return found.end() - start if found is not None else 0


@of_bytes(b"custom_fwd", b"autocast(")
def stops_autocast(data: bytes) -> bool:
    """Return whether a module switches autocast for CUDA off for a part of its code, or casts for it."""
    return b"custom_fwd" in data or (b"autocast(" in data and _STOPPED.search(data) is not None)


def _flags(code: bytes) -> Iterator[str]:
    """Yield the names in code that decides whether autocast is on, each after `if`."""
    return (f"if {name.rpartition(b'.')[2].decode()}" for name in _NAME.findall(code))


@of_bytes(b"autocast(")
def autocasts(data: bytes) -> frozenset[str]:
    """Return what a module has autocast for: `cuda`, `if flag` for CUDA by one, or `device` for another."""
    kinds: set[str] = set()
    of_cuda = _OF_CUDA.search(data) is not None
    for call in _AUTOCAST.finditer(data):
        if _STOPPED.match(data, call.start()):
            continue
        line = data.rfind(b"\n", 0, call.start()) + 1
        found = _ON.search(data, max(line, call.start() - 40), call.end())
        if found is None or b"def " in data[line : call.start()]:
            continue
        owner, kind = found[1], found[2]
        if (
            owner.endswith(b"cuda.amp.")
            or (of_cuda and owner in (b"", b"amp."))
            or kind.strip(b"\"'") == b"cuda"
        ):
            given = _GIVEN.search(call[0])
            if given is not None:
                kinds.update(_flags(call[0][given.end() :].partition(b",")[0]))
            elif kind in _NO_FLAG:
                kinds.add("cuda")
            else:
                kinds.update(_flags(call[0].partition(b"(")[2].partition(b",")[0]))
        elif owner in (b"", b"amp.", b"torch.", b"torch.amp.") and kind not in (b"", b"dtype", b"enabled"):
            kinds.add("device")
    return frozenset(kinds)
