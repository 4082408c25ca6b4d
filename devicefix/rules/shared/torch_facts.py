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
# Functions of `torch.cuda` that `torch.cpu` lacks.
CPU_LACKS = frozenset({
    "can_device_access_peer", "default_stream", "empty_cache", "get_device_capability", "get_device_name",
    "get_device_properties", "get_rng_state", "get_rng_state_all", "init", "initial_seed", "ipc_collect",
    "is_bf16_supported", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_cached",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot",
    "memory_stats", "memory_summary", "memory_usage", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats", "seed", "seed_all",
    "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream", "utilization",
})  # fmt: skip
# Those of them that only concern the memory of a GPU, and return nothing.
OF_MEMORY = frozenset({
    "empty_cache", "ipc_collect", "reset_accumulated_memory_stats", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_peak_memory_stats", "set_per_process_memory_fraction",
})  # fmt: skip
# How much memory of a GPU is used: 0 without CUDA.
MEMORY_FIGURES = tuple(
    f"torch.cuda.{prefix}{peak}memory_{what}"
    for prefix in ("", "memory.")
    for peak in ("", "max_")
    for what in ("allocated", "reserved", "cached")
)
# What distributed training has only with CUDA, and what happens on a CPU.
DISTRIBUTED = {
    "torch.distributed.ProcessGroupNCCL": "CPU builds of torch have no `{}`; use it only if CUDA is available",
    "torch.distributed.distributed_c10d.ProcessGroupNCCL": "CPU builds of torch have no `{}`; use it only if CUDA is available",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook": (
        "`{}` raises an error on a CPU; register it only if CUDA is available"
    ),
}
# The kernels of scaled dot product attention that a CPU has.
ATTENTION = ("MATH", "FLASH_ATTENTION")
