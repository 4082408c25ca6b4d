"""Record what a program does on a machine of `devicefix run --simulate`, as the tests' accelerator does."""

from __future__ import annotations

import atexit
import json
import sys
from pathlib import Path
from typing import Any

import torch


def install(path: str) -> None:
    """Watch this process, in which autocast casts nothing, as where the numbers are recorded.

    What the driver of a trial sums up in float64, it does on the CPU: MPS has no float64.

    Args:
        path: the file to write the record of the program to.
    """
    import accelerator_machine

    from devicefix.verify.runtime.machine import autocast

    autocast.use(False)
    record = accelerator_machine.Record()
    record.watch()
    record.start()
    atexit.register(lambda: Path(path).write_text(json.dumps(record.found())))
    kind: Any = torch.Tensor
    double = kind.double

    def summed(tensor: Any) -> Any:
        drives = sys._getframe(1).f_code.co_filename == "_drive.py"
        return double(tensor.cpu() if drives else tensor)

    kind.double = summed
