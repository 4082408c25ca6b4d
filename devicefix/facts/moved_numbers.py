"""Judge by its bytes alone whether a file may move something to the number of a GPU.

What is passed as a device is followed as text, from a name to what it is bound to, until there is an int.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from devicefix.facts.behind import behind_name

_HOPS = 4  # names to follow from one to the next
_BINDINGS = 20  # of one name
_NESTED = 4  # how deeply brackets may nest
_FAR = 2000  # bytes from the head of a function to what it returns
_NO_CODE = re.compile(rb"#[^\n]*|\r|\\\r?\n")  # comments, and ends of lines that are none
# What is passed as a device, or bound to the name `device`.
_PASSED = re.compile(rb"(?:\.to\(\s*(?:device\s*=\s*)?|device(?:[\"']?\s*[=:]|\()\s*|Generator\(\s*)(?!=)")
# The rest of a line, and the lines on which brackets continue it.
_REST = re.compile(rb"(?:[^\n]*[(\[{,][ \t]*\n)*[^\n]*")
_INT = re.compile(rb"(?<![\w.])\d(?![\w.])|\b(?:int|len|range|enumerate)\(")
_NAMED = re.compile(rb"[\w.\[\"']*(?:rank|gpu)")
_OF_TORCH = re.compile(rb"(?:torch|(?:[\w.]|\[[^\[\]\n]*\])+\.(?:device|dtype))\b")
# Functions that return an argument, or an object that holds it.
_PASSING = (
    rb"(?:max|min|next|iter|list|tuple|set|sorted|reversed|dict|sum|abs|getattr|zip|map|vars|int|range|enumerate"
    rb"|(?:Simple)?Namespace|nullcontext|copy|deepcopy|choice|cycle|get|pop|run|run_until_complete)"
)
# An expression that may have the value of any of its parts.
_COMPOSED = re.compile(rb"\*{0,2}[\[({]|lambda\b|(?:\w+\.)*" + _PASSING + rb"\(")
# The arguments of other functions, and subscripts, are not among these parts.
_ASIDE = re.compile(rb"\b(?!" + _PASSING + rb"\()\w+\s*\([^()]*\)|(?<=[\w)\]])\[[^\[\]]*\]")
_OTHERWISE = re.compile(rb"\b(?:or|else)\s+([\w.]+)")
_COUNTED = b"enumerate"
_SEPARATOR = re.compile(rb"[()\[\]{},]")
_BRACKET = re.compile(rb"[()\[\]{}]")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_PATH = re.compile(rb"((?:[A-Za-z_]\w*\s*\.\s*)*)([A-Za-z_]\w*)\s*([(\[]?)")
_FIELD = re.compile(rb"\w+\([^()]*\)\s*\.\s*([A-Za-z_]\w*)\b(?!\()")
# What follows a name that is bound: `x = …`, `x: int = …`, `x, y = …`, `"x": …`, `for x in …`, `x[…] = …`.
_BOUND = re.compile(
    rb"[\"']?\]?\s*(?::\s*\w+\s*)?:?=(?!=)\s*|[\"']\s*[:,]\s*|\s*,[\w \t,*\])]{0,200}=(?!=)\s*"
    rb"|(?!\w)[\w \t,)]{0,200}\sin\s+|\[[^\]\n]*\]\s*=(?!=)\s*|\.(?:append|insert|add)\(\s*"
)
_FUNCTION = re.compile(rb"def(?<=\bdef)\s+(\w+)\s*\(([^)]*)\)")
_CLASS = re.compile(rb"class(?<=\bclass)\s+(\w+)|(?<!\w)(\w+)(?=[ \t]*=[\w. ]*namedtuple\()")
_PARAMETER = re.compile(rb"(?:\A|,)[\s*]*(?!self\b|cls\b)(\w+)")
_KEYWORD = re.compile(rb"\s*(?:(\w+)\s*=(?!=))?\s*")
_RETURNED = re.compile(rb"(?:return|yield)\b\s*")
_CALLED = re.compile(rb"[(,]\s*")  # also in `partial(f, x)`
_PATTERN = re.compile(rb"^[ \t]*case\b((?:[^\n]*[(\[{,][ \t]*\n)*[^\n]*)", re.M)
_CAPTURED = re.compile(rb"(?:(?:with|except)\b[^\n]{0,300}\bas|lambda)\b([^\n:]{0,300}):")
_IMPORTED = re.compile(rb"import\b(?:\s*\([^)]*|[^\n]*)")
_IN_IMPORT = re.compile(rb"[\s,(](\w+|\*)")
_OF_NN = re.compile(
    rb"from torch import (nn)\b|(?:import torch\.nn\.functional|from torch\.nn import functional) as (\w+)"
)
_NO_NAMES = frozenset(
    b"dtype self cls torch int str float bool type Optional Union Any List Literal".split()
) | {word.encode() for word in keyword.kwlist}


def moves_to_number(data: bytes) -> bool:
    """Return whether something may be moved to the number of a GPU, here or in another file.

    Args:
        data: the bytes of a file.
    """
    text = _Text(data)
    passed = text.passed()
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
        if not names.isdisjoint(text.captured) or not (hop > 1 or names.isdisjoint(text.imported)):
            return True
        if b"*" in text.imported and any(not any(text.values(name)) for name in names):
            return True
        seen |= names
        passed = (value for name in names for value in text.values(name))
    return False


@dataclass(frozen=True)
class _Function:
    name: bytes
    parameters: Sequence[bytes]  # without `self`
    body: int  # where it begins


class _Text:
    """The text of a file.

    Args:
        data: its bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = _NO_CODE.sub(b"", data)

    def passed(self) -> Iterator[bytes]:
        """Yield what is passed as a device."""
        return (self._rest(found.end()) for found in _PASSED.finditer(self._data))

    def _rest(self, start: int) -> bytes:
        """Return the text of an expression, and of what follows it on the line."""
        found = _REST.match(self._data, start)
        return found[0] if found is not None else b""

    @cached_property
    def imported(self) -> frozenset[bytes]:
        """The names that imports bind, without those of `torch.nn`, which has no numbers."""
        imported = _IN_IMPORT.findall(b" ".join(_IMPORTED.findall(self._data)))
        return frozenset(imported).difference(*_OF_NN.findall(self._data))

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
        return [_Function(each[1], _PARAMETER.findall(each[2]), each.end()) for each in found]

    @cached_property
    def _records(self) -> frozenset[bytes]:
        """The classes whose calls name the fields of their objects, and other classes beside them."""
        if b"dataclass" not in self._data and b"namedtuple(" not in self._data:
            return frozenset()
        return frozenset(name or other for name, other in _CLASS.findall(self._data))

    def values(self, name: bytes) -> Iterator[bytes]:
        """Yield what a name is bound to, what a function of the name returns, and what calls pass for it."""
        yield from self._after(name, _BOUND)
        for function in self._functions:
            if function.name == name:
                returned = _RETURNED.finditer(self._data, function.body, function.body + _FAR)
                yield from (self._rest(each.end()) for each in returned)
            if name in function.parameters:
                called = self._after(function.name, _CALLED)
                place = function.parameters.index(name)
                yield from (each for call in called for each in _arguments(call, name, place))
        if name in self._records:
            yield from (b"(" + call for call in self._after(name, _CALLED))

    def _after(self, name: bytes, pattern: re.Pattern[bytes]) -> Iterator[bytes]:
        """Return the text after each place of a name that a pattern follows."""
        for found in islice(behind_name(self._data, name, pattern), _BINDINGS):
            value = self._rest(found.end())
            start = found.start() - len(name)
            if value.startswith(_COUNTED) and self._data[start - 2 : start] == b", ":
                value = value.removeprefix(_COUNTED)  # in `for i, x in enumerate(xs)`, only `i` is a number
            yield value


