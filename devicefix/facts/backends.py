"""The backends of process groups: the calls that take one, and what the other files show about a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.parameters import Place
from devicefix.facts.flow.sinks import values_at
from devicefix.facts.module import Facts
from devicefix.facts.names import option_names
from devicefix.facts.values import backend_name, last_name

# The functions that take a backend, each with its position among the arguments and its keyword:
# https://docs.pytorch.org/docs/stable/distributed.html, https://deepspeed.readthedocs.io/en/latest/initialize.html,
# https://huggingface.co/docs/accelerate/package_reference/kwargs, Lightning's and Transformers' pages.
_GROUPS: dict[str, tuple[Place, ...]] = {
    "init_process_group": (0, "backend"),
    "new_group": (2, "backend"),
    "new_subgroups": (3, "backend"),
    "new_subgroups_by_enumeration": (2, "backend"),
    "torch.distributed.Backend": (0, "name"),
    "deepspeed.init_distributed": (0, "dist_backend"),
    "deepspeed.comm.init_distributed": (0, "dist_backend"),
    "InitProcessGroupKwargs": (0, "backend"),
    "DDPStrategy": ("process_group_backend",),
    "TrainingArguments": ("ddp_backend",),
    "Seq2SeqTrainingArguments": ("ddp_backend",),
}
_WORDS = ("process_group", "new_group", "new_subgroups", "init_distributed", "Backend")


def takes_backend(facts: Facts, function: ast.expr, place: Place) -> bool:
    """Return whether a function of torch, or of a framework, makes a process group with an argument.

    Args:
        facts: the facts of the module.
        function: the function that is called.
        place: the position or the keyword of the argument.
    """
    return place in _GROUPS.get(facts.resolve(function) or "", _GROUPS.get(last_name(function), ()))


def backend_values(facts: Facts) -> list[ast.expr]:
    """Return the expressions that the module makes process groups with."""
    return values_at(facts, _WORDS, takes_backend)


def allows_gloo(facts: Facts, name: str) -> bool:
    """Return whether the module compares nothing of this name with "nccl", or something with "gloo"."""
    return {text for compared, text in _compared(facts) if compared == name} != {"nccl"}


def _compared(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the names that are compared with "nccl" or "gloo", or chosen among them, each with the text."""
    for text in ("nccl", "gloo"):
        for node in facts.tree.nodes_with(text, text.upper()):
            match node:
                case ast.Compare(left=left, comparators=[right]):
                    sides = (left, right)
                    if any(_names(facts, side, text) for side in sides):
                        yield from ((name, text) for name in map(last_name, sides) if name)
                case ast.MatchValue(value=value) if _names(facts, value, text):
                    yield last_name(next(facts.tree.around(node, ast.Match)).subject), text
                case ast.Call(func=ast.Attribute(attr="add_argument")) if any(
                    keyword.arg == "choices" and _names(facts, keyword.value, text)
                    for keyword in node.keywords
                ):
                    yield from ((name, text) for name in option_names(node))


def _names(facts: Facts, node: ast.expr, text: str) -> bool:
    """Return whether an expression names a backend, or is a collection with such a one."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return any(_names(facts, element, text) for element in node.elts)
    return backend_name(facts, node) == text
