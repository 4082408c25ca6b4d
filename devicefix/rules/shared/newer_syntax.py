"""Find out which Python a file needs that the running one cannot parse.

LibCST parses newer syntax than the Python that runs it, but `ast` does not, and most facts come from it. To read
such a file anyway, devicefix would have to parse f-strings itself; running it on a newer Python is simpler.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import libcst as cst

Version = tuple[int, int]

# Old versions of LibCST do not know the syntax of Python 3.14.
_LONGEST = 300  # characters
_TEMPLATE = re.compile(r"""(?<![\w"'])(?:[tT][rR]?|[rR][tT])["']""")


def needed_python(line: str) -> Version | None:
    """Return the Python that can parse a line; None if it is not known to be valid in any.

    Args:
        line: the line that this Python cannot parse.
    """
    tree = _parsed(line.strip())
    if tree is None:
        return (3, 14) if _TEMPLATE.search(line) else None
    finder = _Finder(tree)
    tree.visit(finder)
    return finder.version


def _parsed(line: str) -> cst.Module | None:
    """Return the tree of a line that is a statement or the header of one; None if it is neither.

    LibCST overflows the stack for deeply nested code, so that a whole file might end the process.
    """
    if len(line) <= _LONGEST:
        for text in (line, f"{line}\n    pass\n"):
            with suppress(Exception):  # it has several kinds of errors
                return cst.parse_module(text)
    return None


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
