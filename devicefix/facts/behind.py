"""Find what is behind a name in the bytes of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator


def behind_name(data: bytes, name: bytes, pattern: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
    """Yield the matches of a pattern right behind a name, and not behind what only ends in it.

    It is several times as fast as to compile and search one pattern a name.
    """
    at = data.find(name) if name else -1
    while at >= 0:
        before, end = data[at - 1 : at], at + len(name)
        found = None if before == b"_" or before.isalnum() else pattern.match(data, end)
        if found is not None:
            yield found
        at = data.find(name, end)
