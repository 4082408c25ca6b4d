"""The devices that can be simulated, and what torch has for each.

Names are not here: what `torch.xpu` or `torch.mps` lacks, the simulation lacks too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Profile:
    """A type of device.

    Attributes:
        type: its name in `torch.device`.
        backend: the default backend of `torch.distributed` for it.
        visible: the environment variable that lists the visible devices; empty if there is only one.
        pins: whether memory on the CPU can be pinned for it.
        refused: the dtypes that it has no tensors of.
        memory_since: the version of torch since which `torch.accelerator` knows its memory.
        parallel: whether `DataParallel` works.
        casts: the dispatch key whose operations autocast changes.
        custom: whether torch has no module and no methods for it, so that an extension adds them.
        lacks: the names of `torch.cuda` that the module of this extension lacks.
    """

    type: str
    backend: str
    visible: str
    pins: bool = True
    refused: tuple[str, ...] = ()
    memory_since: tuple[int, int] = (2, 9)
    parallel: bool = False
    casts: str = "AutocastCUDA"
    custom: bool = False
    lacks: frozenset[str] = field(default=frozenset())

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.type.upper()

    @property
    def single(self) -> bool:
        """Return whether a machine has one of them and no more."""
        return not self.visible


_OF_CUDA = frozenset(
    {"CUDAGraph", "cudart", "get_arch_list", "is_tf32_supported", "list_gpu_processes", "temperature"}
)
_MPS = {"pins": False, "refused": ("float64", "complex128"), "memory_since": (2, 13), "casts": "AutocastMPS"}
_CUSTOM = {"parallel": True, "custom": True, "lacks": _OF_CUDA}

CUDA = Profile("cuda", "nccl", "CUDA_VISIBLE_DEVICES", parallel=True)
PROFILES = MappingProxyType(
    {
        each.type: each
        for each in (
            CUDA,
            Profile("xpu", "xccl", "ZE_AFFINITY_MASK", casts="AutocastXPU"),
            Profile("mps", "gloo", "", **_MPS),  # type: ignore[arg-type]
            Profile("npu", "hccl", "ASCEND_RT_VISIBLE_DEVICES", **_CUSTOM),  # type: ignore[arg-type]
            Profile("hpu", "hccl", "HABANA_VISIBLE_MODULES", **_CUSTOM),  # type: ignore[arg-type]
            Profile("musa", "mccl", "MUSA_VISIBLE_DEVICES", **_CUSTOM),  # type: ignore[arg-type]
        )
    }
)
