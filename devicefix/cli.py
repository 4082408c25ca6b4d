"""The command line: parse the arguments, call, print."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix import __version__
from devicefix.config import ConfigError, Settings, nearest
from devicefix.options import (
    STDIN,
    TROUBLE,
    Trouble,
    common,
    common_folder,
    complete_codes,
    settings_for,
    unsafe_option,
)
from devicefix.verify.command import limit_options, verify

if TYPE_CHECKING:
    from devicefix.outcome import Outcome
    from devicefix.writing import Change

CLEAN, FINDINGS, INTERRUPTED = 0, 1, 130

EPILOG = """\
Exit status: 0 nothing is left to do, 1 findings remain, 2 devicefix could not do its work.

Settings are read from [tool.devicefix] in the nearest pyproject.toml: select, ignore, exclude,
unsafe-fixes, jobs, verbose, quiet, config-files, target, torch-version. An option on the command line
takes the place of its key.

\b
Completion, in the start-up file of the shell:
  bash  eval "$(_DEVICEFIX_COMPLETE=bash_source devicefix)"
  zsh   eval "$(_DEVICEFIX_COMPLETE=zsh_source devicefix)"
  fish  _DEVICEFIX_COMPLETE=fish_source devicefix | source
"""


class Program(click.Group):
    """A group of commands that ends quietly on Ctrl-C, and in no case with a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that the arguments name."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # what the terminal has no letters for
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except ConfigError as problem:
            raise Trouble(str(problem)) from None
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno == errno.EPIPE:
                raise  # who reads has seen enough; click ends the program
            from devicefix.runner import internal_error

            raise Trouble(internal_error(problem)) from None


@click.group(cls=Program, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="devicefix")
def main() -> None:
    """Find code tied to CUDA in PyTorch programs, and rewrite it to run on any device."""


main.add_command(verify)


@main.command(short_help="Find the ties to CUDA in files.")
@common
@click.pass_context
def check(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    config_file: Path | None,
    stdin_filename: str | None,
    exit_zero: bool,
    **given: Any,
) -> None:
    """Find the ties to CUDA in PATHS: files, folders, or - for the standard input.

    Prints a line for each finding, with [*] where a safe fix exists.
    """
    from devicefix.report import concise, summary

    settings = settings_for(paths, config_file, stdin_filename, given)
    outcomes, failed = look(paths, stdin_filename, settings)
    results = [outcome.result for outcome in outcomes]
    for result in results:
        for finding in result.findings:
            click.echo(concise.line(result.path, finding))
    if not settings.quiet:
        click.echo(summary.checked(results, failed))
    ctx.exit(status(failed, not exit_zero and any(result.findings for result in results)))


@main.command(short_help="Rewrite files, or print what would change.")
@common
@click.option("--in-place", "-i", is_flag=True, help="Write the files rather than print a patch.")
@click.option("--diff", is_flag=True, help="Print the patch, also with --in-place or -.")
@unsafe_option
@click.option(
    "--verify",
    "verification",
    metavar="COMMAND",
    help="With --in-place: run this first, as `devicefix verify -c`, and write only if it passes.",
)
@limit_options
@click.option(
    "--require-clean", is_flag=True, help="With --in-place: only write files that are committed in git."
)
@click.pass_context
def rewrite(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    config_file: Path | None,
    stdin_filename: str | None,
    in_place: bool,
    diff: bool,
    exit_zero: bool,
    verification: str | None,
    timeout: float,
    memory: int | None,
    steps: int | None,
    require_clean: bool,
    **given: Any,
) -> None:
    """Rewrite PATHS to run on any device: files, folders, or - for the standard input.

    Prints a patch for `git apply` and writes nothing, unless told --in-place. What comes from the
    standard input goes to the standard output.
    """
    from devicefix.report import summary

    if STDIN in paths and in_place:
        raise click.UsageError("the standard input (-) is no file to write --in-place")
    for option, wanted in (("--verify", verification is not None), ("--require-clean", require_clean)):
        if wanted and not in_place:
            raise click.UsageError(f"{option} goes with --in-place")
    settings = replace(settings_for(paths, config_file, stdin_filename, given), fix=True)
    outcomes, failed = look(paths, stdin_filename, settings)
    piped = STDIN in paths and not diff
    if piped:
        for outcome in outcomes:
            click.echo(outcome.result.output or outcome.before, nl=False)
    elif diff or not in_place:
        print_patch(outcomes, common_folder(paths))
    if in_place:
        warn_of(outcomes, require_clean)
    if in_place and verification is not None:
        written_if_verified(outcomes, verification, settings, (timeout, memory, steps))
    elif in_place:
        unwritten = write(outcomes)
        failed += len(unwritten)
        outcomes = [outcome for outcome in outcomes if outcome.path not in unwritten]
    if in_place or piped:
        tell(outcomes, settings, err=piped)
    results = [outcome.result for outcome in outcomes]
    if not settings.quiet:
        click.echo(summary.rewritten(results, failed, written=in_place or piped), err=not in_place)
    pending = not (in_place or piped) and any(result.output is not None for result in results)
    left = pending or any(result.remaining for result in results)
    ctx.exit(status(failed, left and not exit_zero))


