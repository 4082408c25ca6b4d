"""Whether a file may move something to the number of a GPU, judged by its bytes alone.

What is passed as a device is followed as text, from a name to what it is bound to, until there is an int.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

_HOPS = 4  # names to follow from one to the next
_BINDINGS = 20  # of one name
_NESTED = 4  # how deeply brackets may nest
_FAR = 2000  # bytes from the head of a function to what it returns
# What is passed as a device, or bound to the name `device`.
_PASSED = re.compile(rb"(?:\.to\(\s*(?:device\s*=\s*)?|device(?:[\"']?\s*[=:]|\()\s*|Generator\(\s*)(?!=)")
# The rest of a line, and the lines on which brackets continue it.
_REST = re.compile(rb"[^\n]*(?:(?<=[(\[{,\\])\n[^\n]*|(?<=[(\[{,\\]\r)\n[^\n]*)*")
_INT = re.compile(rb"(?<![\w.])\d(?![\w.])|\b(?:int|len|range|enumerate)\(")
_NAMED = re.compile(rb"[\w.\[\"']*(?:rank|gpu)")
_OF_TORCH = re.compile(rb"(?:torch|(?:[\w.]|\[[^\[\]\n]*\])*[\w\]]\.device)\b")
# An expression that may have the value of any of its parts: brackets, and calls that return an argument.
_COMPOSED = re.compile(
    rb"\*?[\[({]|lambda\b|(?:int|max|min|next|iter|list|tuple|sorted|reversed|dict|sum|abs|getattr)\("
    rb"|zip\(|[\w.]*\b(?:Simple)?Namespace\("
)
# The arguments of methods, and subscripts, are not among these parts.
_ASIDE = re.compile(
    rb"\.\s*(?!(?:Simple)?Namespace|nullcontext|get|pop)\w+\s*\([^()]*\)|(?<=[\w)\]])\[[^\[\]]*\]"
)
_BRACKETS = re.compile(rb"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}")
_OTHERWISE = re.compile(rb"\b(?:or|else)\s+([\w.]+)")
_IN_NAME = re.compile(rb"\w")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_PATH = re.compile(rb"((?:[A-Za-z_]\w*\s*\.\s*)*)([A-Za-z_]\w*)\s*([(\[]?)")
# What follows a name that is bound: `x = …`, `x: int = …`, `x, y = …`, `"x": …`, `for x in …`, `x[…] = …`.
_BOUND = re.compile(
    rb"[\"']?\]?\s*(?::\s*\w+\s*)?:?=(?!=)[\s\\]*|[\"']\s*:\s*|\s*,[\w \t,*\])]*=(?!=)[\s\\]*"
    rb"|(?!\w)[\w \t,)]*\sin\s+|\[[^\]\n]*\]\s*=(?!=)\s*|\.(?:append|insert|add)\(\s*"
)
_FUNCTION = re.compile(rb"def(?<=\bdef)\s+(\w+)\s*\(([^)]*)\)")
_RETURNED = re.compile(rb"(?:return|yield)\b\s*")
_CALLED = re.compile(rb"\(\s*")
_ARGUMENT = re.compile(rb"(?:\A|,)\s*(?:(\w+)\s*=\s*)?\d\s*[,)]")
_PATTERN = re.compile(rb"^[ \t]*case\b([^\n]*)", re.M)
_CAPTURED = re.compile(rb"(?:with\b[^\n]*\bas|lambda)\b([^\n:]*):")
_IMPORTED = re.compile(rb"import\b(?:\s*\([^)]*|[^\n]*)")
_IN_IMPORT = re.compile(rb"[\s,(](\w+)")
_NO_NAMES = frozenset({b"self", b"cls", b"None", b"True", b"False", b"torch"})


def moves_to_number(data: bytes) -> bool:
    """Return whether something may be moved to the number of a GPU, here or in another file.

    Args:
        data: the bytes of a file.
    """
    text = _Text(data)
    passed: Iterable[bytes] = (text.rest(found.end()) for found in _PASSED.finditer(data))
    seen = set(_NO_NAMES)
    for hop in range(_HOPS):
        names = set[bytes]()
        for value in passed:
            if _is_number(value):
                return True
            names.update(_names(value))
        names -= seen
        if not names:
            return False
        if not names.isdisjoint(text.captured) or not (hop or names.isdisjoint(text.imported)):
            return True
        seen |= names
        passed = (value for name in names for value in text.values(name))
    return False


@dataclass(frozen=True)
class _Function:
    name: bytes
    parameters: Collection[bytes]
    body: int  # where it begins


class _Text:
    """The text of a file.

    Args:
        data: its bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data

    def rest(self, start: int) -> bytes:
        """Return the text of an expression, and of what follows it on the line."""
        found = _REST.match(self._data, start)
        return found[0] if found is not None else b""

    @cached_property
    def imported(self) -> frozenset[bytes]:
        """The names that imports bind."""
        return frozenset(_IN_IMPORT.findall(b" ".join(_IMPORTED.findall(self._data))))

    @cached_property
    def captured(self) -> frozenset[bytes]:
        """The names that patterns, `with` statements and lambdas bind."""
        found = _CAPTURED.findall(self._data)
        if b"match " in self._data:
            found += _PATTERN.findall(self._data)
        return frozenset(_WORD.findall(b" ".join(found)))

    @cached_property
    def _functions(self) -> list[_Function]:
        found = _FUNCTION.finditer(self._data)
        return [_Function(each[1], _WORD.findall(each[2]), each.end()) for each in found]

    def values(self, name: bytes) -> Iterator[bytes]:
        """Yield what a name is bound to, what a function of the name returns, and the ints passed for it."""
        yield from self._after(name, _BOUND)
        for function in self._functions:
            if function.name == name:
                returned = _RETURNED.finditer(self._data, function.body, function.body + _FAR)
                yield from (self.rest(each.end()) for each in returned)
            if name in function.parameters and self._passes_int(function.name, name):
                yield b"0"

    def _passes_int(self, function: bytes, parameter: bytes) -> bool:
        """Return whether a call of a function passes an int by its place, or for a parameter."""
        arguments = (_without(call, _BRACKETS) for call in self._after(function, _CALLED))
        return any(each[1] in (None, parameter) for call in arguments for each in _ARGUMENT.finditer(call))

    def _after(self, name: bytes, pattern: re.Pattern[bytes]) -> Iterator[bytes]:
        """Yield the text after each place of a name that a pattern follows."""
        found, data = 0, self._data
        at = data.find(name)
        while at >= 0 and found < _BINDINGS:
            end = at + len(name)
            follows = None if at and _IN_NAME.match(data, at - 1) else pattern.match(data, end)
            if follows is not None:
                found += 1
                yield self.rest(follows.end())
            at = data.find(name, end)


