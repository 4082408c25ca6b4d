"""Copies that only a GPU makes, and that are still in use when what they were made of changes.

`x.cpu()`, `x.cuda()` and `x.to(device)` copy from one device to another. Where there is only the CPU they
return `x` itself, and `x.cpu().numpy()` is a view of it. That matters where the result is kept, `x` is then
changed in place, and the result is used after that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from devicefix.facts.flow import VIEW_ATTRIBUTES, Body, Flow, Point, own_nodes, path_of
from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted
from devicefix.facts.values import cuda_string, device_name, index_name, last_name

_COPYING = re.compile(r"\.(cpu|cuda|to)\s*\(|\bas_tensor\s*\(")
_VIEWS = {
    "detach", "view", "view_as", "squeeze", "unsqueeze", "t", "transpose", "permute", "narrow", "select",
    "expand", "expand_as", "reshape", "contiguous", "flatten", "numpy", "requires_grad_", "detach_",
}  # fmt: skip
# Methods that end in an underscore and change no number.
_HARMLESS = {
    "requires_grad_", "detach_", "retain_grad_", "share_memory_", "rename_", "squeeze_", "unsqueeze_", "t_",
    "transpose_", "swapaxes_", "resize_", "resize_as_", "set_", "pin_memory_", "clip_grad_norm_",
    "clip_grad_value_",
}  # fmt: skip
_NUMPY_CHANGES = {"fill", "sort", "itemset", "setfield", "byteswap"}
_FIRST_ARGUMENT = re.compile(
    r"(numpy|np)\.(copyto|put|place|putmask|fill_diagonal)|(numpy\.|np\.)?random\.shuffle"
    r"|(torch\.distributed|dist)\.(all_reduce|broadcast|recv|irecv)|(torch\.nn\.init|nn\.init|init)\.\w+_"
)
_ADDING = {"append", "appendleft", "extend", "extendleft", "insert", "add"}
_COLLECTIONS = {"dict", "list", "OrderedDict", "defaultdict", "deque", "state_dict"}
_PARAMETERS = {"parameters", "named_parameters", "buffers", "named_buffers"}
_OPTIMIZER = re.compile(r"optim|(?:^|[._])opt(?![a-z])|scaler|solver|adam|sgd", re.I)
_TRAINS = re.compile(r"_?(train|fit|finetune|learn)(_|\Z|[A-Z])|run_(train|epoch)")
_FACTORIES = {
    "zeros", "ones", "empty", "full", "tensor", "rand", "randn", "arange", "from_numpy", "zeros_like",
    "FloatTensor", "LongTensor", "Tensor", "eye", "linspace", "randint", "ByteTensor", "IntTensor",
    "DoubleTensor",
}  # fmt: skip
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Place:
    """What is copied, or changed: a name or a dotted path, with constant keys (`batch['image']`).

    `indexed` is set for a part of it that is chosen by a plain index, which may be an element of a list.
    `parameters` means those of a module, `buffer` a NumPy array.
    """

    path: str
    indexed: bool = False
    parameters: bool = False
    buffer: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A copy that is kept.

    Attributes:
        call: the call that copies on a GPU and not on a CPU.
        outer: the expression around it that is a view of it, such as `x.cpu().numpy()`.
        source: what is copied.
        holder: what keeps the copy.
        change: where the source is changed in place, None where it happens out of sight.
        use: the line of a use behind the change, None for a use out of sight.
        reverse: whether it is the copy that is changed, and the source that is used after that.
    """

    call: ast.Call
    outer: ast.expr
    source: Place
    holder: str
    change: ast.AST | None
    use: int | None
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class _Copy:
    call: ast.Call
    outer: ast.expr
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class _Holder:
    path: str
    adds: bool  # to a collection, whose other elements stay


@lru_cache(maxsize=1)
def held_copies(facts: Facts) -> tuple[Held, ...]:
    """The copies of a module that outlive the next change of what they were made of."""
    text = facts.source.text
    if not _COPYING.search(text) or ("cuda" not in text and "device" not in text):
        return ()
    return tuple(_Module(facts).held())


