"""The kinds of value that an expression can have, as far as they matter to devices.

The answer follows all bindings of a name: assignments, parameters with their annotations, defaults and the
calls in the module, loops, captures, options of the command line. The names of variables decide nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias
from weakref import proxy

from devicefix.facts.guards import Guards
from devicefix.facts.names import Names
from devicefix.facts.prefilter import lines_with_name
from devicefix.facts.scopes import COMPREHENSIONS, Binding, dotted, with_defaults
from devicefix.facts.values import choice, cpu, cuda_string, last_name

_DEPTH = 6  # how many bindings to follow from one name to the next
_STEPS = 500  # expressions that one answer may look at
_NESTED = 50  # how deeply they may nest
_BINDINGS = 20  # more of them are not told apart by their order
_SPAWNS = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.spawn.spawn",
    "torch.multiprocessing.start_processes",
)


class Kind(Enum):
    """A kind of value."""

    TENSOR = "a tensor"
    MODULE = "a module"
    OBJECT = "another object"
    CUDA = "a CUDA device"
    CPU = "the CPU"
    DEVICE = "a device that is chosen at run time"
    INDEX = "an int"
    COUNT = "the number of GPUs"
    NONE = "None"
    DTYPE = "a dtype"
    STREAM = "a stream"
    EVENT = "an event"
    STORAGE = "a storage"
    STRING = "a string that is not a device"
    COLLECTION = "a collection"
    OTHER = "a value of another kind"


# What `.to(…)` and `device=` accept besides None.
DEVICES = frozenset({Kind.CUDA, Kind.CPU, Kind.DEVICE, Kind.INDEX, Kind.COUNT})
NUMBERS = frozenset({Kind.INDEX, Kind.COUNT})
_ONLY_WITH_CUDA = NUMBERS | {Kind.CUDA}


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of value that an expression can have.

    Attributes:
        seen: the kinds that the module shows, each with a node that shows it.
        unknown: whether a value is of unknown kind.
        open: whether a caller that the module does not show may pass any value.
        classes: the full names of the classes of the tensors, modules and objects, as far as they are known.
    """

    seen: dict[Kind, ast.AST] = field(default_factory=dict)
    unknown: bool = False
    open: bool = False
    classes: frozenset[str] = frozenset()

    def are(self, kinds: Iterable[Kind]) -> bool:
        """Return whether the value is certainly of one of some kinds."""
        return not self.open and self.shown(kinds)

    def shown(self, kinds: Iterable[Kind]) -> bool:
        """Return whether all values that the module shows are of some kinds; callers may pass others."""
        return bool(self.seen) and not self.unknown and self.seen.keys() <= set(kinds)

    def can_be(self, kind: Kind) -> bool | None:
        """Return whether the value can be of a kind, None where that is unknown."""
        if kind in self.seen:
            return True
        return None if self.unknown or self.open or not self.seen else False

    def __or__(self, other: Kinds) -> Kinds:
        return Kinds(
            {**other.seen, **self.seen},
            self.unknown or other.unknown,
            self.open or other.open,
            self.classes | other.classes,
        )

    def without(self, kind: Kind) -> Kinds:
        """Return the same kinds but one."""
        seen = {each: node for each, node in self.seen.items() if each is not kind}
        return Kinds(seen, self.unknown, self.open, self.classes)