def _is_number(value: bytes) -> bool:
    """Return whether the text of an expression begins with an int, or has one that may be its value."""
    if _INT.match(value) or _NAMED.match(value):
        return True
    if any(each.isdigit() or _NAMED.match(each) for each in _otherwise(value)):
        return True
    return (
        _COMPOSED.match(value) is not None
        and _INT.search(value) is not None
        and _INT.search(_without(value, _ASIDE)) is not None
    )


def _names(value: bytes) -> Iterator[bytes]:
    """Yield the names that the text of an expression may have its value from."""
    if _OF_TORCH.match(value):
        return
    if _COMPOSED.match(value):
        yield from _WORD.findall(value)
    elif (path := _PATH.match(value)) is not None:
        owner, name, opened = path.groups()
        if not (owner and opened == b"("):
            yield name
        if owner and (opened != b"(" or name in (b"get", b"pop")):
            yield owner.partition(b".")[0].strip()
        yield from _otherwise(value)


def _otherwise(value: bytes) -> list[bytes]:
    """Return what follows `or` and `else` in an expression."""
    return _OTHERWISE.findall(re.split(rb"[,)\n]", value, maxsplit=1)[0])


def _without(value: bytes, brackets: re.Pattern[bytes]) -> bytes:
    """Return a text without some brackets and what is in them."""
    for _ in range(_NESTED):
        value, number = brackets.subn(b"", value)
        if not number:
            break
    return value
