"""Emulate `torch.accelerator` on the emulated CUDA machine of the trials: the accelerator is the GPU."""

from __future__ import annotations

import atexit
import contextlib
import json
from pathlib import Path
from typing import Any

import torch as typed

torch: Any = typed  # which is replaced in parts

ANSWERS = {
    "is_available": True,
    "device_count": 1,
    "current_device_index": 0,
    "set_device_index": None,
    "set_stream": None,
    "synchronize": None,
    "empty_cache": None,
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "reset_peak_memory_stats": None,
    "get_memory_info": (1 << 33, 1 << 34),
}


def install(path: str) -> None:
    """Patch torch in this process, with the emulation of the trials. There is no way back.

    Args:
        path: the file to write the record of the program to, as the accelerator of the tests does.
    """
    import accelerator_machine
    import cuda_machine  # type: ignore[import-not-found]

    cuda_machine.install()
    record = accelerator_machine.Record()
    record.watch()
    atexit.register(lambda: Path(path).write_text(json.dumps(record.found())))
    accelerator = torch.accelerator
    for name, answer in ANSWERS.items():
        setattr(accelerator, name, _always(answer))
    accelerator.current_accelerator = _always(torch.device("cuda"))
    accelerator.current_stream = torch.cuda.current_stream
    accelerator.device_index = _always(contextlib.nullcontext())
    torch.Stream, torch.Event = torch.cuda.Stream, torch.cuda.Event
    module = torch.get_device_module
    torch.get_device_module = lambda device=None: module("cuda" if device is None else device)
    if torch.distributed.is_available():
        backend = torch.distributed.get_default_backend_for_device
        torch.distributed.get_default_backend_for_device = lambda device: (
            "nccl" if torch.device(device).type == "cuda" else backend(device)
        )


def _always(answer: Any) -> Any:
    return lambda *_args, **_options: answer
