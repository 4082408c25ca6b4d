"""Errors whose text shows their cause."""

from __future__ import annotations

import re
from typing import NamedTuple

from devicefix.verify.cause import Cause


class Known(NamedTuple):
    """A kind of error.

    Attributes:
        pattern: what its type and message contain.
        cause: its cause.
        evidence: what the text shows.
        advice: what to do.
    """

    pattern: re.Pattern[str]
    cause: Cause
    evidence: str
    advice: str


def _known(pattern: str, cause: Cause, evidence: str, advice: str) -> Known:
    return Known(re.compile(pattern), cause, evidence, advice)


INTERPRETER = "set TRITON_INTERPRET=1, as `devicefix verify --triton-interpret` does"

TRITON = (
    _known(
        r"No module named '?triton\b|(?i:cannot find a working triton)|TritonMissing",
        Cause.TRITON,
        "Triton is not installed",
        f"install it (`pip install triton`, on Linux), then {INTERPRETER}",
    ),
    _known(
        r"0 active drivers|cannot be accessed from Triton|from the CPU with Triton",
        Cause.TRITON,
        "the program runs a Triton kernel, and Triton compiles only for GPUs",
        f"{INTERPRETER}; or, if CUDA is not available, call a PyTorch function instead",
    ),
)

MEMORY = (
    _known(
        r"^(\w+\.)*(MemoryError|_ArrayMemoryError|OutOfMemoryError)\b|can't allocate memory|std::bad_alloc"
        r"|not enough memory: you tried|[Cc]annot allocate memory"
        r"|unable to (mmap|allocate shared memory)|is killed by signal: (Killed|Bus error)"
        r"|insufficient shared memory|Unable to allocate [\d.]+ [KMGTP]iB",
        Cause.MEMORY,
        "the program could not allocate memory",
        "use less data, a smaller batch size or a machine with more memory",
    ),
)

# The kernels that torch's own tests expect on no device in low precision, by the beginnings of their names.
_ON_NEITHER = (
    "airy|bessel|cdist|chebyshev|cholesky|ctc_loss|erfcx|geqrf|hermite|laguerre|ldl_|legendre|linalg|log_ndtr"
    "|lu_|modified_bessel|ndtri|orgqr|ormqr|pdist|polar|scaled_modified|shifted_chebyshev|spherical_bessel"
    "|triangular_solve|zeta"
)

NEITHER = (
    _known(
        rf'"({_ON_NEITHER})[\w.]*" not implemented for \'(Half|BFloat16)\'|Low precision dtypes not supported'
        r"|(Unsupported dtype|support tensors of type:) BFloat16",
        Cause.ORIGINAL,
        "neither the CPU nor CUDA supports this operator for this dtype",
        "use float32 for this operator",
    ),
)

