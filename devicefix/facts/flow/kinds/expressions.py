"""Infer the kinds of an expression of any form."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.facts.flow.kinds.bindings import Bindings
from devicefix.facts.flow.kinds.calls import YIELDED, Calls, results
from devicefix.facts.flow.kinds.inference import DEPTH
from devicefix.facts.flow.kinds.kind import NUMBERS, UNKNOWN, Kind, Kinds, union
from devicefix.facts.flow.kinds.library import WRAPPERS, of_constant
from devicefix.facts.flow.kinds.objects import put_into
from devicefix.facts.flow.reaching import BINDINGS
from devicefix.facts.scopes import Function
from devicefix.facts.values import choice, cuda_string, last_name

_NO_TENSOR = (ast.In, ast.NotIn, ast.Is, ast.IsNot)  # these comparisons give a bool


class KindsOf(Calls, Bindings):
    """The kinds of the expressions of one module.

    Args:
        facts: the names of the module.
        guards: its guards.
    """

    def _of(self, node: ast.expr, depth: int) -> Kinds:  # noqa: C901, PLR0911, PLR0912 (one case a kind of node)
        if cuda_string(node):
            return Kinds({Kind.CUDA: node})
        match node:
            case ast.Constant():
                return of_constant(node)
            case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool")) if (
                self._guards.implies(node)
            ):
                return Kinds({Kind.FLAG: node})
            case ast.Call():
                return self._call(node, depth)
            case ast.Name() | ast.Attribute():
                return self._path(node, depth)
            case ast.IfExp(body=body, orelse=orelse):
                found = self.of(body, depth) | self.of(orelse, depth)
                chosen = choice(self._facts, node) is not None and not found.are({Kind.CPU})
                return Kinds({Kind.DEVICE: node}) if chosen else found
            case ast.BoolOp(op=op, values=values):
                *others, last = (self.of(value, depth) for value in values)
                for kinds in others:
                    last |= kinds.without(Kind.NONE) if isinstance(op, ast.Or) else kinds
                return last.without(Kind.FLAG) if isinstance(op, ast.Or) else last
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                return self.of(value, depth)
            case ast.BinOp():
                return self._operation(node, depth)
            case ast.Subscript(value=value):
                return self._item(value, node.slice, depth)
            case ast.List() | ast.Tuple() | ast.Set() | ast.Dict() | ast.ListComp() | ast.DictComp():
                return Kinds({Kind.COLLECTION: node})
            case ast.JoinedStr():
                return Kinds({Kind.STRING: node})
            case ast.Compare(left=left, ops=[op], comparators=[right]) if not isinstance(op, _NO_TENSOR):
                sides = (self.of(left, depth), self.of(right, depth))
                return next((side for side in sides if side.are({Kind.TENSOR})), Kinds({Kind.OTHER: node}))
            case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Lambda():
                return Kinds({Kind.OTHER: node})
            case ast.UnaryOp(operand=operand):
                kinds = self.of(operand, depth)
                return kinds if kinds.are({Kind.TENSOR}) else Kinds({Kind.OTHER: node})  # -1 is no GPU
        return UNKNOWN

    def _item(self, value: ast.expr, index: ast.expr, depth: int) -> Kinds:
        kinds = self.of(value, depth)
        if kinds.are({Kind.TENSOR}):
            return kinds
        if isinstance(index, ast.Slice):
            return UNKNOWN
        made = value if isinstance(value, ast.Call) else self._facts.value(value)
        key = index.value if isinstance(index, ast.Constant) else None
        if key is not None and (known := self._of_result(made, str(key))) is not None:
            return known
        found = self.elements(value, depth)
        if not found.unknown:
            return found
        found |= self._item_of_loop(value, index, depth)
        return found | self._parts(value, depth - 1) | self._of_method(value, "__getitem__", depth)

    def _operation(self, node: ast.BinOp, depth: int) -> Kinds:
        left, right = self.of(node.left, depth), self.of(node.right, depth)
        for kinds in (left, right):
            if kinds.are({Kind.TENSOR}):
                return kinds
        text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        may_be_number = not (text or left.can_be(Kind.STRING)) and left.can_be(Kind.TENSOR) is not True
        if isinstance(node.op, ast.Mod) and right.are(NUMBERS) and may_be_number:
            return Kinds({Kind.INDEX: node})  # of what is not an int, it would be no device on CUDA either
        integral = isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod))
        if integral and left.shown(NUMBERS) and right.shown(NUMBERS):
            return Kinds({Kind.INDEX: node}, open=left.open or right.open)
        return UNKNOWN

    def elements(self, node: ast.expr, depth: int = DEPTH) -> Kinds:
        """Return the kinds of the elements of a collection, or of the values of a dictionary."""
        return self._limited(self._elements, node, depth)

    def _elements(self, node: ast.expr, depth: int) -> Kinds:  # noqa: C901, PLR0911 (as above)
        match node:
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return self._union(elements, depth)
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return self._union(values, depth)
            case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
                return self.of(element, depth)
            case ast.DictComp(value=element):
                return self.of(element, depth)
            case ast.IfExp() | ast.BoolOp():
                choices = (node.body, node.orelse) if isinstance(node, ast.IfExp) else node.values
                some = (each for each in choices if not _is_empty(each))
                return union(self.elements(each, depth) for each in some)
            case ast.Call(func=ast.Name(id="range")) if self._is_builtin(node.func):
                return Kinds({Kind.INDEX: node})
            case ast.Call(func=ast.Name(id="list" | "tuple" | "sorted" | "set"), args=[inner]):
                return self.elements(inner, depth)
            case ast.Name() | ast.Attribute():
                if self._facts.resolve(node) in ("os.environ", "sys.argv"):
                    return Kinds({Kind.STRING: node})
                bindings = self._facts.bindings(node)
                put = union(self.of(value, depth - 1) for value in put_into(self._facts, node))
                if bindings and all(binding.value is not None for binding in bindings):
                    bound = [b.value for b in bindings if b.value and not (put.seen and _is_empty(b.value))]
                    return union(self.elements(each, depth - 1) for each in bound) | put
                more = self._raised(node, depth) | self._more_arguments(node, depth)
                more |= self._option(node, depth) or UNKNOWN if isinstance(node, ast.Attribute) else UNKNOWN
                return more | self._captured(node, depth) | put | UNKNOWN
            case ast.BinOp(left=left, right=right):  # `[0] * 2`, `(0,) + others`
                return self.elements(left, depth) | self.elements(right, depth) | UNKNOWN
            case ast.Call():
                iterated = self._of_method(node, "__iter__", depth)
                iterated |= self._of_result(node, YIELDED) or UNKNOWN
                return self._parts(node, depth) | iterated | UNKNOWN  # of what a generator yields, too
        return UNKNOWN

    def _raised(self, node: ast.expr, depth: int) -> Kinds:
        """Return the kinds of the arguments of an error, in `error.args`."""
        error = node.value if isinstance(node, ast.Attribute) and node.attr == "args" else None
        bindings = self._facts.tree.bound(error) if error is not None else ()
        handlers = [each.node for each in bindings if isinstance(each.node, ast.ExceptHandler)]
        tried = (self._facts.tree.parents[handler] for handler in handlers[:BINDINGS])
        parts = (part for statement in tried for part in ast.walk(statement))
        errors = (part.exc for part in parts if isinstance(part, ast.Raise))
        made = (error for error in errors if isinstance(error, ast.Call))
        return union(self.of(argument, depth - 1) for error in made for argument in error.args)

    def _parts(self, node: ast.expr, depth: int) -> Kinds:
        """Return the kinds of a value, or of the parts of a collection, as far as the module shows them."""
        return self._limited(self._parts_of, node, depth)

    def _parts_of(self, node: ast.expr, depth: int) -> Kinds:  # noqa: C901 (as above)
        match node:
            case ast.List(elts=inner) | ast.Tuple(elts=inner) | ast.Set(elts=inner) | ast.Dict(values=inner):
                pass
            case ast.Starred(value=element) | ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                inner = [element]
            case ast.Call(func=ast.Name()) if (made := self._made_of(node)) is not None:
                return union(self._parts(each, depth - 1) for each in made) if depth > 0 else UNKNOWN
            case ast.Call(args=arguments, keywords=keywords) if last_name(node.func) in WRAPPERS:
                inner = [*arguments, *(each.value for each in keywords)]
            case ast.Call(func=ast.Attribute(value=table, attr="items" | "values" | "copy")):
                inner = [table]
            case ast.Call(func=ast.Name(id="range")) if self._is_builtin(node.func):
                return self.elements(node, depth)
            case ast.Subscript(value=collection):
                inner = [collection]
            case ast.Attribute(attr="args"):
                return self.of(node, depth) | self._raised(node, depth)
            case ast.Name() if depth:
                inner = [each.value for each in self._facts.bindings(node) if each.value is not None]
                if inner and all(self.of(each, depth - 1).can_be(Kind.COLLECTION) for each in inner):
                    return union(self._parts(each, depth - 1) for each in inner)
                return self.of(node, depth)
            case _:
                return self.of(node, depth)
        return union(self._parts(each, depth) for each in inner)

    def _made_of(self, call: ast.Call) -> list[ast.expr] | None:
        """Return what a function of the module returns, or the fields of a named tuple; None for others."""
        name = last_name(call.func)
        found = self._facts.tree.scope(call).lookup(name)
        definition = found[1][0] if found is not None and len(found[1]) == 1 else None
        if definition is not None and isinstance(definition.node, Function):
            return self._facts.once(results, self._facts.tree.scopes[definition.node])[0]
        value = definition.value if definition is not None else None
        return call.args if isinstance(value, ast.Call) and last_name(value.func) == "namedtuple" else None

    def _union(self, nodes: Sequence[ast.expr | None], depth: int) -> Kinds:
        if not nodes or any(node is None or isinstance(node, ast.Starred) for node in nodes):
            return UNKNOWN
        return union(self.of(node, depth) for node in nodes if node is not None)


def _is_empty(node: ast.expr) -> bool:
    """Return whether an expression is an empty list or tuple, whose elements have no kind."""
    return isinstance(node, (ast.List, ast.Tuple)) and not node.elts
