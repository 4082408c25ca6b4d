"""Render findings, one module per output format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from devicefix.report.checked import Checked


Renderer: TypeAlias = "Callable[[Checked], Iterator[str]]"


class Format(NamedTuple):
    """A way for `devicefix check` to tell what it has found.

    Attributes:
        module: the module of this package that writes it, by a function `render(checked) -> Iterator[str]`.
        fixes: whether it shows fixes, or hands them on.
        for_people: whether it may have colours, and a summary at its end.
    """

    module: str
    fixes: bool = False
    for_people: bool = False

    def renderer(self) -> Renderer:
        """What makes the text, in pieces.

        Raises:
            ImportError: a library that it is made with is not installed.
        """
        render: Renderer = import_module(f"devicefix.report.{self.module}").render
        return render


FORMATS = {
    "full": Format("full", fixes=True, for_people=True),
    "concise": Format("concise", for_people=True),
    "grouped": Format("grouped", for_people=True),
    "json": Format("json", fixes=True),
    "json-lines": Format("json_lines", fixes=True),
    "jsonl": Format("json_lines", fixes=True),
    "sarif": Format("sarif", fixes=True),
    "github": Format("github"),
    "gitlab": Format("gitlab"),
    "junit": Format("junit"),
    "html": Format("html", fixes=True),
}
