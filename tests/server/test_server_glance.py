"""Findings that move with their lines while somebody types are those of a check of the whole text."""

from __future__ import annotations

import re
from random import Random

import pytest

from devicefix.config.settings import Settings
from devicefix.facts.project import Project
from devicefix.server.glance import glance
from devicefix.server.inspect import Inspection, inspect

PROGRAM = '''\
"""A program."""
import os
import torch
from torch import nn

# the beginning

LIMIT = [
    1,

    2,
]


class Net(nn.Module):
    """A network.

    # not a comment
    """

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width)])

    @staticmethod
    def shape(
        rows,  # first

        columns,
    ):
        names = []
        for row in range(rows):
            # each row
            names.append(f"{row}, é")

            if row % 2:
                print(names, columns)
        return names

    def train_on(self, batches):
        for inputs in batches:
            print(inputs)
            # move it
            inputs = inputs.cuda()

            yield self.layers[0](inputs)


def describe(epoch, history):
    """Describe an epoch."""
    total = 0
    for value in history:
        total += value

    text = """
# part of a string

"""
    print(text, epoch, \\
          total)
    return total


async def rest(time):
    await time

weights = torch.load("last.pt")  # from the start
noise = torch.randn(16, device="cuda")


try:
    torch.cuda.synchronize()
# what happens otherwise
except RuntimeError:
    print("no")

if not torch.cuda.is_available():
    raise SystemExit("needs CUDA, as line 3 says")
'''


def checked(text: str) -> Inspection:
    return inspect("program.py", text, Settings(), Project)


KNOWN = checked(PROGRAM)
IN_FUNCTION = PROGRAM.replace("total = 0\n", "total = 0\n    mean = total / 2\n")


def random_change(random: Random, text: str) -> str:
    """Return a text with a line changed, inserted or removed, as people type it, and perhaps another one."""
    lines = text.split("\n")
    at = random.randrange(len(lines))
    line = lines[at]
    indentation = line[: len(line) - len(line.lstrip())]
    words = re.findall(r"\w+", line)
    names = ("rows", "epoch", "value", "x1", "print", "torch", "self", "cuda", "é")
    code = (
        "pass",
        "# why",
        "",
        "x = 1",
        "x = (",
        "'''",
        "\\",
        "y = f(3)",
        "return",
        "else:",
        "# noqa",
        "def g():",
    )
    match random.randrange(6):
        case 0 if words:
            lines[at] = line.replace(random.choice(words), random.choice(names), 1)
        case 1:
            del lines[at]
        case 2:
            lines.insert(at, line)
        case 3:
            lines[at] += random.choice((" ", "  # why", "\r", "\f", ")", " \\", "1"))
        case _:
            lines.insert(at, f"{random.choice(('', indentation, indentation, '    '))}{random.choice(code)}")
    changed = "\n".join(lines)
    return random_change(random, changed) if random.random() < 0.2 else changed


@pytest.mark.parametrize("seed", range(10))
def test_a_glance_finds_what_a_check_finds(seed: int) -> None:
    """Positions, messages and safety are equal, of random changes of a text that is checked now and then."""
    random = Random(seed)
    known, answered = KNOWN, 0
    for _ in range(100):
        text = random_change(random, known.text)
        found = glance(known, text)
        if found is not None:
            answered += 1
            assert found == [finding.portable() for finding in checked(text).findings], text
            if random.random() < 0.3:
                known = checked(text)
    assert answered > 10


@pytest.mark.parametrize(
    "text",
    [
        PROGRAM.replace("# the beginning", "# the\n\n# end"),
        PROGRAM.replace("            # move it\n", "            # it\n\n"),
        PROGRAM.replace("\n\n            yield", "\n            yield"),
        PROGRAM.replace("# what happens otherwise", ""),
        PROGRAM.replace("# each row", "# every one"),
        PROGRAM.replace("if row % 2:", "if row % 3 and columns:"),
        PROGRAM.replace("# part of a string", "# or not"),
        PROGRAM.replace("return total\n", "return total\n    print(1)\n"),
        PROGRAM.replace("return total\n\n", "return total\n\n    print(1)\n"),
        IN_FUNCTION,
    ],
)
def test_a_glance_is_enough(text: str) -> None:
    assert glance(KNOWN, text) == [finding.portable() for finding in checked(text).findings]


@pytest.mark.parametrize(
    "text",
    [
        PROGRAM,
        PROGRAM.replace("# the beginning", "# torch.cuda"),
        PROGRAM.replace("# the beginning", "# devicefix: skip-file"),
        PROGRAM.replace("# move it", "# noqa: DF101"),
        PROGRAM.replace("total = 0\n", "total = 0  # noqa\n"),
        PROGRAM.replace("    1,\n\n", "    1,\n\n\n"),  # inside a statement
        PROGRAM.replace("    # not a comment\n", ""),
        PROGRAM.replace("# first\n\n", "# first\n"),
        PROGRAM.replace("inputs = inputs.cuda()", "inputs = inputs. cuda()"),
        PROGRAM.replace("yield self", "yield 1, self"),  # in a function with a tie
        PROGRAM.replace("value in history", "value in history.to(3)"),
        PROGRAM.replace("def describe(epoch, ", "def describe("),
        PROGRAM.replace("total = 0\n", "total = 0\n    global LIMIT\n"),
        PROGRAM.replace("total = 0\n", "total = 0\n    history.last = 1\n"),
        PROGRAM.replace("total = 0\n", "total = 0\n    import json\n"),
        PROGRAM.replace("total = 0\n", "total = (0\n"),
        PROGRAM.replace("    total = 0\n", "  total = 0\n"),
        PROGRAM.replace("return total\n", "return total\nprint(1)\n"),
        PROGRAM.replace("LIMIT = [", "LIMITS = ["),
        PROGRAM.replace("# what happens otherwise\n", "\\\n"),
    ],
)
def test_a_glance_is_not_enough(text: str) -> None:
    assert glance(KNOWN, text) is None


def test_lines_that_may_declare_the_encoding_are_checked() -> None:
    known = checked("# a program\n# in UTF-8\n\nimport torch\n\nx = torch.ones(1).cuda()\n")
    assert glance(known, known.text.replace("in UTF-8", "coding: latin-1")) is None


def test_a_line_that_a_backslash_continues_is_checked() -> None:
    known = checked("import torch\n\nx = torch.ones(1).cuda()\ny = 1 \\\n\nz = 2\n")
    assert known.findings and glance(known, known.text.replace("\\\n", "\\\n# one\n")) is None


def test_a_file_that_does_not_parse_is_checked() -> None:
    broken = checked("import torch\n\n\nx = torch.ones(1).cuda(\n# end\n")
    assert glance(broken, f"{broken.text}# of it\n") is None


def test_a_comment_in_fixed_code_is_checked() -> None:
    """It may be lost, and then there is no fix."""
    known = checked("import torch\n\n\nx = (\n    torch.ones(1)\n    .cuda()\n)\n")
    assert known.findings and glance(known, known.text.replace("    .cuda", "    # why\n    .cuda")) is None
    code = "use = torch.cuda.is_available()\nif use:\n    x = x.cuda()\n\n    y = y.cuda()\n"
    known = checked(f"import torch\n\n{code}")
    assert known.findings and glance(known, known.text.replace("\n\n    y", "\n    # why\n    y")) is None
