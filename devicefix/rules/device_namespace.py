from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

from devicefix.facts.effects import has_effects
from devicefix.facts.namespaces import is_namespace
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name
from devicefix.model import Finding, Fix
from devicefix.rewrite import blocks
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import CPU_LACKS, OF_MEMORY

_DEPTH = 3  # how many names to follow
_NEEDS_ANOTHER = "because a CPU needs another call in its place"
_TWICE = "the check evaluates the module a second time"


class DeviceNamespace(Rule):
    """
    ## What it does
    Finds calls to functions that `torch.cpu` lacks, if the program chooses the device's torch module at run time, as in
    `torch.get_device_module(device).empty_cache()` and `getattr(torch, device.type).memory_allocated()`. The module may
    also come from a variable or from a function in the project.

    ## Why it matters
    In torch 2.13, `torch.cpu` has `synchronize`, `set_device`, `current_device`, `device_count`, `Stream` and `Event`,
    but no functions for memory, random numbers or device properties. Calling such a function raises an
    `AttributeError`.

    ## Example
    ```python
    torch.get_device_module(device).empty_cache()
    ```

    ## Use instead
    ```python
    if hasattr(torch.get_device_module(device), "empty_cache"):
        torch.get_device_module(device).empty_cache()
    ```

    ## Fix safety
    The fix is safe for statements that only manage GPU memory: the program then calls the function only if the module
    has it. However, the fix is unsafe if the program gets the module from a function that may have other effects,
    because the program then calls that function twice. Calls to other functions are reported without a fix: how to
    replace them on a CPU depends on the program.
    """

    code = "DF421"
    name = "device-namespace"
    summary = "A function that `torch.cpu` lacks is called on a device's torch module"
    words = (b"get_device_module", b"empty_cache", b"memory_stats", b"memory_allocated", b"memory_reserved")
    common_words = tuple(sorted(name.encode() for name in CPU_LACKS))
    INVALID = (
        Example(
            "the part of torch for a device",
            before="""
                import torch


                def clean(device):
                    torch.get_device_module(device).empty_cache()
            """,
            after="""
                import torch


                def clean(device):
                    if hasattr(torch.get_device_module(device), "empty_cache"):
                        torch.get_device_module(device).empty_cache()
            """,
        ),
        Example(
            "an attribute of torch by the type of a device",
            before="""
                import torch


                class Pipe:
                    def clean(self):
                        getattr(torch, self.device_type).empty_cache()
            """,
            after="""
                import torch


                class Pipe:
                    def clean(self):
                        if hasattr(getattr(torch, self.device_type), "empty_cache"):
                            getattr(torch, self.device_type).empty_cache()
            """,
        ),
        Example(
            "a function of the module, and a variable",
            before="""
                import torch


                def kind():
                    return "cuda" if torch.cuda.is_available() else "cpu"


                def part():
                    name = kind()
                    try:
                        return getattr(torch, name)
                    except AttributeError:
                        return torch.cuda


                def clean():
                    q7 = part()
                    q7.reset_peak_memory_stats()
            """,
            after="""
                import torch


                def kind():
                    return "cuda" if torch.cuda.is_available() else "cpu"


                def part():
                    name = kind()
                    try:
                        return getattr(torch, name)
                    except AttributeError:
                        return torch.cuda


                def clean():
                    q7 = part()
                    if hasattr(q7, "reset_peak_memory_stats"):
                        q7.reset_peak_memory_stats()
            """,
        ),
        Example(
            "figures and random numbers",
            before="""
                import torch

                part = torch.get_device_module()
                print(part.max_memory_allocated())
                part.manual_seed(0)
            """,
        ),
    )
    VALID = (
        Example(
            "functions that torch.cpu has",
            """
                import torch

                torch.get_device_module(device).synchronize()
                print(getattr(torch, kind).device_count())
            """,
        ),
        Example(
            "after a question",
            """
                import torch


                def clean(device):
                    part = torch.get_device_module(device)
                    if hasattr(part, "empty_cache"):
                        part.empty_cache()
                    if device.type != "cpu":
                        part.reset_peak_memory_stats()
                    if device.type == "cpu":
                        return
                    print(part.memory_allocated())


                def figures(device):
                    if device.type == "cpu":
                        raise ValueError("there are no figures")
                    if device.type != "mps":
                        return torch.get_device_module(device).memory_stats()
            """,
        ),
        Example(
            "an error that is handled",
            """
                import torch


                def clean(device):
                    try:
                        getattr(torch, device).empty_cache()
                    except AttributeError:
                        pass
            """,
        ),
        Example(
            "the part for CUDA, and what is no part of torch",
            """
                import torch

                getattr(torch, "cuda").empty_cache()
                torch.get_device_module("cuda").empty_cache()
                getattr(pool, kind).empty_cache()
                dtype = getattr(torch, name)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        match node.func:
            case ast.Attribute(value=part, attr=name) if name in CPU_LACKS:
                if self._is_part(part, _DEPTH) and not self._copes(node, name):
                    message = f"this may be `torch.cpu`, which has no `{name}`; check for the function first"
                    unless = "because its result is used" if name in OF_MEMORY else _NEEDS_ANOTHER
                    yield self.finding(node, message, self._fix(node, part, name), unless)

    def _is_part(self, node: ast.expr, depth: int) -> bool:
        """Return whether an expression is the part of torch for some device, also by a function of another file."""
        if is_namespace(self.facts, node):
            return True
        if isinstance(node, ast.Call):
            if self.facts.guards.refusals.own_function(node.func) is not None:
                return False
            name = last_name(node.func)
            return name not in ("", "getattr") and self.context.project.returns_namespace(name)
        bound = [binding.value for binding in self.facts.bindings(node)]
        return depth > 0 and any(each is not None and self._is_part(each, depth - 1) for each in bound)

    def _copes(self, call: ast.Call, name: str) -> bool:
        """Return whether a call is only reached where it may work, or its error is handled."""
        if self.facts.is_guarded(call) or self.facts.guards.refusals.handlers(call, "AttributeError"):
            return True
        return any(
            (isinstance(parent, (ast.If, ast.IfExp, ast.BoolOp)) and self._asks(parent, child, name))
            or (isinstance(child, ast.stmt) and self._is_refused_before(child))
            for child, parent in self.facts.tree.ancestors(call)
        )

    def _is_refused_before(self, statement: ast.stmt) -> bool:
        """Return whether an earlier statement of the block refuses the CPU: `if device.type == "cpu": raise`."""
        block = self.facts.tree.block(statement)
        return any(
            isinstance(each, ast.If)
            and _compares_with_cpu(each.test)
            and self.facts.guards.refusals.refuses(each.body)
            for each in takewhile(lambda each: each is not statement, block)
        )

    def _asks(self, parent: ast.If | ast.IfExp | ast.BoolOp, child: ast.AST, name: str) -> bool:
        """Return whether what is around a call asks for the function."""
        tests = parent.values if isinstance(parent, ast.BoolOp) else [parent.test]
        return any(
            isinstance(part, ast.Call)
            and last_name(part.func) == "hasattr"
            and any(isinstance(each, ast.Constant) and each.value == name for each in part.args)
            for test in tests
            if test is not child
            for part in walk(test)
        )

    def _fix(self, call: ast.Call, part: ast.expr, name: str) -> Fix | None:
        """Return a fix that asks for the function, None if its value is used or the CPU needs something in its place."""
        statement = self.facts.tree.parents[call]
        if name not in OF_MEMORY or not isinstance(statement, ast.Expr):
            return None
        if not self.context.has_builtin(call, "hasattr"):
            return None
        code = self.context.source.code(part)
        quoted = self.context.source.quoted(f'"{name}"', code)
        test = f"hasattr({code}, {quoted})"
        twice = has_effects(self.facts, part)
        edit = blocks.put_under_guard(self.facts, statement, test)
        return Fix((edit,), _TWICE if twice else "")


def _compares_with_cpu(test: ast.expr) -> bool:
    """Return whether a test is true for the CPU: `device.type == "cpu"`."""
    match test:
        case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value="cpu")]):
            return True
    return False
