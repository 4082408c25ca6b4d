"""devicefix writes only where the user says, and reads only files, whatever a tree holds."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers import Cli, CliResult, Git, devicefix

import devicefix as api
from devicefix.config.version import __version__
from devicefix.files.write import put

resource = pytest.importorskip("resource", reason="for POSIX: Windows has no pipes in folders, and few links")

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
VICTIM = "of somebody else\n"
TAG = "CACHEDIR.TAG"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a stranger's folder with one file to check; beside it is a folder `victim`, with one file."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text(VICTIM)
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a.py").write_text(TIED)
    return folder


@pytest.fixture
def run(cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Return the command line, to run in the tree; whatever it is called for, the victim stays as it is."""
    monkeypatch.chdir(tree)  # `cli` has chosen another one
    yield cli
    assert unharmed(tree.parent)


def unharmed(folder: Path) -> bool:
    """Return whether nothing beside the tree has changed."""
    beside = {path.name for path in folder.iterdir()} - {"tree"}
    inside = [path.name for path in (folder / "victim").iterdir()]
    return beside == {"victim"} and inside == ["file"] and (folder / "victim/file").read_text() == VICTIM


def configure(text: str) -> None:
    Path("devicefix.toml").write_text(text)


def refused(done: CliResult, *words: str) -> None:
    """Check that a run has ended with an error of one line, which contains some words."""
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


# -- the cache -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["../victim", "../new", "inside", "new inside"])
@pytest.mark.parametrize("command", ["check", pytest.param("report", marks=pytest.mark.needs("jinja2"))])
def test_a_planted_link_is_no_cache(run: Cli, target: str, command: str) -> None:
    Path("inside").mkdir()
    Path(".devicefix_cache").symlink_to(target)
    refused(run(command), ".devicefix_cache: a cache must not be a symbolic link", "--no-cache")
    assert not list(Path("inside").iterdir())
    assert not Path("new inside").exists()
    assert run("check", "--no-cache").exit_code == 1
    assert run("rewrite").exit_code == 1


def made(name: str = ".devicefix_cache") -> Path:
    """Return a cache of devicefix, as a clone may contain it."""
    done = Cli()("check", "-q", "--cache-dir", name)
    assert done.exit_code == 1, done.output
    return Path(name)


@pytest.mark.parametrize("target", ["../../victim", "../../new"])
def test_a_planted_link_in_a_cache_is_not_followed(run: Cli, target: str) -> None:
    version = made() / __version__
    for file in version.iterdir():
        file.unlink()
    version.rmdir()
    version.symlink_to(target)
    refused(run("check"), f"{version}: a cache must not be a symbolic link")


@pytest.mark.parametrize("target", ["../../victim/file", "../../new"])
def test_nothing_is_created_through_links_in_a_cache(run: Cli, target: str) -> None:
    folder = made()
    (kept,) = (folder / __version__).iterdir()
    for file, link in ((folder / ".gitignore", target), (kept, f"../{target}")):
        file.unlink()
        file.symlink_to(link)
    assert run("check").exit_code == 1
    assert kept.is_file() and not kept.is_symlink()
    (folder / TAG).unlink()
    (folder / TAG).symlink_to(target)
    refused(run("check"), "is not a devicefix cache")


@pytest.mark.parametrize("how", ["key", "option", "variable", "default"])
def test_a_folder_of_something_else_is_no_cache(run: Cli, how: str) -> None:
    folder = Path(".devicefix_cache" if how == "default" else "src")
    folder.mkdir()
    (folder / "b.py").write_text(TIED)
    other = "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of another tool.\n"
    for tag in (None, other):
        if tag:
            (folder / TAG).write_text(tag)
        before = sorted(folder.iterdir())
        configure('cache-dir = "src"\n' if how == "key" else "")
        options = ["--cache-dir", "src"] if how == "option" else []
        done = run("check", *options, env={"DEVICEFIX_CACHE_DIR": "src"} if how == "variable" else {})
        refused(
            done, f"{folder}: this folder is not a devicefix cache; choose another folder with --cache-dir"
        )
        assert sorted(folder.iterdir()) == before


def test_an_empty_or_interrupted_cache_is_used(run: Cli) -> None:
    Path("cache").mkdir()
    assert len(list((made("cache") / __version__).iterdir())) == 1
    Path("other").mkdir()
    Path("other", TAG).touch()
    assert len(list((made("other") / __version__).iterdir())) == 1
    assert Path("other", ".gitignore").read_text() == "*\n"


def test_a_cache_that_cannot_be_replaced_leaves_nothing_behind(run: Cli) -> None:
    (kept,) = (made() / __version__).iterdir()
    kept.unlink()
    kept.mkdir()
    assert run("check").exit_code == 1
    assert list(kept.parent.iterdir()) == [kept]


def test_a_link_that_the_user_names_is_a_cache(run: Cli) -> None:
    Path("real").mkdir()
    Path("link").symlink_to("real")
    made("link")
    assert Path("real", ".gitignore").read_text() == "*\n"


