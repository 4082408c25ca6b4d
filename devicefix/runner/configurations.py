"""The configuration files that the code names, and what they select."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from glob import escape, glob
from pathlib import Path

from devicefix.config.sizes import LARGEST, read, size
from devicefix.facts.exports.texts import named_configurations
from devicefix.facts.project import ProjectFile
from devicefix.facts.project.values import GIVEN, Configured, Selected
from devicefix.files.discover import work_tree
from devicefix.files.system import common_folders
from devicefix.runner.record import Seen, stamp

_SCRIPTS = ("*.sh", "scripts/*.sh", "README*")
_SELECTED = re.compile(rb"\A[^\0]*(?:cuda|nccl|gpu|\$\{)[^\0]*\Z")
_CONFIGURATION = re.compile(r"[\w./-]+\.(?:ya?ml|json|toml)\b")


def configurations(files: Iterable[ProjectFile], seen: Seen | None = None) -> list[Configured]:
    """Return the configuration files that modules name and that select CUDA: with what, and the modules.

    A path may be relative to the module's folder, or to one around it up to the top of the work tree. Scripts
    and READMEs name files for the programs that they run.

    Args:
        files: the modules.
        seen: gets the files and folders that the answer depends on.
    """
    files, seen = list(files), {} if seen is None else seen
    folders = common_folders(file.path for file in files)
    tops = tuple(os.path.join(os.path.realpath(work_tree(Path(each)) or each), "") for each in folders)
    users: dict[str, set[str]] = {}
    scripts, above = cache(partial(_scripts, seen)), cache(partial(_above, tops))  # as long as this runs
    for file in files:
        folders = above(os.path.dirname(file.normal))
        names = {*file.export(named_configurations), *_given(file, folders, scripts)}
        for path in (each for name in names for each in _candidates(folders, name, seen)):
            users.setdefault(path, set()).add(file.normal)
    found = [(path, _values(path), naming) for path, naming in sorted(users.items()) if os.path.isfile(path)]
    literals = (each for _, values, _ in found for each in _resolved(values, {}))
    known = {f"${{{path}}}": value for _, _, value, path in literals}
    chosen = ((path, _resolved(values, known), naming) for path, values, naming in found)
    return [each for each in chosen if each[1]]


def _given(file: ProjectFile, folders: list[str], scripts: Callable[[str], list[str]]) -> Iterator[str]:
    """Yield the configuration files that scripts and READMEs, beside a program or above, pass to it."""
    name, is_given = os.path.basename(file.path), any(map(file.holds, GIVEN))
    texts = (text for folder in folders for text in scripts(folder)) if is_given else ()
    for text in (text for text in texts if f"{name} " in text):
        for arguments in re.findall(rf"(?<!\w){re.escape(name)} (.*)", text):
            yield from _CONFIGURATION.findall(arguments)


def _scripts(seen: Seen, folder: str) -> list[str]:
    """Return the texts of the scripts and READMEs in a folder."""
    texts = []
    for script in (path for pattern in _SCRIPTS for path in _matches(folder, pattern, seen)):
        with suppress(OSError):
            texts.append(read(script, size(LARGEST)).decode(errors="replace").replace("\\\n", " "))
    return texts


def _candidates(folders: list[str], name: str, seen: Seen) -> Iterator[str]:
    """Yield the paths that a name may mean in folders, of which the last is the top of the work tree."""
    levels = name.split(os.sep).count(os.pardir)
    for folder in folders[: max(len(folders) - levels, 0)] if not os.path.isabs(name) else ():
        yield from map(os.path.normpath, _matches(folder, name, seen))


def _matches(folder: str, pattern: str, seen: Seen) -> list[str]:
    """Return the paths in a folder that match a pattern; note them, and the folders that may get others."""
    found = glob(os.path.join(escape(folder), pattern)) if "*" in pattern else [os.path.join(folder, pattern)]
    relevant = set(found)
    while "*" in pattern:
        pattern = os.path.dirname(pattern)
        relevant.update(glob(os.path.join(escape(folder), pattern)))
    relevant.add(os.path.normpath(os.path.join(folder, pattern)))
    seen.update((each, stamp(each)) for each in relevant - seen.keys())
    return found


def _above(tops: tuple[str, ...], folder: str) -> list[str]:
    """Return a folder, and those around it up to the tops."""
    found: list[str] = []
    # Above the root of the file system is the root.
    while folder not in found and os.path.join(os.path.realpath(folder), "").startswith(tops):
        found.append(folder)
        folder = os.path.normpath(os.path.join(folder, os.pardir))
    return found


def selected(path: str) -> Selected:
    """Return the keys of a configuration file whose values are CUDA devices, each with its line and value."""
    return _resolved(_values(path), {})


def _values(path: str) -> Selected:
    try:
        data = read(path, size(LARGEST))
    except OSError:
        return ()
    if not _SELECTED.search(data):  # then the readers of these languages need not be imported
        return ()
    from devicefix.rules.config_file.examine import cuda_values

    return tuple(cuda_values(data, path))


def _resolved(values: Selected, known: Mapping[str, str]) -> Selected:
    """Return the keys of CUDA devices, with the values that other files have for `${device}`."""
    found = ((key, line, known.get(value, value), path) for key, line, value, path in values)
    return tuple(each for each in found if not each[2].startswith("$"))