class _Module:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.tree = facts.tree
        self.flows: dict[Body, Flow] = {}

    def held(self) -> Iterator[Held]:
        for owner in self.owners:
            segment = self.facts.source.text
            if not isinstance(owner, ast.Module):
                segment = self.facts.source.code(owner)
            if _COPYING.search(segment) or any(name in segment for name in self.returning):
                yield from self._held_in(owner)

    @cached_property
    def owners(self) -> list[Body]:
        return [each for each in self.tree.scopes if isinstance(each, Body)]

    def flow(self, owner: Body) -> Flow:
        if owner not in self.flows:
            self.flows[owner] = Flow(owner)
        return self.flows[owner]

    # -- the search -----------------------------------------------------------------------------------

    def _held_in(self, owner: Body) -> Iterator[Held]:
        flow = self.flow(owner)
        for point in flow.points:
            self.tree.look_into(point.node)
            for holder, value in self._stores(point):
                for expression in _contents(value):
                    copy = self._copy(expression)
                    if copy is not None and not self.facts.guarded(copy.call):
                        if copy.places[0].path == holder.path:
                            continue  # `x = x.cpu()`: nothing else is kept
                        held = self._held(flow, point, copy, holder)
                        if held is not None:
                            yield held
            yield from self._changed_at_once(flow, point)

    def _held(self, flow: Flow, point: Point, copy: _Copy, holder: _Holder) -> Held | None:
        for place in copy.places:
            found = self._outlives(flow, point, place, holder)
            if found is not None:
                return Held(copy.call, copy.outer, place, holder.path, *found)
        if holder.adds or copy.places[0].parameters:
            return None
        # The other way round: the copy is changed in place, and the source is used after that.
        source = copy.places[0]
        found = self._outlives(flow, point, Place(holder.path), _Holder(source.path, False))
        if found is None or found[0] is None or found[1] is None:
            return None
        return Held(copy.call, copy.outer, source, holder.path, *found, True)

    def _changed_at_once(self, flow: Flow, point: Point) -> Iterator[Held]:
        """`x.cuda().mul_(2)`, which changes `x` itself on a CPU, where `x` is used after that."""
        for part in point.parts:
            for node in own_nodes(part):
                if not (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and _in_place(node.func.attr)
                    and node.func.attr not in _HARMLESS
                ):
                    continue
                copy = self._copy(node.func.value)
                if copy is None or copy.places[0].parameters or self.facts.guarded(copy.call):
                    continue
                if self._change(point, copy.places[0], node) is not None:
                    continue  # `x.copy_(x.cpu().normal_())`: it changes in any case
                keeper = _Holder(copy.places[0].path, False)
                use = self._use(flow, point, keeper)
                if use or self._given(flow, keeper.path):
                    yield Held(copy.call, copy.outer, copy.places[0], keeper.path, node, use, True)

    def _outlives(
        self, flow: Flow, made: Point, place: Place, holder: _Holder
    ) -> tuple[ast.AST | None, int | None] | None:
        """Where the source is changed in place, and where the copy is used after that."""
        todo, seen = [(made, holder)], {holder.path}
        while todo:
            start, keeper = todo.pop()
            before = [start]
            if self._rebinds(start, place.path):
                return None

            def ends(point: Point, keeper: _Holder = keeper) -> bool:
                return self._rebinds(point, place.path) or self._empties(point, keeper)

            for point in flow.reachable(before, ends):
                change = self._change(point, place)
                if change is not None:
                    use = self._use(flow, point, keeper)
                    if use is not None:
                        return change, use or None
                for other, value in self._stores(point):
                    if other.path not in seen and any(
                        (found := self._place(each)) is not None and found.path == keeper.path
                        for each in _contents(value)
                    ):
                        seen.add(other.path)
                        todo.append((point, other))
        return self._elsewhere(flow, made, place, holder)

    def _use(self, flow: Flow, change: Point, keeper: _Holder) -> int | None:
        """The line of a use of what is kept, behind a change of its source; 0 for one out of sight."""
        if self._empties(change, keeper):
            return None
        outlives = self._outlives_call(flow, keeper)
        for point in flow.reachable([change], lambda each: self._empties(each, keeper)):
            if point is flow.exit:
                if outlives:
                    return 0
            elif keeper.path in point.reads:
                return getattr(point.node, "lineno", 0)
        return None

    def _given(self, flow: Flow, path: str) -> bool:
        """Whether a path is a parameter, which is never bound anew."""
        if isinstance(flow.owner, ast.Module):
            return False
        bindings = self.tree.scopes[flow.owner].bindings.get(path, ())
        return bool(bindings) and all(each.parameter for each in bindings)

    def _outlives_call(self, flow: Flow, keeper: _Holder) -> bool:
        """Whether what is kept is still there when the function has returned."""
        root = _root(keeper.path)
        if isinstance(flow.owner, ast.Module):
            return False
        scope = self.tree.scopes[flow.owner]
        if root in scope.elsewhere:
            return True
        bindings = scope.bindings.get(root)
        if bindings is None:
            return keeper.adds or root != keeper.path
        parameter = all(each.parameter for each in bindings)
        return parameter and (keeper.adds or root != keeper.path)

    def _elsewhere(
        self, flow: Flow, made: Point, place: Place, holder: _Holder
    ) -> tuple[ast.AST | None, int | None] | None:
        """A change in another method of the class, or of a model's parameters by whoever calls."""
        if isinstance(flow.owner, ast.Module) or not holder.path.startswith("self."):
            return None
        if place.parameters and self._given(flow, _root(place.path)) and flow.owner.name != "__init__":
            return None, None
        owner = self.tree.parents.get(flow.owner)
        if not isinstance(owner, ast.ClassDef) or not place.path.startswith("self."):
            return None
        methods = [each for each in owner.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
        if flow.owner.name == "__init__" or not any(
            holder.path in point.reads for method in methods for point in self.flow(method).points
        ):
            return None
        change: ast.AST | None = None
        for method in methods:
            points = self.flow(method).points
            if method.name != "__init__" and any(self._rebinds(point, place.path) for point in points):
                return None
            if method is not flow.owner and method.name != "__init__" and change is None:
                change = next(filter(None, (self._change(point, place) for point in points)), None)
        return None if change is None else (change, None)

    # -- what is kept -----------------------------------------------------------------------------------

    def _stores(self, point: Point) -> Iterator[tuple[_Holder, ast.expr]]:
        """What a statement keeps, and where."""
        match point.node:
            case ast.Assign(targets=targets, value=value) if point.binds:
                for target in targets:
                    yield from self._stored(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from self._stored(target, value)
            case ast.AugAssign(op=ast.Add(), target=target, value=ast.List() | ast.Tuple() as value):
                path = dotted(target)
                if path:
                    yield _Holder(path, True), value
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr, value=receiver), args=args)):
                path = dotted(_without_index(receiver))
                if attr in _ADDING and path:
                    for value in args:
                        yield _Holder(path, True), value

    def _stored(self, target: ast.expr, value: ast.expr) -> Iterator[tuple[_Holder, ast.expr]]:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for each, its in zip(target.elts, value.elts, strict=True):
                    yield from self._stored(each, its)
        elif isinstance(target, (ast.Name, ast.Attribute)):
            path = dotted(target)
            if path and not (isinstance(target, ast.Attribute) and target.attr in ("data", "grad")):
                yield _Holder(path, False), value
        elif isinstance(target, ast.Subscript):
            base = _without_index(target)
            path = dotted(base)
            if path and self._collection(base):
                yield _Holder(path, True), value

    def _collection(self, node: ast.expr) -> bool:
        """Whether a name is bound to a dict or list, whose items are kept and not copied into."""
        values = [each.value for each in self.facts.bindings(node)]
        return bool(values) and all(
            isinstance(value, (ast.Dict, ast.List, ast.DictComp, ast.ListComp))
            or (isinstance(value, ast.Call) and last_name(value.func) in _COLLECTIONS)
            or (isinstance(value, ast.BinOp) and isinstance(value.left, ast.List))
            for value in values
        )

    # -- what is copied ---------------------------------------------------------------------------------

    def _copy(self, outer: ast.expr) -> _Copy | None:
        """The copy that an expression is, or is a view of."""
        call, node = None, outer
        if isinstance(outer, ast.Call) and last_name(outer.func) in self.returning:
            return self._returned(outer)
        if isinstance(outer, ast.Call) and last_name(outer.func) == "state_dict":
            return self._state(outer)
        while call is None:
            if isinstance(node, ast.Call) and self._moves(node):
                call = node
            else:
                inner = _viewed(node)
                if inner is None:
                    return None
                node = inner
        if isinstance(call.func, ast.Attribute) and not self._as_tensor(call):
            base: ast.expr = call.func.value
        else:
            base = call.args[0]
        if base is call or self._already_there(call, base):
            return None
        places = tuple(self._places(base))
        if self._as_tensor(call):
            places = tuple(Place(each.path, each.indexed, buffer=True) for each in places
                           if self._numpy(base))  # fmt: skip
        return _Copy(call, outer, places) if places else None

    def _state(self, outer: ast.Call) -> _Copy | None:
        """`model.cpu().state_dict()`, whose tensors stay on the CPU when the model goes back to the GPU."""
        call = outer.func.value if isinstance(outer.func, ast.Attribute) else None
        if (
            not isinstance(call, ast.Call)
            or not isinstance(call.func, ast.Attribute)
            or call.func.attr != "cpu"
        ):
            return None
        path = path_of(call.func.value)
        return _Copy(call, outer, (Place(path.removesuffix(".module"), parameters=True),)) if path else None

    def _returned(self, outer: ast.Call) -> _Copy | None:
        """The copy that a function of the module returns, of what the call hands to it."""
        name, copy = self.returning[last_name(outer.func)]
        path = path_of(outer.args[0]) if outer.args else None
        if name == "self" and isinstance(outer.func, ast.Attribute):
            path = path_of(outer.func.value)
        if path is None:
            return None
        places = tuple(
            Place(path + place.path.removeprefix(name), parameters=True)
            for place in copy.places
            if place.parameters and _root(place.path) == name
        )
        return _Copy(copy.call, copy.outer, places) if places else None

    @cached_property
    def returning(self) -> dict[str, tuple[str, _Copy]]:
        """The functions that only return copies of a module's parameters, and whose."""
        self.__dict__["returning"] = {}
        found: dict[str, tuple[str, _Copy]] = {}
        for owner in self.owners:
            if isinstance(owner, ast.Module) or not isinstance(owner.body[-1], ast.Return):
                continue
            value = owner.body[-1].value
            names = [each.arg for each in (*owner.args.posonlyargs, *owner.args.args)]
            if value is None or not names or ".cpu(" not in self.facts.source.code(owner.body[-1]):
                continue
            self.tree.look_into(owner.body[-1])
            for expression in _contents(value):
                copy = self._copy(expression)
                if copy is not None and any(
                    each.parameters and _root(each.path) == names[0] for each in copy.places
                ):
                    found[owner.name] = names[0], copy
        return found

    def _moves(self, node: ast.Call) -> bool:
        if self._as_tensor(node):
            device = _keyword(node, "device")
            return (
                bool(node.args)
                and device is not None
                and _keyword(node, "dtype") is None
                and not _is_cpu(device)
            )
        if not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr == "cpu":
            return not node.args
        if node.func.attr == "cuda":
            return self.facts.resolve(node.func) is None
        if node.func.attr != "to" or _keyword(node, "copy") is not None or len(node.args) > 1:
            return False
        target = node.args[0] if node.args else _keyword(node, "device")
        return target is not None and _keyword(node, "dtype") is None and self._device(target)

    def _as_tensor(self, node: ast.Call) -> bool:
        return last_name(node.func) == "as_tensor" and self.facts.call(node, "torch.as_tensor")

    def _device(self, node: ast.expr) -> bool:
        if isinstance(node, ast.IfExp):
            return self._device(node.body) or self._device(node.orelse)
        name = last_name(node)
        return (
            cuda_string(node)
            or _is_cpu(node)
            or (bool(name) and (device_name(name) or index_name(name)))
            or (isinstance(node, ast.Call) and self.facts.call(node, "torch.device"))
        )

    def _already_there(self, call: ast.Call, base: ast.expr) -> bool:
        """Whether a move does nothing on a GPU either: its tensor is on that device as it is."""
        attr = last_name(call.func)
        target = call.args[0] if call.args else _keyword(call, "device")
        to_cpu = attr == "cpu" or (target is not None and _is_cpu(target))
        node = base
        while True:
            if isinstance(node, ast.Call) and self._moves(node) and isinstance(node.func, ast.Attribute):
                return False
            inner = _viewed(node)
            if inner is None:
                break
            node = inner
        values = [
            each.value for each in self.facts.bindings(node) if not isinstance(each.node, ast.AugAssign)
        ]
        if not values:
            return False
        if to_cpu:
            return all(value is not None and self._on_cpu(value) for value in values)
        return all(value is not None and self._moved(value) for value in values)

    def _on_cpu(self, value: ast.expr) -> bool:
        while True:
            if isinstance(value, ast.Call):
                if (self.facts.resolve(value.func) or "").startswith("torch."):
                    return last_name(value.func) in _FACTORIES and not any(
                        each.arg == "device" or each.arg is None for each in value.keywords
                    )
                if isinstance(value.func, ast.Attribute) and value.func.attr == "cpu":
                    return True
            inner = (
                value.func.value
                if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
                else None
            )
            if inner is None or value.func.attr in ("cuda", "to", "type"):  # type: ignore[attr-defined]
                return False
            value = inner

    def _moved(self, value: ast.expr) -> bool:
        while isinstance(value, ast.Call):
            if last_name(value.func) == "cuda" or _keyword(value, "device") is not None:
                return True
            if last_name(value.func) == "to" and self._moves(value):
                return True
            if not isinstance(value.func, ast.Attribute):
                break
            value = value.func.value
        return False

    def _numpy(self, node: ast.expr) -> bool:
        """Whether a name is bound to a NumPy array."""
        while (inner := _viewed(node)) is not None:
            node = inner
        values = [each.value for each in self.facts.bindings(node)]
        return bool(values) and all(
            isinstance(value, ast.Call)
            and (
                (self.facts.resolve(value.func) or "").startswith("numpy.")
                or last_name(value.func) in ("numpy", "astype")
            )
            for value in values
        )

    def _places(self, base: ast.expr) -> Iterator[Place]:
        """What a copied expression is (a part of): itself, and what a loop variable is taken from."""
        place = self._place(base)
        if place is None:
            return
        loop = self._loop(base, place.path)
        if not isinstance(loop, ast.comprehension):
            yield place
        last = place.path.rpartition(".")
        if last[2] in ("weight", "bias") and last[0] not in ("", "self"):
            yield Place(last[0], parameters=True)
        origin = None if loop is None else self._elements(loop.iter)
        if origin is not None:
            yield origin

    def _place(self, node: ast.expr) -> Place | None:
        """The place that an expression is, through views and moves."""
        indexed = buffer = False
        while True:
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and self._moves(node) and not self._as_tensor(node):
                    node = node.func.value
                    continue
                if node.args and self.facts.call(node, "torch.from_numpy", "torch.as_tensor"):
                    if not self.facts.call(node, "torch.from_numpy") and (
                        node.keywords or not self._numpy(node.args[0])
                    ):
                        return None
                    buffer = True
                    node = node.args[0]
                    continue
                if isinstance(node.func, ast.Attribute) and _in_place(node.func.attr):
                    node = node.func.value
                    continue
            if isinstance(node, ast.Subscript) and not _constant_key(node):
                if not self._basic(node.slice):
                    return None
                indexed = indexed or not isinstance(node.slice, (ast.Slice, ast.Tuple))
            elif (path := path_of(node)) is not None:
                return Place(path, indexed, buffer=buffer)
            inner = _viewed(node)
            if inner is None:
                return None
            node = inner

    def _basic(self, index: ast.expr) -> bool:
        """Whether an index chooses a view: numbers and slices, where a tensor or list would make a copy."""
        match index:
            case ast.Slice() | ast.UnaryOp(op=ast.USub()):
                return True
            case ast.Constant(value=value):
                return value is None or value is Ellipsis or type(value) is int
            case ast.Tuple(elts=elements):
                return all(map(self._basic, elements))
            case ast.Name():
                found = self.tree.scope(index).lookup(index.id)
                return found is not None and all(_counts(each.node) for each in found[1])
        return False

    def _loop(self, node: ast.expr, name: str) -> ast.For | ast.comprehension | None:
        """The loop that binds the name that an expression is a view of."""
        scope = next((self.tree.scope(each) for each in ast.walk(node)
                      if isinstance(each, ast.Name) and each.id == name), None)  # fmt: skip
        found = scope.lookup(name) if scope is not None else None
        if found is None or len(found[1]) != 1:
            return None
        loop = found[1][0].node
        return loop if isinstance(loop, (ast.For, ast.comprehension)) else None

    def _elements(self, node: ast.expr) -> Place | None:
        """What the elements of an iterable are, where they are a module's parameters."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if node.func.id in ("list", "sorted", "enumerate", "tqdm", "tuple"):
                return self._elements(node.args[0])
            return None
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        receiver = node.func.value
        if node.func.attr in ("items", "values"):
            value = receiver if isinstance(receiver, ast.Call) else self.facts.value(receiver)
            if isinstance(value, ast.Call) and last_name(value.func) == "state_dict":
                assert isinstance(value.func, (ast.Attribute, ast.Name))
                receiver = value.func.value if isinstance(value.func, ast.Attribute) else receiver
            else:
                return None
        elif node.func.attr not in _PARAMETERS:
            return None
        place = self._place(receiver)
        return None if place is None else Place(place.path.removesuffix(".module"), parameters=True)

    # -- what happens at a point ------------------------------------------------------------------------

    def _rebinds(self, point: Point, path: str) -> bool:
        return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in point.bound)

    def _empties(self, point: Point, keeper: _Holder) -> bool:
        if self._rebinds(point, keeper.path):
            return True
        match point.node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="clear", value=value))):
                return dotted(value) == keeper.path
            case ast.Delete(targets=targets):
                return any(dotted(_without_index(each)) == keeper.path for each in targets)
        return False

    def _change(self, point: Point, place: Place, but: ast.AST | None = None) -> ast.AST | None:
        """What changes a place in place at a point, other than the node `but`."""
        if place.parameters:
            return next((node for part in point.parts for node in own_nodes(part)
                         if self._trains(node, place.path)), None)  # fmt: skip
        for part in point.parts:
            for node in own_nodes(part):
                for changed, item in self._changes(node) if node is not but else ():
                    if changed.path == place.path and not (item and place.indexed):
                        if not self.facts.guarded(node):
                            return node
        return None

    def _trains(self, node: ast.AST, model: str) -> bool:
        """Whether a call changes the parameters of a model."""
        if not isinstance(node, ast.Call):
            return False
        name = last_name(node.func)
        if isinstance(node.func, ast.Attribute):
            receiver = ast.unparse(node.func.value)
            if name == "load_state_dict":
                return receiver.removesuffix(".module") == model
            if name == "step":
                return bool(_OPTIMIZER.search(receiver)) and "sched" not in receiver.lower()
            if name == "train" and (not node.args or isinstance(node.args[0], ast.Constant)):
                return "trainer" in receiver.lower()
        if name in self.training:
            return True
        given = {dotted(each) for each in (*node.args, *(keyword.value for keyword in node.keywords))}
        return bool(_TRAINS.match(name)) and model in given

    @cached_property
    def training(self) -> frozenset[str]:
        """The functions and methods of the module that take an optimizer's step, also through others."""
        functions = [each for each in self.owners if not isinstance(each, ast.Module)]
        found: set[str] = set()
        for _ in range(_DEPTH):
            for function in functions:
                if function.name not in found and any(
                    isinstance(node, ast.Call)
                    and (
                        (last_name(node.func) in found and last_name(node.func) != "step")
                        or (
                            isinstance(node.func, ast.Attribute)
                            and node.func.attr == "step"
                            and _OPTIMIZER.search(ast.unparse(node.func.value))
                        )
                    )
                    for node in ast.walk(function)
                ):
                    found.add(function.name)
        return frozenset(found - {"main", "__init__", "forward", "step", "__call__"})

    def _changes(self, node: ast.AST) -> Iterator[tuple[Place, bool]]:
        """What a node changes in place; true for an item that is set, which may be one of a list."""
        match node:
            case ast.AugAssign(target=target, value=value):
                if isinstance(value, (ast.List, ast.Tuple, ast.ListComp, ast.JoinedStr)):
                    return
                yield from self._whole(target, isinstance(target, ast.Subscript))
            case ast.Subscript(ctx=ast.Store(), value=value) if not _constant_key(node):
                yield from self._whole(value, not isinstance(node.slice, (ast.Slice, ast.Tuple)))
            case ast.Call(func=ast.Attribute(attr=attr, value=receiver)):
                if (_in_place(attr) and attr not in _HARMLESS) or attr in _NUMPY_CHANGES:
                    yield from self._whole(receiver, False)
                yield from self._by_call(node)
            case ast.Call():
                yield from self._by_call(node)

    def _whole(self, node: ast.expr, item: bool) -> Iterator[tuple[Place, bool]]:
        if isinstance(node, ast.Subscript) and not _constant_key(node):
            node = _without_index(node)
        place = self._place(node)
        if place is not None:
            yield place, item

    def _by_call(self, node: ast.Call) -> Iterator[tuple[Place, bool]]:
        """What a call changes of its arguments."""
        out = _keyword(node, "out")
        if out is not None:
            yield from self._whole(out, False)
        name = self.facts.resolve(node.func) or dotted(node.func) or ""
        if node.args:
            inplace = _keyword(node, "inplace")
            if _FIRST_ARGUMENT.fullmatch(name) or (
                isinstance(inplace, ast.Constant) and inplace.value is True and name.startswith("torch.")
            ):
                yield from self._whole(node.args[0], False)
        short = last_name(node.func)
        for index in self.changing.get(short, ()):
            if index < len(node.args):
                yield from self._whole(node.args[index], False)
        if (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "self"
        ):
            for path in self.changing_self.get(short, ()):
                yield Place(path), False

    @cached_property
    def changing(self) -> dict[str, tuple[int, ...]]:
        """Which of its parameters a function of the module changes in place, by the function's name."""
        self.__dict__["changing"] = {}  # what a function calls is not followed further
        self.__dict__["changing_self"] = {}
        found: dict[str, tuple[int, ...]] = {}
        for owner in self.owners:
            if isinstance(owner, ast.Module) or isinstance(self.tree.parents.get(owner), ast.ClassDef):
                continue
            names = [each.arg for each in (*owner.args.posonlyargs, *owner.args.args)]
            changed = {place.path for place in self._changed_in(owner)}
            indexes = tuple(index for index, name in enumerate(names) if name in changed)
            if indexes:
                found[owner.name] = indexes
        del self.__dict__["changing_self"]
        return found

    @cached_property
    def changing_self(self) -> dict[str, frozenset[str]]:
        """Which attributes of `self` a method changes in place, by the method's name."""
        self.__dict__["changing_self"] = {}
        found: dict[str, frozenset[str]] = {}
        for owner in self.owners:
            if not isinstance(owner, ast.Module) and isinstance(self.tree.parents.get(owner), ast.ClassDef):
                paths = frozenset(p.path for p in self._changed_in(owner) if p.path.startswith("self."))
                if paths:
                    found[owner.name] = found.get(owner.name, frozenset()) | paths
        return found

    def _changed_in(self, owner: Body) -> Iterator[Place]:
        flow = self.flow(owner)
        bound = {path for point in flow.points for path in point.bound}
        for point in flow.points:
            for part in point.parts:
                for node in own_nodes(part):
                    for place, item in self._changes(node):
                        if not item and place.path not in bound:
                            yield place


