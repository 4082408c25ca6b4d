from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from devicefix.devices.context import Context
from devicefix.facts import dotted
from devicefix.model import Finding, Fix
from devicefix.rules.base import Changed, Rule

_WORDS = re.compile("tream|Event")
_MAKERS = {
    f"torch.cuda.{name}"
    for name in (
        "Stream",
        "Event",
        "ExternalStream",
        "current_stream",
        "default_stream",
        "streams.Stream",
        "streams.Event",
    )
}
# Methods of streams, events and tensors that only keep the GPU's work in order: nothing to do on a CPU.
_ORDERING = {
    "wait_stream", "wait_event", "record_stream", "record_event", "record", "wait", "synchronize",
}  # fmt: skip
_TIMES = "elapsed_time"
_ENTERED = "torch.cuda.stream"
_ADVICE = (
    "is handed on, so that its uses can't all be seen: put them under one `if torch.cuda.is_available():`"
)


class CudaStream(Rule):
    """
    ## What it does
    Finds CUDA streams and events, and what is done with them.

    ## Why it matters
    Without CUDA they can't be made: "torch.cuda.Stream requires CUDA support". A program that loads the next
    batch on a stream of its own, or measures time by events, stops there.

    ## Example
    ```python
    self.stream = torch.cuda.Stream()
    with torch.cuda.stream(self.stream):
        self.batch = self.batch.cuda(non_blocking=True)
    torch.cuda.current_stream().wait_stream(self.stream)
    ```

    ## Use instead
    ```python
    self.stream = torch.cuda.Stream() if torch.cuda.is_available() else None
    with torch.cuda.stream(self.stream):
        self.batch = self.batch.to(device, non_blocking=True)
    if torch.cuda.is_available():
        torch.cuda.current_stream().wait_stream(self.stream)
    ```

    ## Fix safety
    Safe: entering the stream None does nothing, and so does leaving out what keeps the GPU's work in order
    where there is none. A time that events measure becomes `nan` on a CPU. All uses of one stream or event are
    fixed together or not at all: where it is handed to a function or kept in a list, it is reported.
    """

    code = "DF404"
    name = "cuda-stream"
    summary = "A CUDA stream or event, or what is done with one"
    MATCHES = (
        Changed(
            "import torch\n\n\nclass Prefetcher:\n    def __init__(self):\n        self.stream = torch.cuda.Stream()\n\n"
            "    def next(self):\n        torch.cuda.current_stream().wait_stream(self.stream)\n"
            "        with torch.cuda.stream(self.stream):\n            pass\n"
            "        self.x.record_stream(torch.cuda.current_stream())\n        self.stream.synchronize()\n",
            "import torch\n\n\nclass Prefetcher:\n    def __init__(self):\n"
            "        self.stream = torch.cuda.Stream() if torch.cuda.is_available() else None\n\n"
            "    def next(self):\n        if torch.cuda.is_available():\n"
            "            torch.cuda.current_stream().wait_stream(self.stream)\n"
            "        with torch.cuda.stream(self.stream):\n            pass\n"
            "        if torch.cuda.is_available():\n"
            "            self.x.record_stream(torch.cuda.current_stream())\n            self.stream.synchronize()\n",
        ),
        Changed(
            "import torch\n\nstart, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)\n"
            "start.record()\nrun()\nend.record()\nms = start.elapsed_time(end)\n",
            "import torch\n\n"
            "start, end = torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else None, "
            "torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else None\n"
            "if torch.cuda.is_available():\n    start.record()\nrun()\nif torch.cuda.is_available():\n    end.record()\n"
            'ms = start.elapsed_time(end) if torch.cuda.is_available() else float("nan")\n',
        ),
        Changed(
            "import torch\n\nwith torch.cuda.stream(torch.cuda.Stream()):\n    run()\n",
            "import torch\n\nwith torch.cuda.stream(torch.cuda.Stream() if torch.cuda.is_available() else None):\n    run()\n",
        ),
        Changed("import torch\n\nstreams = [torch.cuda.Stream() for _ in range(2)]\n", None),
        Changed("import torch\n\nside = torch.cuda.Stream()\nlaunch(side)\n", None),
    )
    LEAVES = (
        "import torch\n\nstream = torch.cuda.Stream() if torch.cuda.is_available() else None\n",
        "import torch\n\n\ndef run(stream):\n    with torch.cuda.stream(stream):\n        pass\n",
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.told: set[ast.AST] = set()

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if self._made(node):
            if self.facts.is_guarded(node):
                return
            fix = self.of_maker(node)
            name = self.facts.resolve(node.func)
            yield self.finding(
                node, f"`{name}` needs CUDA" if fix else f"`{name}` needs CUDA, and {_ADVICE}", fix
            )
        elif (
            isinstance(node.func, ast.Attribute)
            and self._held(node.func.value)
            and not self.facts.is_guarded(node)
        ):
            fix = self._of_method(node)
            if fix is not None:
                yield self.finding(node, "there is no stream or event without CUDA", fix)

    def _made(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.facts.resolve(node.func) in _MAKERS

    def of_maker(self, node: ast.Call) -> Fix | None:
        """Where a stream is made or asked for."""
        statement = self._ordering(node)
        if statement is not None:
            # Two of them in one statement are one guard.
            seen = statement in self.told
            self.told.add(statement)
            return Fix(()) if seen else self.context.put_under_guard(statement)
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Call) and self.facts.call(parent, _ENTERED):
            return self.context.when_cuda(node, "None")
        target = self._target(node)
        if target is not None and dotted(target) in self.followed:
            return self.context.when_cuda(node, "None")
        return None

    def _of_method(self, node: ast.Call) -> Fix | None:
        assert isinstance(node.func, ast.Attribute)
        if dotted(node.func.value) not in self.followed:
            return None
        if node.func.attr == _TIMES:
            return self.context.when_cuda(node, 'float("nan")')
        statement = self.facts.tree.statement(node)
        if node.func.attr in _ORDERING and isinstance(statement, ast.Expr) and statement not in self.told:
            self.told.add(statement)
            return self.context.put_under_guard(statement)
        return None

    def _ordering(self, node: ast.expr) -> ast.Expr | None:
        """The statement around a stream, if all that it does is to keep the GPU's work in order."""
        statement = self.facts.tree.statement(node)
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            return None
        function = statement.value.func
        return statement if isinstance(function, ast.Attribute) and function.attr in _ORDERING else None

    def _target(self, node: ast.expr) -> ast.expr | None:
        """The variable or attribute that a value is assigned to."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            return parent.targets[0]
        outer = self.facts.tree.parents.get(parent) if isinstance(parent, ast.Tuple) else None
        if isinstance(parent, ast.Tuple) and isinstance(outer, ast.Assign):
            target = outer.targets[0]
            if isinstance(target, ast.Tuple) and len(target.elts) == len(parent.elts):
                return target.elts[parent.elts.index(node)]
        return None

    def _held(self, node: ast.expr) -> bool:
        return bool(self.followed) and dotted(node) in self.followed

    @cached_property
    def followed(self) -> set[str]:
        """The variables and attributes that hold a stream or event, all of whose uses can be fixed."""
        if not _WORDS.search(self.context.source.text):
            return set()
        makers = [node for node in self.facts.tree.nodes if isinstance(node, ast.Call) and self._made(node)]
        targets = {dotted(target) for target in map(self._target, makers) if target is not None} - {None}
        return {name for name in targets if name and all(map(self._bearable, self.facts.tree.reads(name)))}

    def _bearable(self, node: ast.expr) -> bool:
        """Whether a use of a stream or event is one that can be fixed, or needs no fix."""
        if self.facts.is_guarded(node):
            return True
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Attribute):
            call = self.facts.tree.parents.get(parent)
            if not (isinstance(call, ast.Call) and call.func is parent):
                return False
            if parent.attr == _TIMES:
                return True
            return parent.attr in _ORDERING and isinstance(self.facts.tree.parents.get(call), ast.Expr)
        if isinstance(parent, ast.Call):
            method = parent.func.attr if isinstance(parent.func, ast.Attribute) else ""
            known = self.facts.call(parent, _ENTERED) or method == _TIMES
            return known or self._ordering(node) is not None
        return isinstance(parent, ast.Compare)
