"""End-to-end tests of `devicefix verify` with bad programs and arguments, and of `rewrite --verify`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from helpers import devicefix
from running import NET, TRAIN, ProgramFolder

from devicefix.config.installation import install_command

# --- bad input ---------------------------------------------------------------------------------------------

PROGRAMS = {
    "exits immediately": ("import sys\nsys.exit(0)\n", 0, ""),
    "exits with a status": ("import os\nos._exit(7)\n", 1, "exit status 7"),
    "exits with a message": ("import sys\nsys.exit('no data')\n", 1, "no data"),
    "segfaults": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", 1, "SIGSEGV"),
    "does not parse": ("print 'x'\n", 1, "SyntaxError"),
    "is empty": ("", 0, ""),
    "needs data": ("open('data.bin')\n", 1, "FileNotFoundError"),
    "needs a package": ("import not_there_at_all\n", 1, "ModuleNotFoundError"),
    "changes directory": ("import os\nos.chdir('/')\nimport helper\nassert helper.x == 1\n", 0, ""),
    "prints a lot": ("for i in range(300_000):\n    print('line', i)\n", 0, ""),
    "recurses": ("def f():\n    f()\nf()\n", 1, "RecursionError"),
    "sets its own hook": ("import sys\nsys.excepthook = lambda *a: None\n1 / 0\n", 1, "ZeroDivisionError"),
    "is interrupted": ("raise KeyboardInterrupt\n", 1, "KeyboardInterrupt"),
    "closes its files": ("import os\nos.closerange(3, 64)\nimport helper\n1 / 0\n", 1, "ZeroDivisionError"),
    "raises what has no text": (
        "class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E\n",
        1,
        "E",
    ),
    "forks": ("import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n", 0, ""),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_bad_programs_get_a_clear_verdict(name: str, folder: ProgramFolder) -> None:
    code, status, reason = PROGRAMS[name]
    folder.write(train=code, helper="x = 1\n")
    done = folder.verify("train.py", process=True)
    assert done.status == status, (done.report, done.errors[-2000:])
    assert reason in done.report["reason"]


def test_standard_input_reaches_the_program(folder: ProgramFolder) -> None:
    folder.write(train="assert input() == 'yes'\n")
    assert folder.verify("train.py", stdin="yes\n").status == 0
    done = folder.verify("train.py", stdin="", process=True)
    assert (done.status, done.report["reason"]) == (1, "EOFError: EOF when reading a line")
    assert "standard input" in done.report["explanation"]["evidence"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "missing.py: no such file"),
        (["--memory", "lots", "train.py"], "'lots' is not a size such as 16M"),
        (["-m", "-c", "train"], "-m and -c cannot be used together"),
        (["-c", "--python", "python3", "train"], "-c and --python cannot be used together"),
        ([], "Missing argument"),
        (["--compre", "train.py"], "No such option '--compre'. (Did you mean one of: '--compare'"),
        (["--gpu=3", "train.py"], "No such option '--gpu'. Did you mean '--gpus'?"),
        (["-u", "train.py"], "No such option '-u'"),
    ],
)
def test_bad_arguments_are_trouble(arguments: list[str], message: str, folder: ProgramFolder) -> None:
    done = folder.verify(*arguments)
    assert done.status == 2 and message in done.errors, done.errors


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("psutil", ["verify", "train.py"]),
        ("torch", ["verify", "train.py"]),
        ("psutil", ["rewrite", "-i", "--verify", "python train.py"]),
    ],
)
def test_a_missing_package_is_one_line_of_error(
    package: str, arguments: list[str], folder: ProgramFolder
) -> None:
    folder.write(train="import torch\nx = y.cuda()\n")
    code = f"import sys; sys.modules[{package!r}] = None; from devicefix.cli import main; main({arguments!r})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder.path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"Error: verify needs {package}: {install_command('verify')}. If torch is installed in another"
        " Python, install psutil here, and select that Python with --python\n"
    )


def test_a_missing_python_is_trouble(folder: ProgramFolder) -> None:
    folder.write(train="pass\n")
    done = folder.verify("--python", "/not/there", "train.py")
    assert (done.status, done.errors) == (2, "Error: /not/there: No such file or directory\n")


def test_a_command_without_python_is_trouble(folder: ProgramFolder) -> None:
    done = folder.verify("-c", "true")
    assert (done.status, done.report["verdict"]) == (2, "trouble")


def test_a_missing_module_is_a_failure(folder: ProgramFolder) -> None:
    done = folder.verify("-m", "not_there_at_all")
    assert done.status == 1 and "exit status 1" in done.report["reason"]


def test_nothing_is_left_running_after_an_interrupt(folder: ProgramFolder) -> None:
    folder.write(train="import time\nopen('started', 'w')\ntime.sleep(600)\n")
    mark = f"mark-{os.getpid()}-{time.time()}"
    command = [sys.executable, "-m", "devicefix", "verify", "train.py", mark]
    process = subprocess.Popen(
        command,
        cwd=folder.path,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while not (folder.path / "started").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert not [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or [])]


# --- rewrite --in-place --verify ---------------------------------------------------------------------------


def rewrite(folder: ProgramFolder, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return devicefix(
        "rewrite",
        "-i",
        "--verify",
        command,
        *arguments,
        cwd=folder.path,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


def test_rewrite_writes_what_passes(folder: ProgramFolder) -> None:
    folder.write(net=NET, train=TRAIN)
    done = rewrite(folder, f"{sys.executable} train.py")
    assert done.returncode == 0, done
    assert ".cuda()" not in "".join(file.read_text() for file in folder.path.glob("*.py"))
    assert "verify: pass" in done.stdout and "Fixed 2 findings" in done.stdout


def test_rewrite_writes_nothing_if_the_run_fails(folder: ProgramFolder) -> None:
    folder.write(net=NET, train="import net\nnet.make()\nopen('written', 'w')\nraise SystemExit(5)\n")
    before = folder.content()
    done = rewrite(folder, f"{sys.executable} train.py")
    assert done.returncode == 1, done
    assert "exit status 5" in done.stdout and "Nothing was written" in done.stdout
    assert {name: data for name, data in folder.content().items() if name in before} == before


@pytest.mark.slow
def test_rewrite_accepts_a_run_that_reached_the_limit_on_steps(folder: ProgramFolder) -> None:
    folder.write(net=NET, train=TRAIN.replace("range(5)", "range(10**9)"))
    done = rewrite(folder, f"{sys.executable} train.py", "--steps", "2")
    assert done.returncode == 0, done
    assert ".to(device)" in (folder.path / "net.py").read_text()


def test_rewrite_needs_in_place_to_verify(folder: ProgramFolder) -> None:
    done = devicefix("rewrite", "--verify", "true", cwd=folder.path)
    assert done.returncode == 2 and "--verify needs --in-place" in done.stderr


def test_a_module_that_ends_the_program_is_named(folder: ProgramFolder) -> None:
    folder.write(
        main="""
        import torch
        x = torch.ones(2).cuda()
        import kernel
        print(x)
        """,
        kernel="print('install triton')\nexit()\n",
    )
    done = folder.verify("main.py")
    assert (done.status, done.run["warnings"]) == (
        0,
        [f"{folder.path}/kernel.py:2 ends the program during an import"],
    )


def test_a_request_by_a_function_in_c_is_named_by_its_argument(folder: ProgramFolder) -> None:
    folder.write(
        main="""
        import sys, torch
        torch.tensor([1.0], device=sys.argv[1])
        """
    )
    done = folder.verify("main.py", "cuda")
    assert [request["call"] for request in done.run["requests"]] == ["device="]
