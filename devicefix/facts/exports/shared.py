"""Find the values that a file shares with others: numbers, flags, options, devices, and what it builds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.facts.backends import backend_values
from devicefix.facts.certain import certain_device
from devicefix.facts.exports.export import of_bytes, of_facts
from devicefix.facts.flow.kinds.calls import results
from devicefix.facts.flow.kinds.objects import names_of_fields
from devicefix.facts.flow.sinks import device_names, device_values, values_at
from devicefix.facts.guards.conditions import falsy
from devicefix.facts.hugging_face import takes_attention
from devicefix.facts.module import Facts
from devicefix.facts.passed import passed_kinds as kinds_passed
from devicefix.facts.torchscript import TorchScript
from devicefix.facts.values import device_name

_OF_CUDA = re.compile("cuda|gpu")
_GROUPS = (b"process_group", b"new_group", b"new_subgroups", b"init_distributed", b"Backend")
_DEVICES = (b".to(", b"device", b"map_location")


@of_facts(anywhere=True)
def bound_names(facts: Facts) -> frozenset[str]:
    """Return the names bound at the top of the module."""
    return frozenset(facts.tree.root.bindings)


@of_facts(anywhere=True)
def names_read(facts: Facts) -> frozenset[str]:
    """Return the names that the module reads, also if a star import brings them."""
    return facts.tree.loads


@of_facts(b"cuda", b"device")
def devices(facts: Facts) -> frozenset[str]:
    """Return the names that a star import brings, and that are the current CUDA device or else the CPU."""
    return frozenset(name for name in tuple(facts.tree.root.bindings) if _is_device(facts, name))


@of_facts(b"__all__")
def public_names(facts: Facts) -> frozenset[str]:
    """Return the names in the module's `__all__`."""
    return _public(facts) or frozenset()


@of_facts(
    b"jit", pattern=rb"jit\.(?:script|export)|jit[ \t]+(?:import|as)|import[^\n]*\bjit\b", anywhere=True
)
def scripted(facts: Facts) -> frozenset[str]:
    """Return what TorchScript compiles of other files; see `TorchScript.imported`."""
    return frozenset(TorchScript(facts).imported)


@of_facts(*_DEVICES, anywhere=True)
def device_places(facts: Facts) -> frozenset[str]:
    """Return the names, attributes and keys whose values are passed on as devices."""
    named = (node for node in facts.tree.of_kind(ast.FunctionDef) if device_name(node.name))
    paths = facts.tree.paths_by_name.get("device", ())
    values = (
        *device_values(facts),
        *(value for node in named for value in results(facts, facts.tree.scopes[node])[0]),
        *(each.value for path in paths for each in facts.tree.attributes[path] if each.value is not None),
    )
    return device_names(facts, values)


@of_bytes(b"torch.", b"mps", b"multiprocessing")
def passed_kinds(data: bytes) -> frozenset[tuple[str, tuple[int | str, str]]]:
    """Return the functions, each with an argument that is passed, by keyword or position, and its kind."""
    return frozenset(kinds_passed(data))


@of_facts(*_GROUPS, b"attn_implementation")
def settings(facts: Facts) -> frozenset[str]:
    """Return the attributes, keys and names that become backends of process groups, or choose attention."""
    attentions = values_at(facts, ("attn_implementation",), takes_attention)
    return device_names(facts, (*backend_values(facts), *attentions))


@of_facts(b"CUDAExtension(")
def cuda_extensions(facts: Facts) -> frozenset[str]:
    """Return the compiled modules that the file builds with CUDA, and in no other way."""
    return frozenset(_cuda_extensions(facts))


@of_facts(b"cuda", b"gpu", anywhere=True)
def flags(facts: Facts) -> dict[str, bool]:
    """Return the attributes of `self` whose names mention CUDA; true for those that only CUDA makes true.

    An attribute of the same name that a class or another object gets speaks against it.
    """
    found: dict[str, bool] = {}
    attributes = [(path.rpartition("."), bindings) for path, bindings in facts.tree.attributes.items()]
    for scope in facts.tree.scopes.values():
        if scope.is_class:
            attributes += [(("", ".", name), bindings) for name, bindings in scope.bindings.items()]
    for (start, _, name), bindings in attributes:
        if _OF_CUDA.search(name):
            values = [(binding.node, binding.value) for binding in bindings if binding.value is not None]
            right = len(values) == len(bindings) and all(_only_with_cuda(facts, *pair) for pair in values)
            if start == "self" or (not right and values):
                found[name] = found.get(name, True) and right
    return found


def _cuda_extensions(facts: Facts) -> Iterator[str]:
    """Yield the names of the extensions that a module builds with CUDA, and in no other way.

    https://docs.pytorch.org/docs/stable/cpp_extension.html
    """
    for_cpu = any(True for _ in facts.tree.nodes_with("CppExtension("))
    for node in facts.tree.nodes_with("CUDAExtension("):
        if facts.call(node, "torch.utils.cpp_extension.CUDAExtension"):
            keyword = (each.value for each in node.keywords if each.arg == "name")
            name = next(iter(node.args), None) or next(keyword, None)
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                chosen = any(facts.tree.around(node, ast.If, ast.IfExp, ast.Try))
                if not (chosen and for_cpu):
                    yield name.value


def _only_with_cuda(facts: Facts, node: ast.AST, value: ast.expr) -> bool:
    return falsy(value) or facts.guards.implies(value) or facts.is_guarded(node)


def _public(facts: Facts) -> frozenset[str] | None:
    """Return the names that a star import brings, None for all without an underscore."""
    bindings = facts.tree.root.bindings.get("__all__")
    if not bindings:
        return None
    listed = (binding.value for binding in bindings if binding.value is not None)
    return frozenset(name for each in listed for name in names_of_fields(each))


def _is_device(facts: Facts, name: str) -> bool:
    public = _public(facts)
    match facts.tree.root.bindings[name]:
        case [only] if public is None or name in public:
            at_top = facts.tree.parents.get(only.node) is facts.tree.module
            return at_top and certain_device(facts, only.value)
    return False
