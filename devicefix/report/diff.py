"""The change of a file as a patch that `git apply` accepts, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Iterator

from devicefix.files.differences import Differences

_CONTEXT = 3  # lines around a change
_PLAIN = frozenset(range(0x21, 0x7F)) - frozenset(b'"\\')


def unified(name: str, before: bytes | None, after: bytes) -> bytes:
    """Return the change of a file as a patch.

    Args:
        name: the file's path, relative to the folder in which the patch will be applied.
        before: the old content; None for a new file.
        after: the new content.
    """
    old, new = _quoted(f"a/{name}"), _quoted(f"b/{name}")
    header = f"diff --git {old} {new}\n"
    lines = [header, f"--- {old}\n", f"+++ {new}\n"]
    if before is None:
        lines = [header, "new file mode 100644\n", "--- /dev/null\n", f"+++ {new}\n"]
    # Latin-1 maps each byte to one character.
    changed = _hunks(_lines(before or b""), _lines(after))
    lines += (each if each.endswith("\n") else f"{each}\n\\ No newline at end of file\n" for each in changed)
    return "".join(lines).encode("latin-1")


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    """Yield the lines of the hunks."""
    for codes in Differences(old, new).get_grouped_opcodes(_CONTEXT):
        (_, first, _, start, _), (_, _, last, _, end) = codes[0], codes[-1]
        yield f"@@ -{_range(first, last)} +{_range(start, end)} @@\n"
        for kind, one, other, before, after in codes:
            sign = " " if kind == "equal" else "-"
            yield from (sign + line for line in old[one:other])
            if kind != "equal":
                yield from ("+" + line for line in new[before:after])


def _range(start: int, end: int) -> str:
    """Return lines as a hunk's header names them: the first one and their number, unless that is 1."""
    number = end - start
    return f"{start + 1}" if number == 1 else f"{start + (number > 0)},{number}"


def coloured(patch: str) -> str:
    """Return the text of a patch with the colours that git uses on a terminal."""
    colours = {"+": "32", "-": "31", "@": "36", "d": "1"}
    lines = ((line, colours.get(line[:1])) for line in patch.splitlines(keepends=True))
    return "".join(f"\x1b[{colour}m{line[:-1]}\x1b[m\n" if colour else line for line, colour in lines)


def _lines(data: bytes) -> list[str]:
    """Return the lines as git counts them: only a line feed ends one."""
    *whole, rest = data.decode("latin-1").split("\n")
    return [f"{line}\n" for line in whole] + [rest] * bool(rest)


def _quoted(name: str) -> str:
    """Return a path as git writes it in a patch: as a C string if it holds special characters."""
    data = os.fsencode(name.replace(os.sep, "/"))
    if _PLAIN.issuperset(data):
        return name.replace(os.sep, "/")
    return '"' + "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in data) + '"'
