"""List the kinds of the results of functions and methods of Python and torch, and of their annotations."""

from __future__ import annotations

import ast

from devicefix.facts.flow.kinds.kind import UNKNOWN, Kind, Kinds

CURRENT_ACCELERATOR = "torch.accelerator.current_accelerator"  # it returns None where there is none
OF_CALLS = {
    "int": Kind.INDEX,
    "len": Kind.INDEX,
    "str": Kind.STRING,
    "list": Kind.COLLECTION,
    "dict": Kind.COLLECTION,
    "os.getenv": Kind.STRING,
    "os.environ.get": Kind.STRING,
    "torch.cuda.current_device": Kind.INDEX,
    "torch.distributed.get_rank": Kind.INDEX,
    "torch.distributed.get_node_local_rank": Kind.INDEX,
    "torch.distributed.get_world_size": Kind.INDEX,
    "torch.cuda.is_available": Kind.FLAG,
    "torch.accelerator.is_available": Kind.FLAG,
    "torch.cuda.device_count": Kind.COUNT,
    "torch.accelerator.device_count": Kind.COUNT,
    "torch.cuda.Stream": Kind.STREAM,
    "torch.cuda.current_stream": Kind.STREAM,
    "torch.cuda.default_stream": Kind.STREAM,
    "torch.cuda.Event": Kind.EVENT,
    "torch.nn.utils.rnn.pad_sequence": Kind.TENSOR,
    "torch.nn.Parameter": Kind.TENSOR,
    "torch.nn.parameter.Parameter": Kind.TENSOR,
    "torch.autograd.Variable": Kind.TENSOR,
}
OF_ANNOTATIONS = {
    "int": Kind.INDEX,
    "None": Kind.NONE,
    "str": Kind.STRING,
    "bool": Kind.OTHER,
    "float": Kind.OTHER,
    "torch.Tensor": Kind.TENSOR,
    "torch.FloatTensor": Kind.TENSOR,
    "torch.LongTensor": Kind.TENSOR,
    "torch.nn.Parameter": Kind.TENSOR,
    "torch.nn.Module": Kind.MODULE,
    "torch.device": Kind.DEVICE,
    "torch.dtype": Kind.DTYPE,
    "torch.types.Device": Kind.DEVICE,
    "torch.cuda.Stream": Kind.STREAM,
    "torch.cuda.Event": Kind.EVENT,
}
DTYPES = {
    "float", "float16", "float32", "float64", "bfloat16", "half", "double", "long", "int", "int8",
    "int16", "int32", "int64", "short", "uint8", "bool", "complex64", "complex128", "cfloat",
}  # fmt: skip
# Functions of torch that return no tensor.
_NO_TENSORS = {
    "load", "save", "compile", "device", "dtype", "Generator", "set_grad_enabled", "no_grad",
    "enable_grad", "inference_mode", "manual_seed", "seed", "initial_seed", "is_tensor",
    "is_floating_point", "numel", "split", "chunk", "unbind", "meshgrid", "broadcast_tensors", "topk",
    "sort", "max", "min", "median", "mode", "kthvalue", "get_default_dtype", "get_num_threads", "Size",
    "finfo", "iinfo", "unique", "svd", "qr", "eig", "slogdet", "get_rng_state", "typename",
    "is_grad_enabled", "autocast", "Stream", "Event", "nonzero", "where", "allclose", "equal",
    "from_dlpack", "get_default_device", "result_type", "promote_types", "std_mean", "var_mean", "cummax",
    "cummin", "histogram", "lobpcg", "lu", "tensor_split", "hsplit", "vsplit", "dsplit", "vmap", "cond",
    "unsafe_chunk",
}  # fmt: skip
# Functions that return what they are given, alone or in a collection.
WRAPPERS = {
    "list", "tuple", "set", "sorted", "reversed", "iter", "next", "dict", "zip", "cycle", "nullcontext",
    "SimpleNamespace", "Namespace", "deepcopy", "copy", "get", "pop", "setdefault", "run",
    "run_until_complete", "vars", "choice", "map",
}  # fmt: skip
# Methods that return what they are called on, or a tensor for a tensor.
SAME = {
    "to", "cuda", "cpu", "type", "float", "double", "half", "bfloat16", "train", "eval", "requires_grad_",
    "share_memory", "share_memory_",
}  # fmt: skip
OF_TENSORS = {
    "clone", "detach", "contiguous", "view", "reshape", "unsqueeze", "squeeze", "permute", "transpose",
    "t", "long", "int", "bool", "byte", "short", "expand", "expand_as", "repeat", "flatten", "mean",
    "sum", "abs", "exp", "log", "sqrt", "type_as", "pin_memory", "zero_", "fill_", "normal_", "uniform_",
    "random_", "add_", "mul_", "sub_", "div_", "clamp", "clamp_", "mm", "bmm", "matmul", "softmax",
    "sigmoid", "tanh", "relu", "index_select", "gather", "masked_fill", "masked_fill_", "data", "grad",
    "T", "new_zeros", "new_ones", "new_tensor", "new_full",
}  # fmt: skip
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
    if (
        module == "torch"
        and function not in _NO_TENSORS
        and (function[:1].islower() or function.endswith("Tensor"))
    ):
        return Kinds({Kind.TENSOR: node})
    if function == "GradScaler":
        return Kinds({Kind.OBJECT: node}, classes=frozenset({name}))
    if function.endswith("Storage"):
        return Kinds({Kind.STORAGE: node})
    if module == "torch.cuda" and function.endswith("Tensor"):
        return Kinds({Kind.TENSOR: node})
    return UNKNOWN
