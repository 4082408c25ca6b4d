"""Functions of flash-attn and xformers, and the same in plain torch for a machine without CUDA.

The definitions are those of their documentation:
https://github.com/Dao-AILab/flash-attention and https://facebookresearch.github.io/xformers/components/ops.html.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import NamedTuple

_OF_FLASH = {
    "dropout_p": "0.0",
    "softmax_scale": "None",
    "causal": "False",
    "window_size": "(-1, -1)",
    "softcap": "0.0",
    "alibi_slopes": "None",
    "deterministic": "False",
    "return_attn_probs": "False",
}
_OF_XFORMERS = {"attn_bias": "None", "p": "0.0", "scale": "None", "op": "None"}
_TENSORS = {
    "flash_attn_func": ("q", "k", "v"),
    "flash_attn_kvpacked_func": ("q", "kv"),
    "flash_attn_qkvpacked_func": ("qkv",),
    "memory_efficient_attention": ("query", "key", "value"),
}
_ATTENTION = "memory_efficient_attention"
MASK = "LowerTriangularMask"
UNBIND = "unbind"
_MODULES = {
    "flash_attn.": tuple(name for name in _TENSORS if name != _ATTENTION),
    "flash_attn.flash_attn_interface.": tuple(name for name in _TENSORS if name != _ATTENTION),
    "xformers.ops.": (_ATTENTION, MASK, UNBIND),
    "xformers.ops.fmha.": (_ATTENTION, MASK),
    "xformers.ops.fmha.attn_bias.": (MASK,),
}
_AT_DEFAULT = ("softcap", "alibi_slopes", "return_attn_probs")  # torch has no other
# The order of those behind them changed with the versions of flash-attn.
_BY_POSITION = ("dropout_p", "softmax_scale", "causal", "window_size", "attn_bias", "p", "scale")
_WIDTH = 100
SCALED_SINCE = (2, 1)  # the parameter `scale` of torch's function
ATTENTION_SINCE = (2, 0)
ZERO_ROWS_SINCE = (2, 5)  # a row without any key was NaN before


def function_of(name: str) -> str | None:
    """Return the last part of the full name of a function or class that has a counterpart here, or None."""
    module, _, last = name.rpartition(".")
    return last if last in _MODULES.get(f"{module}.", ()) else None


def arguments(function: str, call: ast.Call) -> dict[str, ast.expr] | None:
    """Return the arguments of a call by the names of the parameters, None if torch can't do the same.

    Args:
        function: the name of the function in its library.
        call: a call of it.
    """
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    if function == MASK:
        return None if call.args or call.keywords else {}
    if function == UNBIND:
        is_usual = 1 <= len(call.args) <= 2 and {each.arg for each in call.keywords} <= {"dim"}
        return {} if is_usual else None
    parameters = parameters_of(function)
    tensors = _TENSORS[function]
    allowed = [name for name in parameters if name in (*tensors, *_BY_POSITION)]
    if len(call.args) > len(allowed):
        return None
    given = dict(zip(allowed, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg not in parameters:
            return None
        given[keyword.arg] = keyword.value
    fits = given.keys() >= {*tensors} and all(
        ast.unparse(given[name]) == parameters[name] for name in _AT_DEFAULT if name in given
    )
    return given if fits else None


def parameters_of(function: str) -> dict[str, str]:
    """Return the parameters of a function in their order, each with the code of its default."""
    options = _OF_XFORMERS if function == _ATTENTION else _OF_FLASH
    return {**dict.fromkeys(_TENSORS[function], ""), **options}


def is_attention(function: str) -> bool:
    """Return whether a function computes attention."""
    return function in _TENSORS


class Names(NamedTuple):
    """The names that definitions use.

    Attributes:
        torch: that of torch.
        functional: that of `torch.nn.functional`.
        mask: that of the class of xformers' causal mask, None if the module uses none.
    """

    torch: str
    functional: str
    mask: str | None


class Counterpart:
    """The definition of a function in plain torch.

    Args:
        name: the name to give it.
        given: the parameters that calls give something for.
        windowed: whether a call may limit how far a query sees.
        names: the names that it uses.
    """

    def __init__(self, name: str, given: Collection[str], windowed: bool, names: Names) -> None:
        self.name = name
        self.given = given
        self.windowed = windowed
        self.names = names

    def lines(self, function: str) -> list[str]:
        """Return the lines of the definition of a function of a library, indented by four spaces."""
        if function == MASK:
            return [f"class {self.name}:", "    pass"]
        if function == UNBIND:
            return [f"{self.name} = {self.names.torch}.unbind"]
        body = self._of_xformers() if function == _ATTENTION else self._of_flash(function)
        return [
            f"def {self.name}({', '.join(self._signature(function))}):",
            *(f"    {line}" for line in body),
        ]

    def _signature(self, function: str) -> list[str]:
        """Return the parameters: those that calls give something for."""
        parameters = parameters_of(function)
        return [
            f"{name}={default}" if default else name
            for name, default in parameters.items()
            if not default or name in self.given
        ]

    def _of_flash(self, function: str) -> list[str]:
        packed = function == "flash_attn_qkvpacked_func"
        tensors = {"flash_attn_func": "(q, k, v)", "flash_attn_kvpacked_func": "(q, *kv.unbind(2))"}
        lines = [f"q, k, v = (x.transpose(1, 2) for x in {tensors.get(function, 'qkv.unbind(2)')})"]
        if not packed:
            lines.append("k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))")
        options: list[str] = []
        if self.windowed or ("causal" in self.given and not packed):
            lines += self._mask()
            options.append("attn_mask=mask")
        elif "causal" in self.given:
            options.append("is_causal=causal")
        options += ["dropout_p=dropout_p"] if "dropout_p" in self.given else []
        options += ["scale=softmax_scale"] if "softmax_scale" in self.given else []
        return [*lines, *self._call(("q", "k", "v"), options), "return out.transpose(1, 2).contiguous()"]

    def _mask(self) -> list[str]:
        """Return the lines of a mask by which the last query sees all keys; torch's first one sees only the first."""
        shift = "k.shape[2] - q.shape[2]"
        sizes = f"q.shape[2], k.shape[2], dtype={self.names.torch}.bool, device=q.device"
        lines = [f"seen = {self.names.torch}.ones({sizes})"]
        if not self.windowed:
            return [*lines, f"mask = seen.tril({shift}) if causal else None"]
        causal = "window_size[0], 0 if causal else window_size[1]"
        return [
            *lines,
            f"shift = {shift}",
            f"left, right = {causal if 'causal' in self.given else 'window_size'}",
            "seen = seen.tril(shift + right) if right >= 0 else seen",
            "mask = seen.triu(shift - left) if left >= 0 else seen",
        ]

    def _of_xformers(self) -> list[str]:
        tensors = "query, key, value"
        lines = [f"{tensors} = (x.movedim(1, -2) for x in ({tensors}))"]
        options = []
        if "attn_bias" in self.given and self.names.mask is not None:
            lines.append(f"causal = isinstance(attn_bias, {self.names.mask})")
            lines.append("attn_mask = None if causal else attn_bias")
            options += ["attn_mask", "is_causal=causal"]
        elif "attn_bias" in self.given:
            options.append("attn_bias")
        options += ["dropout_p=p"] if "p" in self.given else []
        options += ["scale=scale"] if "scale" in self.given else []
        return [
            *lines,
            *self._call(("query", "key", "value"), options),
            "return out.movedim(-2, 1).contiguous()",
        ]

    def _call(self, tensors: Sequence[str], options: Sequence[str]) -> list[str]:
        """Return the lines of the call of torch's function."""
        function, given = (
            f"{self.names.functional}.scaled_dot_product_attention",
            ", ".join((*tensors, *options)),
        )
        line = f"out = {function}({given})"
        return [line] if len(line) <= _WIDTH else [f"out = {function}(", f"    {given}", ")"]
