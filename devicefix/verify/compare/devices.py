"""The names of devices in the events of runs on different machines."""

from __future__ import annotations

from typing import Any

from devicefix.verify.compare.streams import Event
from devicefix.verify.runtime.profiles import CUDA, Profile

_NAMES = ("device", "source", "target")
_PINNED = "pinned memory"


def as_on_cuda(events: list[Event], profile: Profile) -> list[Event]:
    """Return the events of a run as if its devices were those of CUDA, to compare it with a run on CUDA.

    Args:
        events: the events of either run.
        profile: the type of device of the run that is not on CUDA. If memory cannot be pinned for it, no run
            is expected to pin any.
    """
    return [_fields(event, profile) for event in events]


def _fields(event: dict[str, Any], profile: Profile) -> dict[str, Any]:
    return {name: _field(name, value, profile) for name, value in event.items()}


def _field(name: str, value: Any, profile: Profile) -> Any:
    if isinstance(value, dict):
        return _fields(value, profile)
    if name in _NAMES and str(value).partition(":")[0] == profile.type:
        return value.replace(profile.type, CUDA.type)
    if name == "options" and not profile.pins:
        return [option for option in value if option != _PINNED]
    return value
