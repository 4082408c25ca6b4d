"""`devicefix check --executor`, on a real cluster of processes on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from helpers import ROOT, Cli, devicefix

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="it stops and kills processes by signals"),
]

FIXTURES = ROOT / "fixtures"
Start = Callable[..., subprocess.Popen[bytes]]


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def check(address: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "devicefix", "check", "-q", "--no-cache", "--executor", address, *arguments]


def run(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return devicefix("check", "-q", "--no-cache", "--executor", address, *arguments, timeout=60)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start parts of dask as processes, which end with the test."""
    with ExitStack() as stack:

        def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments],
                cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, **environment},
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def scheduler(start: Start, tmp_path: Path) -> str:
    """Start a scheduler without workers, on a machine without devicefix, and return its address."""
    (tmp_path / "without" / "devicefix").mkdir(parents=True)
    (tmp_path / "without" / "devicefix" / "__init__.py").write_text(
        "raise ImportError('no devicefix here')\n"
    )
    port = free_port()
    arguments = ("--host=127.0.0.1", f"--port={port}", "--no-dashboard")
    start("scheduler", *arguments, PYTHONPATH=str(tmp_path / "without"))
    for _ in range(200):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return f"127.0.0.1:{port}"
        time.sleep(0.1)
    raise TimeoutError("the scheduler does not start")


def workers(start: Start, scheduler: str, number: int, folder: Path, **environment: str) -> dict[str, int]:
    """Start workers, wait for them, and return their processes by their addresses."""
    from distributed import Client

    arguments = ("worker", f"tcp://{scheduler}", "--no-nanny", "--nthreads=1", "--no-dashboard")
    for index in range(number):
        start(*arguments, f"--local-directory={folder / str(index)}", **environment)
    with Client(f"tcp://{scheduler}", set_as_default=False) as client:
        client.wait_for_workers(number, timeout=30)
        return dict(client.run(os.getpid))


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with enough files for each worker, some of which depend on others."""
    folder = tmp_path / "programs"
    for number in range(3):
        for file in FIXTURES.rglob("*.py"):
            copy = folder / str(number) / file.relative_to(FIXTURES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    (folder / "net.py").write_text("class Net:\n    def cuda(self):\n        return self\n")
    (folder / "uses.py").write_text(
        "import torch\nfrom net import *\n\nnet = Net().cuda()\nx = torch.ones(2).cuda()\n"
    )
    (folder / "unreadable.py").symlink_to(folder)
    return folder


def test_same_findings_though_a_worker_is_killed(
    start: Start, scheduler: str, programs: Path, tmp_path: Path, cli: Cli
) -> None:
    from distributed import Client

    expected = cli("check", "-q", "--no-cache", "-j1", programs).stdout
    assert expected.count("\n") > 200 and f"{programs}/uses.py:5" in expected
    processes = workers(start, scheduler, 3, tmp_path, PYTHONPATH=os.pathsep.join(sys.path))
    assert run(f"dask://{scheduler}", str(programs)).stdout == expected
    victim, process = processes.popitem()
    os.kill(process, signal.SIGSTOP)  # it takes its share of the work, and does nothing of it
    with (
        Client(f"tcp://{scheduler}", set_as_default=False) as client,
        subprocess.Popen(
            check(f"dask://{scheduler}", str(programs)), stdout=subprocess.PIPE, text=True
        ) as running,
    ):
        deadline = time.monotonic() + 30
        while not client.processing()[victim]:
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process, signal.SIGKILL)
        output, _ = running.communicate(timeout=60)
        assert victim not in client.scheduler_info()["workers"]
    assert running.returncode == 1
    assert output == expected


def test_workers_need_not_see_the_disk(
    start: Start, scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that is relative to another folder than that of the worker leads nowhere there."""
    from devicefix.config.resolver import Everywhere
    from devicefix.config.settings import Settings
    from devicefix.runner.run import check_files

    workers(start, scheduler, 1, tmp_path, PYTHONPATH=os.pathsep.join(sys.path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("some.py").write_text("import torch\n\nx = torch.ones(2).cuda()\n")
    paths = [Path("some.py"), Path("missing.py")]
    some, missing = check_files(paths, Everywhere(Settings(executor=f"dask://{scheduler}")))
    assert [finding.code for finding in some.result.findings] == ["DF101"]
    assert missing.error == "No such file or directory"


def test_a_scheduler_that_is_lost_on_the_way(start: Start, programs: Path, tmp_path: Path) -> None:
    port = free_port()
    leader = start("scheduler", "--host=127.0.0.1", f"--port={port}", "--no-dashboard")
    (process,) = workers(
        start, f"127.0.0.1:{port}", 1, tmp_path, PYTHONPATH=os.pathsep.join(sys.path)
    ).values()
    os.kill(process, signal.SIGSTOP)
    command = check(f"dask://127.0.0.1:{port}", str(programs))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        time.sleep(3)
        leader.kill()
        output, errors = running.communicate(timeout=60)
    assert running.returncode == 2 and output == ""
    assert (
        errors.startswith(f"Error: dask://127.0.0.1:{port}: lost the connection to the workers (")
        and errors.count("\n") == 1
    )


def test_no_scheduler(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = run(f"dask://127.0.0.1:{free_port()}", str(tmp_path), str(FIXTURES))
    assert time.monotonic() - begun < 15
    assert done.returncode == 2 and done.stdout == ""
    assert (
        done.stderr.startswith("Error: no dask scheduler answers at dask://") and done.stderr.count("\n") == 1
    )


def test_no_workers(scheduler: str) -> None:
    done = run(f"dask://{scheduler}", str(FIXTURES))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: the dask scheduler at dask://{scheduler} has no workers\n"


@pytest.mark.parametrize("other", ["0.0.1", None])
def test_workers_of_another_version_are_refused(
    start: Start, scheduler: str, tmp_path: Path, other: str | None
) -> None:
    package = tmp_path / ("other" if other else "without") / "devicefix"
    if other:  # the same, except the version
        shutil.copytree(ROOT / "devicefix", package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "config" / "version.py").write_text(f'__version__ = "{other}"\n')
    workers(start, scheduler, 1, tmp_path, PYTHONPATH=str(package.parent))
    done = run(f"dask://{scheduler}", str(FIXTURES))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    if other:
        assert "has devicefix 0.0.1, Python" in done.stderr and ", but this machine has " in done.stderr
    else:
        assert "a worker does not have devicefix " in done.stderr


def test_bad_addresses(cli: Cli) -> None:
    for address in ("dask://host", "tcp://127.0.0.1:1", "dask://a b:1", "127.0.0.1:8786"):
        done = cli("check", "--executor", address, FIXTURES)
        assert done.exit_code == 2 and "must be dask://HOST:PORT" in done.stderr