def _contents(value: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose values are kept where `value` is kept."""
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for each in elements:
                yield from _contents(each)
        case ast.Dict(values=values):
            for each in values:
                yield from _contents(each)
        case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
            yield from _contents(element)
        case ast.DictComp(value=element):
            yield from _contents(element)
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            for keyword in keywords:
                yield from _contents(keyword.value)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _contents(body)
            yield from _contents(orelse)
        case ast.Call(func=function, args=[argument]) if last_name(function) in (
            "dict",
            "list",
            "tuple",
            "OrderedDict",
        ):
            yield from _contents(argument)
        case _:
            yield value


def _viewed(node: ast.expr) -> ast.expr | None:
    """What an expression is a view of."""
    match node:
        case ast.Attribute(attr=attr, value=value) if attr in VIEW_ATTRIBUTES:
            return value
        case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in _VIEWS:
            return value
        case ast.Call(func=function, args=[argument], keywords=[]) if last_name(function) in (
            "Variable",
            "asarray",
        ):
            return argument
        case ast.Subscript(value=value) if not _constant_key(node):
            return value
    return None


def _root(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _constant_key(node: ast.Subscript) -> bool:
    return isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)


def _without_index(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _in_place(method: str) -> bool:
    return method.endswith("_") and not method.startswith("_") and not method.endswith("__")


def _counts(node: ast.AST) -> bool:
    """Whether a loop's variables are numbers."""
    if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Call):
        return last_name(node.iter.func) in ("range", "enumerate", "trange")
    return False


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in node.keywords if each.arg == name), None)


def _is_cpu(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and last_name(node.func) == "device" and node.args:
        return _is_cpu(node.args[0])
    return isinstance(node, ast.Constant) and node.value == "cpu"
