"""The names that rules of other distributions are made of.

These names, and what docs/plugins.md says about them, stay as they are. Anything else in devicefix can change
with every version.
"""

from devicefix.devices.context import Context
from devicefix.devices.expression import DeviceExpr
from devicefix.model import Edit, Finding, Fix, Safety
from devicefix.rewrite.edits import with_keyword
from devicefix.rules.base import Example, Rule

__all__ = [
    "Context",
    "DeviceExpr",
    "Edit",
    "Example",
    "Finding",
    "Fix",
    "Rule",
    "Safety",
    "with_keyword",
]
