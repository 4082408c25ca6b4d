"""What rules of other distributions are made of: these names, and what their pages promise, stay as they are.

Anything else of devicefix can change with every version. docs/plugins.md shows how to write a rule.
"""

from devicefix.devices.context import Context
from devicefix.model import Edit, Finding, Fix, Safety
from devicefix.rules.base import Changed, Example, Rule

__all__ = ["Changed", "Context", "Edit", "Example", "Finding", "Fix", "Rule", "Safety"]
