"""Measure which operations a GPU has in low precision and a CPU does not, with the torch that runs this.

python benchmarks/half_on_cpu.py [--autocast] [--only TEXT]

The operations, their inputs, and the types that a GPU has them in are those of torch's own tests; a GPU of
capability 8.0 is assumed. Every operation runs on a CPU with these inputs, in float32 and then in float16 and
bfloat16. One that raises an error for every input fails, and is printed; one that does so for some of them is
marked `sometimes`. A line has a `!` where `devicefix/rules/shared/half_facts.py` says something else; then
the exit status is 1. With `--autocast` it prints the operations on the lists of autocast for CUDA that fail
on one operand in bfloat16 and others in float32, and whether autocast of the CPU mends that.

Each version of torch needs an environment of its own with torch, numpy, expecttest, hypothesis and pytest,
and this repository in PYTHONPATH. For torch 2.0 that is Python 3.11 and numpy<2. No GPU is needed, but builds
for CUDA need its libraries from `nvidia-*` to be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.testing._internal import common_cuda

# The tests ask the GPU at hand when they are imported: no machine with CUDA is needed.
for _name in vars(common_cuda).copy():
    if _name in ("SM53OrLater", "SM60OrLater", "SM70OrLater", "SM75OrLater", "SM80OrLater", "CUDA11OrLater"):
        setattr(common_cuda, _name, True)
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.opinfo.core import SampleInput  # noqa: E402

from devicefix.rules.shared import half_facts  # noqa: E402

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
SAMPLES = 12
SECONDS = 60
# Arrangements of data that never compute, and what only the tests have.
OWN: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "adaptive_avg_pool1d": (torch.rand(1, 3, 8), (4,)),
    "alpha_dropout": (torch.rand(4, 8), (0.5, True)),
    "clamp": (torch.rand(4, 8), (0.2, 0.8)),
    "cross_entropy": (torch.rand(4, 8), (torch.arange(4),)),
    "cumsum": (torch.rand(4, 8), (1,)),
    "dropout": (torch.rand(4, 8), (0.5, True)),
    "dropout2d": (torch.rand(1, 3, 8, 8), (0.5, True)),
    "einsum": ([torch.rand(4, 8), torch.rand(8, 4)], ("ij,jk->ik",)),
    "interpolate": (torch.rand(1, 3, 8, 8), (None, 2.0)),
    "kl_div": (torch.rand(4, 8), (torch.rand(4, 8),)),
    "linear": (torch.rand(4, 8), (torch.rand(8, 8),)),
    "local_response_norm": (torch.rand(2, 4, 6, 6), (2,)),
    "matmul": (torch.rand(4, 8), (torch.rand(8, 8),)),
    "pad": (torch.rand(1, 3, 8, 8), ((1, 1),)),
    "stft": (torch.rand(64), (16, None, None, None, True, "reflect", False, None, True)),
}
NO_OPERATIONS = ("_refs.", "ops.", "sparse.", "special.", "linalg.", "masked.", "jiterator", "_")


def main() -> None:
    """Print the table for this version of torch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--autocast", action="store_true", help="measure operands of two types")
    parser.add_argument("--only", default="", help="measure only operations whose name contains this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    major, minor = map(int, torch.__version__.split(".")[:2])
    print(f"torch {torch.__version__}")
    if options.autocast:
        print_autocast(options.only)
        return
    differs = False
    for dtype, outcomes in measured(options.only).items():
        count = sum(outcome != "runs" for outcome in outcomes.values())
        print(f"\n{dtype}: {count} of {len(outcomes)} operations that a GPU has fail on a CPU")
        for name, outcome in sorted(outcomes.items()):
            known = half_facts.fails(dtype, name, (major, minor))
            wrong = known != (outcome == "fails")
            differs |= wrong
            if wrong or outcome != "runs":
                print(f"{'!' if wrong else ' '} {name:40} {outcome}")
    sys.exit(differs)


def measured(only: str) -> dict[str, dict[str, str]]:
    """Return what every operation does in each type that a GPU has it in: `fails`, `sometimes` or `runs`."""
    found: dict[str, dict[str, list[tuple[int, int]]]] = {dtype: defaultdict(list) for dtype in DTYPES}
    for operation in operations(only):
        wanted = [name for name, dtype in DTYPES.items() if dtype in types_on_gpu(operation)]
        counts = in_child(partial(counted, operation, wanted)) if wanted else {}
        for dtype, (failed, count) in counts.items():
            found[dtype][short(operation.name)].append((failed, count))
    return {
        dtype: {name: outcome_of(counts) for name, counts in each.items()} for dtype, each in found.items()
    }


def short(name: str) -> str:
    """Return the name of an operation in the table."""
    return name.removeprefix("nn.functional.")


def operations(only: str) -> Iterator[Any]:
    """Yield the operations of torch's tests."""
    for operation in op_db:
        if only in operation.name and not operation.name.startswith(NO_OPERATIONS):
            yield operation


def types_on_gpu(operation: Any) -> Any:
    """Return the types that a GPU has an operation in; the tests leave out what needs a power of two."""
    return {*operation.dtypesIfCUDA, torch.float16} if operation.name == "stft" else operation.dtypesIfCUDA


def outcome_of(counts: Sequence[tuple[int, int]]) -> str:
    """Return an outcome from the numbers of inputs that fail, and of all inputs, of each variant."""
    failed, runs = sum(count[0] for count in counts), sum(count[1] for count in counts)
    return "runs" if not failed else "fails" if failed == runs else "sometimes"


def counted(operation: Any, dtypes: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return how many inputs fail in some types, of those that float32 computes."""
    inputs = good_inputs(operation)
    return {
        dtype: (sum(not runs(operation, each, cast_to(DTYPES[dtype])) for each in inputs), len(inputs))
        for dtype in dtypes
        if inputs
    }


def good_inputs(operation: Any) -> list[Any]:
    """Return inputs that float32 computes."""
    found: list[Any] = []
    samples = own_inputs(operation) or operation.sample_inputs("cpu", torch.float32, requires_grad=False)
    for number, each in enumerate(samples):
        if number >= 4 * SAMPLES or len(found) >= SAMPLES:
            break
        if is_ordinary(each) and runs(operation, each, lambda value: value):
            found.append(each)
    return found


def own_inputs(operation: Any) -> list[SampleInput]:
    """Return inputs as programs have them, where those of the tests take other paths through an operation."""
    given = OWN.get(short(operation.name))
    return [SampleInput(given[0], args=given[1])] if given else []  # type: ignore[no-untyped-call]  # of torch


def is_ordinary(sample: Any) -> bool:
    """Return whether an input has elements, dimensions and no type of its own for the result."""
    first = sample.input[0] if isinstance(sample.input, (list, tuple)) and sample.input else sample.input
    empty = isinstance(first, torch.Tensor) and (not first.numel() or not first.dim())
    return not empty and "dtype" not in sample.kwargs


def runs(operation: Any, sample: Any, change: Callable[[Any], Any]) -> bool:
    """Return whether an operation computes an input that is changed."""
    try:
        given = sample.transform(change)
        operation(given.input, *given.args, **given.kwargs)
    except Exception:
        return False
    return True


def cast_to(dtype: torch.dtype) -> Callable[[Any], Any]:
    """Return a function that casts a tensor in float32, or the name of this type."""

    def cast(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().to(dtype) if value.dtype == torch.float32 else value
        return dtype if value is torch.float32 else value

    return cast


def in_child(measure: Callable[[], dict[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    """Return what a function measures in a process of its own: old kernels may crash."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        try:
            os.write(writer, json.dumps(measure()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    return {name: (failed, count) for name, (failed, count) in json.loads(text).items()} if text else {}


def print_autocast(only: str) -> None:
    """Print the operations that fail on bfloat16 beside float32, and whether autocast of the CPU mends it."""
    from autocast import FLOAT32, LOW, WIDEST

    listed = {name.strip("_").removeprefix("r") for name in LOW | FLOAT32 | WIDEST} | LOW | FLOAT32 | WIDEST
    bare, cast = {}, {}
    for operation in operations(only):
        if operation.name.rpartition(".")[2].strip("_") in listed:
            counts = in_child(partial(mixed, operation))
            if counts:
                bare[short(operation.name)], cast[short(operation.name)] = counts["off"], counts["on"]
    failing = sorted(name for name, (failed, _) in bare.items() if failed)
    mended = [name for name in failing if not cast[name][0]]
    print(
        f"\nbfloat16 beside float32: {len(failing)} of {len(bare)} operations fail on a CPU without autocast"
    )
    print(f"autocast of the CPU mends {len(mended)}: {', '.join(mended)}")
    print(f"it does not mend: {', '.join(sorted(set(failing).difference(mended)))}")


def mixed(operation: Any) -> dict[str, tuple[int, int]]:
    """Return how many inputs of two types fail, of all, with autocast of the CPU off and on."""
    inputs = [each for each in good_inputs(operation) if has_others(each)]
    counts = {}
    for name in ("off", "on") if inputs else ():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=name == "on"):
            counts[name] = sum(not runs_mixed(operation, each) for each in inputs), len(inputs)
    return counts


def has_others(sample: Any) -> bool:
    """Return whether the first operand of an input is a tensor, and there is another in floating point."""
    others = [*sample.args, *sample.kwargs.values()]
    return isinstance(sample.input, torch.Tensor) and any(
        isinstance(each, torch.Tensor) and each.is_floating_point() for each in others
    )


def runs_mixed(operation: Any, sample: Any) -> bool:
    """Return whether an operation computes an input whose first operand is in bfloat16."""
    try:
        operation(sample.input.to(torch.bfloat16), *sample.args, **sample.kwargs)
    except Exception:
        return False
    return True


if __name__ == "__main__":
    main()
