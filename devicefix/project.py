"""Facts that need more than one file: star imports, classes with their own cuda(), late settings."""

from __future__ import annotations

import ast
import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from devicefix.facts import Facts, dotted
from devicefix.facts.values import current_device, device_name, last_name
from devicefix.gate import may_matter
from devicefix.source import DecodeError


@dataclass(frozen=True, slots=True)
class Summary:
    """What the other files of a project need to know of one.

    Attributes:
        path: where the file is.
        imports: the modules it imports, absolute (`a.b`) or relative (`..b`).
        star_imports: those of them that it imports everything from.
        bound: the names bound at the top of the module.
        devices: those of them that are the current CUDA device or else the CPU.
        read: the names that the module reads, where it has star imports.
        classes: the names of the base classes of every class.
        cuda_classes: the classes that define a method `cuda`.
        late: whether CUDA_VISIBLE_DEVICES is set after torch has been imported.
        forks: whether processes are forked, which CUDA does not survive once it was asked for.
        options: the command line's options, each with its type.
        flags: attributes of objects that the module sets; true for those that only CUDA makes true.
        made: names and attributes that are assigned an object of a class, each with the class.
        functions: functions that take a device, with the names of their parameters; classes likewise.
    """

    path: str
    imports: frozenset[str] = frozenset()
    star_imports: tuple[str, ...] = ()
    bound: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cuda_classes: frozenset[str] = frozenset()
    late: bool = False
    forks: bool = False
    options: frozenset[tuple[str, str]] = frozenset()
    flags: dict[str, bool] = field(default_factory=dict)
    made: frozenset[tuple[str, str]] = frozenset()
    functions: frozenset[tuple[str, tuple[str, ...]]] = frozenset()


