"""Read the packages that need CUDA to be installed, or that exist for CUDA only, from `packages.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from devicefix.config import toml
from devicefix.rules.environment.names import normalized


@dataclass(frozen=True, slots=True)
class Package:
    """A package that needs CUDA.

    Attributes:
        why: what fails without CUDA.
        cpu: the package that a CPU needs instead, which is imported by the same name; empty if it needs none.
        installs: whether the package can be installed on Linux without CUDA.
    """

    why: str
    cpu: str = ""
    installs: bool = False


_TABLE = toml.beside(__file__)
_PACKAGES = [(re.compile("|".join(about.pop("names"))), Package(**about)) for about in _TABLE["packages"]]

# The packages of PyTorch whose builds for a CUDA version have it in their local version, such as `2.0.1+cu118`.
# Each of them also has a release on PyPI.
WITH_BUILDS = frozenset({"torch", "torchvision", "torchaudio", "torchtext", "torchdata", "xformers"})

# The packages of conda that install CUDA, or a build for CUDA.
CONDA = re.compile(
    r"cudatoolkit(?:-dev)?|cuda|pytorch-cuda|pytorch-gpu|cudnn|nccl|cutensor|cuda-(?!python).*|nvidia-.*"
    r"|lib(?:cublas|cufft|curand|cusolver|cusparse|cufile|npp|nvjpeg|nvjitlink)(?:-dev)?"
)
CONDA_FOR_CPU = {"faiss-gpu": "faiss-cpu", "pytorch-gpu": "pytorch", "tensorflow-gpu": "tensorflow"}


def package(name: str) -> Package | None:
    """Return the package of a name if it needs CUDA, None otherwise."""
    key = normalized(name)
    return next((found for pattern, found in _PACKAGES if pattern.fullmatch(key)), None)
