"""A folder in which devicefix may write, and guards around it.

What lies around the folder is compared before and after each input. In this process, Python's audit events
say more: which file is opened for writing, which program is started, and whether code of the folder runs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzzing.faults import Fault

_AROUND = {
    "victim.py": b"import torch\n\nx = torch.ones(2).cuda()\n",
    "victim.json": b"{}\n",
    "beside/victim.ipynb": b"",
    "beside/.devicefix_cache/CACHEDIR.TAG": b"",
    "home/.gitconfig": b"",
}
# Each event with the number of its first arguments that are paths to be changed.
_CHANGING = {
    "os.chmod": 1,
    "os.chown": 1,
    "os.link": 2,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.utime": 1,
}
_STARTING = frozenset(
    {"os.exec", "os.posix_spawn", "os.spawn", "os.system", "socket.connect", "subprocess.Popen"}
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Scratch:
    """The folder for one input after the other, the current one in `entered`.

    Args:
        top: an empty folder for this folder and for what lies around it.
    """

    def __init__(self, top: Path) -> None:
        top = top.resolve()
        self.folder = top / "tree"
        self._temporary = top / "temporary"
        self._top = top
        self._watched = False
        self._broken: list[str] = []
        for name, data in _AROUND.items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_bytes(data)
        for folder in (self.folder, self._temporary):
            folder.mkdir()
        self._around = self._state()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make it the current folder, with no settings of the user, and watch what this process does."""
        before = Path.cwd()
        os.environ.update(
            HOME=str(self._top / "home"),
            XDG_CONFIG_HOME=str(self._top / "home"),
            GIT_CEILING_DIRECTORIES=str(self._top),
            GIT_CONFIG_GLOBAL=os.devnull,
            GIT_CONFIG_SYSTEM=os.devnull,
        )
        for name in [name for name in os.environ if name.startswith(("DEVICEFIX_", "GIT_DIR"))]:
            del os.environ[name]
        tempfile.tempdir = str(self._temporary)
        sys.dont_write_bytecode = True  # modules are imported when they are needed
        sys.addaudithook(self._hear)
        os.chdir(self.folder)
        try:
            yield
        finally:
            os.chdir(before)
            tempfile.tempdir = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise a fault for what must not be done in the meantime."""
        self._broken.clear()
        self._watched = True
        try:
            yield
        finally:
            self._watched = False
        if self._broken:
            raise Fault(self._broken[0])
        if self._state() != self._around:
            raise Fault(f"written outside: {sorted(self._state() ^ self._around)}")
        if left := os.listdir(self._temporary):
            raise Fault(f"temporary files are left: {left}")

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """Let the fuzzer itself do what it has to."""
        self._watched = False
        try:
            yield
        finally:
            self._watched = True

    def fill(self, files: Mapping[str, bytes]) -> None:
        """Replace all that the folder holds; what cannot be a file is left out."""
        for entry in os.scandir(self.folder):
            (shutil.rmtree if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)
        for name, data in files.items():
            file = self.folder / name
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
            except (OSError, ValueError):  # a folder, or a file above it, has that name
                continue

    def files(self) -> dict[str, bytes]:
        """Return what the folder holds, without git's and the cache's files."""
        found = {}
        for folder, folders, names in os.walk(self.folder):
            if "CACHEDIR.TAG" in names:
                folders.clear()
                continue
            folders[:] = [name for name in folders if name != ".git"]
            for path in (Path(folder, name) for name in names):
                found[path.relative_to(self.folder).as_posix()] = path.read_bytes()
        return found

    def _state(self) -> set[tuple[str, int, int, int]]:
        state = set()
        for folder, folders, names in os.walk(self._top):
            if Path(folder) == self._top:
                folders[:] = sorted({*folders} - {self.folder.name, self._temporary.name})
            for name in (*folders, *names):
                path = os.path.join(folder, name)
                status = os.lstat(path)
                state.add((path, status.st_mode, status.st_size, status.st_mtime_ns))
        return state

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note and refuse what must not be done."""
        if self._watched and (what := self._forbidden(event, arguments)):
            self._broken.append(what)
            raise PermissionError(what)

    def _forbidden(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        """Return what is wrong with an event of this process, None if it may be."""
        if event == "open":
            changed = arguments[:1] if arguments[2] & _WRITING else ()
        else:
            changed = arguments[: _CHANGING.get(event, 0)]
        outside = [path for path in changed if not self._is_inside(path)]
        if outside:
            return f"written outside: {event} {outside[0]!r}"
        if event == "exec" and self._is_of_tree(arguments[0].co_filename):
            return f"code of the tree runs: {arguments[0].co_filename}"
        git = event == "subprocess.Popen" and Path(os.fsdecode(arguments[0])).stem == "git"
        return f"program started: {event} {arguments[0]!r}" if event in _STARTING and not git else None

    def _is_inside(self, path: object) -> bool:
        """Return whether a path may be written; a number is that of a file that is open already."""
        if not isinstance(path, (str, bytes, os.PathLike)) or os.fsdecode(path) == os.devnull:
            return True
        real = os.path.join(os.path.realpath(os.fsdecode(path)), "")
        return real.startswith(tuple(os.path.join(each, "") for each in (self.folder, self._temporary)))

    def _is_of_tree(self, file: str) -> bool:
        """Return whether code comes from a file of the folder; what libraries make has another name."""
        return os.path.isfile(file) and Path(file).resolve().is_relative_to(self.folder)
