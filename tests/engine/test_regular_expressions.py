"""No text makes a regular expression try exponentially many ways, nor quadratically many in a whole file."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import devicefix
from devicefix.config.settings import Settings
from devicefix.runner.run import check_text

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="nothing ends a search here")

LENGTH = 500
SECONDS = 3.0  # of the processor; what is exponential takes longer than anybody has
OPTIONAL = {"devicefix.migrate", "devicefix.report", "devicefix.server", "devicefix.verify"}  # need packages


def patterns() -> dict[str, re.Pattern[Any]]:
    """Return the regular expressions of all modules, by the name of one."""
    found: dict[tuple[Any, int], tuple[str, re.Pattern[Any]]] = {}
    for module in pkgutil.walk_packages(devicefix.__path__, "devicefix."):
        if "bootstrap" in module.name or module.name.endswith("__main__"):
            continue
        try:
            members = vars(importlib.import_module(module.name))
        except ImportError:
            assert any(module.name.startswith(room) for room in OPTIONAL)
            continue
        for name, value in members.items():
            for each in _within(value):
                found.setdefault((each.pattern, each.flags), (f"{module.name[10:]}.{name}", each))
    names = [name for name, _ in found.values()]
    return {
        name if names.count(name) == 1 else f"{name} {number}": each
        for number, (name, each) in enumerate(found.values())
    }


def _text(pattern: re.Pattern[Any]) -> str:
    return pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")


def _within(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _within(each)


# What repeats nothing tries each place of a text once.
PATTERNS = {name: each for name, each in patterns().items() if re.search(r"[*+{]", _text(each))}


@contextmanager
def limited(name: str) -> Iterator[None]:
    """Fail if something takes too much of the processor's time."""

    def late(*_: object) -> None:
        raise TimeoutError(name)

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def attacks(pattern: str) -> Iterator[str]:
    """Yield texts that repeat what a pattern looks for, and end in something else."""
    plain = re.sub(r"\\[a-zA-Z]", " ", pattern)
    parts = sorted({*re.findall(r"[A-Za-z_]{2,}", plain), *plain, *" \n\ta1\"'\\#.,:()[]"})
    choose = random.Random(7)
    starts = ["", '"', "'", '"""', "'''", "/*", "(", "a", *parts]
    for part in [*parts, *(choose.choice(parts) + choose.choice(parts) for _ in range(20))]:
        body = (part * LENGTH)[:LENGTH]
        yield from (f"{choose.choice(starts)}{body}{end}" for end in ("", "\x01"))


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_is_exponential(name: str) -> None:
    pattern = PATTERNS[name]
    for attack in attacks(_text(pattern)):
        subject = attack if isinstance(pattern.pattern, str) else attack.encode()
        with limited(f"{name}: {attack[:20]!r} … {attack[-5:]!r}"):
            pattern.search(subject)  # begins with a match at the start
            pattern.fullmatch(subject)


# -- whole files ---------------------------------------------------------------------------------------

HEAD = "import torch\nfrom torch import nn\nx = x.cuda()\ny.to(a)\nz.to(rank)\nconfig.device = 'cuda'\n"
FILES = {
    "a name": f"{HEAD}{'a' * 200_000} = 1\n",
    "a name of a tuple": f"{HEAD}{'a' * 200_000} = namedtuple\n",
    "the name of a call": f"{HEAD}setattr({'a' * 200_000}\n",
    "a decorator": f"{HEAD}@{'if' * 100_000}\ndef f(): x.cuda()\n",
    "names": f"{HEAD}{'a ' * 100_000}\n",
    "names in a comment": f"{HEAD}#{' a' * 100_000}\n",
    "spaces": f"{HEAD}a = 1{' ' * 200_000}\nx.cuda(){' ' * 200_000}# end\n",
    "lines of spaces": f"{HEAD}" + (" " * 1000 + "\n") * 200,
    "spaces before a call": HEAD + "a.append(x.cpu" + " " * 200_000 + "1)\n",
    "comments behind a statement": f"{HEAD}torch.cuda.synchronize()  {'# ' * 100_000}\n",
    "comments": f"{HEAD}torch.cuda.synchronize()\n" + "# # # # # # # # # # # # # # # # # # # # # #\n" * 2000,
    "an error in a long line": f"{HEAD}print 'a' {'except ' * 30_000}",
    "lambdas": f"{HEAD}# {'lambda ' * 30_000}\n",
    "processes": f"{HEAD}from multiprocessing import Process\n# {'set_start_method ' * 10_000}\n",
    "handlers": f"{HEAD}# {'except ' * 30_000}\n",
    "imports": f"{HEAD}" + "# from torch import (\n" * 10_000,
    "a name async": f"{HEAD}async = 1\nasync {'#' * 100_000}",
    "names async": f"{HEAD}" + "async # a\n" * 10_000,
    "an open string": f"{HEAD}a = '" + "\\" * 100_000,
    "an open string of others": f"{HEAD}a = '" + ":\\" * 50_000,
    "print": f"{HEAD}print {'`' * 100_000}",
    "strings": HEAD + "a = [" + '"cuda", ' * 5_000 + "]\n",
    "brackets": f"{HEAD}a = {'(' * 100_000}",
    "noqa": f"{HEAD}x.cuda()  # noqa: {'DF101,' * 30_000}\n",
}
OTHERS = {
    "a.toml": ['a = """' + "\\a" * 100_000, "a = '''" + "b'" * 100_000, "a = [" + "'" * 100_000],
    "a.json": ["/* " * 60_000, '{"device": "cuda' + '\\"' * 50_000, '"' * 100_000, "{" * 100_000],
    "a.yaml": [
        ("a" + " " * 4900 + "\n") * 40, "- " * 100_000, "a: [" * 20_000, "a: '" + "''" * 100_000,
        ("&a " * 1500 + "\n") * 40, ("a" + " #" * 2000 + "\n") * 40, "? " * 100_000, "a: |\n" * 20_000,
    ],
    "a.sh": ['python "' + '\\"' * 100_000, "$(" * 100_000, "`" * 100_000, "a='" * 50_000, "--gpu " * 30_000],
    "a.md": ["```python\n" * 20_000, "`" * 200_000, "> " * 100_000, "- " * 100_000, "~~~py\n" * 20_000],
    "a.rst": [".. code:: python\n\n" * 10_000, " " * 200_000, ".. " * 60_000],
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_that_repeat_something_take_little_time(name: str) -> None:
    for path, data in (("a.py", FILES[name]), ("a.ipynb", _notebook(FILES[name]))):
        started = time.process_time()
        with limited(name):
            outcome = check_text(data.encode(), path, Settings(fix=True))
        assert not outcome.error
        assert time.process_time() - started < SECONDS


def _notebook(source: str) -> str:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize("path", OTHERS)
def test_other_files_that_repeat_something_take_little_time(path: str) -> None:
    for text in OTHERS[path]:
        started = time.process_time()
        with limited(text[:20]):
            assert not check_text(f"{text}\n".encode(), path, Settings()).error
        assert time.process_time() - started < SECONDS, text[:20]
