"""Record what a program does on a machine of `devicefix run --simulate`, as the tests' accelerator does."""

from __future__ import annotations

import atexit
import json
from pathlib import Path


def install(path: str) -> None:
    """Watch this process, in which autocast casts nothing, as where the numbers are recorded.

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
