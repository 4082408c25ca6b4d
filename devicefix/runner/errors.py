"""The message for an error that is not the user's."""

from __future__ import annotations

import sys
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicefix.rules.entry_points import Plugin


def internal_error(problem: Exception) -> str:
    """Return the message for an unexpected error: where it was raised, and whom to report it to."""
    frames = extract_tb(problem.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    what = "internal error; please report it"
    if plugin := _plugin_at({frame.filename for frame in frames}):
        what = f"error in the plugin {plugin}; please report it to its author"
    return f"{what}: {type(problem).__name__}: {problem}{where}"


def _plugin_at(files: set[str]) -> Plugin | None:
    """Return the plugin whose rules are in one of these files."""
    rules = sys.modules.get("devicefix.rules.registry")  # missing or half loaded: no rule is to blame
    return next((plugin for plugin in getattr(rules, "PLUGINS", ()) if plugin.files & files), None)
