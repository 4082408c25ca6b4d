"""The uses of a device, or of its name, that take its number: the CPU has none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.forwards import Followed, Forwards
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.parameters import Place, argument_at
from devicefix.facts.flow.reaching import blocks_around, position
from devicefix.facts.flow.sinks import load_location, takes_device
from devicefix.facts.module import Facts
from devicefix.facts.refused_devices import is_name_of
from devicefix.facts.scopes import LEAVING, Scope, dotted
from devicefix.facts.texts import text_of
from devicefix.facts.values import cuda_string, device_name, last_name

_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.AugAssign)
_IS = (ast.Is, ast.IsNot)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
# The methods of texts that take the number of a device, or ask for it, with what they look for.
_PARTS = dict.fromkeys(("split", "rsplit", "partition", "rpartition", "startswith", "endswith"), ":")
_METHODS = _PARTS | dict.fromkeys(("replace", "removeprefix", "strip", "lstrip"), "cuda")
_SEARCHES = ("re.search", "re.match", "re.fullmatch")
_WORDS = ("int(", "cuda:", *_METHODS)
_NUMBER = len("cuda:")  # where it begins
_SHOWING = ("print", "format", "debug", "info", "warning", "error")
_GUARDED = ("torch.cuda.set_device", "torch.cuda.synchronize", "torch.cuda.device")
_OF_DEVICES = ("torch.cuda.", "torch.device", "torch.distributed.", "torch.nn.")


def number_taken(values: Forwards, value: ast.expr) -> ast.expr | None:
    """Return a use of a device, or of its name, that takes its number, which the CPU does not have.

    Such are `device.split(":")[1]`, `device[5:]`, `device.replace("cuda:", "")`, `device.index + 1`, and a
    comparison with a name that has a number, as in `device == "cuda:0"`. A use under a condition on the
    device itself is left to the program. Where the value can't be followed, it may be any text of the module
    that is used so.

    Args:
        values: where the values of the module go.
        value: the expression whose value is the device or its name.

    Returns:
        The first such use in the order of the source, None if there is none in the module.
    """
    facts, followed = values.facts, values.of(value)
    found = [use for use in uses_of(values, followed) if takes_number(values, use)]
    if not found and _has_number(facts, value) and any(_lost(values, followed)):
        found = facts.once(_takers, facts.tree.scopes[facts.tree.module])
    return min(found, key=lambda use: (use.lineno, use.col_offset), default=None)


def uses_of(values: Forwards, followed: Followed) -> Iterator[ast.expr]:
    """Yield the uses of a device, and those of its type or name, or of the device of its name."""
    for use in followed.uses:
        yield use
        other = values.tree.parents.get(use)
        if isinstance(other, ast.expr) and is_name_of(other):
            yield from values.of(other).uses


def takes_number(values: Forwards, use: ast.expr) -> bool:
    """Return whether a use of a device, or of its name, takes its number, which the CPU does not have."""
    return _takes_number(values.facts, use) or _index_is_lost(values, use)


def _has_number(facts: Facts, device: ast.expr) -> bool:
    """Return whether a device, or its name, has a number."""
    if facts.call(device, "torch.device"):
        is_numbered = any(_has_number(facts, argument) for argument in device.args)
        return is_numbered or len(device.args) + len(device.keywords) > 1
    return cuda_string(device) and (text_of(device) or "").lower() != "cuda"


def _index_is_lost(values: Forwards, device: ast.expr) -> bool:
    """Return whether `device.index` goes on to code that may need a number, and not None."""
    index = values.tree.parents.get(device)
    if not isinstance(index, ast.Attribute) or index.attr != "index":
        return False
    if values.facts.is_guarded(index) or _is_asked_about(values.facts, device):
        return False
    facts, followed = values.facts, values.of(index)
    used = (use for use in followed.uses if not facts.is_guarded(use))
    lost = (use for use in _lost(values, followed) if not facts.is_guarded(use))
    return any(is_number(facts, use) or _is_ordered(facts, use) for use in used) or any(lost)


def is_only_device(values: Forwards, number: ast.expr) -> bool:
    """Return whether the number of a GPU is only used as a device or asked about, and not as a number.

    Args:
        values: where the values of the module go.
        number: the expression whose value is the number.
    """
    return all(_is_text(values.facts, use) for use in _lost(values, values.of(number)))


def _is_text(facts: Facts, number: ast.expr) -> bool:
    """Return whether a number only becomes a text, as in `os.environ["LOCAL_RANK"] = str(number)`."""
    call = facts.tree.parents.get(number)
    return isinstance(call, ast.Call) and call.args == [number] and dotted(call.func) == "str"


def parsed_device(facts: Facts, node: ast.expr) -> ast.expr | None:
    """Return the name of a device out of which an expression takes the number, and fails if there is none.

    Such are `name.split(":")[1]`, `int(name.split(":")[-1])`, `int(name[5:])` and `int(name.strip("cuda:"))`.

    Args:
        facts: the facts of the module.
        node: the whole expression.

    Returns:
        The expression for the name; None for any other expression, and where the program asks about the name
        or handles the error.
    """
    taken = _parsed(facts, node)
    if taken is None:
        return None
    text, part = taken
    device = _without_str(text)
    kinds = facts.kinds.of(device)
    named = device_name(last_name(device)) and (part or device is not text)
    if not (named or "cuda" in part or Kind.CUDA in kinds.seen or Kind.DEVICE in kinds.seen):
        return None
    if facts.is_guarded(node) or _is_asked_about(facts, device) or _is_left(facts, node, device):
        return None
    return None if any(_stops(facts, *pair) for pair in facts.tree.ancestors(node)) else text


def _without_str(text: ast.expr) -> ast.expr:
    """Return the device of `str(device)`, and any other text as it is."""
    return text.args[0] if isinstance(text, ast.Call) and text.args and dotted(text.func) == "str" else text


def _stops(facts: Facts, child: ast.AST, parent: ast.AST) -> bool:
    """Return whether a statement handles the error, or a call gets a guard."""
    if isinstance(parent, ast.Call):
        return facts.call(parent, *_GUARDED)
    return isinstance(parent, ast.Try) and child in parent.body and bool(parent.handlers)


def _parsed(facts: Facts, node: ast.expr) -> tuple[ast.expr, str] | None:
    """Return what `_text_of_number` does if an expression fails for a text without a number."""
    match node:
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(attr="split" | "rsplit")) as taken, slice=ast.Constant(value=1)
        ):
            pass
        case ast.Attribute(attr="group" | "groups", value=taken):
            pass
        case ast.Call(func=ast.Name(id="int"), args=[ast.Subscript(value=ast.Call() as taken, slice=index)]):
            if ast.unparse(index) not in ("-1", "2"):
                return None
        case ast.Call(func=ast.Name(id="int"), args=[taken]):
            pass
        case ast.Call(func=ast.Attribute(attr="split" | "rsplit")) as taken:
            parent = facts.tree.parents.get(node)
            if not (isinstance(parent, ast.Assign) and isinstance(parent.targets[0], (ast.Tuple, ast.List))):
                return None
        case _:
            return None
    return _text_of_number(facts, taken)


def _text_of_number(facts: Facts, node: ast.expr) -> tuple[ast.expr, str] | None:
    """Return the text out of which an expression takes the number of a device, and what it seeks there."""
    parent = facts.tree.parents.get(node)
    match node:
        case ast.Call(func=ast.Attribute(value=text, attr=method), args=[first, *_]) if method in _METHODS:
            part = text_of(first) or ""
            is_type = isinstance(parent, ast.Subscript) and ast.unparse(parent.slice) == "0"
            return (text, part) if _METHODS[method] in part and not is_type else None
        case ast.Call(args=[ast.Constant(value=str(part)), text]):
            return (text, part) if "cuda" in part and facts.call(node, *_SEARCHES) else None
        case ast.Subscript(value=text, slice=index) if isinstance(parent, ast.Call):
            return (text, "") if dotted(parent.func) == "int" and _is_number_part(index) else None
    return None


def _is_left(facts: Facts, node: ast.expr, device: ast.expr) -> bool:
    """Return whether the function has left before, under a condition on the device."""
    path = dotted(device) or ""
    blocks = blocks_around(facts.tree, facts.tree.statement(node))
    checks = (each for block in blocks for each in block if isinstance(each, ast.If))
    before = (each for each in checks if position(each) < position(node))
    return any(isinstance(each.body[-1], LEAVING) and _asks(each.test, path) for each in before)


def _lost(values: Forwards, followed: Followed) -> Iterator[ast.expr]:
    """Yield the uses from which a value goes on in a way that is not followed."""
    yield from (use for use in followed.uses if use not in followed.passed and _is_lost(values, use))


def _is_lost(values: Forwards, use: ast.expr) -> bool:
    facts = values.facts
    parent = facts.tree.parents.get(use)
    match parent:
        case ast.Dict():
            return not all(_is_location(facts, each) for each in values.of(parent).uses)
        case ast.List(elts=[_]) if isinstance(facts.tree.parents.get(parent), ast.keyword):
            return _is_lost(values, parent)
        case ast.Call() | ast.keyword() if (found := argument_at(facts.tree, use)) is not None:
            return not _is_known(facts, *found)
        case ast.Compare() | ast.If() | ast.IfExp() | ast.While() | ast.Assert() | ast.UnaryOp():
            return False
        case ast.Attribute() | ast.FormattedValue() | ast.BoolOp() | ast.Expr():
            return False
    return not (isinstance(parent, ast.expr) and cuda_string(parent))


def _is_location(facts: Facts, table: ast.expr) -> bool:
    """Return whether a dictionary of devices is the location of a checkpoint, which takes no number."""
    found = argument_at(facts.tree, table)
    return found is not None and load_location(facts, found[0]) is table


def _is_known(facts: Facts, call: ast.Call, place: Place | None) -> bool:
    """Return whether a function takes a device, or only shows its arguments."""
    name = facts.resolve(call.func) or dotted(call.func) or ""
    if name.startswith(_OF_DEVICES) or last_name(call.func) in _SHOWING:
        return True
    known = isinstance(place, int) or name.startswith("torch.") or last_name(call.func) in ("to", "to_empty")
    return place is not None and known and takes_device(facts, call.func, place)


def _takers(facts: Facts, _: Scope) -> list[ast.expr]:
    """Return the uses of any text, of which nothing is known, that take the number of a device."""
    texts: list[ast.expr] = []
    for node in facts.tree.nodes_with(*_WORDS):
        if isinstance(node, ast.Compare) and _compares_number(node):
            texts += [side for side in (node.left, *node.comparators) if not isinstance(side, ast.Constant)]
        elif isinstance(node, ast.expr) and (taken := _text_of_number(facts, node)) is not None:
            texts.append(taken[0])
    asked = (text for text in texts if not facts.is_guarded(text) and _may_be_text(facts, text))
    return [text for text in asked if not _is_asked_about(facts, text)]


def _is_number_part(index: ast.expr) -> bool:
    """Return whether an index takes what follows `cuda:`, or the last character."""
    part = index.lower if isinstance(index, ast.Slice) and index.upper is None else index
    return ast.unparse(part or index) in (str(_NUMBER), "-1")


def _may_be_text(facts: Facts, node: ast.expr) -> bool:
    kinds = facts.kinds.of(node)
    return any(kinds.can_be(kind) is not False for kind in (Kind.STRING, Kind.CUDA, Kind.DEVICE))


def _compares_number(node: ast.Compare) -> bool:
    """Return whether a comparison asks for a name with a number."""
    sides = [node.left, *node.comparators]
    lists = (side.elts for side in sides if isinstance(side, (ast.List, ast.Tuple, ast.Set)))
    listed = [each for elements in lists for each in elements]
    named = (text_of(each) or "" for each in (*sides, *listed) if cuda_string(each))
    return any(text.lower() != "cuda" for text in named) and not isinstance(node.ops[0], ast.Is)


def _takes_number(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression takes the number of a device."""
    if facts.is_guarded(node) or _is_asked_about(facts, node):
        return False
    parent = facts.tree.parents.get(node)
    match parent:
        case ast.Subscript(value=text, slice=index):
            return text is node and not _is_start(index)
        case ast.Attribute(attr="index"):
            return is_number(facts, parent) or _is_ordered(facts, parent)
        case ast.Attribute():
            call = facts.tree.parents.get(parent)
            return isinstance(call, ast.Call) and _text_of_number(facts, call) is not None
        case ast.Call(func=ast.Name(id="str")) | ast.FormattedValue() | ast.JoinedStr(values=[_]):
            return _takes_number(facts, parent)
        case ast.Call(func=func):
            return (facts.resolve(func) or "").startswith("re.") or dotted(func) == "int"
        case ast.Compare():
            return _compares_number(parent)
    return False


