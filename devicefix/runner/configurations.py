"""The configuration files that the code names, and what they select."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from glob import escape, glob
from pathlib import Path

from devicefix.config.sizes import LARGEST, read, size
from devicefix.facts.exports.texts import named_configurations
from devicefix.facts.project import ProjectFile
from devicefix.facts.project.values import GIVEN, Configured, Selected
from devicefix.files.discover import work_tree
from devicefix.files.system import common_folders
from devicefix.runner.record import Record

_SCRIPTS = ("*.sh", "scripts/*.sh", "README*")
_CONFIGURATION = re.compile(r"[\w./-]+\.(?:ya?ml|json|toml)\b")


def asks_for_configurations(record: Record) -> bool:
    """Return whether the result of a file's check depends on configuration files."""
    return any(question == "configured" for question, *_ in record.answers or ())


def configurations(files: Iterable[ProjectFile]) -> list[Configured]:
    """Return the configuration files that modules name and that select CUDA: with what, and the modules.

    A path may be relative to the module's folder, or to one around it up to the top of the work tree. Scripts
    and READMEs name files for the programs that they run.

    Args:
        files: the modules.
    """
    files = list(files)
    folders = common_folders(file.path for file in files)
    tops = tuple(os.path.join(os.path.realpath(work_tree(Path(each)) or each), "") for each in folders)
    users: dict[str, set[str]] = {}
    for file in files:
        names = {*file.export(named_configurations), *_given(file, tops)}
        for path in (each for name in names for each in _candidates(file, name, tops)):
            users.setdefault(path, set()).add(file.normal)
    found = [(path, _values(path), naming) for path, naming in sorted(users.items()) if os.path.isfile(path)]
    literals = (each for _, values, _ in found for each in _resolved(values, {}))
    known = {f"${{{path}}}": value for _, _, value, path in literals}
    chosen = ((path, _resolved(values, known), naming) for path, values, naming in found)
    return [each for each in chosen if each[1]]


def _given(file: ProjectFile, tops: tuple[str, ...]) -> Iterator[str]:
    """Yield the configuration files that scripts and READMEs, beside a program or above, pass to it."""
    command = re.compile(rf"(?<!\w){re.escape(os.path.basename(file.path))} (.*)")
    for pattern in _SCRIPTS if any(map(file.holds, GIVEN)) else ():
        for script in _candidates(file, pattern, tops):
            with suppress(OSError):
                text = read(script, size(LARGEST)).decode(errors="replace").replace("\\\n", " ")
                for arguments in command.findall(text):
                    yield from _CONFIGURATION.findall(arguments)


def _candidates(file: ProjectFile, name: str, tops: tuple[str, ...]) -> Iterator[str]:
    folder = os.path.dirname(file.normal)
    while not os.path.isabs(name) and os.path.join(os.path.realpath(folder), "").startswith(tops):
        found = glob(os.path.join(escape(folder), name)) if "*" in name else [os.path.join(folder, name)]
        yield from map(os.path.normpath, found)
        above = os.path.normpath(os.path.join(folder, os.pardir))
        if above == folder:  # the root of the file system
            return
        folder = above


def selected(path: str) -> Selected:
    """Return the keys of a configuration file whose values are CUDA devices, each with its line and value."""
    return _resolved(_values(path), {})


def _values(path: str) -> Selected:
    from devicefix.rules.config_file.examine import cuda_values

    try:
        return tuple(cuda_values(read(path, size(LARGEST)), path))
    except OSError:
        return ()


def _resolved(values: Selected, known: Mapping[str, str]) -> Selected:
    """Return the keys of CUDA devices, with the values that other files have for `${device}`."""
    found = ((key, line, known.get(value, value), path) for key, line, value, path in values)
    return tuple(each for each in found if not each[2].startswith("$"))