def summarize(data: bytes, path: str) -> Summary | None:
    """Sum up a file for the others of its project.

    Returns:
        None where the file can't matter to them, or does not parse. Of a file without a word of CUDA's
        only what it imports and its classes, so that others can be followed through it.
    """
    if not may_matter(data) and b"CUDA_VISIBLE_DEVICES" not in data:
        return passed_through(data, path)
    try:
        return summary_of(Facts.read(data), path)
    except (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def summary_of(facts: Facts, path: str) -> Summary:
    """Sum up a module whose facts are known."""
    root = facts.tree.root
    classes = {node.name: node for node in facts.tree.scopes if isinstance(node, ast.ClassDef)}
    return Summary(
        path=path,
        imports=frozenset(_imports(facts)),
        star_imports=tuple(facts.tree.star_imports),
        bound=frozenset(root.bindings),
        devices=frozenset(name for name in root.bindings if _device(facts, name)),
        read=frozenset(facts.tree.loads) if facts.tree.star_imports else frozenset(),
        classes={name: tuple(filter(None, map(dotted, node.bases))) for name, node in classes.items()},
        cuda_classes=frozenset(name for name, node in classes.items() if defines_cuda(node)),
        late=bool(late_settings(facts)),
        forks=_forks(facts.source.text.encode()),
        options=facts.options,
        flags=_flags(facts),
        made=frozenset(_made(facts)),
        functions=frozenset(_taking_devices(facts)),
    )


# They begin with a line end, which is found several times as fast as the beginning of a line.
_IMPORT = re.compile(rb"\n[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+([\w, \t]*)|import[ \t]+([\w., \t]+))")
_CLASS = re.compile(rb"\n[ \t]*class[ \t]+(\w+)[ \t]*\(([\w., \t]+)\)")


def passed_through(data: bytes, path: str) -> Summary | None:
    """What a file that does not matter itself imports, and its classes: found without parsing it."""
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
    if not imports and not classes:
        return None
    return Summary(path, frozenset(imports), classes=classes, forks=_forks(data))


def defines_cuda(node: ast.ClassDef) -> bool:
    """Whether a class has a method `cuda` of its own."""
    return any(isinstance(each, ast.FunctionDef) and each.name == "cuda" for each in node.body)


def late_settings(facts: Facts) -> list[ast.stmt]:
    """The statements that set CUDA_VISIBLE_DEVICES after torch has been imported, or in a function."""
    if "CUDA_VISIBLE_DEVICES" not in facts.source.text:
        return []
    first = min(
        (node.lineno for node in facts.tree.module.body if isinstance(node, (ast.Import, ast.ImportFrom))
         and any(_last_import(name) == "torch" for name in _imported(node))),
        default=None,
    )  # fmt: skip
    found: list[ast.stmt] = []
    for node in facts.tree.nodes:
        if isinstance(node, (ast.Assign, ast.Expr)) and _sets_visible_devices(node):
            in_function = facts.tree.scope(node).function is not None
            if in_function or (first is None or node.lineno > first):
                found.append(node)
    return found


_FORKING = re.compile(rb"\bProcess\b|\bPool\(|ProcessPoolExecutor|os\.fork\(")
_NOT_FORKING = re.compile(rb"(set_start_method|get_context|start_method)[^\n]*(spawn|forkserver)")


def _forks(data: bytes) -> bool:
    """Whether a module starts processes that get a copy of this one's memory.

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
    for node in facts.tree.parents:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _imported(node)


def _flags(facts: Facts) -> dict[str, bool]:
    """The attributes of `self` whose names speak of CUDA, and whether they are true only with it."""
    found: dict[str, bool] = {}
    for path, bindings in facts.tree.attributes.items():
        start, _, name = path.rpartition(".")
        if start == "self" and re.search("cuda|gpu", name):
            found[name] = all(
                binding.value is not None and _only_with_cuda(facts, binding.node, binding.value)
                for binding in bindings
            )
    return found


def _only_with_cuda(facts: Facts, node: ast.AST, value: ast.expr) -> bool:
    facts.tree.look_into(node)
    falsy = isinstance(value, ast.Constant) and not value.value
    return falsy or facts.guards.implies(value) or facts.guarded(node)


def _made(facts: Facts) -> Iterator[tuple[str, str]]:
    named = [*facts.tree.attributes.items()]
    named += [item for scope in tuple(facts.tree.scopes.values()) for item in scope.bindings.items()]
    for path, bindings in named:
        for binding in bindings:
            if isinstance(binding.value, ast.Call):
                for part in (dotted(binding.value.func) or "").split("."):
                    if part[:1].isupper():
                        yield path.rpartition(".")[2], part


def _taking_devices(facts: Facts) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in facts.tree.scopes:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        names = tuple(arg.arg for arg in (*node.args.posonlyargs, *node.args.args))
        if not any(map(device_name, names)):
            continue
        numbers = _compared(facts, node)
        names = tuple("" if name in numbers else name for name in names)
        owner = facts.tree.parents.get(node)
        if isinstance(owner, ast.ClassDef):
            yield (owner.name if node.name == "__init__" else node.name), names[1:]
        else:
            yield node.name, names


_OF_NUMBERS = ("int", "isinstance", "range")


def _compared(facts: Facts, function: ast.AST) -> set[str]:
    """The names that a function compares or computes with: if a device is among them, it may be a number."""
    found: set[str] = set()
    scope = facts.tree.scopes[function]
    for node in facts.tree.nodes:
        if isinstance(node, ast.Name) and node.id in scope.bindings and facts.tree.scope(node) is scope:
            parent = facts.tree.parents.get(node)
            numeric = isinstance(parent, ast.Call) and last_name(parent.func) in _OF_NUMBERS
            if numeric or isinstance(parent, (ast.BinOp, ast.Subscript, ast.FormattedValue, ast.List)):
                found.add(node.id)
            elif isinstance(parent, ast.Compare):
                others = [parent.left, *parent.comparators]
                if any(isinstance(each, ast.Constant) and isinstance(each.value, int) for each in others):
                    found.add(node.id)
    return found


def _device(facts: Facts, name: str) -> bool:
    bindings = facts.tree.root.bindings[name]
    for binding in bindings:
        facts.tree.look_into(binding.node)
    return (
        len(bindings) == 1
        and current_device(facts, bindings[0].value)
        and facts.tree.parents.get(bindings[0].node) is facts.tree.module
    )


def candidates(path: str, module: str) -> Iterator[str]:
    """Where the module that an import in the file at `path` names may be: beside the file, or further up."""
    level = len(module) - len(module.lstrip("."))
    parts = [part for part in module.split(".") if part]
    folder = os.path.dirname(os.path.normpath(path))
    for _ in range(level - 1):
        folder = os.path.dirname(folder)
    while parts:
        stem = os.path.join(folder, *parts)
        yield os.path.normpath(f"{stem}.py")
        yield os.path.normpath(os.path.join(stem, "__init__.py"))
        if level or not folder or folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


Question = tuple[str, ...]
Answers = dict[Question, Any]
Method = TypeVar("Method", bound=Callable[..., Any])


def _remembered(method: Method) -> Method:
    """A question to a project: it and its answer are written down."""

    @wraps(method)
    def ask(self: Project, *args: Any) -> Any:
        question = (method.__name__, *args)
        if question not in self.answers:
            self.answers[question] = method(self, *args)
        return self.answers[question]

    return cast(Method, ask)


class Project:
    """The facts of all files together.

    Attributes:
        answers: what was asked of the project, and what it answered. Where another project answers the
            same, whoever asked comes to the same conclusion.
    """

    def __init__(self, summaries: Iterable[Summary] = (), supposed_own_cuda: bool = False) -> None:
        self._supposed_own_cuda = supposed_own_cuda
        self.answers: Answers = {}
        self.files = {os.path.normpath(summary.path): summary for summary in summaries}
        self.cuda_classes = self._with_subclasses()
        made = (pair for summary in self.files.values() for pair in summary.made)
        self.cuda_names = frozenset(name for name, kind in made if kind in self.cuda_classes)
        self.functions: dict[str, set[tuple[str, ...]]] = {}
        for summary in self.files.values():
            for name, parameters in summary.functions:
                self.functions.setdefault(name, set()).add(parameters)
        options = {option for summary in self.files.values() for option in summary.options}
        self.integer_options = frozenset(
            {name for name, kind in options if kind == "int"}
            - {name for name, kind in options if kind != "int"}
        )
        flags: dict[str, bool] = {}
        for summary in self.files.values():
            for name, implies in summary.flags.items():
                flags[name] = flags.get(name, True) and implies
        self.flags = frozenset(name for name, implies in flags.items() if implies)
        self.late = self._imported_too_early({path for path, each in self.files.items() if each.late})
        self.forks = self._imported_too_early({path for path, each in self.files.items() if each.forks})
        self.star_importers: dict[str, list[Summary]] = {}
        for summary in self.files.values():
            for module in summary.star_imports:
                target = self.find(summary.path, module)
                if target is not None:
                    self.star_importers.setdefault(os.path.normpath(target.path), []).append(summary)

    @classmethod
    def of(cls, summaries: Iterable[Summary | None]) -> Project:
        """Put the files' summaries together."""
        return cls(summary for summary in summaries if summary is not None)

    @classmethod
    def alone(cls, summary: Summary, among: int) -> Project:
        """One file by itself, before the others are known.

        Args:
            summary: the file's.
            among: how many files there are. In so many, some class mostly has a `cuda` of its own; where
                that turns out to be wrong, the file is looked at again.
        """
        return cls([summary], supposed_own_cuda=among > 500)

    def agrees(self, answers: Answers) -> bool:
        """Whether this project gives the same answers as another did."""
        return all(getattr(self, name)(*args) == answer for (name, *args), answer in answers.items())

    @_remembered
    def has_own_cuda(self) -> bool:
        """Whether any class has a `cuda` of its own."""
        return self._supposed_own_cuda or bool(self.cuda_classes)

    @_remembered
    def is_cuda_class(self, name: str) -> bool:
        """Whether a class of this name has a `cuda` of its own."""
        return name in self.cuda_classes

    @_remembered
    def holds_cuda_object(self, name: str) -> bool:
        """Whether a name or attribute is assigned an object of such a class somewhere."""
        return name in self.cuda_names

    @_remembered
    def is_integer_option(self, name: str) -> bool:
        """Whether the command line's options of this name are ints."""
        return name in self.integer_options

    @_remembered
    def is_flag(self, name: str) -> bool:
        """Whether an attribute is set, and only to what is true only with CUDA."""
        return name in self.flags

    @_remembered
    def is_late(self, path: str) -> bool:
        """Whether a file must not ask for CUDA as it is imported: CUDA_VISIBLE_DEVICES is set later."""
        return os.path.normpath(path) in self.late

    @_remembered
    def is_forked(self, path: str) -> bool:
        """The same, since processes are forked later."""
        return os.path.normpath(path) in self.forks

    @_remembered
    def has_module(self, path: str, module: str) -> bool:
        """Whether an import in the file at `path` reads a file of the project."""
        return self.find(path, module) is not None

    @_remembered
    def has_function(self, name: str) -> bool:
        """Whether the project has a function of this name that takes a device."""
        return name in self.functions

    def find(self, path: str, module: str) -> Summary | None:
        """The file that an import in the file at `path` reads, if it is one of the project's."""
        named = self._named.get(module.rpartition(".")[2])
        if named is None:  # most imports are of other projects
            return None
        if module.startswith("."):
            return next((self.files[name] for name in candidates(path, module) if name in self.files), None)
        # The same as by `candidates`, the nearest one, from the end of the path: that is ten times as fast.
        folder = os.path.join(os.path.dirname(os.path.normpath(path)), "")
        stem = module.replace(".", os.sep)
        found = [
            (len(file) - len(end), file)
            for end in (f"{stem}.py", os.path.join(stem, "__init__.py"))
            for file in named
            if file.endswith(end) and folder.startswith(file[: len(file) - len(end)])
            if len(file) == len(end) or file[-len(end) - 1] == os.sep
        ]
        return self.files[max(found, key=lambda each: each[0])[1]] if found else None

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        """The project's files by the last parts of their modules' names."""
        named: dict[str, list[str]] = {}
        for path in self.files:
            *_, folder, name = ["", *os.path.splitext(path)[0].split(os.sep)]
            named.setdefault(folder if name == "__init__" and folder else name, []).append(path)
        return named

    @_remembered
    def takes_device(self, function: str, position: int) -> bool:
        """Whether all the project's functions of a name that take a device take it at a position."""
        known = self.functions.get(function, ())
        return bool(known) and all(position < len(names) and device_name(names[position]) for names in known)

    @_remembered
    def takes_device_called(self, function: str, keyword: str) -> bool:
        """Whether all the project's functions of a name that take a device take one of this keyword."""
        known = self.functions.get(function, ())
        return bool(known) and all(keyword in names for names in known)

    @_remembered
    def star_names(self, path: str) -> dict[str, bool]:
        """Names that star imports bring into a file; true for those that are a device."""
        summary = self.files.get(os.path.normpath(path))
        names: dict[str, bool] = {}
        if summary is not None:
            for module in summary.star_imports:
                target = self.find(path, module)
                if target is not None:
                    names |= {name: name in target.devices for name in target.bound if name[0] != "_"}
        return names

    @_remembered
    def carried(self, path: str, name: str) -> bool:
        """Whether a new name at the top of a file would travel to where it means something else."""
        if name.startswith("_"):
            return False
        importers = self.star_importers.get(os.path.normpath(path), ())
        return any(name in each.bound or name in each.read for each in importers)

    def _with_subclasses(self) -> frozenset[str]:
        bases: dict[str, set[str]] = {}
        own: set[str] = set()
        for summary in self.files.values():
            own |= summary.cuda_classes
            for name, names in summary.classes.items():
                bases.setdefault(name, set()).update(base.rpartition(".")[2] for base in names)
        while True:
            more = {name for name, names in bases.items() if names & own} - own
            if not more:
                return frozenset(own)
            own |= more

    def _imported_too_early(self, start: set[str]) -> frozenset[str]:
        """The files that must not ask for CUDA as they are imported.

        They are those of `start`, those that import such a file, since they may call it, and all that any of
        these import.
        """
        if not start:
            return frozenset()
        importers: dict[str, set[str]] = {}
        for path, targets in self._imported.items():
            for target in targets:
                importers.setdefault(target, set()).add(path)
        return _closure(_closure(start, importers), self._imported)

    @cached_property
    def _imported(self) -> dict[str, set[str]]:
        return {path: self._imported_files(summary) for path, summary in self.files.items()}

    def _imported_files(self, summary: Summary) -> set[str]:
        found = (self.find(summary.path, module) for module in summary.imports)
        return {os.path.normpath(target.path) for target in found if target is not None}


def _closure(start: Iterable[str], following: Mapping[str, set[str]]) -> frozenset[str]:
    """All that is reached from a start."""
    reached = set(start)
    todo = list(reached)
    while todo:
        more = following.get(todo.pop(), set()) - reached
        reached |= more
        todo.extend(more)
    return frozenset(reached)
