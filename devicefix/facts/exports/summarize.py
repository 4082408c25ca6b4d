"""Summarize a file for the others of its project, from its bytes or its facts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.facts.backends import backend_values, compared_backends, passed_backends
from devicefix.facts.certain import certain_device
from devicefix.facts.configurations import named_configurations
from devicefix.facts.effects import only_returns
from devicefix.facts.exports.classes import adds_cuda_method, bases_of, has_effect, own_method
from devicefix.facts.exports.environment import late_functions
from devicefix.facts.exports.forks import forked_modules, mentions_devices
from devicefix.facts.exports.imports import guarded_names, imported_modules, tried_names
from devicefix.facts.exports.low_precision import (
    autocasts,
    has_low_precision,
    low_flags,
    stops_autocast,
)
from devicefix.facts.exports.passed_numbers import compared_parameters, passed_numbers
from devicefix.facts.exports.patches import patched_names
from devicefix.facts.exports.scan import (
    attributes_read,
    attributes_set,
    library_choices,
    numbered_names,
    passed_through,
)
from devicefix.facts.exports.summary import Summary
from devicefix.facts.exports.transforms import transforming
from devicefix.facts.kinds import Kind
from devicefix.facts.module import Facts
from devicefix.facts.namespaces import namespace_functions
from devicefix.facts.passed import passed_kinds
from devicefix.facts.precision import Precision
from devicefix.facts.prefilter import may_matter
from devicefix.facts.refused_devices import refused_parameters
from devicefix.facts.sinks import device_names, device_values, receivers
from devicefix.facts.torchscript import TorchScript
from devicefix.files.text import DecodeError

_FOR_OTHERS = (
    b"CUDA_", b"VISIBLE_DEVICES", b"init_process_group", b"gloo", b"LOCAL_RANK", b"get_rank(",
    b"AssertionError",
)  # fmt: skip
_OF_CUDA = re.compile("cuda|gpu")
_NUMBERS = ("= int(", "return int(", "get_rank(", "current_device(", "get_device(")


def matters_to_others(data: bytes) -> bool:
    """Return whether the bytes of a file hold a word that may concern the other files of its project."""
    return any(word in data for word in _FOR_OTHERS) or may_matter(data)


def summarize(data: bytes, path: str) -> Summary | None:
    """Summarize a file for the others of its project.

    Returns:
        None where the file can't matter to them, or does not parse. For a file without a word of CUDA's,
        only its imports, classes and devices, so that others can be followed through it.
    """
    if not matters_to_others(data):
        return passed_through(data, path)
    try:
        return summary_of(Facts.read(data), path)
    except (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def summary_of(facts: Facts, path: str) -> Summary:
    """Summarize a module whose facts are known."""
    root = facts.tree.root
    passed_on = device_values(facts)
    data = facts.source.text.encode()
    classes = [node for node in facts.tree.scopes if isinstance(node, ast.ClassDef)]
    own = [node for node in classes if own_method(facts, node, "cuda")]
    cuda_classes = {node.name for node in own}
    mixed = {node.name for node in classes if node.name in cuda_classes and node not in own}
    to_classes = {node.name for node in classes if own_method(facts, node, "to")}
    backends = backend_values(facts)
    return Summary(
        path=path,
        imports=frozenset(imported_modules(facts)),
        star_imports=tuple(facts.tree.star_imports),
        bound=frozenset(root.bindings),
        devices=frozenset(name for name in tuple(root.bindings) if _device(facts, name)),
        public=_public(facts) or frozenset(),
        read=facts.tree.loads if facts.tree.star_imports else frozenset(),
        attributes=attributes_read(data),
        set_on_imports=attributes_set(data),
        numbered=numbered_names(data),
        classes=bases_of(classes),
        cuda_classes=frozenset(cuda_classes),
        mixed_classes=frozenset(mixed),
        to_classes=frozenset(to_classes - cuda_classes),
        adds_cuda=adds_cuda_method(facts),
        cuda_effects=any(has_effect(facts, node) for node in classes),
        get_device="def get_device(" in facts.source.text,
        late=late_functions(facts),
        forks=forked_modules(data),
        devices_mentioned=mentions_devices(data),
        options=facts.options,
        flags=_flags(facts),
        low_precision=(low := has_low_precision(data)),
        mixing=frozenset(Precision(facts).mixing_classes()) if low else frozenset(),
        low_flags=low_flags(data) if low else frozenset(),
        stops_autocast=stops_autocast(data),
        autocasts=autocasts(data),
        transforms=frozenset(transforming(facts)),
        scripted=frozenset(TorchScript(facts).imported),
        device_places=device_names(facts, passed_on),
        receivers=frozenset(receivers(facts, passed_on)),
        refusing=frozenset(refused_parameters(facts)),
        passed=frozenset(passed_kinds(data)),
        passed_numbers=frozenset(passed_numbers(facts)),
        compared=frozenset(compared_parameters(facts)),
        numbers=(numbers := frozenset(_numbers(facts))),
        pure=frozenset(_pure(facts, numbers)),
        backends=device_names(facts, backends),
        backend_receivers=frozenset(receivers(facts, backends)),
        passed_backends=frozenset(passed_backends(facts)),
        compared_backends=frozenset(compared_backends(facts)),
        tried=frozenset(tried_names(facts)),
        patched=frozenset(patched_names(facts)),
        cuda_extensions=frozenset(_cuda_extensions(facts)),
        configurations=named_configurations(data),
        choices=library_choices(data),
        namespaces=frozenset(namespace_functions(facts)),
        guarded=frozenset(guarded_names(facts)),
    )


def _cuda_extensions(facts: Facts) -> Iterator[str]:
    """Yield the names of the extensions that a module builds with CUDA, and in no other way.

    https://docs.pytorch.org/docs/stable/cpp_extension.html
    """
    if "CUDAExtension(" not in facts.tree.text:
        return
    for_cpu = any(True for _ in facts.tree.nodes_with("CppExtension("))
    for node in facts.tree.nodes_with("CUDAExtension("):
        if facts.call(node, "torch.utils.cpp_extension.CUDAExtension"):
            assert isinstance(node, ast.Call)
            keyword = (each.value for each in node.keywords if each.arg == "name")
            name = next(iter(node.args), None) or next(keyword, None)
            around = (parent for _, parent in facts.tree.ancestors(node))
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                chosen = any(isinstance(parent, (ast.If, ast.IfExp, ast.Try)) for parent in around)
                if not (chosen and for_cpu):
                    yield name.value


def _numbers(facts: Facts) -> Iterator[str]:
    """Yield the variables of the module that are ints, and its functions that return one, as `f()`."""
    functions: dict[ast.FunctionDef, None] = {}  # in order, each once
    for node in facts.tree.nodes_with(*_NUMBERS):
        if isinstance(node, (ast.Assign, ast.Return)):
            function = facts.tree.scope(node).node
            if isinstance(function, ast.FunctionDef) and facts.tree.parents[function] is facts.tree.module:
                functions[function] = None
            elif isinstance(node, ast.Assign) and function is facts.tree.module:
                for target in node.targets:
                    if isinstance(target, ast.Name) and facts.kinds.of(target).are({Kind.INDEX}):
                        yield target.id
    yield from (f"{each.name}()" for each in functions if facts.kinds.returned(each).are({Kind.INDEX}))


def _pure(facts: Facts, numbers: frozenset[str]) -> Iterator[str]:
    """Yield those of the functions that return an int which do nothing else."""
    for node in facts.tree.module.body if numbers else ():
        if isinstance(node, ast.FunctionDef) and f"{node.name}()" in numbers and only_returns(facts, node):
            yield node.name


def _flags(facts: Facts) -> dict[str, bool]:
    """Return the attributes of `self` whose names mention CUDA, and whether they are true only with it.

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


def _only_with_cuda(facts: Facts, node: ast.AST, value: ast.expr) -> bool:
    falsy = isinstance(value, ast.Constant) and not value.value
    return falsy or facts.guards.implies(value) or facts.is_guarded(node)


def _public(facts: Facts) -> frozenset[str] | None:
    """Return the names that a star import brings, None for all without an underscore."""
    bindings = facts.tree.root.bindings.get("__all__")
    if not bindings:
        return None
    found: set[str] = set()
    for binding in bindings:
        if isinstance(binding.value, (ast.List, ast.Tuple)):
            found.update(
                each.value
                for each in binding.value.elts
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
    return frozenset(found)


def _device(facts: Facts, name: str) -> bool:
    bindings = facts.tree.root.bindings[name]
    public = _public(facts)
    return (
        (public is None or name in public)
        and len(bindings) == 1
        and certain_device(facts, bindings[0].value)
        and facts.tree.parents.get(bindings[0].node) is facts.tree.module
    )
