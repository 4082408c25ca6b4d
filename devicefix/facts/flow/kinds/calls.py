"""Infer the kinds of the result of a call: of a function of torch, a method, or a function of the module."""

from __future__ import annotations

import ast

from devicefix.facts.flow.kinds.inference import DEPTH
from devicefix.facts.flow.kinds.kind import NUMBERS, UNKNOWN, Kind, Kinds, union
from devicefix.facts.flow.kinds.library import (
    OF_CALLS,
    OF_TENSORS,
    OPTIONS,
    SAME,
    STORAGES,
    WRAPPERS,
    of_torch,
)
from devicefix.facts.flow.kinds.objects import Objects, put_into
from devicefix.facts.flow.reaching import reaching
from devicefix.facts.names import Names
from devicefix.facts.scopes import Function, Scope
from devicefix.facts.texts import text_of
from devicefix.facts.tree import children, statements_in
from devicefix.facts.values import cpu, last_name

YIELDED = "yield"  # the part of the result of a generator that each element is; no name of another part


class Calls(Objects):
    """The kinds of calls."""

    def _call(self, node: ast.Call, depth: int) -> Kinds:
        name = self._facts.resolve(node.func)
        if name is None and isinstance(node.func, ast.Name) and self._is_builtin(node.func):
            name = node.func.id
        if name == "torch.device":
            return self._device(node, depth)
        if name in ("max", "min", "abs"):
            numbers = union(self._parts(argument, depth) for argument in node.args)
            return numbers if numbers.shown(NUMBERS) else numbers | UNKNOWN
        if name == "getattr":
            stored = self._named(text_of(node.args[1]) or "", depth) if len(node.args) > 1 else UNKNOWN
            return union([stored, *(self.of(default, depth) for default in node.args[2:])]) | UNKNOWN
        if name in OF_CALLS:
            return Kinds({OF_CALLS[name]: node})
        if name is not None and name.startswith("torch."):
            return of_torch(node, name)
        if name is not None and (known := self._of_result(node)) is not None:
            return known
        if isinstance(node.func, ast.Attribute):
            method = self._method(node, node.func, depth)
            if method is not None:
                return method
        return self._made(node, depth)

    def _device(self, node: ast.Call, depth: int) -> Kinds:
        if cpu(self._facts, node):
            return Kinds({Kind.CPU: node})
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if not arguments or isinstance(arguments[0], ast.Starred):
            return Kinds({Kind.DEVICE: node})
        certain = self.of(arguments[0], depth).are({Kind.CUDA, Kind.INDEX, Kind.COUNT})
        return Kinds({Kind.CUDA if certain else Kind.DEVICE: node})

    def _method(self, node: ast.Call, function: ast.Attribute, depth: int) -> Kinds | None:
        """Return the kinds of the result of a method of a tensor or module, None for other objects."""
        if function.attr in STORAGES:
            return Kinds({Kind.STORAGE: node})
        if function.attr == "parse_args":
            return Kinds({Kind.OBJECT: node}, classes=frozenset({OPTIONS}))
        if function.attr not in SAME and function.attr not in OF_TENSORS and function.attr != "get_device":
            return None
        receiver = self.of(function.value, depth).without(Kind.NONE)  # which has no such method
        if function.attr in SAME:
            return receiver if receiver.are({Kind.TENSOR, Kind.MODULE, Kind.STORAGE}) else None
        if receiver.are({Kind.TENSOR}):
            return Kinds({Kind.INDEX if function.attr == "get_device" else Kind.TENSOR: node})
        return None

    def _made(self, node: ast.Call, depth: int) -> Kinds:
        """Return the kinds of what a class or function of the module returns."""
        if isinstance(node.func, ast.Lambda):
            return self.of(node.func.body, depth)
        if isinstance(node.func, ast.Name):
            bindings = reaching(self._facts.tree, node.func, self._facts.tree.bound(node.func))
            if len(bindings) == 1:
                definition, value = bindings[0].node, bindings[0].value
                if isinstance(definition, Function):
                    return self.returned(definition, depth)
                if isinstance(value, ast.Lambda):
                    return self.of(value.body, depth - 1)
                if isinstance(value, ast.Call) and last_name(value.func) == "partial" and value.args:
                    own = self._guards.refusals.own_function(value.args[0])
                    return UNKNOWN if own is None else self.returned(own, depth - 1)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault"):
            table = node.func.value
            entry = self._entry(table, node.args[0], depth) if node.args else UNKNOWN
            put = put_into(self._facts, table) if isinstance(table, (ast.Name, ast.Attribute)) else ()
            later = union(self.of(value, depth - 1) for value in put)
            return later | entry | self._parts(node, depth) | UNKNOWN
        if last_name(node.func) in WRAPPERS:
            return self._parts(node, depth) | UNKNOWN
        made = self.instance(node.func)
        called = self._of_method(node.func, "__call__", depth)
        if isinstance(node.func, ast.Attribute):
            called |= self._called_method(node.func.attr, depth)
        return made | called | UNKNOWN if called.seen else made

    def returned(self, function: Function, depth: int = DEPTH) -> Kinds:
        """Return the kinds of what a function of the module returns or yields."""
        if depth <= 1:
            return UNKNOWN
        values, generates = self._facts.once(results, self._facts.tree.scopes[function])
        found = union(self.of(value, depth - 1) for value in values) if values else UNKNOWN
        return found | UNKNOWN if function.decorator_list or generates else found


def results(names: Names, function: Scope) -> tuple[list[ast.expr], bool]:
    """Return what a function returns or yields, and whether it yields."""
    inside = children if "yield" in names.tree.text else statements_in
    values: list[ast.expr] = []
    generates = False
    todo: list[ast.AST] = list(function.node.body)  # type: ignore[attr-defined]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        generates |= isinstance(node, (ast.Yield, ast.YieldFrom))
        if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
            values.append(node.value)
        todo += inside(node)
    return values, generates
