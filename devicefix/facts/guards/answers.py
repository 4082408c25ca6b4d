"""List the functions of torch that ask for CUDA, and what they return where there is a GPU."""

from __future__ import annotations

AVAILABLE = "torch.cuda.is_available"
VERSION = "torch.version.cuda"
CUDNN = "torch.backends.cudnn.version"  # it returns None without CUDA
# True on a machine with CUDA, false on a CPU.
ASKS = (AVAILABLE, "torch.accelerator.is_available")
COUNTS = ("torch.cuda.device_count", "torch.accelerator.device_count")
# Calls that are true or more than 0 only where there is more than a CPU.
IMPLYING = {*ASKS, *COUNTS, "torch.cuda.is_initialized", "transformers.utils.is_torch_cuda_available"}
