"""Find out which Python a file needs that the running one cannot parse.

LibCST parses newer syntax than the Python that runs it, but `ast` does not, and most facts come from it. Reading
such a file in another way would mean to parse f-strings ourselves; running devicefix on a newer Python is simple.
"""

from __future__ import annotations

import re
from typing import Any

import libcst as cst

Version = tuple[int, int]

# Old versions of LibCST do not know the syntax of Python 3.14.
_TEMPLATE = re.compile(r"""(?<![\w"'])(?:[tT][rR]?|[rR][tT])["']""")


def needed_python(text: str, line: str) -> Version | None:
    """Return the Python that a text needs; None if it is not known to be valid in any.

    Args:
        text: the text of a module.
        line: its line that this Python cannot parse.
    """
    try:
        tree = cst.parse_module(text)
    except Exception:  # it has several kinds of errors
        return (3, 14) if _TEMPLATE.search(line) else None
    finder = _Finder(tree)
    tree.visit(finder)
    return finder.version


class _Finder(cst.CSTVisitor):
    """Finds the newest syntax in a module.

    Attributes:
        version: the Python that it is from.
    """

    def __init__(self, module: cst.Module) -> None:
        super().__init__()
        self.version: Version | None = None
        self._module = module

    def _needs(self, version: Version) -> None:
        self.version = max(self.version or version, version)

    def visit_TypeAlias(self, node: cst.TypeAlias) -> None:
        """Handle `type X = int`, of PEP 695."""
        self._needs((3, 12))

    def visit_TypeParameters(self, node: cst.TypeParameters) -> None:
        """Handle `def f[T]()`, of PEP 695, or of PEP 696 with a default."""
        has_default = any(parameter.default is not None for parameter in node.params)
        self._needs((3, 13) if has_default else (3, 12))

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        """Handle `f"{a["x"]}"` and a field with a backslash, of PEP 701."""
        for part in node.parts:
            if isinstance(part, cst.FormattedStringExpression):
                field = self._module.code_for_node(part.expression)
                if node.quote in field or "\\" in field:
                    self._needs((3, 12))

    def visit_TemplatedString(self, node: Any) -> None:
        """Handle `t"{x}"`, of PEP 750, which LibCST knows since 1.8."""
        self._needs((3, 14))
