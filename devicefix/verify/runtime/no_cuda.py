"""The errors of PyTorch without CUDA."""

from __future__ import annotations

import re

# In builds without CUDA, and in builds with it that find no GPU.
NO_CUDA = re.compile(
    r"not compiled with CUDA|CUDA enabled|No CUDA GPUs|NVIDIA driver|on a CUDA device|without ATen_cuda"
    r"|not linked with support for cuda|accelerator device when none|pin memory|pin_memory=True requires"
    r"|NCCL|CUDA error"
)
