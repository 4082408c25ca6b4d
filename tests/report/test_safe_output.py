"""The output of devicefix controls no terminal and no log, whatever is in files, their names and settings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT, Cli, CliResult, Git
from running import verify_in_forks

from devicefix.config.printable import printable, printable_json, printable_lines, printable_path
from devicefix.report import FORMATS
from devicefix.runner import run as runner

pty = pytest.importorskip("pty")

# A title, a clearing of the screen, a colour that devicefix does not use, a C1 control, a bell, a reversal of
# the text, an invisible space, a line end to some programs, and a command of GitHub on a line of its own.
HOSTILE = "\x1b]0;T\x07\x1b[2J\x1b[45m\x9b2J\x08\u202e\u2066\u200b\u2028\r\n::error::E"
IN_CODE = HOSTILE.replace("\r", "").replace("\n", "")
NAME = f"{HOSTILE.replace('/', '')}.py"
SOURCE = f'''\
import torch
from torch.cuda import amp
a = "{IN_CODE}", torch.ones(1).cuda()  # {IN_CODE}
def f(x, {"b" * 5}="{IN_CODE}"):  # {IN_CODE}
    x.to("cuda:{IN_CODE}"), torch.load("{IN_CODE}"), torch.cuda.synchronize()
    return getattr(x, "cuda")(), torch.cuda.FloatTensor(3), torch.device("cuda", {{"{IN_CODE}": 1}})
'''
BROKEN = f"import torch\nx.cuda({IN_CODE}"

COLOURS = re.compile(r"\x1b\[(?:0|1|2|22|4|[39][0-7]|38;5;\d+|)m")  # what `click.style` and `coloured` write
# The progress of a check that takes long, with what the terminal gets to draw and to remove it.
BAR = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h(?:\r|\x1b\[(?:1A|2K))*", re.S)
DRAWING = re.compile(r"\r|\x1b\[(?:\?25[lh]|1A|2K)")
PEOPLE = {name for name, each in FORMATS.items() if each.for_people}


def unsafe(text: str, *kept: str) -> list[str]:
    """Return what a text has besides characters that can be seen and line feeds, with a little around it."""
    plain = COLOURS.sub("", text)
    found = [
        ascii(plain[max(at - 30, 0) : at + 10])
        for at, character in enumerate(plain)
        if not character.isprintable() and character not in ("\n", *kept)
    ]
    return found[:5] + re.findall(r"(?m)^(?:::(?!error title=)|##\[).*", plain)


# -- the one place -------------------------------------------------------------------------------------


def test_texts_are_made_safe() -> None:
    for make in (printable, printable_path, printable_lines, printable_json):
        assert not unsafe(make(IN_CODE))
        assert make("é 漢 x") == "é 漢 x"
    assert "\n" not in printable(HOSTILE)
    assert printable_lines("a\n\tb\x1b") == "a\n\tb\\x1b"
    assert [printable_path(name) for name in ("::a", "##[b", "c")] == ["./::a", "./##[b", "c"]


def test_safe_json_means_the_same() -> None:
    value = [HOSTILE, "\U000e0001\ud800é", {"a\x9b": 1}]
    text = printable_json(json.dumps(value, indent=1, ensure_ascii=False))
    assert not unsafe(text)
    assert json.loads(text) == value


# -- every format and stream ---------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with hostile files, which is the current one."""
    folder = tmp_path / f"tree{HOSTILE}"
    folder.mkdir()
    (folder / NAME).write_text(SOURCE)
    (folder / f"::error ::{IN_CODE}.py").write_text(SOURCE)
    (folder / f"broken{IN_CODE}.py").write_text(BROKEN)
    (folder / os.fsdecode(b"bytes\xff\x1b.py")).write_text(SOURCE)
    (folder / f"{IN_CODE}.md").write_text(f"```python\n{SOURCE}```\n")
    (folder / f"{IN_CODE}.yaml").write_text(f"device: cuda  # {IN_CODE}\n")
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": SOURCE}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / f"{IN_CODE}.ipynb").write_text(json.dumps(notebook))
    (folder / f"large{IN_CODE}.py").write_text("#" * 20_000)
    (folder / f"denied{IN_CODE}.py").write_text(SOURCE)
    monkeypatch.chdir(folder)
    read = runner._bytes

    def denied(path: str, settings: Any) -> bytes:
        if os.path.basename(path).startswith("denied"):
            raise PermissionError(13, f"Permission denied {HOSTILE}", path)
        return read(path, settings)

    monkeypatch.setattr(runner, "_bytes", denied)
    return folder


