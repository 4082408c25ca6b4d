from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import with_defaults
from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule


class NcclBackend(Rule):
    """
    ## What it does
    Finds "nccl" as the backend of distributed training: in `init_process_group`, as a default, an option, a
    variable or a setting.

    ## Why it matters
    NCCL only works with GPUs: "Distributed package doesn't have NCCL built in". On CPUs the backend is gloo.

    ## Example
    ```python
    dist.init_process_group("nccl", rank=rank, world_size=size)
    ```

    ## Use instead
    ```python
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", rank=rank, world_size=size)
    ```

    ## Fix safety
    Safe: with CUDA the backend is the same. A value given on the command line still overrides a default. With
    `--target accelerator` it is the accelerator's own backend (torch 2.6).
    """

    code = "DF601"
    name = "nccl-backend"
    summary = "The backend of distributed training is NCCL, which needs CUDA"
    words = (b"nccl",)
    common_words = (b"backend",)
    INVALID = (
        Example(
            "the backend of a process group",
            before="""
                import torch
                import torch.distributed as dist

                dist.init_process_group("nccl", rank=rank)
            """,
            after="""
                import torch
                import torch.distributed as dist

                dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", rank=rank)
            """,
        ),
        Example(
            "the default of a command line option",
            before="""
                import torch

                parser.add_argument('--dist-backend', default='nccl', type=str)
            """,
            after="""
                import torch

                parser.add_argument('--dist-backend', default='nccl' if torch.cuda.is_available() else 'gloo', type=str)
            """,
        ),
        Example(
            "an attribute and a dictionary",
            before="""
                import torch

                args.dist_backend = 'nccl'
                config = {'backend': 'nccl'}
            """,
            after="""
                import torch

                args.dist_backend = 'nccl' if torch.cuda.is_available() else 'gloo'
                config = {'backend': 'nccl' if torch.cuda.is_available() else 'gloo'}
            """,
        ),
        Example(
            "a choice by whether NCCL is built in",
            before="""
                import torch

                backend = "nccl" if dist.is_nccl_available() else "gloo"
            """,
            after="""
                import torch

                backend = ("nccl" if torch.cuda.is_available() else "gloo") if dist.is_nccl_available() else "gloo"
            """,
        ),
    )
    VALID = (
        Example(
            "a comparison",
            """
                if backend == "nccl":
                    pass
            """,
        ),
        Example(
            "the choices of a command line option",
            """
                parser.add_argument("--backend", choices=["nccl", "gloo"])
            """,
        ),
        Example(
            "a choice by availability",
            """
                import torch

                backend = "nccl" if torch.cuda.is_available() else "gloo"
            """,
        ),
    )

    def visit_Constant(self, node: ast.Constant) -> Iterator[Finding]:
        if node.value == "nccl" and self._backend(node) and not self.facts.is_guarded(node):
            fix = self.context.when_cuda(node, '"gloo"')
            yield self.finding(node, "the `nccl` backend needs CUDA; use `gloo` without it", fix)

    def _backend(self, node: ast.Constant) -> bool:
        """Return whether a string sets a backend, rather than being compared with one."""
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.Assign(targets=[target, *_]):
                return _called_backend(_key(target))
            case ast.AnnAssign(target=target):
                return _called_backend(last_name(target))
            case ast.arguments():
                return any(
                    default is node and _called_backend(arg.arg) for arg, default in with_defaults(parent)
                )
            case ast.Dict(keys=keys, values=values):
                key = keys[values.index(node)]
                return isinstance(key, ast.Constant) and _called_backend(str(key.value))
            case ast.keyword(arg=str(name)):
                return self._default(parent) if name == "default" else _called_backend(name)
            case ast.IfExp(body=body, orelse=ast.Constant(value="gloo")):
                return body is node
            case ast.Call():
                return self._argument(parent, node)
        return False

    def _argument(self, call: ast.Call, node: ast.Constant) -> bool:
        """Return whether a positional argument of a call is a backend."""
        function = last_name(call.func)
        if function == "init_process_group":
            return call.args[0] is node
        return function in ("get", "setdefault") and len(call.args) == 2 and self._option(call)

    def _default(self, keyword: ast.keyword) -> bool:
        """Return whether an argument `default` belongs to an option or a field that is a backend."""
        call = self.facts.tree.parents[keyword]
        owner = self.facts.tree.parents.get(call)
        if isinstance(owner, ast.AnnAssign):  # dataclasses.field
            return _called_backend(last_name(owner.target))
        return self._option(call)

    def _option(self, call: ast.AST | None) -> bool:
        """Return whether a call names an option or a key that is a backend."""
        return isinstance(call, ast.Call) and any(
            isinstance(arg, ast.Constant) and isinstance(arg.value, str) and _called_backend(arg.value)
            for arg in call.args
        )


def _key(target: ast.expr) -> str:
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return last_name(target)


def _called_backend(name: str) -> bool:
    return "backend" in name.lower()
