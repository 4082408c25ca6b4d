"""The packages that need CUDA to be installed, or that exist for CUDA only.

What each package offers was looked up in PyPI's index in November 2026: source distributions, and the platforms
of the wheels. No release for macOS has CUDA, so that a requirement loses nothing by a marker that leaves macOS out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


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


_COMPILES = "compiles CUDA code when it is installed"
_LINUX = "has no release for macOS"
_NVIDIA = "comes from NVIDIA's own package index"

# Packages with only source distributions, whose set-up needs nvcc or a CUDA build of torch.
_COMPILED = (
    "adam-atan2", "apex", "causal-conv1d", "cupy", "diff-gaussian-rasterization", "flash-attn", "flash-attn-3",
    "fused-ssim", "mamba-ssm", "minkowskiengine", "natten", "nvdiffrast", "pycuda", "sageattention", "simple-knn",
    "tiny-cuda-nn", "tinycudann", "torchsparse", "transformer-engine-torch",
)  # fmt: skip
# Source distributions that fetch wheels from NVIDIA.
_FETCHED = (
    "nvidia-pyindex", "nvidia-tensorrt", "pytorch-quantization", "tensorrt", "tensorrt-cu11", "tensorrt-cu12",
    "tensorrt-cu13",
)  # fmt: skip
_PACKAGES = {
    **dict.fromkeys(_COMPILED, Package(_COMPILES)),
    **dict.fromkeys(_FETCHED, Package(_NVIDIA)),
    # wheels for Linux, and some for Windows
    **dict.fromkeys(("torch-tensorrt", "triton", "xformers"), Package(_LINUX, installs=True)),
    "faiss-gpu": Package(_LINUX, "faiss-cpu", installs=True),
    "onnxruntime-gpu": Package(_LINUX, "onnxruntime", installs=True),
    "paddlepaddle-gpu": Package(_LINUX, "paddlepaddle", installs=True),
    "tensorflow-gpu": Package("cannot be installed in version 2.12 or later", "tensorflow"),
}
_FAMILIES = (
    (
        re.compile(r"nvidia-(?!ml-py|modelopt|lightning).+|nvidia-dali-cuda\d+"),
        Package(_LINUX, installs=True),
    ),
    (re.compile(r"cupy-cuda\d+x?"), Package(_LINUX, installs=True)),
    (re.compile(r"spconv-cu\d+"), Package(_LINUX, "spconv", installs=True)),
    (re.compile(r"faiss-gpu-cu\d+"), Package(_LINUX, "faiss-cpu", installs=True)),
    (re.compile(r"dgl-cu\d+"), Package("is not on PyPI", "dgl")),
    (re.compile(r"(?:cudf|cuml|cugraph|cuspatial|raft-dask|pylibraft|rmm|dask-cudf)-cu\d+"), Package(_LINUX)),
    (re.compile(r"jax-cuda\d+-(?:plugin|pjrt)"), Package(_LINUX, installs=True)),
)

# The packages of PyTorch whose builds for a CUDA version have it in their local version, such as `2.0.1+cu118`.
# Each of them also has a release on PyPI.
WITH_BUILDS = frozenset({"torch", "torchvision", "torchaudio", "torchtext", "torchdata", "xformers"})

# The packages of conda that install CUDA, or a build for CUDA.
CONDA = re.compile(
    r"cudatoolkit(?:-dev)?|cuda|pytorch-cuda|pytorch-gpu|cudnn|nccl|cutensor|cuda-(?!python).*|nvidia-.*"
    r"|lib(?:cublas|cufft|curand|cusolver|cusparse|cufile|npp|nvjpeg|nvjitlink)(?:-dev)?"
)
CONDA_FOR_CPU = {"faiss-gpu": "faiss-cpu", "pytorch-gpu": "pytorch", "tensorflow-gpu": "tensorflow"}


def normalized(name: str) -> str:
    """Return the name of a package as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def package(name: str) -> Package | None:
    """Return the package of a name if it needs CUDA, None otherwise."""
    key = normalized(name)
    if key in _PACKAGES:
        return _PACKAGES[key]
    return next((found for pattern, found in _FAMILIES if pattern.fullmatch(key)), None)
