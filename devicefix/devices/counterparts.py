"""Read what there is for torch.cuda on other devices, and since which torch, from `counterparts.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from devicefix.config import toml

Version = tuple[int, int]

RAISES = "raises"  # what a call does that raises an error


@dataclass(frozen=True, slots=True)
class Support:
    """The support of a function on a device.

    Attributes:
        how: "same", "adapted", "none" or "unknown".
        since: The first torch, torch_npu or torch_musa in which it does; None if nobody says.
    """

    how: str
    since: Version | None = None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.how, self.since and written(self.since))))

    def at(self, version: Version) -> bool:
        """Return whether it is known to work in the same way in a version."""
        return self.how == "same" and self.since is not None and self.since <= version


@dataclass(frozen=True, slots=True)
class Target:
    """A function or class that does for any accelerator what one of torch.cuda does.

    Attributes:
        name: Its full name without `torch.`.
        since: The first torch that has it.
        without: What `call` does in a CPU build: the code of its value, "object", "raises" or "unknown".
        driverless: The same in a CUDA build on a machine without a GPU.
        before: A release, and what `call` did without an accelerator before it; None if always the same.
        call: The code of a call.
        devices: Whether it works on each device but CUDA.
        source: Where this comes from, a key of `SOURCES`.
        note: What else to know of it, in Markdown; may be empty.
    """

    name: str
    since: Version
    without: str
    driverless: str
    before: tuple[Version, str] | None
    call: str
    devices: Mapping[str, Support]
    source: str
    note: str

    def result(self, release: Version, driverless: bool = False) -> str:
        """Return what `call` does without an accelerator in a release, in a CUDA build if `driverless`."""
        if self.before is not None and release < self.before[0]:
            return self.before[1]
        return self.driverless if driverless else self.without


@dataclass(frozen=True, slots=True)
class Counterpart:
    """The replacement of a function or class of torch.cuda.

    Attributes:
        name: Its full name without `torch.`, a key of `TARGETS`.
        since: The first torch in which it does the same.
        instead: The code of what torch.cuda returns on a CPU, where the counterpart raises an error;
            None where they agree.
        how: "same" if it does the same on a machine with CUDA, "adapted" if arguments or result differ.
        devices: Whether it works on each device but CUDA.
    """

    name: str
    since: Version
    instead: str | None = None
    how: str = "same"
    devices: Mapping[str, Support] = field(default_factory=dict)

    def works_on(self, device: str, version: Version) -> bool:
        """Return whether this works on a device in a version, maybe not in all respects as on CUDA."""
        support = self.devices.get(device)
        if support is None or support.how == "none":
            return False
        return support.since is None or support.since <= version


@dataclass(frozen=True, slots=True)
class Function:
    """A function or class of torch.cuda.

    Attributes:
        name: Its name without `torch.cuda.`; `*` stands for any characters.
        subject: What it is about.
        without: What `call` does in a CPU build: the code of its value, "object", "raises" or "unknown".
        call: The code of a call; None if that needs no arguments.
        since: The first torch that has it, None if torch 2.4 does.
        until: The last torch that has it, None if the newest does.
        counterpart: What replaces it, if anything does.
        devices: Whether the module of each device, such as torch.xpu, has the same.
        note: What else to know of it, in Markdown; may be empty.
    """

    name: str
    subject: str
    without: str
    call: str | None = None
    since: Version | None = None
    until: Version | None = None
    counterpart: Counterpart | None = None
    devices: Mapping[str, Support] = field(default_factory=dict)
    note: str = ""


def version(text: str) -> Version:
    """Return the version that a text such as "2.10" or "2.10.1+cpu" names."""
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


def written(number: Version) -> str:
    """Return the text of a version."""
    return "{}.{}".format(*number)


def function(name: str) -> Function | None:
    """Return the row of a name in torch.cuda, None if there is none.

    Args:
        name: The name without `torch.cuda.`, also one in a module such as `memory.empty_cache`.
    """
    module, _, short = name.rpartition(".")
    found = FUNCTIONS.get(name) or FUNCTIONS.get(f"amp.{short}" if module.startswith("amp.") else short)
    return found or next((row for pattern, row in FUNCTIONS.items() if fnmatchcase(name, pattern)), None)


def _devices(text: str) -> dict[str, Support]:
    """Return the devices that a text names, each with its cell."""
    cells = (cell.split(" ") for cell in text.split(", ") if cell)
    return {device: Support(how, *map(version, since)) for device, how, *since in cells}


def _target(name: str, row: dict[str, Any]) -> Target:
    call = row.get("call", f"torch.{name}()")
    without, note = row["without"], row.get("note", "")
    number, _, did = row.get("before", "").partition(" ")
    before = (version(number), did) if number else None
    results = without, row.get("driverless", without), before
    return Target(name, version(row["since"]), *results, call, _devices(row["devices"]), row["source"], note)


def _function(name: str, subject: str, row: dict[str, Any]) -> Function:
    without, target = row["without"], TARGETS.get(row.get("to", ""))
    counterpart = None
    if target is not None:
        since = version(row["to_since"]) if "to_since" in row else target.since
        instead = without if target.without == RAISES != without else None
        counterpart = Counterpart(target.name, since, instead, row.get("how", "same"), target.devices)
    devices = _ABSENT | _devices(row.get("devices", ""))
    first, last = (version(row[key]) if key in row else None for key in ("since", "until"))
    call, note = row.get("call"), row.get("note", "")
    return Function(name, subject, without, call, first, last, counterpart, devices, note)


_TABLE = toml.beside(__file__)
# What the cell of a device is where a function has none.
_ABSENT = _devices("xpu none, mps none, npu none, hpu unknown, musa none")
DEVICES = tuple(_ABSENT)
NEWEST = version(_TABLE["newest"])  # the newest torch that the table covers
DEFAULT = (2, 13)  # the oldest torch that a rewritten module runs with, unless another is set
SOURCES: dict[str, str] = _TABLE["sources"]
TARGETS = {name: _target(name, row) for name, row in _TABLE["counterparts"].items()}
# The functions and classes of torch.cuda, by name, those of a subject together.
FUNCTIONS = {
    name: _function(name, subject, row)
    for subject, rows in _TABLE["functions"].items()
    for name, row in rows.items()
}
# Other arguments than in torch.cuda, which fixes know.
_KNOWN = ("amp.custom_fwd", "amp.custom_bwd", "OutOfMemoryError")
# What takes or returns objects of CUDA.
_OF_OBJECTS = ("Graphs", "Streams and events")
_OF_OBJECT = ("MemPool", "use_mem_pool", "change_current_allocator", "device_of", "init")
_MODULE_SINCE = (2, 6)  # torch.get_device_module() is that of the accelerator


def _replacements(function: Function) -> Iterator[Counterpart]:
    """Yield what does the same with CUDA: for any accelerator, or in the module of the device."""
    found = function.counterpart
    if found is not None and (found.how == "same" or function.name in _KNOWN):
        yield found
    takes_objects = function.subject in _OF_OBJECTS or function.name in _OF_OBJECT
    if not takes_objects and all(function.devices[device].how == "same" for device in ("xpu", "npu")):
        instead = None if function.without in (RAISES, "object") else function.without
        name = f"get_device_module().{function.name}"
        yield Counterpart(name, _MODULE_SINCE, instead, devices=function.devices)


# What does the same on a machine with CUDA, by the name in torch.cuda; the first is preferred.
COUNTERPARTS = {
    name: replacements for name, each in FUNCTIONS.items() if (replacements := [*_replacements(each)])
}
