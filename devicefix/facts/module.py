"""The facts of one module: its names, and the code that runs only with CUDA."""

from __future__ import annotations

import ast
import re
from copy import copy
from functools import cached_property

from devicefix.facts.flow.kinds import KindsOf
from devicefix.facts.guards import Built, Guards
from devicefix.facts.names import Names
from devicefix.facts.others import Others
from devicefix.files.text import Source, parse

_OTHERS = (  # no alternative begins with a group or `\b`: then the search is several times as fast
    rb"""'(?:xpu|npu|mps|hpu|mlu|musa|xla)(?::\d+)?'|"(?:xpu|npu|mps|hpu|mlu|musa|xla)(?::\d+)?\""""
    rb"|torch(?<=\btorch)(?:\.(?:backends\.)?(?:accelerator|xpu|npu|mps|hpu|mlu|musa)|_(?:npu|xla|mlu|musa))\b"
)
OTHERS = re.compile(_OTHERS)  # in the bytes of a file: an accelerator other than CUDA, or any accelerator
_IN_TEXT = re.compile(_OTHERS.decode())


class Facts(Names):
    """The names of one module, and its guards; see `Names` for the arguments."""

    @cached_property
    def guards(self) -> Guards:
        """The guards of the module."""
        return Guards(self)

    @cached_property
    def built(self) -> Built:
        """The guards of the module that ask how torch is built."""
        return Built(self)

    @cached_property
    def kinds(self) -> KindsOf:
        """The kinds of the expressions of the module."""
        return KindsOf(self, self.guards)

    @cached_property
    def serves_others(self) -> bool:
        """Return whether the module, or code that runs with it, names an accelerator other than CUDA."""
        return _IN_TEXT.search(self.source.text) is not None or self.others.serves_others()

    @classmethod
    def read(cls, data: bytes) -> Facts:
        """Read the facts of a module from its bytes.

        Raises:
            DecodeError, SyntaxError, ValueError, RecursionError, MemoryError: the bytes are not a module.
        """
        source = Source(data)
        return cls(source, parse(source.text))

    def informed(self, others: Others) -> Facts:
        """Return these facts with answers from the other files; the tree is shared."""
        more = copy(self)
        more.others = others
        more.guards = Guards(more)
        more._answers = {}
        more.built = Built(more)
        more.kinds = KindsOf(more, more.guards)
        return more

    def is_guarded(self, node: ast.AST) -> bool:
        """Return whether a node is evaluated only where CUDA is available."""
        return self.guards.is_guarded(node)
