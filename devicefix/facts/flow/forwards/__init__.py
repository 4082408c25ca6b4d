"""Take a value forwards: to the places that use it, what takes it there, and whether it certainly gets there.

One walk goes through the variables, attributes, keys, containers, choices, parameters and returned values
of the module. In the order in which they need one another: `trail` follows a value into variables, attributes
and keys, `calls` into functions and back, and `values` through expressions of every form.
"""

from devicefix.facts.flow.forwards.calls import use_of_import
from devicefix.facts.flow.forwards.trail import Followed, Use
from devicefix.facts.flow.forwards.values import Forwards

__all__ = ["Followed", "Forwards", "Use", "use_of_import"]
