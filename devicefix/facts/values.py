"""The value of an expression: a CUDA device, the CPU, or the index of a GPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from devicefix.facts.names import Names, option_names
from devicefix.facts.texts import UNKNOWN_PART, text_of

PROPERTIES = ("property", "cached_property")  # decorators of what is read like an attribute
_CUDA = re.compile(r"cuda(?::(\d+))?\Z")
_BACKEND = re.compile(r"torch\.distributed\.(?:distributed_c10d\.)?Backend\.([A-Z]+)")
_CUDA_TEXT = re.compile(rf"cuda(?::?(\d+|{UNKNOWN_PART}|\$\{{[^{{}}]+\}}))?\Z")  # `cuda:${i}` of OmegaConf
_DEVICE_NAME = re.compile(r"(^|_)(torch_?)?(device|dev)(_?(name|str|string))?\Z", re.I)
_INDEX_NAME = re.compile(
    r"(^|_)(gpu|rank)(_?(id|idx|index|num|no|rank))?\Z|(^|_)(cuda|device)_?(id|idx|index)\Z", re.I
)


def device_name(name: str) -> bool:
    """Return whether a variable, option or key of this name holds a device, judged by the name alone."""
    return bool(_DEVICE_NAME.search(name.replace("-", "_"))) and not name.endswith("_type")


def devices_name(name: str) -> bool:
    """Return whether a variable of this name holds several devices, judged by the name alone."""
    return bool(re.search(r"(^|_)(devices|device_?list)\Z", name, re.I))


def index_name(name: str) -> bool:
    """Return whether a variable of this name holds the number of a GPU, judged by the name alone."""
    return bool(_INDEX_NAME.search(name.replace("-", "_")))


def receiver(function: ast.expr) -> ast.expr:
    """Return the object that a called method belongs to; the function itself if it is no method."""
    found = None if isinstance(function, ast.Constant) else getattr(function, "value", None)
    return found if isinstance(found, ast.expr) else function


def last_name(node: ast.expr) -> str:
    """Return the last part of a name or dotted path, empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def without_call(node: ast.expr) -> ast.expr:
    """Return the function that an expression calls, or the expression itself: of `@f` and `@f()`, `f`."""
    return node.func if isinstance(node, ast.Call) else node


def target_name(target: ast.expr) -> str:
    """Return the key or the last name that a target sets."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return last_name(target)


def declared_names(facts: Names, call: ast.Call) -> list[str]:
    """Return the attribute names of the option, or of the field of a data class, that a call declares."""
    owner = facts.tree.parents.get(call)
    return [last_name(owner.target)] if isinstance(owner, ast.AnnAssign) else option_names(call)


def is_constant(node: ast.AST | None, *values: object) -> bool:
    """Return whether an expression is one of some constants, such as `True`, which is not 1."""
    return isinstance(node, ast.Constant) and any(
        type(node.value) is type(each) and node.value == each for each in values
    )


def cuda_literal(node: ast.AST) -> int | str | None:
    """Return the index that a string literal names: an int for "cuda:1", None for "cuda", else "no"."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        match = _CUDA.match(node.value)
        if match:
            return int(match[1]) if match[1] else None
    return "no"


def cuda_string(node: ast.AST) -> bool:
    """Return whether an expression is a string that names a CUDA device, also one put together."""
    return bool(_CUDA_TEXT.match(text_of(node) or ""))


def backend_name(facts: Names, node: ast.expr) -> str | None:
    """Return the backend of process groups that a string or a constant of torch names: `Backend.NCCL`."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    constant = _BACKEND.fullmatch(facts.resolve(node) or "") if isinstance(node, ast.Attribute) else None
    return constant[1].lower() if constant is not None else None


def device_named(facts: Names, node: ast.expr) -> str | None:
    """Return the name of the device that `torch.device("cuda:0")` makes, None for other expressions."""
    match node:
        case ast.Call(args=[ast.Constant(value=str(text))], keywords=[]) if facts.call(node, "torch.device"):
            return text
    return None


def device_type(facts: Names, node: ast.expr) -> str | None:
    """Return the text of `torch.device("cuda:0").type`, None for other expressions."""
    if isinstance(node, ast.Attribute) and node.attr == "type":
        name = device_named(facts, node.value)
        return name and name.partition(":")[0]
    return None


def cpu(facts: Names, node: ast.expr) -> bool:
    """Return whether an expression is the CPU, as a string or a device."""
    if isinstance(node, ast.Constant):
        return node.value == "cpu"
    return facts.call(node, "torch.device") and bool(node.args) and cpu(facts, node.args[0])


def cuda_device(facts: Names, node: ast.expr) -> bool:
    """Return whether an expression is a CUDA device and nothing else: a string or `torch.device(...)`."""
    if cuda_string(node):
        return True
    if not facts.call(node, "torch.device"):
        return False
    first = next(iter(node.args), None) or next((keyword.value for keyword in node.keywords), None)
    return first is not None and (cuda_string(first) or integer(first))


def integer(node: ast.AST | None) -> bool:
    """Return whether a node is the literal number of a GPU."""
    return literal_index(node) is not None


def literal_index(node: ast.AST | None) -> int | None:
    """Return the number that a literal names, for the number of a GPU."""
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 0:
        return node.value
    return None


def is_negative(node: ast.AST | None) -> bool:
    """Return whether a literal number is negative: as the number of a GPU, an error everywhere."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return True
    return False


def choice(facts: Names, node: ast.expr) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """Return the test, the CUDA arm and the CPU arm of `a if test else b`, or of `b if test else a`."""
    if not isinstance(node, ast.IfExp):
        return None
    if cpu(facts, node.orelse):
        return node.test, node.body, node.orelse
    if cpu(facts, node.body):
        return node.test, node.orelse, node.body
    return None


def is_current_object(facts: Names, node: ast.AST) -> bool:
    """Return whether an expression is `torch.device("cuda")`."""
    match node:
        case (
            ast.Call(args=[name], keywords=[])
            | ast.Call(args=[], keywords=[ast.keyword(arg="type", value=name)])
        ):
            return cuda_literal(name) is None and facts.call(node, "torch.device")
    return False


def current_device(
    facts: Names,
    node: ast.expr | None,
    chooses: Callable[[ast.expr, bool], bool] | None = None,
    depth: int = 4,
) -> bool:
    """Return whether an expression is the current CUDA device if available and wanted, else the CPU.

    An unconditional `"cuda"` counts, since fixes replace it.

    Args:
        facts: the names of the module.
        node: the expression.
        chooses: whether a test with some value may choose CUDA; any test if it is not given.
        depth: how many expressions to follow.
    """
    if node is None or depth == 0:
        return False
    if cuda_literal(node) is None:
        return True
    if isinstance(node, ast.IfExp):
        arms = choice(facts, node)
        right = arms is not None and (chooses is None or chooses(node.test, arms[1] is node.body))
        return arms is not None and right and current_device(facts, arms[1], chooses, depth - 1)
    if facts.call(node, "torch.device") and not node.keywords:
        return len(node.args) == 1 and current_device(facts, node.args[0], chooses, depth - 1)
    if isinstance(node, ast.Name):
        return current_device(facts, facts.value(node), chooses, depth - 1)
    if isinstance(node, ast.Attribute) and node.attr == "type":
        node = node.value
    return facts.call(node, "torch.accelerator.current_accelerator")
