"""Seeds, so that every run draws the same random numbers."""

from __future__ import annotations

import random
import sys

from devicefix.verify.runtime import imported
from devicefix.verify.runtime.plan import Plan


def install(plan: Plan) -> None:
    """Seed the generator of Python now, and those of torch and NumPy on import.

    Call this after everything else that waits for torch, so that the generators of the simulated CUDA machine
    exist.

    Args:
        plan: the plan of the run. Without a seed this does nothing.
    """
    seed = plan.seed
    if seed is None:
        return
    random.seed(seed)
    imported.when_imported("torch", lambda: sys.modules["torch"].manual_seed(seed))
    imported.when_imported("numpy.random", lambda: sys.modules["numpy.random"].seed(seed % 2**32))
