"""Lines without a mapping between two runs: those of code that the program makes or writes itself.

The lines of the user's files are mapped by the edits. Text that a program makes of them, to execute it or to
write a script, has other line numbers once the files are rewritten, but the same order of lines.
"""

from __future__ import annotations

from devicefix.verify.compare.streams import Event

Numbers = dict[tuple[str, int], int]

MADE = ("<string>", "<stdin>")
_PLACED = ("seen", "draw", "move")


def numbers(one: list[Event], other: list[Event]) -> Numbers:
    """Return the line in a run of the original for each line of a run of the rewritten program, by its file.

    Only code without a mapping has an entry. A file with more lines in one of the runs has none, since they
    are no longer the same lines.

    Args:
        one: the events of the original.
        other: the events of the rewritten program, with the same paths.
    """
    found: Numbers = {}
    for file in (*MADE, *{event["file"] for event in (*one, *other) if event["kind"] == "written"}):
        before, after = _lines(one, file), _lines(other, file)
        if len(before) == len(after):
            found |= {(file, line): old for line, old in zip(after, before, strict=True)}
    return found


def renumbered(events: list[Event], lines: Numbers) -> list[Event]:
    """Return the events of a run with other line numbers.

    Args:
        events: the events.
        lines: the new number for each file and line that gets one.
    """
    return [
        {**event, "line": lines.get((event["file"], event["line"]), event["line"])}
        if event["kind"] in _PLACED
        else event
        for event in events
    ]


def _lines(events: list[Event], file: str) -> list[int]:
    """Return the lines of a file that observe or draw something in a run, in the order of the file."""
    return sorted({e["line"] for e in events if e["kind"] in ("seen", "draw") and e["file"] == file})
