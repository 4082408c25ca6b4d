"""The commands, as a user calls them."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from helpers import Cli, ProjectFolder, devicefix

from devicefix import __version__
from devicefix.cli import COMMANDS, main
from devicefix.cli.help import _GROUP_OF, GroupedCommand
from devicefix.config.settings import Settings
from devicefix.engine import check as engine
from devicefix.facts import Facts
from devicefix.files import write as writing
from devicefix.report.totals import UNPROVEN
from devicefix.rules.registry import RULES
from devicefix.runner import run as runner
from devicefix.runner.pool import POOL_FROM

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
FREE = "import torch\n\nx = torch.ones(2)\n"
BROKEN = "import torch\nx = torch.ones(2.cuda()\n"
CONFIG_FILES = "; to check configuration files and scripts, add `--config-files`"
LINE = re.compile(r"^tied\.py:3:\d+: DF\d{3} \[\*\] \S.*$", re.M)


def test_check_prints_a_line_for_each_finding_and_a_summary(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    (tmp_path / "free.py").write_text(FREE)
    done = cli("check")
    assert done.exit_code == 1
    assert LINE.match(done.stdout)
    assert done.stdout.splitlines()[1:] == [
        "Found 1 finding in 1 of 2 files.",
        "[*] 1 fixable with `--fix`.",
    ]
    assert done.stderr == ""


def test_check_exits_0_when_it_finds_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "free.py").write_text(FREE)
    done = cli("check", ".")
    assert (done.exit_code, done.stdout) == (0, "Nothing found in 1 file.\n")


def test_quiet_prints_only_findings(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    assert LINE.fullmatch(cli("check", "--quiet").stdout.rstrip("\n"))


def test_verbose_prints_the_configuration_and_the_files(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "free.py").write_text(FREE)
    (tmp_path / "pyproject.toml").write_text("[tool.devicefix]\n")
    shown = cli("check", "--verbose").stderr.splitlines()
    assert shown == [f"configuration: {tmp_path / 'pyproject.toml'}", "free.py"]


def test_an_unparsable_file_is_a_finding_and_the_others_are_checked(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "tied.py").write_text(TIED)
    done = cli("check")
    assert done.exit_code == 1
    assert re.match(r"broken\.py:2:\d+: DF901 ", done.stdout)
    assert LINE.search(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "missing"], "'missing' does not exist"),
        (["check", "--frobnicate"], "--frobnicate"),
        (["check", "--jobs", "0"], "0 is not in the range"),
        (["check", "--select", "DF999"], "no rule has the code or name 'DF999'; did you mean 'DF90"),
        (["check", "--select", "DF1010"], "no rule has the code or name 'DF1010'; did you mean 'DF101'?"),
        (
            ["rewrite", "--ignore", "XX"],
            "no rule has the code or name 'XX'; `devicefix rule` lists all rules",
        ),
        (["check", "--config", "missing.toml"], "'missing.toml' does not exist"),
        (["check", "--exclude", "!"], "'--exclude': '!': this is not a valid .gitignore pattern"),
        (["check", "-", "."], "cannot be combined with other paths"),
        (["rewrite", "-", "--in-place"], "standard input"),
        (["rule", "DF999"], "no rule has the code or name 'DF999'; did you mean 'DF90"),
        (["rule", "cuda-cal"], "no rule has the code or name 'cuda-cal'; did you mean 'cuda-call'?"),
        (["rule", "nope"], "no rule has the code or name 'nope'; `devicefix rule` lists all rules"),
        (["rule", "DF101", "--all"], "--all cannot be used with CODE"),
        (["config", "selekt"], "unknown key 'selekt'; did you mean 'select'?"),
        (["config", "nope"], "unknown key 'nope'; `devicefix config` lists all keys"),
        (["check", "--watch", "--fix"], "--watch cannot be used with --fix"),
        (["check", "--watch", "-"], "--watch cannot be used with standard input (-)"),
        (["check", "--fix", "--add-noqa"], "--add-noqa and --fix cannot be used together"),
        (["check", "--diff", "--diff-base", "x"], "--diff cannot be used with --diff-base"),
        (["frobnicate"], "unknown command 'frobnicate'"),
        (["chek"], "unknown command 'chek'; did you mean 'check'?"),
    ],
)
def test_invalid_usage_exits_2(cli: Cli, arguments: list[str], words: str) -> None:
    done = cli(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_a_broken_configuration_exits_2(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.devicefix]\nselct = []\n")
    done = cli("check")
    assert done.exit_code == 2
    assert done.stderr == (
        f"Error: {tmp_path / 'pyproject.toml'}:2:1: "
        "[tool.devicefix] has no key 'selct'; did you mean 'select'?\n"
    )


def test_no_files_is_a_warning(cli: Cli) -> None:
    done = cli("check")
    assert (done.exit_code, done.stderr) == (0, f"Warning: no Python files found{CONFIG_FILES}\n")


def test_an_unreadable_file_is_an_error_and_the_others_are_checked(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked.py").write_text(TIED)
    (tmp_path / "tied.py").write_text(TIED)
    read = runner._read

    def locked(path: str, settings: Settings) -> runner.Content:
        if path.endswith("locked.py"):
            raise PermissionError(13, "Permission denied", path)
        return read(path, settings)

    monkeypatch.setattr(runner, "_read", locked)
    done = cli("check", "--config", os.devnull)
    assert done.exit_code == 2
    assert done.stderr == "locked.py: error: Permission denied\n"
    assert LINE.match(done.stdout)
    assert "Found 1 finding in 1 of 1 file; 1 file failed (see the errors).\n" in done.stdout


def test_an_internal_error_has_no_traceback_and_the_others_are_checked(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("odd.py", "tied.py"):
        (tmp_path / name).write_text(TIED)
    real = engine.check_module

    def failing(facts: Facts, path: str, *rest: Any) -> object:
        if path == "odd.py":
            raise ZeroDivisionError("by\nzero")
        return real(facts, path, *rest)

    monkeypatch.setattr(engine, "check_module", failing)
    done = cli("rewrite", "--in-place")
    assert done.exit_code == 2
    expected = "odd.py: error: internal error; please report it: ZeroDivisionError: by\\nzero (test_cli.py:"
    assert done.stderr.startswith(expected)
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "odd.py").read_text() == TIED
    assert (tmp_path / "tied.py").read_text() != TIED


def test_an_internal_error_outside_the_engine_has_no_traceback(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(runner, "check_files", failing)
    done = cli("check")
    assert done.exit_code == 2
    error = "Error: internal error; please report it: RuntimeError: odd"
    assert done.stderr.startswith(f"Warning: no Python files found{CONFIG_FILES}\n{error}")


def test_ctrl_c_is_quiet(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "check_files", interrupted)
    done = cli("check", "--quiet")
    assert (done.exit_code, done.stdout) == (130, "")
    assert "Aborted" not in done.stderr


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 50)  # so that few findings are more than a pipe holds
    folder.mkdir()
    (folder / "tied.py").write_text(TIED + "x = x.cuda()\n" * 500)
    program = [sys.executable, "-m", "devicefix", "check"]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
def test_a_full_disk_is_not_an_internal_error(tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    with open("/dev/full", "wb") as full:
        done = devicefix("check", cwd=tmp_path, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, "Error: No space left on device\n")


def test_rewrite_prints_a_patch_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    done = cli("rewrite")
    assert done.exit_code == 1
    assert done.stdout.startswith("diff --git a/tied.py b/tied.py\n--- a/tied.py\n+++ b/tied.py\n@@ ")
    assert "-x = torch.ones(2).cuda()\n" in done.stdout
    summary = "Would fix 1 finding in 1 file (apply with --in-place); 0 findings remain."
    assert done.stderr == f"{summary}\n{UNPROVEN}\n"
    assert (tmp_path / "tied.py").read_text() == TIED


def test_rewrite_exits_0_when_there_is_nothing_to_write(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "free.py").write_text(FREE)
    done = cli("rewrite")
    assert (done.exit_code, done.stdout) == (0, "")


def test_rewrite_in_place_prints_fixed_and_remaining_findings(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    (tmp_path / "broken.py").write_text(BROKEN)
    done = cli("rewrite", "--in-place")
    assert done.exit_code == 1
    fixed, remaining, summary, unproven = done.stdout.splitlines()  # what is left comes last
    assert re.match(r"broken\.py:2:\d+: DF901 \S", remaining)
    assert re.match(r"tied\.py:3:\d+: DF\d{3} fixed: \S", fixed)
    assert (summary, unproven) == ("Fixed 1 finding in 1 file; 1 finding remains.", UNPROVEN)
    assert ".cuda()" not in (tmp_path / "tied.py").read_text()
    (tmp_path / "broken.py").unlink()
    again = cli("rewrite", "--in-place")
    assert (again.exit_code, again.stdout) == (0, "Nothing found in 1 file.\n")


def test_remaining_findings_have_their_new_positions(cli: Cli, tmp_path: Path) -> None:
    tied = tmp_path / "tied.py"
    left = 'print(f"{x.cuda()}")'  # no fix inside an f-string
    tied.write_text(f"{TIED}{left}\n")
    first = cli("rewrite", "--in-place").stdout
    lines = tied.read_text().splitlines()
    assert f"tied.py:{lines.index(left) + 1}:" in first
    assert lines.index(left) > TIED.count("\n")
    assert first.splitlines()[-3] in cli("check").stdout


def test_diff_with_in_place_shows_both(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    done = cli("rewrite", "--in-place", "--diff")
    assert done.exit_code == 0
    assert "-x = torch.ones(2).cuda()\n" in done.stdout
    assert " fixed: " in done.stdout
    assert (tmp_path / "tied.py").read_text() != TIED


def test_in_place_keeps_permissions_and_links(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real = tmp_path / "elsewhere" / "real.py"
    real.write_text(TIED)
    real.chmod(0o751)
    (tmp_path / "link.py").symlink_to(real)
    assert cli("rewrite", "--in-place", "link.py").exit_code == 0
    assert (tmp_path / "link.py").is_symlink()
    assert real.read_text() != TIED
    assert stat.S_IMODE(real.stat().st_mode) == 0o751


def test_an_unwritable_file_is_an_error_and_the_others_are_written(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("full.py", "tied.py"):
        (tmp_path / name).write_text(TIED)
    write = writing.write

    def full(change: writing.Change) -> None:
        if change.path == "full.py":
            raise OSError(28, "No space left on device")
        write(change)

    monkeypatch.setattr(writing, "write", full)
    done = cli("rewrite", "--in-place")
    assert done.exit_code == 2
    assert done.stderr == "full.py: error: No space left on device\n"
    assert "Fixed 1 finding in 1 file; 0 findings remain; 1 file failed (see the errors).\n" in done.stdout


def test_standard_input_goes_to_standard_output(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    done = cli("rewrite", "-", input=TIED)
    assert done.exit_code == 0
    cli("rewrite", "--in-place")
    assert done.stdout == (tmp_path / "tied.py").read_text()


@pytest.mark.parametrize("data", [b"", b"x = 1\r\n\xef\xbb", b"\xef\xbb\xbfx = 1", FREE.encode()])
def test_standard_input_without_findings_is_unchanged(cli: Cli, data: bytes) -> None:
    assert cli("rewrite", "-", input=data).stdout_bytes == data


def test_stdin_filename_names_the_standard_input(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "pyproject.toml").write_text('[tool.devicefix]\nignore = ["DF9"]\n')
    done = cli("check", "-", "--stdin-filename", "pack/a.py", input=TIED)
    assert done.stdout.startswith("pack/a.py:3:")
    assert cli("check", "-", input=BROKEN).exit_code == 1
    assert cli("check", "-", "--stdin-filename", "pack/a.py", input=BROKEN).exit_code == 0
    patch = cli("rewrite", "-", "--diff", "--stdin-filename", "pack/a.py", input=TIED)
    assert patch.exit_code == 1
    assert patch.stdout.startswith("diff --git a/pack/a.py b/pack/a.py\n")


def test_select_and_ignore(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    match = re.search(r"DF\d{3}", cli("check").stdout)
    assert match
    code = match.group()
    assert cli("check", "--select", "DF901").exit_code == 0
    assert cli("check", "--select", f"DF901,{code}").exit_code == 1
    assert cli("check", "--select", "DF901", "--select", code.lower()).exit_code == 1
    assert cli("check", "--ignore", code[:3]).exit_code == 0
    assert cli("check", "--ignore", "DF9").exit_code == 1
    assert cli("rewrite", "--in-place", "--ignore", code).exit_code == 0
    assert (tmp_path / "tied.py").read_text() == TIED


def test_exclude_is_relative_to_its_origin(cli: Cli, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / "sub" / folder).mkdir(parents=True)
        (tmp_path / "sub" / folder / "a.py").write_text(TIED)
    assert "sub/one" not in cli("check", "--exclude", "/sub/one/").stdout
    assert "sub/one" in cli("check", "--exclude", "/one/").stdout
    (tmp_path / "sub" / "pyproject.toml").write_text('[tool.devicefix]\nexclude = ["/one/"]\n')
    shown = cli("check", "sub").stdout
    assert "sub/one" not in shown
    assert "sub/two" in shown


def test_several_processes_give_the_same_output_as_one(cli: Cli, tmp_path: Path) -> None:
    for number in range(2 * POOL_FROM):
        (tmp_path / f"{number:03}.py").write_text((TIED, FREE, BROKEN)[number % 3])
    alone, together = (cli("check", "--jobs", jobs) for jobs in ("1", "2"))
    assert (alone.exit_code, alone.stderr) == (together.exit_code, together.stderr) == (1, "")
    assert alone.stdout == together.stdout
    patches = [cli("rewrite", "--jobs", jobs).stdout for jobs in ("1", "2")]
    assert patches[0] == patches[1] != ""


def test_names_and_messages_stay_on_their_line(cli: Cli, tmp_path: Path) -> None:
    name = os.fsdecode(b"a\nb\x1b[31m\xff.py")
    (tmp_path / name).write_text(TIED)
    first, *_ = cli("check").stdout.splitlines()
    assert first.startswith("a\\nb\\x1b[31m\\udcff.py:3:")


def test_rule_lists_every_rule(cli: Cli) -> None:
    lines = cli("rule").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[code, RULES[code].name] for code in sorted(RULES)]


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_prints_the_documentation(cli: Cli, code: str) -> None:
    by_code, by_name = (cli("rule", word) for word in (code.lower(), RULES[code].name.upper()))
    assert by_code.exit_code == 0
    assert by_code.stdout == by_name.stdout
    assert by_code.stdout.startswith(f"# {RULES[code].name} ({code})\n\n")
    assert "\n## What it does\n" in by_code.stdout
    assert by_code.stdout in cli("rule", "--all").stdout


def test_rule_as_json_has_the_names_of_ruff(cli: Cli) -> None:
    rules = json.loads(cli("rule", "--all", "--output-format", "json").stdout)
    assert [rule["code"] for rule in rules] == sorted(RULES)
    rule = json.loads(cli("rule", "DF101", "--output-format", "json").stdout)
    assert rule in rules
    assert (rule["name"], rule["summary"]) == ("cuda-call", RULES["DF101"].summary)
    assert (rule["fix_availability"], rule["default"]) == ("Sometimes", True)
    assert rule["explanation"].startswith("## What it does\n")
    fixes = {rule["code"]: rule["fix_availability"] for rule in rules}
    assert fixes["DF901"] == "None"  # a file that cannot be parsed


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout == f"devicefix {__version__}\n"
    for command in ((), *((name,) for name in COMMANDS)):
        assert cli(*command, "--help").stdout.startswith("Usage: ")
    assert set(re.findall(r"^  (\w+)  ", cli("--help").stdout, re.M)) >= {*COMMANDS}


@pytest.mark.parametrize("name", ["notes.txt", "kernel.cu", "kernel.cpp", "data.csv"])
def test_a_named_file_of_another_kind_is_an_error(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TIED)
    done = cli("check", name)
    what = "the file is neither Python code nor a notebook, documentation or configuration file"
    assert (done.exit_code, done.stderr) == (2, f"{name}: error: not checked: {what}\n")
    assert "1 file failed (see the errors)" in done.stdout


def clean_in(cli: Cli) -> tuple[int, str]:
    """Run `devicefix clean`, and return its status and messages."""
    done = cli("clean")
    return done.exit_code, done.stderr


def test_clean_removes_caches_below_the_current_folder(cli: Cli, project: ProjectFolder) -> None:
    project.write({"tied.py": TIED, "sub/tied.py": TIED, "sub/devicefix.toml": ""})
    cli("check", "tied.py")
    cli("check", "sub")
    cli("check", "--cache-dir", "other")
    (project / "sub/.devicefix_cache/0.0.1").mkdir()
    (project / "sub/.devicefix_cache/0.0.1/tmpab_cd12e").write_text("killed")
    assert len(list(project.path.rglob("CACHEDIR.TAG"))) == 3
    status, shown = clean_in(cli)
    assert (status, sorted(shown.splitlines())) == (
        0, [f"Removed the cache {name}" for name in (".devicefix_cache", "other", "sub/.devicefix_cache")]
    )  # fmt: skip
    left = sorted(path.name for path in project.path.rglob("*"))
    assert left == ["devicefix.toml", "sub", "tied.py", "tied.py"]
    assert clean_in(cli) == (0, "")


def test_clean_removes_nothing_but_caches(cli: Cli, project: ProjectFolder, tmp_path_factory: Any) -> None:
    """A clone may hold something that looks like a cache, and leads elsewhere."""
    project.write({"tied.py": TIED})
    cli("check")
    tag = (project / ".devicefix_cache/CACHEDIR.TAG").read_text()
    outside = tmp_path_factory.mktemp("outside")
    entry = f"{'0' * 32}.json"
    for folder in (outside, outside / "0.1.0"):
        folder.mkdir(exist_ok=True)
        (folder / "CACHEDIR.TAG").write_text(tag)
        (folder / entry).write_text("mine")
    project.write({
        "src/CACHEDIR.TAG": tag, "src/train.py": TIED, "src/data/train.json": "{}", f"src/data/{entry}": "{}",
        "theirs/CACHEDIR.TAG": tag[:-1], f"theirs/0.1.0/{entry}": "{}", "empty/.devicefix_cache/x.py": TIED,
        f"linked/0.1.0/{entry}": "{}", "linked/CACHEDIR.TAG": tag,
    })  # fmt: skip
    (project / "link").symlink_to(outside)
    (project / "linked/0.2.0").symlink_to(outside / "0.1.0")
    status, shown = clean_in(cli)
    assert status == 0
    assert "src: kept, because it contains other files" in shown
    assert len(list(outside.rglob("*.json"))) == len(list(outside.rglob("*.TAG"))) == 2
    names = {path.relative_to(project.path).as_posix() for path in project.path.rglob("*") if path.is_file()}
    assert names >= {
        "src/CACHEDIR.TAG", "src/train.py", "src/data/train.json", f"src/data/{entry}", "theirs/CACHEDIR.TAG",
        f"theirs/0.1.0/{entry}", "empty/.devicefix_cache/x.py", "tied.py",
    }  # fmt: skip
    assert not (project / ".devicefix_cache").exists()


def test_the_shell_completes_codes() -> None:
    code = min(RULES)
    words = {"COMP_WORDS": f"devicefix rule {code[:4]}", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", "from devicefix.cli import main; main(prog_name='devicefix')"],
        env={**os.environ, **words, "_DEVICEFIX_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"plain,{code}" in done.stdout.splitlines()


def test_slow_modules_are_imported_only_when_needed(tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    program = (
        "import sys, devicefix.cli\n"
        "def loaded(*names): return [name for name in names if name in sys.modules]\n"
        "assert not loaded('torch', 'libcst', 'rich', 'asyncio')\n"
        "assert not loaded('devicefix.config.ignore', 'pathspec', 'devicefix.engine.check')\n"
        "devicefix.cli.main(['check', '--no-cache', '--exit-zero', sys.argv[1]], standalone_mode=False)\n"
        "assert loaded('devicefix.engine.check')\n"
        "assert not loaded('torch', 'libcst')\n"
        "devicefix.cli.main(['rewrite', sys.argv[1]], standalone_mode=False)\n"
        "assert loaded('libcst')\n"
        "assert not loaded('torch')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Would fix" in done.stderr) == (0, True), done.stderr


def test_target_accelerator_reports_harmless_cuda_calls(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text("import torch\n\ntorch.cuda.empty_cache()\n")
    assert cli("check", "tied.py").exit_code == 0
    done = cli("check", "--target", "accelerator", "tied.py")
    assert done.exit_code == 1
    assert "DF405 [*]" in done.stdout


def test_target_and_version_come_from_the_configuration_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.devicefix]\ntarget = "accelerator"\ntorch-version = "2.6"\n'
    )
    (tmp_path / "tied.py").write_text("import torch\n\ntorch.cuda.set_device(0)\n")
    cli("rewrite", "-i", "tied.py")
    assert "torch.accelerator.set_device_index(0)" in (tmp_path / "tied.py").read_text()
    (tmp_path / "tied.py").write_text("import torch\n\ntorch.cuda.set_device(0)\n")
    cli("rewrite", "-i", "--target", "cuda", "tied.py")
    assert "torch.cuda.set_device(0)" in (tmp_path / "tied.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("--target", "accelerator", "--torch-version", "2.5"),
            "needs torch 2.6 or newer, but torch-version is 2.5",
        ),
        (("--torch-version", "two"), 'must be a version such as "2.6"'),
        (("--target", "tpu"), "tpu"),
    ],
)
def test_an_invalid_target_is_an_error(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    done = cli("check", *arguments, "tied.py")
    assert done.exit_code == 2
    assert complaint in done.stderr


def test_an_older_torch_is_valid_with_target_cuda(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "free.py").write_text(FREE)
    assert cli("check", "--torch-version", "1.4", "free.py").exit_code == 0


def test_a_file_is_checked_with_what_it_imports(cli: Cli, tmp_path: Path) -> None:
    own = "class Own:\n    def cuda(self):\n        return self\n"
    (tmp_path / "own.py").write_text(own)
    (tmp_path / "main.py").write_text("import torch\nfrom own import Own\n\nthing = Own()\nthing.cuda()\n")
    done = cli("check", tmp_path / "main.py")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "--output-file", "{}/a.txt", "."),
        ("check", "--cache-dir", "{}", "."),
        ("check", "--stdin-filename", "{}/a.py", "-"),
        pytest.param(("verify", "{}.py"), marks=pytest.mark.needs("psutil", "torch")),
        ("check", "."),
    ],
)
def test_a_name_that_is_too_long_is_an_error_with_the_name(
    cli: Cli, project: ProjectFolder, arguments: tuple[str, ...]
) -> None:
    name = "x" * 300
    settings = "" if len(arguments) > 2 else f'baseline = "{name}"\n'
    project.write({"a.py": "import torch\ntorch.ones(2).cuda()\n", "devicefix.toml": settings})
    done = cli(*(argument.format(name) for argument in arguments), input="")
    assert done.exit_code == 2
    assert name in done.stderr and "internal error" not in done.stderr


def test_help_lists_ten_options_at_most_and_all_once_and_by_group(cli: Cli) -> None:
    context = click.Context(main, info_name="devicefix")
    every: set[str] = set()
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        is_grouped = isinstance(command, GroupedCommand)
        shown = cli(name, "--help-all" if is_grouped else "--help").stdout
        assert not is_grouped or len(re.findall(r"^  -", cli(name, "--help").stdout, re.M)) <= 12
        options = [
            option for each in command.params if isinstance(each, click.Option) for option in each.opts
        ]
        every.update(options)
        for option in options:
            assert len(re.findall(rf"^  (?:-\w, )?{option}\b(?!-)", shown, re.M)) <= 1, (name, option)
            assert option in shown, (name, option)
    assert set(_GROUP_OF) <= every | {"--help"}
    shown = cli("check", "--help-all").stdout
    assert [line for line in shown.splitlines() if re.fullmatch(r"[A-Z].*:", line)] == [
        "Options:", "Rule selection:", "File selection:", "Miscellaneous:",
    ]  # fmt: skip


def test_an_option_of_the_program_before_the_script_is_explained(cli: Cli) -> None:
    done = cli("verify", "--epochs", "1", "train.py")
    assert done.exit_code == 2 and "Put the options of the program after SCRIPT." in done.stderr


def test_the_rules_for_any_accelerator_use_the_target_of_the_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a" / "src").mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.devicefix]\ntarget = "accelerator"\n')
    (tmp_path / "a" / "src" / "b.py").write_text("import torch\ntorch.cuda.synchronize()\n")
    assert "DF401" in cli("check", "--select", "ACC", "a/src").stdout
    assert cli("check", "--isolated", "--select", "ACC", "a/src").exit_code == 2
