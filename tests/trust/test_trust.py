"""Guarantees about writing files, and about untrusted folders."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import Cli, Git, devicefix

from devicefix.files import write as writing
from devicefix.files.kinds import is_python
from devicefix.files.write import Change
from devicefix.runner import worktree

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
FIXED = (
    'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
    "x = torch.ones(2).to(device)\n"
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is the current one; the folder around it belongs to the test, too."""
    folder = tmp_path / "tree"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return the command line, to run in the folder `tree`."""
    monkeypatch.chdir(tree)  # `cli` has chosen another one
    return cli


@pytest.fixture
def git(tree: Path) -> Git:
    """Return git, to run in the folder `tree`."""
    return Git(tree)


def tied(*names: str) -> list[Path]:
    """Write files with one finding each."""
    made = [Path(name) for name in names]
    for file in made:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(TIED)
    return made


def names(folder: str = ".") -> set[str]:
    """Return the names of the files in a folder."""
    return set(os.listdir(folder))


# Writing


def test_rewrite_in_place(run: Cli) -> None:
    [file] = tied("a.py")
    assert run("rewrite", "-i").exit_code == 0
    assert file.read_text() == FIXED
    assert names() == {"a.py"}


def test_mode_owner_and_extended_attributes_are_kept(run: Cli) -> None:
    [file] = tied("a.py")
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 1234, 2345)
    try:
        os.setxattr(file, "user.note", b"mine")
    except (AttributeError, OSError):
        pytest.skip("no extended attributes here")
    before = file.stat()
    assert run("rewrite", "-i").exit_code == 0
    after = file.stat()
    assert file.read_text() == FIXED
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert os.getxattr(file, "user.note") == b"mine"
    assert after.st_mtime_ns > before.st_mtime_ns


@pytest.mark.usefixtures("tree")
def test_an_owner_that_cannot_be_kept_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    [file] = tied("a.py")

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refused)
    other = os.stat_result((0o100644, 0, 0, 1, 4321, 4321, 0, 0, 0, 0))
    with (
        file.open("rb") as opened,
        pytest.raises(PermissionError, match="the file's owner could not be preserved"),
    ):
        writing._be_like(file, other, opened.fileno())


def test_other_hard_links_keep_the_old_content_with_a_warning(run: Cli) -> None:
    tied("a.py")
    os.link("a.py", "../other")
    done = run("rewrite", "-i")
    assert done.exit_code == 0
    assert done.stderr == "a.py: warning: other hard links to this file keep the old content\n"
    assert Path("a.py").read_text() == FIXED
    assert Path("../other").read_text() == TIED


def test_a_file_that_changes_during_the_run_is_not_written(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    tied("a.py", "b.py")
    write_each = writing.write_each

    def late(changes: list[Change], onerror: Callable[[str, OSError], None]) -> None:
        Path("a.py").write_text("mine\n")
        write_each(changes, onerror)

    monkeypatch.setattr(writing, "write_each", late)
    done = run("rewrite", "-i")
    assert done.exit_code == 2
    assert done.stderr == "a.py: error: changed in the meantime\n"
    assert Path("a.py").read_text() == "mine\n"
    assert Path("b.py").read_text() == FIXED
    assert names() == {"a.py", "b.py"}


def test_files_that_change_during_the_run_are_errors_of_their_own(
    run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with two runs at once: nothing is lost."""
    made = tied(*(f"{number:02}.py" for number in range(20)))
    write_each = writing.write_each

    def late(changes: list[Change], onerror: Callable[[str, OSError], None]) -> None:
        for file in made[1:]:
            file.write_text("mine\n")
        write_each(changes, onerror)

    monkeypatch.setattr(writing, "write_each", late)
    done = run("rewrite", "-i", "-q")
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [f"{file.name}: error: changed in the meantime" for file in made[1:]]
    assert [file.read_text() for file in made] == [FIXED] + ["mine\n"] * 19


