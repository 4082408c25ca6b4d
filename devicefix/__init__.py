"""Find code tied to CUDA in PyTorch programs, and rewrite it to also run without CUDA.

The names in `__all__` are the public API, which docs/api.md describes. Plugins also use `devicefix.plugins`
and `devicefix.testing`. Everything else is private, and may change with every version.
"""

from devicefix.config.version import __version__ as __version__

# Not imported: `python -m devicefix` runs this module while it still looks for modules in the current folder.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from devicefix.api import (
        DevicefixError,
        FileError,
        Finding,
        Fix,
        Location,
        Replacement,
        Report,
        Rewrite,
        check_paths,
        check_source,
        find_config,
        rewrite_source,
    )

__all__ = [
    "DevicefixError",
    "FileError",
    "Finding",
    "Fix",
    "Location",
    "Replacement",
    "Report",
    "Rewrite",
    "__version__",
    "check_paths",
    "check_source",
    "find_config",
    "rewrite_source",
]


def __getattr__(name: str) -> object:
    """Import a name of the API when it is first used: `devicefix --version` needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from devicefix import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
