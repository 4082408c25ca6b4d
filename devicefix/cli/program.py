"""The program that a command runs: its script or module, its Python and its folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from devicefix.cli.options import together

# The options that say how to find the modules and the Python of a program.
program_options = together(
    click.option(
        "--source",
        "sources",
        multiple=True,
        type=click.Path(exists=True, path_type=Path),
        help="Rewrite this file or folder. [default: the program's folder or repository]",
    ),
    click.option(
        "--python",
        help="The Python interpreter to use. [default: the one in the program's environment if it has torch,"
        " else devicefix's own]",
    ),
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run.

    Attributes:
        command: the words of the command.
        python: the Python that runs it; empty for a command line.
        root: the folder that holds its modules.
        folder: the folder to run it in.
        notebook: the notebook that it runs, or None.
    """

    command: list[str]
    python: str
    root: Path
    folder: Path
    notebook: Path | None

    @classmethod
    def of(
        cls,
        program: str,
        arguments: tuple[str, ...],
        *,
        as_module: bool,
        as_command: bool = False,
        python: str | None,
    ) -> Program:
        """Find the program that the command line names.

        Args:
            program: a script, notebook or folder, the name of a module, or a command line.
            arguments: the arguments of the program.
            as_module: whether `program` is a module.
            as_command: whether `program` is a command line that starts Python.
            python: the Python to run it; None for that of its environment.

        Raises:
            UsageError: the script does not exist.
        """
        from devicefix.files.discover import root_of
        from devicefix.verify import environment
        from devicefix.verify.startup import shell_command

        script = None if as_module or as_command else _script(program)
        notebook = script.resolve() if script is not None and script.suffix == ".ipynb" else None
        beside = Path.cwd() if script is None else script.resolve().parent
        root = root_of(beside)
        folder = Path.cwd() if notebook is None else notebook.parent
        if as_command:
            return cls(shell_command(program, arguments), "", root, folder, notebook)
        python = python or environment.python_for(beside, root)
        words = ["-m", program] if script is None else [str(script)]
        if notebook is not None:
            from devicefix.verify.runtime import notebook as runner

            words = [runner.__file__, str(notebook)]
        return cls([python, *words, *arguments], python, root, folder, notebook)


def _script(program: str) -> Path:
    """Return the file that a script or a folder with a `__main__.py` runs.

    Raises:
        UsageError: the file does not exist.
    """
    path = Path(program)
    if path.is_dir() and (path / "__main__.py").is_file():
        return path / "__main__.py"
    if not path.is_file():
        hint = "use -m for a module" + (" or -c for a command line" if _takes_command() else "")
        raise click.UsageError(f"{program}: no such file; {hint}")
    return path


def _takes_command() -> bool:
    command = click.get_current_context().command
    return any("-c" in parameter.opts for parameter in command.params)
