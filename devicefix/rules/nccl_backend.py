from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import with_defaults
from devicefix.facts.scopes import captures
from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

# The functions that take a backend, each with its position among the arguments and its keyword.
_GROUPS = {
    "init_process_group": (0, "backend"),
    "new_group": (2, "backend"),
    "new_subgroups": (3, "backend"),
    "new_subgroups_by_enumeration": (2, "backend"),
    "Backend": (0, "name"),
}
_NCCL = "torch.distributed.Backend.NCCL"
_MESHES = ("init_device_mesh", "DeviceMesh")


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
    `--target accelerator` it is the accelerator's own backend (torch 2.6). Unsafe if the program sets
    `CUDA_VISIBLE_DEVICES` afterwards, since `torch.cuda.is_available()` determines which GPUs are visible. A value in
    a dictionary whose key says nothing about a backend, and a device mesh of type "cuda", are reported without a fix.
    """

    code = "DF601"
    name = "nccl-backend"
    summary = "The backend of distributed training is NCCL, which needs CUDA"
    words = (b"nccl", b"device_mesh", b"DeviceMesh")
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
        Example(
            "a choice by the operating system",
            before="""
                import os
                import torch
                import torch.distributed as dist

                backend = 'gloo' if os.name == 'nt' else 'nccl'
                dist.init_process_group(backend=backend)
            """,
            after="""
                import os
                import torch
                import torch.distributed as dist

                backend = 'gloo' if os.name == 'nt' else ('nccl' if torch.cuda.is_available() else 'gloo')
                dist.init_process_group(backend=backend)
            """,
        ),
        Example(
            "one backend for each type of device",
            before="""
                import torch
                import torch.distributed as dist

                dist.init_process_group("cpu:gloo,cuda:nccl")
            """,
            after="""
                import torch
                import torch.distributed as dist

                dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
            """,
        ),
        Example(
            "a variable, a parameter, an option and a field of any name",
            before="""
                import dataclasses
                import torch
                import torch.distributed as dist


                @dataclasses.dataclass
                class Config:
                    kind: str = "nccl"


                def start(config, q7="nccl"):
                    dist.init_process_group(q7)
                    dist.new_group([0], None, config.kind)


                def go(name):
                    dist.init_process_group(backend=name)


                which = dist.Backend.NCCL
                start(Config(), which)
                go("nccl")
                parser.add_argument("--comm", default="nccl")
                dist.init_process_group(backend=parser.parse_args().comm)
            """,
            after="""
                import dataclasses
                import torch
                import torch.distributed as dist


                @dataclasses.dataclass
                class Config:
                    kind: str = "nccl" if torch.cuda.is_available() else "gloo"


                def start(config, q7="nccl" if torch.cuda.is_available() else "gloo"):
                    dist.init_process_group(q7)
                    dist.new_group([0], None, config.kind)


                def go(name):
                    dist.init_process_group(backend=name)


                which = dist.Backend.NCCL if torch.cuda.is_available() else "gloo"
                start(Config(), which)
                go("nccl" if torch.cuda.is_available() else "gloo")
                parser.add_argument("--comm", default="nccl" if torch.cuda.is_available() else "gloo")
                dist.init_process_group(backend=parser.parse_args().comm)
            """,
        ),
        Example(
            "a value in a dictionary",
            before="""
                import torch
                import torch.distributed as dist

                options = {"comm": "nccl"}
                dist.init_process_group(options["comm"])
            """,
        ),
        Example(
            "a value in a list, and of a lambda",
            before="""
                import torch
                import torch.distributed as dist

                dist.init_process_group(["nccl"][0])
                dist.init_process_group((lambda: "nccl")())
            """,
        ),
        Example(
            "a device mesh",
            before="""
                from torch.distributed.device_mesh import init_device_mesh

                mesh = init_device_mesh("cuda", (2,))
            """,
        ),
    )
    VALID = (
        Example(
            "a key of a dictionary",
            """
                import torch

                ports = {"nccl": 1}
                port = ports["nccl"]
            """,
        ),
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
        if isinstance(node.value, str) and "nccl" in node.value and not self.facts.is_guarded(node):
            if (node.value == "nccl" and self._backend(node)) or self._reaches_group(node):
                yield self._needs_cuda(node)
            elif node.value == "nccl" and self._may_reach_group(node):
                yield self.finding(
                    node, "`nccl` needs CUDA if it is used as a backend; use `gloo` without it"
                )

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Iterator[Finding]:
        parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
        if any("nccl" in part for part in parts if isinstance(part, str)) and self._reaches_group(node):
            if not self.facts.is_guarded(node):
                yield self._needs_cuda(node)

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        if node.attr == "NCCL" and self.facts.resolve(node) == _NCCL and not self.facts.is_guarded(node):
            if self._backend(node) or self._reaches_group(node):
                yield self._needs_cuda(node)

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if last_name(node.func) not in _MESHES or self.facts.is_guarded(node):
            return
        kinds = [
            *node.args[:1],
            *(keyword.value for keyword in node.keywords if keyword.arg == "device_type"),
        ]
        if any(isinstance(kind, ast.Constant) and kind.value == "cuda" for kind in kinds):
            yield self.finding(
                node, "a mesh of CUDA devices needs NCCL; use a mesh of type `cpu` and `gloo` without CUDA"
            )

    def _needs_cuda(self, node: ast.expr) -> Finding:
        fix = self.context.when_cuda(node, '"gloo"', self.devices.safety(node))
        return self.finding(node, "the `nccl` backend needs CUDA; use `gloo` without it", fix)

    def _reaches_group(self, node: ast.expr) -> bool:
        """Return whether a function that makes a process group certainly gets the value of a node."""
        return any(map(self._is_of_group, self.context.uses.of(node).uses))

    def _is_of_group(self, node: ast.expr) -> bool:
        """Return whether a node is the backend that a function takes to make a process group."""
        parent = self.facts.tree.parents.get(node)
        call = self.facts.tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call):
            return False
        position, keyword = _GROUPS.get(last_name(call.func), (-1, ""))
        if isinstance(parent, ast.keyword):
            return parent.arg == keyword
        return node in call.args and call.args.index(node) == position

    def _may_reach_group(self, node: ast.expr) -> bool:
        """Return whether a node is stored or passed on in a module that makes a process group."""
        if "init_process_group" not in self.context.source.text:
            return False
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.Dict(values=values):
                return node in values
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                compared = isinstance(self.facts.tree.parents.get(parent), ast.Compare)
                return not compared and not any(map(_is_gloo, elements))
            case ast.Match():
                return captures(parent)
        return isinstance(parent, (ast.Lambda, ast.Return, ast.Yield, ast.NamedExpr, ast.withitem))

    def _backend(self, node: ast.expr) -> bool:
        """Return whether a string sets a backend by the name of what it sets, and is not compared with one."""
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
                return _called_backend(_key(target))
            case ast.arguments():
                return any(
                    default is node and _called_backend(arg.arg) for arg, default in with_defaults(parent)
                )
            case ast.Dict(keys=keys, values=values) if node in values:
                key = keys[values.index(node)]
                return isinstance(key, ast.Constant) and _called_backend(str(key.value))
            case ast.keyword(arg=str(name)):
                return self._default(parent) if name == "default" else _called_backend(name)
            case ast.IfExp(test=test, body=body, orelse=orelse) if node is not test:
                return any(_is_gloo(arm) for arm in (body, orelse)) or self._backend(parent)
            case ast.BoolOp():
                return self._backend(parent)
            case ast.Call():
                return self._argument(parent, node)
        return False

    def _argument(self, call: ast.Call, node: ast.expr) -> bool:
        """Return whether a positional argument of a call is a backend."""
        gets = last_name(call.func) in ("get", "setdefault") and len(call.args) == 2
        return gets and call.args[1] is node and self._option(call)

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


def _is_gloo(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "gloo"


def _called_backend(name: str) -> bool:
    return "backend" in name.lower()
