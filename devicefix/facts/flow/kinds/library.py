"""Tell the kinds of the results and annotations of Python and torch, which `library.toml` lists."""

from __future__ import annotations

import ast

from devicefix.config import toml
from devicefix.facts.flow.kinds.kind import UNKNOWN, Kind, Kinds

_TABLE = toml.beside(__file__)

OF_CALLS, OF_ANNOTATIONS = (
    {name: Kind[kind] for kind, names in _TABLE[table].items() for name in names}
    for table in ("calls", "annotations")
)
DTYPES, _NO_TENSORS, WRAPPERS, SAME, OF_TENSORS = (
    frozenset[str](_TABLE["names"][name])
    for name in ("dtypes", "no_tensors", "wrappers", "same", "of_tensors")
)
CURRENT_ACCELERATOR = "torch.accelerator.current_accelerator"  # it returns None where there is none
# Methods of tensors that return their storage.
STORAGES = ("storage", "typed_storage", "untyped_storage")
OPTIONS = "argparse.Namespace"  # the class of what `parse_args` returns


def of_constant(node: ast.Constant) -> Kinds:
    """Return the kind of a literal."""
    match node.value:
        case None:
            kind = Kind.NONE
        case bool():
            kind = Kind.OTHER
        case int():
            kind = Kind.INDEX
        case str():
            kind = Kind.CPU if node.value.partition(":")[0] == "cpu" else Kind.STRING
        case _:
            kind = Kind.OTHER
    return Kinds({kind: node})


def of_reference(node: ast.expr, name: str) -> Kinds:
    """Return the kinds of what an import brings."""
    if name.startswith("torch.") and name.count(".") == 1 and name.rpartition(".")[2] in DTYPES:
        return Kinds({Kind.DTYPE: node})
    return UNKNOWN


def of_torch(node: ast.Call, name: str) -> Kinds:
    """Return the kinds of what a function or class of torch returns."""
    if name == CURRENT_ACCELERATOR:
        return Kinds({Kind.DEVICE: node, Kind.NONE: node})
    module, _, function = name.rpartition(".")
    if module == "torch.nn" or module.startswith("torch.nn.modules"):
        return Kinds({Kind.MODULE: node}, classes=frozenset({name}))
    may_be_tensor = function[:1].islower() or function.endswith("Tensor")
    if module == "torch" and may_be_tensor and function not in _NO_TENSORS:
        return Kinds({Kind.TENSOR: node})
    if function == "GradScaler":
        return Kinds({Kind.OBJECT: node}, classes=frozenset({name}))
    if function.endswith("Storage"):
        return Kinds({Kind.STORAGE: node})
    if module == "torch.cuda" and function.endswith("Tensor"):
        return Kinds({Kind.TENSOR: node})
    return UNKNOWN
