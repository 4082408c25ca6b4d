"""The configuration files that the code names, and what they select."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from glob import escape, glob
from pathlib import Path

from devicefix.config.sizes import LARGEST, read, size
from devicefix.facts.exports.texts import named_configurations
from devicefix.facts.project import ProjectFile
from devicefix.facts.project.values import Selected
from devicefix.files.discover import work_tree
from devicefix.files.system import common_folders
from devicefix.runner.record import Record


def asks_for_configurations(record: Record) -> bool:
    """Return whether the result of a file's check depends on configuration files."""
    return any(question == "configured" for question, *_ in record.answers or ())


def configurations(files: Iterable[ProjectFile]) -> list[tuple[str, Selected]]:
    """Return the configuration files that modules name and that select CUDA, each with what it selects.

    A path may be relative to the module's folder, or to one around it up to the top of the work tree.

    Args:
        files: the modules.
    """
    naming = [(file, names) for file in files if (names := file.export(named_configurations))]
    if not naming:
        return []
    folders = common_folders(file.path for file, _ in naming)
    tops = tuple(os.path.join(os.path.realpath(work_tree(Path(each)) or each), "") for each in folders)
    named = ((file, name) for file, names in naming for name in names)
    paths = {path for file, name in named for path in _candidates(file, name, tops)}
    found = ((path, selected(path)) for path in sorted(paths) if os.path.isfile(path))
    return [(path, values) for path, values in found if values]


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
    from devicefix.rules.config_file.examine import cuda_values

    try:
        return tuple(cuda_values(read(path, size(LARGEST)), path))
    except OSError:
        return ()
