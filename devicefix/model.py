"""Findings, their fixes, and the result for a file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum


class SelfCheckError(Exception):
    """A rewrite would change more than its fixes, or break the file; the message says what is wrong."""


class Safety(str, Enum):
    """The safety of a fix, which decides whether it is applied without `--unsafe-fixes`.

    A safe fix keeps the program's behaviour on CUDA and makes it run on a CPU. An unsafe one makes it
    run on a CPU but may change its behaviour on CUDA.
    """

    SAFE = "safe"
    UNSAFE = "unsafe"


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Effect:
    """The changes that an edit makes to the statements inside it. The self-check accepts no other change.

    Attributes:
        added: Kinds of statements that the edit adds in front of the others, such as `If`.
        inside: Kinds of the statements in the blocks of these, in the order of the source.
        removed: Parts of the old text whose statements and comments go. What is in the blocks of a
            removed statement, and not removed itself, takes its place.
        deeper: Whether the statement that starts where the edit does gets one block deeper.
        below: The starts of other statements that do.
    """

    added: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    removed: tuple[Span, ...] = ()
    deeper: bool = False
    below: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Removal:
    """The removal of a statement from its block, which must not become empty, or its guard.

    Of an arm of `a if b else c` it is the condition.

    Attributes:
        block: The offset at which the block's first statement starts, or the conditional expression.
        size: The number of statements in the block, or of arms.
        instead: The edit that takes its place if all of them are removed, or get this guard or condition.
    """

    block: int
    size: int
    instead: Edit


@dataclass(frozen=True, slots=True)
class Operation:
    """A change of one node of the syntax tree. `rewrite/operations.py` has all kinds."""


New = str | Operation | Callable[[str], str]  # new code, or what makes it from the old code


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the characters from `start` up to `end` of the source text.

    Edits may nest, but not cross.

    Attributes:
        start: The offset of the first character that is replaced.
        end: The offset after the last one.
        new: The replacement, or what makes it from the old code, in which the edits inside this one have been
            made: an operation on the node that the code is of, or a function of the text.
        effect: What the edit does to statements.
        removal: What to do if edits remove a whole block, or put it under one guard.
    """

    start: int
    end: int
    new: New
    effect: Effect = Effect()
    removal: Removal | None = None


@dataclass(frozen=True, slots=True)
class Replacement:
    """New text for a part of a file; lines, columns and cells count as those of a finding."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Import:
    """An import that a fix needs at the top of the module: `import module`, maybe `as alias`."""

    module: str
    alias: str | None = None

    @property
    def line(self) -> str:
        """The import as a line of code."""
        return f"import {self.module}" + (f" as {self.alias}" if self.alias else "")


@dataclass(frozen=True, slots=True)
class Definition:
    """A line `name = value` that a fix needs, such as that of `device`.

    Attributes:
        name: The name that the line binds.
        value: The code of the value.
        after: The statement that the line follows; None for the beginning of the module or function.
        function: The function whose body gets the line; None for the module.
        flag: The code of the flag that chooses between CUDA and the CPU, if one does.
        least: The number of fixes that must need it; fewer use the value in its place.
        others: The definition that all need together where fixes outside of the function need the value, too.
        text: The code of the same device as a string; None if it is always the value.
    """

    name: str
    value: str
    after: ast.stmt | None = None
    function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    flag: str | None = None
    least: int = 1
    others: Definition | None = None
    text: str | None = None

    @property
    def line(self) -> str:
        """The definition as a line of code, without indentation."""
        return f"{self.name} = {self.value}"


@dataclass(frozen=True, slots=True)
class Form:
    """The form that a fix needs of a defined device.

    Attributes:
        definition: The definition.
        text: Whether it is rather a string; else it must be an object of `torch.device`.
    """

    definition: Definition
    text: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A need that no line inserted by a fix can meet; a finding with such a need has no fix.

    Attributes:
        why: The reason, as in "since torch may not be imported there".
    """

    why: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason why a fix with this need is not safe.

    Attributes:
        why: The reason, as in "the fix checks for CUDA before the program sets `CUDA_VISIBLE_DEVICES`".
    """

    why: str


Need = Import | Definition | Form | Refused | Doubt


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that are made together, and what they need.

    Attributes:
        edits: The edits of the code that was found.
        why: Why the fix is not safe, to be added to the message of the finding; empty for a safe fix.
        needs: Imports and definitions that the new code uses, inserted once for all fixes of the module.
        replacements: The edits and the insertions as plain text, for this fix alone; for code, empty unless
            `Settings.replacements` asks for them.
        optional: Whether the code is right as it is, so that it needs no definition that no other fix needs.
    """

    edits: tuple[Edit, ...]
    why: str = ""
    needs: frozenset[Need] = frozenset()
    replacements: tuple[Replacement, ...] = ()
    optional: bool = False

    def joined(self, *others: Fix) -> Fix:
        """Return a fix that makes the edits of others as well."""
        edits = (edit for fix in others for edit in fix.edits)
        needs = (fix.needs for fix in others)
        return replace(self, edits=(*self.edits, *edits), needs=self.needs.union(*needs))

    @property
    def safety(self) -> Safety:
        """Return whether the fix is made without `--unsafe-fixes`."""
        return Safety.UNSAFE if self.why else Safety.SAFE


