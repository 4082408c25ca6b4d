"""Judge the number of GPUs in a program, which may be 0.

In the order in which they need one another: `ranges` reads loops over a number, `followed` finds where a number
goes, `harm` judges one use of a 0, `counts` what has to become
of a number of GPUs, `idle` which loops over all GPUs do nothing, and `refused` finds the numbers that the program
refuses to be 0.
"""

from devicefix.rules.shared.counts.counts import Counts
from devicefix.rules.shared.counts.harm import Harm
from devicefix.rules.shared.counts.idle import IdleLoops
from devicefix.rules.shared.counts.ranges import is_zero
from devicefix.rules.shared.counts.refused import Refused

__all__ = ["Counts", "Harm", "IdleLoops", "Refused", "is_zero"]
