"""The same random numbers in every run."""

from __future__ import annotations

import random
import sys

from devicefix.verify.runtime import imported
from devicefix.verify.runtime.plan import Plan


def install(plan: Plan) -> None:
    """Seed the generators of Python at once, of torch and NumPy as they are imported.

    To be called after what else waits for torch, so that the simulated machine's generators are there.

    Args:
        plan: the run; without a seed nothing is done.
    """
    seed = plan.seed
    if seed is None:
        return
    random.seed(seed)
    imported.when_imported("torch", lambda: sys.modules["torch"].manual_seed(seed))
    imported.when_imported("numpy.random", lambda: sys.modules["numpy.random"].seed(seed % 2**32))
