"""Programs that overwrite their own files, and errors, which show the lines of the user."""

from __future__ import annotations

from running import ProgramFolder

MODULE = """
import torch
x = torch.ones(2).cuda()
print("sum", x.sum().item())
"""


def test_a_module_that_the_program_has_overwritten_runs_as_it_is(folder: ProgramFolder) -> None:
    folder.write(
        part=MODULE,
        train="open('part.py', 'w').write('value = 1')\nimport part\nassert part.value == 1\n",
    )
    done = folder.verify("--scratch", "train.py", process=True)
    assert done.status == 0, (done.report, done.errors)


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
