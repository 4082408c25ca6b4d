"""Changes of bytes, lines and JSON values that no surface needs to know more about."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

ODD = (
    b"9" * 5000, b"[" * 3000, b"(" * 200, b"a." * 1000, b"\0", b"\r", b"\r\n", b"\n", b"\f", b"\t", b"\\",
    b'"', b"'", b"#", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\x1b]0;x\x07", b"\x1b[2J", b"\x7f",
    b"\xc2\x9b2J", b"\xe2\x80\xa8", b"\xe2\x80\xae", b"\xc3\xa9", b"\xf0\x9f\x99\x82", b"\xf0\x9d\x92\x99",
    b"cuda", b"device", b"import torch\n", b"x.cuda()\n", b"# noqa: DF101", b"# devicefix: skip-file\n",
    b"# -*- coding: latin-1 -*-\n", b"__cell_0()", b"__magic_0()", b"```", b"    ", b"*", b"**/", b"[",
    b"]", b"{", b"}", b"(", b")", b",", b":", b"=", b"-", b"..", b"/", b"$", b"%", b"!", b"0", b"1e999",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 4, 2**31, 2**63, 10**30, 1.5, 1e308, float("nan"), float("inf"), "", "\0",
    "\ud800", "\x1b]0;x\x07", "cuda", "DF101", "x.cuda()\n", "\r", "\u2028", "é", [], {}, [None], [[]],
    {"": None}, ["a", 1],
)  # fmt: skip


def bytes_changed(random: Random, data: bytes) -> bytes:
    """Return bytes with a few small changes."""
    for _ in range(random.choice((1, 1, 2, 5))):
        start = random.randint(0, len(data))
        end = min(len(data), start + random.choice((0, 1, 1, 2, 8, 40)))
        piece = data[start:end]
        new = random.choice((b"", random.choice(ODD), piece * 2, random.randbytes(len(piece)), piece[::-1]))
        if random.random() < 0.1 and data:  # a piece from elsewhere
            other = random.randrange(len(data))
            new = data[other : other + random.choice((4, 20, 100))]
        data = data[:start] + new + data[end:]
    return data


def lines_changed(random: Random, text: str, others: Sequence[str] = ()) -> str:
    """Return a text with a line or some lines removed, repeated, moved, indented, joined, or another's.

    Args:
        random: where every choice comes from.
        text: the text.
        others: lines that may be inserted.
    """
    lines = text.splitlines(keepends=True) or [""]
    at = random.randrange(len(lines))
    some = slice(at, at + random.choice((1, 1, 2, 5, 20)))
    way = random.randrange(6)
    if way == 0:
        del lines[some]
    elif way == 1:
        lines[at:at] = lines[some]
    elif way == 2:
        moved = lines[some]
        del lines[some]
        to = random.randint(0, len(lines))
        lines[to:to] = moved
    elif way == 3:
        before = random.choice(("  ", "    ", "\t", "> ", "- ", "#", "\f"))
        lines[some] = [before + line for line in lines[some]]
    elif way == 4:
        lines[at] = lines[at].rstrip("\r\n") + random.choice(("", " ", "\\\n", "\r", "\r\n", "\n\n", ";"))
    elif others:
        lines.insert(at, random.choice(others) + random.choice(("\n", "\n", "\r\n", "")))
    return "".join(lines)


def value_changed(random: Random, value: Any, replaced: Callable[[Random, Any], Any] | None = None) -> Any:
    """Return a JSON value with one part that is removed, repeated, or replaced.

    Args:
        random: where every choice comes from.
        value: the value; it may change.
        replaced: returns another value for a part; by default an odd one, or one from elsewhere.
    """
    parts = list(_parts(value))
    if not parts:
        return _replaced(random, value, [])
    holder, key = random.choice(parts)
    way = random.randrange(6)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, list):
        holder.insert(key, holder[random.randrange(len(holder))])
    elif way == 2 and isinstance(holder, dict):
        holder[random.choice(("", "x", "\ud800", "cells", "source", "uri", key + key))] = holder[key]
    elif way == 3 and replaced:
        holder[key] = replaced(random, holder[key])
    else:
        holder[key] = _replaced(random, holder[key], parts)
    return value


def _replaced(random: Random, value: Any, parts: Sequence[tuple[Any, Any]]) -> Any:
    """Return another value in place of one."""
    if isinstance(value, str) and random.random() < 0.5:
        return bytes_changed(random, value.encode(errors="surrogatepass")).decode(errors="replace")
    if isinstance(value, int) and random.random() < 0.5:
        return value + random.choice((-1, 1, 2, 100, 10**6, -(10**9)))
    if parts and random.random() < 0.2:
        holder, key = random.choice(parts)
        return json.loads(json.dumps(holder[key]))
    return json.loads(json.dumps(random.choice(ODD_VALUES)))


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Return the places of all values inside one: what holds it, and its key or index."""
    found: list[tuple[Any, Any]] = []
    inside = [value]
    while inside:
        each = inside.pop()
        items = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, item in items:
            found.append((each, key))
            inside.append(item)
    return found
