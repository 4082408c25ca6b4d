"""Tests of `devicefix migrate`: what its runs prove, what it keeps, and what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers import Cli, CliResult, Git
from running import ProgramFolder, run_in_fork, verify_in_forks

from devicefix.migrate.commands import tasks
from devicefix.migrate.look import look
from devicefix.verify import runs
from devicefix.verify.commands import Ended
from devicefix.verify.runs import Task

Migrate = Callable[..., CliResult]


@pytest.fixture
def migrate(
    folder: ProgramFolder, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Migrate:
    """Return a function that migrates the program in the folder."""
    monkeypatch.chdir(folder.path)
    verify_in_forks(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "t")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "t@example.org")
    cli = Cli()

    def call(*arguments: str) -> CliResult:
        return cli("migrate", *arguments)

    return call


pytestmark = pytest.mark.needs("torch", "psutil", "yaml")

RUN = ("--run", "python train.py")

# The tensor is filled again by another module, which no analysis of this one sees.
REFILLED = """
    import torch
    from data import Loader

    def collect():
        seen = []
        for batch in Loader(torch.zeros(2).cuda()):
            seen.append(batch.cpu().numpy())
        return seen

    print(torch.tensor(sum(x.sum().item() for x in collect())))
"""
LOADER = """
    class Loader:
        def __init__(self, buffer):
            self.buffer = buffer

        def __iter__(self):
            for number in range(3):
                getattr(self.buffer, "fill_")(number)
                yield self.buffer
"""
WRAPPED = """
    import torch
    from parallel import wrapped

    torch.manual_seed(0)
    model = wrapped(torch.nn.Linear(2, 1).cuda())
    print(model(torch.ones(1, 2).cuda()).sum().item())
    state = model.module.state_dict()
    print(sum(value.sum() for value in state.values()).item())
"""
PARALLEL = """
    import torch

    def wrapped(model):
        if torch.cuda.is_available():
            return torch.nn.DataParallel(model)
        return model