UNKNOWN = Kinds(unknown=True)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_OF_CALLS = {
    "int": Kind.INDEX,
    "len": Kind.INDEX,
    "str": Kind.STRING,
    "list": Kind.COLLECTION,
    "dict": Kind.COLLECTION,
    "os.getenv": Kind.STRING,
    "os.environ.get": Kind.STRING,
    "torch.cuda.current_device": Kind.INDEX,
    "torch.distributed.get_rank": Kind.INDEX,
    "torch.distributed.get_node_local_rank": Kind.INDEX,
    "torch.distributed.get_world_size": Kind.INDEX,
    "torch.cuda.device_count": Kind.COUNT,
    "torch.accelerator.device_count": Kind.COUNT,
    "torch.cuda.Stream": Kind.STREAM,
    "torch.cuda.current_stream": Kind.STREAM,
    "torch.cuda.default_stream": Kind.STREAM,
    "torch.cuda.Event": Kind.EVENT,
    "torch.nn.Parameter": Kind.TENSOR,
    "torch.nn.parameter.Parameter": Kind.TENSOR,
    "torch.autograd.Variable": Kind.TENSOR,
}
_OF_ANNOTATIONS = {
    "int": Kind.INDEX,
    "None": Kind.NONE,
    "str": Kind.STRING,
    "bool": Kind.OTHER,
    "float": Kind.OTHER,
    "torch.Tensor": Kind.TENSOR,
    "torch.FloatTensor": Kind.TENSOR,
    "torch.LongTensor": Kind.TENSOR,
    "torch.nn.Parameter": Kind.TENSOR,
    "torch.nn.Module": Kind.MODULE,
    "torch.device": Kind.DEVICE,
    "torch.dtype": Kind.DTYPE,
    "torch.types.Device": Kind.DEVICE,
    "torch.cuda.Stream": Kind.STREAM,
    "torch.cuda.Event": Kind.EVENT,
}
DTYPES = {
    "float", "float16", "float32", "float64", "bfloat16", "half", "double", "long", "int", "int8",
    "int16", "int32", "int64", "short", "uint8", "bool", "complex64", "complex128", "cfloat",
}  # fmt: skip
# Functions of torch that return no tensor.
_NO_TENSORS = {
    "load", "save", "compile", "device", "dtype", "Generator", "set_grad_enabled", "no_grad",
    "enable_grad", "inference_mode", "manual_seed", "seed", "initial_seed", "is_tensor",
    "is_floating_point", "numel", "split", "chunk", "unbind", "meshgrid", "broadcast_tensors", "topk",
    "sort", "max", "min", "median", "mode", "kthvalue", "get_default_dtype", "get_num_threads", "Size",
    "finfo", "iinfo", "unique", "svd", "qr", "eig", "slogdet", "get_rng_state", "typename",
    "is_grad_enabled", "autocast", "Stream", "Event", "nonzero", "where", "allclose", "equal",
    "from_dlpack", "get_default_device", "result_type", "promote_types", "std_mean", "var_mean", "cummax",
    "cummin", "histogram", "lobpcg", "lu", "tensor_split", "hsplit", "vsplit", "dsplit", "vmap", "cond",
    "unsafe_chunk",
}  # fmt: skip
# Functions that return what they are given, alone or in a collection.
_WRAPPERS = {
    "list", "tuple", "set", "sorted", "reversed", "iter", "next", "dict", "zip", "cycle", "nullcontext",
    "SimpleNamespace", "Namespace", "deepcopy", "copy", "get", "pop", "run", "run_until_complete",
}  # fmt: skip
# Methods that return what they are called on, or a tensor for a tensor.
_SAME = {
    "to", "cuda", "cpu", "type", "float", "double", "half", "bfloat16", "train", "eval", "requires_grad_",
    "share_memory", "share_memory_",
}  # fmt: skip
_OF_TENSORS = {
    "clone", "detach", "contiguous", "view", "reshape", "unsqueeze", "squeeze", "permute", "transpose",
    "t", "long", "int", "bool", "byte", "short", "expand", "expand_as", "repeat", "flatten", "mean",
    "sum", "abs", "exp", "log", "sqrt", "type_as", "pin_memory", "zero_", "fill_", "normal_", "uniform_",
    "random_", "add_", "mul_", "sub_", "div_", "clamp", "clamp_", "mm", "bmm", "matmul", "softmax",
    "sigmoid", "tanh", "relu", "index_select", "gather", "masked_fill", "masked_fill_", "data", "grad",
    "T", "new_zeros", "new_ones", "new_tensor", "new_full",
}  # fmt: skip


# Methods of tensors that return their storage.
_STORAGES = ("storage", "typed_storage", "untyped_storage")