def _is_number(value: bytes) -> bool:
    """Return whether the text of an expression begins with an int, or has one that may be its value."""
    if _INT.match(value) or _NAMED.match(value):
        return True
    if any(each.isdigit() or _NAMED.match(each) for each in _otherwise(value)):
        return True
    return (
        _COMPOSED.match(value) is not None
        and _INT.search(value) is not None
        and _INT.search(_parts(value)) is not None
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
        if opened == b"(" and (field := _FIELD.match(value)) is not None:
            yield field[1]
        if owner:
            yield owner.partition(b".")[0].strip()
        yield from _otherwise(value)


def _otherwise(value: bytes) -> list[bytes]:
    """Return what follows `or` and `else` in an expression."""
    return _OTHERWISE.findall(re.split(rb"[,)\n]", value, maxsplit=1)[0])


def _parts(value: bytes) -> bytes:
    """Return the text of an expression without what is not among its parts."""
    value = _inside(value)
    for _ in range(_NESTED):
        value, number = _ASIDE.subn(b"", value)
        if not number:
            break
    return value


def _arguments(call: bytes, parameter: bytes, place: int) -> Iterator[bytes]:
    """Yield the arguments that a call may pass for a parameter.

    Args:
        call: the text behind the bracket that opens the call.
        parameter: the name of the parameter.
        place: its place.
    """
    for at, argument in enumerate(_split(call)):
        found = _KEYWORD.match(argument)
        value = argument[found.end() :] if found is not None else argument
        if found is not None and found[1]:
            if found[1] == parameter:
                yield value
        elif at == place or value.startswith((b"*", b"[")):  # `map(f, [x])` passes it before
            yield value


def _split(text: bytes) -> list[bytes]:
    """Return the parts of a text between its commas, up to the bracket that closes one before it."""
    parts, depth, start = [], 0, 0
    for each in _SEPARATOR.finditer(text):
        depth += each[0] in b"([{"
        depth -= each[0] in b")]}"
        if depth < 0 or (not depth and each[0] == b","):
            parts.append(text[start : each.start()])
            start = each.end()
        if depth < 0:
            break
    return parts


def _inside(text: bytes) -> bytes:
    """Return a text up to the bracket that closes one before it."""
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[0] in b"([{" else -1
        if depth < 0:
            return text[: bracket.start()]
    return text
