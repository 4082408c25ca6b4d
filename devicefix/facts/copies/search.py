"""The search for copies that are used after their source has changed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import chain, product

from devicefix.facts.copies.bodies import Clash, Name, Tensors
from devicefix.facts.copies.moves import MOVES, is_parameter, is_typed, moved
from devicefix.facts.copies.views import Copy, Place, copy_of, given_to, is_copied, is_given, passed, whole_of
from devicefix.facts.flow.binding import collects, contents, kept_at
from devicefix.facts.flow.order import Body
from devicefix.facts.flow.parameters import CALLED, called
from devicefix.facts.flow.points import Point, root, starts_of
from devicefix.facts.flow.steps import Steps
from devicefix.facts.module import Facts
from devicefix.facts.values import last_name, receiver, without_call

_WORDS = ("cuda", "device", "cpu", "pin_memory")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Owner = Function | ast.ClassDef


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A copy that is kept, and used after what it was made of has changed.

    Attributes:
        copy: the copy, which a GPU makes and a CPU does not.
        holder: what keeps it.
        change: where its source is changed in place, None where it happens out of sight.
        use: the line of a use behind the change, None for a use out of sight.
        reverse: whether it is the copy that is changed, and the source that is used after that.
    """

    copy: Copy
    holder: str
    change: ast.AST | None
    use: int | None
    reverse: bool = False


@lru_cache(maxsize=1)
def held_copies(facts: Facts) -> tuple[Held, ...]:
    """Return the copies of a module that are used after their source has changed."""
    if not any(word in facts.source.text for word in _WORDS):
        return ()
    found: dict[ast.Call, Held] = {}
    for held in _Search(facts).all():
        if held.copy.call not in found and is_copied(facts, held.copy):
            found[held.copy.call] = held
    return tuple(found.values())


