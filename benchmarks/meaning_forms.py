"""More situations of `meaning_programs.py`, from `meaning_forms.txt`: what ties programs to CUDA.

A section of that file has a name, lines that start each of its forms, and the forms. In a form `$x` is a
name, whose letter says what it names, and `$WORD` is a form of the section WORD. The lines from `#file $m` to
`#main` are the module `$m`, and a form with `#top` stands only where its names are the module's.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meaning_programs import Lines, Maker

_ROLES = {
    **dict.fromkeys("xyz", "tensor"),
    **dict.fromkeys("fgh", "function"),
    **dict.fromkeys("de", "device"),
    **dict.fromkeys("opqw", "other"),
    **dict.fromkeys("in", "int"),
    "k": "class",
    "u": "flag",
}


def _read(text: str) -> dict[str, list[str]]:
    """Return the forms of each section."""
    sections = defaultdict[str, list[str]](list)
    for section in re.split(r"(?m)^== ", text)[1:]:
        name, rest = re.sub(r"(?m)^# .*\n", "", section.rstrip() + "\n").split("\n", 1)
        head, *forms = re.split(r"(?m)^- ", rest)
        sections[name] += (head + textwrap.dedent(f"  {form}").rstrip("\n") for form in forms)
    return sections


SECTIONS = _read(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))


def situation(forms: list[str], kind: str, m: Maker) -> Lines:
    """Return one of the forms with names and parts in place of its words, and add its modules."""
    text = m.one_of(kind, [form for form in forms if m.at_top or "#top" not in form])
    return _without_modules(m, _filled(m, text)).split("\n")


def _filled(m: Maker, text: str) -> str:
    names: dict[str, str] = {}
    m.used.update(re.findall(r"\w+", text))
    while word := re.search(r"(?m)^( *)(.*?)(?<!\$)\$([A-Z]+|[a-z]+\d*)", text):
        indent, _, key = word.groups()
        if key.isupper():
            part = m.one_of(key.lower(), SECTIONS[key]).replace("\n", f"\n{indent}")
            m.used.update(re.findall(r"\w+", part))
            text = text[: word.start(3) - 1] + part + text[word.end() :]
            continue
        if key not in names:
            names[key] = f"part{len(m.files)}{key[1:]}" if key[0] == "m" else m.name(_ROLES[key[0]])
        text = re.sub(rf"\${key}(?![a-z\d])", names[key], text)
    return text.replace("$$", "$")


def _without_modules(m: Maker, text: str) -> str:
    for lines, name, source in re.findall(r"(?ms)^( *#file ([\w.]+)\n(.*?)^ *#main\n?)", text):
        m.files[name] = "import torch\n" + textwrap.dedent(source).replace("import torch\n", "")
        text = text.replace(lines, "", 1)
    return re.sub(r"(?m)^ *#top\n", "", text).rstrip("\n")


def _situations() -> Iterator[tuple[str, Callable[[Maker], Lines]]]:
    for name, forms in SECTIONS.items():
        if not name.isupper():
            yield name, partial(situation, forms, name)


SITUATIONS = dict(_situations())
