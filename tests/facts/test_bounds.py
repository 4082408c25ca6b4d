"""No input takes all memory or time: sizes of files and of settings."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import Cli

import devicefix
from devicefix import DevicefixError
from devicefix.config import sizes
from devicefix.config.load import load
from devicefix.config.settings import ConfigError, Settings
from devicefix.config.toml import MOST
from devicefix.rules import known_codes
from devicefix.runner.run import check_text

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
SECONDS = 3.0  # generous, for a busy machine: without limits each of these takes minutes
TOO_LARGE = "the file is larger than 1K; exclude it, or raise the limit with --max-file-size\n"
TOO_MUCH = "this code is not checked: the code is larger than 256 bytes; exclude the file, or use"


def notebook(code: str, output: str = "") -> str:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [output], "source": code}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


# -- sizes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "size"), [("16M", 2**24), ("1.5k", 1536), ("2GiB", 2**31), ("7B", 7), ("10", 10), (" 1 ", 1)]
)
def test_sizes(word: str, size: int) -> None:
    assert sizes.size(word) == size


@pytest.mark.parametrize("word", ["M", "1X", "-1", "1e9", "1" * 20, "nan"])
def test_wrong_sizes(cli: Cli, word: str) -> None:
    done = cli("check", "--max-file-size", word)
    assert done.exit_code == 2
    assert f"{word!r} is not a size such as 16M" in done.stderr


def test_files_are_read_up_to_a_size(tmp_path: Path) -> None:
    file = tmp_path / "a"
    for length in (0, 9, 10):
        file.write_bytes(b"x" * length)
        assert sizes.read(file, 10) == b"x" * length
    file.write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="the file is larger than 10 bytes"):
        sizes.read(file, 10)


LARGE: dict[str, str] = {
    "a.py": TIED + "#" * 1000,
    "a.ipynb": notebook(TIED, "x" * 1000),
    "a.md": f"```python\n{TIED}```\n" + "x" * 1000,
    "a.yaml": "device: cuda\n" + "#" * 2000,
}


@pytest.mark.parametrize("name", LARGE)
def test_large_files_are_errors_and_the_others_are_checked(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LARGE[name])
    (tmp_path / "b.py").write_text(TIED)
    common = ("--max-file-size", "1K", "--config-files", "--docs", "--no-cache")
    for command in (("check",), ("rewrite",), ("rewrite", "-i"), ("check", "--add-noqa")):
        (tmp_path / "b.py").write_text(TIED)
        done = cli(*command, *common, ".")
        assert (done.exit_code, done.stderr.splitlines()[0] + "\n") == (2, f"{name}: error: {TOO_LARGE}")
        assert (tmp_path / name).read_text() == LARGE[name]
        assert "Fixed 1" in done.stdout or "b.py" in done.stdout or "Added 1" in done.stdout
    assert "DF" in cli("check", "--config-files", "--docs", "--no-cache", name).stdout


CODE = TIED + "y = 1\n" * 100
MUCH = {"a.py": CODE, "a.ipynb": notebook(CODE), "a.md": f"```python\n{CODE}```\n"}


@pytest.mark.parametrize("name", MUCH)
def test_much_code_is_a_finding_where_it_matters(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(MUCH[name])
    (tmp_path / "free.py").write_text("y = 1\n" * 100)
    common = ("--max-file-size", "2K", "--docs", "--no-cache", ".")
    for command in (("check",), ("check", "--output-format", "json"), ("rewrite", "-i")):
        done = cli(*command, *common)
        assert done.exit_code == 1
        assert f"{TOO_MUCH} --max-file-size 1M" in done.stdout
        assert "DF101" not in done.stdout
        assert (tmp_path / name).read_text() == MUCH[name]
    done = cli("check", "--add-noqa", *common)
    assert done.exit_code == 1 and "no comment can suppress DF901" in done.stderr
    assert (tmp_path / name).read_text() == MUCH[name]
    assert "DF101" in cli("check", *common[2:]).stdout


def test_an_imported_file_with_much_code_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def cuda(self):\n        return self\n"
    )
    using = "from net import Net\nx = Net().cuda()\n"
    before = check_text(using.encode(), "a.py", Settings()).result.findings
    with (tmp_path / "net.py").open("a") as file:
        file.write("#" * 3_000_000)
    assert check_text(using.encode(), "a.py", Settings()).result.findings != before


def test_the_standard_input_is_read_up_to_the_size(cli: Cli) -> None:
    done = cli("check", "--max-file-size", "1K", "-", input=LARGE["a.py"])
    assert (done.exit_code, done.stderr) == (2, f"-: error: {TOO_LARGE}")
    done = cli("rewrite", "--max-file-size", "1K", "-", input=LARGE["a.py"])
    assert (done.exit_code, done.stdout) == (2, "")


def test_an_endless_standard_input() -> None:
    with Path("/dev/zero").open("rb") as endless:
        done = subprocess.run(
            [sys.executable, "-m", "devicefix", "check", "-"], stdin=endless, capture_output=True, text=True
        )
    assert done.returncode == 2
    assert "the file is larger than 16M" in done.stderr


def test_large_sources_in_the_api() -> None:
    with pytest.raises(DevicefixError, match="the file is larger than 1K"):
        devicefix.check_source(LARGE["a.py"], max_file_size="1K")
    assert len(devicefix.check_source(LARGE["a.py"], max_file_size="1G")) == 1


def test_large_files_in_flake8(tmp_path: Path) -> None:
    from devicefix.server.flake8 import Plugin

    (tmp_path / "devicefix.toml").write_text('max-file-size = "1K"\n')
    lines = LARGE["a.py"].splitlines(keepends=True)
    [(_, _, message, _)] = Plugin(None, str(tmp_path / "a.py"), lines).run()  # type: ignore[arg-type]
    assert message == f"DF000 not checked: {TOO_LARGE}".rstrip()


def test_a_configuration_may_lower_the_size_only(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LARGE["a.py"])
    file = tmp_path / "devicefix.toml"
    file.write_text('max-file-size = "1K"\n')
    assert TOO_LARGE in cli("check", ".").stderr
    assert "DF101" in cli("check", "--max-file-size", "1G", ".").stdout
    for value, words in (
        ('"17M"', 'must be at most "16M"; to allow more, use --max-file-size'),
        ("1", "must be a"),
    ):
        file.write_text(f"max-file-size = {value}\n")
        done = cli("check", ".")
        assert (done.exit_code, words in done.stderr) == (2, True)
        assert done.stderr.startswith(f"Error: {file}:1:1: max-file-size: ")


def test_another_size_is_another_cache(cli: Cli, tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}.py").write_text(CODE)
    assert cli("check", ".").stdout.count("DF101") == 50
    assert cli("check", "--max-file-size", "2K", ".").stdout.count(TOO_MUCH) == 50
    assert cli("check", ".").stdout.count("DF101") == 50


@pytest.mark.slow
@pytest.mark.parametrize("part", ["1,", "-a,", "1:2,"])
def test_the_memory_for_one_expression_of_the_largest_size(tmp_path: Path, part: str) -> None:
    """Two megabytes of code take up to two gigabytes, for statements of two characters."""
    code = f"{TIED}a = {'{' if ':' in part else '['}"
    code += part * ((2 * 2**20 - len(code) - 2) // len(part)) + ("}" if ":" in part else "]")
    (tmp_path / "a.py").write_text(code)
    run = "import sys; from devicefix.cli import main; main()"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = subprocess.run(
        [sys.executable, "-c", run, "check", "--no-cache", "a.py"], cwd=tmp_path, check=False
    )
    assert done.returncode == 1
    assert max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) < 2.5 * 2**20  # KiB


# -- configurations ------------------------------------------------------------------------------------

HOSTILE: dict[str, Callable[[], str]] = {
    "large": lambda: "#" * (MOST + 1),
    "deep key": lambda: "a" + ".a" * 25_000 + " = 1\n",
    "deep quoted key": lambda: "'a'" + ' . "a"' * 20_000 + " = 1\n",
    "deep header": lambda: "[a" + ".a" * 25_000 + "]\n",
    "deep list": lambda: "a = " + "[" * 100_000,
    "long number": lambda: f"jobs = {'1' * 5000}\n",
    "long name": lambda: f"{'a' * 200_000} = 1\n",
    "name in many lines": lambda: "# jobs\n" * 30_000 + "jobs = 0\n",
    "name in a long list": lambda: "select = [\n" + "'DF10', # jobs\n" * 15_000 + "]\njobs = 0\n",
    "codes": lambda: "select = [" + "'DF10'," * 40_000 + "'XX']\n",
    "codes of files": lambda: (
        "per-file-ignores = {" + ",".join(f"a{n} = ['DF', 'XX']" for n in range(9000)) + "}"
    ),
    "unlike names": lambda: "".join(f"jobz{number} = 1\n" for number in range(20_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_configuration_is_refused_at_once(tmp_path: Path, name: str) -> None:
    file = tmp_path / "devicefix.toml"
    file.write_text(HOSTILE[name]())
    started = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load(file, known_codes)
    assert time.process_time() - started < SECONDS
    assert str(caught.value).startswith(f"{file}:")
    assert len(str(caught.value)) - len(str(file)) < 300


def test_a_large_pyproject_is_refused_only_if_it_speaks_of_us(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TIED)
    file = tmp_path / "pyproject.toml"
    file.write_text("[tool.other]\n" + "#" * (MOST + 1))
    assert cli("check", ".").exit_code == 1
    file.write_text("[tool.devicefix]\n" + "#" * (MOST + 1))
    done = cli("check", ".")
    assert (done.exit_code, done.stderr) == (2, f"Error: {file}: the file is larger than 256K\n")
    file.write_text("#" * (17 * 2**20))
    assert cli("check", ".").exit_code == 2


def test_many_codes_cost_nothing_at_each_file(cli: Cli, tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.py").write_text(TIED)
    (tmp_path / "devicefix.toml").write_text(
        "select = [" + "'DF10'," * 10_000 + "]\nper-file-ignores = { '*' = [" + "'DF2'," * 10_000 + "] }\n"
    )
    started = time.process_time()
    assert cli("check", "--no-cache", ".").stdout.count("DF101") == 20
    assert time.process_time() - started < SECONDS