@main.command()
def rules() -> None:
    """List the rules: the code, the name, and what each finds."""
    from devicefix.rules import RULES

    width = max((len(rule.name) for rule in RULES.values()), default=0)
    for code, rule in sorted(RULES.items()):
        off = "" if rule.default else " (off by default)"
        if "cuda" not in rule.targets:
            off = " (with --target accelerator)"
        click.echo(f"{click.style(code, bold=True)}  {rule.name:{width}}  {rule.summary}{off}")


@main.command()
@click.argument("code", shell_complete=complete_codes)
def explain(code: str) -> None:
    """Print the documentation of the rule with this CODE or name."""
    from inspect import cleandoc

    from devicefix.rules import RULES

    known = {name.lower(): rule for rule in RULES.values() for name in (rule.code, rule.name)}
    rule = known.get(code.lower())
    if rule is None:
        raise click.BadParameter(f"no rule has the code or name {code!r}{nearest(code.lower(), known)}")
    text = f"# {rule.name} ({rule.code})\n\n{cleandoc(rule.__doc__ or rule.summary)}\n"
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        click.echo(text, nl=False)


def look(
    paths: tuple[Path, ...], stdin_filename: str | None, settings: Settings
) -> tuple[list[Outcome], int]:
    """Look at what the paths name, and complain of what cannot be looked at.

    Returns:
        What became of each file that was looked at, and how many could not be.
    """
    from devicefix import runner

    trouble: list[OSError] = []
    runner.collect_less()
    if STDIN not in paths:
        outcomes = runner.run(listed(paths, settings, trouble), settings)
    elif len(paths) > 1:
        raise click.UsageError("the standard input (-) does not go together with other paths")
    else:
        data = sys.stdin.buffer.read()
        outcomes = [runner.run_one(data, stdin_filename or "-", settings)]
    for problem in trouble:
        complain(str(problem.filename), problem.strerror or str(problem))
    for outcome in outcomes:
        if outcome.error:
            complain(outcome.path, outcome.error)
    sound = [outcome for outcome in outcomes if not outcome.error]
    return sound, len(trouble) + len(outcomes) - len(sound)


def listed(paths: tuple[Path, ...], settings: Settings, trouble: list[OSError]) -> list[Path]:
    """The files that the paths name; what cannot be read of them goes into `trouble`."""
    from devicefix import files
    from devicefix.beside import is_beside
    from devicefix.report.concise import printable

    def wanted(path: str) -> bool:
        return files.is_python(path) or (settings.config_files and is_beside(path))

    try:
        found = files.find(paths, settings.exclude, settings.root, trouble.append, wanted)
    except ValueError as problem:
        raise Trouble(f"exclude: {problem}") from None
    if settings.verbose:
        for file in found:
            click.echo(printable(str(file)), err=True)
    if not found:
        click.echo(f"Warning: no {'' if settings.config_files else 'Python '}files found", err=True)
    return found


def changes_of(outcomes: Iterable[Outcome]) -> list[Change]:
    """What is to be written."""
    from devicefix.writing import Change

    return [
        Change(outcome.path, outcome.before, outcome.result.output)
        for outcome in outcomes
        if outcome.result.output is not None
    ]