class KindsOf:
    """The kinds of the expressions of one module.

    Args:
        facts: the names of the module.
        guards: its guards.
    """

    def __init__(self, facts: Names, guards: Guards) -> None:
        self._facts: Names = proxy(facts)  # they hold us: a circle would keep the tree until it is collected
        self._guards = guards
        self._known: dict[tuple[object, int], Kinds] = {}
        self._asked: set[object] = set()  # the bindings that are being asked about
        self._assumed: set[object] = set()  # those of them that a circle led back to
        self._steps = self._nested = 0

    def of(self, node: ast.expr, depth: int = _DEPTH) -> Kinds:
        """Return the kinds of value that an expression can have.

        Args:
            node: the expression.
            depth: how many bindings to follow.
        """
        if not self._nested:
            self._steps = 0
        key = node, depth
        if key in self._known:
            return self._known[key]
        if depth <= 0 or self._steps >= _STEPS or self._nested >= _NESTED:
            return UNKNOWN
        self._steps += 1
        self._nested += 1
        try:
            found = self._of(node, depth)
        finally:
            self._nested -= 1
        if not self._assumed:
            self._known[key] = found
        return found

    def _of(self, node: ast.expr, depth: int) -> Kinds:  # noqa: C901, PLR0911, PLR0912 (one case a kind of node)
        if cuda_string(node):
            return Kinds({Kind.CUDA: node})
        match node:
            case ast.Constant():
                return _of_constant(node)
            case ast.Call():
                return self._call(node, depth)
            case ast.Name() | ast.Attribute():
                return self._path(node, depth)
            case ast.IfExp(body=body, orelse=orelse):
                if choice(self._facts, node) is not None:
                    return Kinds({Kind.DEVICE: node})
                return self.of(body, depth) | self.of(orelse, depth)
            case ast.BoolOp(op=op, values=values):
                *others, last = (self.of(value, depth) for value in values)
                for kinds in others:
                    last |= kinds.without(Kind.NONE) if isinstance(op, ast.Or) else kinds
                return last
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
            case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Lambda():
                return Kinds({Kind.OTHER: node})
            case ast.UnaryOp(operand=operand):
                kinds = self.of(operand, depth)
                return kinds if kinds.are({Kind.TENSOR}) else Kinds({Kind.OTHER: node})  # -1 is no GPU
        return UNKNOWN

    # -- operators and collections --------------------------------------------------------------------

    def _item(self, value: ast.expr, index: ast.expr, depth: int) -> Kinds:
        kinds = self.of(value, depth)
        if kinds.are({Kind.TENSOR}):
            return kinds
        return UNKNOWN if isinstance(index, ast.Slice) else self.elements(value, depth)

    def _operation(self, node: ast.BinOp, depth: int) -> Kinds:
        left, right = self.of(node.left, depth), self.of(node.right, depth)
        for kinds in (left, right):
            if kinds.are({Kind.TENSOR}):
                return kinds
        numbers = {Kind.INDEX, Kind.COUNT}
        text = left.can_be(Kind.STRING) or (
            isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        )
        if (
            isinstance(node.op, ast.Mod)
            and right.are(numbers)
            and not text
            and left.can_be(Kind.TENSOR) is not True
        ):
            return Kinds({Kind.INDEX: node})  # of what is not an int, it would be no device on CUDA either
        integral = isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod))
        if integral and left.shown(numbers) and right.shown(numbers):
            return Kinds({Kind.INDEX: node}, open=left.open or right.open)
        return UNKNOWN

    def elements(self, node: ast.expr, depth: int = _DEPTH) -> Kinds:  # noqa: C901, PLR0911 (as above)
        """Return the kinds of the elements of a collection, or of the values of a dictionary."""
        if not depth:
            return UNKNOWN
        match node:
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return self._union(elements, depth)
            case ast.Dict(values=values):
                return self._union(values, depth)
            case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
                return self.of(element, depth)
            case ast.DictComp(value=element):
                return self.of(element, depth)
            case ast.Call(func=ast.Name(id="range")) if self._is_builtin(node.func):
                return Kinds({Kind.INDEX: node})
            case ast.Call(func=ast.Name(id="list" | "tuple" | "sorted" | "set"), args=[inner]):
                return self.elements(inner, depth)
            case ast.Name() | ast.Attribute():
                if self._facts.resolve(node) in ("os.environ", "sys.argv"):
                    return Kinds({Kind.STRING: node})
                bindings = self._facts.bindings(node)
                if bindings and all(binding.value is not None for binding in bindings):
                    found = [self.elements(binding.value, depth - 1) for binding in bindings if binding.value]
                    return _union(found)
                return self._more_arguments(node, depth) | self._captured(node, depth) | UNKNOWN
            case ast.Call() if last_name(node.func) in _WRAPPERS:
                return self._parts(node, depth) | UNKNOWN
        return UNKNOWN

    def _parts(self, node: ast.expr, depth: int) -> Kinds:
        """Return the kinds of a value, or of the parts of a collection, as far as the module shows them."""
        match node:
            case ast.List(elts=inner) | ast.Tuple(elts=inner) | ast.Set(elts=inner) | ast.Dict(values=inner):
                pass
            case ast.Starred(value=element) | ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                inner = [element]
            case ast.Call(args=arguments, keywords=keywords) if last_name(node.func) in _WRAPPERS:
                inner = [*arguments, *(each.value for each in keywords)]
            case ast.Name() if depth:
                inner = [each.value for each in self._facts.bindings(node) if each.value is not None]
                if inner and all(self.of(each, depth - 1).can_be(Kind.COLLECTION) for each in inner):
                    return _union(self._parts(each, depth - 1) for each in inner)
                return self.of(node, depth)
            case _:
                return self.of(node, depth)
        return _union(self._parts(each, depth - 1) for each in inner) if depth > 0 else UNKNOWN

    def _union(self, nodes: Sequence[ast.expr | None], depth: int) -> Kinds:
        if not nodes or any(node is None or isinstance(node, ast.Starred) for node in nodes):
            return UNKNOWN
        return _union(self.of(node, depth) for node in nodes if node is not None)

    def _is_builtin(self, name: ast.expr) -> bool:
        return isinstance(name, ast.Name) and self._facts.tree.scope(name).lookup(name.id) is None

    # -- names ----------------------------------------------------------------------------------------

    def _path(self, node: ast.Name | ast.Attribute, depth: int) -> Kinds:
        resolved = self._facts.resolve(node)
        if resolved is not None:
            return _of_reference(node, resolved)
        if isinstance(node, ast.Name):
            found = self._facts.tree.scope(node).lookup(node.id)
            return UNKNOWN if found is None else self._bound(node, node.id, found[1], depth)
        bindings = self._facts.tree.attributes.get(dotted(node) or "", ())
        if bindings:
            known = self._bound(node, dotted(node) or "", bindings, depth)
            option = self._option(node)
            return known if option is None else known.without(Kind.NONE) | option
        return self._attribute(node, depth)

    def _attribute(self, node: ast.Attribute, depth: int) -> Kinds:
        option = self._option(node)
        if option is not None:
            return option
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self._class_attribute(node, depth)
        if node.attr in _OF_TENSORS and self.of(node.value, depth).are({Kind.TENSOR}):
            return Kinds({Kind.TENSOR: node})
        if node.attr == "device" and self.of(node.value, depth).are({Kind.TENSOR}):
            return Kinds({Kind.DEVICE: node})
        return self._stored(node, depth) | UNKNOWN

    def _stored(self, node: ast.Attribute, depth: int) -> Kinds:
        """Return the kinds of what the module stores in an attribute of any object."""
        if node.attr == "index":
            return Kinds({Kind.INDEX: node}) if self.of(node.value, depth).can_be(Kind.CUDA) else UNKNOWN
        if depth <= 1:
            return UNKNOWN
        made = node.value if isinstance(node.value, ast.Call) else self._facts.value(node.value)
        if isinstance(made, ast.Call) and (value := _argument(made, node.attr, -1)) is not None:
            return self.of(value, depth - 1)
        bindings = self._facts.tree.attributes.get(f"self.{node.attr}", ())
        values = [each.value for each in bindings[:_BINDINGS] if each.value is not None]
        return _union(self.of(value, depth - 1) for value in values)

    def _option(self, node: ast.Attribute) -> Kinds | None:
        """Return the kinds of an option of the command line that is always an int, or None."""
        if not self._facts.is_integer_option(node.attr):
            return None
        return Kinds({Kind.INDEX: node, Kind.NONE: node})

    def _class_attribute(self, node: ast.Attribute, depth: int) -> Kinds:
        for _, parent in self._facts.tree.ancestors(node):
            if isinstance(parent, ast.ClassDef):
                bindings = self._facts.tree.scopes[parent].bindings.get(node.attr)
                return UNKNOWN if not bindings else self._bound(node, node.attr, bindings, depth)
        return UNKNOWN

    def _bound(self, site: ast.expr, path: str, bindings: Sequence[Binding], depth: int) -> Kinds:
        reaching = self._reaching(site, bindings)
        if len(reaching) == len(bindings):
            return self._all_bound(path, bindings, depth)
        return _union(self._binding(binding, path, depth - 1) for binding in reaching)

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
        found = _union(self._binding(binding, path, depth) for binding in others)
        # `x = x.cuda()` shows nothing more of a tensor.
        return found if not carried or found.shown({Kind.TENSOR, Kind.MODULE}) else found | UNKNOWN

    def _reaching(self, site: ast.expr, bindings: Sequence[Binding]) -> Sequence[Binding]:
        """Return the bindings of a name that may hold at a site."""
        tree = self._facts.tree
        if not 1 < len(bindings) <= _BINDINGS:
            return bindings
        scopes = {tree.scope(binding.node) for binding in bindings if not binding.parameter}
        here = tree.scope(site)
        while isinstance(here.node, COMPREHENSIONS) and here.parent is not None:
            here = here.parent
        if scopes != {here}:
            return bindings
        statement = tree.statement(site)
        around = {id(block) for block in self._blocks(statement)}
        last = None
        for binding in bindings:
            node = binding.node
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and binding.value is not None:
                if node.lineno < statement.lineno and id(tree.block(node)) in around:
                    last = binding
        if last is None:
            return bindings
        line = last.node.lineno  # type: ignore[attr-defined]
        looped = any(
            isinstance(parent, (ast.For, ast.AsyncFor, ast.While)) and parent.lineno > line
            for _, parent in tree.ancestors(statement)
        )
        end = None if looped else statement.lineno
        return [
            binding
            for binding in bindings
            if binding is last
            or (not binding.parameter and _line(binding) > line and (end is None or _line(binding) < end))
        ]

    def _blocks(self, statement: ast.stmt) -> Iterator[list[ast.stmt]]:
        """Yield the block of a statement, and the blocks around it in the same function."""
        tree = self._facts.tree
        yield tree.block(statement)
        for _, parent in tree.ancestors(statement):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
                return
            if isinstance(parent, ast.stmt):
                yield tree.block(parent)

    def _binding(self, binding: Binding, name: str, depth: int) -> Kinds:  # noqa: C901, PLR0911 (as above)
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
                found = next(filter(None, (_counterpart(target, value, name) for target in targets)), None)
                return self.of(found, depth) if found else self._parts(value, depth) | UNKNOWN
            case ast.withitem(context_expr=value):
                return self._parts(value, depth) | UNKNOWN
            case ast.MatchAs() | ast.MatchStar() | ast.MatchMapping():
                around = (parent for _, parent in self._facts.tree.ancestors(node))
                match = next(parent for parent in around if isinstance(parent, ast.Match))
                return self._parts(match.subject, depth) | UNKNOWN
            case ast.AugAssign(target=target, value=value):
                return Kinds({Kind.INDEX: node}) if self.of(value, depth).are(NUMBERS) else UNKNOWN
            case ast.AnnAssign(annotation=annotation):
                return self.annotated(annotation)
            case ast.ExceptHandler():
                return Kinds({Kind.OBJECT: node})
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Delete():
                return Kinds({Kind.OTHER: node})
        return UNKNOWN

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
        return self._parts(iterated, depth) | UNKNOWN

    def _captured(self, node: ast.expr, depth: int) -> Kinds:
        """Return the kinds of the parts of what a pattern or a `with` statement binds to a name."""
        found = self._facts.tree.scope(node).lookup(node.id) if isinstance(node, ast.Name) else None
        taken = (ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.withitem)
        bindings = [each for each in found[1] if isinstance(each.node, taken)] if found is not None else []
        return _union(self._binding(binding, "", depth - 1) for binding in bindings[:_BINDINGS])

    def _more_arguments(self, node: ast.expr, depth: int) -> Kinds:
        """Return the kinds of what the calls in the module pass for `*values` or `**values`."""
        found = self._facts.tree.scope(node).lookup(node.id) if isinstance(node, ast.Name) else None
        owner = found[0].node if found is not None else None
        if not isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return UNKNOWN
        name = node.id  # type: ignore[attr-defined]
        if owner.args.kwarg is not None and owner.args.kwarg.arg == name:
            values = (each.value for call in self._calls_of(owner) for each in call.keywords)
            return _union(self.of(value, depth - 1) for value in values)
        if owner.args.vararg is None or owner.args.vararg.arg != name:
            return UNKNOWN
        return _union(
            self.of(argument, depth - 1)
            for call in self._calls_of(owner)
            for argument in call.args
            if not isinstance(argument, ast.Starred)
        )

    # -- parameters -----------------------------------------------------------------------------------

    def _parameter(self, parameter: ast.arg, default: ast.expr | None, depth: int) -> Kinds:
        """Return the kinds of a parameter: by its annotation, or by its default and the module's calls."""
        if parameter.annotation is not None:
            kinds = self.annotated(parameter.annotation)
            if not kinds.unknown:
                return kinds
        function = self._facts.tree.parents[self._facts.tree.parents[parameter]]
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return Kinds(open=True)
        if function.args.vararg is parameter or function.args.kwarg is parameter:
            return Kinds({Kind.COLLECTION: parameter})
        kinds = Kinds(open=True) if default is None else self.of(default, depth) | Kinds(open=True)
        if isinstance(function, ast.Lambda):
            return _union([kinds, *self._arguments_of_lambda(function, parameter, depth)])
        return _union(
            [kinds, *self._arguments(function, parameter, depth), self._passed(function, parameter)]
        )

    def _passed(self, function: Function, parameter: ast.arg) -> Kinds:
        """Return the kinds of what the calls in other files pass for a parameter."""
        owner = self._facts.tree.parents.get(function)
        method = isinstance(owner, ast.ClassDef)
        name = (
            owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        )
        positional = [*function.args.posonlyargs, *function.args.args]
        position = positional.index(parameter) - method if parameter in positional else -1
        found = self._facts.passed(name, parameter.arg, position)
        return Kinds({Kind[kind]: parameter for kind in found})

    def _arguments_of_lambda(self, function: ast.Lambda, parameter: ast.arg, depth: int) -> Iterator[Kinds]:
        """Yield the kinds of what the calls in the module pass for a parameter of a lambda."""
        positional = [*function.args.posonlyargs, *function.args.args]
        position = positional.index(parameter) if parameter in positional else -1
        for call in self._calls_of(function):
            if function in call.args:  # `map(lambda …, values)`
                if 0 <= position < len(call.args) - 1:
                    yield self._parts(call.args[position + 1], depth) | UNKNOWN
            elif (passed := _argument(call, parameter.arg, position)) is not None:
                yield self.of(passed, depth)

    def _calls_of(self, function: Function | ast.Lambda) -> Iterator[ast.Call]:
        """Yield the calls of a function by its name, or of a lambda, also by `map`."""
        tree = self._facts.tree
        if not isinstance(function, ast.Lambda):
            name = function.name
        else:
            parent = tree.parents.get(function)
            if isinstance(parent, ast.Call) and (parent.func is function or last_name(parent.func) == "map"):
                yield parent
            target = parent.targets[0] if isinstance(parent, ast.Assign) else None
            if not isinstance(target, ast.Name):
                return
            name = target.id
        for node in tree.nodes_at(lines_with_name(tree.text, name)):
            if isinstance(node, ast.Call) and last_name(node.func) == name:
                yield node

    def _arguments(self, function: Function, parameter: ast.arg, depth: int) -> Iterator[Kinds]:
        """Yield the kinds of what the calls in the module pass for a parameter."""
        tree = self._facts.tree
        owner = tree.parents.get(function)
        method = isinstance(owner, ast.ClassDef)
        name = (
            owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        )
        parameters = [arg for arg, _ in with_defaults(function.args)]
        positional = [*function.args.posonlyargs, *function.args.args]
        for node in tree.nodes_at(lines_with_name(tree.text, name)):
            if not isinstance(node, ast.Call):
                continue
            if self._calls(node.func, name, method) and parameter in parameters:
                position = positional.index(parameter) - method if parameter in positional else -1
                passed = _argument(node, parameter.arg, position)
                if passed is not None:
                    yield self.of(passed, depth)
            elif not method and positional[:1] == [parameter] and self._spawns(node, function):
                yield Kinds({Kind.INDEX: node})

    def _calls(self, function: ast.expr, name: str, method: bool) -> bool:
        if isinstance(function, ast.Name):
            return function.id == name
        return method and isinstance(function, ast.Attribute) and function.attr == name

    def _spawns(self, call: ast.Call, function: Function) -> bool:
        """Return whether a call starts processes that call a function with their rank."""
        spawned = _argument(call, "fn", 0)
        return (
            isinstance(spawned, ast.Name)
            and spawned.id == function.name
            and self._facts.resolve(call.func) in _SPAWNS
        )

    def annotated(self, annotation: ast.expr) -> Kinds:
        """Return the kinds that an annotation allows."""
        match annotation:
            case ast.Constant(value=None):
                return Kinds({Kind.NONE: annotation})
            case ast.Constant(value=str(text)):
                return self._quoted(annotation, text)
            case ast.BinOp(left=left, right=right, op=ast.BitOr()):
                return self.annotated(left) | self.annotated(right)
            case ast.Subscript(value=outer, slice=inner):
                return self._generic(annotation, (dotted(outer) or "").rpartition(".")[2], inner)
        name = self._facts.resolve(annotation) or dotted(annotation) or ""
        if name in _OF_ANNOTATIONS:
            return _of_annotation(annotation, name)
        return self.instance(annotation)

    def _generic(self, annotation: ast.expr, outer: str, inner: ast.expr) -> Kinds:
        members = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if outer == "Optional":
            return self.annotated(inner) | Kinds({Kind.NONE: annotation})
        if outer == "Union":
            return _union(map(self.annotated, members))
        if outer in ("Annotated", "Final", "ClassVar"):
            return self.annotated(members[0])
        if outer.lower() in ("list", "tuple", "dict", "set", "sequence", "iterable", "mapping"):
            return Kinds({Kind.COLLECTION: annotation})
        return UNKNOWN

    def _quoted(self, annotation: ast.expr, text: str) -> Kinds:
        return _of_annotation(annotation, text) if text in _OF_ANNOTATIONS else UNKNOWN

    # -- calls ----------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, depth: int) -> Kinds:
        name = self._facts.resolve(node.func)
        if name is None and isinstance(node.func, ast.Name) and self._is_builtin(node.func):
            name = node.func.id
        if name == "torch.device":
            return self._device(node, depth)
        if name in ("max", "min", "abs"):
            numbers = _union(self.of(argument, depth) for argument in node.args)
            return numbers if numbers.shown(NUMBERS) else numbers | UNKNOWN
        if name in _OF_CALLS:
            return Kinds({_OF_CALLS[name]: node})
        if name is not None and name.startswith("torch."):
            return _of_torch(node, name)
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
        if function.attr in _STORAGES:
            return Kinds({Kind.STORAGE: node})
        if function.attr not in _SAME and function.attr not in _OF_TENSORS and function.attr != "get_device":
            return None
        receiver = self.of(function.value, depth)
        if function.attr in _SAME:
            return receiver if receiver.are({Kind.TENSOR, Kind.MODULE, Kind.STORAGE}) else None
        if receiver.are({Kind.TENSOR}):
            return Kinds({Kind.INDEX if function.attr == "get_device" else Kind.TENSOR: node})
        return None

    def _made(self, node: ast.Call, depth: int) -> Kinds:
        """Return the kinds of what a class or function of the module returns."""
        if isinstance(node.func, ast.Lambda):
            return self.of(node.func.body, depth)
        if isinstance(node.func, ast.Name):
            found = self._facts.tree.scope(node).lookup(node.func.id)
            if found is not None and len(found[1]) == 1:
                definition, value = found[1][0].node, found[1][0].value
                if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    return self._returned(definition, depth)
                if isinstance(value, ast.Lambda):
                    return self.of(value.body, depth - 1)
        if last_name(node.func) in _WRAPPERS:
            return self._parts(node, depth) | UNKNOWN
        return self.instance(node.func)

    def _returned(self, function: Function, depth: int) -> Kinds:
        if depth <= 1:
            return UNKNOWN
        values: list[ast.expr] = []
        todo: list[ast.AST] = list(function.body)
        while todo:
            node = todo.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                return UNKNOWN
            if isinstance(node, ast.Return) and node.value is not None:
                values.append(node.value)
            todo += ast.iter_child_nodes(node)
        found = _union(self.of(value, depth - 1) for value in values) if values else UNKNOWN
        return found | UNKNOWN if function.decorator_list else found

    def instance(self, of: ast.expr, depth: int = _DEPTH) -> Kinds:
        """Return the kinds of an instance of a class, with the class's name; unknown for what is no class."""
        name = self._facts.resolve(of)
        found = self._facts.tree.scope(of).lookup(of.id) if isinstance(of, ast.Name) else None
        if name is None and found is not None:
            definition = found[1][0].node if len(found[1]) == 1 else None
            return self._of_class(definition, depth) if isinstance(definition, ast.ClassDef) else UNKNOWN
        full = _class_name(name or (of.id if isinstance(of, ast.Name) else ""))
        if not full:
            return UNKNOWN
        kind = Kind.MODULE if full.startswith("torch.nn.") else Kind.OBJECT
        return Kinds({kind: of}, classes=frozenset({full}))

    def _of_class(self, definition: ast.ClassDef, depth: int) -> Kinds:
        bases = [self.instance(base, depth - 1) if depth else UNKNOWN for base in definition.bases]
        kind = Kind.MODULE if any(Kind.MODULE in base.seen for base in bases) else Kind.OBJECT
        return Kinds({kind: definition}, classes=frozenset({definition.name}))