"""


def test_a_copy_that_only_a_run_shows(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(train=REFILLED, data=LOADER)
    done = migrate(*RUN, "--in-place")
    assert "Verdict: runs, numbers equal" in done.output, done.output
    assert "seen.append(batch.cpu().numpy().copy())" in (folder.path / "train.py").read_text()
    assert "train.py:7:21 DF805" in done.output
    assert "Evidence: each fix ran in `python train.py`" in done.output
    assert done.exit_code == 0


def test_an_attribute_of_a_wrapper_that_only_a_run_misses(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(train=WRAPPED, parallel=PARALLEL)
    done = migrate(*RUN, "--in-place")
    assert "Verdict: runs, numbers equal" in done.output, done.output
    assert 'state = getattr(model, "module", model).state_dict()' in (folder.path / "train.py").read_text()


NOTEBOOK = """\
{"cells": [
{"cell_type": "code", "source": ["import torch\\n", "x = torch.ones(2)"], "outputs": [], "metadata": {}},
{"cell_type": "code", "source": ["this is not Python"], "outputs": [], "metadata": {"tags": ["skip"]}},
{"cell_type": "code", "source": ["y = x.cuda()\\n", "y += 1\\n", "print(x.sum().item(), y.sum().item())"],
 "outputs": [], "metadata": {}}
], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
"""


def test_a_device_from_elsewhere_that_only_a_run_shows(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(
        train="import trainers\nprint(trainers.train(len([])).item())\n",
        trainers="""
        import torch
        from utils import move

        def train(rank):
            return move({"x": torch.ones(2)}, rank)["x"].sum()
        """,
        utils="""
        import torch

        def move(batch, device):
            return {k: v.to(device) for k, v in batch.items()}
        """,
    )
    done = migrate(*RUN, "--in-place")
    assert "Verdict: runs, numbers equal" in done.output, done.output
    assert 'v.to(device if torch.cuda.is_available() else "cpu")' in (folder.path / "utils.py").read_text()
    assert "1 DF208 A run showed that a value is a CUDA device" in done.output


@pytest.mark.parametrize("command", ["python demo.ipynb", "jupyter execute demo.ipynb", "demo.ipynb"])
def test_the_command_of_a_notebook(command: str, tmp_path: Path) -> None:
    (tmp_path / "demo.ipynb").write_text(NOTEBOOK)
    [task] = tasks([command], tmp_path, Task([], tmp_path, tmp_path, ()))
    assert (task.notebook, task.folder) == (tmp_path / "demo.ipynb", tmp_path)
    assert task.command[-1] == str(tmp_path / "demo.ipynb")


def test_paths_out_of_the_project_lead_there_from_a_copy_too(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "inside").mkdir(parents=True)
    (tmp_path / "data set").mkdir()
    command = "X=../python a.py --data=../data --in ../project/inside ../none"
    (tmp_path / "python").touch()
    [task] = tasks([command], folder, Task([], folder, folder, ()))
    assert task.command[-1] == f"X={tmp_path}/python a.py --data=../data --in ../project/inside ../none"


def test_a_notebook(migrate: Migrate, folder: ProgramFolder) -> None:
    file = folder.path / "demo.ipynb"
    file.write_text(NOTEBOOK.replace("this is not Python", "print()"))
    done = migrate("--run", "python demo.ipynb", "--in-place")
    assert "Verdict: runs, numbers equal" in done.output, done.output
    assert "demo.ipynb:cell 3:1:5 DF802" in done.output
    assert "1 of 1 fixed line ran" in done.output
    assert ".clone()" in file.read_text()


TWO = """
    import sys
    import torch

    model = torch.nn.Linear(2, 1).cuda()
    if sys.argv[1] == "train":
        torch.nn.init.ones_(model.weight)
        torch.save(model.state_dict(), "model.pt")
    else:
        model.load_state_dict(torch.load("model.pt"))
    print(model.weight.sum().item())
"""


def test_commands_get_the_files_of_earlier_ones(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(train=TWO)
    done = migrate("--run", "python train.py train", "--run", "python train.py test")
    assert "Verdict: runs, numbers equal" in done.output, done.output
    assert "it fails alone, so it runs again after the earlier commands" in done.stderr
    assert not (folder.path / "model.pt").exists()


DIFFERS = """
    import torch

    x = torch.ones(2).cuda()
    print((x + (0 if torch.cuda.is_available() else 1)).sum().item())
"""


def test_other_numbers_and_the_page(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(train=DIFFERS)
    (folder.path / "tests").mkdir()
    (folder.path / "tests" / "test_a.py").write_text(
        "import torch\n\nassert torch.cuda.is_available()\n\n\ndef test_a():\n    pass\n"
    )
    done = migrate(*RUN, "--report", "out.html")
    assert "Verdict: runs, numbers differ" in done.output, done.output
    assert (done.exit_code, "Left for you: 1 command that fails and 1 finding" in done.output) == (1, True)
    assert "In tests:\n    tests/test_a.py:3:1 DF701" in done.output
    page = (folder.path / "out.html").read_text()
    assert "<strong>runs, numbers differ</strong>" in page and "tests/test_a.py:3:1" in page
    changed = [line for line in page.splitlines() if 'class="row plus"' in line]
    assert '<span class="row plus">+device = torch.device(' in changed[0] and "row minus" in changed[0]
    assert "<script" not in page


def test_without_runs_only_safe_fixes_are_made(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(train=WRAPPED, parallel=PARALLEL)
    done = migrate("--in-place")
    assert "model.module.state_dict()" in (folder.path / "train.py").read_text()
    assert "Verdict: not run" in done.output
    assert 'add `--run "COMMAND"`' in done.output


UNSAFE = """
    import torch

    def fill(frames, frame):
        for number in range(3):
            frame[:] = number
            frames.append(torch.from_numpy(frame).cuda())
        return frames

    def unused(frames, frame):
        for number in range(3):
            frame[:] = number
            frames.append(torch.from_numpy(frame).cuda())
        return frames

    print(fill([], torch.zeros(2).numpy())[0].sum().item())
"""


def test_an_unsafe_fix_is_kept_if_it_ran(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(train=UNSAFE)
    done = migrate(*RUN, "--in-place")
    text = (folder.path / "train.py").read_text()
    assert "Verdict: runs, numbers equal" in done.output, done.output
    assert text.count(".copy()") == 1
    assert text.index(".copy()") < text.index("def unused")
    left = done.output[: done.output.index("Fixed")]
    assert "Unsafe fixes that no run justifies (their code did not run;" in left
    assert left.count("DF803") == 1


def test_a_fix_that_changes_the_numbers_does_not_cost_those_of_other_rules(
    migrate: Migrate, folder: ProgramFolder
) -> None:
    folder.write(
        train="""
        import json
        import torch

        def made(size, rank):
            return torch.ones(size).to(rank)

        ranks = json.loads('["cpu", 0]')
        getattr(torch, "manual" + "_seed")(1)
        torch.cuda.manual_seed(0)
        noise = torch.nn.functional.dropout(torch.ones(8).cuda())
        print(torch.randn(4).sum().item(), made(2, ranks[0]).sum().item())
        if len(ranks) > 2:
            made(2, int(ranks[1]))
        """
    )
    done = migrate(*RUN, "--output-format", "json", "--quiet")
    data = json.loads(done.stdout)
    assert [each["code"] for each in data["justified_by_runs"]] == ["DF102"]
    (left,) = data["left"]
    assert left["code"] == "DF401"
    assert left["unjustified"].startswith("with them, the rewritten program differs from the original")


def test_an_unsafe_fix_is_kept_if_the_program_only_runs_with_it(
    migrate: Migrate, folder: ProgramFolder
) -> None:
    folder.write(
        train="""
        import json
        import torch

        config = json.load(open("c.json"))

        def made(size, rank):
            return torch.ones(size).to(rank)

        print(made(2, config["rank"]).sum().item())
        """
    )
    (folder.path / "c.json").write_text('{"rank": 0}')
    done = migrate(*RUN, "--in-place")
    assert "trying fixes for this problem\n" in done.stderr
    assert "Verdict: runs, numbers equal" in done.output, done.output
    assert "rank if torch.cuda.is_available()" in (folder.path / "train.py").read_text()


@pytest.mark.parametrize("gpu", ["0", "1"])
def test_no_fix_is_kept_that_asks_for_cuda_too_early(
    gpu: str, migrate: Migrate, folder: ProgramFolder
) -> None:
    """With one simulated GPU, a run does not show that the variable comes too late if it names GPU 0."""
    folder.write(
        train=f"""
        import os
        import torch

        DEVICE = "cuda"
        os.environ["CUDA_VISIBLE_DEVICES"] = "{gpu}"

        def demo():
            print(torch.ones(2).to(DEVICE).sum().item())

        demo()
        """
    )
    done = migrate(*RUN, "--in-place")
    assert "Verdict: runs, numbers equal" in done.output, done.output
    text = (folder.path / "train.py").read_text()
    assert 'DEVICE = "cuda"\n' in text
    assert '.to(DEVICE if torch.cuda.is_available() else "cpu")' in text


def test_an_unsafe_fix_that_changes_numbers_is_not_kept(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(
        train="""
        import torch

        scores = torch.zeros(2).cuda()
        for number in range(3):
            part = scores.cpu()
            scores += number
        print(part.sum().item(), torch.cuda.get_device_name())
        """
    )
    before = (folder.path / "train.py").read_text()
    done = migrate(*RUN)
    assert "does not run" in done.output or "runs" in done.output
    assert (folder.path / "train.py").read_text() == before


STOPS = """
    import torch
    from torch.utils.cpp_extension import load

    net = torch.nn.Linear(2, 2).cuda()
    print(net(torch.ones(1, 2).cuda()).sum().item())
    raise RuntimeError("no data")
"""


def test_a_program_that_does_not_run(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(train=STOPS)
    done = migrate(*RUN)
    assert "Verdict: does not run: RuntimeError: no data" in done.output
    assert done.exit_code == 1
    assert "The changes were not written." in done.output
    assert ".cuda()" in (folder.path / "train.py").read_text()


def test_what_is_left_comes_first(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(
        train="""
        import torch
        from apex import amp

        x = torch.ones(2).cuda()
        print(torch.cuda.get_device_name(), amp)
        """
    )
    done = migrate()
    left, fixed = done.output.index("Left for you"), done.output.index("Fixed:")
    assert left < fixed < done.output.index("Verdict")
    assert "train.py:" in done.output[left:fixed]
    assert "findings remain" not in done.output


def test_findings_in_tests_come_last(migrate: Migrate, folder: ProgramFolder) -> None:
    (folder.path / "tests").mkdir()
    code = (
        "import torch\nfrom apex import amp\n\ndef test_name():\n    amp.initialize(torch.nn.Linear(2, 2))\n"
    )
    (folder.path / "tests" / "test_net.py").write_text(code)
    done = migrate()
    assert "Left for you: 1 finding\n  In tests:\n" in done.output
    assert "test_net.py:2:1 DF902" in done.output


def test_the_patch_applies(migrate: Migrate, folder: ProgramFolder, git: Git) -> None:
    folder.write(train=WRAPPED, parallel=PARALLEL)
    done = migrate(*RUN, "--patch", "changes.patch")
    assert "The changes were written to changes.patch." in done.output
    subprocess.run(["git", "apply", "changes.patch"], check=True, cwd=folder.path)
    assert "getattr(model" in (folder.path / "train.py").read_text()


def test_a_branch_has_a_commit_for_each_step(migrate: Migrate, folder: ProgramFolder, git: Git) -> None:
    folder.write(train=WRAPPED, parallel=PARALLEL)
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    before = folder.content()
    index = git("ls-files", "--stage")
    done = migrate(*RUN, "--branch", "cpu")
    assert "The changes were written to the branch cpu." in done.output, done.output
    assert git("log", "--format=%s", "cpu").splitlines() == [
        "Make the code run on a CPU",
        "Make the code device-agnostic",
        "first",
    ]
    assert ".to(device)" in git("show", "cpu~1:train.py")
    assert "getattr" not in git("show", "cpu~1:train.py")
    assert "getattr(model" in git("show", "cpu:train.py")
    assert "train.py:7 DF705: ran in `python train.py`" in git("log", "-1", "--format=%B", "cpu")
    assert git("status", "--porcelain") == ""
    assert git("rev-parse", "--abbrev-ref", "HEAD").strip() == "main"
    after = folder.content()
    assert {name: data for name, data in after.items() if ".git/" not in name} == {
        name: data for name, data in before.items() if ".git/" not in name
    }
    assert git("ls-files", "--stage") == index


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ((), "--branch needs a git repository"),
        (("init -q",), "--branch needs a commit to start from"),
        (("init -q", "add .", "commit -qm first", "branch cpu"), "the branch cpu already exists"),
    ],
)
def test_a_branch_that_cannot_be_made(
    prepare: tuple[str, ...], message: str, migrate: Migrate, folder: ProgramFolder, git: Git
) -> None:
    folder.write(train=WRAPPED, parallel=PARALLEL)
    for command in prepare:
        git(*command.split())
    done = migrate("--branch", "cpu")
    assert done.exit_code == 2
    assert message in done.output


def test_no_hook_of_the_repository_runs(migrate: Migrate, folder: ProgramFolder, git: Git) -> None:
    folder.write(parallel="import torch\n\nx = torch.ones(2).cuda()\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    for name in ("reference-transaction", "post-commit", "pre-commit", "post-index-change"):
        hook = folder.path / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {folder.path}/ran-{name}\n")
        hook.chmod(0o755)
    assert "written to the branch cpu" in migrate("--branch", "cpu").output
    assert not list(folder.path.glob("ran-*"))


def test_a_branch_refuses_changes_that_are_not_committed(
    migrate: Migrate, folder: ProgramFolder, git: Git
) -> None:
    folder.write(train="import torch\n", parallel=PARALLEL)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    folder.write(train=WRAPPED)
    done = migrate(*RUN, "--branch", "cpu")
    assert done.exit_code == 2
    assert "has uncommitted changes" in done.output
    assert "running" not in done.output
    assert "cpu" not in git("branch")


LEFT = """
    import torch

    def main():
        net = torch.nn.Linear(2, 2).cuda()
        number, x = net.weight.get_device(), torch.ones(1, 2).cuda()
        net(x)
        names = ["a"]
        print(names[number + 1:][0])

    def stops(x):
        graph = torch.cuda.CUDAGraph()
        y = torch.cuda.graph_pool_handle()
        z = torch.cuda.graph_pool_handle()
        w = torch.cuda.graph_pool_handle()
        return graph, y, z, w

    main()
"""


@pytest.mark.parametrize("where", [(), ("--in-place",)])
def test_all_lines_are_those_before_the_changes(
    where: tuple[str, ...], migrate: Migrate, folder: ProgramFolder
) -> None:
    folder.write(train=LEFT)
    found = Cli()("check", "--unfixed", "--output-format", "concise", "--quiet").stdout.splitlines()
    after = " (lines 12, 13 and 14 can be fixed only after this)"
    assert [line.endswith(after) for line in found] == [False, True]
    left = {line.replace(": DF", " DF", 1).replace("[*] ", "") for line in found}
    done = migrate(*where, "--report", "out.html")
    assert left <= {line.strip() for line in done.output.splitlines()}
    assert ("All line numbers refer to the original files." in done.output) == bool(where)
    page = (folder.path / "out.html").read_text()
    assert all(line.partition(" ")[0] in page for line in left)
    assert "lines 12, 13 and 14 can be fixed" in page and "line numbers refer to the original files" in page


def test_the_lines_of_a_stopped_run_and_of_what_is_left(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(
        train="""
        import torch

        x = torch.ones(2).cuda()
        number = x.get_device()
        print({0: 1}[number])
        """
    )
    done = migrate(*RUN, "--in-place", "--output-format", "json", "--quiet")
    data = json.loads(done.stdout)
    [left] = data["left"]
    assert (left["place"], "line 5 uses it as a number" in left["message"]) == ("4:10", True)
    assert any(
        "train.py:4 DF206" in line and "line 5 uses it" in line for line in data["runs"][0]["evidence"]
    )


def test_the_lines_of_a_notebook_are_those_before_the_changes(
    migrate: Migrate, folder: ProgramFolder
) -> None:
    code = "import torch\nx = torch.ones(2).cuda()\nn = x.get_device()\nprint([1, 2][n])"
    cell = {"cell_type": "code", "source": code, "outputs": [], "metadata": {}}
    kernel = {"language_info": {"name": "python"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder.path / "demo.ipynb").write_text(json.dumps(notebook))
    output = migrate("--in-place").output
    assert "demo.ipynb:cell 1:3:5 DF206" in output and "line 4 uses it as a number" in output
    [changed] = json.loads((folder.path / "demo.ipynb").read_text())["cells"]
    assert "".join(changed["source"]).splitlines()[3:] != code.splitlines()[3:]


@pytest.mark.parametrize(
    ("code", "options", "end"),
    [
        ("x.cuda()", (), "The changes were not written. To keep them, add --in-place,"),
        (
            "x.cuda()",
            ("--report", "o.html"),
            "The report was written to o.html. The changes were not written. To keep",
        ),
        (
            "x.cuda()",
            ("--report", "o.html", "--patch", "p"),
            "The report was written to o.html. The changes were written to p.",
        ),
        ("x", (), "There are no changes to write."),
        ("x", ("--report", "o.html"), "The report was written to o.html. There are no changes to write."),
    ],
)
def test_the_end_says_what_was_written(
    code: str, options: tuple[str, ...], end: str, migrate: Migrate, folder: ProgramFolder
) -> None:
    folder.write(train=f"import torch\n\nx = torch.ones(2)\n{code}\n")
    done = migrate(*options)
    assert done.stdout.splitlines()[-1].startswith(end)
    assert (folder.path / "o.html").exists() == ("--report" in options)


BROKEN = "import torch\nimport not_there\n\nprint(torch.ones(2).cuda())\n"


@pytest.mark.parametrize("other", [BROKEN, "print(1)\n"], ids=["fails", "no numbers"])
@pytest.mark.parametrize("program", [UNSAFE, REFILLED], ids=["static", "seen"])
def test_a_command_that_ends_as_before_proves_nothing_against_the_fixes_of_another(
    program: str, other: str, migrate: Migrate, folder: ProgramFolder
) -> None:
    folder.write(train=program, data=LOADER, other=other)
    done = migrate("--run", "python other.py", *RUN, "--in-place")
    assert (folder.path / "train.py").read_text().count(".copy()") == 1
    assert "Evidence: each fix ran in `python train.py`; " in done.output
    assert "tried other fixes" not in done.output
    fails = other == BROKEN
    assert done.exit_code == fails
    assert ("Verdict: does not run: ModuleNotFoundError: No module named 'not_there'" in done.output) == fails


def test_a_fix_that_only_a_failing_command_runs_is_not_kept(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(
        train="import torch\nprint(torch.ones(2).cuda().sum())\n", other=f"{UNSAFE}\n    import not_there"
    )
    done = migrate(*RUN, "--run", "python other.py", "--in-place")
    assert ".copy()" not in (folder.path / "other.py").read_text()
    why = "(with them, `python other.py`: ModuleNotFoundError: No module named 'not_there'; "
    assert f"Unsafe fixes that no run justifies {why}" in done.output, done.output
    assert "justify them" not in done.output


def test_a_fix_with_which_another_command_fails_is_not_kept(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(
        shared="""
        import torch

        def filled(frames, frame):
            for number in range(3):
                frame[:] = number
                frames.append(torch.from_numpy(frame).cuda())
            return frames
        """,
        train="""
        import torch
        from shared import filled

        print(filled([], torch.zeros(2).numpy())[0].sum().item())
        """,
        other="""
        import torch
        from shared import filled

        class Frame:
            def __init__(self):
                self.array = torch.zeros(2).numpy()

            def __setitem__(self, key, value):
                pass

        torch.from_numpy = lambda frame: torch.zeros(2)
        print(torch.zeros(2).cuda().sum().item())
        print(filled([], Frame())[0].sum().item())
        """,
    )
    done = migrate(*RUN, "--run", "python other.py", "--in-place")
    assert ".copy()" not in (folder.path / "shared.py").read_text()
    assert (
        "with them, `python other.py`: AttributeError: 'Frame' object has no attribute 'copy'" in done.output
    )
    assert "1 command that fails" in done.output  # hazard


def test_what_one_command_does_not_prove_does_not_cost_the_fixes_of_another(
    migrate: Migrate, folder: ProgramFolder
) -> None:
    folder.write(
        train=REFILLED,
        data=LOADER,
        other="""
        import json
        import torch

        def made(size, rank):
            return torch.ones(size).to(rank)

        x = made(2, json.load(open("c.json"))["rank"])
        print((x + (0 if torch.cuda.is_available() else 1)).sum().item())
        """,
    )
    (folder.path / "c.json").write_text('{"rank": 0}')
    done = migrate(*RUN, "--run", "python other.py", "--in-place")
    assert (folder.path / "train.py").read_text().count(".copy()") == 1
    assert ".to(rank)" in (folder.path / "other.py").read_text()
    why = "`python other.py`: the rewritten program differs from the original when it runs on the CPU"
    assert f"devicefix tried other fixes, but the runs do not prove them: {why}" in done.output, done.output
    assert "Evidence: each fix ran in `python train.py`; " in done.output


def test_the_result_as_json(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(train=WRAPPED, parallel=PARALLEL)
    found = json.loads(migrate(*RUN, "--output-format", "json", "--quiet").stdout)
    assert found["verdict"] == "runs, numbers equal"
    assert found["project"]["files"] == 2
    assert [(kept["code"], kept["place"]) for kept in found["justified_by_runs"]] == [("DF705", "7:9")]
    assert found["runs"][0]["equal"] is True
    assert found["fixed_lines"]["ran"] == found["fixed_lines"]["all"]


def test_other_files_are_left_out_only_if_the_user_says_so(migrate: Migrate, folder: ProgramFolder) -> None:
    folder.write(train="import torch\n")
    (folder.path / "config.yaml").write_text("device: cuda\n")
    assert "config.yaml" in migrate().stdout
    assert "config.yaml" not in migrate("--no-config-files").stdout


@pytest.mark.slow
def test_a_terminated_migration_leaves_the_old_tree_or_the_new_one(tmp_path: Path) -> None:
    """End it at many moments, most of them while it writes."""
    old = {f"m{number}.py": f"import torch\n\nx{number} = torch.ones(2).cuda()\n" for number in range(40)}
    old["requirements.txt"] = "torch==2.0.1+cu118\nflash-attn\n"
    command = [sys.executable, "-m", "devicefix", "migrate", "--in-place", "--quiet", "--no-cache"]

    def migrated(folder: Path, seconds: float | None) -> dict[str, str]:
        folder.mkdir()
        for name, text in old.items():
            (folder / name).write_text(text)
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.terminate()
        process.wait()
        return {file.name: file.read_text() for file in folder.iterdir() if not file.name.startswith(".")}

    start = time.monotonic()
    new = migrated(tmp_path / "all", None)
    whole = time.monotonic() - start
    assert (
        new["requirements-cpu.txt"]
        == "--extra-index-url https://download.pytorch.org/whl/cpu\ntorch==2.0.1\n# flash-attn\n"
    )
    assert all(new[name] != text for name, text in old.items() if name.endswith(".py"))
    ends = [migrated(tmp_path / str(number), whole * (0.4 + number / 10)) for number in range(10)]
    assert all(tree in (old, new) for tree in ends)
    assert old in ends


def test_an_interrupted_migration_changes_nothing(
    migrate: Migrate, folder: ProgramFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(train=REFILLED, data=LOADER)
    with monkeypatch.context() as patched:
        calls = iter(range(9))

        def interrupted(*arguments: Any) -> Ended:
            if next(calls) == 1:
                raise KeyboardInterrupt
            return run_in_fork(*arguments)

        patched.setattr(runs, "run_command", interrupted)
        assert migrate(*RUN, "--in-place").exit_code == 130
    assert ".cuda()" in (folder.path / "train.py").read_text()
    assert not list(folder.path.glob(".devicefix_cache"))


def test_a_script_may_be_called_like_a_test(tmp_path: Path) -> None:
    main = "if __name__ == '__main__':\n    main()\n"
    for name, text in {"test_net.py": main, "test_a.py": f"import unittest\n{main}"}.items():
        (tmp_path / name).write_text(text)
    assert look(tmp_path, sorted(tmp_path.iterdir())).scripts == ["test_net.py"]
