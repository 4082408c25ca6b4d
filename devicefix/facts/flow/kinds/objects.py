"""Infer the kinds of what objects and collections hold, from what the module stores in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import islice

from devicefix.facts.flow.kinds.annotations import Annotations
from devicefix.facts.flow.kinds.kind import UNKNOWN, Kind, Kinds, union
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.reaching import BINDINGS
from devicefix.facts.names import Names, option_names
from devicefix.facts.scopes import Binding, Function, Scope, dotted
from devicefix.facts.values import last_name

# What keeps its keyword arguments as attributes or keys.
_KEEPS = {
    "SimpleNamespace", "Namespace", "EasyDict", "edict", "AttrDict", "HParams", "dict", "set_defaults",
    "update", "replace", "_replace",
}  # fmt: skip
_PUTS = {"append", "appendleft", "add", "insert", "setdefault"}  # the last argument


class Objects(Annotations):
    """The kinds of the attributes of any object, and of the elements that collections get later."""

    def _stored(self, node: ast.Attribute, depth: int) -> Kinds:
        """Return the kinds of what the module stores in an attribute of any object."""
        if node.attr == "index":
            return Kinds({Kind.INDEX: node}) if self.of(node.value, depth).can_be(Kind.CUDA) else UNKNOWN
        if depth <= 1:
            return UNKNOWN
        if node.attr == "value":  # of a member of an enumeration
            return self.of(node.value, depth - 1)
        made = node.value if isinstance(node.value, ast.Call) else self._facts.value(node.value)
        if isinstance(made, ast.Call):
            value = argument_of(made, node.attr, -1)
            if value is not None:
                return self.of(value, depth - 1)
        owner = self._class(made.func if isinstance(made, ast.Call) else node.value)
        if owner is not None and (own := self._facts.tree.scopes[owner].bindings.get(node.attr)):
            bound = self._bound(node, node.attr, own, depth)
            return bound | self._named(node.attr, depth) if isinstance(made, ast.Call) else bound
        found = self._named(node.attr, depth) | self._of_method(node.value, "__getattr__", depth)
        if node.attr == "device" and not self.of(node.value, depth - 1).classes:
            return found.without(Kind.INDEX)  # it may be that of a tensor, whatever other objects have
        return found

    def _class(self, node: ast.expr) -> ast.ClassDef | None:
        """Return the class of the module that a name refers to."""
        bindings = self._facts.tree.bound(node)
        definition = bindings[0].node if len(bindings) == 1 else None
        return definition if isinstance(definition, ast.ClassDef) else None

    def _named(self, name: str, depth: int) -> Kinds:
        """Return the kinds of what the module stores under a name, in any object."""
        found = self._facts.once(_stored_as, self._facts.tree.root, name) if name.isidentifier() else []
        return union(
            self.returned(each, depth - 1) if isinstance(each, Function) else self.of(each, depth - 1)
            for each in found[:BINDINGS]
        )

    def _of_method(self, receiver: ast.expr, name: str, depth: int) -> Kinds:
        """Return the kinds of what a special method returns, if the receiver is of a class that has it."""
        methods = self._facts.once(methods_of, self._facts.tree.root).get(name, ())
        classes = self.of(receiver, depth - 1).classes if methods else ()
        return union(self.returned(method, depth - 1) for owner, method in methods if owner in classes)

    def _called_method(self, name: str, depth: int) -> Kinds:
        """Return the kinds of what the methods of a name return, of any class of the module."""
        methods = self._facts.once(methods_of, self._facts.tree.root).get(name, ())
        return union(self.returned(method, depth - 1) for _, method in methods[:BINDINGS])

    def _entry(self, table: ast.expr, key: ast.expr, depth: int) -> Kinds:
        """Return the kinds of what a dictionary literal has for a key."""
        value = self._facts.value(table) or table
        if not isinstance(value, ast.Dict) or not isinstance(key, ast.Constant):
            return UNKNOWN
        pairs = zip(value.keys, value.values, strict=True)
        found = [each for name, each in pairs if isinstance(name, ast.Constant) and name.value == key.value]
        return union(self.of(each, depth - 1) for each in found)


def put_into(facts: Names, node: ast.Name | ast.Attribute) -> Sequence[ast.expr]:
    """Return what the module puts into a collection, beside what it is bound to.

    Args:
        facts: the names of the module.
        node: a use of the collection.
    """
    found = facts.tree.lookup(node)
    scope = found[0] if found is not None else facts.tree.root
    path = dotted(node)
    return facts.once(_put_into, scope, path, isinstance(node, ast.Name)) if path else ()


def _put_into(facts: Names, scope: Scope, path: str, is_name: bool) -> list[ast.expr]:
    reads = facts.reads_in(scope, path) if is_name else facts.tree.reads(path)
    return list(islice((value for read in reads for value in _put_at(facts, read)), BINDINGS))


def _put_at(facts: Names, read: ast.expr) -> Iterator[ast.expr]:
    """Yield what a use of a collection puts into it."""
    parents = facts.tree.parents
    parent = parents.get(read)
    outer = parents.get(parent)
    match parent:
        case ast.Subscript(value=value, slice=index, ctx=ast.Store()) if value is read:
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            if isinstance(outer, ast.Assign) and not any(isinstance(part, ast.Slice) for part in parts):
                yield outer.value
        case ast.Attribute(attr=method) if (call := facts.tree.call_of(parent)) is not None:
            if method in _PUTS:
                yield from call.args[-1:]
            elif method == "update":
                yield from (keyword.value for keyword in call.keywords)


def methods_of(facts: Names, _: Scope) -> dict[str, list[tuple[str, Function]]]:
    """Return the methods of the module's classes by name, each with the name of the class."""
    found: dict[str, list[tuple[str, Function]]] = {}
    for node in facts.tree.scopes:
        owner = facts.tree.parents.get(node)
        if isinstance(node, Function) and isinstance(owner, ast.ClassDef):
            found.setdefault(node.name, []).append((owner.name, node))
    return found


