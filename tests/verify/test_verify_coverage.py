"""How much of a rewrite `devicefix verify` has seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from helpers import Cli
from running import ProgramFolder, verify_in_forks

from devicefix.runner.coverage import Seen
from devicefix.verify.coverage import add
from devicefix.verify.program import Program, Rewritten
from devicefix.verify.verdict import Module, Run

EVERYWHERE = """
    import threading
    import torch
    import torch.multiprocessing as mp
    from concurrent.futures import ThreadPoolExecutor

    def thread(x):
        return x.cuda()  # ran

    def forked(x):
        return x.cuda()  # ran

    def spawned(x):
        return x.cuda()  # ran

    def never(x):
        return x.cuda()  # missed

    @torch.compile
    def compiled(x):
        y = x.cuda()  # ran
        return y if y.sum() > 0 else y.cuda()  # missed

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 2
        def __getitem__(self, index):
            return torch.ones(1).cuda()  # ran

    made = "def generated(x):\\n    return thread(x)"

    if __name__ == "__main__":
        x = torch.ones(1)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(thread, x).result()
        for how, function in (("fork", forked), ("spawn", spawned)):
            process = mp.get_context(how).Process(target=function, args=(x,))
            process.start()
            process.join()
            assert process.exitcode == 0
        compiled(x)
        list(torch.utils.data.DataLoader(Data(), num_workers=1))
        exec(made)
        generated(x)
        import part
        part.f(x)
