"""The arguments of calls that are devices: of torch's own functions, and of those of the project."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.parameters import Place, arguments_of
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.hugging_face import takes_device_map
from devicefix.facts.module import Facts
from devicefix.facts.values import cuda_device, device_name, last_name, without_call

# The positions of devices. Moving to a device, making one or loading to one fails without CUDA.
_POSITIONS = {
    "torch.device": 0, "torch.Generator": 0, "torch.set_default_device": 0, "torch.load": 1,
    "torch.jit.load": 1, "torch.Tensor.to": 1, "torch.nn.Module.to": 1, "torch.Tensor.cuda": 1,
    "torch.nn.Module.cuda": 1, "torch.cuda.set_device": 0, "torch.cuda.synchronize": 0,
    "safetensors.torch.load_file": 1,
}  # fmt: skip
FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
_MESHES = ("init_device_mesh", "DeviceMesh")
# The positions of `map_location`.
LOADS = {"torch.load": 1, "torch.jit.load": 1, "torch.hub.load_state_dict_from_url": 2}
_METHODS = {"to": 0, "to_empty": 0, "cuda": 0, "load_from_checkpoint": 1}
# They disable themselves on a CPU, or ask for or set a state of autocast, whatever their device is.
OFF_BY_THEMSELVES = (
    "torch.autocast", "torch.amp.autocast", "torch.amp.GradScaler", "torch.amp.autocast_mode.autocast",
    "torch.GradScaler", "torch.amp.custom_fwd", "torch.amp.custom_bwd", "torch.get_autocast_dtype",
    "torch.set_autocast_dtype", "torch.is_autocast_enabled", "torch.set_autocast_enabled",
    "contextlib.nullcontext", "torch.autograd.profiler.profile", "torch.profiler.profile",
)  # fmt: skip

_HOPS = 3  # bindings and calls to follow from a device to what it comes from


def takes_device(facts: Facts, function: ast.expr, place: Place) -> bool:
    """Return whether a function of torch takes a device at a place, or any function does by its keyword.

    Args:
        facts: the facts of the module.
        function: the function that is called.
        place: the position or the keyword of the argument.
    """
    name = facts.resolve(function)
    if name in OFF_BY_THEMSELVES:
        return False
    if place in (0, "device_type") and last_name(function) in _MESHES:
        return True
    if isinstance(place, str):
        named = place == "map_location" or device_name(place) or is_location(function, place)
        sharded = place == "device_id" and name == FSDP
        return named or sharded or takes_device_map(facts, function, place)
    if name in _POSITIONS:
        return _POSITIONS[name] == place
    return isinstance(function, ast.Attribute) and _METHODS.get(function.attr) == place


def turns_off(facts: Facts, function: ast.expr) -> bool:
    """Return whether a function, or both of a choice, take a device and disable themselves without CUDA."""
    value = facts.value(function) if isinstance(function, ast.Name) else None
    if isinstance(value, ast.IfExp):
        return turns_off(facts, value.body) and turns_off(facts, value.orelse)
    return facts.resolve(function) in OFF_BY_THEMSELVES


def is_location(function: ast.expr, keyword: str) -> bool:
    """Return whether a keyword is that of `load_state_dict(path, location=...)`."""
    return keyword == "location" and last_name(function) == "load_state_dict"


def load_location(facts: Facts, call: ast.Call) -> ast.expr | None:
    """Return the `map_location` of a call of torch that loads a checkpoint, None if it has none."""
    place = next((LOADS[name] for name in LOADS if facts.call(call, name)), None)
    return argument_of(call, "map_location", place) if place is not None else None


def maps_to_cuda(facts: Facts, location: ast.expr) -> bool:
    """Return whether a `map_location` is a dictionary that maps to a CUDA device."""
    table = facts.value(location) or location
    return isinstance(table, ast.Dict) and any(_is_on_cuda(facts, value) for value in table.values)


def _is_on_cuda(facts: Facts, value: ast.expr) -> bool:
    """Return whether an expression is a CUDA device, or a variable that is bound to nothing else."""
    bound = [binding.value for binding in facts.bindings(value)] or [value]
    return all(each is not None and cuda_device(facts, each) for each in bound)


def device_values(facts: Facts) -> list[ast.expr]:
    """Return the expressions that the module passes on as devices."""
    return values_at(facts, (".to(", "device", "map_location"), takes_device)


def values_at(
    facts: Facts, words: Iterable[str], takes: Callable[[Facts, ast.expr, Place], bool]
) -> list[ast.expr]:
    """Return the arguments of the calls with some words that certain functions take at certain places."""
    calls = (node for node in facts.tree.nodes_with(*words) if isinstance(node, ast.Call))
    given = ((call.func, place, value) for call in calls for place, value in arguments_of(call))
    return [value for function, place, value in given if takes(facts, function, place)]


def device_names(facts: Facts, values: Iterable[ast.expr]) -> frozenset[str]:
    """Return the attributes, keys and imported names that some expressions read: other files may set them."""
    found = {""}
    sources = Sources(facts, How.BOUND | How.ELEMENT | How.CHOICE | How.RETURNED, _HOPS)
    for origin in (source.node for value in values for source in sources.of(value)):
        if isinstance(origin, ast.Call) and (facts.resolve(origin.func) or "").startswith("torch."):
            continue
        name = key_read(origin) or last_name(without_call(origin))
        if name not in found and not _is_of_module(facts, origin) and not is_of_tensor(facts, origin):
            found.add(name)
    return frozenset(found - {""})


def _is_of_module(facts: Facts, value: ast.expr) -> bool:
    """Return whether an expression is a variable that the module itself binds."""
    bindings = facts.tree.bound(value)
    return bool(bindings) and not any(binding.imported for binding in bindings)


def is_of_tensor(facts: Facts, value: ast.expr) -> bool:
    """Return whether an expression is the `.device` of a tensor, which nothing sets."""
    if not isinstance(value, ast.Attribute) or value.attr != "device":
        return False
    return facts.kinds.of(value.value).are({Kind.TENSOR})


def key_read(value: ast.AST | None) -> str:
    """Return the attribute or key that an expression reads, empty if it reads none."""
    _, key = part_read(value) or (None, "")
    return key


def part_read(value: ast.AST | None) -> tuple[ast.expr, str] | None:
    """Return what an expression reads an attribute or a key of, and that, empty if it is computed."""
    match value:
        case ast.Subscript(owner, ast.Constant(str(key))) | ast.Attribute(owner, key):
            return owner, key
        case ast.Subscript(owner):
            return owner, ""
        case ast.Call(ast.Attribute(owner, "get"), [ast.Constant(str(key)), *_]):
            return owner, key
        case ast.Call(ast.Name("getattr"), [owner, ast.Constant(str(key)), *_]):
            return owner, key
    return None
