"""`devicefix check --watch`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.errors import INTERRUPTED, missing_package
from devicefix.cli.options import STDIN
from devicefix.config import load
from devicefix.config.resolver import Resolver
from devicefix.config.settings import ConfigError
from devicefix.files.discover import EXCLUDED

_POLL = 200  # ms; the time after which it looks for a Ctrl-C

if TYPE_CHECKING:
    from watchfiles import Change


def watch_paths(
    paths: tuple[Path, ...], kind: str | None, resolver: Resolver, check: Callable[[], int]
) -> None:
    """Check files again and again, whenever some of them change, until the user presses Ctrl-C.

    Args:
        paths: the paths that the command line names.
        kind: an option that makes the command do something else than check.
        resolver: the settings of the first run.
        check: checks the files.

    Raises:
        UsageError: an option cannot be used with --watch.
        CommandError: watchfiles is not installed.
    """
    if kind is not None or STDIN in paths:
        raise click.UsageError(f"--watch cannot be used with {kind or 'standard input (-)'}")
    try:
        from watchfiles import DefaultFilter, watch
    except ImportError as error:
        raise missing_package("check --watch", error.name, "watch") from None
    from devicefix.runner.find import Choice

    cache, choice = resolver.root.cache_dir, Choice(resolver)
    caches = [] if cache is None else [os.path.abspath(cache)]
    ignored = DefaultFilter(ignore_dirs=sorted(EXCLUDED), ignore_paths=caches)
    named = {os.path.realpath(path) for path in paths if path.is_file()}
    folders = [os.path.realpath(path) for path in paths if path.is_dir()]

    def matters(change: Change, path: str) -> bool:
        if os.path.basename(path) in load.NAMES or path in named:
            return True
        below = any(path.startswith(os.path.join(folder, "")) for folder in folders)
        return below and ignored(change, path) and choice.includes(path)

    # An editor may replace a file, so that only its folder shows what happens to it.
    watched = {*folders, *map(os.path.dirname, named)}
    changes = watch(
        *sorted(watched),
        watch_filter=matters,
        recursive=bool(folders),
        rust_timeout=_POLL,
        yield_on_timeout=True,
    )
    next(changes)  # starts it, so that no change during the first check is missed
    _check(check, "Starting in watch mode...")
    with suppress(KeyboardInterrupt):
        for found in changes:
            if found:
                _check(check, "File change detected...")
    click.get_current_context().exit(INTERRUPTED)


def _check(check: Callable[[], int], why: str) -> None:
    """Clear the terminal and check the files; an error does not end the watch."""
    click.clear()
    _log(why)
    try:
        check()
    except ConfigError as error:
        click.ClickException(str(error)).show()
    except click.ClickException as error:
        error.show()
    _log("Watching for file changes.")


def _log(message: str) -> None:
    click.echo(f"[{datetime.now():%H:%M:%S}] {message}", err=True)
