"""Programs that read and write Python files: they read the rewritten text, and run what they have written."""

from __future__ import annotations

import pytest
from running import ProgramFolder

from devicefix.verify.compare.unmapped import numbers, renumbered

MODULE = """
import torch
x = torch.ones(2).cuda()
print("sum", x.sum().item())
"""

READERS = {
    "exec": "exec(open('part.py').read())",
    "exec of bytes": "with open('part.py', 'rb') as f: exec(compile(f.read(), '<part>', 'exec'))",
    "io.open": "import io\nexec(io.open('part.py', encoding='utf-8').read())",
    "a path": "from pathlib import Path\nexec(Path('part.py').read_text())",
    "an attribute of a class": "class Files:\n    open = open\nexec(Files().open('part.py').read())",
    "a copy": "import shutil\nshutil.copy('part.py', 'copy_of_part.py')\nimport copy_of_part",
    "a script that is derived": (
        "import runpy\ntext = open('part.py').read().replace('ones(2)', 'ones(3)')\n"
        "with open('small.py', 'w') as f: f.write(text)\nrunpy.run_path('small.py')"
    ),
    "a subprocess": (
        "import subprocess, sys\nopen('small.py', 'w').write(open('part.py').read())\n"
        "subprocess.run([sys.executable, 'small.py'], check=True)"
    ),
}


@pytest.mark.parametrize("how", READERS)
def test_a_program_reads_the_rewritten_text(how: str, folder: ProgramFolder) -> None:
    folder.write(part=MODULE, train=READERS[how])
    done = folder.verify("--scratch", "train.py")
    assert done.status == 0, (done.report, done.errors)
    assert "sum " in done.errors


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exec", "a script that is derived", "a subprocess"])
def test_lines_of_code_that_a_program_makes_of_its_own_are_compared(how: str, folder: ProgramFolder) -> None:
    folder.write(part=MODULE, train=READERS[how])
    done = folder.verify("--compare", "train.py", process=True)
    assert done.status == 0, (done.report, done.errors)
    assert done.report["comparison"]["compared"] == 1


def test_open_is_otherwise_the_same(folder: ProgramFolder) -> None:
    folder.write(
        part=MODULE,
        train="""
        import os, pickle
        with open('part.py') as file:
            assert file.name == 'part.py'
            assert 'is_available' in file.read()
        assert '.cuda()' in open('part.py', opener=os.open).read()
        descriptor = os.open('part.py', os.O_RDONLY)
        assert '.cuda()' in open(descriptor).read()
        assert pickle.loads(pickle.dumps(open)) is open
        assert open.__name__ == 'open'
        with open('new.txt', 'w') as file:
            file.write('text')
        assert open(b'new.txt', 'rb').read() == b'text'
        try:
            open('missing.py')
        except FileNotFoundError as problem:
            assert problem.filename == 'missing.py'
        """,
    )
    done = folder.verify("--scratch", "train.py", process=True)
    assert done.status == 0, (done.report, done.errors)


def test_a_module_that_the_program_has_overwritten_runs_as_it_is(folder: ProgramFolder) -> None:
    folder.write(
        part=MODULE,
        train="open('part.py', 'w').write('value = 1')\nimport part\nassert part.value == 1\n",
    )
    done = folder.verify("--scratch", "train.py", process=True)
    assert done.status == 0, (done.report, done.errors)


def test_a_tie_in_a_file_that_the_program_writes_is_reported_as_such(folder: ProgramFolder) -> None:
    folder.write(
        train="""
        text = 'import torch\\nx = torch.ones(2).cu' + 'da()\\n'
        with open('made.py', 'w') as file:
            file.write(text)
        import made
        """
    )
    done = folder.verify("--scratch", "train.py", process=True)
    assert (done.status, done.report["explanation"]["cause"]) == (1, "tie-left")
    assert "the program writes made.py while it runs" in str(done.report["explanation"]["evidence"])
    text = folder.verify("--scratch", "train.py", text=True, process=True)
    assert "made.py:2 in <module>: x = torch.ones(2).cuda()" in text.output


def test_the_summary_names_modules_that_the_program_has_written(folder: ProgramFolder) -> None:
    folder.write(part=MODULE, train=READERS["a script that is derived"])
    done = folder.verify("--scratch", "train.py", text=True, process=True)
    assert "not rewritten  small.py was written and run by the program" in done.output


def test_errors_show_the_lines_of_the_user(folder: ProgramFolder) -> None:
    folder.write(
        train="""
        import sys, torch
        x = torch.ones(2).cuda()
        try:
            [].pop()  # the first
        except IndexError:
            sys.__excepthook__(*sys.exc_info())
        {}.popitem()  # the second
        """
    )
    done = folder.verify("train.py", process=True)
    assert done.status == 1
    assert "[].pop()  # the first" in done.errors
    assert "{}.popitem()  # the second" in done.errors


def test_lines_without_a_mapping_are_numbered_in_their_order() -> None:
    def seen(*lines: int) -> list[dict[str, object]]:
        written: dict[str, object] = {"kind": "written", "file": "small.py", "text": ""}
        return [written, *({"kind": "seen", "file": "small.py", "line": line} for line in lines)]

    one, other = seen(3, 9, 3), seen(6, 14, 6)
    assert renumbered(other, numbers(one, other)) == one
    assert numbers(one, seen(6)) == {}  # a line is missing
    assert numbers(one[1:], other[1:]) == {}  # a file of the user, whose lines are mapped
