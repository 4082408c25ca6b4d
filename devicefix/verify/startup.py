"""The environment in which a program's Python processes read their plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import devicefix.verify.runtime
from devicefix.verify.runtime.plan import VARIABLE, Plan
from devicefix.verify.shell import STARTUP

BOOTSTRAP = Path(devicefix.verify.runtime.__file__).parent / "bootstrap"


def environment(plan: Plan, extra: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the environment for a program, and store its plan.

    Args:
        plan: the plan for its processes.
        extra: further variables.
    """
    variables = {**os.environ, **extra, VARIABLE: plan.store(), "PYTHONDONTWRITEBYTECODE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BOOTSTRAP), os.environ.get("PYTHONPATH")]))
    variables[STARTUP] = str(BOOTSTRAP)
    if plan.machine != "cuda":
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables
