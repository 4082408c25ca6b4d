"""Find files: those that are named, and those of a kind in the named folders."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from devicefix.config.folders import Below
from devicefix.config.settings import Settings
from devicefix.config.values import Exclusion
from devicefix.files.kinds import is_python
from devicefix.files.system import is_folder

EXCLUDED = frozenset({
    ".devicefix_cache", ".eggs", ".git", ".hg", ".hypothesis", ".ipynb_checkpoints", ".mypy_cache", ".nox",
    ".pytest_cache", ".ruff_cache", ".svn", ".tox", ".venv", "__pycache__", "__pypackages__", "node_modules",
    "site-packages", "venv",
})  # fmt: skip
BUILT = frozenset({"build", "dist"})  # excluded as well, unless they are packages
# It marks caches, ours in a folder of another name as well: https://bford.info/cachedir/
CACHE_TAG = "CACHEDIR.TAG"

GIT_SECONDS = 30.0  # for git in all; it takes forever for some patterns in a .gitignore

Matcher = Callable[[str], bool]
OnError = Callable[[OSError], None]


class GitTooSlow(OSError):
    """git takes too long to list the files of a folder, which are found without it."""


class _Git:
    """git, for a limited time in all.

    Args:
        onerror: called with `GitTooSlow` when the time is over.
    """

    def __init__(self, onerror: OnError) -> None:
        self._left = GIT_SECONDS
        self._onerror = onerror

    def __call__(self, folder: str, *arguments: str) -> bytes | None:
        """Return the output of git, None if it fails or no time is left."""
        if self._left <= 0:
            return None
        start = time.monotonic()
        found = git(folder, *arguments, seconds=self._left)
        self._left -= time.monotonic() - start
        if self._left <= 0:
            message = f"git took more than {GIT_SECONDS:g} s; the patterns in .gitignore are not applied"
            self._onerror(GitTooSlow(errno.ETIMEDOUT, message, folder))
        return found


def _raise(problem: OSError) -> None:
    raise problem


class Filter:
    """The files to find: all Python files, unless a subclass chooses others."""

    def includes(self, path: str) -> bool:
        """Return whether to include a file of a folder."""
        return is_python(path)

    def excludes(self, path: str) -> bool:  # noqa: ARG002 (for subclasses, as the next ones)
        """Return whether patterns exclude a file, or a folder if the path ends in a slash."""
        return False

    def excludes_named(self, path: str) -> bool:  # noqa: ARG002
        """Return whether patterns exclude a file or folder even if it is named."""
        return False

    def asks_git(self, folder: str) -> bool:  # noqa: ARG002
        """Return whether to leave out what git ignores in a folder."""
        return True


def find(paths: Iterable[Path], choice: Filter | None = None, onerror: OnError = _raise) -> list[Path]:
    """Return the files to check, sorted, each once, however many links point to it.

    In a folder, excluded files are left out, and in a git work tree the files that git ignores. Links to
    folders are not followed, nor links to files outside of the named folder.

    Args:
        paths: files and folders.
        choice: the files to include and to exclude.
        onerror: called for each folder that cannot be read, and with `GitTooSlow` if git takes too long.
    """
    choice = choice or Filter()
    git = _Git(onerror)
    found: dict[str, str] = {}
    real_folder = cache(os.path.realpath)  # the same for many files
    for path in map(os.fspath, paths):
        folder = os.path.isdir(path)
        if choice.excludes_named(os.path.join(path, "") if folder else path):
            continue
        top = os.path.join(os.path.realpath(path), "")
        for file in _inside(path, choice, onerror, git) if folder else [path]:
            real = os.path.join(real_folder(os.path.dirname(file)), os.path.basename(file))
            if os.path.islink(file):
                real = os.path.realpath(file)
            if folder and not real.startswith(top):  # a link that leads out of the named folder
                continue
            if real not in found or os.path.islink(found[real]):  # prefer the file to a link
                found[real] = file
    return sorted(map(Path, _each_once(found)))


def _each_once(found: dict[str, str]) -> Iterator[str]:
    """Yield files, one of those whose names differ in case only where the file system ignores case.

    Args:
        found: the files by their real paths.
    """
    alike: dict[str, list[str]] = {}
    for real, file in found.items():
        others = alike.setdefault(real.casefold(), [])
        if not any(_is_one_name(real, other) for other in others):
            others.append(real)
            yield file


def _is_one_name(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other) and os.stat(path).st_nlink == 1  # no hard links
    except OSError:
        return False


def is_excluded(path: str, settings: Settings) -> bool:
    """Return whether the settings exclude a file from its folder."""
    return _matcher(settings.exclude + settings.extend_exclude, os.getcwd())(path)


def is_below_excluded(path: str, choice: Filter) -> bool:
    """Return whether a file or folder is excluded, or in a folder of the current one that is.

    Args:
        path: the file, or the folder with a slash at its end.
        choice: what is excluded.
    """
    try:
        inner = os.path.relpath(path)
    except ValueError:  # on another drive
        inner = os.pardir
    if inner == os.curdir or inner.split(os.sep)[0] == os.pardir:
        return choice.excludes(path)
    unwanted = _unwanted("", choice)
    if path.endswith(os.sep):
        return unwanted[inner]
    return unwanted[os.path.dirname(inner)] or choice.excludes(path)


def work_tree(folder: Path) -> Path | None:
    """Return the top of the git work tree that a folder is in; None if there is none, or no git."""
    top = git(os.fspath(folder), "rev-parse", "--show-toplevel")
    return Path(os.fsdecode(top.removesuffix(b"\n"))) if top else None


def root_of(folder: Path) -> Path:
    """Return the folder for relative paths: the git work tree, else the current folder or the given one."""
    here, folder = Path.cwd().resolve(), folder.resolve()
    return work_tree(folder) or (here if folder.is_relative_to(here) else folder)


@lru_cache(maxsize=16)
def _matcher(patterns: tuple[Exclusion, ...], _here: str) -> Matcher:
    """Return a predicate for excluded paths; the path of a folder must end in a slash.

    Args:
        patterns: the patterns, with the folders that they are relative to.
        _here: the current folder, which these folders may be relative to.
    """
    by_folder: dict[str, list[str]] = {}
    for pattern, folder in patterns:
        by_folder.setdefault(os.path.join(os.path.abspath(folder), ""), []).append(pattern)
    if not by_folder:
        return lambda _path: False
    from devicefix.config.ignore import compiled

    ignores = [(base, compiled(tuple(lines))) for base, lines in by_folder.items()]

    def excluded(path: str) -> bool:
        names_folder, whole = path.endswith(os.sep), os.path.abspath(path)
        for base, ignore in ignores:
            inner = os.path.join(whole, "").removeprefix(base).strip(os.sep)
            if inner and ignore.excludes(inner.replace(os.sep, "/"), names_folder):
                return True
        return False

    return excluded


def _inside(folder: str, choice: Filter, onerror: OnError, git: _Git) -> Iterator[str]:
    """Yield the files to include below a folder."""
    named = choice.excludes(os.path.join(folder, ""))  # the patterns don't apply to its content
    tops = [folder]
    for top in tops:  # which grows
        unwanted = _unwanted(top, Filter() if named else choice)
        names = _git_files(top, git) if choice.asks_git(top) else None
        for name in _walk(top, unwanted, onerror) if names is None else names:
            path = os.path.normpath(os.path.join(top, name))
            if unwanted[os.path.dirname(name)] or (not named and choice.excludes(path)):
                continue
            try:
                mode = os.lstat(path).st_mode
            except OSError:  # tracked, but deleted
                continue
            if stat.S_ISDIR(mode):  # a nested repository: git lists its name only
                if os.path.lexists(os.path.join(path, ".git")):
                    tops.append(path)
            elif choice.includes(path) and os.path.isfile(path):
                yield path


def _unwanted(top: str, choice: Filter) -> Below:
    """Return which folders are excluded, by their paths below the top."""

    def excludes(inner: str) -> bool:
        name, path = os.path.basename(inner), os.path.join(top, inner)
        is_built = name in BUILT and not os.path.isfile(os.path.join(path, "__init__.py"))
        if name in EXCLUDED or is_built or os.path.isfile(os.path.join(path, CACHE_TAG)):
            return True
        return choice.excludes(os.path.join(path, ""))

    return Below(excludes)


def _walk(folder: str, unwanted: Below, onerror: OnError) -> Iterator[str]:
    """Yield the paths of all files below a folder, relative to it."""
    todo = [""]
    while todo:  # `os.walk` of Python 3.11 calls itself, and there may be more folders than that can
        inner = todo.pop()
        try:
            with os.scandir(os.path.join(folder, inner)) as entries:
                found = [(os.path.join(inner, entry.name), is_folder(entry)) for entry in entries]
        except OSError as problem:
            onerror(problem)
            continue
        yield from (name for name, is_inner in found if not is_inner)
        todo += (name for name, is_inner in found if is_inner and not unwanted[name])


def _git_files(folder: str, git: _Git) -> list[str] | None:
    """Return the files below a folder that git tracks or does not ignore, relative to it.

    None outside a work tree, without git or time for it, and if git ignores the folder, which was named.
    """
    listed = git(folder, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    if listed is None or git(folder, "check-ignore", "--quiet", "--no-index", ".") is not None:
        return None
    return [os.fsdecode(name) for name in dict.fromkeys(listed.split(b"\0")) if name]


def git_program() -> str | None:
    """Return the path of git, None if it is not installed.

    Windows would look for the name alone in the current folder first.
    """
    name = "git.exe" if os.name == "nt" else "git"
    files = (os.path.join(folder, name) for folder in os.get_exec_path() if os.path.isabs(folder))
    return next((file for file in files if os.path.isfile(file) and os.access(file, os.X_OK)), None)


def outside_hooks() -> dict[str, str]:
    """Return the environment without what names the repository of a git hook that runs devicefix."""
    hook = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"}
    return {name: value for name, value in os.environ.items() if name not in hook}


def git(folder: str, *arguments: str, seconds: float = GIT_SECONDS) -> bytes | None:
    """Return the output of git, None if it fails or takes too long.

    It runs no program that the repository names.
    That is true for commands that neither read files nor run hooks.
    """
    program = git_program()
    if program is None:
        return None
    environment = outside_hooks()
    # What a partial clone lacks is not fetched: the repository decides how that is done.
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    try:
        return subprocess.run(
            [program, "-c", "core.fsmonitor=false", "-C", folder, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=True,
            timeout=seconds,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