# -- configurations ------------------------------------------------------------------------------------


@pytest.mark.needs("jinja2")
@pytest.mark.parametrize("key", ["baseline", "cache-dir"])
@pytest.mark.parametrize(
    "path",
    ["../victim/file", "../new", "/new", "link", "link/new", "dangling", "dangling/new", "a/../../new"],
)
def test_a_configuration_names_only_its_own_folder(run: Cli, key: str, path: str) -> None:
    Path("a").mkdir()
    Path("link").symlink_to("../victim")
    Path("dangling").symlink_to("../new")
    configure(f'{key} = "{path}"\n')
    for command in (["check"], ["check", "--write-baseline"], ["rewrite"], ["report"]):
        refused(run(*command), "devicefix.toml:1:1: ", f"{key}: must be inside the configuration's folder")


@pytest.mark.parametrize("key", ["baseline", "cache-dir"])
def test_a_configuration_names_no_link(run: Cli, key: str) -> None:
    Path("link").symlink_to("inside")
    Path("loop").symlink_to("loop")
    for path in ("link", "loop"):
        configure(f'{key} = "{path}"\n')
        refused(run("check", "--write-baseline"), f"{key}: must not be a symbolic link")
    assert not Path("inside").exists()
    configure(f'{key} = "loop/known.json"\n')
    assert run("check").exit_code in (1, 2)


@pytest.mark.parametrize("key", ["baseline", "cache-dir"])
def test_a_name_that_no_file_can_have_is_an_error(run: Cli, key: str) -> None:
    configure(f'{key} = "{"x" * 300}"\n')
    done = run("check", "--write-baseline") if key == "baseline" else run("check")
    assert done.exit_code == 2
    assert "internal error" not in done.stderr and "name" in done.stderr.lower()


# -- baseline, report, output file ---------------------------------------------------------------------


def test_a_baseline_that_the_user_names_may_be_a_link(run: Cli) -> None:
    assert run("check", "--baseline", "known.json", "--write-baseline").exit_code == 0
    before = Path("known.json").read_text()
    Path("b.py").write_text(TIED)
    Path("link").symlink_to("known.json")
    assert run("check", "--baseline", "link", "--write-baseline").exit_code == 0
    assert Path("link").is_symlink()
    assert Path("known.json").read_text() != before


def test_a_baseline_is_not_created_through_a_link(run: Cli) -> None:
    Path("link").symlink_to("../new")
    done = run("check", "--baseline", "link", "--write-baseline")
    refused(done, "link: this is a symbolic link whose target does not exist")


@pytest.mark.parametrize("target", ["../victim/file", "../new", "a.py"])
@pytest.mark.needs("jinja2", "markdown_it")
def test_a_planted_link_is_no_report(run: Cli, target: str) -> None:
    Path("devicefix-report.html").symlink_to(target)
    refused(
        run("report"), "devicefix-report.html: this is a symbolic link; remove it, or specify another file"
    )
    assert Path("a.py").read_text() == TIED


@pytest.mark.needs("jinja2", "markdown_it")
def test_a_report_that_the_user_names_may_be_a_link(run: Cli) -> None:
    Path("real").touch()
    Path("link").symlink_to("real")
    assert run("report", "-o", "link").exit_code == 0
    assert Path("link").is_symlink()
    assert Path("real").read_text().startswith("<!doctype html>")


def test_an_output_file_that_the_user_names_may_be_a_link(run: Cli) -> None:
    Path("real").touch()
    Path("link").symlink_to("real")
    assert run("check", "--output-file", "link").exit_code == 1
    assert Path("link").is_symlink()
    assert "DF101" in Path("real").read_text()


def test_no_output_is_created_through_a_link(run: Cli) -> None:
    Path("link").symlink_to("../new")
    message = "link: this is a symbolic link whose target does not exist"
    refused(run("check", "--output-file", "link"), message)
    with pytest.raises(FileNotFoundError, match="whose target does not exist"):
        put("link", b"")


@pytest.mark.needs("jinja2", "markdown_it")
def test_each_command_writes_what_it_is_for_and_nothing_else(run: Cli) -> None:
    for command in (
        ["rewrite"],
        ["rewrite", "--diff"],
        ["check", "--no-cache"],
        ["config"],
        ["rule"],
        ["clean"],
    ):
        run(*command)
        assert os.listdir() == ["a.py"], command
    run("check")
    assert sorted(os.listdir()) == [".devicefix_cache", "a.py"]
    run("report")
    assert sorted(os.listdir()) == [".devicefix_cache", "a.py", "devicefix-report.html"]
    assert Path("a.py").read_text() == TIED


# -- special files -------------------------------------------------------------------------------------

