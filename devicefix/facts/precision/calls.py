"""Find what a call returns, and whether two types meet in it."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from devicefix.facts.names import Names
from devicefix.facts.precision.dtypes import is_conversion, keyword
from devicefix.facts.precision.expressions import Expressions
from devicefix.facts.precision.tables import (
    CASTING,
    CASTING_FUNCTIONS,
    CONTAINERS,
    DECORATORS,
    EMBEDDINGS,
    FACTORIES,
    LAYERS,
    NORMS,
    SAME_FUNCTIONS,
    SAME_METHODS,
    TO,
)  # fmt: skip
from devicefix.facts.precision.values import Given, Module, Tensor, Value, converted, part_of, promoted
from devicefix.facts.scopes import Scope, with_defaults
from devicefix.facts.tree import walk


class Calls(Expressions):
    """The values of calls in one module."""

    @abstractmethod
    def _run(self, statements: Iterable[ast.stmt], given: Given) -> None:
        """Look at what statements evaluate without CUDA."""

    def _call(self, node: ast.Call, given: Given) -> Value | None:
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return None
        name = self._facts.resolve(node.func) or ""
        if name.startswith("torch."):
            return self._of_torch(node, name, given)
        if isinstance(node.func, ast.Attribute) and not name:
            owner = self.of(node.func.value, given)
            if owner is None and is_conversion(node):
                dtype = self._dtypes.target(node, node.func.attr)
                return Tensor(dtype) if dtype else None  # where a tensor is needed, this is one
            method = self._method(owner, node.func.attr, node, given)
            if method is not None or owner is None:
                return method
        definition = self._defined(node.func)
        if isinstance(definition, ast.ClassDef):
            return Module(definition=definition) if self._is_module(definition) else None
        if definition is not None:
            return self._returned(definition, self._arguments(definition, node, given))
        if name and "." in name:
            return Module(name, imported=True)
        return self._apply(self.of(node.func, given), node, given)

    def _of_torch(self, node: ast.Call, name: str, given: Given) -> Value | None:
        module, _, function = name.rpartition(".")
        if module == "torch.nn" and function == "Parameter":
            return self.of(node.args[0], given) if node.args else None
        if module == "torch.nn":
            return self._layer(node, function, given)
        if module == "torch" and function in FACTORIES:
            return self._dtypes.made(node)
        operands = [self.of(argument, given) for argument in node.args]
        if module in ("torch", "torch.nn.functional"):
            if function in CASTING_FUNCTIONS:
                return self._cast([*operands[:3], *(self.of(each.value, given) for each in node.keywords)])
            if function == "einsum":
                return self._cast(operands[1:])
            if (
                function in ("cat", "stack", "concat")
                and node.args
                and isinstance(node.args[0], (ast.List, ast.Tuple))
            ):
                return promoted([self.of(each, given) for each in node.args[0].elts])
            if function in SAME_FUNCTIONS and operands and not keyword(node, "dtype"):
                return operands[0]
        return None

    def _layer(self, node: ast.Call, name: str, given: Given) -> Value | None:
        """Return a module of torch.nn."""
        if name in CONTAINERS:
            elements = node.args
            if name == "ModuleList" or len(elements) == 1:
                elements = _listed(node.args[0]) if node.args else []
            return Module(name, parts=tuple(self.of(each, given) for each in elements))
        if name == "ModuleDict" and node.args:
            pairs = _pairs(node.args[0])
            return Module(name, keys=tuple((key, self.of(value, given)) for key, value in pairs))
        made = self._dtypes.made(node)
        dtype = made.dtype if made is not None else None
        return Module(name, "" if dtype == "float32" else dtype)

    def _method(self, owner: Value | None, method: str, node: ast.Call, given: Given) -> Value | None:
        """Return the result of a method."""
        if owner is None:
            return None
        if method in ("to", "type", *TO):
            dtype = self._dtypes.target(node, method)
            return owner if dtype == "" else converted(owner, dtype)
        if method in SAME_METHODS:
            return owner
        if isinstance(owner, Tensor):
            if method in ("matmul", "mm", "bmm") and node.args:
                return self._cast([owner, self.of(node.args[0], given)])
            return None
        if method == "forward":
            return self._apply(owner, node, given)
        value = self._attribute(owner, method)
        if value is None and owner.definition is not None:
            function = self._function(owner.definition, method)
            if function is not None:
                return self._returned(function, {**self._arguments(function, node, given), "self": owner})
        return self._apply(value, node, given)

    def _apply(self, module: Value | None, node: ast.Call, given: Given) -> Value | None:
        """Return the result of a call of a module."""
        if not isinstance(module, Module):
            return None
        if module.definition is not None and node.keywords:
            function = self._function(module.definition, "forward")
            inner = self._arguments(function, node, given) if function is not None else {}
            return (
                self._returned(function, {**inner, "self": module})
                if function and module.dtype is not None
                else None
            )
        if module.imported:
            self._found |= module.dtype == "" and self._is_mixing(module.name)
            return None
        operands = [self.of(argument, given) for argument in node.args]
        return self._through(module, operands)

    def _through(self, module: Value | None, operands: Sequence[Value | None]) -> Value | None:
        """Return what a module of torch.nn makes of its arguments."""
        first = operands[0] if operands else None
        if not isinstance(module, Module) or module.dtype is None:
            return None
        if module.name == "Sequential":
            for each in module.parts:
                first = self._through(part_of(module, each), [first])
            return first
        if module.definition is not None:
            return self._forward(module, operands)
        weights = Tensor(module.dtype or "float32")
        if module.name in EMBEDDINGS:
            return weights
        if module.name in CASTING:
            return self._cast([first, weights])
        if module.name in NORMS:
            return first if module.dtype == "" or first == weights else None
        return first if module.name in LAYERS else None

    def _forward(self, module: Module, operands: Sequence[Value | None]) -> Value | None:
        """Return the result of a module of a class that the module defines."""
        function = self._function(module.definition, "forward") if module.definition is not None else None
        if function is None or module.dtype is None:
            return None
        given: dict[str, Value | None] = {arg.arg: None for arg, _ in with_defaults(function.args)}
        given.update(zip([arg.arg for arg in function.args.args[1:]], operands, strict=False))
        return self._returned(function, {**given, "self": module})

    def _function(self, owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
        found = self._tree.scopes[owner].bindings.get(name, ()) if owner in self._tree.scopes else ()
        function = found[0].node if len(found) == 1 else None
        return function if isinstance(function, ast.FunctionDef) else None

    def _returned(self, function: ast.FunctionDef | ast.AsyncFunctionDef, given: Given) -> Value | None:
        """Return what a function returns, and look at what it does."""
        decorators = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
        if function in self._asked or any(self._facts.resolve(each) not in DECORATORS for each in decorators):
            return None
        self._asked.add(function)
        try:
            self._run(function.body, given)
            last = function.body[-1]
            value = last.value if isinstance(last, ast.Return) else None
            if value is None or self._facts.once(_returns_early, self._tree.scopes[function]):
                return None
            return self.of(value, given)
        finally:
            self._asked.discard(function)

    def _arguments(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.Call, given: Given
    ) -> dict[str, Value | None]:
        """Return the values of the parameters of a function in a call."""
        plain = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(self._tree.parents.get(function), ast.ClassDef):
            plain = plain[1:]
        names: dict[str, Value | None] = {
            arg.arg: None for arg, default in with_defaults(function.args) if default is not None
        }
        names.update(zip(plain, (self.of(each, given) for each in node.args), strict=False))
        names.update((each.arg, self.of(each.value, given)) for each in node.keywords if each.arg)
        return names

    def _defined(self, node: ast.expr) -> ast.ClassDef | ast.FunctionDef | None:
        """Return the class or function of the module that a name refers to."""
        found = self._tree.scope(node).lookup(node.id) if isinstance(node, ast.Name) else None
        definition = found[1][0].node if found is not None and len(found[1]) == 1 else None
        return definition if isinstance(definition, (ast.ClassDef, ast.FunctionDef)) else None

    def _is_module(self, definition: ast.ClassDef) -> bool:
        return any(self._facts.resolve(base) == "torch.nn.Module" for base in definition.bases)


def _listed(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a list; of a comprehension the one that it makes."""
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return elements
        case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
            return [element]
    return []


def _pairs(node: ast.expr) -> list[tuple[str, ast.expr]]:
    """Return the names and values of a dictionary."""
    match node:
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return [(str(key.value), value) for key, value in pairs if isinstance(key, ast.Constant)]
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return [(each.arg, each.value) for each in keywords if each.arg]
    return []


def _returns_early(_facts: Names, scope: Scope) -> bool:
    """Return whether a function may return before its last statement."""
    assert isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return any(isinstance(each, ast.Return) for part in scope.node.body[:-1] for each in walk(part))
