"""Find the tests that imply that CUDA is available, and the code that runs only under one.

In the order in which they need one another: `answers` names the functions of torch that ask for CUDA,
`truth` evaluates a condition whose parts may be unknown, `conditions` finds what implies that there is a
GPU, and `guarded` the code that is reached only there, and what refuses to run elsewhere.
"""

from devicefix.facts.guards.answers import ASKS, AVAILABLE, COUNTS, VERSION
from devicefix.facts.guards.guarded import Built, Guards
from devicefix.facts.guards.truth import ORDERS, of_any_count, truth

__all__ = ["ASKS", "AVAILABLE", "COUNTS", "ORDERS", "VERSION", "Built", "Guards", "of_any_count", "truth"]
