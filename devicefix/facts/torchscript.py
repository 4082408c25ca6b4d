"""The functions of a module that TorchScript compiles, which can't use globals or ask for CUDA.

https://docs.pytorch.org/docs/stable/jit_language_reference.html; with torch 2.13 a global device doesn't
compile, nor does `torch.cuda.is_available()`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from devicefix.facts.names import Names
from devicefix.facts.scopes import DEFINITIONS, Binding, Function
from devicefix.facts.tree import TRIES, walk
from devicefix.facts.values import without_call

_SCRIPTS = ("torch.jit.script", "torch.jit.script_if_tracing")
_COMPILES = {*_SCRIPTS, "torch.jit.script_method", "torch.jit.export"}
_LEAVES = {"torch.jit.ignore", "torch.jit.unused"}
# A function with one of these can't be compiled (measured with torch 2.13).
_PYTHON = (
    *TRIES, *DEFINITIONS, ast.Import, ast.ImportFrom, ast.Global, ast.Match, ast.Lambda, ast.NamedExpr,
    ast.Set, ast.SetComp, ast.Yield,
)  # fmt: skip
A_MODULE = ""
EVERYTHING = "*"

Definition = Function | ast.ClassDef


class TorchScript:
    """Find what TorchScript compiles of a module: at least what it does, where the object is not known.

    Args:
        facts: The module's names.
        named: The functions and classes that other files let TorchScript compile: `EVERYTHING` for all,
            `A_MODULE` for a module of unknown class.

    Attributes:
        functions: The functions and methods.
        imported: The full names of what is compiled of other files, with `()` for an instance of a class or
            what a function returns; `A_MODULE` for a module of unknown class.
    """

    def __init__(self, facts: Names, named: Collection[str] = ()) -> None:
        self.functions: set[Function] = set()
        self.imported: set[str] = set()
        self._facts = facts
        self._classes: set[ast.ClassDef] = set()
        self._attributes: set[str] = {"forward"}  # what compiled code reads of objects
        for name in named:
            for definition in self._all() if name == EVERYTHING else self._defined([name]):
                self._module(definition)
        if A_MODULE in named:
            self._any_module()
        if "jit" not in facts.source.text:
            return
        for node in facts.tree.scopes:
            if isinstance(node, Definition) and self._has(node, _COMPILES):
                self._compile(node)
        for call in facts.tree.nodes_with("script"):
            if facts.call(call, *_SCRIPTS) and call.args:
                self._script(call.args[0])

    def compiles(self, node: ast.AST) -> bool:
        """Return whether a node is in the body of a function that is compiled."""
        if not self.functions:
            return False
        return any(scope.node in self.functions for scope in self._facts.tree.scope(node).chain())

    def _script(self, node: ast.expr) -> None:
        """Compile what is passed to `torch.jit.script`; all modules of the file where it is not known."""
        value = self._facts.value(node)
        values = [node, *([value] if value is not None else [])]
        known = list(self._read(values))
        imported = set(self._imports(values, made=True))
        self.imported |= imported or ({A_MODULE} if not known else set())
        for each in known:
            self._module(each)
        if not known and not imported:
            self._any_module()

    def _any_module(self) -> None:
        for each in self._all():
            if isinstance(each, ast.ClassDef):
                self._module(each)

    def _all(self) -> Iterator[Definition]:
        """Yield the functions and classes of the module."""
        return self._defined(tuple(self._facts.tree.root.bindings))

    def _imports(self, nodes: Iterable[ast.AST], *, made: bool = False) -> Iterator[str]:
        """Yield the full names of what some code reads of other files.

        Args:
            nodes: the code.
            made: whether it makes what is compiled, so that a call stands for its result.
        """
        for node in nodes:
            nodes = list(walk(node))
            called = {each.func for each in nodes if made and isinstance(each, ast.Call)}
            inner = {each.value for each in nodes if isinstance(each, ast.Attribute)}
            for each in nodes:
                if isinstance(each, (ast.Name, ast.Attribute)) and each not in inner:
                    name = self._facts.resolve(each)
                    if name is not None and name.partition(".")[0] != "torch":
                        yield f"{name}()" if each in called else name

    def _module(self, node: Definition) -> None:
        """Compile a function, or what is reached of a class of modules, and of the modules in it."""
        if not isinstance(node, ast.ClassDef):
            self._compile(node)
        elif node not in self._classes:
            self._classes.add(node)
            for method in _methods(node):
                if method.name in self._attributes:
                    self._compile(method)
            makes = [method for method in _methods(node) if method.name == "__init__"]
            self.imported.update((*self._imports(node.bases), *self._imports(makes, made=True)))
            for other in self._read([*node.bases, *makes]):
                if isinstance(other, ast.ClassDef):
                    self._module(other)

    def _compile(self, node: Definition) -> None:
        """Compile a function and what it reads, or all methods of a class."""
        if isinstance(node, ast.ClassDef):
            for method in _methods(node):
                self._compile(method)
        elif node not in self.functions and not self._has(node, _LEAVES) and _may_compile(node):
            self.functions.add(node)
            self.imported.update(self._imports(node.body))
            for other in self._read(node.body):
                self._compile(other)
            read = {each.attr for part in node.body for each in walk(part) if isinstance(each, ast.Attribute)}
            self._attributes |= read
            for method in [each for owner in self._classes for each in _methods(owner) if each.name in read]:
                self._compile(method)

    def _has(self, node: Definition, decorators: Collection[str]) -> bool:
        return any(self._facts.resolve(without_call(each)) in decorators for each in node.decorator_list)

    def _defined(self, names: Iterable[str]) -> Iterator[Definition]:
        """Yield the functions and classes of the module that have some names."""
        for name in names:
            yield from _definitions(self._facts.tree.root.bindings.get(name, ()))

    def _read(self, nodes: Iterable[ast.AST]) -> Iterator[Definition]:
        """Yield the functions and classes of the module whose names some nodes read."""
        for node in nodes:
            for each in walk(node):
                yield from _definitions(self._facts.tree.bound(each))


def _definitions(bindings: Iterable[Binding]) -> Iterator[Definition]:
    for binding in bindings:
        if isinstance(binding.node, Definition):
            yield binding.node


def _may_compile(node: Function) -> bool:
    """Return whether a function has only what TorchScript accepts, which reads unused code as well."""
    arguments = node.args
    if arguments.vararg or arguments.kwarg or any(arguments.kw_defaults):
        return False
    return not any(isinstance(each, _PYTHON) for part in node.body for each in ast.walk(part))


def _methods(node: ast.ClassDef) -> Iterator[Function]:
    return (each for each in node.body if isinstance(each, Function))
