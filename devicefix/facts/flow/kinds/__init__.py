"""Infer the kinds of value that an expression can have, as far as they matter to devices.

The answer follows all bindings of a name: assignments, parameters with their annotations, defaults and the
calls in the module, loops, captures, options of the command line. The names of variables decide nothing.

In the order in which they need one another: `kind` defines the kinds, `library` those of what Python and
torch define, `inference` what the next modules share. `annotations`, `parameters`, `objects`, `calls`
and `bindings` each infer the kinds of one form of code, and `expressions` puts them together.
"""

from devicefix.facts.flow.kinds.expressions import KindsOf
from devicefix.facts.flow.kinds.kind import DEVICES, NUMBERS, Kind, Kinds
from devicefix.facts.flow.kinds.library import DTYPES

__all__ = ["DEVICES", "DTYPES", "NUMBERS", "Kind", "Kinds", "KindsOf"]
