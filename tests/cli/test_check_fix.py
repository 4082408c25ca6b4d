"""`devicefix check --fix`, `--diff` and `--watch`, and the numbers that all commands print."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from queue import Queue

import pytest
from helpers import Cli, CliResult, Git, ProjectFolder, analyze

from devicefix.config.installation import install_command

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
LEFT = 'print(f"{x.cuda()}")\n'  # no fix inside an f-string
UNSAFE = """\
import torch


def move(x, rank):
    return x.to(rank)  # cuda
"""


def rewritten(cli: Cli, project: ProjectFolder, files: dict[str, str], *options: str) -> list[str]:
    """Return what `rewrite --in-place` makes of files, and leave them as they were."""
    project.write(files)
    cli("rewrite", "--in-place", *options)
    made = [project.read(name) for name in files]
    project.write(files)
    return made


@pytest.mark.parametrize("options", [(), ("--unsafe-fixes",)])
def test_fix_writes_what_rewrite_does(cli: Cli, project: ProjectFolder, options: tuple[str, ...]) -> None:
    files = {"tied.py": TIED + LEFT, "unsafe.py": UNSAFE}
    made = rewritten(cli, project, files, *options)
    done = cli("check", "--fix", *options)
    assert done.exit_code == 1
    assert [project.read(name) for name in files] == made
    assert made[0] != files["tied.py"]


def test_fix_reports_what_remains_at_its_new_place(cli: Cli, project: ProjectFolder) -> None:
    project.write({"tied.py": TIED + LEFT})
    done = cli("check", "--fix")
    finding, summary = done.stdout.splitlines()
    line = project.read("tied.py").splitlines().index(LEFT.strip()) + 1
    assert finding.startswith(f"tied.py:{line}:7: DF101 `.cuda()` needs CUDA")
    assert summary == "Found 2 findings (1 fixed, 1 remaining)."
    assert cli("check").stdout.splitlines()[0] == finding


@pytest.mark.parametrize(
    ("source", "options", "status"),
    [
        (TIED, ("--fix",), 0),
        (TIED, ("--fix", "--exit-non-zero-on-fix"), 1),
        (TIED, ("--fix", "--exit-non-zero-on-fix", "--exit-zero"), 0),
        ("x = 1\n", ("--fix", "--exit-non-zero-on-fix"), 0),
        (TIED + LEFT, ("--fix",), 1),
        (TIED + LEFT, ("--fix", "--exit-zero"), 0),
        (TIED + LEFT, ("--fix-only",), 0),
        (TIED + LEFT, ("--fix-only", "--exit-non-zero-on-fix"), 1),
        (TIED + LEFT, ("--diff",), 1),
        (LEFT, ("--diff",), 0),
    ],
)
def test_the_exit_status_is_that_of_ruff(
    cli: Cli, project: ProjectFolder, source: str, options: tuple[str, ...], status: int
) -> None:
    project.write({"a.py": source})
    assert cli("check", *options).exit_code == status


def test_fix_only_reports_nothing(cli: Cli, project: ProjectFolder) -> None:
    project.write({"tied.py": TIED + LEFT})
    assert cli("check", "--fix-only").stdout == "Fixed 1 finding.\n"
    assert ".to(device)" in project.read("tied.py")
    assert cli("check", "--fix-only").stdout == "Nothing to fix in 1 file.\n"


def test_diff_is_the_patch_of_rewrite_and_writes_nothing(cli: Cli, project: ProjectFolder) -> None:
    project.write({"tied.py": TIED + LEFT})
    done = cli("check", "--diff")
    assert done.stdout == cli("rewrite").stdout != ""
    assert done.stderr == "Would fix 1 finding.\n"
    assert project.read("tied.py") == TIED + LEFT


def test_fix_of_the_standard_input(cli: Cli) -> None:
    done = cli("check", "--fix", "-", input=TIED + LEFT)
    assert done.stdout == cli("rewrite", "-", input=TIED + LEFT).stdout
    assert done.stderr.splitlines()[-1] == "Found 2 findings (1 fixed, 1 remaining)."
    assert cli("check", "--diff", "-", input=TIED).stdout.startswith("diff --git ")


def test_fix_in_formats_for_programs_and_with_statistics(cli: Cli, project: ProjectFolder) -> None:
    project.write({"tied.py": TIED + LEFT})
    [finding] = json.loads(cli("check", "--fix", "--output-format", "json").stdout)
    line = project.read("tied.py").splitlines().index(LEFT.strip()) + 1
    assert (finding["code"], finding["location"]["row"]) == ("DF101", line)
    project.write({"tied.py": TIED + LEFT})
    count, code, _ = cli("check", "--fix", "--statistics").stdout.splitlines()[0].split("\t")
    assert (count, code) == ("1", "DF101")


def test_fix_shows_the_unsafe_fix_of_what_remains(cli: Cli, project: ProjectFolder) -> None:
    """The diff belongs to the file as it is after the safe fixes."""
    project.write({"unsafe.py": UNSAFE + "\n\ntorch.ones(2).cuda()\n"})
    done = cli("check", "--fix", "--output-format", "full")
    assert done.stdout == cli("check", "--output-format", "full").stdout.replace(
        "Found 1 finding in 1 of 1 file.", "Found 2 findings (1 fixed, 1 remaining)."
    )
    assert "note: This is an unsafe fix" in done.stdout
    assert "1 fixable with `--fix --unsafe-fixes`." in done.stdout


@pytest.mark.parametrize("how", ["option", "configuration"])
def test_with_unsafe_fixes_check_marks_what_fix_would_fix(cli: Cli, project: ProjectFolder, how: str) -> None:
    project.write({"unsafe.py": UNSAFE})
    options = ["--unsafe-fixes"] if how == "option" else []
    if how == "configuration":
        project.write({"devicefix.toml": "unsafe-fixes = true\n"})
    for output_format in ("concise", "grouped", "full"):
        done = cli("check", "--output-format", output_format, *options)
        assert "DF102 [*] " in done.stdout
        assert done.stdout.endswith("[*] 1 fixable with `--fix`.\n")
    [counted] = json.loads(cli("check", "--statistics", "--output-format", "json", *options).stdout)
    assert counted["fixable_count"] == 1
    assert cli("check", "--fix", *options).stdout == "Found 1 finding (1 fixed, 0 remaining).\n"


def test_fix_of_a_notebook_reports_its_cells(cli: Cli, project: ProjectFolder) -> None:
    cell: dict[str, object] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    cells = [{**cell, "source": text} for text in (TIED, LEFT)]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    project.write({"n.ipynb": json.dumps(notebook)})
    done = cli("check", "--fix")
    assert done.stdout.startswith("n.ipynb:cell 2:1:7: DF101 ")
    assert done.stdout.endswith("Found 2 findings (1 fixed, 1 remaining).\n")


def test_fix_with_a_baseline_hides_what_is_known(cli: Cli, project: ProjectFolder) -> None:
    project.write({"tied.py": LEFT})
    cli("check", "--baseline", "known.json", "--write-baseline")
    project.write({"tied.py": TIED + LEFT})
    done = cli("check", "--fix", "--baseline", "known.json")
    assert (done.exit_code, done.stdout) == (0, "Found 1 finding (1 fixed, 0 remaining).\n")


@pytest.mark.parametrize("option", ["--fix", "--add-noqa"])
def test_what_changes_files_warns_as_rewrite_does(
    cli: Cli, project: ProjectFolder, git: Git, option: str
) -> None:
    project.write({"tied.py": TIED})
    git("init", "-q")
    done = cli("check", option)
    warning = "the old content of 1 file (tied.py) is neither committed nor staged in git"
    assert done.stderr == f"Warning: {warning}\n"


def test_what_is_staged_gives_no_warning(cli: Cli, project: ProjectFolder, git: Git) -> None:
    """All files are staged in a hook of pre-commit."""
    project.write({"tied.py": TIED, "old.py": "x = 1\n"})
    git.commit_all()
    project.write({"old.py": TIED, "new.py": TIED})
    git("add", ".")
    assert cli("rewrite", "--in-place").stderr == ""


# -- numbers -------------------------------------------------------------------------------------------

# The fix of the first finding of each resolves another one, which has no fix or an unsafe one.
RESOLVED = {
    "by the value of a variable": """\