def warn_of(outcomes: Iterable[Outcome], require_clean: bool) -> None:
    """Tell which files can't be had back from git, or end the program; and which have other names."""
    from devicefix import worktree, writing

    changes = changes_of(outcomes)
    dirty, outside = worktree.uncommitted(changes)
    if require_clean and (unsafe := dirty + outside):
        raise Trouble(f"nothing was written: {some(unsafe)} not committed in git (--require-clean)")
    if dirty:
        click.echo(f"Warning: {some(dirty)} not committed in git", err=True)
    for change in changes:
        if writing.other_names(change.path):
            warn(change.path, "it has other names (hard links), which keep the old content")


def some(paths: list[str]) -> str:
    """Some paths as the subject of a sentence."""
    from devicefix.report.concise import printable

    names = ", ".join(map(printable, paths[:3])) + (", …" if len(paths) > 3 else "")
    return f"{len(paths)} files ({names}) are" if len(paths) > 1 else f"1 file ({names}) is"


def write(outcomes: Iterable[Outcome]) -> set[str]:
    """Write the new sources of files; tell which can't be written, and return them."""
    from devicefix import writing

    unwritten: set[str] = set()

    def onerror(path: str, problem: OSError) -> None:
        complain(path, problem.strerror or str(problem))
        unwritten.add(path)

    writing.write_each(changes_of(outcomes), onerror)
    return unwritten


def written_if_verified(
    outcomes: Iterable[Outcome],
    command: str,
    settings: Settings,
    limits: tuple[float, int | None, int | None],
) -> None:
    """Write the new sources, all of them together, if a command passes with them; end the program if not.

    The command runs before anything is written, so that there is nothing to restore, whenever it ends.
    """
    from devicefix import commit
    from devicefix.verify.command import STATUSES, perform_for, show

    changed = [outcome for outcome in outcomes if outcome.result.output is not None]
    if not changed:
        return
    try:
        report, passed = perform_for(changed, command, settings, *limits)
    except KeyboardInterrupt:
        click.echo("Interrupted. Nothing was written: all files are as they were.", err=True)
        raise
    show(report)
    if not passed:
        click.echo("Nothing was written: all files are as they were.")
        click.get_current_context().exit(STATUSES[report.verdict.value])
    try:
        commit.commit(changes_of(changed))
    except commit.CommitError as problem:
        raise Trouble(f"{problem}\nNothing was written: all files are as they were.") from None


def print_patch(outcomes: Iterable[Outcome], folder: Path) -> None:
    """Print what would change below a folder, as a patch.

    As in git's own patches, paths are relative to the top of the work tree, wherever in it the patch
    is made and applied. Without git they are relative to the current folder, and for files outside of
    it to `folder`.
    """
    from devicefix.files import work_tree
    from devicefix.report import diff

    here = Path.cwd()
    folder = folder.resolve()
    top = work_tree(folder) or (here if folder.is_relative_to(here) else folder)
    colour = sys.stdout.isatty() and click.get_current_context().color is not False
    for outcome in outcomes:
        if outcome.result.output is not None:
            name = os.path.relpath(os.path.realpath(outcome.path), top)
            patch = diff.unified(name, outcome.before, outcome.result.output)
            click.echo(diff.coloured(patch) if colour else patch, nl=False)


def tell(outcomes: Iterable[Outcome], settings: Settings, err: bool) -> None:
    """Print what was fixed and what remains."""
    from devicefix.report import concise

    for outcome in outcomes:
        if not settings.quiet:
            for finding in outcome.result.fixed:
                click.echo(concise.fixed(outcome.path, finding), err=err)
        for finding in outcome.result.remaining:
            click.echo(concise.remaining(outcome.path, finding), err=err)


def complain(path: str, problem: str) -> None:
    """Print what is wrong with a file."""
    from devicefix.report.concise import printable

    click.echo(f"{printable(path)}: {click.style('error:', fg='red')} {printable(problem)}", err=True)


def warn(path: str, problem: str) -> None:
    """Print what is odd about a file."""
    from devicefix.report.concise import printable

    click.echo(f"{printable(path)}: {click.style('warning:', fg='yellow')} {printable(problem)}", err=True)


def status(failed: int, findings: bool) -> int:
    """The exit status."""
    return TROUBLE if failed else FINDINGS if findings else CLEAN
