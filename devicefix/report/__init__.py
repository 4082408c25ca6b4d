"""Render findings and migration reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from devicefix.report.checked import Checked


Renderer: TypeAlias = "Callable[[Checked], Iterator[str]]"


class Format(NamedTuple):
    """An output format of `devicefix check`.

    Attributes:
        module: the module of this package that renders it.
        fixes: whether the output contains fixes.
        for_people: whether the output may have colours, and is followed by a summary.
        function: the renderer in the module.
    """

    module: str
    fixes: bool = False
    for_people: bool = False
    function: str = "render"

    def renderer(self) -> Renderer:
        """Import the module and return its renderer.

        Raises:
            ImportError: a library that the format needs is not installed.
        """
        render: Renderer = getattr(import_module(f"devicefix.report.{self.module}"), self.function)
        return render


FORMATS = {
    "full": Format("full", fixes=True, for_people=True),
    "concise": Format("concise", for_people=True),
    "grouped": Format("grouped", for_people=True),
    "json": Format("json", fixes=True),
    "json-lines": Format("json", fixes=True, function="render_lines"),
    "sarif": Format("sarif", fixes=True),
    "github": Format("github"),
    "gitlab": Format("gitlab"),
    "junit": Format("junit"),
    "html": Format("migration_page", fixes=True),
}
