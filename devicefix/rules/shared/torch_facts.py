"""List what torch has only with CUDA, or only with an accelerator: measured on torch 2.13 without CUDA."""

from __future__ import annotations

# Optimizers with an argument `capturable`: their step raises an AssertionError on a CPU.
CAPTURABLE = tuple(
    f"torch.optim.{name}"
    for name in ("ASGD", "Adadelta", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
)
# Functions that raise an error where there is no accelerator.
ACCELERATOR = tuple(
    f"torch.accelerator.{name}"
    for name in (
        "current_device_idx", "current_device_index", "set_device_idx", "set_device_index", "current_stream",
        "set_stream", "synchronize", "empty_cache", "empty_host_cache", "get_device_capability", "get_memory_info",
        "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
        "reset_peak_memory_stats", "reset_accumulated_memory_stats",
    )
)  # fmt: skip
# What distributed training has only with CUDA, and what happens on a CPU.
DISTRIBUTED = {
    "torch.distributed.ProcessGroupNCCL": "torch for the CPU has no `{}`; use it only if CUDA is available",
    "torch.distributed.distributed_c10d.ProcessGroupNCCL": "torch for the CPU has no `{}`; use it only if CUDA is available",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook": (
        "`{}` raises an error on a CPU; register it only if CUDA is available"
    ),
}
# The kernels of scaled dot product attention that a CPU has; the flash kernel has no dropout there.
ATTENTION = ("MATH", "FLASH_ATTENTION")
