"""The commands of a migration as tasks for `verify`: command lines, and notebooks to run cell by cell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from devicefix.config.printable import printable
from devicefix.files.discover import work_tree
from devicefix.files.kinds import NOTEBOOK
from devicefix.verify import environment
from devicefix.verify.runs import Task
from devicefix.verify.runtime import notebook as runtime
from devicefix.verify.startup import shell_command

_OUTER = re.compile(r"(?<![^\s=:;&|(])\.\./[^\s=:;&|()<>\"'$`\\*?]*")


def tasks(commands: Sequence[str], root: Path, common: Task) -> list[Task]:
    """Return a task for each command, which runs in a copy of the project.

    A command that names a notebook, such as `jupyter execute demo.ipynb`, runs the notebook without Jupyter,
    because a kernel would read the cells from the file itself, which is not rewritten yet.

    Args:
        commands: the command lines.
        root: the folder of the project, in which they run.
        common: the limits and options of every task.
    """
    folder = root.resolve()
    top = work_tree(folder) or folder
    common = replace(common, folder=folder, root=top, sources=(top,), scratch=True, silent=True)
    return [_task(command, common) for command in commands]


def shown(task: Task) -> str:
    """Return a task's command for a message."""
    what = task.notebook.name if task.notebook else task.command[-1]
    return f"`{printable(what)}`"


def _from_copy(command: str, folder: Path, top: Path) -> str:
    """Return a command with absolute paths for those that lead out of the project, as `../venv/bin/python`.

    The command runs in a copy of the project, which is in another folder.
    """

    def absolute(found: re.Match[str]) -> str:
        path = os.path.normpath(folder / found[0])
        outside = os.path.lexists(path) and not Path(path).is_relative_to(top)
        return shlex.quote(path) if outside else found[0]

    return command if os.name == "nt" else _OUTER.sub(absolute, command)


def _task(command: str, common: Task) -> Task:
    command = _from_copy(command, common.folder, common.root)
    words = _words(command)
    paths = (common.folder / word for word in words if word.endswith(NOTEBOOK))
    notebooks = [path for path in paths if path.is_file()]
    if not notebooks:
        return replace(common, command=shell_command(command))
    notebook = notebooks[0].resolve()
    python = _python(words) or environment.python_for(notebook.parent, common.root)
    words = [python, runtime.__file__, str(notebook)]
    return replace(common, command=words, folder=notebook.parent, notebook=notebook)


def _python(words: Sequence[str]) -> str:
    """Return the Python that a command names; empty if it names none."""
    named = (word for word in words if os.path.basename(word).startswith("python"))
    return next(filter(None, map(shutil.which, named)), "")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command, posix=os.name != "nt")
    except ValueError:  # the shell will report it
        return []
