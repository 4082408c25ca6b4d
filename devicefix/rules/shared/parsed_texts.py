"""The CUDA devices, and the code that needs CUDA, in texts that the program parses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from textwrap import dedent

from devicefix.facts import Facts
from devicefix.facts.flow.sinks import device_values
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.texts import UNKNOWN_PART, text_of
from devicefix.facts.values import cuda_string, last_name
from devicefix.rules.shared.library_facts import PARSERS
from devicefix.rules.shared.torch_facts import RAISING_IN_FULL

_NAMES = {name.rpartition(".")[2] for name in PARSERS}
_HANDING = {"split", "compile"}  # what parses a text for another call, which may be unknown
_HOW = How.BOUND | How.PASSED | How.DEFAULT | How.CHOICE | How.RETURNED | How.ELEMENT
_SELECTED = re.compile(r"cuda(?::\w+)?|nccl")
_IN_PARTS = re.compile(r"""(?m)(?:^|[=:,;|&>"']|--[\w-]+ )cuda(?::\d+)?(?=$|[\s,;|&<"'])""")
_INTERPOLATED = re.compile(r"\$\{[^{},]*(?:,\s*([^{}]*))?\}")  # `${a.b}`, `${oc.env:DEVICE,cuda}`


def parsed_texts(facts: Facts) -> dict[ast.expr, list[tuple[ast.expr, str, str, str]]]:
    """Return what needs CUDA in the texts that a module parses, by the call that parses them.

    Returns:
        The text, what needs CUDA in it, the key of a device, and the device: empty for code, and the device also
        where it may be another one: the text is computed, or one of several, or an option may convert it.
    """
    typed = [each.value for each in facts.tree.attributes.get("sys.argv", ()) if each.value is not None]
    found: dict[ast.expr, list[tuple[ast.expr, str, str, str]]] = {}
    calls = [each for each in facts.tree.nodes_with(*_NAMES) if isinstance(each, ast.Call)]
    for call in sorted(calls, key=lambda call: last_name(call.func) in _HANDING):
        language = PARSERS.get(facts.resolve(call.func) or "") or PARSERS.get(f".{last_name(call.func)}", "")
        given = [*call.args, *(each.value for each in call.keywords)] or typed
        seen = {tie[0] for ties in found.values() for tie in ties if last_name(call.func) in _HANDING}
        for node, text in texts(facts, given) if language and not facts.is_guarded(call) else ():
            if _SELECTED.search(text) and not (cuda_string(node) or node in seen or facts.is_guarded(node)):
                sure = node is (facts.value(given[0]) or given[0])
                head = f"`{facts.source.code(call.func)}` in line {call.lineno} parses "
                for each in _in_code(text) if language == "python" else _in_values(text, language):
                    tie = node, head + each[0], each[1], each[2] if sure else ""
                    found.setdefault(call, []).append(tie)
    return found


def texts_of_devices(facts: Facts) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the devices that a module takes out of texts by `split`, `re` and so on, each with the text."""
    if any(isinstance(each, ast.Constant) and _in_parts(each) for each in facts.tree.nodes_with("cuda")):
        for value in device_values(facts):
            for node, _ in () if facts.is_guarded(value) else texts(facts, [value]):
                if _in_parts(node) and not facts.is_guarded(node):
                    yield value, node


def _in_parts(node: ast.expr) -> bool:
    """Return whether an expression is a text of which a device is a part."""
    return not cuda_string(node) and bool(_IN_PARTS.search(text_of(node) or ""))


def texts(facts: Facts, given: list[ast.expr]) -> Iterator[tuple[ast.expr, str]]:
    """Yield the strings that some expressions are made of, also in lists, and in calls such as `shlex.split`."""
    sources = Sources(facts, _HOW, steps=4)
    for part in (parts := [*given]):
        for source in sources.of(part):
            text = text_of(source.node)
            if text is not None:
                yield source.node, text
            if (text is None or UNKNOWN_PART in text) and len(
                parts
            ) < 200:  # which grows: a name may stand for a part of itself
                parts += (each for each in ast.iter_child_nodes(source.node) if isinstance(each, ast.expr))


def _in_values(text: str, language: str) -> Iterator[tuple[str, str, str]]:
    """Yield the devices that are whole values in a text."""
    from devicefix.rules.config_file.examine import ties

    plain = _INTERPOLATED.sub(lambda found: found[1] or "0", text.replace(UNKNOWN_PART, "0"))
    for pair, code, why in ties(f"x {plain}" if language == "shell" else plain, language):
        if any(map(_SELECTED.fullmatch, pair.values)):
            key = re.split(r"[./]", pair.key)[-1].replace("-", "_")
            yield f"`{code}`, which {why}", key, pair.values[0] if plain == text else ""


def _in_code(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield what needs CUDA in code."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        inner = Facts.read(dedent(text.replace(UNKNOWN_PART, "_")).encode())
        for each in (each for each in inner.tree.nodes if isinstance(each, ast.expr)):
            is_move = isinstance(each, ast.Call) and last_name(each.func) == "cuda"
            is_device = cuda_string(each) and not isinstance(inner.tree.parents.get(each), ast.Compare)
            is_type = inner.resolve(each) == "torch.cuda._"  # its name is computed
            if (
                is_move or is_device or is_type or inner.call(each, *RAISING_IN_FULL)
            ) and not inner.is_guarded(each):
                yield f"`{inner.source.code(each)}`, which needs CUDA; check for CUDA first", "", ""
