"""Make text safe to print: nothing of a file, its name or a setting controls the terminal or a log."""

from __future__ import annotations

import re


def printable(text: str) -> str:
    """Return the text with every character escaped that could break its line or control the terminal.

    These are control characters, invisible ones, those that change the direction of text, and bytes that are
    no characters.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_path(path: str) -> str:
    """Return a path for the beginning of a line, where GitHub takes `::` and `##[` for a command."""
    shown = printable(path)
    return f"./{shown}" if shown.startswith(("::", "##[")) else shown


def printable_lines(text: str) -> str:
    """Return a text of several lines in which tabs stay as well."""
    return "".join(part if part in "\n\t" else printable(part) for part in re.split(r"([\n\t])", text))


def printable_json(text: str) -> str:
    """Return the JSON of the same values, with those characters in its strings escaped as JSON does.

    Args:
        text: JSON whose lines end in a line feed.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json(c) for c in text)


def _json(character: str) -> str:
    units = character.encode("utf-16-be", errors="surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