def _of_annotation(node: ast.expr, name: str) -> Kinds:
    kind = _OF_ANNOTATIONS[name]
    classes = {name} if kind in (Kind.TENSOR, Kind.MODULE) else ()  # or one that inherits from it
    return Kinds({kind: node}, classes=frozenset(classes))


def _class_name(name: str) -> str:
    """Return the full name of a class, also for one of its methods; empty for other names."""
    owner, _, last = name.rpartition(".")
    if last[:1].isupper():
        return name
    return owner if owner.rpartition(".")[2][:1].isupper() else ""


def _union(kinds: Iterable[Kinds]) -> Kinds:
    found = Kinds()
    for each in kinds:
        found |= each
    return found


def _carries(value: ast.expr | None, path: str) -> bool:
    """Return whether a value is what methods of a tensor or module make of the value of a path."""
    node = value
    while node is not None and dotted(node) != path:
        match node:
            case ast.Call(func=ast.Attribute(attr=attr, value=inner)) if attr in _SAME or attr in _OF_TENSORS:
                node = inner
            case ast.Subscript(value=inner):
                node = inner
            case _:
                return False
    return node is not value


def _line(binding: Binding) -> int:
    return getattr(binding.node, "lineno", 0)


def _counterpart(target: ast.expr, value: ast.expr, name: str) -> ast.expr | None:
    """Return what an unpacked value has for a name, None where a `*` leaves it open."""
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(value, (ast.Tuple, ast.List)):
        return None
    names, values = target.elts, value.elts
    for place, element in enumerate(names):
        if isinstance(element, ast.Name) and element.id == name:
            if not any(isinstance(each, ast.Starred) for each in (*names[:place], *values[: place + 1])):
                return values[place] if place < len(values) else None
            end = place - len(names)
            if not any(isinstance(each, ast.Starred) for each in (*names[end:], *values[end:])):
                return values[end] if -end <= len(values) else None
    return None


