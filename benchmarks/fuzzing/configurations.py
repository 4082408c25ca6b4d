"""Folders: settings, ignored files, noqa comments, a baseline and a cache, and configuration files to check.

An input is text: each file of the folder begins with a line `=== NAME`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any
from unittest import mock

import patterns

from devicefix.config import values
from devicefix.config.settings import KEYS
from devicefix.facts.comments import SKIP_FILE
from devicefix.files.kinds import Kind, is_python, kind_of
from devicefix.rules.registry import RULES
from fuzzing import commands
from fuzzing.commands import Ran, run
from fuzzing.documents import Documents
from fuzzing.faults import Fault
from fuzzing.mutation import ODD_VALUES, bytes_changed, lines_changed, value_changed
from fuzzing.notebooks import Notebooks
from fuzzing.programs import LONGEST, Programs, found, text_of
from fuzzing.scratch import Scratch
from fuzzing.surface import Surface

_HEADER = re.compile(rb"^=== ([^\r\n]+)\n", re.M)
_SETTINGS = ("devicefix.toml", ".devicefix.toml", "pyproject.toml")
_BASELINE = "baseline.json"
_GLOBS = (
    "*.py", "a.py", "p/", "!a.py", "**/*.py", "p/**", "[ab].py", "[!a]*", "{a,b}.py", "?.py", "/a.py",
    "#a", "\\#a", "a.py ", "**", "***", "[", "]", "[]", "[]a]", "{", "}", "{a", "a}", "!", "!!a", "\\",
    "/", "//", "./a.py", "../a.py", "p/../a.py", "[a-", "[z-a]", "[[:alpha:]].py", "a**b", "{a,{b,c}}.py",
    "\ud800", "é.py", "", " ", "\t", "*\0",
)  # fmt: skip
_COMMENTS = (
    "# noqa", "# noqa: DF101", "# NOQA:DF101,DF102", "#noqa:DF", "# noqa: DF101 # why", "# noqa : DF101",
    "# noqa:", "#", "# noqa: DF999", "# noqa:DF101DF102", "# noqa: df101, E501", "# devicefix: skip-file",
    "# fmt: skip # noqa: F401", "# noqa: DF101 why", "# type: ignore # noqa: DF102  # noqa: DF103",
    "# é noqa: DF101", "\\", "# noqa:\u00a0DF101",
)  # fmt: skip
_TIED = (
    "device: cuda", "gpu_ids: [0, 1]", "dist_backend: nccl", "a: {device: cuda:0, b: [cuda]}",
    "devices:\n  - cuda\n  - 'cuda:1'", "CUDA_VISIBLE_DEVICES=0 python a.py --device cuda --gpu 1",
    "export GPUS=2", "cat <<EOF\n--gpu 0\nEOF", "gpus ?= 4", "device = \"cuda\"", "[a]\ngpus = [0]",
    "\"device\": \"cuda\",", "{\"a\": [{\"gpus\": \"0\"}", "x: |\n  device: cuda",
    "run:\n\tpython a.py --gpu=0 \\\n\t--cuda", "'a: \"cuda", "- ? [", "device: &a !b cuda # noqa: DF905",
    "{{ a }}: cuda",
)  # fmt: skip
_PINS = (
    "torch==2.1.0", "torch ~= 2.0.1", "pytorch=1.9", "torch", "torch==2.1 ; python_version > '3.8'",
    "torch==9.9,<3", "  - pytorch::pytorch=2.0", 'torch = "==2.0.1"', "torch===2.0",
    "torch==٢.٠",
)  # fmt: skip
_TEXTS = {
    **dict.fromkeys(("c.yaml", "c.yml", "c.json", "c.toml", "run.sh", "Makefile", "Dockerfile"), _TIED),
    **dict.fromkeys(("requirements.txt", "setup.cfg", "environment.yml", "Pipfile"), _PINS),
}


class Configurations:
    """Folders; see `Surface`."""

    suffix = ".tree"

    def __init__(self, corpus: Path | None) -> None:
        self._programs = Programs(found(corpus, "*.py"))
        self._others: dict[str, Surface] = {
            "n.ipynb": Notebooks(None),
            "d.md": Documents(None),
            "d.rst": Documents(None),
        }
        self._found = list(_small(corpus)) if corpus else []

    def seeds(self) -> Iterable[bytes]:
        """Return each small configuration file, beside a program that has a finding."""
        for name, data in self._found:
            yield joined({"a.py": b"import torch\nx.cuda()\n", name: data})

    def fresh(self, random: Random) -> bytes:
        """Return a folder with programs, settings, and other files."""
        files = {name: self._program(random) for name in random.sample(("a.py", "b.py", "p/c.py", "p/d"), 2)}
        if random.random() < 0.4:
            name = random.choice(list(self._others))
            files[name] = self._others[name].fresh(random)
        for name in random.sample(_SETTINGS, random.choice((0, 1, 1, 2))):
            files[name] = _settings(random, name).encode(errors="surrogatepass")
        for name in random.sample((".gitignore", "p/.gitignore"), random.choice((0, 0, 1, 2))):
            globs = random.sample(_GLOBS, random.randint(1, 5))
            files[name] = "\n".join(globs).encode(errors="surrogatepass")
        for name in random.sample(list(_TEXTS), random.randint(0, 2)):
            files[name] = "\n".join(random.sample(_TEXTS[name], random.randint(1, 5))).encode()
        if random.random() < 0.3:
            files[_BASELINE] = _baseline(random)
        return joined(files)[:LONGEST]

    def _program(self, random: Random) -> bytes:
        lines = text_of(self._programs.fresh(random).encode()).split("\n")
        for _ in range(random.randint(0, 4)):
            at = random.randrange(len(lines))
            lines[at] += f"  {random.choice(_COMMENTS)}"
        return "\n".join(lines).encode()

    def changed(self, random: Random, data: bytes) -> bytes:
        """Return a folder with a changed file, or with one of another kind."""
        files = parted(data)
        if not files or random.random() < 0.1:
            return bytes_changed(random, data)[:LONGEST]
        name = random.choice(list(files))
        way = random.random()
        if way < 0.2:
            other = parted(self.fresh(random))
            files |= dict(random.sample(list(other.items()), 1))
        elif way < 0.5:
            files[name] = bytes_changed(random, files[name])
        elif way < 0.6 and is_python(name):
            files[name] = self._programs.changed(random, text_of(files[name])).encode()
        elif way < 0.6 and name in self._others:
            files[name] = self._others[name].changed(random, files[name])
        elif way < 0.7:
            files[random.choice((*_SETTINGS, *_TEXTS, _BASELINE, "a.py", ".gitignore", "x/y.py"))] = (
                files.pop(name)
            )
        else:
            others = [*_COMMENTS, *_TIED, *_PINS, *_keys(random, 5)]
            text = files[name].decode(errors="surrogateescape")
            changed = lines_changed(random, text, others)
            files[name] = changed.encode(errors="surrogatepass" if "\ud800" in changed else "surrogateescape")
        return joined(files)[:LONGEST]

    def attempt(self, data: bytes, choice: int, scratch: Scratch) -> bool:
        """Run the commands in the folder, with the cache and without it."""
        scratch.fill(files := parted(data))
        here = ["--config-files"] * (choice % 3 == 0) + ["--docs"] * (choice % 5 < 2) + ["."]
        if choice % 4 == 0 or any(name.endswith(".gitignore") for name in files):
            subprocess.run(["git", "init", "-q"], stdin=subprocess.DEVNULL, check=False)
        first = run("check", *here)
        before = scratch.files()
        _same("a second check", first, run("check", *here))
        _same("a check without the cache", first, run("check", "--no-cache", *here))
        with mock.patch("devicefix.runner.run.POOL_FROM", 1):  # the outcomes of all files are kept as well
            _same("a check with the outcomes", first, run("check", *here))
        _with_broken_cache(Random(choice), scratch.folder, here)
        commands.report(choice // 4, "--no-cache", *here)
        _expect(scratch.files() == before, "a check changes files")
        tries = (_placed, _rewrites, _silences, _baselines, _shows, _reports)
        tries[choice // 64 % len(tries)](first, scratch, here)
        return first.status == 1


def parted(data: bytes) -> dict[str, bytes]:
    """Return the files of an input; names that would lead out of the folder, or into git's, are left out."""
    _, *parts = _HEADER.split(data)
    found = {}
    for name, content in zip(parts[::2], parts[1::2], strict=True):
        path = PurePosixPath(os.fsdecode(name))
        if not path.is_absolute() and not {"..", ".git"}.intersection(path.parts):
            found[str(path)] = content
    return found