WAYS = {
    "check": ["check", "SPECIAL"],
    "rewrite": ["rewrite", "-i", "SPECIAL"],
    "noqa": ["check", "--add-noqa", "SPECIAL"],
    "baseline": ["check", "--baseline", "SPECIAL"],
    "new baseline": ["check", "--write-baseline", "--baseline", "SPECIAL"],
    "configuration": ["check", "--config", "SPECIAL"],
    "settings": ["config", "--config", "SPECIAL"],
}


def pipe(path: Path) -> str:
    os.mkfifo(path)
    return "pipe"


def unix_socket(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)
    return "socket"


def device(path: Path) -> str:
    path.symlink_to("/dev/zero")
    return "device"


Make = Callable[[Path], str]


@pytest.fixture
def soon() -> Iterator[None]:
    """Let a test fail that waits."""

    def late(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def with_little_memory() -> None:
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))


def is_refusal(done: Any, kind: str) -> bool:
    wanted = f"this is a {kind}; copy its content to a regular file"
    return wanted in done.stderr and "Traceback" not in done.stderr


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("make", [pipe, unix_socket])
@pytest.mark.parametrize("way", WAYS)
def test_a_pipe_or_socket_is_refused(run: Cli, make: Make, way: str) -> None:
    kind = make(Path("special.py"))
    done = run(*(word.replace("SPECIAL", "special.py") for word in WAYS[way]))
    assert done.exit_code == 2
    assert is_refusal(done, kind), done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_a_device_is_refused(tree: Path, way: str) -> None:
    """In a process with little memory, which /dev/zero would fill."""
    kind = device(tree / "special.py")
    done = devicefix(
        *(word.replace("SPECIAL", "special.py") for word in WAYS[way]),
        cwd=tree, timeout=60, preexec_fn=with_little_memory,
    )  # fmt: skip
    assert done.returncode == 2
    assert is_refusal(done, kind), done.stderr


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("make", [pipe, unix_socket, device])
def test_special_files_in_a_folder_are_passed_over(run: Cli, make: Make, git: Git) -> None:
    names = (
        ".devicefix.toml", "devicefix.toml", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt",
        "Pipfile", "environment.yml", "special.py", "config.yaml", "README.md", "notebook.ipynb",
    )  # fmt: skip
    for name in names:
        make(Path(name))
    Path("b.py").write_text("import special\nimport yaml\n\nyaml.safe_load(open('config.yaml'))\n")
    for options in ([], ["--config-files", "--docs"]):
        done = run("check", *options)
        assert (done.exit_code, done.stderr) == (1, "")
        assert done.stdout.count("DF101") == 1
    git("init", "-q", folder=Path.cwd())
    assert run("check", "--no-cache").stdout.count("DF101") == 1


@pytest.mark.usefixtures("soon")
def test_a_configuration_may_name_no_pipe_as_the_baseline(run: Cli) -> None:
    pipe(Path("known.json"))
    configure('baseline = "known.json"\n')
    refused(
        run("check", "--write-baseline"), "known.json: this is a pipe; copy its content to a regular file"
    )


@pytest.mark.usefixtures("soon")
def test_a_pipe_in_the_place_of_a_default_file_is_refused(run: Cli) -> None:
    pipe(Path(".devicefix_cache"))
    assert run("check").exit_code == 1  # without a cache
    Path(".devicefix_cache").unlink()
    folder = made()
    (kept,) = (folder / __version__).iterdir()
    kept.unlink()
    pipe(kept)
    assert run("check").exit_code == 1
    assert kept.is_file()
    (folder / TAG).unlink()
    pipe(folder / TAG)
    refused(run("check"), "is not a devicefix cache")


@pytest.mark.usefixtures("soon")
def test_a_pipe_is_refused_whatever_the_cache_knows_of_its_name(run: Cli) -> None:
    file = Path("empty.py")
    file.touch()
    os.utime(file, (1e9, 1e9))
    assert run("check", "empty.py").exit_code == 0
    file.unlink()
    pipe(file)
    os.utime(file, (1e9, 1e9))
    done = run("check", "empty.py")
    assert done.exit_code == 2
    assert is_refusal(done, "pipe"), done.stderr


@pytest.mark.usefixtures("soon")
@pytest.mark.needs("jinja2", "markdown_it")
def test_a_pipe_in_the_place_of_the_report_is_refused(run: Cli) -> None:
    pipe(Path("devicefix-report.html"))
    refused(run("report"), "devicefix-report.html: this is not a regular file; specify another file")


@pytest.mark.usefixtures("soon", "run")
def test_the_api_refuses_a_pipe() -> None:
    pipe(Path("special.py"))
    report = api.check_paths(["special.py", "a.py"])
    assert [(error.filename, error.message.partition(";")[0]) for error in report.errors] == [
        ("special.py", "this is a pipe")
    ]
    assert len(report.findings) == 1


def test_the_null_device_is_an_empty_configuration(run: Cli) -> None:
    configure('ignore = ["DF101"]\n')
    assert run("check", "--config", os.devnull).exit_code == 1
    assert Path(".devicefix_cache").is_dir()  # and not beside the null device
