"""A scanner for options and variables in shell scripts and makefiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from devicefix.rules.config_file.structured import Pair

_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|\\\r?\n|\#[^\n]*)"
    r"|(?P<heredoc><<-?[ \t]*(?P<quote>['\"]?)(?P<mark>\w+)(?P=quote))"
    r"|(?P<word>(?:\\[^\n]|\"(?:\\.|[^\"\\])*\"|'[^']*'|\$\{[^}\n]*\}|[^\s;&|()<>\"'`\\])+)"
    r"|(?P<end>[\n;&|()`])|.",
    re.S,
)
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.S)
_SETTING = re.compile(r"\+{0,2}([A-Za-z_][\w./@-]*)=(.*)", re.S)
_VARIABLE = re.compile(r"(?:export[ \t]+)?(\w+)[ \t]*[:?+]?=[ \t]*((?:[^\n#\\]|\\.)*)", re.S)
_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(.*)", re.M)  # https://slurm.schedmd.com/sbatch.html
_RECIPE = re.compile(r"[ \t]*[@+-]*")
_DEFAULT = re.compile(r"\$\{\w+:?[-=](.*)\}")
_STRING = re.compile(r"\"((?:\\.|[^\"\\]){0,1000})\"|'([^']{0,1000})'", re.S)
# These print an option instead of passing it.
_TALK = re.compile(
    r"(?:\w*_)?(?:echo|printf|print|log|info|warn|warning|error|die|fail|usage|help|banner)(?:_\w*)?"
    r"|cat|grep|sed|awk|tee|logger"
)
_MANY = 100  # values of an option
_SWITCH = re.compile(r"(?:use_|with_|enable_|multi_)?(?:cuda|gpu)")
_SWITCHED = re.compile(r"[\d, ]+|true|yes|on|cuda.*|-1|no|off|false|none|\$.*", re.I)


@dataclass(frozen=True, slots=True)
class _Word:
    text: str  # as it is written
    start: int
    end: int

    @property
    def value(self) -> str:
        """The word without its quotes."""
        return _STRING.sub(lambda each: each[1] or each[2] or "", self.text)


def shell_pairs(text: str) -> Iterator[Pair]:
    """Yield the options and variables of a shell script with their values."""
    yield from _scan(text, 0, len(text))
    for line in _DIRECTIVE.finditer(text):  # a comment for the shell
        yield from _scan(text, *line.span(1), inside=True)


def makefile_pairs(text: str) -> Iterator[Pair]:
    """Yield the options and variables of a makefile with their values."""
    for line in re.finditer(r"(?:[^\n\\]|\\.)+", text, re.S):
        variable = _VARIABLE.match(text, line.start(), line.end())
        if variable is None:
            recipe = _RECIPE.match(text, line.start())
            yield from _scan(text, recipe.end() if recipe else line.start(), line.end())
        else:
            value = variable[2].rstrip()
            end = variable.start(2) + len(value)
            yield Pair(variable[1], (value,), variable.start(1), end, shell=True)
            yield from _scan(text, variable.start(2), end, inside=True)


def _scan(text: str, start: int, end: int, inside: bool = False) -> Iterator[Pair]:
    """Yield the pairs of each command; in a string there may be options without a command."""
    words: list[_Word] = []
    marks: list[str] = []
    array = False
    at = start
    while at < end:
        match = _TOKEN.match(text, at, end)
        assert match is not None
        at = match.end()
        if match["heredoc"]:
            marks.append(match["mark"])
        elif match["word"]:
            words.append(_Word(match["word"], *match.span()))
        elif match["end"]:
            yield from _command(text, words, inside or array)
            opens = match["end"] == "(" and bool(words) and words[-1].text.endswith("=")
            array = opens or (array and match["end"] != ")")
            words = []
            if match["end"] == "\n" and marks:
                at = _behind(text, at, end, marks)
                marks = []
    yield from _command(text, words, inside or array)


def _behind(text: str, at: int, end: int, marks: list[str]) -> int:
    """Return the end of the here-documents with these delimiters."""
    for mark in marks:
        closing = re.compile(rf"^[ \t]*{re.escape(mark)}[ \t\r]*$", re.M).search(text, at, end)
        at = closing.end() if closing else end
    return at


def _command(text: str, words: list[_Word], begun: bool) -> Iterator[Pair]:
    """Yield the pairs of one command; an option before it may be an arm of a `case`."""
    for index, word in enumerate(words):
        option = _OPTION.fullmatch(word.value)
        setting = _SETTING.fullmatch(word.value)
        if option is not None:
            if begun:
                yield from _option(words, index, option)
        elif setting is not None:
            default = _DEFAULT.fullmatch(setting[2])
            value = default[1] if default else setting[2]
            yield Pair(setting[1], (value,), word.start, word.end, shell=True)
        else:
            if not begun and _TALK.fullmatch(word.value[:50].lower()):
                return
            begun = True
        for string in _STRING.finditer(word.text):
            group = 1 if string[1] is not None else 2
            if re.search(r"\s", string[group]):  # often a command
                yield from _scan(text, word.start + string.start(group), word.start + string.end(group), True)


def _option(words: list[_Word], index: int, option: re.Match[str]) -> Iterator[Pair]:
    """Yield an option with its value: after `=`, in the next word, or in several words if they are numbers."""
    word, key = words[index], option[1]
    if option[2] is not None:
        yield Pair(key, (option[2],), word.start, word.end, shell=True)
        return
    following: list[_Word] = []
    for other in islice(words, index + 1, index + 1 + _MANY):
        if _OPTION.fullmatch(other.value) or (following and not other.value.isdigit()):
            break
        following.append(other)
        if not other.value.isdigit():
            break
    switch = _SWITCH.fullmatch(key.replace("-", "_").lower())
    if following and (switch is None or _SWITCHED.fullmatch(following[0].value)):
        values = tuple(other.value for other in following)
        yield Pair(key, values, word.start, following[-1].end, shell=True)
    elif switch is not None:
        yield Pair(key, ("true",), word.start, word.end, shell=True)