@pytest.fixture
def run(cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CliResult]:
    monkeypatch.chdir(tree)  # `cli` has chosen another one
    common = ("--max-file-size", "16K", "--no-cache", "--docs", "--config-files", "-j", "1")
    return lambda command, *arguments, **more: cli(command, *common, *arguments, **more)


@pytest.mark.parametrize("colour", ["never", "always"])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_findings_in_each_format(run: Callable[..., CliResult], name: str, colour: str) -> None:
    if name == "html":
        pytest.importorskip("jinja2")
    done = run("check", "--output-format", name, "--color", colour, "--select", "DF", ".")
    assert done.exit_code == 2
    assert "DF103" in done.stdout
    assert "Permission denied" in done.stderr
    assert not unsafe(done.stdout)
    assert not unsafe(done.stderr)
    assert ("\x1b" in done.stdout) is (colour == "always" and name in PEOPLE)
    run("check", "--output-format", name, "-o", "../out", ".")
    assert not unsafe(Path("../out").read_text())


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "--statistics", "."),
        ("check", "-v", "."),
        ("check", "--baseline", f"../{NAME}", "--write-baseline", "."),
        ("check", "--baseline", f"../missing{NAME}", "."),
        ("check", "--add-noqa", "."),
        ("check", "--diff-base", HOSTILE, "."),
        ("check", f"missing{HOSTILE}"),
        ("check", "--select", HOSTILE),
        ("check", "--exclude", f"{HOSTILE}\\"),
        ("check", "--config", f"missing{HOSTILE}"),
        ("check", f"--{HOSTILE}"),
        ("check", "-o", f"missing{HOSTILE}/x", "."),
        ("check", "--max-file-size", HOSTILE),
        ("rewrite", "-i", "."),
        ("rewrite", "-i", "--require-clean", "."),
        ("report", "-o", f"../{NAME}.html", "."),
        ("report", "-o", "-", "."),
        ("report", "-o", f"missing{HOSTILE}/x", "."),
    ],
    ids=lambda words: ascii(" ".join(words))[:40],
)  # fmt: skip
def test_each_command(run: Callable[..., CliResult], arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.output
    assert not unsafe(done.stdout, "\t")
    assert not unsafe(done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [(HOSTILE,), (f"--{HOSTILE}",), ("--color", HOSTILE), ("rule", HOSTILE), ("config", HOSTILE),
     ("verify", HOSTILE)],
    ids=lambda words: ascii(" ".join(words))[:20],
)  # fmt: skip
def test_what_the_command_line_gets_wrong(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert done.exit_code == 2
    assert not unsafe(done.output)


def test_settings(cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    file = tree / "devicefix.toml"
    value, glob = json.dumps(HOSTILE), json.dumps(HOSTILE.replace("[", "?"))
    good = f"exclude = [{glob}]\nper-file-ignores = {{ {glob} = ['DF2'] }}\nbaseline = {value}\n"
    for content, status in (
        (good, 0), (f"{value} = 1", 2), (f"exclude = [{value}, '!']", 2), (f"target = {value}", 2),
        (f"select = [{value}]", 2), (f"x = {HOSTILE}", 2), (f"max-file-size = {value}", 2),
    ):  # fmt: skip
        file.write_text(content, encoding="utf-8", newline="")
        for command in (("config",), ("config", "exclude"), ("config", "--output-format", "json")):
            done = cli(*command)
            assert done.exit_code == status, done.output
            assert not unsafe(done.output)


def test_uncommitted_files_and_the_work_tree(run: Callable[..., CliResult], tree: Path) -> None:
    git = Git(tree)
    git("init", "-q")
    done = run("rewrite", "-i", ".")
    assert "neither committed nor staged" in done.stderr
    assert not unsafe(done.output)
    assert not unsafe(run("check", "--diff-base", "main", ".").output)


# -- terminals -----------------------------------------------------------------------------------------


def on_terminal(*arguments: str, **environment: str) -> str:
    """Run devicefix with a terminal as its streams, and return what it prints."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "devicefix", *arguments],
        stdin=subprocess.PIPE, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
    )  # fmt: skip
    os.close(theirs)
    assert process.stdin
    process.stdin.write(SOURCE.encode())
    process.stdin.close()
    printed = b"".join(_until_closed(ours))
    process.wait()
    text = printed.decode().replace("\r\n", "\n")
    return BAR.sub(lambda bar: DRAWING.sub("", bar[0]), text)


def _until_closed(terminal: int) -> Iterator[bytes]:
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        while True:
            try:
                part = stream.read(65536)
            except OSError:  # Linux: the other end is closed
                return
            if not part:
                return
            yield part


@pytest.mark.parametrize(
    "arguments",
    [("check", NAME), ("rewrite", NAME), ("rewrite", "--diff", "-"), ("rewrite", "-"),
     ("rewrite", "-i", NAME), ("check", f"missing{HOSTILE}"), ("config",)],
    ids=lambda words: ascii(" ".join(words))[:20],
)  # fmt: skip
def test_on_a_terminal(tree: Path, arguments: tuple[str, ...]) -> None:
    printed = on_terminal(*arguments)
    assert printed
    assert not unsafe(printed, "\t")


@pytest.mark.parametrize("arguments", [("check", NAME), ("rewrite", NAME)], ids=["check", "rewrite"])
def test_on_a_terminal_without_colours(tree: Path, arguments: tuple[str, ...]) -> None:
    printed = on_terminal(*arguments, NO_COLOR="1")
    assert printed and "\x1b" not in printed
    assert not unsafe(printed, "\t")


def test_a_patch_in_a_pipe_keeps_its_bytes(tree: Path) -> None:
    command = [sys.executable, "-m", "devicefix", "rewrite", "--no-cache"]
    made = subprocess.run([*command, NAME], capture_output=True, check=False)
    assert IN_CODE.encode() in made.stdout
    git = Git(tree)
    git("init", "-q")
    git("apply", "-", data=made.stdout)
    rewritten = (tree / NAME).read_bytes()
    assert IN_CODE.encode() in rewritten
    piped = subprocess.run([*command, "-"], input=SOURCE.encode(), capture_output=True, check=False)
    assert piped.stdout == rewritten


# -- other programs ------------------------------------------------------------------------------------


def test_flake8(tree: Path) -> None:
    from devicefix.server.flake8 import Plugin

    for name, source in (
        (NAME, SOURCE),
        (f"broken{IN_CODE}.py", BROKEN),
        (NAME, f"# coding: {IN_CODE}\ncuda"),
    ):
        lines = source.splitlines(keepends=True)
        for _, _, message, _ in Plugin(None, name, lines).run():  # type: ignore[arg-type]
            assert not unsafe(message)


def test_the_report_of_verify(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    pytest.importorskip("torch")
    script = tree / NAME
    script.write_text(
        f"import torch\nclass E(Exception):\n    pass\nE.__name__ = {IN_CODE!r}\n"
        f"def f():\n    raise E({HOSTILE!r})  # {IN_CODE}\n"
        f"f.__code__ = f.__code__.replace(co_name={HOSTILE!r})\nf()\n"
    )
    verify_in_forks(monkeypatch)
    done = Cli()("verify", "--no-copies", NAME)
    assert done.exit_code == 1
    assert not unsafe(done.stdout)


def test_nothing_is_printed_past_the_one_place() -> None:
    """A new output is a new line here: is what it prints made safe?"""
    known = {
        "cli/__init__.py": 1, "cli/baseline.py": 3, "cli/changes.py": 3, "cli/check.py": 2, "cli/clean.py": 1,
        "cli/config.py": 3, "cli/diff_base.py": 1,
        "cli/errors.py": 1, "cli/help.py": 1, "cli/inputs.py": 2, "cli/migrate.py": 3, "cli/noqa.py": 1,
        "cli/options.py": 1, "cli/output.py": 3, "cli/playground.py": 1, "cli/report.py": 3,
        "cli/rewrite.py": 4, "cli/rule.py": 4, "cli/run.py": 1, "cli/verify.py": 4, "cli/watch.py": 1,
    }  # fmt: skip
    found = {}
    for room in ("cli", "files", "runner", "engine", "server", "codemod", "playground", "report", "config"):
        for file in (ROOT / "devicefix" / room).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            number = len(
                re.findall(r"click\.echo\(|(?<![\w.\"`])print\(|Console\(\)\.print\(|stdout\.write\(", text)
            )
            if number:
                found[file.relative_to(ROOT / "devicefix").as_posix()] = number
    assert found == known
