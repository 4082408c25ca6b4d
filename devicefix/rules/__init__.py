"""Find code that is tied to CUDA and build its fixes, with one module or package per rule."""

from __future__ import annotations

from collections.abc import Mapping


def known_codes() -> Mapping[str, str]:
    """Return the names of all rules by their codes, those of plugins included; this loads the rules."""
    from devicefix.rules.registry import RULES

    return {code: rule.name for code, rule in RULES.items()}
