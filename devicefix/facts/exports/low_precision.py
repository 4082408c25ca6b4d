"""Find in the bytes of a file where it uses low precision and autocast, without parsing it."""

from __future__ import annotations

import re

from devicefix.facts.exports.export import of_bytes

_AUTOCAST = re.compile(rb"autocast\((?:[^()]|\([^()]*\))*\)")
_STOPPED = re.compile(rb"autocast\((?:False|(?:[^()]|\([^()]*\))*?(?<!_)enabled[ \t]*=[ \t]*False)")
# An autocast that is on, or may be: with the module that it is an attribute of, and its first argument.
_ON = re.compile(rb"([\w.]*)autocast\(\s*(?:device_type[ \t]*=[ \t]*)?([\"']\w*|\w*)")
_OF_CUDA = re.compile(
    rb"from[ \t]+torch\.cuda(?:\.amp)?[ \t]+import[^\n]*\b(?:autocast|amp)\b|import[ \t]+torch\.cuda\.amp"
)
# One by one: each begins with a letter or a dot, which is found fast. Behind `(`, `=` or `= `, but not `==`.
_CONVERTED = re.compile(rb"\.(?:(?:half|bfloat16)\(\)(?!\.float\(\))|(?:Half|BFloat16)Tensor\b(?! in\b))")
_LOW_DTYPE = re.compile(rb"t(?:(?<=[(=]t)(?<!=[(=]t)|(?<== t)(?<!== t))(?:orch|h)\.(?:b?float16|half)\b")
_BOUND = re.compile(rb"[ \t]*(?:self\.|def \w+\((?:[^():\n]*[ ,])?)?(\w+)[ \t]*=[ \t]*")
_COMMENT = re.compile(rb"""^((?:[^"'\n#\\]|"[^"\n\\]*"|'[^'\n\\]*')*)#[^\n]*""")
# Options that only autocast takes, unless the dtype is taken out of them.
_OPTIONS = re.compile(rb"\bdict(?=\([^()]*\benabled[ \t]*=)")
_ITEM = re.compile(rb"[\[(][\"']dtype[\"']")
_LOW_WORDS = (b"loat16", b"alf")  # of `float16`, `BFloat16`, `half` and `Half`


@of_bytes(b"loat16", b"alf")
def has_low_precision(data: bytes) -> bool:
    """Return whether a module makes or converts values in half precision or bfloat16, outside of autocast."""
    if not any(word in data for word in _LOW_WORDS):
        return False
    data = b"\n".join(_COMMENT.sub(rb"\1", each) if b"#" in each else each for each in data.split(b"\n"))
    data = data if _ITEM.search(data) else _OPTIONS.sub(b"autocast", data)
    calls = b"".join(_AUTOCAST.findall(data))
    data = _AUTOCAST.sub(b"", data)
    if _CONVERTED.search(data):
        return True
    starts = (found.start() for found in _LOW_DTYPE.finditer(data))
    lines = {data[data.rfind(b"\n", 0, start) + 1 : start] for start in starts}
    return any(_is_used(data, line, calls) for line in lines)


def _is_used(data: bytes, line: bytes, calls: bytes) -> bool:
    """Return whether a dtype is used, by the line before it: not in a comparison, nor for autocast alone."""
    bound = _BOUND.fullmatch(line)
    if bound is not None:
        return not _is_read(calls, bound[1]) or _is_read(data, bound[1])
    return not line.endswith(b" in (") or b"for " in line


def _is_read(data: bytes, name: bytes) -> bool:
    """Return whether a variable is read, and not only bound, compared or shown; an argument's name is not."""
    return re.search(rb"(?<![\w.\"'{])(?:self\.)?%b\b(?![ \t]*!?=)" % re.escape(name), data) is not None


@of_bytes(b"autocast(")
def autocasts(data: bytes) -> frozenset[str]:
    """Return what a module has autocast for: `cuda`, or `device` for the type of another device."""
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
        named = owner.endswith(b"cuda.amp.") or kind.strip(b"\"'") == b"cuda"
        if named or (of_cuda and owner in (b"", b"amp.")):
            kinds.add("cuda")
        elif owner in (b"", b"amp.", b"torch.", b"torch.amp.") and kind not in (b"", b"dtype", b"enabled"):
            kinds.add("device")
    return frozenset(kinds)
