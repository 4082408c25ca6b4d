"""The CUDA devices, and the code that needs CUDA, in texts that the program parses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from textwrap import dedent

from devicefix.facts import Facts
from devicefix.facts.flow.parameters import Place
from devicefix.facts.flow.sinks import device_values, values_at
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.texts import UNKNOWN_PART, text_of
from devicefix.facts.values import cuda_string, last_name
from devicefix.rules.shared.library_facts import PARSERS
from devicefix.rules.shared.torch_facts import RAISING_IN_FULL

Tie = tuple[ast.expr, str, str, str]  # a text, what is wrong, the path of a device, and the device
_CALLS = {f"{name.rpartition('.')[2]}(" for name in PARSERS}
_SELECTED = re.compile(r"cuda(?::\w+)?|nccl")
# `n=2,device=cuda`, `--device cuda`, `device,n\ncuda,2`; `torch.cuda` before `.FloatTensor`
_PART = re.compile(
    r"""(?m)(?!\Acuda(:\d)?\Z)(^|[=:,;|&>"']|-\w+ )cuda(:\d)?($|[\s,;|&<"'])|^(torch\.cuda\.?|cuda\.)($|\0)"""
)
_TAKING = ("type", "set_default_tensor_type", "split")
_INTERPOLATED = re.compile(r"\$\{[^{},]*(?:,\s*([^{}]*))?\}")  # `${a.b}`, `${oc.env:DEVICE,cuda}`


def parsed_texts(facts: Facts) -> dict[ast.expr, list[Tie]]:
    """Return what needs CUDA in the texts that a module parses, by the call that parses them.

    Returns:
        The text, what needs CUDA in it, the path of a device, and the device: empty for code, and the device also
        where it may be another one: the text is computed, or one of several, or an option may convert it.
    """
    typed = [each.value for each in facts.tree.attributes.get("sys.argv", ()) if each.value is not None]
    found: dict[ast.expr, list[Tie]] = {}
    for call in (each for each in facts.tree.nodes_with(*_CALLS) if isinstance(each, ast.Call)):
        language = PARSERS.get(facts.resolve(call.func) or "") or PARSERS.get(f".{last_name(call.func)}", "")
        given = [*call.args, *(each.value for each in call.keywords)] or typed
        for node, text in _texts(facts, given) if language and given else ():
            if (
                _SELECTED.search(text)
                and not cuda_string(node)
                and not any(map(facts.is_guarded, (call, node)))
            ):
                sure = node is (facts.value(given[0]) or given[0])
                how = "passed to" if language == "python" else "parsed by"
                parsed = f"({how} `{facts.source.code(call.func)}` on line {call.lineno})"
                for code, why, key, device in (
                    _in_code(text) if language == "python" else _in_values(text, language)
                ):
                    tie = node, f"`{code}` {parsed} {why}", key, device if sure else ""
                    found.setdefault(call, []).append(tie)
    return found


def taken_texts(facts: Facts, seen: set[ast.expr]) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """Yield the devices and types that are made of other texts, each with the text, and what is wrong."""
    names = (ast.Name, ast.Attribute)
    nodes = (each for each in facts.tree.nodes_with("cuda") if not isinstance(each, names))
    found = {each for each in nodes if "cuda" in (text := text_of(each) or "") and _PART.search(text)} - seen
    if not found:
        return
    values = [*device_values(facts), *values_at(facts, _TAKING, _takes_text)]
    for value in (each for each in values if not facts.is_guarded(each)):
        for node, _ in _texts(facts, [value]):
            if node in found and not facts.is_guarded(node):
                made = f"`{facts.source.code(value)}` on line {value.lineno} is built from this string"
                yield value, node, f"{made}, which may select CUDA; let the program choose the device"


def _takes_text(_facts: Facts, function: ast.expr, place: Place) -> bool:
    """Return whether a function or a method makes a tensor type of its first argument, or takes it apart."""
    return place == 0 and last_name(function) in _TAKING


def _texts(facts: Facts, given: list[ast.expr]) -> Iterator[tuple[ast.expr, str]]:
    """Yield the strings that some expressions are made of, also in lists, and in calls such as `shlex.split`."""
    sources = Sources(facts, ~(How.OPTION | How.PART | How.ARGUMENT | How.NAMED), steps=4)
    for part in (parts := [*given]):
        for source in sources.of(part):
            text = text_of(source.node)
            if text is not None:
                yield source.node, text
            # The parts grow: a name may stand for a part of itself.
            if (text is None or UNKNOWN_PART in text) and len(parts) < 200:
                parts += (each for each in ast.iter_child_nodes(source.node) if isinstance(each, ast.expr))


def _in_values(text: str, language: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the devices that are whole values in a text."""
    from devicefix.rules.config_file.examine import ties

    plain = _INTERPOLATED.sub(lambda found: found[1] or "0", text.replace(UNKNOWN_PART, "0"))
    for pair, code, why in ties(f"x {plain}" if language == "shell" else plain, language):
        if any(map(_SELECTED.fullmatch, pair.values)):
            key = (pair.path or pair.key).replace("/", ".").replace("-", "_")
            yield code, why, key, pair.values[0] if plain == text else ""


def _in_code(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield what needs CUDA in code."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        inner = Facts.read(dedent(text.replace(UNKNOWN_PART, "_")).encode())
        for each in (each for each in inner.tree.nodes if isinstance(each, ast.expr)):
            is_move = isinstance(each, ast.Call) and last_name(each.func) == "cuda"
            is_device = cuda_string(each) and not isinstance(inner.tree.parents.get(each), ast.Compare)
            is_device = is_device or inner.resolve(each) == "torch.cuda._"  # a type whose name is computed
            if (is_move or is_device or inner.call(each, *RAISING_IN_FULL)) and not inner.is_guarded(each):
                yield inner.source.code(each), "needs CUDA; check for CUDA first", "", ""
