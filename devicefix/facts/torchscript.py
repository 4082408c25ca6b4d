"""The functions of a module that TorchScript compiles, which can't use globals or ask for CUDA.

https://docs.pytorch.org/docs/stable/jit_language_reference.html; with torch 2.13 a global device doesn't
compile, nor does `torch.cuda.is_available()`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from devicefix.facts.names import Names

_SCRIPTS = ("torch.jit.script", "torch.jit.script_if_tracing")
_COMPILES = {*_SCRIPTS, "torch.jit.script_method", "torch.jit.export"}
_LEAVES = {"torch.jit.ignore", "torch.jit.unused"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class TorchScript:
    """What TorchScript compiles of a module: at least what it does, where the object is not known.

    Args:
        facts: The module's names.

    Attributes:
        functions: The functions and methods.
    """

    def __init__(self, facts: Names) -> None:
        self.functions: set[Function] = set()
        self._facts = facts
        self._classes: set[ast.ClassDef] = set()
        self._attributes: set[str] = {"forward"}  # what compiled code reads of objects
        if "jit" not in facts.source.text:
            return
        for node in facts.tree.scopes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and self._has(node, _COMPILES):
                self._compile(node)
            elif isinstance(node, ast.ClassDef) and self._has(node, _COMPILES):
                self._compile_class(node)
        for call in facts.tree.nodes_with("script"):
            if isinstance(call, ast.Call) and facts.call(call, *_SCRIPTS) and call.args:
                self._script(call.args[0])

    def compiles(self, node: ast.AST) -> bool:
        """Return whether a node is in the body of a function that is compiled."""
        if not self.functions:
            return False
        return any(scope.node in self.functions for scope in self._facts.tree.scope(node).chain())

    def _script(self, node: ast.expr) -> None:
        """Compile what is passed to `torch.jit.script`; all modules of the file where it is not known."""
        value = self._facts.value(node)
        known = list(self._defined([node] if value is None else [node, value]))
        if not known:
            known = [each for each in self._facts.tree.scopes if isinstance(each, ast.ClassDef)]
        for each in known:
            self._module(each) if isinstance(each, ast.ClassDef) else self._compile(each)

    def _module(self, node: ast.ClassDef) -> None:
        """Compile the methods of a class of modules that compiled code reaches, and of the modules in it."""
        if node in self._classes:
            return
        self._classes.add(node)
        for method in _methods(node):
            if method.name in self._attributes:
                self._compile(method)
        makes = [method for method in _methods(node) if method.name == "__init__"]
        for other in self._defined([*node.bases, *makes]):
            if isinstance(other, ast.ClassDef):
                self._module(other)

    def _compile_class(self, node: ast.ClassDef) -> None:
        for method in _methods(node):
            self._compile(method)

    def _compile(self, node: Function) -> None:
        """Compile a function, and what it reads."""
        if node in self.functions or self._has(node, _LEAVES):
            return
        self.functions.add(node)
        for other in self._defined(node.body):
            self._compile_class(other) if isinstance(other, ast.ClassDef) else self._compile(other)
        read = {each.attr for part in node.body for each in ast.walk(part) if isinstance(each, ast.Attribute)}
        self._attributes |= read
        for owner in tuple(self._classes):
            for method in _methods(owner):
                if method.name in read:
                    self._compile(method)

    def _has(self, node: Function | ast.ClassDef, decorators: Collection[str]) -> bool:
        plain = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
        return any((self._facts.resolve(each) or "") in decorators for each in plain)

    def _defined(self, nodes: Iterable[ast.AST]) -> Iterator[Function | ast.ClassDef]:
        """Yield the functions and classes of the module whose names some nodes read."""
        for node in nodes:
            for each in ast.walk(node):
                found = self._facts.tree.scope(each).lookup(each.id) if isinstance(each, ast.Name) else None
                for binding in found[1] if found is not None else ():
                    if isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                        yield binding.node


def _methods(node: ast.ClassDef) -> Iterator[Function]:
    return (each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
