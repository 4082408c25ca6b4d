from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import RAISING

# They return None on a machine with CUDA, so that a function that does nothing can replace them.
_RETURN_NONE = {
    "set_device", "synchronize", "init", "ipc_collect", "set_per_process_memory_fraction",
    "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_accumulated_memory_stats",
}  # fmt: skip
_STREAMS = {"Stream", "Event", "ExternalStream", "current_stream", "default_stream", "stream"}
_NOTHING = "(lambda *args, **kwargs: None)"
# They only ask about a function or a class.
_LOOKING_UP = {"getattr", "hasattr", "setattr", "delattr", "object", "patch", "isinstance", "reload"}
_HOLDERS = (
    ast.Assign, ast.For, ast.comprehension, ast.List, ast.Dict, ast.Return, ast.Lambda, ast.NamedExpr, ast.BoolOp,
    ast.IfExp, ast.arguments, ast.Match,
)  # fmt: skip
_ASKING = {"isinstance", "issubclass", "hasattr", "callable", "patch", "object"}


class UncalledFunction(Rule):
    """
    ## What it does
    Finds `torch.cuda` functions that may raise an error without CUDA and are stored or passed as values, as in
    `sync = torch.cuda.synchronize` and `getattr(torch.cuda, name)`. Also finds the module `torch.cuda` itself as a
    value.

    ## Why it matters
    Without CUDA, the error occurs where the program calls the function.

    ## Example
    ```python
    sync = torch.cuda.synchronize
    ```

    ## Use instead
    ```python
    sync = torch.cuda.synchronize if torch.cuda.is_available() else (lambda *args, **kwargs: None)
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the program uses the same function as before. Functions that return a value, and
    functions with a computed name, have no fix: you must choose a replacement for the CPU.
    """

    code = "DF409"
    name = "uncalled-function"
    summary = "A `torch.cuda` function is used without being called directly"
    targets = ("cuda",)  # for any accelerator, the rule for its functions reports them
    words = (b"cuda",)
    references = tuple(f"torch.cuda.{name}" for name in sorted(RAISING | _STREAMS))
    attributes = ("cuda",)
    INVALID = (
        Example(
            "a function in a variable",
            before="""
                import torch

                sync = torch.cuda.synchronize
                sync()
            """,
            after="""
                import torch

                sync = torch.cuda.synchronize if torch.cuda.is_available() else (lambda *args, **kwargs: None)
                sync()
            """,
        ),
        Example(
            "a default, an entry of a dictionary, and an item of a list",
            before="""
                import torch


                def clock(wait=torch.cuda.synchronize):
                    wait()


                hooks = {"wait": torch.cuda.synchronize}
                calls = [torch.cuda.synchronize, print]
            """,
            after="""
                import torch


                def clock(wait=torch.cuda.synchronize if torch.cuda.is_available() else (lambda *args, **kwargs: None)):
                    wait()


                hooks = {"wait": torch.cuda.synchronize if torch.cuda.is_available() else (lambda *args, **kwargs: None)}
                calls = [torch.cuda.synchronize if torch.cuda.is_available() else (lambda *args, **kwargs: None), print]
            """,
        ),
        Example(
            "an argument of partial, of a decorator and of a thread",
            before="""
                import threading
                from functools import partial
                from torch.cuda import synchronize

                wait = partial(synchronize, 0)


                @after(synchronize)
                def step():
                    threading.Thread(target=synchronize).start()
            """,
            after="""
                import threading
                from functools import partial
                import torch
                from torch.cuda import synchronize

                wait = partial(synchronize if torch.cuda.is_available() else (lambda *args, **kwargs: None), 0)


                @after(synchronize if torch.cuda.is_available() else (lambda *args, **kwargs: None))
                def step():
                    threading.Thread(
                        target=synchronize if torch.cuda.is_available() else (lambda *args, **kwargs: None)
                    ).start()
            """,
        ),
        Example(
            "an attribute of a class",
            before="""
                import torch


                class Clock:
                    wait = staticmethod(torch.cuda.synchronize)
            """,
            after="""
                import torch


                class Clock:
                    wait = staticmethod(
                        torch.cuda.synchronize if torch.cuda.is_available() else (lambda *args, **kwargs: None)
                    )
            """,
        ),
        Example(
            "a function that returns something",
            before="""
                import torch

                properties = torch.cuda.get_device_properties
                print(properties(0))
            """,
        ),
        Example(
            "a class of streams",
            before="""
                import torch

                make = torch.cuda.Stream
                start: object = torch.cuda.Event
                copies = make()
            """,
        ),
        Example(
            "the module in a class",
            before="""
                import torch


                class Accelerator:
                    backend = torch.cuda
            """,
        ),
        Example(
            "the module itself",
            before="""
                import torch

                run(torch.cuda)
                module = torch
                if fast:
                    module = torch.cuda
            """,
        ),
        Example(
            "a function whose name is computed",
            before="""
                import torch

                make = getattr(torch.cuda, name)
            """,
        ),
    )
    VALID = (
        Example(
            "a choice by availability",
            """
                import torch

                sync = torch.cuda.synchronize if torch.cuda.is_available() else print
            """,
        ),
        Example(
            "a function that is only called under a guard",
            """
                import torch

                sync = torch.cuda.synchronize
                if torch.cuda.is_available():
                    sync()
            """,
        ),
        Example(
            "a function that does nothing without CUDA",
            """
                import torch

                free = torch.cuda.empty_cache
                free()
            """,
        ),
        Example(
            "an annotation and a test",
            """
                import torch


                class Copies:
                    stream: torch.cuda.Stream = None


                def replay(graph: torch.cuda.CUDAGraph) -> None:
                    assert isinstance(graph, torch.cuda.CUDAGraph)
            """,
        ),
        Example(
            "a question about a function",
            """
                import torch

                if hasattr(torch.cuda, "mem_get_info") and original is torch.cuda.mem_get_info:
                    pass
            """,
        ),
    )

    def visit_reference(self, node: ast.Attribute | ast.Name, name: str) -> Iterator[Finding]:
        if isinstance(node.ctx, ast.Load) and not self.facts.is_guarded(node) and self._is_passed_on(node):
            yield self._found(node, name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Iterator[Finding]:
        """Check the functions that another file imports from this one."""
        for each in node.names:
            if (name := f"{node.module}.{each.name}") in self.references and not self.facts.is_guarded(node):
                if self.context.project.is_read_elsewhere(self.devices.path, each.asname or each.name):
                    message = (
                        f"`{name}` raises an error if called without CUDA; call it only if CUDA is available"
                    )
                    yield self.finding(node, message, unless="because the calls are in other files")

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        """Check `getattr(torch.cuda, ...)`."""
        is_lookup = isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) == 2
        if not is_lookup or self.facts.is_guarded(node):
            return
        name = self.facts.resolve(node)
        if name == "torch.cuda":
            yield from self._module(node)
        elif name in self.references and self.facts.tree.call_of(node) is None:
            yield self._found(node, name)
        elif name is None and self.facts.resolve(node.args[0]) == "torch.cuda":
            yield self._looked_up(node)

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        """Check `torch.cuda` where it is passed on."""
        if node.attr == "cuda":
            yield from self._module(node)

    def visit_Name(self, node: ast.Name) -> Iterator[Finding]:
        """Check `cuda` of `from torch import cuda` where it is passed on."""
        if isinstance(node.ctx, ast.Load):
            yield from self._module(node)

    def _module(self, node: ast.expr) -> Iterator[Finding]:
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, (ast.Attribute, ast.Compare, ast.Delete, ast.Expr)):
            return
        if self.facts.resolve(node) != "torch.cuda" or self.facts.is_guarded(node):
            return
        if isinstance(parent, ast.Call) and node in parent.args and last_name(parent.func) in _LOOKING_UP:
            return
        if self.facts.tree.scope(node).is_class or not self._is_alias(parent):
            yield self._looked_up(node)

    def _is_alias(self, parent: ast.AST | None) -> bool:
        """Return whether a statement gives a module another name, which is followed."""
        return isinstance(parent, ast.Assign) and all(
            isinstance(target, ast.Name) and len(self.facts.bindings(target)) == 1
            for target in parent.targets
        )

    def _looked_up(self, node: ast.expr) -> Finding:
        code = self.context.source.code(node)
        message = f"`{code}` may need CUDA; use it only if CUDA is available"
        return self.finding(node, message, unless="because the called functions are unknown")

    def _found(self, node: ast.expr, name: str) -> Finding:
        returns_none = name.removeprefix("torch.cuda.") in _RETURN_NONE
        fix = self.context.when_cuda(node, _NOTHING) if returns_none else None
        advice, more = ("use", "") if fix else ("call", ", and add a CPU path")
        # torch.cuda.stream(None) does nothing.
        problem = (
            "is for CUDA streams" if name == "torch.cuda.stream" else "raises an error if called without CUDA"
        )
        return self.finding(
            node,
            f"`{name}` {problem}; {advice} it only if CUDA is available{more}",
            fix,
        )

    def _is_passed_on(self, node: ast.expr) -> bool:
        """Return whether a function is stored or passed on, and may be called without CUDA."""
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.Assign(targets=[ast.Name(id=name)]):
                reads = self.facts.tree.reads(name)
                return not reads or not all(map(self.facts.is_guarded, reads))
            case ast.Call(func=function):
                return function is not node and last_name(function) not in _ASKING
            case ast.AnnAssign(value=value):
                return value is node
            case ast.keyword(arg=name):
                return name not in ("spec", "autospec")
            case ast.Tuple():
                parent = self.facts.tree.parents.get(parent)
        return isinstance(parent, _HOLDERS)
