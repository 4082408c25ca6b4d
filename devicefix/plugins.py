"""What rules of other distributions are made of: these names, and what their pages promise, stay as they are.

Anything else of devicefix can change with every version. docs/plugins.md shows how to write a rule.
"""

from devicefix.finding import Edit, Finding, Fix, Safety
from devicefix.rule import Changed, Context, Rule

__all__ = ["Changed", "Context", "Edit", "Finding", "Fix", "Rule", "Safety"]