"""
PART = """
    def f(x):
        return x.cuda()  # ran
    """


def marked(path: Path, word: str) -> list[int]:
    lines = path.read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith(f"# {word}")]


@pytest.mark.slow
def test_lines_that_ran_in_every_process_and_modules_never_imported(folder: ProgramFolder) -> None:
    other = "import torch\ndef f(x):\n    return x.cuda() + x.cuda()\n"
    folder.write(train=EVERYWHERE, part=PART, other=other, **{"pkg/other": other})
    done = folder.verify("train.py", process=True)
    assert done.status == 0, (done.report, done.errors)
    modules = {Path(module["file"]).relative_to(folder.path): module for module in done.run["modules"]}
    for name in ("train.py", "part.py"):
        module = modules.pop(Path(name))
        path = folder.path / name
        assert (module["ran"], module["not_run"]) == (marked(path, "ran"), marked(path, "missed"))
        assert module["imported"]
    assert set(modules) == {Path("other.py"), Path("pkg", "other.py")}
    for module in modules.values():
        assert (module["imported"], module["ran"], module["not_run"]) == (False, [], [3])
    assert {place["line"] for place in done.run["not_run"]} == set(marked(folder.path / "train.py", "missed"))


@pytest.mark.slow
def test_compiled_functions(folder: ProgramFolder) -> None:
    folder.write(
        train="""
        import torch

        def inner(x):
            return x.cuda() + 1  # ran

        @torch.compile(fullgraph=True, backend="eager")
        def whole(x):
            y = inner(x.cuda())  # ran
            f = lambda z: z.cuda()  # missed
            return [t.cuda() for t in (y, y)] if x.dim() == 1 else y.cuda()  # missed

        @torch.compile(backend="eager")
        def parts(x):
            if x.sum() > 0:
                return x.cuda()  # ran
            return (x + 1).cuda()  # missed

        whole(torch.ones(1)), whole(torch.ones(1)), parts(torch.ones(1))
        """
    )
    done = folder.verify("--no-copies", "train.py")
    assert done.status == 0, (done.report, done.errors)
    (module,) = done.run["modules"]
    path = folder.path / "train.py"
    assert (module["ran"], module["not_run"]) == (marked(path, "ran"), marked(path, "missed"))


@pytest.mark.slow
def test_modules_that_pytest_rewrites(folder: ProgramFolder) -> None:
    folder.write(
        test_it="""
        '''Its documentation.'''
        import torch

        def test_passing():
            x = torch.ones(1)
            assert x.cuda().numel() == 1 and x.cuda().sum() == 1  # ran
            assert all(x.cuda().numel() for _ in [1])  # ran
            assert x.cuda().numel() == 1 or x.cuda().sum() == 2  # missed

        def test_failing():
            x = torch.ones(1)
            assert x.cuda().numel() == 1 and x.cuda().tolist() == [2.0]  # ran

        def not_a_test():
            return torch.ones(1).cuda()  # missed
        """
    )
    done = folder.verify("-c", f"{sys.executable} -m pytest -q -p no:cacheprovider test_it.py || true")
    assert done.status == 0, (done.report, done.errors)
    (module,) = done.run["modules"]
    path = folder.path / "test_it.py"
    assert (module["ran"], module["not_run"]) == (marked(path, "ran"), marked(path, "missed"))
    assert "1 failed, 1 passed" in done.errors and "devicefix" not in done.errors
    assert "AssertionError: assert (1 == 1 and [1.0] == [2.0]\n" in done.errors, done.errors


def test_the_text_lists_what_did_not_run_on_demand(folder: ProgramFolder) -> None:
    folder.write(
        train="""
        import torch
        x = torch.ones(1).cuda()
        if x.numel() == 2:
            x = x.cuda()
            x = x.cuda()
        """,
        other="import torch\ndef f(x):\n    return x.cuda()\n",
    )
    done = folder.verify("--verbose", "train.py", text=True)
    assert done.status == 0, done.errors
    assert "fixes run      1 of 3 lines in 1 module; 1 module with 1 line was not imported" in done.output
    assert "train.py: 1 of 3 lines (not run: 4-5)" in done.output
    assert "other.py: not imported (not run: 3)" in done.output


@pytest.mark.slow
def test_runs_add_up_in_a_file(folder: ProgramFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write(
        net="""
        import torch
        def f(x):
            return x.cuda()
        def g(x):
            return x.cuda()
        """,
        train="import torch\nfrom net import f\nf(torch.ones(1))\n",
        test="import torch\nfrom net import g\ng(torch.ones(1).cuda())\n",
        broken="import torch\nfrom net import f, g\nf(g(torch.ones(1)))\n1 / 0\n",
    )
    (folder.path / "runs").mkdir()
    file = folder.path / "runs" / "all.json"
    option = ("--coverage-file", "runs/all.json")
    done = folder.verify(*option, "broken.py")
    assert done.status == 1 and not file.exists()
    assert done.run["warnings"] == ["runs/all.json: the run was not added, because it did not pass"]
    done = folder.verify(*option, "train.py")
    assert done.report["coverage"] == {
        "file": "runs/all.json", "ran": 1, "lines": 3, "modules": 2, "dropped": [],
    }  # fmt: skip
    (folder.path / "test.py").write_text("import torch\nfrom net import g\n\ng(torch.ones(1).cuda())\n")
    monkeypatch.chdir(folder.path)
    verify_in_forks(monkeypatch)
    cli, command = Cli(), ("verify", *option, "test.py")
    shown = cli(*command)
    assert shown.exit_code == 0, shown.stderr
    assert "in all runs    3 of 3 lines in 2 modules (runs/all.json)" in shown.stdout
    assert "older runs of ../test.py are dropped, because the file or its fixes have changed" in shown.stdout
    assert json.loads(file.read_text())["files"].keys() == {"../net.py", "../test.py"}
    made = cli("report", *option, "-o", "-")
    assert "<strong>3 of 3 fixes</strong> ran" in made.stdout, made.stderr
    (folder.path / "net.py").write_text("import torch\ndef g(x):\n    return x\n")  # needs no fix now
    shown = cli(*command)
    assert "in all runs    1 of 1 line in 1 module (runs/all.json)" in shown.stdout, shown.stderr
    file.write_text("[]")
    shown = cli(*command)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "runs/all.json: not a coverage file" in shown.stderr and "Traceback" not in shown.stderr


def test_notebooks_are_not_added(tmp_path: Path) -> None:
    module, notebook = str(tmp_path / "net.py"), str(tmp_path / "train.ipynb")
    changed = {path: Rewritten(path, b"new", [], [], b"old") for path in (module, notebook)}
    program = Program((), changed, notebook={"path": notebook})
    fixes = (Seen(3, 1, "DF101", (True,)),)
    run = Run(modules=[Module.of(path, True, fixes) for path in (module, notebook)])
    total = add(tmp_path / "runs.json", program, run)
    assert (total.ran, total.lines, total.modules) == (1, 1, 1)
    assert json.loads((tmp_path / "runs.json").read_text())["files"].keys() == {"net.py"}
