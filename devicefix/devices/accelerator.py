"""The counterparts of torch.cuda in torch.accelerator, and the torch versions that have them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property

from devicefix.devices.counterparts import COUNTERPARTS, DEFAULT, TARGETS, Counterpart, Version
from devicefix.facts import Facts, dotted
from devicefix.facts.flow.kinds import NUMBERS
from devicefix.facts.flow.parameters import unpacks
from devicefix.facts.values import cuda_literal, cuda_string, is_constant
from devicefix.rewrite.placement import GUARDED_LIBRARIES

_BACKEND = "distributed.get_default_backend_for_device"  # "nccl" for CUDA
QUESTIONS = ("is_available", "device_count")
FORKS = ("torch.random.fork_rng", "torch.fork_rng")
_SAME_OBJECTS = ("OutOfMemoryError",)  # an old name of the same object
# They have no counterpart, or none in an older torch, and have no effect without CUDA.
_HARMLESS = {
    "manual_seed", "manual_seed_all", "seed", "seed_all", "random.manual_seed", "random.manual_seed_all",
    "empty_cache", "memory_allocated", "memory_reserved", "memory_cached", "max_memory_allocated",
    "max_memory_reserved", "max_memory_cached", "memory_stats", "OutOfMemoryError",
}  # fmt: skip
_MODULES = re.compile(r"torch(\.cuda(\.(amp|comm|graphs|memory|nccl|nvtx|random|sparse|streams))?)?\Z")
_DECORATORS = ("amp.custom_fwd", "amp.custom_bwd")
_ALIASES = (  # prefixes of other names of the same objects
    ("streams.", ""),
    ("memory.", ""),
    ("amp.autocast_mode.", "amp."),
    ("amp.grad_scaler.", "amp."),
)
STREAM_MAKERS = ("Stream", "Event", "current_stream")
_STREAMS = (*STREAM_MAKERS, "stream", "default_stream", "set_stream", "ExternalStream", "StreamContext")
_STREAM_METHODS = {
    "wait_stream", "wait_event", "record_stream", "record_event", "record", "wait", "synchronize", "query",
    "elapsed_time",
}  # fmt: skip
_CUDA_ONLY = {
    "torch.version.cuda",
    "torch.backends.cuda.preferred_linalg_library",
    "torch.backends.cuda.preferred_blas_library",
}
_TENSOR_TYPE = re.compile(r"torch\.cuda\.(\w+\.)?\w+Tensor\Z")


class Accelerator:
    """The uses of CUDA in a module that any accelerator supports.

    Args:
        facts: The module's facts.
        version: The oldest torch that the module must run with; None for the default.
    """

    def __init__(self, facts: Facts, version: Version | None) -> None:
        self.facts = facts
        self.version = version or DEFAULT

    def reference(self, node: ast.AST) -> str | None:
        """Return `synchronize` for `torch.cuda.synchronize`, None for what is not in torch.cuda."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        if isinstance(self.facts.tree.parents.get(node), ast.Attribute) or self._is_variable(node):
            return None
        name = f"{self.facts.resolve(node)}."
        if not name.startswith("torch.cuda.") or self._is_of_object(node):
            return None
        short = name.removeprefix("torch.cuda.")[:-1]
        for alias, prefix in _ALIASES:
            if short.startswith(alias) and f"{prefix}{short.removeprefix(alias)}" in COUNTERPARTS:
                return prefix + short.removeprefix(alias)
        return short

    def references(self, site: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
        """Yield the references to torch.cuda at a site."""
        for node in ast.walk(site):
            if isinstance(node, (ast.Name, ast.Attribute)) and self.reference(node) is not None:
                yield node

    def counterpart(self, node: ast.AST) -> Counterpart | None:
        """Return the counterpart that can replace a reference in the oldest torch, None if there is none."""
        short = self.reference(node) or ""
        found = self._best(short)
        if found is None or self.facts.tree.f_string(node) is not None:
            return None
        if short in QUESTIONS or short in _SAME_OBJECTS:
            return found
        call = self.facts.tree.call_of(node)
        if short in _DECORATORS:
            decorators = getattr(self.facts.tree.parents.get(node), "decorator_list", ())
            return found if call is not None or node in decorators else None
        if call is None or (unpacks(call) and short != "amp.GradScaler"):
            return None
        if short in _STREAMS:
            return found if self.can_replace_streams else None
        return found if _accepts(self.facts, short, call) else None

    def excludes_mps(self, site: ast.AST) -> bool:
        """Return whether a site pins the memory of a tensor, or synchronizes batch norms."""
        names = {getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(site)}
        return not names.isdisjoint(("pin_memory", "SyncBatchNorm"))

    def fails_on_mps(self, site: ast.AST) -> bool:
        """Return whether a site fails on MPS: a counterpart, pinned memory, synchronized batch norms."""
        call = next(self.facts.tree.around(site, ast.Call), None)
        keeps = call is not None and self.facts.call(call, *FORKS)  # it numbers the devices
        return keeps or self.excludes_mps(site) or any(map(self._fails_on_mps, self.references(site)))

    def _fails_on_mps(self, node: ast.AST) -> bool:
        short = self.reference(node) or ""
        if short.endswith("rng_state"):
            call = self.facts.tree.call_of(node)  # torch.mps has one device, and takes none
            return call is not None and len(call.args) + len(call.keywords) > short.startswith("set")
        found = self.counterpart(node)
        return found is not None and not found.works_on("mps", self.version)

    def only_cuda(self, site: ast.AST) -> ast.AST | None:
        """Return the first node at a site that only CUDA supports, or None."""
        return next((node for node in ast.walk(site) if self.is_cuda_only(node)), None)

    def is_cuda_only(self, node: ast.AST) -> bool:
        """Return whether only CUDA supports a node, whatever is inside it."""
        match node:
            case ast.Constant(value=str(text)):
                return "nccl" in text or bool(_TENSOR_TYPE.match(text))
            case ast.Call(func=ast.Attribute(value=receiver, attr="cuda")):
                return self.facts.resolve(receiver) is None
            case ast.Import(names=names):
                return any(name.name.partition(".")[0] in GUARDED_LIBRARIES for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                return module.partition(".")[0] in GUARDED_LIBRARIES
            case ast.Name() | ast.Attribute():
                return self._is_cuda_only_name(node)
        return False

    def _is_cuda_only_name(self, node: ast.Name | ast.Attribute) -> bool:
        name = self.facts.resolve(node) or ""
        if name in _CUDA_ONLY:
            return True
        short = self.reference(node)
        if short is not None:
            is_harmless = short in _HARMLESS and self.facts.tree.call_of(node) is not None
            return not is_harmless and self.counterpart(node) is None
        return dotted(node) in self._stream_names and not self.can_replace_streams

    @property
    def knows_backends(self) -> bool:
        """Return whether the oldest torch names the default backend of every device."""
        return TARGETS[_BACKEND].devices["mps"].at(self.version)

    def translation(self, node: ast.expr, torch: str) -> Callable[[str], str] | None:
        """Return a function that makes the accelerator's code of that of a CUDA device, its name, or NCCL.

        The new code raises an error without an accelerator.

        Args:
            node: The device: a string, or a call of `torch.device`. Or the string "nccl".
            torch: The name of the module torch.

        Returns:
            None where the node is not a CUDA device, or is composed in another way.
        """
        device = f"{torch}.accelerator.current_accelerator()"
        if isinstance(node, ast.Constant) and node.value == "nccl":
            backend = f"{torch}.distributed.get_default_backend_for_device({device})"
            return (lambda _: backend) if self.version >= TARGETS[_BACKEND].since else None
        if self.facts.call(node, "torch.device"):
            return self._translation_of_call(node, device)
        return self._translation_of_name(node, f"{device}.type")

    def _translation_of_call(self, node: ast.Call, device: str) -> Callable[[str], str] | None:
        """Return the translation of a call of `torch.device`."""
        if node.keywords or not 1 <= len(node.args) <= 2:
            return None
        if cuda_literal(node.args[0]) is None:
            if len(node.args) == 1:
                return lambda _: device
            return self._change_of_first(node, lambda _: f"{device}.type")
        if len(node.args) == 1 and cuda_string(node.args[0]):
            change = self._translation_of_name(node.args[0], f"{device}.type")
            return self._change_of_first(node, change) if change else None
        return None

    def _translation_of_name(self, node: ast.expr, device_type: str) -> Callable[[str], str] | None:
        """Return the translation of a string that names a CUDA device."""
        index = cuda_literal(node)
        if index is None:
            return lambda _: device_type
        if isinstance(index, int):
            return lambda text: f"f{text[-1]}{{{device_type}}}:{index}{text[-1]}"
        if isinstance(node, ast.JoinedStr):
            literal = re.match(r"(f|rf|fr)['\"]+cuda", self.facts.source.code(node), re.I)
            return (lambda text: text.replace("cuda", f"{{{device_type}}}", 1)) if literal else None
        if cuda_string(node) and "cuda" in self.facts.source.code(node):
            # In `"cuda:%d" % i`, `"cuda:" + i` and `"cuda:{}".format(i)` the index follows the first word.
            return lambda text: f"{device_type} + {text.replace('cuda', '', 1)}"
        return None

    def _best(self, short: str) -> Counterpart | None:
        """Return the first counterpart that the oldest torch has, one that works on MPS before others."""
        found = [each for each in COUNTERPARTS.get(short, ()) if each.since <= self.version]
        on_mps = (each for each in found if each.works_on("mps", self.version))
        return next(on_mps, next(iter(found), None))

    def _is_variable(self, node: ast.AST) -> bool:
        """Return whether a name is a variable: the reference to torch.cuda is the value it is bound to."""
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            return isinstance(node, ast.Name)
        return any(binding.value is not None for binding in self.facts.bindings(node))

    def _is_of_object(self, node: ast.expr) -> bool:
        """Return whether a node is an attribute of a variable that holds an object, and no module."""
        while isinstance(node, ast.Attribute):
            node = node.value
        value = self.facts.resolve(node) if self._is_variable(node) else None
        return value is not None and not _MODULES.match(value)

    def _change_of_first(self, call: ast.Call, change: Callable[[str], str]) -> Callable[[str], str]:
        """Return a change of a call's first argument as a change of the call."""
        source = self.facts.source
        (start, end), (first, last) = source.span(call), source.span(call.args[0])
        head, tail = first - start, end - last

        def new(text: str) -> str:
            # Inner edits may have changed the length of the only argument, or of those behind a literal.
            middle = len(text) - tail if len(call.args) == 1 else last - start
            return text[:head] + change(text[head:middle]) + text[middle:]

        return new

    # -- streams and events --------------------------------------------------------------------------

    @cached_property
    def _stream_names(self) -> frozenset[str]:
        """The variables and attributes that streams and events are assigned to."""
        nodes = (node for node in self.facts.tree.nodes if self.reference(node) in STREAM_MAKERS)
        calls = filter(None, map(self.facts.tree.call_of, nodes))
        return frozenset(filter(None, (_path(self._target(call)) for call in calls)))

    @cached_property
    def can_replace_streams(self) -> bool:
        """Return whether all streams and events of the module can become torch.Stream and torch.Event.

        Those have no `cuda_stream`, and a function that gets one as an argument may need torch.cuda's.
        """
        references = [(node, self.reference(node)) for node in self.facts.tree.nodes]
        used = [(node, short) for node, short in references if short in _STREAMS]
        reads = (read for name in self._stream_names for read in self.facts.tree.reads(name))
        replaceable = all(self._is_replaceable(node, short) for node, short in used if short)
        return replaceable and all(map(self._is_used_portably, reads))

    def _is_replaceable(self, node: ast.AST, short: str) -> bool:
        """Return whether torch.Stream or torch.Event can replace a reference to torch.cuda's."""
        call = self.facts.tree.call_of(node)
        if call is None or self._best(short) is None:
            return False
        names = {keyword.arg for keyword in call.keywords}
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return False
        if short == "stream":
            parent = self.facts.tree.parents.get(call)
            entered = isinstance(parent, ast.withitem) and parent.optional_vars is None
            fits = len(call.args) == 1 and not names
            return entered and fits and dotted(call.args[0]) in self._stream_names
        if short == "Event":
            fits = len(call.args) <= 1 and names <= {"enable_timing"} and not (call.args and names)
        elif short == "Stream":
            fits = len(call.args) <= 1 and names <= {"device", "priority"}
        else:
            fits = len(call.args) + len(names) <= 1 and names <= {"device"}
        return fits and (_path(self._target(call)) is not None or self._is_used_portably(call))

    def _target(self, node: ast.expr) -> ast.expr | None:
        """Return the target that a stream is assigned to, also in `stream if … else None`."""
        parents = self.facts.tree.parents
        parent = parents.get(node)
        if isinstance(parent, ast.IfExp):
            if is_constant(parent.body, None) or is_constant(parent.orelse, None):
                node, parent = parent, parents.get(parent)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            return parent.targets[0]
        outer = parents.get(parent) if isinstance(parent, ast.Tuple) else None
        if isinstance(parent, ast.Tuple) and isinstance(outer, ast.Assign):
            target = outer.targets[0]
            if isinstance(target, ast.Tuple) and len(target.elts) == len(parent.elts):
                return target.elts[parent.elts.index(node)]
        return None

    def _is_used_portably(self, node: ast.expr) -> bool:
        """Return whether a stream or event is used as torch.Stream and torch.Event can be, too."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Attribute):
            return parent.attr in _STREAM_METHODS and self.facts.tree.call_of(parent) is not None
        if isinstance(parent, ast.Call):
            if isinstance(parent.func, ast.Attribute) and parent.func.attr in _STREAM_METHODS:
                return True
            return self.reference(parent.func) == "stream"
        return isinstance(parent, (ast.Compare, ast.If, ast.BoolOp, ast.UnaryOp))


def _path(node: ast.expr | None) -> str | None:
    return dotted(node) if node is not None else None


def _accepts(facts: Facts, short: str, call: ast.Call) -> bool:
    """Return whether the counterpart accepts the arguments of a call."""
    if short == "amp.GradScaler":
        return True
    if short == "amp.autocast":
        return len(call.args) <= 3
    if short == "device":
        is_index = len(call.args) == 1 and facts.kinds.of(call.args[0]).are(NUMBERS)
        return is_index and isinstance(facts.tree.parents.get(call), ast.withitem)
    names = [keyword.arg for keyword in call.keywords]
    if short.endswith(("seed", "seed_all", "rng_state", "rng_state_all")):
        return True
    return len(call.args) + len(names) <= 1 and names in ([], ["device"])
