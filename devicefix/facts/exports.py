"""Exports of one file to the others of its project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from devicefix.facts import Facts, dotted
from devicefix.facts.certain import certain_device
from devicefix.facts.prefilter import may_matter
from devicefix.facts.sinks import device_names, device_values, receivers, scanned
from devicefix.files.text import DecodeError


@dataclass(frozen=True, slots=True)
class Summary:
    """The exports of one file to the others of its project.

    Attributes:
        path: where the file is.
        imports: the modules it imports, absolute (`a.b`) or relative (`..b`).
        star_imports: those of them that it imports everything from.
        bound: the names bound at the top of the module.
        devices: those of them that are the current CUDA device or else the CPU.
        read: the names that the module reads, where it has star imports.
        classes: the names of the base classes of every class.
        cuda_classes: the classes that define a method `cuda`; true for those that define `to`, too.
        get_device: whether a function or method is called `get_device`, as a method of tensors is.
        late: whether CUDA_VISIBLE_DEVICES is set after torch has been imported.
        forks: whether processes are forked, which CUDA does not survive once it was asked for.
        options: the command line's options, each with its type.
        flags: attributes of objects that the module sets; true for those that only CUDA makes true.
        low_precision: whether it makes or converts values in half precision or bfloat16, without autocast.
        device_places: names, attributes and keys whose values are passed on as devices.
        receivers: functions, each with a parameter that it passes on as a device, and its position.
    """

    path: str
    imports: frozenset[str] = frozenset()
    star_imports: tuple[str, ...] = ()
    bound: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cuda_classes: dict[str, bool] = field(default_factory=dict)
    get_device: bool = False
    late: bool = False
    forks: bool = False
    options: frozenset[tuple[str, str]] = frozenset()
    flags: dict[str, bool] = field(default_factory=dict)
    low_precision: bool = False
    device_places: frozenset[str] = frozenset()
    receivers: frozenset[tuple[str, tuple[str, int]]] = frozenset()


def summarize(data: bytes, path: str) -> Summary | None:
    """Summarize a file for the others of its project.

    Returns:
        None where the file can't matter to them, or does not parse. For a file without a word of CUDA's,
        only its imports, classes and devices, so that others can be followed through it.
    """
    if not may_matter(data) and b"CUDA_VISIBLE_DEVICES" not in data:
        return passed_through(data, path)
    try:
        return summary_of(Facts.read(data), path)
    except (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def summary_of(facts: Facts, path: str) -> Summary:
    """Summarize a module whose facts are known."""
    root = facts.tree.root
    passed_on = device_values(facts)
    classes = {node.name: node for node in facts.tree.scopes if isinstance(node, ast.ClassDef)}
    return Summary(
        path=path,
        imports=frozenset(_imports(facts)),
        star_imports=tuple(facts.tree.star_imports),
        bound=frozenset(root.bindings),
        devices=frozenset(name for name in tuple(root.bindings) if _device(facts, name)),
        read=facts.tree.loads if facts.tree.star_imports else frozenset(),
        classes={name: tuple(filter(None, map(dotted, node.bases))) for name, node in classes.items()},
        cuda_classes={name: defines(node, "to") for name, node in classes.items() if defines(node, "cuda")},
        get_device="def get_device(" in facts.source.text,
        late=bool(late_settings(facts)),
        forks=_forks(facts.source.text.encode()),
        options=facts.options,
        flags=_flags(facts),
        low_precision=has_low_precision(facts.source.text.encode()),
        device_places=device_names(facts, passed_on),
        receivers=frozenset(receivers(facts, passed_on)),
    )


# They begin with a line end, which is found several times as fast as the beginning of a line.
_IMPORT = re.compile(rb"\n[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+([\w, \t]*)|import[ \t]+([\w., \t]+))")
_CLASS = re.compile(rb"\n[ \t]*class[ \t]+(\w+)[ \t]*\(([\w., \t]+)\)")


def passed_through(data: bytes, path: str) -> Summary | None:
    """Return the imports and classes of a file that has no tie to CUDA, without parsing it."""
    data = b"\n" + data
    imports: set[str] = set()
    for module, names, plain in _IMPORT.findall(data):
        if plain:
            imports.update(part.split()[0].decode() for part in plain.split(b",") if part.strip())
        else:
            base = module.decode()
            imports.add(base)
            joint = "" if base.endswith(".") else "."
            imports.update(
                f"{base}{joint}{part.split()[0].decode()}" for part in names.split(b",") if part.strip()
            )
    classes = {
        name.decode(): tuple(base.strip().decode() for base in bases.split(b","))
        for name, bases in _CLASS.findall(data)
    }
    places, taking = scanned(data)
    low_precision = has_low_precision(data)
    if not imports and not classes and not places and not low_precision:
        return None
    return Summary(
        path,
        frozenset(imports),
        classes=classes,
        get_device=b"def get_device(" in data,
        forks=_forks(data),
        low_precision=low_precision,
        device_places=places,
        receivers=taking,
    )


def defines(node: ast.ClassDef, method: str) -> bool:
    """Return whether the body of a class defines a method, which is no property."""
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name == method:
                return not any((dotted(each) or "").endswith("property") for each in statement.decorator_list)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == method:
                return not isinstance(value, ast.Constant)  # a flag of this name
    return False


def late_settings(facts: Facts) -> list[ast.stmt]:
    """Return the statements that set CUDA_VISIBLE_DEVICES after torch has been imported, or in a function."""
    if "CUDA_VISIBLE_DEVICES" not in facts.source.text:
        return []
    first = min(
        (node.lineno for node in facts.tree.module.body if isinstance(node, (ast.Import, ast.ImportFrom))
         and any(_last_import(name) == "torch" for name in _imported(node))),
        default=None,
    )  # fmt: skip
    found: list[ast.stmt] = []
    for node in facts.tree.nodes_with("CUDA_VISIBLE_DEVICES"):
        if isinstance(node, (ast.Assign, ast.Expr)) and _sets_visible_devices(node):
            in_function = facts.tree.scope(node).function is not None
            if in_function or (first is None or node.lineno > first):
                found.append(node)
    return found


_AUTOCAST = re.compile(rb"autocast\((?:[^()]|\([^()]*\))*\)")
_LOW_PRECISION = re.compile(
    rb"\.(?:half|bfloat16)\(\)(?!\.float\(\))"
    rb"|(?<!=)(?:\(|= ?)(?:torch|th)\.(?:b?float16|half)\b"
    rb"|\.(?:Half|BFloat16)Tensor\b"
)
_LOW_WORDS = (b"float16", b"half", b"Half", b"BFloat16")


def has_low_precision(data: bytes) -> bool:
    """Return whether a module makes or converts values in half precision or bfloat16, outside of autocast."""
    if not any(word in data for word in _LOW_WORDS):
        return False
    return _LOW_PRECISION.search(_AUTOCAST.sub(b"", data)) is not None


_FORKING = re.compile(rb"\bProcess\b|\bPool\(|ProcessPoolExecutor|os\.fork\(")
_NOT_FORKING = re.compile(rb"(set_start_method|get_context|start_method)[^\n]*(spawn|forkserver)")


def _forks(data: bytes) -> bool:
    """Return whether a module starts processes that get a copy of this one's memory.

    https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html: it poisons fork.
    """
    if b"multiprocessing" not in data and b"concurrent" not in data and b"os.fork" not in data:
        return False
    return _FORKING.search(data) is not None and _NOT_FORKING.search(data) is None


def _last_import(name: str) -> str:
    return name.partition(".")[0]


def _sets_visible_devices(node: ast.Assign | ast.Expr) -> bool:
    if isinstance(node, ast.Assign):
        return any(
            isinstance(target, ast.Subscript)
            and isinstance(target.slice, ast.Constant)
            and target.slice.value == "CUDA_VISIBLE_DEVICES"
            for target in node.targets
        )
    if not isinstance(node.value, ast.Call):
        return False
    name = dotted(node.value.func) or ""
    if name.endswith(("environ.setdefault", "environ.update", "putenv")):
        return "CUDA_VISIBLE_DEVICES" in ast.dump(node.value)
    return False


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = "." * node.level + (node.module or "")
    joint = "" if module.endswith(".") else "."
    return [module, *(f"{module}{joint}{alias.name}" for alias in node.names if alias.name != "*")]


def _imports(facts: Facts) -> Iterable[str]:
    for node in facts.tree.imports:
        yield from _imported(node)


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
        if re.search("cuda|gpu", name):
            values = [(binding.node, binding.value) for binding in bindings if binding.value is not None]
            right = len(values) == len(bindings) and all(_only_with_cuda(facts, *pair) for pair in values)
            if start == "self" or (not right and values):
                found[name] = found.get(name, True) and right
    return found


def _only_with_cuda(facts: Facts, node: ast.AST, value: ast.expr) -> bool:
    falsy = isinstance(value, ast.Constant) and not value.value
    return falsy or facts.guards.implies(value) or facts.is_guarded(node)


def _device(facts: Facts, name: str) -> bool:
    bindings = facts.tree.root.bindings[name]
    return (
        len(bindings) == 1
        and certain_device(facts, bindings[0].value)
        and facts.tree.parents.get(bindings[0].node) is facts.tree.module
    )