CPU = (
    *NEITHER,
    _known(
        r'"[\w.]+" not implemented for \'(Half|BFloat16|ComplexHalf)\''
        r"|(Unsupported dtype|support tensors of type:) Half",
        Cause.CPU,
        "the CPU does not support this operator for this dtype",
        "use float32 if CUDA is not available, as in `dtype = torch.float16 if torch.cuda.is_available() else"
        " torch.float32`",
    ),
    _known(
        r"Could not run '[\w:.]+' with arguments from the '\w*CPU' backend"
        r"|not (currently )?(implemented|supported|available) (on|for) (the )?CPU\b"
        r"|not implemented for '?CPU'?\b|no CPU implementation",
        Cause.CPU,
        "the CPU has no implementation of this operator",
        "if CUDA is not available, use an operator that the CPU supports",
    ),
    _known(
        r"does not have a deterministic implementation",
        Cause.CPU,
        "this operator has a deterministic implementation only on CUDA, or on neither device",
        "pass `warn_only=True` to `torch.use_deterministic_algorithms()`, or skip this call on a CPU",
    ),
    _known(
        r"lib(cu(da|dart|blas|dnn|fft|rand|solver|sparse)|nv|nccl|ATen_cuda|c10_cuda)\w*\.so"
        r"|CUDA_HOME|CUDA_PATH|'nvidia-smi'|'nvcc'|nvidia-smi: not found|NVML|cudaError|CUDA_ERROR_"
        r"|CUDARuntimeError|CudaSupportError|CUDA driver",
        Cause.CPU,
        "the program uses a part of CUDA that is not in PyTorch and is missing on this machine",
        "use it only if `torch.cuda.is_available()` is true; otherwise, use something else",
    ),
    _known(
        r"^(\w+\.)*(Runtime|Value|Assertion|NotImplemented|Import|OS|System)Error: (?!Expected one of)"
        r"[^\n]{0,200}?"
        r"((?i:\b(only|must|should|expected|needs?|requires?|required|unsupported)\b[^\n]{0,60}\b(cuda|gpus?)\b)"
        r"|(?i:\b(cuda|gpus?)\b[^\n]{0,40}\b(only|required|needed)))",
        Cause.CPU,
        "a library refuses to work without CUDA",
        "call it only if `torch.cuda.is_available()` is true; otherwise, use something else",
    ),
)

PACKAGE = (
    _known(
        r"^(\w+\.)*(ModuleNotFoundError|PackageNotFoundError)\b"
        r"|^(\w+\.)*ImportError\b.*(pip install|not installed|was not found|is required|cannot import name)"
        r"|^(\w+\.)*ImportError\b.*cannot open shared object file",
        Cause.PACKAGE,
        "the import fails",
        "install the package in the program's environment, or run the program with the Python of another one",
    ),
)

ENVIRONMENT = (
    _known(
        r"^KeyError: '(LOCAL_)?(RANK|WORLD_SIZE)'|^KeyError: 'MASTER_\w+'|environment variable \w+ expected",
        Cause.ENVIRONMENT,
        "the program expects the environment variables of a launcher",
        'start it with its launcher: `devicefix verify -c "torchrun --nproc-per-node 1 SCRIPT"`',
    ),
    _known(
        r"^(\w+\.)*(ConnectionError|ConnectionRefusedError|ConnectionResetError|URLError|HTTPError|gaierror"
        r"|ConnectTimeout|MaxRetryError|LocalEntryNotFoundError|OfflineModeIsEnabled)\b"
        r"|Name or service not known|Temporary failure in name resolution|Max retries exceeded",
        Cause.ENVIRONMENT,
        "the program uses the network",
        "run it with network access, or first download what it needs",
    ),
    _known(
        r"Address already in use|EADDRINUSE",
        Cause.ENVIRONMENT,
        "another process uses the port",
        "end that process, or choose another port",
    ),
    _known(
        r"No space left on device|Disk quota exceeded",
        Cause.ENVIRONMENT,
        "the disk is full",
        "free up some space, or set TMPDIR to a folder on another disk",
    ),
    _known(
        r"^(\w+\.)*PermissionError\b|Read-only file system",
        Cause.ENVIRONMENT,
        "the program has no permission to use a file",
        "change the file's permissions, or use another path",
    ),
    _known(
        r"^(\w+\.)*EOFError: EOF when reading a line",
        Cause.ENVIRONMENT,
        "the program reads from standard input, which is empty",
        "provide the input, as in `devicefix verify SCRIPT < FILE`",
    ),
)

DATA = (
    _known(
        r"^(\w+\.)*(FileNotFoundError|NotADirectoryError)\b|No such file or directory|Dataset not found",
        Cause.DATA,
        "a file or folder does not exist",
        "provide it, or use another path; relative paths start at the current folder",
    ),
)


def first(kinds: tuple[Known, ...], text: str) -> Known | None:
    """Return the first of some kinds of errors that a text is of.

    Args:
        kinds: the kinds.
        text: the type and message of an error.
    """
    return next((known for known in kinds if known.pattern.search(text)), None)
