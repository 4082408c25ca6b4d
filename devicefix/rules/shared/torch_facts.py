"""Read what torch has only with CUDA, or only with an accelerator, from `torch_facts.toml`."""

from __future__ import annotations

from devicefix.config import toml
from devicefix.devices.counterparts import RAISES, TARGETS

_FACTS = toml.beside(__file__)

CAPTURABLE = tuple(_FACTS["capturable"])
# The functions that raise an error without an accelerator. (`device_index` raises one only if it is entered, and not
# with None.)
ACCELERATOR = tuple(
    f"torch.{name}"
    for name, target in TARGETS.items()
    if name.startswith("accelerator.") and target.without == RAISES and not target.call.startswith("with ")
)
CPU_LACKS = frozenset(_FACTS["cpu_lacks"])
OF_MEMORY = frozenset(_FACTS["of_memory"])
RAISING = frozenset(_FACTS["raising"])
RAISING_IN_FULL = frozenset(f"torch.cuda.{name}" for name in RAISING)
INSTEAD: dict[str, str] = _FACTS["instead"]
DISTRIBUTED: dict[str, str] = _FACTS["distributed"]
# The kernels of scaled dot product attention that a CPU has.
ATTENTION = ("MATH", "FLASH_ATTENTION")