def test_a_file_that_changes_during_fsync_is_not_written(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    tied("a.py")
    fsync = os.fsync

    def slow(handle: int) -> None:
        fsync(handle)
        Path("a.py").write_text("mine\n")

    monkeypatch.setattr(os, "fsync", slow)
    assert run("rewrite", "-i").exit_code == 2
    assert Path("a.py").read_text() == "mine\n"
    assert names() == {"a.py"}


def test_the_file_is_synced_before_it_is_replaced_and_the_folder_after(
    run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    tied("a.py")
    seen = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def replaced(*arguments: str) -> None:
        seen.append("replace")
        replace(*arguments)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    run("rewrite", "-i")
    assert seen == ["file", "replace", "folder"]


@pytest.mark.usefixtures("tree")
def test_a_full_disk() -> None:
    """Simulate a full disk by a limit on the size of files: writing fails half way."""
    small, large = tied("small.py", "large.py")
    large.write_text(TIED + "# more\n" * 20_000)
    before = large.read_text()
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from devicefix.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))\n"
        "main(['rewrite', '-i', '--no-config-files', '.'])"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] in (resource.RLIM_INFINITY, 2**63 - 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "large.py: error: File too large\n"
    assert large.read_text() == before
    assert small.read_text() == FIXED
    assert names() >= {"small.py", "large.py"}
    assert not [name for name in names() if name.endswith(".tmp")]


@pytest.mark.skipif(
    not hasattr(os, "setuid") or os.geteuid() != 0, reason="only root can become someone else"
)
@pytest.mark.usefixtures("tree")
def test_read_only_files_and_folders(tmp_path: Path) -> None:
    tied("free.py", "locked.py", "inside/b.py")
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    for path in (Path(), Path("free.py"), Path("locked.py"), Path("inside"), Path("inside/b.py")):
        os.chown(path, 12345, 12345)
    Path("locked.py").chmod(0o444)
    Path("inside").chmod(0o555)
    warm = tied("../warm/a.py")[0].parent  # afterwards all modules are loaded, which may be root's alone
    code = (
        "import os; from devicefix.cli import main\n"
        f"main(['rewrite', '-i', '-q', '-j', '1', {str(warm)!r}], standalone_mode=False)\n"
        "os.setgroups([]); os.setgid(12345); os.setuid(12345)\n"
        "main(['rewrite', '-i', '-q', '-j', '1', '.'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines() == [
        "inside/b.py: error: Permission denied",
        "locked.py: error: Permission denied",
    ]
    assert done.returncode == 2
    assert [Path(name).read_text() for name in ("free.py", "locked.py", "inside/b.py")] == [FIXED, TIED, TIED]
    assert not [name for name in names() | names("inside") if name.endswith(".tmp")]


def test_only_the_temporary_files_of_killed_runs_are_removed(run: Cli) -> None:
    tied("a.py")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = Path(f".devicefix-{ended.pid}-abc.tmp")
    others = {f".devicefix-{os.getppid()}-abc.tmp", ".devicefix-x-abc.tmp", "notes.tmp"}
    for name in (left.name, *others):
        Path(name).touch()
    assert not is_python(str(left))
    run("rewrite", "-i")
    assert names() == {"a.py"} | others


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(OSError, match="not a regular file"):
        writing.stage(Change(str(tmp_path / "pipe.py"), b"", b""))
    assert os.listdir(tmp_path) == ["pipe.py"]


KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
import libcst
from devicefix.engine import check as engine
from devicefix.rules import registry as rules
from devicefix.runner import run as runner
from devicefix.rewrite import selfcheck
from devicefix.runner import worktree
from devicefix.files import write as writing
from devicefix.cli import main
from devicefix.report import concise, totals

tree, kills = Path(sys.argv[1]), int(sys.argv[2])
files = sorted(tree.rglob("*.py"))
old = {file: file.read_bytes() for file in files}
random.seed(5)

def start():
    child = os.fork()
    if not child:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1); os.dup2(null, 2)
        try:
            main(["rewrite", "-i", "-q", "-j", "1", str(tree)], standalone_mode=False)
        finally:
            os._exit(0)
    return child

def left():
    return set(tree.rglob("*.tmp"))

def restore():
    for file, content in old.items():
        if file.read_bytes() != content:
            file.write_bytes(content)

began = time.monotonic()
os.waitpid(start(), 0)
whole = time.monotonic() - began
new = {file: file.read_bytes() for file in files}
changed = [file for file in files if new[file] != old[file]]
counts = {"kills": 0, "writing": 0, "left": 0, "torn": 0, "files": len(changed)}
number = 0
while counts["kills"] < kills:  # some have ended before they could be killed
    number += 1
    restore()
    first = {file: file.stat().st_ino for file in changed}
    before = left()
    began = time.monotonic()
    child = start()
    if number % 2:  # as it writes: wait for its first file
        inode = first[changed[0]]
        while changed[0].stat().st_ino == inode and left() <= before and time.monotonic() - began < 9:
            pass
        time.sleep(random.uniform(0, 0.01))
    else:
        time.sleep(random.uniform(0, whole))
    os.kill(child, signal.SIGKILL)
    counts["kills"] += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    now = {file: file.read_bytes() for file in files}
    counts["torn"] += sum(now[file] not in (old[file], new[file]) for file in files)
    done = sum(now[file] == new[file] for file in changed)
    counts["left"] += not left() <= before
    counts["writing"] += not left() <= before or 0 < done < len(changed)
