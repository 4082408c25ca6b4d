"""Find the tests that imply that CUDA is available, and the code that runs only under one.

In the order in which they need one another: `answers` holds what torch answers where there is a GPU,
`conditions` finds what implies that there is one, `decided` what has one value on every machine with CUDA,
and `guarded` the code that is reached only there.
"""

from devicefix.facts.guards.answers import ASKS, AVAILABLE, COUNTS, VERSION, of_any_count
from devicefix.facts.guards.guarded import Built, Guards

__all__ = ["ASKS", "AVAILABLE", "COUNTS", "VERSION", "Built", "Guards", "of_any_count"]
