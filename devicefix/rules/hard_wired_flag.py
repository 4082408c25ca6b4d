from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.facts import dotted
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_FLAG = re.compile(r"(use|is|on|with|enable)?_?(cuda|gpu)", re.I)
_ASKED = re.compile(r"cuda|gpu", re.I)
_LIGHTNING = ("pytorch_lightning", "lightning")


class HardWiredFlag(Rule):
    """
    ## What it does
    Reports options of other libraries that are set to use CUDA on every machine: `Config.cuda = True`,
    `Reader(gpu=True)`, `Trainer(accelerator="gpu")`.

    ## Why it matters
    Without CUDA the library raises an error, and no other change to the program can prevent it.

    ## Example
    ```python
    from some_library import Config

    Config.cuda = True
    ```

    ## Use instead
    ```python
    Config.cuda = torch.cuda.is_available()
    ```

    ## Fix safety
    There is no fix: the meaning of the option depends on the library. Beside `devices=[0]`, Lightning's
    `accelerator="auto"` raises a `TypeError` on a CPU, which takes only a number of devices.
    """

    code = "DF904"
    name = "hard-wired-flag"
    summary = "Another library is set to use CUDA on every machine"
    words = (b"cuda", b"accelerator=")
    common_words = (b"accelerator", b"device", b"gpu")
    INVALID = (
        Example(
            "the flag of a library",
            before="""
                from library import Config

                Config.cuda = True
            """,
        ),
        Example(
            "an argument of a library",
            before="""
                import easyocr  # cuda

                reader = easyocr.Reader(['en'], gpu=True)
            """,
        ),
        Example(
            "an accelerator by name",
            before="""
                import pytorch_lightning as pl

                trainer = pl.Trainer(accelerator='gpu', devices=1)
            """,
        ),
        Example(
            "an accelerator by name, with a list of devices",
            before="""
                from lightning.fabric import Fabric

                fabric = Fabric(accelerator="cuda", devices=[0])
            """,
        ),
    )
    VALID = (
        Example(
            "a flag set by availability",
            """
                import torch
                from library import Config

                Config.cuda = torch.cuda.is_available()
            """,
        ),
        Example(
            "under a guard",
            """
                from library import Config

                if args.cuda:
                    Config.cuda = True
            """,
        ),
        Example(
            "a class of the module",
            """
                class Config:
                    cuda = True


                Config.cuda = True
            """,
        ),
        Example(
            "the profiler of torch",
            """
                import torch

                with torch.autograd.profiler.profile(use_cuda=True) as profile:
                    pass
            """,
        ),
        Example(
            "the automatic choice",
            """
                import pytorch_lightning as pl  # cuda

                trainer = pl.Trainer(accelerator='auto', devices=1)
            """,
        ),
        Example(
            "an option of the program",
            """
                args.cuda = True
            """,
        ),
    )

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        target = node.targets[0]
        if not (isinstance(target, ast.Attribute) and _FLAG.fullmatch(target.attr) and _true(node.value)):
            return
        if self._foreign(target.value) and not self._asked(node):
            yield self.finding(node, self._message(f"{dotted(target) or target.attr} = True"))

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func)
        if name is None:
            return
        for keyword in node.keywords:
            flag = keyword.arg is not None and _FLAG.fullmatch(keyword.arg) and _true(keyword.value)
            code = self.context.source.code(keyword.value)
            if self._lightning(name, keyword):
                message = f'`accelerator={code}` needs CUDA; use `accelerator="auto"`{self._devices(node)}'
                yield self.finding(node, message)
            elif flag and self._foreign(node.func) and not self._asked(node):
                yield self.finding(node, self._message(f"{keyword.arg}={code}"))

    def _lightning(self, name: str, keyword: ast.keyword) -> bool:
        return (
            name.startswith(_LIGHTNING)
            and name.endswith(("Trainer", "Fabric"))
            and keyword.arg == "accelerator"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value in ("gpu", "cuda")
        )

    def _devices(self, node: ast.Call) -> str:
        """Return the advice for the argument `devices` of a trainer: a CPU takes only how many."""
        devices = next((keyword.value for keyword in node.keywords if keyword.arg == "devices"), None)
        count = isinstance(devices, ast.Constant) and (devices.value == "auto" or type(devices.value) is int)
        if devices is None or count:
            return ", which uses a GPU if there is one"
        code = self.context.source.code(devices)
        return f" and `devices={code} if torch.cuda.is_available() else 1`, since a CPU takes only a number"

    def _message(self, setting: str) -> str:
        return f"`{setting}` makes the library need CUDA; use `torch.cuda.is_available()`"

    def _foreign(self, node: ast.expr) -> bool:
        """Return whether an object comes from a library: an import, or the result of calling one."""
        name = self.facts.resolve(node)
        if name is None:
            value = self.facts.value(node)
            if not isinstance(value, ast.Call):
                return False
            name = self.facts.resolve(value.func)
        if (
            name is None
            or name.startswith((".", "torch.", "argparse.", "types.", "easydict."))
            or name == "torch"
        ):
            return False
        parts = name.split(".")
        found = self.context.project.has_module
        return not any(found(self.devices.path, ".".join(parts[:end])) for end in range(1, len(parts) + 1))

    def _asked(self, node: ast.AST) -> bool:
        """Return whether an earlier check asks the user or the machine for CUDA."""
        return self.facts.is_guarded(node) or any(
            isinstance(parent, (ast.If, ast.IfExp)) and _ASKED.search(self.context.source.code(parent.test))
            for _, parent in self.facts.tree.ancestors(node)
        )


def _true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
