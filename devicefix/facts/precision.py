"""Show where values in low precision meet values in float32, in code that autocast would cast for.

The types are those without autocast: an operation that gets two of them raises an error on a CPU, where
autocast for CUDA is off. What is not known is not shown. With bfloat16 beside float32 on a CPU (torch 2.13),
`linear`, `matmul`, convolutions, attention and recurrent layers raise an error, elementwise operations and
`cat` promote, normalizations have the type of their input, and an embedding that of its weights.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from devicefix.facts.kinds import DEVICES, Kind
from devicefix.facts.module import Facts
from devicefix.facts.names import Names, unknown
from devicefix.facts.prefilter import lines_with_name
from devicefix.facts.reaching import position, reaching
from devicefix.facts.scopes import Binding, Scope, dotted, with_defaults
from devicefix.facts.tree import children
from devicefix.facts.values import last_name

_STEPS = 1000  # expressions that one answer may look at
_DEPTH = 40  # of names, attributes and calls
_CALLS = 20  # of one function in the module

LOW = {
    "torch.float16": "float16",
    "torch.half": "float16",
    "torch.bfloat16": "bfloat16",
}
_DTYPES = {**LOW, "torch.float32": "float32", "torch.float": "float32", "torch.float64": "float64"}
_TO = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64"}
_FACTORIES = {"zeros", "ones", "rand", "randn", "empty", "linspace", "eye"}
_AUTOCASTS = (
    "torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast", "torch.cuda.amp.autocast",
    "torch.cuda.amp.autocast_mode.autocast",
)  # fmt: skip
_DECORATORS = ("torch.no_grad", "torch.inference_mode", "torch.compile", "torch.enable_grad")
# Layers that raise an error for an input of another type than their weights.
_CASTING = {
    "Linear", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "MultiheadAttention",
    "TransformerEncoderLayer", "TransformerDecoderLayer", "PReLU",
    *(f"{name}{n}d" for name in ("Conv", "ConvTranspose") for n in (1, 2, 3)),
}  # fmt: skip
_EMBEDDINGS = {"Embedding", "EmbeddingBag"}
_NORMS = {"LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"}
_LAYERS = {
    "Identity",
    "Dropout",
    "ReLU",
    "GELU",
    "SiLU",
    "Tanh",
    "Sigmoid",
    "LeakyReLU",
    "Flatten",
    "MaxPool2d",
    "AvgPool2d",
}
_CONTAINERS = {"Sequential", "ModuleList"}
# Functions that raise an error for operands of two types.
_CASTING_FUNCTIONS = {
    "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention", "prelu",
}  # fmt: skip
_SAME_FUNCTIONS = {
    "relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "log_softmax", "dropout", "layer_norm", "rms_norm",
    "interpolate", "flatten", "exp", "sqrt", "clamp", "zeros_like", "ones_like", "randn_like", "rand_like",
}  # fmt: skip
_SAME_METHODS = {
    "cuda", "cpu", "eval", "train", "requires_grad_", "detach", "clone", "contiguous", "view", "reshape",
    "permute", "transpose", "t", "flatten", "unflatten", "unsqueeze", "squeeze", "expand", "repeat", "mean",
    "sum", "relu", "tanh", "sigmoid", "softmax", "clamp", "pin_memory", "share_memory", "chunk", "split",
}  # fmt: skip
_SAME_ATTRIBUTES = {"data", "T", "mT"}
_DEVICES = {*DEVICES, Kind.NONE}
_VISITS = ("modules", "named_modules", "children", "named_children", "apply", "_apply", "parameters")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a known type."""

    dtype: str


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a known class.

    Attributes:
        name: The class in `torch.nn`, or the full name of an imported class; empty for a class of the module.
        dtype: The type that all of it was converted to; empty if as it was made, None if unknown.
        parts: What a container holds.
        keys: What a container holds by names, and the parts of another module that are converted.
        kinds: The types that all parts of some classes were converted to, by the class in `torch.nn`.
        definition: The class of the module.
        imported: Whether the class is imported from another file.
    """

    name: str = ""
    dtype: str | None = ""
    parts: tuple[Value | None, ...] = ()
    keys: tuple[tuple[str, Value | None], ...] = ()
    kinds: tuple[tuple[str, str | None], ...] = ()
    definition: ast.ClassDef | None = None
    imported: bool = False


Value = Tensor | Module
Given = Mapping[str, "Value | None"]  # the values of parameters


class Precision:
    """The types of tensors and modules in one module.

    Args:
        facts: The module's names.
        is_mixing: Whether a call of an imported class's instances lets two types meet.
    """

    def __init__(self, facts: Facts, is_mixing: Callable[[str], bool] = unknown) -> None:
        self._facts = facts
        self._tree = facts.tree
        self._is_mixing = is_mixing
        self._steps = self._depth = 0
        self._found = False
        self._asked: set[object] = set()
        self._known: dict[tuple[ast.expr, int], tuple[Value | None, Given]] = {}

    def meets(self, statements: Sequence[ast.stmt]) -> bool:
        """Return whether some statements of a function, or of the module, show an operation on two types."""
        return self._asks(lambda: self._run(statements, self._of_self(statements[0])))

    def value(self, node: ast.expr) -> Value | None:
        """Return the value of an expression where it is, as far as it is known."""
        self._asks(lambda: None)
        return self.of(node, self._of_self(node))

    def _of_self(self, node: ast.AST) -> Given:
        """Return the object of a method that a node is in."""
        owner = self._tree.parents.get(self._tree.scope(node).node)
        return {"self": Module(definition=owner)} if isinstance(owner, ast.ClassDef) else {}

    def mixing_classes(self) -> Iterator[str]:
        """Yield the classes of modules in which two types meet, whatever their methods are given."""
        for node in self._tree.scopes:
            if isinstance(node, ast.ClassDef) and self._tree.parents.get(node) is self._tree.module:
                module = Module(definition=node)
                if self._asks(partial(self._forward, module, ())):
                    yield node.name

    def _asks(self, question: Callable[[], object]) -> bool:
        self._steps = self._depth = 0
        self._found = False
        self._known.clear()
        question()
        return self._found

    # -- statements ----------------------------------------------------------------------------------

    def _run(self, statements: Iterable[ast.stmt], given: Given) -> None:
        """Look at what statements evaluate without CUDA."""
        for statement in statements:
            for block in self._blocks(statement):
                self._run(block, given)
            if isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return)):
                if statement.value is not None:
                    self._evaluated(statement.value, given)
            if self._found or self._steps > _STEPS:
                return

    def _blocks(self, statement: ast.stmt) -> Iterator[list[ast.stmt]]:
        """Yield the blocks of a statement that may run without CUDA, and in the same precision."""
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            if not any(self._is_autocast(item.context_expr) for item in statement.items):
                yield statement.body
        elif isinstance(statement, (ast.For, ast.AsyncFor, ast.While, ast.Try)):
            yield statement.body
        elif isinstance(statement, ast.If):
            for block in filter(None, (statement.body, statement.orelse)):
                if not self._facts.is_guarded(block[0]):
                    yield block

    def _evaluated(self, node: ast.AST, given: Given) -> None:
        """Look at the operations in an expression."""
        if isinstance(node, (ast.Call, ast.BinOp)):
            self.of(node, given)
        if not isinstance(node, (ast.Lambda, ast.IfExp, ast.BoolOp)):
            for part in children(node):
                self._evaluated(part, given)

    def _is_autocast(self, node: ast.expr) -> bool:
        """Return whether a context may be an autocast of its own."""
        return not isinstance(node, ast.Call) or self._facts.call(node, *_AUTOCASTS)

    # -- expressions ---------------------------------------------------------------------------------

    def of(self, node: ast.expr, given: Given) -> Value | None:
        """Return the value of an expression, as far as it is known."""
        key = node, id(given)
        if key in self._known:
            return self._known[key][0]
        if self._steps > _STEPS or self._depth > _DEPTH:
            return None
        self._steps += 1
        self._depth += 1
        try:
            found = self._of(node, given)
        finally:
            self._depth -= 1
        self._known[key] = found, given  # which keeps its id from being used again
        return found

    def _of(self, node: ast.expr, given: Given) -> Value | None:
        match node:
            case ast.Name():
                return self._name(node, given)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self.of(owner, given), name)
            case ast.Subscript(value=value, slice=index):
                return self._item(self.of(value, given), index)
            case ast.IfExp(body=body, orelse=otherwise):
                one = self.of(body, given)
                return one if one == self.of(otherwise, given) else None
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(left, op, right, given)
            case ast.UnaryOp(operand=operand):
                return self.of(operand, given)
            case ast.Call():
                return self._call(node, given)
        return None

    def _name(self, node: ast.Name, given: Given) -> Value | None:
        found = self._tree.scope(node).lookup(node.id)
        if found is None:
            return None
        bindings = self._first_time(reaching(self._tree, node, found[1]), node)
        values = [self._binding(binding, node.id, given) for binding in bindings]
        value = values[0] if values and all(each == values[0] for each in values) else None
        return self._converted_in_place(value, node.id, node)

    def _first_time(self, bindings: Sequence[Binding], site: ast.Name) -> Sequence[Binding]:
        """Return the bindings that hold when a loop first reaches a place: not those further down."""
        if len(bindings) < 2:
            return bindings
        here = position(self._tree.statement(site))
        before = [each for each in bindings if each.parameter or position(each.node) < here]
        return before or bindings

    def _binding(self, binding: Binding, name: str, given: Given) -> Value | None:
        key = binding.node, name
        if key in self._asked:
            return None
        self._asked.add(key)
        try:
            if binding.parameter:
                return given[name] if name in given else self._passed(binding, name)
            if isinstance(binding.node, (ast.For, ast.AsyncFor, ast.comprehension)):
                plain = isinstance(binding.node.target, ast.Name)
                return self._element(self.of(binding.node.iter, given)) if plain else None
            return self.of(binding.value, given) if binding.value is not None else None
        finally:
            self._asked.discard(key)

    def _passed(self, binding: Binding, name: str) -> Value | None:
        """Return what all calls in the module pass for a parameter, or None if they differ."""
        function = next((each for _, each in self._tree.ancestors(binding.node)), None)
        while function is not None and not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = self._tree.parents.get(function)
        if function is None or name == "self":
            return None
        calls = self._calls_of(function)
        if not 0 < len(calls) <= _CALLS:
            return None
        given = [self._arguments(function, call, {}) for call in calls]
        values = [each[name] for each in given if name in each]  # other calls are of another method
        return values[0] if values and all(each == values[0] for each in values) else None

    def _calls_of(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Sequence[ast.Call]:
        scope = self._tree.scopes.get(function)
        return self._facts.once(_calls, scope) if scope is not None else ()

    def _attribute(self, owner: Value | None, name: str) -> Value | None:
        """Return an attribute of a value."""
        if isinstance(owner, Tensor):
            return owner if name in _SAME_ATTRIBUTES else None
        if owner is None or owner.dtype is None:
            return None
        if name in (keys := dict(owner.keys)):
            return _part(owner, keys[name])
        if owner.definition is None:
            is_weight = name in ("weight", "bias") and owner.name in (_CASTING | _EMBEDDINGS | _NORMS)
            return Tensor(owner.dtype or "float32") if is_weight else None
        return _part(owner, self._own(owner.definition, name))

    def _own(self, owner: ast.ClassDef, name: str) -> Value | None:
        """Return what a class of the module stores in an attribute of `self`."""
        if (owner, name) in self._asked:
            return None
        self._asked.add((owner, name))
        try:
            found = self._stored.get((owner, name), ())
            values = [self.of(value, {"self": Module(definition=owner)}) for value in found]
        finally:
            self._asked.discard((owner, name))
        if not values or any(each != values[0] for each in values):
            return None
        return self._converted_in_class(values[0], owner, f"self.{name}")

    @cached_property
    def _stored(self) -> Mapping[tuple[ast.ClassDef, str], list[ast.expr]]:
        """Return what the methods of classes store in attributes and buffers of `self`."""
        stored: dict[tuple[ast.ClassDef, str], list[ast.expr]] = {}
        unclear: set[tuple[ast.ClassDef, str]] = set()
        for path, bindings in self._tree.attributes.items():
            name = path.removeprefix("self.")
            for binding in bindings if name.isidentifier() and path != name else ():
                owner = self._class_around(binding.node)
                if owner is not None and binding.value is not None:
                    stored.setdefault((owner, name), []).append(binding.value)
                elif owner is not None:
                    unclear.add((owner, name))
        for node in self._tree.nodes_with("register_buffer("):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="self"), attr="register_buffer"),
                    args=[ast.Constant(value=str(name)), value, *_],
                ) if (owner := self._class_around(node)) is not None:
                    stored.setdefault((owner, name), []).append(value)
        return {key: values for key, values in stored.items() if key not in unclear}

    def _class_around(self, node: ast.AST) -> ast.ClassDef | None:
        parents = (parent for _, parent in self._tree.ancestors(node))
        return next((parent for parent in parents if isinstance(parent, ast.ClassDef)), None)

    def _item(self, owner: Value | None, index: ast.expr) -> Value | None:
        if isinstance(owner, Module) and owner.keys and isinstance(index, ast.Constant):
            return _part(owner, dict(owner.keys).get(str(index.value)))
        return self._element(owner)

    def _element(self, owner: Value | None) -> Value | None:
        """Return an element of a list of modules, or a part of a tensor."""
        if not isinstance(owner, Module):
            return owner
        same = owner.parts and all(each == owner.parts[0] for each in owner.parts)
        return _part(owner, owner.parts[0]) if same else None

    def _operation(self, left: ast.expr, op: ast.operator, right: ast.expr, given: Given) -> Value | None:
        one, other = self.of(left, given), self.of(right, given)
        if isinstance(op, ast.MatMult):
            return self._cast([one, other])
        for value, node in ((one, right), (other, left)):
            if isinstance(value, Tensor) and isinstance(node, ast.Constant):
                return value
        return _promoted([one, other])

    # -- calls ---------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, given: Given) -> Value | None:
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return None
        name = self._facts.resolve(node.func) or ""
        if name.startswith("torch."):
            return self._of_torch(node, name, given)
        if isinstance(node.func, ast.Attribute) and not name:
            owner = self.of(node.func.value, given)
            if owner is None and _is_conversion(node):
                dtype = self._target(node, node.func.attr)
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
        if module == "torch" and function in _FACTORIES:
            return self._made(node)
        operands = [self.of(argument, given) for argument in node.args]
        if module in ("torch", "torch.nn.functional"):
            if function in _CASTING_FUNCTIONS:
                return self._cast([*operands[:3], *(self.of(each.value, given) for each in node.keywords)])
            if function == "einsum":
                return self._cast(operands[1:])
            if (
                function in ("cat", "stack", "concat")
                and node.args
                and isinstance(node.args[0], (ast.List, ast.Tuple))
            ):
                return _promoted([self.of(each, given) for each in node.args[0].elts])
            if function in _SAME_FUNCTIONS and operands and not _keyword(node, "dtype"):
                return operands[0]
        return None

    def _layer(self, node: ast.Call, name: str, given: Given) -> Value | None:
        """Return a module of torch.nn."""
        if name in _CONTAINERS:
            elements = node.args
            if name == "ModuleList" or len(elements) == 1:
                elements = _listed(node.args[0]) if node.args else []
            return Module(name, parts=tuple(self.of(each, given) for each in elements))
        if name == "ModuleDict" and node.args:
            pairs = _pairs(node.args[0])
            return Module(name, keys=tuple((key, self.of(value, given)) for key, value in pairs))
        made = self._made(node)
        dtype = made.dtype if made is not None else None
        return Module(name, "" if dtype == "float32" else dtype)

    def _made(self, node: ast.Call) -> Tensor | None:
        """Return a tensor of the type that a function makes."""
        dtype = _keyword(node, "dtype")
        if dtype is None:
            return None if self._has_other_default else Tensor("float32")
        name = self.dtype(dtype)
        return Tensor(name) if name else None

    @cached_property
    def _has_other_default(self) -> bool:
        """Return whether tensors may be made in another type than float32."""
        return "set_default_" in self._tree.text

    def dtype(self, node: ast.expr) -> str | None:
        """Return the type that an expression names, such as `bfloat16`."""
        name = self._facts.resolve(node)
        value = self._facts.value(node) if name is None else None
        if value is not None and isinstance(node, ast.Name):
            name = self._facts.resolve(value)
        return _DTYPES.get(name or "")

    def _method(self, owner: Value | None, method: str, node: ast.Call, given: Given) -> Value | None:
        """Return the result of a method."""
        if owner is None:
            return None
        if method in ("to", "type", *_TO):
            dtype = self._target(node, method)
            return owner if dtype == "" else _converted(owner, dtype)
        if method in _SAME_METHODS:
            return owner
        if isinstance(owner, Tensor):
            if method in ("matmul", "mm", "bmm", "mv", "dot") and node.args:
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

    def _target(self, node: ast.Call, method: str) -> str | None:
        """Return the type that a conversion makes: empty for the same, None if it is not known."""
        if method in _TO:
            return _TO[method]
        keyword = _keyword(node, "dtype")
        if keyword is not None:
            return self.dtype(keyword)
        values = node.args
        found = next(filter(None, map(self.dtype, values)), None)
        if found is not None:
            return found
        is_device = all(
            isinstance(each, ast.Constant) or self._facts.kinds.of(each).are(_DEVICES) for each in values
        )
        return "" if is_device else None

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
                first = self._through(_part(module, each), [first])
            return first
        if module.definition is not None:
            return self._forward(module, operands)
        weights = Tensor(module.dtype or "float32")
        if module.name in _EMBEDDINGS:
            return weights
        if module.name in _CASTING:
            return self._cast([first, weights])
        if module.name in _NORMS:
            return first if module.dtype == "" or first == weights else None
        return first if module.name in _LAYERS else None

    def _cast(self, operands: Sequence[Value | None]) -> Value | None:
        """Return the result of an operation that autocast casts the operands of."""
        dtypes = {each.dtype for each in operands if isinstance(each, Tensor)}
        self._found |= len(dtypes) > 1 and "float64" not in dtypes
        return Tensor(dtypes.pop()) if len(dtypes) == 1 and all(operands) else None

    # -- functions and classes of the module ---------------------------------------------------------

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
        if function in self._asked or any(
            self._facts.resolve(each) not in _DECORATORS for each in decorators
        ):
            return None
        self._asked.add(function)
        try:
            self._run(function.body, given)
            last = function.body[-1]
            value = last.value if isinstance(last, ast.Return) else None
            early = any(
                isinstance(each, ast.Return) for part in function.body[:-1] for each in ast.walk(part)
            )
            return self.of(value, given) if value is not None and not early else None
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

    # -- conversions in place ------------------------------------------------------------------------

    def _converted_in_place(self, value: Value | None, name: str, site: ast.Name) -> Value | None:
        """Return a module after the statements that convert it or a part of it, such as `net.half()`."""
        if not isinstance(value, Module) or name == "self":
            return value
        found = self._tree.scope(site).lookup(name)
        scope = found[0] if found is not None else None
        if name in self._visits:
            value = self._visited(value, name)
        for path, call in self._conversions.get((None, name), ()):
            if self._binds(call, name, scope):
                is_before = self._tree.scope(call) is scope and self._always_before(call, site)
                value = self._after(value, path[1:], call, is_before)
        return value

    @cached_property
    def _visits(self) -> Mapping[str, list[ast.AST | None]]:
        """The calls that visit the parts of a module, by its name: `net.modules()`."""
        found: dict[str, list[ast.AST | None]] = {}
        for node in self._tree.nodes_with(*(f".{method}" for method in _VISITS)):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=method) if method in _VISITS:
                    found.setdefault(name, []).append(self._tree.parents.get(node))
        return found

    def _visited(self, value: Module, name: str) -> Module:
        """Return a module whose parts some code visits, and may convert."""
        for call in self._visits[name]:
            converted = self._converted_kinds(call)
            if converted:
                value = replace(value, kinds=(*value.kinds, *converted))
            elif not self._is_harmless(call):
                return replace(value, dtype=None)
        return value

    def _converted_kinds(self, call: ast.AST | None) -> list[tuple[str, str | None]]:
        """Return what `for m in net.modules(): if isinstance(m, nn.Embedding): m.half()` converts."""
        loop = self._tree.parents.get(call)
        match loop:
            case ast.For(
                target=ast.Name(id=name),
                body=[
                    ast.If(
                        test=ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=tested), kind]),
                        body=[ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner))) as made)],
                        orelse=[],
                    )
                ],
            ) if name == tested == owner and _is_conversion(made) and self._is_unconditional(loop):
                assert isinstance(made, ast.Call)
                assert isinstance(made.func, ast.Attribute)
                kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
                names = [self._facts.resolve(each) or "" for each in kinds]
                dtype = self._target(made, made.func.attr)
                if dtype and all(each.startswith("torch.nn.") for each in names):
                    return [(each.rpartition(".")[2], dtype) for each in names]
        return []

    def _is_harmless(self, call: ast.AST | None) -> bool:
        """Return whether the parts of a module are only passed to an optimizer, or counted."""
        parent = self._tree.parents.get(call)
        if isinstance(parent, (ast.For, ast.AsyncFor)):
            return not any(_is_conversion(each) for part in parent.body for each in ast.walk(part))
        return not (isinstance(call, ast.Call) and call.args)  # `net.apply(f)`

    def _binds(self, node: ast.AST, name: str, scope: Scope | None) -> bool:
        """Return whether a name has the same meaning at a node as in a scope."""
        found = self._tree.scope(node).lookup(name)
        return found is not None and found[0] is scope

    def _always_before(self, call: ast.Call, site: ast.AST) -> bool:
        """Return whether a statement of the function or module has run when a place is reached."""
        if self._tree.scope(call) is not self._tree.scope(site):
            return self._tree.scope(call).is_module
        statement = self._tree.statement(call)
        return statement.lineno < getattr(site, "lineno", 0) and self._is_unconditional(statement)

    def _is_unconditional(self, statement: ast.stmt) -> bool:
        parent = self._tree.parents.get(statement)
        return isinstance(parent, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef))

    def _converted_in_class(self, value: Value | None, owner: ast.ClassDef, path: str) -> Value | None:
        """Return a module that is an attribute after what its class converts in place."""
        whole = self._conversions.get((owner, "self"), ())
        for names, call in (*whole, *self._conversions.get((owner, path), ())):
            function = self._tree.scope(call).node
            is_run = isinstance(function, ast.FunctionDef) and self._is_run(function.name)
            is_known = is_run and len(names) > 1 and self._is_unconditional(self._tree.statement(call))
            value = self._after(value, names[2:], call, is_known)
        return value

    def _is_run(self, method: str) -> bool:
        """Return whether the module runs a method of its objects: `net.init_weights()`."""
        return method == "__init__" or method in self._run_methods

    @cached_property
    def _run_methods(self) -> frozenset[str]:
        """The names of the methods that the module runs in any case, in statements of their own."""
        return frozenset(
            statement.value.func.attr
            for statement in self._tree.statements
            if isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and isinstance(statement.value.func, ast.Attribute)
            and self._is_unconditional(statement)
        )

    def _after(
        self, value: Value | None, path: Sequence[str], call: ast.Call, is_known: bool
    ) -> Value | None:
        """Return a module after a conversion of a part of it, of an unknown type if it may not be run."""
        if not isinstance(value, Module):
            return value
        if path:
            part = self._after(self._attribute(value, path[0]), path[1:], call, is_known)
            others = tuple(each for each in value.keys if each[0] != path[0])
            return replace(value, keys=(*others, (path[0], part)))
        assert isinstance(call.func, ast.Attribute)
        dtype = self._target(call, call.func.attr)
        return value if dtype == "" else _converted(value, dtype if is_known else None)

    @cached_property
    def _conversions(self) -> Mapping[tuple[ast.ClassDef | None, str], list[tuple[list[str], ast.Call]]]:
        """The statements that convert a module in place, each with the parts of its path.

        They are found by the name of the module, or by the class and `self.x` for one of `self.x.y`.
        """
        found: dict[tuple[ast.ClassDef | None, str], list[tuple[list[str], ast.Call]]] = {}
        for node in self._tree.nodes_with(".to(", ".half(", ".bfloat16(", ".float(", ".double("):
            match node:
                case ast.Call(func=ast.Attribute(value=owner)) if _is_conversion(node):
                    path = dotted(owner)
                    if path is not None and isinstance(self._tree.parents.get(node), ast.Expr):
                        names = path.split(".")
                        of_self = names[0] == "self"
                        key = self._class_around(node) if of_self else None, ".".join(names[: 1 + of_self])
                        found.setdefault(key, []).append((names, node))
        return found


def _is_conversion(node: ast.AST) -> bool:
    """Return whether an expression may convert a module: `net.half()`."""
    match node:
        case ast.Call(func=ast.Attribute(attr=method)):
            return method in ("to", *_TO)
    return False


def _converted(value: Value | None, dtype: str | None) -> Value | None:
    """Return a value in another type; an empty one is the same."""
    if value is None or dtype == "":
        return value
    if isinstance(value, Tensor):
        return Tensor(dtype) if dtype else None
    return replace(value, dtype=dtype)


def _part(owner: Module, part: Value | None) -> Value | None:
    """Return a part of a module, with the type that all of the module was converted to."""
    part = _converted(part, owner.dtype)
    if not isinstance(part, Module) or not owner.kinds:
        return part
    dtype = dict(owner.kinds).get(part.name, "") if part.name else ""
    return replace(part, kinds=owner.kinds, dtype=part.dtype if dtype == "" else dtype)


def _promoted(operands: Sequence[Value | None]) -> Value | None:
    """Return the result of an operation that promotes the types of its operands."""
    dtypes = {each.dtype if isinstance(each, Tensor) else None for each in operands}
    if None in dtypes or not dtypes:
        return None
    return (
        Tensor(dtypes.pop() or "") if len(dtypes) == 1 else Tensor("float32") if "float32" in dtypes else None
    )


def _calls(facts: Names, scope: Scope) -> Sequence[ast.Call]:
    """Return the calls of a function by its name in the module, of a constructor by that of its class."""
    function = scope.node
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    owner = facts.tree.parents.get(function)
    name = owner.name if function.name == "__init__" and isinstance(owner, ast.ClassDef) else function.name
    nodes = facts.tree.nodes_at(lines_with_name(facts.tree.text, name))
    return [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == name]


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in node.keywords if each.arg == name), None)


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