def _is_start(index: ast.expr) -> bool:
    """Return whether an index takes the start of a name, which is its type."""
    if isinstance(index, ast.Slice):
        return index.lower is None or (isinstance(index.lower, ast.Constant) and index.lower.value == 0)
    return isinstance(index, ast.Constant) and isinstance(index.value, str)  # no name, but a dictionary


def _is_ordered(facts: Facts, node: ast.expr) -> bool:
    """Return whether `device.index`, or what has its value, is compared by its size, as None can't be."""
    parent = facts.tree.parents.get(node)
    return isinstance(parent, ast.Compare) and isinstance(parent.ops[0], _ORDER)


def is_number(facts: Facts, node: ast.expr) -> bool:
    """Return whether a value such as `device.index` is called, or used as a number, which None is not."""
    parent = facts.tree.parents.get(node)
    match parent:
        case ast.Call(func=func):
            return func is node or dotted(func) in ("int", "range")
        case ast.BinOp(left=ast.Constant(value=str())):
            return False
        case ast.Subscript(slice=index):
            return index is node
    return isinstance(parent, _ARITHMETIC)


def _is_asked_about(facts: Facts, node: ast.expr) -> bool:
    """Return whether a node is evaluated under a condition that compares the same device or its name."""
    path = dotted(_without_str(node))
    return path is not None and any(
        isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test and _asks(parent.test, path)
        for child, parent in facts.tree.ancestors(node)
    )


def _asks(test: ast.expr, path: str) -> bool:
    return any(
        (isinstance(part, ast.Compare) and not (dotted(part.left) == path and isinstance(part.ops[0], _IS)))
        or isinstance(part, ast.Call)
        for part in ast.walk(test)
        if any(dotted(each) == path for each in ast.walk(part))
    )