import torch

place = where or torch.cuda.current_device()
x = torch.ones(2, device=place)
""",
}


@pytest.mark.parametrize("source", RESOLVED.values(), ids=RESOLVED)
def test_what_the_fix_of_another_resolves_is_fixed(source: str) -> None:
    found, fixed = analyze(source), analyze(source, fix=True)
    assert len(found.findings) == len(fixed.fixed) + len(fixed.remaining)
    assert {(each.code, each.line) for each in found.findings} >= {
        (each.code, each.line) for each in fixed.fixed
    }
    assert len(fixed.made) == len(fixed.fixed)
    (later,) = [each for each in fixed.fixed if each.code == "DF202"]
    spans = fixed.made[fixed.fixed.index(later)]
    assert fixed.output is not None
    assert "device=place" in "".join(fixed.output.decode()[start:end] for start, end in spans)


def test_all_commands_count_alike(cli: Cli, project: ProjectFolder) -> None:
    project.write({"a.py": TIED + LEFT, "b.py": UNSAFE, "c.py": RESOLVED["by the value of a variable"]})
    found = len(json.loads(cli("check", "--output-format", "json").stdout))
    assert f"Found {found} findings in 3 of 3 files." in cli("check").stdout
    counted = cli("check", "--statistics").stdout.splitlines()
    assert sum(int(line.split("\t")[0]) for line in counted if "\t" in line) == found
    would = re.search(r"Would fix (\d+) findings in .*; (\d+) findings? remain", cli("rewrite").stderr)
    assert would and int(would[1]) + int(would[2]) == found
    fixed = cli("check", "--fix").stdout
    assert f"Found {found} findings ({would[1]} fixed, {would[2]} remaining)." in fixed


@pytest.mark.needs("jinja2", "markdown_it")
def test_the_report_counts_as_check_does(cli: Cli, project: ProjectFolder) -> None:
    project.write({"a.py": TIED + LEFT, "b.py": UNSAFE, "c.py": RESOLVED["by the value of a variable"]})
    total = json.loads(cli("report", "--output-format", "json", "-o", "-").stdout)["total"]
    assert total["findings"] == len(json.loads(cli("check", "--output-format", "json").stdout))
    assert f"[*] {total['safe']} fixable" in cli("check").stdout


# -- watch ---------------------------------------------------------------------------------------------


class Watching:
    """`devicefix check --watch` in a process, whose lines can be waited for."""

    def __init__(self, *arguments: str) -> None:
        program = "from devicefix.cli import main; main(prog_name='devicefix')"
        command = [sys.executable, "-u", "-c", program, "check", "--watch", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)

    def until_waiting(self) -> str:
        """Return what is printed until it waits for changes."""
        shown = ""
        while "Watching for file changes." not in shown:
            shown += self._lines.get(timeout=60)
        return shown

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C, and return the exit status and what is printed then."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(timeout=60)
        rest = ""
        while not self._lines.empty():
            rest += self._lines.get()
        return status, rest


@pytest.mark.needs("watchfiles")
@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent to the console of all processes there")
def test_watch_checks_again_when_files_change(project: ProjectFolder) -> None:
    project.write({"tied.py": "x = 1\n", "devicefix.toml": ""})
    watching = Watching(".")
    try:
        assert "Starting in watch mode...\nNothing found in 1 file.\n" in watching.until_waiting()
        project.write({"tied.py": TIED})
        shown = watching.until_waiting()
        assert "File change detected...\ntied.py:3:5: DF101 " in shown
        project.write({"devicefix.toml": 'ignore = ["DF1"]\n'})
        assert "Nothing found in 1 file.\n" in watching.until_waiting()
        project.write({"devicefix.toml": "ignore = 3\n"})
        assert "Error: " in watching.until_waiting()
        (project / "devicefix.toml").unlink()
        assert "DF101" in watching.until_waiting()
        assert watching.interrupt() == (130, "")
    finally:
        watching.process.kill()


@pytest.mark.needs("watchfiles")
@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent to the console of all processes there")
def test_watch_sees_a_named_file_that_an_editor_replaces(project: ProjectFolder) -> None:
    project.write({"tied.py": "x = 1\n", "other.py": "x = 1\n"})
    watching = Watching("tied.py")
    try:
        watching.until_waiting()
        project.write({"other.py": TIED, "new.py": TIED})
        os.replace(project / "new.py", project / "tied.py")
        shown = watching.until_waiting()
        assert "tied.py:3:5: DF101 " in shown
        assert "other.py" not in shown
        assert watching.interrupt() == (130, "")
    finally:
        watching.process.kill()


def test_watch_without_its_package(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    done: CliResult = cli("check", "--watch")
    assert (done.exit_code, done.stderr) == (
        2, f"Error: check --watch needs watchfiles: {install_command('watch')}\n"
    )  # fmt: skip
