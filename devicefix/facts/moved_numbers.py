"""Judge by its bytes alone whether a file may move something to the number of a GPU.

Whatever is passed as a device may be one, unless its text shows that it is something else. What a name is
bound to is asked only once the file is parsed.
"""

from __future__ import annotations

import re

# What is passed as a device, or bound to the name `device`, up to the end of the argument.
_PASSED = re.compile(
    rb"(?:\.to\(\s*(?:device\s*=\s*)?|device(?:[\"']?\s*[=:]|\()\s*|Generator\(\s*)(?!=)([^\n,)]*)"
)
# What is called a device is bound in another place of the file, which is looked at as well, or imported.
_DEVICE = rb"(?:[\w.]+\.)?\w*(?:device|dtype)"
_OF_TORCH = rb"torch\.(?:device\((?:[\"'].*|%b)|(?!device\()[\w.]*(?:\(.*)?)" % _DEVICE
_ANNOTATION = (
    rb"(?:str\b|Any|Optional\b|Union\b|None|self|%b|[|\[\]\s])*(?:=\s*(?:None|[\"'].*))?" % _OF_TORCH
)
# Texts, constants of torch, dtypes and the devices of tensors are no numbers.
_NO_NUMBER = re.compile(
    rb"[fr]?[\"'`].*|%b|[^=]*\.(?:device|dtype)|\w*dtype\s*=.*|get_device\(.*|\s*|%b" % (_DEVICE, _ANNOTATION)
)
_IMPORTED = re.compile(rb"import\b(?:\s*\([^)]*|[^\n]*)")
_IN_IMPORT = re.compile(rb"[\s,(](\w+|\*)")
_NAME = re.compile(rb"\w+")
_DEFINED = re.compile(rb"class\s+(\w+)|def\s+(\w+)\s*\(([^)]*)\)")
_NUMBER_PASSED = rb"\b(?:%b)[(,](?:[^\n]*[(,][ \t]*\n)*[^\n]*(?:[(\[,=]\s*\d+\s*[\]),]|rank|gpu)"
_NAMES = {b"torch", b"nn", b"Optional", b"Union", b"Any"}


def moves_to_number(data: bytes) -> bool:
    """Return whether something may be moved to the number of a GPU, here or in another file.

    Args:
        data: the bytes of a file.
    """
    passed = set(_PASSED.findall(data))
    if not all(map(_NO_NUMBER.fullmatch, passed)):
        return True
    names = {name[0] for name in map(_NAME.match, passed) if name is not None}
    imported = set(_IN_IMPORT.findall(b" ".join(_IMPORTED.findall(data)))) - _NAMES
    return not names.isdisjoint(imported) or _passes_number(data)


def _passes_number(data: bytes) -> bool:
    """Return whether a call may pass a number to a function of the file with a parameter for a device."""
    called, owner = set(), b""
    for of_class, function, parameters in _DEFINED.findall(data):
        owner = of_class or owner
        if b"device" in parameters:
            called.add(owner if function == b"__init__" else function)
    return bool(called) and re.search(_NUMBER_PASSED % b"|".join(called), data) is not None
