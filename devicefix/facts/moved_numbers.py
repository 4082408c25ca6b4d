"""Judge by its bytes alone whether a file may move something to the number of a GPU.

Whatever is passed as a device may be one, unless its text shows that it is something else. What a name is
bound to is asked only once the file is parsed; what another file binds it to, the project knows.
"""

from __future__ import annotations

import re
from functools import lru_cache

_BINDS = rb"(?:[=:]|,[\w, \t]*=(?=[^\n(]*\())"  # also one of several names that a call gives values
# What is passed as a device, or bound to the name `device`, up to the end of the argument. Each begins
# with a text: so they are found three times as fast as by one pattern.
_PASSED = [
    re.compile(start + rb"(?!=)([^\n,)]*)")
    for start in (
        rb"\.to\(\s*(?:device\s*=\s*)?",
        rb"device(?:[\"']?[ \t]*%b[ \t]*|\(\s*)" % _BINDS,
        rb"Generator\(\s*",
    )
]  # fmt: skip
# What is called a device is bound in another place of the file, which is looked at as well, or imported.
_DEVICE = rb"(?:(?:[\w.]+\.)?\w*(?:device|dtype)|(?:[\w.]+\.)?\w+_(?:device|dtype)\(.*)"
_OF_TORCH = rb"torch\.(?:device\((?:[\"'].*|%b)|(?!device\()[\w.]*(?:\(.*)?)" % _DEVICE
_ONE = rb"(?:%b|%b|next\(.*\.(?:parameters|buffers)\(.*)" % (_DEVICE, _OF_TORCH)
_CHOICE = rb"%b(?:\s+(?:or|if\b.*\belse)\s+%b)?" % (_ONE, _ONE)
_ANNOTATION = (
    rb"(?:str\b|Any|Optional\b|Union\b|None|self|%b|[|\[\]\s\"'])*(?:=\s*(?:None|[\"'].*))?" % _OF_TORCH
)
# Texts, constants of torch, dtypes and the devices of tensors are no numbers.
_NO_NUMBER = re.compile(
    rb"[fr]?[\"'`].*|[^=]*\.(?:device|dtype)|\w*(?:dtype|memory_format)\s*=.*|device=\w*device|get_device\(.*|\w*kwargs\.\w+\(.*"
    rb"|\s*|%b|%b" % (_CHOICE, _ANNOTATION)
)
_LOOP = re.compile(rb"for\s+\w*device\s+in\b")
# The target of `x.to(target)` is a tensor where the file reads what only tensors have.
_OF_TENSOR = rb"%b(?<=\b%b)\.(?:device|dtype|shape|size|to)\b"
_NAMES = re.compile(rb"(?:(\w+)[\w.]*\.)?(\w+)\b(\()?")
_IMPORTED = re.compile(rb"import\b(?:\s*\([^)]*|[^\n]*)")
_IN_IMPORT = re.compile(rb"[\s,(](\w+|\*)")
_CLASS = re.compile(rb"\n[ \t]*class\s+(\w+)")
_FUNCTION = re.compile(rb"def\s+(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_PARAMETER = re.compile(rb"(\w+)\s*(?:[:=,]|\Z)")
_NUMBER_PASSED = rb"\b(?:%b)[(,](?:[^\n]*[(,][ \t]*\n)*[^\n]*(?:[(\[,=]\s*\d+\s*[\]),]|rank|gpu)"
_OF_LIBRARIES = {b"torch", b"nn", b"Optional", b"Union", b"Any"}


def moves_to_number(data: bytes) -> bool:
    """Return whether something may be moved to the number of a GPU that the file itself has.

    Args:
        data: the bytes of a file.
    """
    passed = _passed(data)
    if _LOOP.search(data):
        return True
    imported: set[bytes] | None = None
    for value in passed:
        if not _NO_NUMBER.fullmatch(value):
            imported = _imported(data) if imported is None else imported
            found = _NAMES.fullmatch(value.partition(b"(")[0])
            if found is None or not ((found[1] or found[2]) in imported or _is_tensor(data, value)):
                return True
    return _passes_number(data, passed)


@lru_cache(maxsize=1)  # three questions are asked about one file
def _passed(data: bytes) -> frozenset[bytes]:
    """Return what is passed as a device, as it is written."""
    return frozenset(value for pattern in _PASSED for value in pattern.findall(data))


def _is_tensor(data: bytes, value: bytes) -> bool:
    """Return whether a value is a name of which a file reads what only tensors have."""
    is_name = re.fullmatch(rb"\w+", value) is not None
    return is_name and re.search(_OF_TENSOR % (value, value), data) is not None


def moved_names(data: bytes) -> frozenset[bytes]:
    """Return the names that a file passes on as a device, and imports or takes of what it imports.

    Args:
        data: the bytes of a file.
    """
    found = {name.groups()[:2] for name in map(_NAMES.match, _passed(data)) if name is not None}
    imported = _imported(data) if found else set()
    return frozenset(name for owner, name in found if (owner or name) in imported)


def moving_functions(data: bytes) -> frozenset[bytes]:
    """Return the functions and classes of a file that may pass on a parameter as a device.

    Args:
        data: the bytes of a file.
    """
    passed = {name[2] for name in map(_NAMES.match, _passed(data)) if name is not None}
    parameters = ((name, _PARAMETER.findall(each)) for name, each in _functions(data))
    return frozenset(name for name, names in parameters if not passed.isdisjoint(names))


@lru_cache(maxsize=1)
def _functions(data: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return the names by which the functions of a file are called, each with the parameters."""
    first, *rest = _CLASS.split(b"\n" + data)
    parts = [(b"", first), *zip(rest[::2], rest[1::2], strict=True)]
    return tuple(
        (owner if function == b"__init__" else function, parameters)
        for owner, part in parts
        for function, parameters in _FUNCTION.findall(part)
    )


def _imported(data: bytes) -> set[bytes]:
    return set(_IN_IMPORT.findall(b" ".join(_IMPORTED.findall(data)))) - _OF_LIBRARIES


def _passes_number(data: bytes, passed: frozenset[bytes]) -> bool:
    """Return whether a call may pass a number to a function of the file with a parameter for a device.

    The result of a function of the file that is passed on may be one, too.
    """
    functions = _functions(data)
    called = {name for name, parameters in functions if b"device" in parameters}
    results = {name[2] for name in map(_NAMES.match, passed) if name is not None and name[3]}
    if not results.isdisjoint(name for name, _ in functions):
        return True
    return bool(called) and re.search(_NUMBER_PASSED % b"|".join(called), data) is not None
