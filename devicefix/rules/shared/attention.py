"""Functions of flash-attn and xformers, and the same in plain torch for a machine without CUDA.

The definitions are those of their documentation:
https://github.com/Dao-AILab/flash-attention and https://facebookresearch.github.io/xformers/components/ops.html.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

ATTENTION = "memory_efficient_attention"
UNBIND = "unbind"
# The parameters that torch has counterparts of, in their order, each with the code of its default.
_PARAMETERS = {
    "flash_attn_func": {
        "q": "", "k": "", "v": "", "dropout_p": "0.0", "softmax_scale": "None", "causal": "False",
    },
    ATTENTION: {"query": "", "key": "", "value": "", "attn_bias": "None", "p": "0.0", "scale": "None"},
}  # fmt: skip
_MODULES = {
    "flash_attn": ("flash_attn_func",),
    "flash_attn.flash_attn_interface": ("flash_attn_func",),
    "xformers.ops": (ATTENTION, UNBIND),
    "xformers.ops.fmha": (ATTENTION,),
}
# The names that torch has for the options.
_OPTIONS = {"dropout_p": "dropout_p", "softmax_scale": "scale", "p": "dropout_p", "scale": "scale"}
_WIDTH = 100
SCALED_SINCE = (2, 1)  # the parameter `scale` of torch's function
ATTENTION_SINCE = (2, 0)
ZERO_ROWS_SINCE = (2, 5)  # a row without any key was NaN before


def function_of(name: str) -> str | None:
    """Return the last part of the full name of a function that has a counterpart here, or None."""
    module, _, last = name.rpartition(".")
    return last if last in _MODULES.get(module, ()) else None


def arguments(function: str, call: ast.Call) -> dict[str, ast.expr] | None:
    """Return the arguments of a call by the names of the parameters, None if torch can't do the same.

    Args:
        function: the name of the function in its library.
        call: a call of it.
    """
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    if function == UNBIND:
        is_usual = 1 <= len(call.args) <= 2 and {each.arg for each in call.keywords} <= {"dim"}
        return {} if is_usual else None
    parameters = _PARAMETERS[function]
    given = dict(zip(parameters, call.args, strict=False))
    given |= {each.arg: each.value for each in call.keywords if each.arg}
    is_known = len(given) == len(call.args) + len(call.keywords) and given.keys() <= parameters.keys()
    tensors = {name for name, default in parameters.items() if not default}
    return given if is_known and given.keys() >= tensors else None


def is_attention(function: str) -> bool:
    """Return whether a function computes attention."""
    return function in _PARAMETERS


def definition(function: str, name: str, given: Collection[str], torch: str, functional: str) -> list[str]:
    """Return the lines of the definition of a library's function in plain torch.

    Args:
        function: the name of the function in its library.
        name: the name to give it.
        given: the parameters that calls give something for.
        torch: the name of torch.
        functional: that of `torch.nn.functional`.
    """
    if function == UNBIND:
        return [f"{name} = {torch}.unbind"]
    tensors, body, options, result = _of_xformers(given) if function == ATTENTION else _of_flash(given, torch)
    own = (each for each in _PARAMETERS[function] if each in given)
    options += [f"{_OPTIONS[each]}={each}" for each in own if each in _OPTIONS]
    passed = ", ".join([tensors, *options])
    call = f"out = {functional}.scaled_dot_product_attention({passed})"
    if len(call) > _WIDTH:
        body += [f"out = {functional}.scaled_dot_product_attention(", f"    {passed}", ")"]
    else:
        body.append(call)
    parameters = _PARAMETERS[function].items()
    used = ((each, default) for each, default in parameters if not default or each in given)
    signature = [f"{each}={default}" if default else each for each, default in used]
    return [f"def {name}({', '.join(signature)}):", *(f"    {line}" for line in (*body, f"return {result}"))]


def _of_flash(given: Collection[str], torch: str) -> tuple[str, list[str], list[str], str]:
    """Return the tensors, the lines before the call, its options, and the result of flash-attn's function."""
    body = [
        "q, k, v = (x.transpose(1, 2) for x in (q, k, v))",
        "k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))",
    ]
    options = []
    if "causal" in given:  # the last query sees all keys; torch's first one sees only the first
        sizes = f"q.shape[2], k.shape[2], dtype={torch}.bool, device=q.device"
        body.append(f"seen = {torch}.ones({sizes})")
        body.append("mask = seen.tril(k.shape[2] - q.shape[2]) if causal else None")
        options.append("attn_mask=mask")
    return "q, k, v", body, options, "out.transpose(1, 2).contiguous()"


def _of_xformers(given: Collection[str]) -> tuple[str, list[str], list[str], str]:
    """Return the same of xformers' function."""
    tensors = "query, key, value"
    body = [f"{tensors} = (x.movedim(1, -2) for x in ({tensors}))"]
    options = ["attn_bias"] if "attn_bias" in given else []
    return tensors, body, options, "out.movedim(-2, 1).contiguous()"