def _stored_as(facts: Names, _: Scope, name: str) -> list[ast.expr | Function]:
    """Return what the module stores under a name in any object, and the properties of that name."""
    bindings = list(facts.tree.attributes.get(f"self.{name}", ()))
    for node, scope in facts.tree.scopes.items():
        if isinstance(node, ast.ClassDef):
            bindings += scope.bindings.get(name, ())
    stored = [each for binding in bindings for each in _of_binding(facts, binding)]
    constructors = dict(_constructors(facts, name))
    for node in facts.tree.nodes_with_name(name):
        if isinstance(node, ast.Call):
            stored += _kept(node, name, constructors)
    for called, position in constructors.items():
        for node in facts.tree.nodes_with_name(called):
            if isinstance(node, ast.Call) and last_name(node.func) == called:
                passed = argument_of(node, "", position)
                stored += [passed] if passed is not None else []
    return stored


def _of_binding(facts: Names, binding: Binding) -> Iterator[ast.expr | Function]:
    value = binding.value
    if isinstance(value, ast.Call) and last_name(value.func) in ("field", "Field", "ib", "attrib"):
        for keyword in value.keywords:
            if keyword.arg in ("default", "default_factory", "factory"):
                yield keyword.value.body if isinstance(keyword.value, ast.Lambda) else keyword.value
                made = facts.bindings(keyword.value) if isinstance(keyword.value, ast.Name) else ()
                yield from (each.node for each in made if isinstance(each.node, Function))
    elif value is not None:
        yield value
    elif isinstance(binding.node, Function) and binding.node.decorator_list:
        yield binding.node


def _constructors(facts: Names, name: str) -> Iterator[tuple[str, int]]:
    """Yield the classes that have a field of a name, each with its position among the arguments."""
    for node, scope in facts.tree.scopes.items():
        if isinstance(node, ast.ClassDef) and name in scope.bindings:
            fields = fields_of(node)
            yield node.name, fields.index(name) if name in fields else -1
    for node in facts.tree.nodes_with("namedtuple("):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=called)], value=ast.Call(func=function, args=[_, listed])
            ) if last_name(function) == "namedtuple":
                names = names_of_fields(listed)
                if name in names:
                    yield called, names.index(name)


def field_of(facts: Names, value: ast.expr, part: str) -> ast.expr | None:
    """Return a part of a tuple by its position, of a dictionary by its key, or of a record by its field."""
    match value:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if part.isdigit():
            starred = any(isinstance(each, ast.Starred) for each in elements)
            return elements[int(part)] if int(part) < len(elements) and not starred else None
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            found = (each for key, each in pairs if isinstance(key, ast.Constant) and key.value == part)
            return next(found, None)
        case ast.Call(func=function):
            place = dict(_constructors(facts, part)).get(last_name(function))
            return None if place is None else argument_of(value, part, place)
    return None


def fields_of(node: ast.ClassDef) -> list[str]:
    """Return the annotated names of a class, in their order."""
    return [last_name(each.target) for each in node.body if isinstance(each, ast.AnnAssign)]


def names_of_fields(fields: ast.expr) -> list[str]:
    """Return the names of the fields of a named tuple."""
    parts = fields.elts if isinstance(fields, (ast.List, ast.Tuple)) else [fields]
    texts = (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))
    return [name for text in texts for name in text.replace(",", " ").split()]


def _kept(call: ast.Call, name: str, constructors: dict[str, int]) -> Iterator[ast.expr]:
    """Yield what a call stores under a name by a keyword, or as the default of an option."""
    called = last_name(call.func)
    wanted: tuple[str, ...] = (name,)
    if called == "add_argument" and name in option_names(call):
        wanted = ("default", "const")
    elif called not in _KEEPS and called not in constructors:
        return
    yield from (keyword.value for keyword in call.keywords if keyword.arg in wanted)