def joined(files: Mapping[str, bytes]) -> bytes:
    """Return files as an input."""
    return b"".join(b"=== %s\n%s\n" % (os.fsencode(name), content) for name, content in files.items())


# -- making folders --------------------------------------------------------------------------------------


def _small(corpus: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the small configuration files of a corpus."""
    for path in sorted(corpus.rglob("*")):
        known = path.name in (*_SETTINGS, ".gitignore") or kind_of(path.name) in (Kind.CONFIG, Kind.OTHER)
        if known and path.is_file() and path.stat().st_size < 5000:
            yield path.name, path.read_bytes()


def _settings(random: Random, name: str) -> str:
    """Return settings, most of which are right."""
    lines = []
    if name == "pyproject.toml":
        if random.random() < 0.3:
            lines += ["[project]", 'dependencies = ["torch==2.1"]']
        lines.append(random.choice(("[tool.devicefix]", "[tool.devicefix]", "[tool]", "[tool.devicefix.x]")))
    return "\n".join([*lines, *_keys(random, random.randint(0, 4)), ""])


def _keys(random: Random, number: int) -> list[str]:
    """Return some keys with values."""
    keys = random.sample(list(KEYS.values()), number)
    return [f"{key.name} = {_toml(value_of(random, key.kind))}" for key in keys]


def value_of(random: Random, kind: str) -> Any:
    """Return a value of a kind, or an odd one."""
    if random.random() < 0.15:
        return random.choice(ODD_VALUES)
    code = random.choice((*RULES, "DF", "DF1", "DF999", "df101, DF2"))
    glob = random.choice(_GLOBS)
    made: dict[str, Callable[[], Any]] = {
        "codes": lambda: [code],
        "patterns": lambda: [glob],
        "per-file": lambda: {glob: [code]},
        "switch": lambda: random.random() < 0.5,
        "flag": lambda: random.random() < 0.5,
        "count": lambda: random.choice((1, 2, 0, 10**30)),
        "file": lambda: random.choice((_BASELINE, "a.py", ".", "p", "none.json", "x" * 300)),
        "folder": lambda: random.choice((".devicefix_cache", ".cache/x", ".devicefix_cache/../y")),
        "extended": lambda: random.choice(
            ("devicefix.toml", "../devicefix.toml", "sub/pyproject.toml", "none.toml", "a.py", "p.toml")
        ),
        "version": lambda: random.choice(("2.6", "1.0", "99.99", "2", "2.6.0", "9" * 5000 + ".1", "٢.٦")),
        "size": lambda: random.choice(("16M", "1", "0", "1K", "999999G", "K", "1.5M", " 1M", "-1")),
        "target": lambda: random.choice(values.TARGETS),
        "format": lambda: random.choice(values.FORMATS),
    }
    return made[kind]()


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("NaN", "nan").replace("Infinity", "inf")


def _baseline(random: Random) -> bytes:
    """Return a baseline, most often of a form that is read."""
    code = random.choice(list(RULES))
    content: Any = {"version": 1, "findings": {"a.py": {code: ["x.cuda()", "x = x.cuda()"]}}}
    for _ in range(random.choice((0, 0, 1, 3))):
        content = value_changed(random, content)
    return json.dumps(content).encode()


# -- what must hold --------------------------------------------------------------------------------------


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Fault(otherwise)


def _same(what: str, first: Ran, other: Ran) -> None:
    _expect((first.status, first.data) == (other.status, other.data), f"{what} finds something else")


def _with_broken_cache(random: Random, folder: Path, here: list[str]) -> None:
    """Expect that a check with a cache that is broken ends as usual; what it finds may be wrong."""
    for file in sorted(folder.rglob(".devicefix_cache/*/*.json")):
        text = file.read_text(encoding="utf-8", errors="surrogatepass")
        if random.random() < 0.3:
            data = bytes_changed(random, text.encode(errors="surrogatepass"))
        else:
            parts: Any = list(map(json.loads, text.split("\n", 1)))
            for _ in range(random.choice((1, 1, 4))):
                parts = value_changed(random, parts)
            data = "\n".join(map(json.dumps, parts if isinstance(parts, list) else [parts])).encode()
        file.write_bytes(data)
    with mock.patch("devicefix.runner.run.POOL_FROM", random.choice((1, 40))):
        commands.report(random.randrange(10), *here)


def _placed(first: Ran, _scratch: Scratch, _here: list[str]) -> None:
    """Expect the position of what is wrong in a configuration."""
    if first.status == 2 and re.search(r"^Error: .*(?:devicefix|pyproject)\.toml", first.errors):
        _expect(bool(re.search(r"\.toml:\d+:\d+: ", first.errors)), f"no position: {first.errors}")


def _rewrites(_first: Ran, scratch: Scratch, here: list[str]) -> None:
    """Expect that a rewrite changes only programs, which still parse, and a second one nothing."""
    before = scratch.files()
    run("rewrite", "--no-cache", *here, raw=True)
    _expect(scratch.files() == before, "a patch was asked for, and a file is changed")
    run("rewrite", "--in-place", "--no-cache", *here)
    after = scratch.files()
    _expect(before.keys() == after.keys(), "a rewrite makes or removes files")
    for name in before:
        if before[name] != after[name]:
            _expect(
                kind_of(name) in (Kind.MODULE, Kind.NOTEBOOK, Kind.DOCS), "a rewrite changes a configuration"
            )
            _expect(not SKIP_FILE.search(before[name]), "a rewrite changes a file that is to be skipped")
            _expect(not _parses(name, before[name]) or _parses(name, after[name]), "a rewrite breaks a file")
    run("rewrite", "--in-place", "--no-cache", *here)
    _expect(scratch.files() == after, "a second rewrite changes something")


def _parses(name: str, data: bytes) -> bool:
    return is_python(name) and patterns.parses(data.decode(errors="replace"))


def _silences(first: Ran, scratch: Scratch, here: list[str]) -> None:
    """Expect that comments silence what is found, without a change of the code."""
    before = scratch.files()
    added = run("check", "--no-cache", "--add-noqa", *here)
    after = scratch.files()
    _expect(before.keys() == after.keys(), "--add-noqa makes or removes files")
    for name in before:
        if before[name] != after[name]:
            _expect(is_python(name) or not Path(name).suffix, "--add-noqa changes what is not Python")
            _expect(_parses(name, before[name]) <= _parses(name, after[name]), "--add-noqa breaks a file")
    again = run("check", "--no-cache", "--output-format", "concise", *here)
    if first.status != 2 and again.status != 2:  # which a file ends with that has become too large
        _expect(added.status == again.status, "what --add-noqa leaves is not what is found then")
    run("check", "--no-cache", "--add-noqa", *here)
    _expect(scratch.files() == after, "a second --add-noqa changes something")


def _baselines(first: Ran, scratch: Scratch, here: list[str]) -> None:
    """Expect that a baseline hides what is found."""
    given = ["--no-cache", "--baseline", "new.json", *here]
    written = run("check", "--write-baseline", *given)
    if first.status == 2 or written.status == 2:
        return
    _expect(run("check", *given).status == 0, "a new baseline does not hide what is found")
    once = scratch.files()
    run("check", "--write-baseline", *given)
    _expect(scratch.files() == once, "a second baseline is another one")


def _shows(first: Ran, _scratch: Scratch, _here: list[str]) -> None:
    """Expect that the settings can be shown if they are valid."""
    shown = run("config")
    _expect(first.status == 2 or shown.status == 0, "valid settings cannot be shown")
    written = run("config", "--output-format", "json")
    _expect(shown.status == 2 or isinstance(json.loads(written.output), list), "the settings are no JSON")
    for key in KEYS:
        run("config", key)


def _reports(_first: Ran, scratch: Scratch, here: list[str]) -> None:
    """Expect that the report is the only new file."""
    if find_spec("jinja2") and find_spec("markdown_it"):
        before = scratch.files()
        run("report", "--no-cache", "--output", "report.html", *here)
        after = scratch.files()
        after.pop("report.html", None)
        before.pop("report.html", None)
        _expect(before == after, "a report changes files")
