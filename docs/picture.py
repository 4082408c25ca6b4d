"""Record a terminal session as `docs/images/terminal.svg`: run `python docs/picture.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parent / "images" / "terminal.svg"
PROGRAM = """\
import torch
from model import Net

model = Net().cuda()
noise = torch.cuda.FloatTensor(16, 100).normal_()
"""
COMMANDS = (
    "devicefix check --output-format full train.py",
    "devicefix check --fix train.py",
)


def record(width: int = 104) -> str:
    """Return the commands and their output as an SVG image that loads no fonts.

    Args:
        width: the width of the terminal, in characters.
    """
    console = Console(record=True, width=width, file=StringIO(), color_system="truecolor")
    with TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(PROGRAM, encoding="utf-8")
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text.from_ansi(printed(command, folder)))
            console.print()
    svg = console.export_svg(title="devicefix", unique_id="devicefix")
    start, end = svg.index("@font-face"), svg.rindex("@font-face")
    return svg[:start] + svg[svg.index("}", end) + 1 :].lstrip()


def printed(command: str, folder: str) -> str:
    """Return the output of a command on a terminal with colors."""
    environment = {**os.environ, "FORCE_COLOR": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    words = [sys.executable, "-m", *command.split()]
    done = subprocess.run(words, check=False, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout.rstrip("\n")


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(record(), encoding="utf-8")
