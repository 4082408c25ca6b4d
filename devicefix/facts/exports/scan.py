"""Find the exports of a file in its bytes, without parsing it."""

from __future__ import annotations

import re

from devicefix.facts.configurations import named_configurations
from devicefix.facts.exports.forks import forked_modules, mentions_devices
from devicefix.facts.exports.low_precision import (
    autocasts,
    has_low_precision,
    low_flags,
    stops_autocast,
)
from devicefix.facts.exports.summary import Summary
from devicefix.facts.exports.transforms import transforming
from devicefix.facts.module import Facts
from devicefix.facts.passed import passed_kinds
from devicefix.facts.precision import Precision
from devicefix.facts.sinks import scanned
from devicefix.facts.torchscript import TorchScript
from devicefix.files.text import DecodeError

# They begin with what is found fast: a line end, not `^`, and a letter or dot, not `\b` or a group.
_IMPORT = re.compile(
    rb"\n[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]*(?:\(([^)]*)|([\w, \t*]*))|import[ \t]+([\w., \t]+))"
)
_COMMENT = re.compile(rb"#[^\n]*")
_CLASS = re.compile(rb"\n[ \t]*class[ \t]+(\w+)[ \t]*\(([\w., \t]+)\)")
_METHOD = re.compile(rb"\n[ \t]*(?:class[ \t]+(\w+)|(def[ \t]+to\())")
_TRIED = re.compile(
    rb"\n[ \t]*try:[^\n]*\n((?:[ \t]+(?:from|import)[ \t][^\n]*\n)+)"
    rb"[ \t]*except\b(?![^\n]*(?:Import|ModuleNotFound)Error)"
)
_NUMBER = re.compile(
    rb"\n([A-Za-z_]\w*)[ \t]*(?::[ \t]*int[ \t]*)?=[ \t]*(?:\d+|int\([^\n]*\))[ \t\r]*(?=[#\n]|\Z)"
)
_NAME = re.compile(rb"\b[A-Za-z_]\w*")
_LIBRARIES = (b"flash", b"xformers", b"torchsparse", b"spconv", b"triton")
# `BACKEND = "flash_attn"`, found from the library on
_FOR_CUDA = re.compile(
    rb"(?<=[\"'])(?:flash\w*|xformers|torchsparse|spconv|triton)(?=[\"'][ \t\r]*(?:[#\n]|\Z))"
)
_CHOICE = re.compile(rb"([A-Za-z_]\w*)[ \t]*(?::[ \t]*str[ \t]*)?=[ \t]*[\"']\Z")
_ATTRIBUTE = re.compile(rb"\.(?:(?<=\b(self)\.))?([A-Za-z_]\w*)\b(?!\s*\()")
# A pattern begins with a letter, and looks back for `\b`: then the search is several times as fast.
_IMPORTED = re.compile(rb"import(?<=\bimport)\b([ \t]*\([^)]*|[^\n]*)")
# `config.device = "cpu"`, `setattr(config, "device", "cpu")`
_SET = re.compile(rb"\.(?<!\bself\.)(\w+)[ \t]*=(?!=)")
_OWNER = re.compile(rb"[ \t]*(?!self\.)([A-Za-z_]\w*)(?:\.\w+)*")
_SETATTR = re.compile(  # what is no literal may be any name: it is found as an empty one
    rb"setattr(?<=\bsetattr)\(~([A-Za-z_]\w*)(?:\.[\w.]*)?~,~(?:[\"'](\w+)[\"']~,)?".replace(
        b"~", rb"(?:\s|#[^\n]*\n|\\)*"
    )
)
# `device.split(":")[1]`, `device.replace("cuda:", "")`, `device[5:]`: each with what is before it
_NUMBERED = tuple(
    (re.compile(taken), re.compile(rb"(\w+)(?:\.(?:[rl]|remove)?)?" + taken_by + rb"\Z"))
    for taken, taken_by in (
        (rb"\(\s*[\"']:[\"'][^)\n]*\)(?!\s*\[0\])", rb"(?:split|partition)"),
        (rb"\(\s*[\"']cuda", rb"(?:replace|prefix|strip)"),
        (rb"\[5:\]", b""),
    )
)
_TRANSFORMS = re.compile(rb"torch\.fft\.\w+\(|from torch import fft|import torch\.fft|from torch\.fft import")
_JIT = re.compile(rb"jit(?<=\bjit)\b")
_COMPILES = re.compile(rb"script(?<=\bscript)(?:_if_tracing|_method)?\b|export(?<=\bexport)\b")


def library_choices(data: bytes) -> frozenset[tuple[str, str]]:
    """Return the variables that a module binds to the name of a library for CUDA, each with the name."""
    if not any(word in data for word in _LIBRARIES):
        return frozenset()
    lines = (
        (data[data.rfind(b"\n", 0, found.start()) + 1 : found.start()], found)
        for found in _FOR_CUDA.finditer(data)
    )
    return frozenset(
        (bound[1].decode(), found[0].decode())
        for line, found in lines
        if (bound := _CHOICE.match(line)) is not None
    )


