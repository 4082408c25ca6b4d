"""Find where a value goes: to something that takes a device, only to comparisons and prints, or out of sight.

A value is followed forward from the expression that makes it: through the variables, attributes, keys,
containers, choices, parameters and returned values of the module.

In the order in which they need one another: `stores` follows a value into variables, attributes and keys,
`arguments` into functions and back, and `expressions` through expressions of every form.
"""

from devicefix.facts.flow.destinations.expressions import Destinations
from devicefix.facts.flow.destinations.stores import Use

__all__ = ["Destinations", "Use"]
