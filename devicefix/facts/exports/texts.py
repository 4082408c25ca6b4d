"""Find in the bytes of a file what it reads and sets of others, without parsing it."""

from __future__ import annotations

import re
from os.path import join, normpath

from devicefix.facts import moved_numbers
from devicefix.facts.exports.export import of_bytes

# Few runs need these patterns: they are compiled when they are first used.
_NAME = rb"\b[A-Za-z_]\w*"
_ATTRIBUTE = rb"\.(?:(?<=\b(self)\.))?([A-Za-z_]\w*)\b(?!\s*\()"
# A pattern begins with a letter, and looks back for `\b`: then the search is several times as fast.
_IMPORTED = rb"import(?<=\bimport)\b([ \t]*\([^)]*|[^\n]*)"
# `config.device = "cpu"`, `setattr(config, "device", "cpu")`
_SET = re.compile(rb"\.(?<!\bself\.)(\w+)[ \t]*=(?!=)")
_OWNER = re.compile(rb"[ \t]*(?!self\.)([A-Za-z_]\w*)(?:\.\w+)*")
# `device: torch.device = …` is a parameter or a field.
_ANNOTATED = re.compile(rb"(?:[ \t]*(?:async +)?def\b.*[(,])?[ \t]*(?!else\b|try\b|finally\b)\w+[ \t]*:")
_SPACE = rb"(?:\s|#[^\n]*\n|\\)*"
_SETATTR = (  # what is no literal may be any name: it is found as an empty one
    rb"setattr(?<=\bsetattr)\(~([A-Za-z_]\w*)(?:\.[\w.]*)?~,~(?:[\"'](\w+)[\"']~,)?".replace(b"~", _SPACE)
)
# `"configs/base.yaml"`, `f"configs/{name}.yaml"`, and `config_path="configs", config_name="base"` of Hydra
_END = rb"\.(?:ya?ml|json|toml)[\"']"
_BEFORE = rb"[\"']([^\"'\n]+)\Z"
_LONGEST = 150  # characters of a path
# The last text of what is given: `config_path="config"`, `config_path=str(Path(__file__).parent / "config")`
_OPTION = rb"config_(path|name|dir) *= *(?:(\w+)[,)]|(?:(?!config_)[^=])*?[\"']([\w./-]+)[\"'][\s)]*(?=[,)]))"
_VALUE = rb"(?m)^[ \t]*%b[ \t]*=[^\n]*[\"']([\w./-]+)[\"'][\s)]*$"
_GROUPS = (b"", b"*/", b"*/*/")  # of Hydra: folders of files that others name in their defaults


@of_bytes(b".yaml", b".yml", b".json", b".toml", b"hydra")
def named_configurations(data: bytes) -> frozenset[str]:
    """Return the paths of configuration files that a module names, without parsing it; `*` is any name."""
    found = set()
    for end in re.finditer(_END, data):
        before = re.search(_BEFORE, data[max(0, end.start() - _LONGEST) : end.start()])
        name = re.sub(rb"\{[^{}]*\}|%s", b"*", before[1]) if before is not None else b"*"
        if b"*" not in name or re.match(rb"\w[^*]*/", name):  # in a folder
            found.add(name + end[0][:-1])
    given: dict[bytes, list[bytes]] = {}
    for option, variable, text in re.findall(_OPTION, data) if b"hydra" in data else ():
        texts = re.findall(_VALUE % variable, data) if variable else [text]
        given.setdefault(option.replace(b"dir", b"path"), []).extend(texts)
    names = [name.removesuffix(b".yaml") for name in given.get(b"name", ())]
    # The command line may choose another file of a folder: `--config-name train`
    names += (group + b"*" for group in _GROUPS if group or not names)
    folders = given.get(b"path", [b"."]) if given else []
    found |= {join(folder, name + b".yaml") for folder in folders for name in names}
    return frozenset(normpath(name.decode(errors="replace")) for name in found)


@of_bytes()
def attributes_read(data: bytes) -> frozenset[str]:
    """Return the attributes that a module may read, also in strings; methods that it calls are left out."""
    names = {own + b"." + name if own else name for own, name in set(re.findall(_ATTRIBUTE, data))}
    return frozenset(map(bytes.decode, names))


@of_bytes()
def attributes_set(data: bytes) -> frozenset[str]:
    """Return the attributes that a module sets on what it imports; an empty name is any attribute."""
    found = set(re.findall(_SETATTR, data))
    for target in _SET.finditer(data):
        line, end = data.rfind(b"\n", 0, target.start()) + 1, target.start()
        start = max(line, data.rfind(b";", line, end) + 1, data.rfind(b":", line, end) + 1)
        owner = _OWNER.fullmatch(data, start, end)
        if owner is not None and not _ANNOTATED.fullmatch(data, line, start):
            found.add((owner[1], target[1]))
    imported = set(re.findall(_NAME, b" ".join(re.findall(_IMPORTED, data)))) if found else set()
    return frozenset(name.decode() for base, name in found if base in imported)


@of_bytes()
def attributes_set_on_any(data: bytes) -> frozenset[str]:
    """Return the attributes that a module sets, other than on `self`; an empty name is any attribute."""
    names = {*re.findall(_SET, data), *(name for _, name in re.findall(_SETATTR, data))}
    return frozenset(map(bytes.decode, names))


@of_bytes(b".to(", b"device")
def moved_imports(data: bytes) -> frozenset[str]:
    """Return the names that a module imports and passes on as a device."""
    return frozenset(map(bytes.decode, moved_numbers.moved_names(data)))


@of_bytes(b".to(", b"device")
def moving_functions(data: bytes) -> frozenset[str]:
    """Return the functions and classes of a module that may pass on a parameter as a device."""
    return frozenset(map(bytes.decode, moved_numbers.moving_functions(data)))
