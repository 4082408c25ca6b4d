"""Files whose syntax is newer than the Python that runs devicefix."""

from __future__ import annotations

import sys

import pytest
from helpers import Cli, ProjectFolder

RUNNING = sys.version_info[:2]
START = "import torch\n\nx = torch.ones(1).cuda()\n"


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ('print(f"{a["x"]}")', (3, 12)),
        ("print(f'{a['x']}')", (3, 12)),
        ("print(f\"{'\\n'.join(a)}\")", (3, 12)),
        ("type Device = str", (3, 12)),
        ("def first[T](x: list[T]) -> T:\n    return x[0]", (3, 12)),
        ("class Box[T = int]:\n    pass", (3, 13)),
        ('y = t"{x}"', (3, 14)),
    ],
)
def test_the_message_names_the_python_to_run(
    cli: Cli, project: ProjectFolder, code: str, needed: tuple[int, int]
) -> None:
    project.write({"a.py": f"{START}{code}\n"})
    done = cli("check", "--output-format", "concise", "a.py")
    if needed <= RUNNING:
        assert "DF901" not in done.stdout
        assert "DF101" in done.stdout
        return
    version, running = (".".join(map(str, each)) for each in (needed, RUNNING))
    (line, *_) = done.stdout.splitlines()
    assert "DF901" in line
    assert f"it uses Python {version} syntax, but devicefix runs on Python {running}" in line
    assert f"`uvx --python {version} devicefix`" in line


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print 'x'", "this is Python 2"),
        ("try:\n    pass\nexcept A, e:\n    pass", "this is Python 2" if RUNNING < (3, 14) else ""),
        ("x = (1", "was never closed"),
        ("type = = 1", "invalid syntax"),
        ('print f"{a}"', "this is Python 2"),
    ],
)
def test_other_mistakes_keep_their_message(cli: Cli, project: ProjectFolder, code: str, words: str) -> None:
    project.write({"a.py": f"{START}{code}\n"})
    shown = cli("check", "--output-format", "concise", "a.py").stdout
    assert words in shown
    assert "it uses Python" not in shown
