"""The device that a line means. A run on a CPU has only one device, so the source decides."""

from __future__ import annotations

import ast
import linecache
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice
from types import CodeType

HOST = "host"
ACCELERATOR = "accelerator"
SAME = "same"  # the device of the tensor whose `device` was read last

Span = tuple[int | None, int | None, int | None, int | None]  # lines and columns, as in `co_positions`

_FUNCTIONS = ("to", "to_empty", "as_tensor", "asarray", "load")


class Module:
    """The devices in the source of one file.

    Args:
        file: the path of the file, which `linecache` reads; for a rewritten module, the user's own source.
    """

    def __init__(self, file: str) -> None:
        self._calls: dict[int, list[ast.Call]] = defaultdict(list)
        self._values: dict[str, list[ast.expr]] = defaultdict(list)
        try:
            tree = ast.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    self._calls[line].append(node)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    self._values[ast.unparse(target)].append(node.value)

    def at(self, line: int, span: Span | None) -> str | None:
        """Return the device that the call at a line means.

        Args:
            line: the line number, from 1.
            span: the position of the call, or None if it is unknown. It may be wrong in a rewritten module.

        Returns:
            HOST, ACCELERATOR or SAME; None if the line names no device, or several.
        """
        calls = self._calls.get(line, [])
        exact = [
            call
            for call in calls
            if (call.lineno, call.end_lineno, call.col_offset, call.end_col_offset) == span
        ]
        meant = {self._call(call) for call in exact} - {None} or {self._call(call) for call in calls} - {None}
        return meant.pop() if len(meant) == 1 else None

    def _call(self, call: ast.Call) -> str | None:
        name = ast.unparse(call.func)
        if "cuda" in name:
            return ACCELERATOR
        for device in _devices(call, name.rpartition(".")[2]):
            return self._device(device)
        return None

    def _device(self, device: ast.expr) -> str:
        if any(isinstance(node, (ast.IfExp, ast.BoolOp)) for node in ast.walk(device)):
            return ACCELERATOR
        text = ast.unparse(device)
        if "cpu" in text.lower():
            return HOST
        values = self._values.get(text, [])
        if values and all(_is_cpu(value) for value in values):
            return HOST
        return SAME if text.endswith(".device") else ACCELERATOR


def _devices(call: ast.Call, name: str) -> Iterator[ast.expr]:
    yield from (keyword.value for keyword in call.keywords if keyword.arg in ("device", "map_location"))
    if name in _FUNCTIONS:
        yield from call.args[:1]
    elif name == "type":
        yield from (argument for argument in call.args if "cuda" in ast.unparse(argument))


def _is_cpu(value: ast.expr) -> bool:
    return ast.unparse(value) in ("'cpu'", "torch.device('cpu')")


@cache
def _module(file: str) -> Module:
    return Module(file)


@lru_cache(maxsize=4096)
def meant(code: CodeType, line: int, instruction: int) -> str | None:
    """Return the device that a call means.

    Args:
        code: the code object of the caller.
        line: the line of the call.
        instruction: the offset of the call instruction.

    Returns:
        HOST, ACCELERATOR or SAME; None if the source names no device, or several.
    """
    span = None
    if sys.version_info >= (3, 11):
        span = next(islice(code.co_positions(), instruction // 2, None), None)
        line = (span and span[0]) or line
    return _module(code.co_filename).at(line, span)