restore()
os.waitpid(start(), 0)
counts["end"] = len(left()) + sum(file.read_bytes() != new[file] for file in files)
print(json.dumps(counts))
"""


@pytest.mark.slow
def test_killed_at_any_moment_every_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    for number in range(20):
        file = tmp_path / f"part{number % 3}" / f"{number}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{TIED}# {number}\n")
    command = [sys.executable, "-c", KILLS, str(tmp_path), "50"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    counts = json.loads(done.stdout)
    print(counts)
    assert counts["kills"] >= 50
    assert counts["writing"] >= 10
    assert counts["files"] >= 20
    assert counts["torn"] == counts["end"] == 0


# git


def test_uncommitted_changes_give_a_warning(run: Cli, git: Git) -> None:
    tied("clean.py", "changed.py", "staged.py")
    Path("free.py").write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    with open("changed.py", "a") as file:
        file.write("y = 2\n")
    with open("staged.py", "a") as file:
        file.write("y = 3\n")
    Path("free.py").write_text("x = 2\n")
    tied("new file.py")
    git("add", "staged.py")
    done = run("rewrite", "-i", "-q", "--require-clean")
    expected = "the content of 3 files (changed.py, new file.py, staged.py) is not committed in git"
    assert (done.exit_code, done.stderr) == (2, f"Error: nothing was written: {expected} (--require-clean)\n")
    assert Path("clean.py").read_text() == TIED
    done = run("rewrite", "-i", "-q")
    expected = "the old content of 2 files (changed.py, new file.py) is neither committed nor staged in git"
    assert (done.exit_code, done.stderr) == (0, f"Warning: {expected}\n")
    assert Path("clean.py").read_text() == FIXED


@pytest.mark.parametrize("autocrlf", ["false", "true"])
def test_committed_files_are_clean(run: Cli, git: Git, autocrlf: str) -> None:
    tied("a.py", "sub/b.py", "é\n.py")
    if autocrlf == "true":
        Path("a.py").write_bytes(TIED.replace("\n", "\r\n").encode())
    git("init", "-q")
    git("config", "core.autocrlf", autocrlf)
    git("add", ".")
    git("commit", "-qm", "all")
    done = run("rewrite", "-i", "-q", "--require-clean", "sub", ".")
    assert (done.exit_code, done.stderr) == (0, "")


def test_nothing_is_clean_without_git_or_a_commit(run: Cli, git: Git) -> None:
    [file] = tied("a.py")
    assert worktree.uncommitted([Change("a.py", file.read_bytes(), b"")]) == ([], ["a.py"])
    assert run("rewrite", "-i", "--require-clean").exit_code == 2
    git("init", "-q")
    git("add", ".")
    assert worktree.uncommitted([Change("a.py", file.read_bytes(), b"")]) == (["a.py"], [])
    assert file.read_text() == TIED


def test_require_clean_needs_in_place(run: Cli) -> None:
    assert "--require-clean needs --in-place" in run("rewrite", "--require-clean").stderr


# Hostile trees

TRAPS = """
conftest sitecustomize usercustomize setup click libcst ast json pickle torch tomllib tomli pathspec rich stat
multiprocessing concurrent tempfile tokenize difflib inspect hashlib codecs
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(["-m", "devicefix"], id="module"),
        pytest.param(["-c", "script"], id="script", marks=pytest.mark.slow),
    ],
)
def test_no_code_of_the_checked_folder_runs(git: Git, tmp_path: Path, program: list[str]) -> None:
    mark = tmp_path / "mark"
    trap = f"open({str(mark)!r}, 'a').write(__file__ + ' ')\n"
    for name in TRAPS.split():
        Path(f"{name}.py").write_text(trap + TIED)
    for number in range(40):
        Path(f"more{number}.py").write_text(TIED)
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\necho $0 $* >> {mark}\ncat\n")
    evil.chmod(0o755)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "fsmonitor-watchman", "pre-commit", "post-checkout"):
        (hooks / hook).symlink_to(evil)
    Path(".gitattributes").write_text("*.py filter=evil diff=evil\n")
    keys = "core.fsmonitor filter.evil.clean filter.evil.smudge filter.evil.process diff.evil.textconv"
    for key in f"{keys} diff.external core.pager core.sshCommand core.editor".split():
        git("config", key, str(evil))
    git("config", "core.hooksPath", str(hooks))
    Path("pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n[tool.devicefix]\n'
    )
    for file in Path().glob("*.py"):
        os.utime(file, (1, 1))  # so that git would have to look into them
    if program[0] == "-c":
        program = ["-I", "-c", "from devicefix.cli import main; main()"]
    for arguments in (["check"], ["rewrite", "--diff"], ["rewrite", "-i"]):
        done = subprocess.run(
            [sys.executable, *program, *arguments, "-j", "2", "."],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        assert "more39.py" in done.stdout
    assert not mark.exists(), mark.read_text()


def test_links_out_of_the_folder_are_followed_only_if_named(run: Cli) -> None:
    tied("../outside/a.py", "inside.py")
    Path("link.py").symlink_to("../outside/a.py")
    Path("folder").symlink_to("../outside")
    Path("again.py").symlink_to("inside.py")
    assert "outside" not in run("check").stdout
    assert run("rewrite", "-i").stdout.count("fixed:") == 1
    assert Path("../outside/a.py").read_text() == TIED
    assert run("rewrite", "-i", "link.py").exit_code == 0
    assert Path("link.py").is_symlink()
    assert Path("../outside/a.py").read_text() == FIXED


def test_a_tracked_folder_that_became_a_link_is_not_followed(run: Cli, git: Git) -> None:
    tied("../outside/a.py", "folder/a.py", "b.py")
    git("init", "-q")
    git("add", ".")
    os.rename("folder", "../was")
    Path("folder").symlink_to("../outside")
    run("rewrite", "-i")
    assert Path("../outside/a.py").read_text() == TIED
    assert Path("b.py").read_text() == FIXED


@pytest.mark.parametrize("in_git", [False, True])
def test_special_characters_in_names(run: Cli, git: Git, in_git: bool) -> None:
    odd = [
        "new\nline.py",
        "\x1b[31mred.py",
        "-i.py",
        "--config=x.py",
        "100%s%n.py",
        " .py",
        "a\tb.py",
        "'\"$(x).py",
    ]
    made = [Path(name) for name in odd] + [Path(os.fsdecode(b"invalid\xff.py"))]
    for file in made:
        file.write_text(TIED)
    if in_git:
        git("init", "-q")
    checked = run("check", ".")
    assert checked.stdout.count("DF101") == len(made)
    assert "\x1b" not in checked.stdout
    assert "new\\nline.py:3" in checked.stdout
    patch = run("rewrite", "--diff")
    assert patch.stdout.count("\ndiff --git ") + 1 == len(made)
    assert "\x1b" not in patch.stdout
    done = run("rewrite", "-i")
    assert done.exit_code == 0
    assert {file.read_text() for file in made} == {FIXED}
    assert "\x1b" not in done.stdout + done.stderr


def test_a_patch_of_special_names_applies(git: Git) -> None:
    made = tied("new\nline.py", '"quoted".py', "-i.py", "tab\t.py")
    git("init", "-q")
    git("apply", "-", data=devicefix("rewrite", ".", text=False).stdout)
    assert {file.read_text() for file in made} == {FIXED}


@pytest.mark.parametrize("exclude", ["!../outside", "../outside", "/", "!*", "**/../.."])
def test_a_configuration_cannot_reach_other_folders(run: Cli, exclude: str) -> None:
    tied("../outside/a.py", "b.py")
    Path("pyproject.toml").write_text(f'[tool.devicefix]\nexclude = ["{exclude}"]\n')
    run("rewrite", "-i", ".")
    assert Path("../outside/a.py").read_text() == TIED


def test_no_key_names_an_output_file() -> None:
    """Except the cache, and the baseline, which only --write-baseline writes, over no other file.

    The file that `extend` names is only read.
    """
    from devicefix.config.settings import KEYS

    assert {name for name, key in KEYS.items() if key.type == "path"} == {"baseline", "cache-dir", "extend"}
    assert not {name for name in KEYS if "output" in name or "write" in name} - {"output-format"}