def passed_through(data: bytes, path: str) -> Summary | None:
    """Return the imports, classes and numbers of a file that has no tie to CUDA, without parsing it."""
    data = b"\n" + data
    imports: set[str] = set()
    stars: list[str] = []
    for module, in_parentheses, on_line, plain in _IMPORT.findall(data):
        if plain:
            imports.update(part.split()[0].decode() for part in plain.split(b",") if part.strip())
            continue
        base = module.decode()
        imports.add(base)
        joint = "" if base.endswith(".") else "."
        names = _COMMENT.sub(b"", in_parentheses).decode(errors="replace") or on_line.decode()
        for name in (part.split()[0] for part in names.split(",") if part.strip()):
            if name == "*":
                stars.append(base)
            else:
                imports.add(f"{base}{joint}{name}")
    classes = {
        name.decode(): tuple(base.strip().decode() for base in bases.split(b","))
        for name, bases in _CLASS.findall(data)
    }
    to_classes = _to_classes(data)
    places, taking = scanned(data)
    low_precision = has_low_precision(data)
    attributes = attributes_read(data)
    tried = {name.decode() for lines in _TRIED.findall(data) for name in re.findall(rb"\w+", lines)}
    numbers = frozenset(name.decode() for name in _NUMBER.findall(data))
    configurations = named_configurations(data)
    choices = library_choices(data)
    if not any((imports, classes, places, low_precision, attributes, numbers, configurations, choices)):
        return None
    return Summary(
        path,
        frozenset(imports),
        tuple(stars),
        read=frozenset(name.decode() for name in _NAME.findall(data)) if stars else frozenset(),
        attributes=attributes,
        set_on_imports=attributes_set(data),
        numbered=numbered_names(data),
        classes=classes,
        to_classes=to_classes,
        get_device=b"def get_device(" in data,
        choices=choices,
        forks=forked_modules(data),
        devices_mentioned=mentions_devices(data),
        low_precision=low_precision,
        mixing=_mixing(data) if low_precision else frozenset(),
        low_flags=low_flags(data) if low_precision else frozenset(),
        stops_autocast=stops_autocast(data),
        autocasts=autocasts(data),
        transforms=_transforms(data),
        scripted=_scripted(data),
        device_places=places,
        receivers=taking,
        passed=frozenset(passed_kinds(data)),
        tried=frozenset(tried),
        numbers=numbers,
        configurations=configurations,
    )


def _to_classes(data: bytes) -> frozenset[str]:
    """Return the classes of a module that define a method `to`, without parsing it."""
    if b"def to(" not in data:
        return frozenset()
    found, last = set(), b""
    for name, method in _METHOD.findall(data):
        if method:
            found.add(last.decode())
        last = name or last
    return frozenset(found - {""})


def attributes_read(data: bytes) -> frozenset[str]:
    """Return the attributes that a module may read, also in strings; methods that it calls are left out."""
    names = {own + b"." + name if own else name for own, name in set(_ATTRIBUTE.findall(data))}
    return frozenset(map(bytes.decode, names))


def attributes_set(data: bytes) -> frozenset[str]:
    """Return the attributes that a module sets on what it imports; an empty name is any attribute."""
    found = set(_SETATTR.findall(data))
    for target in _SET.finditer(data):
        line, end = data.rfind(b"\n", 0, target.start()) + 1, target.start()
        start = max(line, data.rfind(b";", line, end) + 1, data.rfind(b":", line, end) + 1)
        owner = _OWNER.fullmatch(data, start, end)
        if owner is not None:
            found.add((owner[1], target[1]))
    imported = set(_NAME.findall(b" ".join(_IMPORTED.findall(data)))) if found else set()
    return frozenset(name.decode() for base, name in found if base in imported)


def numbered_names(data: bytes) -> frozenset[str]:
    """Return the names and attributes of which a module takes the number of a device."""
    names = (
        taken_of.search(data[max(0, found.start() - 80) : found.start()])
        for taken, taken_of in _NUMBERED
        for found in taken.finditer(data)
    )
    return frozenset(name[1].decode() for name in names if name is not None)


def _scripted(data: bytes) -> frozenset[str]:
    """Return what TorchScript compiles of other files, for a module that is parsed only if it may do so."""
    if b"torch" not in data or b"script" not in data:
        return frozenset()
    if not (_JIT.search(data) and _COMPILES.search(data)):
        return frozenset()
    try:
        return frozenset(TorchScript(Facts.read(data)).imported)
    except (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _mixing(data: bytes) -> frozenset[str]:
    """Return the classes in which low precision meets float32, for a module that is parsed for it."""
    if b"torch" not in data or b"class " not in data:
        return frozenset()
    try:
        return frozenset(Precision(Facts.read(data)).mixing_classes())
    except (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _transforms(data: bytes) -> frozenset[tuple[str, tuple[str, int]]]:
    """Return the functions that transform a parameter, for a module that is parsed for it."""
    if b"torch" not in data or b"fft" not in data or _TRANSFORMS.search(data) is None:
        return frozenset()
    try:
        return frozenset(transforming(Facts.read(data)))
    except (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
