"""Exports of one file to the others of its project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from devicefix.facts import Facts, dotted
from devicefix.facts.backends import backend_values, compared_backends
from devicefix.facts.certain import certain_device
from devicefix.facts.passed import passed_kinds
from devicefix.facts.prefilter import may_matter
from devicefix.facts.refusals import may_catch
from devicefix.facts.scopes import Binding
from devicefix.facts.sinks import device_names, device_values, receivers, scanned
from devicefix.facts.torchscript import TorchScript
from devicefix.facts.values import last_name
from devicefix.files.text import DecodeError


@dataclass(frozen=True, slots=True)
class Summary:
    """The exports of one file to the others of its project.

    Attributes:
        path: where the file is.
        imports: the modules it imports, absolute (`a.b`) or relative (`..b`).
        star_imports: those of them that it imports everything from.
        bound: the names bound at the top of the module.
        devices: those that a star import brings, and that are the current CUDA device or else the CPU.
        public: the names in its `__all__`.
        read: the names that the module reads, where it has star imports.
        attributes: the attributes that it may read, those of `self` as `self.x`.
        numbered: the names and attributes of which it takes the number of a device.
        classes: the names of the base classes of every class.
        cuda_classes: the classes that define a method `cuda`, or have one by `__getattr__`.
        to_classes: the other classes that define a method `to`.
        adds_cuda: whether a function becomes the `cuda` of an object or class that already exists.
        get_device: whether a function or method is called `get_device`, as a method of tensors is.
        late: whether an environment variable of CUDA's driver is set after torch has been imported.
        forks: whether processes are forked, which CUDA does not survive once it was asked for.
        options: the command line's options, each with its type.
        flags: attributes of objects that the module sets; true for those that only CUDA makes true.
        low_precision: whether it makes or converts values in half precision or bfloat16, without autocast.
        scripted: what TorchScript compiles of other files; see `TorchScript.imported`.
        device_places: names, attributes and keys whose values are passed on as devices.
        receivers: functions, each with a parameter that it passes on as a device, and its position.
        passed: functions, each with an argument that the module passes, by keyword or position, and its kind.
        backends: attributes, keys and imported names whose values become backends of process groups.
        backend_receivers: functions, each with a parameter that becomes one, and its position.
        compared_backends: names that are compared with "nccl" or "gloo", each with the text.
        tried: modules that are imported, and functions that are called, where an error is caught.
        cuda_extensions: the compiled modules that it builds with CUDA on every machine.
    """

    path: str
    imports: frozenset[str] = frozenset()
    star_imports: tuple[str, ...] = ()
    bound: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    public: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    numbered: frozenset[str] = frozenset()
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cuda_classes: frozenset[str] = frozenset()
    to_classes: frozenset[str] = frozenset()
    adds_cuda: bool = False
    get_device: bool = False
    late: bool = False
    forks: bool = False
    options: frozenset[tuple[str, str]] = frozenset()
    flags: dict[str, bool] = field(default_factory=dict)
    low_precision: bool = False
    scripted: frozenset[str] = frozenset()
    device_places: frozenset[str] = frozenset()
    receivers: frozenset[tuple[str, tuple[str, int]]] = frozenset()
    passed: frozenset[tuple[str, tuple[int | str, str]]] = frozenset()
    backends: frozenset[str] = frozenset()
    backend_receivers: frozenset[tuple[str, tuple[str, int]]] = frozenset()
    compared_backends: frozenset[tuple[str, str]] = frozenset()
    tried: frozenset[str] = frozenset()
    cuda_extensions: frozenset[str] = frozenset()


_FOR_OTHERS = (b"CUDA_", b"VISIBLE_DEVICES", b"init_process_group", b"gloo")


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
    cuda_classes = {node.name for node in classes if own_method(facts, node, "cuda")}
    to_classes = {node.name for node in classes if own_method(facts, node, "to")}
    backends = backend_values(facts)
    return Summary(
        path=path,
        imports=frozenset(_imports(facts)),
        star_imports=tuple(facts.tree.star_imports),
        bound=frozenset(root.bindings),
        devices=frozenset(name for name in tuple(root.bindings) if _device(facts, name)),
        public=_public(facts) or frozenset(),
        read=facts.tree.loads if facts.tree.star_imports else frozenset(),
        attributes=_attributes(data),
        numbered=_numbered(data),
        classes=_bases(classes),
        cuda_classes=frozenset(cuda_classes),
        to_classes=frozenset(to_classes - cuda_classes),
        adds_cuda=_adds_cuda(facts),
        get_device="def get_device(" in facts.source.text,
        late=bool(late_settings(facts)),
        forks=_forks(data),
        options=facts.options,
        flags=_flags(facts),
        low_precision=has_low_precision(data),
        scripted=frozenset(TorchScript(facts).imported),
        device_places=device_names(facts, passed_on),
        receivers=frozenset(receivers(facts, passed_on)),
        passed=frozenset(passed_kinds(data)),
        backends=device_names(facts, backends),
        backend_receivers=frozenset(receivers(facts, backends)),
        compared_backends=frozenset(compared_backends(facts)),
        tried=frozenset(_tried(facts)),
        cuda_extensions=frozenset(_cuda_extensions(facts)),
    )


# What code that refuses to run without CUDA may raise.
_ERRORS = ("AssertionError", "RuntimeError", "ValueError", "OSError", "SystemExit")


def _tried(facts: Facts) -> Iterable[str]:
    """Yield the last names of what a `try` statement imports or calls, if it catches such errors."""
    refusals = facts.guards.refusals
    for node in facts.tree.nodes_with("try"):
        if isinstance(node, ast.Try) and any(
            may_catch(handler, error) and not refusals.refuses(handler.body)
            for handler in node.handlers
            for error in _ERRORS
        ):
            for part in (part for statement in node.body for part in ast.walk(statement)):
                if isinstance(part, (ast.Import, ast.ImportFrom)):
                    yield from (name.rpartition(".")[2] for name in _imported(part))
                elif isinstance(part, ast.Call):
                    yield last_name(part.func)


# They begin with a line end, which is found several times as fast as the beginning of a line.
_IMPORT = re.compile(
    rb"\n[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]*(?:\(([^)]*)|([\w, \t*]*))|import[ \t]+([\w., \t]+))"
)
_COMMENT = re.compile(rb"#[^\n]*")
_ATTRIBUTE = re.compile(rb"\.(?<!\bself\.)([A-Za-z_]\w*)\b(?!\s*\()")
_OWN_ATTRIBUTE = re.compile(rb"\bself(\.[A-Za-z_]\w*)\b(?!\s*\()")
# `device.split(":")[1]`, `device[5:]`, `device.replace("cuda:", "")`
_NUMBERED = re.compile(
    rb"(?:split|partition)\(\s*[\"']:[\"'][^)\n]*\)(?!\s*\[0\])|\[5:\]|(?:replace|prefix|strip)\(\s*[\"']cuda"
)
_TAKEN_OF = re.compile(rb"(\w+)(?:\.(?:[rl]|remove)?)?\Z")
_NAME = re.compile(rb"\b[A-Za-z_]\w*")
_CLASS = re.compile(rb"\n[ \t]*class[ \t]+(\w+)[ \t]*\(([\w., \t]+)\)")


_METHOD = re.compile(rb"\n[ \t]*(?:class[ \t]+(\w+)|(def[ \t]+to\())")


def _to_classes(data: bytes) -> frozenset[str]:
    """Return the classes of a module that define a method `to`, without parsing it."""
    if b"def to(" not in data:
        return frozenset()
    found, last = set(), b""
    for name, method in _METHOD.findall(data):
        if method:
            found.add(last.decode())
        last = name or last
    return frozenset(found - {""})


_TRIED = re.compile(
    rb"\n[ \t]*try:[^\n]*\n((?:[ \t]+(?:from|import)[ \t][^\n]*\n)+)"
    rb"[ \t]*except\b(?![^\n]*(?:Import|ModuleNotFound)Error)"
)


def passed_through(data: bytes, path: str) -> Summary | None:
    """Return the imports and classes of a file that has no tie to CUDA, without parsing it."""
    data = b"\n" + data
    imports: set[str] = set()
    stars: list[str] = []
    for module, in_parentheses, on_line, plain in _IMPORT.findall(data):
        if plain:
            imports.update(part.split()[0].decode() for part in plain.split(b",") if part.strip())
            continue
        base = module.decode()
        imports.add(base)
        joint = "" if base.endswith(".") else "."
        names = _COMMENT.sub(b"", in_parentheses).decode(errors="replace") or on_line.decode()
        for name in (part.split()[0] for part in names.split(",") if part.strip()):
            if name == "*":
                stars.append(base)
            else:
                imports.add(f"{base}{joint}{name}")
    classes = {
        name.decode(): tuple(base.strip().decode() for base in bases.split(b","))
        for name, bases in _CLASS.findall(data)
    }
    to_classes = _to_classes(data)
    places, taking = scanned(data)
    low_precision = has_low_precision(data)
    attributes = _attributes(data)
    tried = {name.decode() for lines in _TRIED.findall(data) for name in re.findall(rb"\w+", lines)}
    if not imports and not classes and not places and not low_precision and not attributes:
        return None
    return Summary(
        path,
        frozenset(imports),
        tuple(stars),
        read=frozenset(name.decode() for name in _NAME.findall(data)) if stars else frozenset(),
        attributes=attributes,
        numbered=_numbered(data),
        classes=classes,
        to_classes=to_classes,
        get_device=b"def get_device(" in data,
        forks=_forks(data),
        low_precision=low_precision,
        scripted=_scripted(data),
        device_places=places,
        receivers=taking,
        passed=frozenset(passed_kinds(data)),
        tried=frozenset(tried),
    )


def _bases(classes: Iterable[ast.ClassDef]) -> dict[str, tuple[str, ...]]:
    """Return the bases of classes by their names; several classes may have one name."""
    found: dict[str, tuple[str, ...]] = {}
    for node in classes:
        found[node.name] = (*found.get(node.name, ()), *filter(None, map(dotted, node.bases)))
    return found


def own_method(facts: Facts, node: ast.ClassDef, name: str) -> bool:
    """Return whether a class has a method by its own code: in its body, or by `__getattr__`."""
    scope = facts.tree.scopes[node]
    if any(_is_method(binding) for binding in scope.bindings.get(name, ())):
        return True
    return any(
        _answers(binding.node, name)
        for hook in ("__getattr__", "__getattribute__")
        for binding in scope.bindings.get(hook, ())
    )


def _is_method(binding: Binding) -> bool:
    """Return whether what a class body binds may be a method: no property, no flag, no field."""
    match binding.node:
        case ast.FunctionDef(decorator_list=decorators) | ast.AsyncFunctionDef(decorator_list=decorators):
            return not any((dotted(each) or "").endswith("property") for each in decorators)
        case ast.AnnAssign(value=None) | ast.ClassDef():
            return False
    return not isinstance(binding.value, ast.Constant)


def _answers(hook: ast.AST, name: str) -> bool:
    """Return whether `__getattr__` may make a method: it compares names, or defines functions.

    One that only passes the name on to another object has both `cuda` and `to`, or neither.
    """
    return any(
        (isinstance(node, ast.Constant) and node.value == name)
        or (isinstance(node, (ast.Lambda, ast.FunctionDef)) and node is not hook)
        for node in ast.walk(hook)
    )


def _adds_cuda(facts: Facts) -> bool:
    """Return whether a function is stored under the name `cuda` elsewhere than in the body of a class.

    That is an attribute (`Batch.cuda = move`, also by `setattr`), or an item of what becomes a namespace
    (`type("Batch", (), {"cuda": move})`).
    """
    for path, bindings in facts.tree.attributes.items():
        if path.endswith(".cuda") and any(_is_function(facts, binding.value) for binding in bindings):
            return True
    for node in facts.tree.nodes_with("cuda"):
        match node:
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value="cuda"), value]):
                stored: list[ast.expr | None] = [value]
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="cuda"))], value=value):
                stored = [value]
            case ast.Assign(targets=[ast.Attribute(attr="cuda")], value=value):
                stored = [value]
            case ast.Dict(keys=keys, values=values):
                stored = [value for key, value in zip(keys, values, strict=True) if _is_cuda(key)]
            case ast.Call(keywords=keywords):
                stored = [keyword.value for keyword in keywords if keyword.arg == "cuda"]
            case _:
                continue
        if any(_is_function(facts, value) for value in stored):
            return True
    return False


def _is_cuda(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and key.value == "cuda"


def _is_function(facts: Facts, value: ast.expr | None) -> bool:
    """Return whether a value is a function of the module, or made of one: `partial(f)`, `property(f)`."""
    match value:
        case ast.Lambda():
            return True
        case ast.Name(id=name):
            found = facts.tree.scope(value).lookup(name)
            return found is not None and any(
                isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef))
                or isinstance(binding.value, ast.Lambda)
                for binding in found[1]
            )
        case ast.Attribute(attr=name):
            return any(name in scope.bindings for scope in facts.tree.scopes.values() if scope.is_class)
        case ast.Call(args=arguments):
            return any(_is_function(facts, argument) for argument in arguments)
    return False


# The driver reads these once, when `torch.cuda.is_available()` starts it, and torch its own one in that call:
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars. The excluded ones are for builds.
_OF_DRIVER = re.compile(
    r"CUDA_(?!HOME|PATH|ROOT|DIR|BIN|INC|LIB|VERSION|TOOLKIT|ARCH|NVCC)\w+"
    r"|PYTORCH_NVML_BASED_CUDA_CHECK|(?:HIP|ROCR)_VISIBLE_DEVICES"
)


def late_settings(facts: Facts) -> list[ast.stmt]:
    """Return the statements that set an environment variable of CUDA's driver where torch may be in use.

    They are below the import of torch, or in a function.
    """
    if not _OF_DRIVER.search(facts.source.text):
        return []
    first = min(
        (node.lineno for node in facts.tree.module.body if isinstance(node, (ast.Import, ast.ImportFrom))
         and any(_last_import(name) == "torch" for name in _imported(node))),
        default=None,
    )  # fmt: skip
    found: list[ast.stmt] = []
    for node in facts.tree.nodes_with("environ", "putenv"):
        if isinstance(node, ast.stmt) and any(map(_is_of_driver, _set_in_environment(facts, node))):
            in_function = facts.tree.scope(node).function is not None
            if in_function or (first is None or node.lineno > first):
                found.append(node)
    return found


def _set_in_environment(facts: Facts, statement: ast.stmt) -> Iterable[ast.AST]:
    """Return the expressions that hold the names of the environment variables that a statement sets."""
    match statement:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            items = [each for each in targets if isinstance(each, ast.Subscript)]
            keys = [each.slice for each in items if last_name(each.value) == "environ"]
            return [facts.value(key) or key for key in keys]
        case ast.AugAssign(target=target, value=value) if last_name(target) == "environ":
            return [value]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=attr)) as call):
            if attr == "putenv" or (
                last_name(owner) == "environ" and attr in ("setdefault", "update", "pop", "__setitem__")
            ):
                return [call]
    return []


def _is_of_driver(names: ast.AST) -> bool:
    return any(
        (isinstance(node, ast.Constant) and isinstance(node.value, str) and _OF_DRIVER.fullmatch(node.value))
        or (isinstance(node, ast.keyword) and node.arg is not None and _OF_DRIVER.fullmatch(node.arg))
        for node in ast.walk(names)
    )


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


def _cuda_extensions(facts: Facts) -> Iterator[str]:
    """Yield the names of the extensions that a module builds with CUDA, and under no condition.

    https://docs.pytorch.org/docs/stable/cpp_extension.html
    """
    for node in facts.tree.nodes_with("CUDAExtension("):
        if facts.call(node, "torch.utils.cpp_extension.CUDAExtension"):
            assert isinstance(node, ast.Call)
            keyword = (each.value for each in node.keywords if each.arg == "name")
            name = next(iter(node.args), None) or next(keyword, None)
            around = (parent for _, parent in facts.tree.ancestors(node))
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                if not any(isinstance(parent, (ast.If, ast.IfExp, ast.Try)) for parent in around):
                    yield name.value


def _last_import(name: str) -> str:
    return name.partition(".")[0]


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


def _attributes(data: bytes) -> frozenset[str]:
    """Return the attributes that a module may read, also in strings; methods that it calls are left out."""
    own = (b"self" + name for name in _OWN_ATTRIBUTE.findall(data)) if b"self" in data else ()
    return frozenset(name.decode() for name in {*_ATTRIBUTE.findall(data), *own})


def _scripted(data: bytes) -> frozenset[str]:
    """Return what TorchScript compiles of other files, for a module that is parsed only if it may do so."""
    if b"jit" not in data or b"script" not in data:
        return frozenset()
    try:
        return frozenset(TorchScript(Facts.read(data)).imported)
    except (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _numbered(data: bytes) -> frozenset[str]:
    """Return the names and attributes of which a module takes the number of a device."""
    if not any(word in data for word in (b"split(", b"partition(", b"[5:]", b"cuda")):
        return frozenset()
    starts = (found.start() for found in _NUMBERED.finditer(data))
    names = (_TAKEN_OF.search(data[max(0, start - 80) : start]) for start in starts)
    return frozenset(name[1].decode() for name in names if name is not None)


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


def _only_with_cuda(facts: Facts, node: ast.AST, value: ast.expr) -> bool:
    falsy = isinstance(value, ast.Constant) and not value.value
    return falsy or facts.guards.implies(value) or facts.is_guarded(node)


def _device(facts: Facts, name: str) -> bool:
    bindings = facts.tree.root.bindings[name]
    public = _public(facts)
    return (
        (public is None or name in public)
        and len(bindings) == 1
        and certain_device(facts, bindings[0].value)
        and facts.tree.parents.get(bindings[0].node) is facts.tree.module
    )