@dataclass(frozen=True, slots=True)
class Finding:
    """One tie to CUDA. Lines and columns count from 1; a column counts characters.

    In a notebook `cell` is the number of the cell, from 1 and over cells of all kinds as ruff counts them;
    the lines are that cell's.

    Attributes:
        stops: Whether it is a check of a device that ends the program on a CPU.
    """

    code: str
    message: str
    line: int
    column: int
    end_line: int
    end_column: int
    fix: Fix | None = None
    cell: int | None = None
    stops: bool = False

    @property
    def safety(self) -> Safety | None:
        """Return the safety of the fix; None if there is no fix."""
        return self.fix.safety if self.fix else None

    def is_fixable(self, unsafe_fixes: bool) -> bool:
        """Return whether `--fix` would fix it.

        Args:
            unsafe_fixes: whether unsafe fixes are made, too.
        """
        return self.safety is Safety.SAFE or (unsafe_fixes and self.safety is Safety.UNSAFE)

    def is_unsafe_for(self, reasons: Sequence[str]) -> bool:
        """Return whether one of some reasons makes the fix unsafe."""
        return self.fix is not None and any(why in self.fix.why for why in reasons)

    def unfixed(self, why: str) -> Finding:
        """Return the finding without its fix, with the reason."""
        return replace(self, message=f"{self._bare_message} (not fixed {why})", fix=None)

    def unsafe(self, why: str) -> Finding:
        """Return the finding with a fix that is not safe, with the reason, or one more."""
        assert self.fix is not None
        why = "; ".join(dict.fromkeys(filter(None, (*self.fix.why.split("; "), why))))
        return replace(self, message=f"{self._bare_message} (unsafe: {why})", fix=replace(self.fix, why=why))

    @property
    def _bare_message(self) -> str:
        """The message without the reason why the fix is not safe."""
        return self.message.removesuffix(f" (unsafe: {self.fix.why})") if self.fix else self.message

    def portable(self) -> Finding:
        """Return the finding for another process, without the functions in its fix."""
        fix = self.fix
        return replace(self, fix=Fix((), fix.why, replacements=fix.replacements)) if fix else self


@dataclass(slots=True)
class Result:
    """The result for one file.

    Attributes:
        path: the file.
        findings: all findings, in the order of the file; after fixes, the fixed ones first.
        fixed: the findings that are fixed in `output`.
        output: the new content; None if nothing changes.
        origins: for each line of `output`, from 0, the line of the old content that it corresponds to; an
            inserted line corresponds to the one that it is inserted at. Only Python files have them.
        made: for each finding in `fixed`, the parts of `output`, in characters, that its fix made; a part
            without extent is where it removed something. Only Python files have them.
        changes: what one round of fixes replaces in the old text: the offsets and the new text.
    """

    path: str
    findings: list[Finding] = field(default_factory=list)
    fixed: list[Finding] = field(default_factory=list)
    output: bytes | None = None
    origins: Sequence[int] = ()
    made: Sequence[tuple[Span, ...]] = ()
    changes: Sequence[tuple[int, int, str]] = ()

    @property
    def remaining(self) -> list[Finding]:
        """The findings that are not fixed."""
        fixed = {id(finding) for finding in self.fixed}
        return [finding for finding in self.findings if id(finding) not in fixed]


@dataclass(slots=True)
class Outcome:
    """A result, or the error that prevented it.

    Attributes:
        path: the file.
        result: its result; empty after an error.
        before: the file's content, kept if the result has a new one.
        error: why the file could not be checked.
    """

    path: str
    result: Result
    before: bytes = b""
    error: str | None = None
