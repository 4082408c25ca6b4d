"""What torch.accelerator, torch.Stream and torch.Event have for what is in torch.cuda, and since when."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from devicefix.facts import Facts, dotted
from devicefix.facts.values import cuda_literal, cuda_string, literal_index

Version = tuple[int, int]

NEWEST = (2, 13)  # what was looked at, and is meant where nobody says a version


@dataclass(frozen=True, slots=True)
class Counterpart:
    """What does the same as something in torch.cuda, on a machine with CUDA.

    Attributes:
        name: its name, less `torch.`.
        since: the torch that brought it.
        instead: what torch.cuda says on a CPU, where the counterpart raises an error; None where they agree.
    """

    name: str
    since: Version
    instead: str | None = None


def _memory(name: str, instead: str) -> tuple[Counterpart, ...]:
    # https://github.com/pytorch/pytorch/pull/152932, in https://docs.pytorch.org/docs/2.9/accelerator.html
    return (Counterpart(f"accelerator.{name}", (2, 9), instead),)


# By the name in torch.cuda; the newest comes first. Since when, by torch's own documentation:
# - https://pytorch.org/docs/2.6/_modules/torch/accelerator.html has the first of them, two named `..._idx`;
# - https://docs.pytorch.org/docs/2.7/_sources/accelerator.rst.txt has `..._index`, which replaced them;
# - https://docs.pytorch.org/docs/2.8/_sources/accelerator.md.txt has `device_index`;
# - https://github.com/pytorch/pytorch/pull/156812 has `get_memory_info`, reviewed after 2.9 was out;
# - https://github.com/pytorch/pytorch/pull/140138 lets a stream be entered (2.7), and
#   https://github.com/pytorch/pytorch/pull/176568 lets it be entered again inside, as torch.cuda.stream does:
#   seen in 2.13;
# - https://pytorch.org/docs/2.3/_modules/torch/cuda/amp/grad_scaler.html: the same as
#   torch.amp.GradScaler("cuda").
COUNTERPARTS: dict[str, tuple[Counterpart, ...]] = {
    "is_available": (Counterpart("accelerator.is_available", (2, 6)),),
    "device_count": (Counterpart("accelerator.device_count", (2, 6)),),
    "synchronize": (Counterpart("accelerator.synchronize", (2, 6)),),
    "set_device": (
        Counterpart("accelerator.set_device_index", (2, 7)),
        Counterpart("accelerator.set_device_idx", (2, 6)),
    ),
    "current_device": (
        Counterpart("accelerator.current_device_index", (2, 7)),
        Counterpart("accelerator.current_device_idx", (2, 6)),
    ),
    "device": (Counterpart("accelerator.device_index", (2, 8)),),
    "current_stream": (Counterpart("accelerator.current_stream", (2, 6)),),
    "Stream": (Counterpart("Stream", (2, 6)),),
    "Event": (Counterpart("Event", (2, 6)),),
    "stream": (Counterpart("Stream", (2, 13)),),
    "empty_cache": _memory("empty_cache", "None"),
    "memory_allocated": _memory("memory_allocated", "0"),
    "memory_reserved": _memory("memory_reserved", "0"),
    "memory_cached": _memory("memory_reserved", "0"),
    "max_memory_allocated": _memory("max_memory_allocated", "0"),
    "max_memory_reserved": _memory("max_memory_reserved", "0"),
    "max_memory_cached": _memory("max_memory_reserved", "0"),
    "reset_peak_memory_stats": (Counterpart("accelerator.reset_peak_memory_stats", (2, 9)),),
    "reset_max_memory_allocated": (Counterpart("accelerator.reset_peak_memory_stats", (2, 9)),),
    "reset_max_memory_cached": (Counterpart("accelerator.reset_peak_memory_stats", (2, 9)),),
    "reset_accumulated_memory_stats": (Counterpart("accelerator.reset_accumulated_memory_stats", (2, 9)),),
    "mem_get_info": (Counterpart("accelerator.get_memory_info", (2, 10)),),
    "amp.autocast": (Counterpart("amp.autocast", (1, 10)),),
    "amp.GradScaler": (Counterpart("amp.GradScaler", (2, 3)),),
}
QUESTIONS = ("is_available", "device_count")
# They have no counterpart, or none in an older torch, and do no harm wherever there is no CUDA.
_HARMLESS = {
    "manual_seed", "manual_seed_all", "seed", "seed_all", "random.manual_seed", "random.manual_seed_all",
    "empty_cache", "memory_allocated", "memory_reserved", "memory_cached", "max_memory_allocated",
    "max_memory_reserved", "max_memory_cached", "memory_stats", "OutOfMemoryError",
}  # fmt: skip
_MODULES = re.compile(r"torch(\.cuda(\.(amp|comm|graphs|memory|nccl|nvtx|random|sparse|streams))?)?\Z")
AMP = ("amp.autocast", "amp.GradScaler")
# Where the same things also are.
_ELSEWHERE = (
    ("streams.", ""),
    ("memory.", ""),
    ("amp.autocast_mode.", "amp."),
    ("amp.grad_scaler.", "amp."),
)
_MAKERS = ("Stream", "Event", "current_stream")
_STREAMS = (*_MAKERS, "stream", "default_stream", "set_stream", "ExternalStream", "StreamContext")
_ON_STREAMS = {
    "wait_stream", "wait_event", "record_stream", "record_event", "record", "wait", "synchronize", "query",
    "elapsed_time",
}  # fmt: skip
_TYPE = re.compile(r"torch\.cuda\.(\w+\.)?\w+Tensor\Z")


class Accelerator:
    """What of a module's CUDA any accelerator can do.

    Args:
        facts: the module's facts.
        version: the oldest torch that it has to run with.
    """

    def __init__(self, facts: Facts, version: Version | None) -> None:
        self.facts = facts
        self.version = version or NEWEST

    def reference(self, node: ast.AST) -> str | None:
        """`synchronize` for what stands for `torch.cuda.synchronize`; None for what is not in torch.cuda."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        if isinstance(self.facts.tree.parents.get(node), ast.Attribute) or self._variable(node):
            return None
        name = f"{self.facts.resolve(node)}."
        if not name.startswith("torch.cuda.") or self._of_variable(node):
            return None
        short = name.removeprefix("torch.cuda.")[:-1]
        for there, here in _ELSEWHERE:
            if short.startswith(there) and f"{here}{short.removeprefix(there)}" in COUNTERPARTS:
                return here + short.removeprefix(there)
        return short

    def counterpart(self, node: ast.AST) -> Counterpart | None:
        """What can take the place of a reference, as it stands there and in the oldest torch."""
        short = self.reference(node) or ""
        found = next((each for each in COUNTERPARTS.get(short, ()) if each.since <= self.version), None)
        if found is None or any(
            isinstance(each, ast.JoinedStr) for _, each in self.facts.tree.ancestors(node)
        ):
            return None
        if short in QUESTIONS:
            return found
        call = self.call(node)
        if call is None or any(isinstance(each, ast.Starred) for each in call.args):
            return None
        if any(each.arg is None for each in call.keywords):
            return None
        if short in _STREAMS:
            return found if self.streams else None
        return found if self._takes(short, call) else None

    def call(self, node: ast.AST) -> ast.Call | None:
        """The call of a reference, None where it is not called."""
        parent = self.facts.tree.parents.get(node)
        return parent if isinstance(parent, ast.Call) and parent.func is node else None

    def only_cuda(self, site: ast.AST) -> ast.AST | None:
        """What at a site is CUDA's own and will remain so; None where any accelerator will do."""
        return next((node for node in ast.walk(site) if self.is_cudas(node)), None)

    def is_cudas(self, node: ast.AST) -> bool:
        """Whether a node, less what is inside it, is CUDA's own and will remain so."""
        match node:
            case ast.Constant(value=str(text)):
                return text == "nccl" or bool(_TYPE.match(text))
            case ast.Call(func=ast.Attribute(value=receiver, attr="cuda")):
                return self.facts.resolve(receiver) is None
            case ast.Name() | ast.Attribute():
                if (self.facts.resolve(node) or "").endswith(".SyncBatchNorm"):
                    return True
                short = self.reference(node)
                if short is not None:
                    return short not in _HARMLESS and self.counterpart(node) is None
                if self.facts.resolve(node) == "torch.version.cuda":
                    return True
                return dotted(node) in self.held and not self.streams
        return False

    def named(self, node: ast.expr, torch: str) -> Callable[[str], str] | None:
        """How the text of a CUDA device, or of its name, becomes the accelerator's; None where it can't.

        What comes of it raises an error where there is no accelerator.
        """
        device = f"{torch}.accelerator.current_accelerator()"
        kind = f"{device}.type"
        index = cuda_literal(node)
        if index is None:
            return lambda text: kind
        if isinstance(index, int):
            return lambda text: f"f{text[-1]}{{{kind}}}:{index}{text[-1]}"
        if isinstance(node, ast.JoinedStr):
            literal = re.match(r"(f|rf|fr)['\"]+cuda", self.facts.source.code(node), re.I)
            return (lambda text: text.replace("cuda", f"{{{kind}}}", 1)) if literal else None
        if cuda_string(node):
            # `"cuda:%d" % i`, `"cuda:" + i` and `"cuda:{}".format(i)` go on behind the first word.
            return lambda text: f"{kind} + {text.replace('cuda', '', 1)}"
        if not isinstance(node, ast.Call) or not self.facts.call(node, "torch.device") or node.keywords:
            return None
        if len(node.args) == 1 and cuda_literal(node.args[0]) is None:
            return lambda text: device
        if len(node.args) == 1 and literal_index(node.args[0]) is None and cuda_string(node.args[0]):
            return self._of_first(node, self.named(node.args[0], torch))
        if len(node.args) == 2 and cuda_literal(node.args[0]) is None:
            return self._of_first(node, lambda text: kind)
        return None

    # -- what can be taken over ----------------------------------------------------------------------

    def _variable(self, node: ast.AST) -> bool:
        """A variable that holds something of torch.cuda is no other reference: its value is the one."""
        return isinstance(node, ast.Name) and (
            not isinstance(node.ctx, ast.Load)
            or any(each.value is not None for each in self.facts.bindings(node))
        )

    def _of_variable(self, node: ast.expr) -> bool:
        """An attribute of a variable that holds something of torch.cuda, and no module."""
        while isinstance(node, ast.Attribute):
            node = node.value
        held = self.facts.resolve(node) if self._variable(node) else None
        return held is not None and not _MODULES.match(held)

    def _takes(self, short: str, call: ast.Call) -> bool:
        """Whether the counterpart can be handed the arguments of a call."""
        names = [each.arg for each in call.keywords]
        if short == "amp.GradScaler":
            return True
        if short == "amp.autocast":
            return not call.args or (len(call.args) == 1 and call.args[0].lineno == call.lineno)
        if short == "device":
            number = literal_index(call.args[0]) if len(call.args) == 1 else None
            return number is not None and isinstance(self.facts.tree.parents.get(call), ast.withitem)
        return len(call.args) + len(names) <= 1 and names in ([], ["device"])

    def _of_first(self, call: ast.Call, change: Callable[[str], str] | None) -> Callable[[str], str] | None:
        """The change of a call's first argument, as a change of the call."""
        if change is None:
            return None
        source = self.facts.source
        (start, end), (first, last) = source.span(call), source.span(call.args[0])
        head, tail = first - start, end - last  # what is between them may have been changed

        def new(text: str) -> str:
            middle = len(text) - tail
            return text[:head] + change(text[head:middle]) + text[middle:]

        return new

    # -- streams and events --------------------------------------------------------------------------

    @cached_property
    def held(self) -> frozenset[str]:
        """The variables and attributes that streams and events are assigned to."""
        targets = (self._target(call) for call in self._made)
        return frozenset(path for path in map(_path, targets) if path)

    @cached_property
    def streams(self) -> bool:
        """Whether all streams and events of the module can become torch.Stream and torch.Event together.

        Those have no `cuda_stream`, and a function that they are handed to may want torch.cuda's.
        """
        references = [(node, self.reference(node)) for node in self.facts.tree.nodes]
        used = [(node, short) for node, short in references if short in _STREAMS]
        return all(self._known(node, short) for node, short in used if short) and all(
            self._bearable(node)
            for node in self.facts.tree.nodes
            if isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Load)
            and dotted(node) in self.held
        )

    @cached_property
    def _made(self) -> list[ast.Call]:
        calls = (self.call(node) for node in self.facts.tree.nodes if self.reference(node) in _MAKERS)
        return [call for call in calls if call is not None]

    def _known(self, node: ast.AST, short: str) -> bool:
        """Whether a use of torch.cuda's streams is one that torch.Stream and torch.Event have, too."""
        call = self.call(node)
        if call is None or not any(each.since <= self.version for each in COUNTERPARTS.get(short, ())):
            return False
        names = {each.arg for each in call.keywords}
        if any(isinstance(each, ast.Starred) for each in call.args):
            return False
        if short == "stream":
            parent = self.facts.tree.parents.get(call)
            entered = isinstance(parent, ast.withitem) and parent.optional_vars is None
            return entered and len(call.args) == 1 and not names and dotted(call.args[0]) in self.held
        if short == "Event":
            fits = len(call.args) <= 1 and names <= {"enable_timing"} and not (call.args and names)
        elif short == "Stream":
            fits = len(call.args) <= 1 and names <= {"device", "priority"}
        else:
            fits = len(call.args) + len(names) <= 1 and names <= {"device"}
        return fits and (_path(self._target(call)) is not None or self._bearable(call))

    def _target(self, node: ast.expr) -> ast.expr | None:
        """What a stream is assigned to, also by a choice between it and None."""
        parents = self.facts.tree.parents
        parent = parents.get(node)
        if isinstance(parent, ast.IfExp) and any(
            isinstance(arm, ast.Constant) and arm.value is None for arm in (parent.body, parent.orelse)
        ):
            node, parent = parent, parents.get(parent)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            return parent.targets[0]
        outer = parents.get(parent) if isinstance(parent, ast.Tuple) else None
        if isinstance(parent, ast.Tuple) and isinstance(outer, ast.Assign):
            target = outer.targets[0]
            if isinstance(target, ast.Tuple) and len(target.elts) == len(parent.elts):
                return target.elts[parent.elts.index(node)]
        return None

    def _bearable(self, node: ast.expr) -> bool:
        """Whether a stream or event is used as torch.Stream and torch.Event can be, too."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Attribute):
            call = self.facts.tree.parents.get(parent)
            return parent.attr in _ON_STREAMS and isinstance(call, ast.Call) and call.func is parent
        if isinstance(parent, ast.Call):
            if isinstance(parent.func, ast.Attribute) and parent.func.attr in _ON_STREAMS:
                return True
            return self.reference(parent.func) == "stream"
        return isinstance(parent, (ast.Compare, ast.If, ast.BoolOp, ast.UnaryOp))


def references(accelerator: Accelerator, site: ast.AST) -> Iterator[ast.AST]:
    """The references to torch.cuda at a site."""
    return (node for node in ast.walk(site) if accelerator.reference(node) is not None)


def _path(node: ast.expr | None) -> str | None:
    return dotted(node) if node is not None else None