class _Search:
    """The search in one module.

    Args:
        facts: the facts of the module.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._steps = Steps(facts)
        self._body: Callable[[Body], Tensors] = cache(partial(Tensors, facts))
        self._changing: dict[ast.ClassDef, list[Tensors]] = {}
        self._pending: dict[tuple[Owner, Place], tuple[Copy, ast.AST]] = {}
        self._named: dict[str, list[ast.Call]] = {}
        self._outliving: dict[tuple[Owner, Place], tuple[Copy, Name]] = {}

    def all(self) -> Iterator[Held]:
        """Yield the copies that are kept or changed in place, and share memory that is in use on a CPU."""
        for statement in dict.fromkeys(self._statements()):
            for part in (statement, *getattr(statement, "cases", ())):
                for body, point in self._points(part):
                    yield from self._kept(body, point)
                    yield from self._changed_at_once(body, point)
        yield from chain(self._passed(), self._outlived(), self._hooked())

    def _statements(self) -> Iterator[ast.stmt]:
        """Yield the statements that may copy, and those that call a function that may return a copy."""
        tree = self._facts.tree
        for node in chain.from_iterable(map(tree.nodes_with_name, MOVES)):
            if isinstance(node, ast.Call) and (last_name(node.func) in MOVES or is_typed(self._facts, node)):
                statement = tree.statement(node)
                yield statement
                owner = tree.scope(statement).node
                value = getattr(statement, "value", None)
                gives = isinstance(statement, ast.Return) or isinstance(value, (ast.Yield, ast.YieldFrom))
                if gives and isinstance(owner, Function):
                    reads = (each for each in tree.nodes_with_name(owner.name) if isinstance(each, ast.expr))
                    yield from map(tree.statement, reads)

    def _points(self, statement: ast.AST) -> Iterator[tuple[Tensors, Point]]:
        """Yield the points of a statement, or of a case of one, with the tensors of the body around it."""
        owner = self._facts.tree.scope(statement).node
        if isinstance(owner, Body):
            body = self._body(owner)
            yield from ((body, point) for point in body.flow.by_node.get(statement, ()))

    def _kept(self, body: Tensors, point: Point) -> Iterator[Held]:
        """Yield the copies that a point keeps, and that clash."""
        more = chain(self._yielded(body, point), self._kept_by_calls(point))
        inside = ((path, each, True) for path, value in more for each, _ in contents(self._facts, value))
        for path, expression, contained in chain(kept_at(self._facts, point), inside):
            copy = copy_of(self._facts, expression)
            if copy is None:
                continue
            kept = Name(Place(path, contained, trained=is_parameter(self._facts, expression)), point, True)
            source = Name(copy.source, point, element=body.element(moved(copy.call)))
            # After `x = x.cuda()`, nothing here names what was copied.
            anew = not point.bound.isdisjoint(starts_of(copy.source.path))
            clash = None if anew else body.changed_beside(source, kept, copy.call) or body.clash(source, kept)
            whole = whole_of(self._facts, copy.base) or copy.source
            clash = clash or (None if whole is copy.source else body.clash(Name(whole, point), kept))
            if found := clash or body.trained_later(copy.source, path) or self._later(body, source, kept):
                yield self._held(body, copy, path, found)
            elif found := (None if anew else body.clash(kept, source)) or self._later(body, kept, source):
                yield self._held(body, copy, path, found, reverse=True)
            elif change := body.changed_after(kept):
                yield from self._pend(body, copy, change)
            elif isinstance(body.flow.owner, Owner) and body.outlives(kept):
                self._outliving.setdefault((body.flow.owner, whole), (copy, kept))

    def _later(self, body: Tensors, changed: Name, used: Name) -> Clash | None:
        """Return the clash of what an object keeps of its own with what a later call of a method changes."""
        every = product(body.own(changed), body.own(used))  # without `self.x = self.x.cuda()`
        pairs = [each for each in every if each[0].place.path != each[1].place.path]
        for method in self._methods(body.flow.owner) if pairs else ():
            for one, other in pairs:
                start = method.flow.entry
                if found := method.clash(replace(one, start=start), replace(other, start=start)):
                    return found
        return None

    def _changed_later(self, function: Body, kept: Name) -> ast.AST | None:
        """Return what changes a tensor that an object keeps, in a method of its class."""
        changes = (method.changes(kept.place).values() for method in self._methods(function))
        return next(chain.from_iterable(changes), None)

    def _methods(self, function: Body) -> list[Tensors]:
        """Return the methods of a class that change a tensor, or take the step of an optimizer."""
        owner = self._facts.tree.parents.get(function)
        if not isinstance(owner, ast.ClassDef):
            return []
        if owner not in self._changing:
            methods = (each for each in owner.body if isinstance(each, Function) and each.name != "__init__")
            found, model = map(self._body, methods), Place("", parameters=True)
            self._changing[owner] = [each for each in found if each.changes(model) or each.changes_by_path]
        return self._changing[owner]

    def _yielded(self, body: Tensors, point: Point) -> Iterator[tuple[str, ast.expr]]:
        """Yield what a generator yields as an element of a collection that its function's name keeps."""
        owner = body.flow.owner
        values = [node.value for node in point.nodes if isinstance(node, ast.Yield) and node.value]
        if values and isinstance(owner, Function):
            tree = self._facts.tree
            name = getattr(tree.parents[owner], "name", "") if owner.name == "__iter__" else owner.name
            if any(_keeps_all(tree.parents.get(call)) for call in tree.calls_with_name(name)):
                yield from ((f"{name}()", value) for value in values)

    def _kept_by_calls(self, point: Point) -> Iterator[tuple[str, ast.expr]]:
        """Yield what the functions of the module that a point calls keep: `memory.push(x.cpu())`."""
        for call in (node for node in point.nodes if isinstance(node, ast.Call)):
            given = receiver(call.func), *call.args, *(key.value for key in call.keywords)
            values = (each for part in given for each, _ in contents(self._facts, part))
            has_copy = any(copy_of(self._facts, each) for each in values)
            own = self._steps.reached(call, lambda each: self._body(each).keeping) if has_copy else None
            if isinstance(own, Function):
                for path, name in self._body(own).keeping:
                    for holder in passed(self._facts, call, own, Place(root(path))):
                        yield from ((holder.path, each) for each in given_to(self._facts, call, own, name))

    def _changed_at_once(self, body: Tensors, point: Point) -> Iterator[Held]:
        """Yield the copies that are changed where they are made, as `x.cuda().mul_(2)`: on a CPU, `x` is."""
        changes = [(change, copy_of(self._facts, change.target)) for change in body.changes_at(point)]
        direct = {change.place.path for change, copy in changes if copy is None}
        for change, copy in changes:
            if copy is None or copy.source.path in direct:  # `x.copy_(x.cpu().normal_())`
                continue
            use = body.use_behind(Name(copy.source, point), point, change.node)
            if use is None:
                yield from self._pend(body, copy, change.node)
            else:
                yield self._held(body, copy, copy.source.path, (change.node, use), reverse=True)

    def _held(self, body: Tensors, copy: Copy, holder: str, clash: Clash, *, reverse: bool = False) -> Held:
        change, use = clash
        line = None if use is body.flow.exit else getattr(use.node, "lineno", None)
        return Held(copy, holder, change, line, reverse)

    # -- callers -----------------------------------------------------------------------------------------

    def _pend(self, body: Tensors, copy: Copy, change: ast.AST) -> Iterator[Held]:
        """Yield a changed copy of a leaf; keep in mind that a function changes its parameter on a CPU."""
        owner = body.flow.owner
        if copy.source.trained and moved(copy.call) is copy.base:
            yield self._held(body, copy, copy.source.path, (change, body.flow.exit), reverse=True)
        elif isinstance(owner, Function) and is_given(self._facts, copy.base, change):
            self._pending.setdefault((owner, copy.source), (copy, change))

    def _passed(self) -> Iterator[Held]:
        """Yield the copies of parameters that are changed, where the argument is used after a call."""
        for (function, source), (copy, change) in self._pending.items():
            for body, point, call in self._calls(function):
                for place in passed(self._facts, call, function, source):
                    leaf = body.flow.exit if place.trained and moved(copy.call) is copy.base else None
                    if use := body.use_behind(Name(place, point), point, call) or leaf:
                        given = replace(copy, source=replace(source, trained=place.trained))
                        yield self._held(body, given, source.path, (change, use), reverse=True)

    def _outlived(self) -> Iterator[Held]:
        """Yield the copies of parameters that are kept, where the argument or the copy is changed later."""
        for (function, source), (copy, kept) in self._outliving.items():
            for body, point, call in self._calls(function):
                for name in (Name(place, point) for place in passed(self._facts, call, function, source)):
                    if (changing := body.changed_after(name)) is not None:
                        yield Held(copy, kept.place.path, changing, None)
                    elif name.place.trained and (later := self._changed_later(function, kept)) is not None:
                        given = replace(copy, source=replace(source, trained=True))
                        yield self._held(body, given, source.path, (later, body.flow.exit), reverse=True)
                    elif found := body.clash(Name(Place("()", trained=kept.place.trained), point), name):
                        yield self._held(body, copy, kept.place.path, found, reverse=True)

    def _hooked(self) -> Iterator[Held]:
        """Yield the copies that hooks of modules keep: the next layer may change what they are given."""
        calls = self._facts.tree.calls_with_name("register_forward_hook")
        given = (without_call(each) for call in calls for each in call.args[:1])
        hooks = {node for each in given for own in self._steps.functions(each) for node in ast.walk(own)}
        for (function, source), (copy, kept) in self._outliving.items():
            arguments = function.args.args if isinstance(function, Function) and function in hooks else []
            if root(source.path) in [each.arg for each in arguments[-2:]]:
                yield Held(copy, kept.place.path, None, None)

    def _calls(self, function: Owner) -> Iterator[tuple[Tensors, Point, ast.AST]]:
        """Yield the calls of a function, or of a method of its name, and the statement that runs a class."""
        tree = self._facts.tree
        for call in [function] if isinstance(function, ast.ClassDef) else self._calls_of(function):
            statement = tree.statement(call)
            if tree.scope(call) is tree.scope(statement):  # and not of a comprehension
                points = self._points(statement)
                yield from ((body, point, call) for body, point in points if call in point.nodes)

    def _calls_of(self, function: Function) -> Iterator[ast.Call]:
        tree, name = self._facts.tree, called(self._facts.tree, function)
        is_method = isinstance(tree.parents.get(function), ast.ClassDef) and name == function.name
        if name not in self._named:  # many classes may have a method of one name
            every = (node for node in tree.nodes if isinstance(node, ast.Call)) if name in CALLED else ()
            self._named[name] = [*self._steps.calls(name), *every]  # `net(x)` is one of `forward`
        for call in self._named[name]:
            by_name = last_name(call.func) == name and isinstance(call.func, ast.Attribute) is is_method
            of_library = is_method and self._facts.resolve(call.func) is not None
            if (by_name and not of_library) or self._steps.reached(call) is function:
                yield call


def _keeps_all(node: ast.AST | None) -> bool:
    """Return whether a node runs a generator to its end before anything uses what it yields."""
    match node:
        case ast.Call(func=function):
            return collects(function)
        case ast.Assign(targets=[target]):
            return isinstance(target, (ast.List, ast.Tuple))
    return isinstance(node, ast.Starred)
