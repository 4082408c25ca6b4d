"""The command that installs an extra, from where devicefix itself was installed from."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution

SOURCE = "https://github.com/devicefix/devicefix"
PUBLISHED = False  # whether there is a release on PyPI

_PROJECT = "" if PUBLISHED else f"git+{SOURCE}"

# The files at the top of an environment that a tool made for devicefix alone: `pip install` doesn't reach it.
_TOOLS = {"pipx_metadata.json": "pipx install --force", "uv-receipt.toml": "uv tool install --force"}


def install_command(extra: str) -> str:
    """Return the command that installs an extra of devicefix.

    Args:
        extra: a key of `optional-dependencies` in pyproject.toml.
    """
    from importlib.metadata import Distribution, PackageNotFoundError

    try:
        installed: Distribution | None = Distribution.from_name("devicefix")
    except PackageNotFoundError:  # it runs from a folder of sources
        installed = None
    return f"{_installer(installed)} {_requirement(_origin(installed), extra)}"


def _installer(installed: Distribution | None) -> str:
    """Return the command that installs a requirement where devicefix is."""
    for name, tool in _TOOLS.items():
        if os.path.exists(os.path.join(sys.prefix, name)):
            return tool
    by_uv = installed is not None and (installed.read_text("INSTALLER") or "").strip() == "uv"
    return "uv pip install" if by_uv else "pip install"


def _origin(installed: Distribution | None) -> dict[str, Any]:
    """Return what `direct_url.json` says about the installation (PEP 610), empty if there is no such file."""
    text = installed.read_text("direct_url.json") if installed is not None else None
    origin: dict[str, Any] = json.loads(text) if text else {}
    return origin


def _requirement(origin: dict[str, Any], extra: str) -> str:
    """Return an extra as an argument for pip: of a folder, a repository, an archive, or the project."""
    url = origin.get("url", "")
    path = _path(url)
    if path is not None and path.is_dir():  # of a local repository too, whose address older pips refuse
        editable = origin.get("dir_info", {}).get("editable", False)
        return ("-e " if editable else "") + _quoted(f"{path}[{extra}]")
    if path is not None and not path.exists():
        url = ""
    elif vcs := origin.get("vcs_info"):
        revision = vcs.get("requested_revision")
        url = f"{vcs['vcs']}+{url}" + (f"@{revision}" if revision else "")
    url = url or _PROJECT
    return _quoted(f"devicefix[{extra}]" + (f" @ {url}" if url else ""))


def _path(url: str) -> Path | None:
    """Return the path of a local file or folder, nothing for other addresses."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(url)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _quoted(argument: str) -> str:
    """Return an argument in the quotes of the system's shell."""
    return f'"{argument}"' if os.name == "nt" else shlex.quote(argument)
