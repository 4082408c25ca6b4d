"""Exit statuses, and how errors and warnings are printed."""

from __future__ import annotations

from collections.abc import Sequence

import click

from devicefix.config.printable import printable, printable_path
from devicefix.report.wording import count

CLEAN, FINDINGS, ERROR, INTERRUPTED = 0, 1, 2, 130
UNCHANGED = "Nothing was written; all files are unchanged."


class CommandError(click.ClickException):
    """An error that ends the run, printed on one line.

    Args:
        message: what is wrong, and what to do.
        more: another line, which needs no escapes.
    """

    exit_code = ERROR

    def __init__(self, message: str, more: str = "") -> None:
        super().__init__("\n".join(filter(None, (printable(message), more))))


def os_error(path: object, error: OSError) -> CommandError:
    """Return the error that ends the run because the system refuses an operation on a path."""
    return CommandError(f"{path}: {error.strerror or error}")


def missing_package(feature: str, package: str | None, extra: str, otherwise: str = "") -> CommandError:
    """Return the error that ends the run because an optional package is not installed.

    Args:
        feature: the command or option that needs the package.
        package: the name of the missing package.
        extra: the extra of devicefix that installs it.
        otherwise: what else to do.
    """
    from devicefix.config.installation import install_command

    return CommandError(f"{feature} needs {package}: {install_command(extra)}{otherwise}")


def print_error(path: str, message: str) -> None:
    """Print an error about a file."""
    _print(printable_path(path), click.style("error:", fg="red"), message)


def print_warning(path: str, message: str) -> None:
    """Print a warning about a file."""
    _print(printable_path(path), click.style("warning:", fg="yellow"), message)


def _print(where: str, kind: str, message: str) -> None:
    click.echo(f"{where}: {kind} {printable(message)}", err=True)


def some(paths: Sequence[str]) -> str:
    """Return the number of files and the first of them."""
    names = ", ".join(map(printable, paths[:3])) + (", …" if len(paths) > 3 else "")
    return f"{count(len(paths), 'file')} ({names})"


def written() -> str:
    """Return what an interrupted run has written."""
    from devicefix.files.write import DONE

    return f"{count(len(DONE), 'file')} written; all others are unchanged." if DONE else UNCHANGED


def exit_status(failed: int, findings: bool) -> int:
    """Return the exit status of a run.

    Args:
        failed: the number of files that could not be checked or written.
        findings: whether findings remain.
    """
    if failed:
        return ERROR
    return FINDINGS if findings else CLEAN
