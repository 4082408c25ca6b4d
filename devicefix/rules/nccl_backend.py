from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.backends import allows_gloo
from devicefix.facts.flow.forwards import Use
from devicefix.facts.scopes import captured
from devicefix.facts.values import is_constant
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.holders import names_of_holders, only_with_cuda, shared_names

_NCCL = "torch.distributed.Backend.NCCL"
_UNSEEN = "this value may not be the backend of a process group"


class NcclBackend(Rule):
    """
    ## What it does
    Finds `"nccl"` as the backend of distributed training, whether it is passed to `init_process_group`, serves as a
    default, or is stored in an option, a variable or a setting.

    ## Why it matters
    In builds of torch without CUDA, `init_process_group` raises an error: "Distributed package doesn't have NCCL built
    in". The usual backend for CPUs is gloo.

    ## Example
    ```python
    dist.init_process_group("nccl", rank=rank, world_size=size)
    ```

    ## Use instead
    ```python
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", rank=rank, world_size=size)
    ```

    ## Fix safety
    The fix is usually safe if the value reaches a function that creates a process group, or if the program already has
    gloo as the alternative: with CUDA, the backend is the same as before. With `--target accelerator`, the fix uses the
    accelerator's own backend.

    The fix is unsafe if only the name of a variable, option or key suggests a backend. There is no fix if the file
    compares such a variable, option or key to `"nccl"` but never to `"gloo"`. There is also no fix if neither the
    name nor the use of a value shows that it is a backend.
    """

    code = "DF601"
    name = "nccl-backend"
    summary = "The backend of distributed training is NCCL, which needs CUDA"
    words = (b"nccl", b"NCCL")
    common_words = (b"backend",)
    attributes = ("NCCL",)
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
                torch.distributed.init_process_group(parser.parse_args().dist_backend)
            """,
            after="""
                import torch

                parser.add_argument('--dist-backend', default='nccl' if torch.cuda.is_available() else 'gloo', type=str)
                torch.distributed.init_process_group(parser.parse_args().dist_backend)
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
            unsafe=True,
        ),
        Example(
            "the choices of an option",
            before="""
                import torch

                parser.add_argument('--backend', default='nccl', choices=['gloo', 'nccl'])
            """,
            after="""
                import torch

                parser.add_argument('--backend', default='nccl' if torch.cuda.is_available() else 'gloo',
                                    choices=['gloo', 'nccl'])
            """,
        ),
        Example(
            "in capital letters",
            before="""
                import torch
                import torch.distributed as dist

                dist.init_process_group(backend="NCCL")
            """,
            after="""
                import torch
                import torch.distributed as dist

                dist.init_process_group(backend="NCCL" if torch.cuda.is_available() else "gloo")
            """,
        ),
        Example(
            "a function of DeepSpeed",
            before="""
                import deepspeed
                import torch

                deepspeed.init_distributed("nccl")
            """,
            after="""
                import deepspeed
                import torch

                deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
            """,
        ),
        Example(
            "a backend of something else, which knows no gloo",
            before="""
                import torch


                class Adam:
                    def __init__(self, comm_backend_name="nccl"):
                        if comm_backend_name == "nccl":
                            self.handle = nccl.Handle()
                        elif comm_backend_name == "mpi":
                            self.handle = mpi.Handle()
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

                backend = "nccl" if dist.is_nccl_available() and torch.cuda.is_available() else "gloo"
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

                backend = 'gloo' if os.name == 'nt' or not torch.cuda.is_available() else 'nccl'
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
            "a default value in capital letters, in a module without other signs of CUDA",
            before="""
                from torch.distributed import Backend, init_process_group


                def start(q7=Backend.NCCL):
                    init_process_group(q7)
            """,
            after="""
                import torch
                from torch.distributed import Backend, init_process_group


                def start(q7=Backend.NCCL if torch.cuda.is_available() else "gloo"):
                    init_process_group(q7)
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
            after="""
                import torch
                import torch.distributed as dist

                options = {"comm": "nccl" if torch.cuda.is_available() else "gloo"}
                dist.init_process_group(options["comm"])
            """,
        ),
        Example(
            "dictionaries of arguments",
            before="""
                import torch
                import torch.distributed as dist

                options = dict(backend="nccl", rank=0)
                dist.init_process_group(**options)
                others = {}
                others["backend"] = "nccl"
                dist.new_subgroups(2, **others)
            """,
            after="""
                import torch
                import torch.distributed as dist

                options = dict(backend="nccl" if torch.cuda.is_available() else "gloo", rank=0)
                dist.init_process_group(**options)
                others = {}
                others["backend"] = "nccl" if torch.cuda.is_available() else "gloo"
                dist.new_subgroups(2, **others)
            """,
        ),
        Example(
            "a dictionary that is passed on",
            before="""
                import torch
                import torch.distributed as dist

                options = {"comm": "nccl"}
                dist.init_process_group(**choose(options))
            """,
        ),
        Example(
            "a variable that is gloo elsewhere",
            before="""
                import torch

                if comm_device == "cpu":
                    backend = "gloo"
                else:
                    backend = "nccl"
            """,
            after="""
                import torch

                if comm_device == "cpu":
                    backend = "gloo"
                else:
                    backend = "nccl" if torch.cuda.is_available() else "gloo"
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
            after="""
                import torch
                import torch.distributed as dist

                dist.init_process_group(["nccl" if torch.cuda.is_available() else "gloo"][0])
                dist.init_process_group((lambda: "nccl" if torch.cuda.is_available() else "gloo")())
            """,
        ),
    )
    VALID = (
        Example(
            "a dictionary of backends by devices",
            """
                import torch
                import torch.distributed as dist

                dist.init_process_group({"cuda": "nccl", "cpu": "gloo"}[device.type])
                dist.init_process_group(
                    {torch.device("cuda"): dist.Backend.NCCL, torch.device("cpu"): dist.Backend.GLOO}[device]
                )
            """,
        ),
        Example(
            "a parameter that nothing reads",
            """
                def start(backend="nccl"):
                    print("start")
            """,
        ),
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
            "code for a process group that uses NCCL",
            """
                import torch
                import torch.distributed as dist
                from torch.distributed import Backend

                used = dist.get_backend()
                if used == Backend.NCCL:
                    x = x.cuda()
                if dist.get_backend() == dist.Backend.NCCL:
                    torch.cuda.synchronize()
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
        name = node.value.lower() if isinstance(node.value, str) else ""  # torch takes both cases
        if "nccl" not in name or only_with_cuda(self.facts, node):
            return
        if self._reaches_group(node):
            yield self._needs_cuda(node)
        elif name == "nccl" and self.context.forwards.use_of(node):  # not of what nothing reads
            yield from self._may_be_backend(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Iterator[Finding]:
        parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
        if any("nccl" in part for part in parts if isinstance(part, str)) and self._reaches_group(node):
            if not only_with_cuda(self.facts, node):
                yield self._needs_cuda(node)

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        if node.attr == "NCCL" and self.facts.resolve(node) == _NCCL and not only_with_cuda(self.facts, node):
            if self._reaches_group(node):
                yield self._needs_cuda(node)
            else:
                yield from self._may_be_backend(node)

    def _needs_cuda(self, node: ast.expr) -> Finding:
        choice = self.facts.tree.parents.get(node)
        is_gloo = isinstance(choice, ast.IfExp) and any(map(_is_gloo, (choice.body, choice.orelse)))
        fix = self.context.chosen_with_cuda(node) if is_gloo else None
        fix = fix or self.context.when_cuda(node, '"gloo"')
        return self.finding(node, f"the `nccl` backend needs CUDA; {self._advice}", fix)

    @property
    def _advice(self) -> str:
        if self.context.accelerator is None:
            return "without CUDA, use `gloo`"
        return "without CUDA, use the accelerator's own backend, or `gloo` on a CPU"

    def _may_be_backend(self, node: ast.expr) -> Iterator[Finding]:
        """Yield the finding of a value that is called a backend, but is not seen to reach a process group."""
        names = [name for name in names_of_holders(self.facts, node) if "backend" in name.lower()]
        if names and all(allows_gloo(self.facts, name) for name in names):
            fix = self.context.when_cuda(node, '"gloo"', _UNSEEN)
            yield self.finding(node, f"the `nccl` backend needs CUDA; {self._advice}", fix)
        elif names:
            name = next(name for name in names if not allows_gloo(self.facts, name))
            message = f"the `nccl` backend needs CUDA, and the code for `{name}` may not support `gloo`; add a `gloo` case if needed"
            yield self.finding(node, message)
        elif self._may_reach_group(node):
            yield self.finding(node, f"`nccl` needs CUDA if it is used as a backend; {self._advice}")

    def _reaches_group(self, node: ast.expr) -> bool:
        """Return whether a process group certainly gets the value of a node, or gloo is its alternative."""
        found = self.context.forwards.of(node)
        project = self.context.project
        if Use.BACKEND in self.context.forwards.use_of(node) or self._is_choice(node):
            return True
        bound = (binding.value for variable in found.variables for binding in variable.bindings)
        return any(map(_is_gloo, bound)) or any(map(project.is_setting, shared_names(self.facts, node)))

    def _is_choice(self, node: ast.expr) -> bool:
        """Return whether a node is one arm of a choice, and the other is gloo, or a default among choices."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.IfExp) and node is not parent.test:
            return _is_gloo(parent.body) or _is_gloo(parent.orelse) or self._is_choice(parent)
        call = self.facts.tree.parents.get(parent) if isinstance(parent, ast.keyword) else None
        keywords = call.keywords if isinstance(call, ast.Call) else ()
        choices = (part for each in keywords if each.arg == "choices" for part in ast.walk(each.value))
        return any(map(_is_gloo, choices))

    def _may_reach_group(self, node: ast.expr) -> bool:
        """Return whether a node is stored or passed on in a module that makes a process group."""
        if not self.context.source.holds("init_process_group"):
            return False
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.Dict(values=values):
                return node in values
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                compared = isinstance(self.facts.tree.parents.get(parent), ast.Compare)
                return not compared and not any(map(_is_gloo, elements))
            case ast.Match():
                return any(captured(*parent.cases))
            case ast.Call(func=ast.Lambda()):
                return True
        return isinstance(parent, (ast.Lambda, ast.Return, ast.Yield, ast.NamedExpr, ast.withitem))


def _is_gloo(node: ast.AST | None) -> bool:
    return is_constant(node, "gloo")
