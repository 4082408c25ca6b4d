"""List what operations, layers and conversions of torch do with the types of their operands."""

from __future__ import annotations

LOW = {
    "torch.float16": "float16",
    "torch.half": "float16",
    "torch.bfloat16": "bfloat16",
}
DTYPES = {**LOW, "torch.float32": "float32", "torch.float": "float32", "torch.float64": "float64"}
TO = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64"}
FACTORIES = {"zeros", "ones", "rand", "randn", "empty", "linspace", "eye"}
AUTOCASTS = (
    "torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast", "torch.cuda.amp.autocast",
    "torch.cuda.amp.autocast_mode.autocast",
)  # fmt: skip
# Layers that raise an error for an input of another type than their weights.
CASTING = {
    "Linear", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "MultiheadAttention",
    "TransformerEncoderLayer", "TransformerDecoderLayer", "PReLU",
    *(f"{name}{n}d" for name in ("Conv", "ConvTranspose") for n in (1, 2, 3)),
}  # fmt: skip
EMBEDDINGS = {"Embedding", "EmbeddingBag"}
NORMS = {"LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"}
LAYERS = {
    "Identity",
    "Dropout",
    "ReLU",
    "GELU",
    "SiLU",
    "Tanh",
    "Sigmoid",
    "LeakyReLU",
    "Flatten",
    "MaxPool2d",
    "AvgPool2d",
}
CONTAINERS = {"Sequential", "ModuleList"}
# Functions that raise an error for operands of two types.
CASTING_FUNCTIONS = {
    "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention", "prelu",
}  # fmt: skip
SAME_FUNCTIONS = {
    "relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "log_softmax", "dropout", "layer_norm", "rms_norm",
    "interpolate", "flatten", "exp", "sqrt", "clamp", "zeros_like", "ones_like", "randn_like", "rand_like",
}  # fmt: skip
SAME_METHODS = {
    "cuda", "cpu", "eval", "train", "requires_grad_", "detach", "clone", "contiguous", "view", "reshape",
    "permute", "transpose", "t", "flatten", "unflatten", "unsqueeze", "squeeze", "expand", "repeat", "mean",
    "sum", "relu", "tanh", "sigmoid", "softmax", "clamp", "pin_memory", "share_memory", "chunk", "split",
}  # fmt: skip
SAME_ATTRIBUTES = {"data", "T", "mT"}
DECORATORS = ("torch.no_grad", "torch.inference_mode", "torch.compile", "torch.enable_grad")
# Functions and methods of tensors that autocast never casts the operands of to low precision.
PLAIN = {
    *(SAME_FUNCTIONS | SAME_METHODS | FACTORIES | set(TO)) - {"layer_norm", "rms_norm"},
    "to", "type", "type_as", "abs", "arange", "cos", "sin", "pow", "norm", "size", "dim", "numel", "item",
    "outer", "polar", "cat", "stack", "concat", "where", "tensor", "full", "add", "mul", "div", "append",
    "view_as_complex", "view_as_real",
}  # fmt: skip
BUILTINS = {
    "len",
    "range",
    "enumerate",
    "zip",
    "print",
    "int",
    "float",
    "list",
    "tuple",
    "dict",
    "isinstance",
    "max",
    "min",
}