def _argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """Return what a call passes for a parameter, None if it shows nothing."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    return call.args[position] if 0 <= position < len(call.args) else None


def _of_constant(node: ast.Constant) -> Kinds:
    match node.value:
        case None:
            kind = Kind.NONE
        case bool():
            kind = Kind.OTHER
        case int():
            kind = Kind.INDEX
        case str():
            kind = Kind.CPU if node.value.partition(":")[0] == "cpu" else Kind.STRING
        case _:
            kind = Kind.OTHER
    return Kinds({kind: node})


def _of_reference(node: ast.expr, name: str) -> Kinds:
    """Return the kinds of what an import brings."""
    if name.startswith("torch.") and name.count(".") == 1 and name.rpartition(".")[2] in DTYPES:
        return Kinds({Kind.DTYPE: node})
    return UNKNOWN


def _of_torch(node: ast.Call, name: str) -> Kinds:
    """Return the kinds of what a function or class of torch returns."""
    module, _, function = name.rpartition(".")
    if module == "torch.nn" or module.startswith("torch.nn.modules"):
        return Kinds({Kind.MODULE: node}, classes=frozenset({name}))
    if (
        module == "torch"
        and function not in _NO_TENSORS
        and (function[:1].islower() or function.endswith("Tensor"))
    ):
        return Kinds({Kind.TENSOR: node})
    if function.endswith("Storage"):
        return Kinds({Kind.STORAGE: node})
    if module == "torch.cuda" and function.endswith("Tensor"):
        return Kinds({Kind.TENSOR: node})
    return UNKNOWN
