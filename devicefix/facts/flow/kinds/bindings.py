"""Infer the kinds of a name or attribute from the bindings that reach the place where it is read."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from devicefix.facts.flow.kinds.calls import results
from devicefix.facts.flow.kinds.kind import NUMBERS, UNKNOWN, Kind, Kinds, union
from devicefix.facts.flow.kinds.library import OF_TENSORS, OPTIONS, SAME, of_reference
from devicefix.facts.flow.kinds.objects import Objects
from devicefix.facts.flow.kinds.parameters import Parameters
from devicefix.facts.flow.reaching import BINDINGS, blocks_around, position, reaching
from devicefix.facts.scopes import LOOPS, Binding, Function, dotted
from devicefix.facts.values import PROPERTIES, last_name

_ONLY_WITH_CUDA = NUMBERS | {Kind.CUDA}


class Bindings(Parameters, Objects):
    """The kinds of names and attributes."""

    def _path(self, node: ast.Name | ast.Attribute, depth: int) -> Kinds:
        resolved = self._facts.resolve(node)
        if resolved is not None:
            known = self._elsewhere(node, resolved)
            return of_reference(node, resolved) if known is None else known
        if isinstance(node, ast.Name):
            found = self._facts.tree.scope(node).lookup(node.id)
            return self._of_star(node) if found is None else self._bound(node, node.id, found[1], depth)
        bindings = self._facts.tree.attributes.get(dotted(node) or "", ())
        if bindings:
            known = self._bound(node, dotted(node) or "", bindings, depth)
            option = self._option(node, depth)
            return known if option is None else known.without(Kind.NONE) | option
        return self._attribute(node, depth)

    def _of_star(self, node: ast.Name) -> Kinds:
        """Return the kinds of a name that only a star import may bind."""
        modules = self._facts.tree.star_imports
        found = (self._elsewhere(node, f"{module}.{node.id}") for module in modules)
        return next((each for each in found if each is not None), UNKNOWN)

    def _attribute(self, node: ast.Attribute, depth: int) -> Kinds:
        option = self._option(node, depth)
        if option is not None:
            return option
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self._class_attribute(node, depth)
        if node.attr in OF_TENSORS and self.of(node.value, depth).are({Kind.TENSOR}):
            return Kinds({Kind.TENSOR: node})
        if node.attr == "device" and self.of(node.value, depth).are({Kind.TENSOR}):
            return Kinds({Kind.DEVICE: node})
        made = node.value if isinstance(node.value, ast.Call) else self._facts.value(node.value)
        known = self._of_result(made, node.attr)
        return self._stored(node, depth) | UNKNOWN if known is None else known

    def _option(self, node: ast.Attribute, depth: int) -> Kinds | None:
        """Return the kinds of an option of the command line that is always an int, or None."""
        if not self._facts.is_integer_option(node.attr):
            return None
        if node.attr == "device" and OPTIONS not in self.of(node.value, depth - 1).classes:
            return None  # tensors have one, too
        return Kinds({Kind.INDEX: node, Kind.NONE: node})

    def _class_attribute(self, node: ast.Attribute, depth: int) -> Kinds:
        for _, parent in self._facts.tree.ancestors(node):
            if isinstance(parent, ast.ClassDef):
                bindings = self._facts.tree.scopes[parent].bindings.get(node.attr)
                found = self._set_by_name(node.attr, depth)
                if bindings:
                    return found | self._bound(node, node.attr, bindings, depth)
                others = self._facts.tree.scopes[parent].bindings.get("__getattr__", ())
                made = (self.returned(each.node, depth) for each in others if isinstance(each.node, Function))
                return found | union(made) | UNKNOWN
        return UNKNOWN

    def _set_by_name(self, name: str, depth: int) -> Kinds:
        """Return the kinds of what `setattr` stores in an attribute of any object."""
        values = [
            call.args[2]
            for call in self._facts.tree.nodes_with("setattr(")
            if isinstance(call, ast.Call) and last_name(call.func) == "setattr" and len(call.args) == 3
            if isinstance(call.args[1], ast.Constant) and call.args[1].value == name
        ]
        return union(self.of(value, depth - 1) for value in values)

    def _bound(self, site: ast.expr, path: str, bindings: Sequence[Binding], depth: int) -> Kinds:
        found = reaching(self._facts.tree, site, bindings)
        if len(found) == len(bindings):
            kinds = self._all_bound(path, bindings, depth)
            call = self._selecting(site, path, bindings) if kinds.unknown or kinds.open else None
            return kinds if call is None else Kinds({Kind.INDEX: call, Kind.CUDA: call})
        return union(self._binding(binding, path, depth - 1) for binding in found)

    def _selecting(self, site: ast.expr, path: str, bindings: Sequence[Binding]) -> ast.Call | None:
        """Return the call that selects the GPU of a name before a site: it takes nothing but a GPU."""
        tree = self._facts.tree
        for call in tree.calls_with_name("set_device"):
            if self._facts.call(call, "torch.cuda.set_device") and [*map(dotted, call.args)] == [path]:
                around = map(id, blocks_around(tree, tree.statement(site)))
                if id(tree.block(tree.statement(call))) in around:
                    if all(position(each.node) < position(call) < position(site) for each in bindings):
                        return call
        return None

    def _all_bound(self, path: str, bindings: Sequence[Binding], depth: int) -> Kinds:
        asked, key = id(bindings), (id(bindings), depth)
        if key in self._known:
            return self._known[key]
        if asked in self._asked:
            self._assumed.add(asked)
            return Kinds()  # `x = x` shows nothing; whatever else `x = f(x)` makes of nothing is unknown
        self._asked.add(asked)
        found = self._of_bindings(path, bindings, depth - 1)
        self._asked.discard(asked)
        self._assumed.discard(asked)
        if not self._assumed:
            self._known[key] = found
        return found

    def _of_bindings(self, path: str, bindings: Sequence[Binding], depth: int) -> Kinds:
        carried = [binding for binding in bindings if _carries(binding.value, path)]
        others = (binding for binding in bindings if binding not in carried)
        found = union(self._binding(binding, path, depth) for binding in others)
        # `x = x.cuda()` shows nothing more of a tensor.
        return found if not carried or found.shown({Kind.TENSOR, Kind.MODULE}) else found | UNKNOWN

    def _binding(self, binding: Binding, name: str, depth: int) -> Kinds:  # noqa: C901, PLR0911, PLR0912 (as above)
        node = binding.node
        if depth <= 0:
            return UNKNOWN
        if binding.value is not None:
            kinds = self.of(binding.value, depth)
            if not _ONLY_WITH_CUDA.isdisjoint(kinds.seen) and self._guards.is_guarded(node):
                return Kinds({Kind.DEVICE: binding.value})  # beside it, there is one for the CPU
            return kinds
        if binding.parameter:
            assert isinstance(node, ast.arg)
            return self._parameter(node, binding.default, depth)
        match node:
            case ast.For(target=target, iter=iterated) | ast.comprehension(target=target, iter=iterated):
                return self._iterated(target, iterated, name, depth)
            case ast.Assign(targets=targets, value=value):
                returned = self._returned_by(value)
                found = [_counterpart(target, each, name) for each in returned for target in targets]
                if found and None not in found:
                    return union(self.of(part, depth) for part in found if part is not None)
                return self._unpacked(targets, value, name) or self._parts(value, depth) | UNKNOWN
            case ast.withitem(context_expr=value):
                return self._parts(value, depth) | self._of_method(value, "__enter__", depth) | UNKNOWN
            case ast.MatchAs() | ast.MatchStar() | ast.MatchMapping():
                match = next(self._facts.tree.around(node, ast.Match))
                return self._parts(match.subject, depth) | UNKNOWN
            case ast.AugAssign(target=target, value=value):
                return Kinds({Kind.INDEX: node}) if self.of(value, depth).are(NUMBERS) else UNKNOWN
            case ast.AnnAssign(annotation=annotation):
                return self.annotated(annotation)
            case ast.ExceptHandler(type=ast.expr() as caught):
                return union(map(self.instance, caught.elts if isinstance(caught, ast.Tuple) else [caught]))
            case ast.FunctionDef(decorator_list=[decorator]) if last_name(decorator) in PROPERTIES:
                return self.returned(node, depth)
            case ast.FunctionDef(decorator_list=[_, *_]):
                return self.returned(node, depth) | UNKNOWN  # the decorator may call it
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Delete():
                return Kinds({Kind.OTHER: node})
        return UNKNOWN

    def _unpacked(self, targets: Sequence[ast.expr], value: ast.expr, name: str) -> Kinds | None:
        """Return the kinds of what a name gets of a tuple that a function of another file returns."""
        for target in targets:
            for place, element in enumerate(getattr(target, "elts", ())):
                if isinstance(element, ast.Starred):
                    return None
                if isinstance(element, ast.Name) and element.id == name:
                    return self._of_result(value, str(place))
        return None

    def _returned_by(self, value: ast.expr) -> list[ast.expr]:
        """Return what a call of a function of the module may return, or else the value itself."""
        own = self._guards.refusals.own_function(value.func) if isinstance(value, ast.Call) else None
        if own is None or own.decorator_list:
            return [value]
        returned, generates = self._facts.once(results, self._facts.tree.scopes[own])
        return [value] if generates else returned

    def _iterated(self, target: ast.expr, iterated: ast.expr, name: str, depth: int) -> Kinds:
        """Return the kinds of a variable of a loop or comprehension."""
        if isinstance(target, ast.Name):
            return self.elements(iterated, depth)
        match target, iterated:
            case (
                ast.Tuple(elts=[ast.Name(id=first), other]),
                ast.Call(func=ast.Name(id="enumerate") as function, args=[inner, *_]),
            ) if self._is_builtin(function):
                if first == name:
                    return Kinds({Kind.INDEX: iterated})
                return self._iterated(other, inner, name, depth)
            case (
                ast.Tuple(elts=targets),
                ast.Call(func=ast.Name(id="zip") as function, args=collections),
            ) if self._is_builtin(function):
                for each, inner in zip(targets, collections, strict=False):
                    if isinstance(each, ast.Name) and each.id == name and not isinstance(inner, ast.Starred):
                        return self.elements(inner, depth)
        return self._parts(iterated, depth) | UNKNOWN

    def _captured(self, node: ast.expr, depth: int) -> Kinds:
        """Return the kinds of the parts of what a pattern or a `with` statement binds to a name."""
        taken = (ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.withitem)
        bindings = [each for each in self._facts.tree.bound(node) if isinstance(each.node, taken)]
        return union(self._binding(binding, "", depth - 1) for binding in bindings[:BINDINGS])

    def _item_of_loop(self, node: ast.expr, index: ast.expr, depth: int) -> Kinds:
        """Return the kinds of an item of what a loop binds to a name: by its key, or any of a list."""
        bindings = self._facts.tree.bound(node)
        loops = [each.node for each in bindings if isinstance(each.node, LOOPS)]
        collections = [self._facts.value(loop.iter) or loop.iter for loop in loops[:BINDINGS]]
        if not isinstance(index, ast.Constant) or not isinstance(index.value, str):
            return union(self._parts(each, depth - 1) for each in collections)
        listed = [part for each in collections for part in getattr(each, "elts", ())]
        return union(self._entry(part, index, depth) for part in listed if isinstance(part, ast.Dict))


def _carries(value: ast.expr | None, path: str) -> bool:
    """Return whether a value is what methods of a tensor or module make of the value of a path."""
    node = value
    while node is not None and dotted(node) != path:
        match node:
            case ast.Call(func=ast.Attribute(attr=attr, value=inner)) if attr in SAME or attr in OF_TENSORS:
                node = inner
            case ast.Subscript(value=inner):
                node = inner
            case _:
                return False
    return node is not value


def _counterpart(target: ast.expr, value: ast.expr, name: str) -> ast.expr | None:
    """Return what an unpacked value has for a name, None where a `*` leaves it open."""
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(value, (ast.Tuple, ast.List)):
        return None
    names, values = target.elts, value.elts
    for place, element in enumerate(names):
        if dotted(element) == name:
            if not any(isinstance(each, ast.Starred) for each in (*names[:place], *values[: place + 1])):
                return values[place] if place < len(values) else None
            end = place - len(names)
            if not any(isinstance(each, ast.Starred) for each in (*names[end:], *values[end:])):
                return values[end] if -end <= len(values) else None
    return None
