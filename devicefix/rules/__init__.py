"""Find ties to CUDA and build their fixes, with one module or package per rule."""

from __future__ import annotations

from collections.abc import Collection


def known_codes() -> Collection[str]:
    """Return the codes of all rules, those of plugins included; this loads the rules."""
    from devicefix.rules.registry import RULES

    return RULES.keys()
