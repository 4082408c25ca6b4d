"""`devicefix check`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli import baseline, noqa, options
from devicefix.cli.changes import changes_of, check_changes, print_changes, write_changes
from devicefix.cli.diff_base import changes_since, diff_base_option, hide_unchanged
from devicefix.cli.errors import exit_status
from devicefix.cli.help import GroupedCommand
from devicefix.cli.inputs import check_paths, listed
from devicefix.cli.output import Output
from devicefix.config.printable import printable_path
from devicefix.config.resolver import Resolver
from devicefix.config.settings import Settings
from devicefix.report.totals import Totals

if TYPE_CHECKING:
    from devicefix.model import Outcome

# The options that make or show fixes, and the others that do something else than report.
FIXING = ("--diff", "--fix-only", "--fix")
OTHERS = ("--write-baseline", "--add-noqa")


def _address(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"dask://([\w.-]+|\[[\da-fA-F:.]+\]):\d+", value):
        raise click.BadParameter("must be dask://HOST:PORT, the address of a dask scheduler")
    return value


@click.command(
    cls=GroupedCommand,
    first=(
        "fix", "diff", "unsafe-fixes", "select", "ignore", "exclude", "target", "baseline", "diff-base",
        "output-format",
    ),
    short_help="Find code that is tied to CUDA.",
)  # fmt: skip
@click.option("--fix", is_flag=True, help="Apply fixes, and report the remaining findings.")
@options.unsafe_option
@click.option(
    "--fix-only",
    is_flag=True,
    help="Apply fixes, but do not report remaining findings or exit non-zero for them.",
)
@click.option(
    "--diff",
    is_flag=True,
    help="Show the fixes as a diff instead of applying them, and exit with status 1 if there are any.",
)
@click.option("--watch", "-w", is_flag=True, help="Check again whenever files change.")
@click.option(
    "--exit-non-zero-on-fix",
    is_flag=True,
    help="Exit with status 1 if anything was fixed, even if no findings remain.",
)
@options.common_options
@click.option("--show-files", is_flag=True, help="List the files that would be checked, and exit.")
@options.option("output-format")
@click.option(
    "--output-file",
    "-o",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    envvar="DEVICEFIX_OUTPUT_FILE",
    help="Write the findings to this file.",
)
@click.option(
    "--unfixed",
    is_flag=True,
    help="Show only the findings that --fix does not fix.",
)
@click.option("--statistics", is_flag=True, help="Show only the number of findings for each rule.")
@click.option(
    "--group-by",
    type=click.Choice(["folder", "file"]),
    help="Show only the number of findings for each folder or file.",
)
@options.baseline_option
@click.option("--write-baseline", is_flag=True, help="Write all findings to the baseline file.")
@click.option("--add-noqa", is_flag=True, help="Add `noqa` comments that suppress the current findings.")
@diff_base_option
@click.option(
    "--executor",
    metavar="dask://HOST:PORT",
    callback=_address,
    help="Run the checks on the Dask cluster at this address.",
)
@click.pass_context
def check(
    ctx: click.Context,
    /,
    *,
    paths: tuple[Path, ...],
    stdin_filename: str | None,
    exit_zero: bool,
    output_file: Path | None,
    unfixed: bool,
    statistics: bool,
    group_by: str | None,
    write_baseline: bool,
    add_noqa: bool,
    diff_base: str | None,
    watch: bool,
    show_files: bool,
    fix: bool,
    fix_only: bool,
    diff: bool,
    exit_non_zero_on_fix: bool,
    **given: Any,
) -> None:
    """Find code in PATHS that is tied to CUDA.

    PATHS are files or folders, or `-` for standard input. [default: the current folder]

    In the output, [*] marks the findings that --fix fixes.
    """
    flags = zip(FIXING + OTHERS, (diff, fix_only, fix, write_baseline, add_noqa), strict=True)
    kinds = [flag for flag, is_given in flags if is_given]
    kind = kinds[0] if kinds else None

    def configured() -> Resolver:
        return options.resolver_for(paths, stdin_filename, given)

    def report(resolver: Resolver) -> int:
        output = Output.of(resolver.root, output_file, group_by or ("rule" if statistics else None))
        if kind in FIXING:
            totals = _fix(kind, paths, stdin_filename, resolver, output)
            remaining = bool(totals.remaining) and kind == "--fix"
            fixed = bool(totals.fixed) and (kind == "--diff" or exit_non_zero_on_fix)
            return exit_status(totals.failed, (remaining or fixed) and not exit_zero)
        if kind is None:
            resolver = resolver.changed(replacements=output.needs_fixes)
        changes = changes_since(diff_base, paths, stdin_filename)
        checked = check_paths(paths, stdin_filename, resolver)
        failed = len(checked.failed)
        if write_baseline:
            baseline.write(checked, paths)
            return exit_status(failed, findings=False)
        checked = hide_unchanged(baseline.hide_known(checked, paths), changes)
        totals = replace(Totals.of(checked.outcomes, failed, resolver), of_lines=changes is not None)
        if unfixed:
            checked = checked.unfixed()
            totals = Totals.of(checked.outcomes, failed, resolver).hiding(totals)
        if add_noqa:
            return exit_status(failed, noqa.add(checked) and not exit_zero)
        output.print(checked, totals)
        return exit_status(failed, bool(totals.remaining) and not exit_zero)

    resolver = configured()
    if show_files:
        files = listed(paths, stdin_filename, resolver)
        click.echo("".join(f"{printable_path(str(file))}\n" for file in files), nl=False)
        return
    _check_usage(kinds, paths, resolver.root, unfixed, diff_base)
    if watch:
        from devicefix.cli.watch import watch_paths

        watch_paths(paths, kind, resolver, lambda: report(configured()))
    ctx.exit(report(resolver))


def _fix(
    kind: str, paths: tuple[Path, ...], stdin_filename: str | None, resolver: Resolver, output: Output
) -> Totals:
    """Make or show the fixes, as `devicefix rewrite` does, and return the numbers of the run."""
    reports, shows = kind == "--fix", kind == "--diff"
    resolver = resolver.changed(fix=True, replacements=reports and output.needs_fixes)
    checked = check_paths(paths, stdin_filename, resolver)
    outcomes, failed = list(checked.outcomes), len(checked.failed)
    piped = options.STDIN in paths
    if shows or piped:
        print_changes(outcomes, None if piped and not shows else options.common_folder(paths))
    else:
        changes = changes_of(outcomes)
        check_changes(changes, require_clean=False)
        unwritten = write_changes(changes)
        outcomes = [outcome for outcome in outcomes if outcome.path not in unwritten]
        failed += len(unwritten)
    left = replace(checked, outcomes=list(map(_after, outcomes)))
    if reports:
        left = baseline.hide_known(left, paths)
    totals = Totals.of(left.outcomes, failed, resolver)
    if reports:
        output.print(left, totals, err=piped)
    elif not resolver.root.quiet:
        click.echo(totals.only_fixed(written=not shows), err=shows or piped)
    return totals


def _after(outcome: Outcome) -> Outcome:
    """Return the outcome of a check after the fixes: its findings are those that remain."""
    result = outcome.result
    content = outcome.before if result.output is None else result.output
    return replace(outcome, before=content, result=replace(result, findings=result.remaining))


def _check_usage(
    kinds: list[str], paths: tuple[Path, ...], settings: Settings, unfixed: bool, diff_base: str | None
) -> None:
    """Refuse options that cannot be used together.

    Args:
        kinds: the given ones of `FIXING` and `OTHERS`; the first is done.
        paths: the paths that the command line names.
        settings: the settings of the run.
        unfixed: whether --unfixed is given.
        diff_base: the value of --diff-base.

    Raises:
        UsageError: two of the options contradict each other.
    """
    kind = kinds[0] if kinds else None
    writes_baseline = kind == "--write-baseline"
    if "--add-noqa" in kinds and options.STDIN in paths:
        raise click.UsageError("--add-noqa cannot be used with standard input (-)")
    for other in ("--add-noqa", "--write-baseline"):
        if other in kinds[1:]:
            raise click.UsageError(f"{other} and {kind} cannot be used together")
    if kind in FIXING and diff_base:
        raise click.UsageError(f"{kind} cannot be used with --diff-base, because fixes apply to whole files")
    if unfixed and (kind in FIXING or writes_baseline):
        raise click.UsageError(f"--unfixed and {kind} cannot be used together")
    if writes_baseline and settings.baseline is None:
        raise click.UsageError("--write-baseline needs --baseline FILE or the `baseline` key")
    if writes_baseline and diff_base:
        why = "because a baseline contains all findings"
        raise click.UsageError(f"--write-baseline cannot be used with --diff-base, {why}")
