"""The settings: one table, from which keys, options, API parameters and documentation are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config import sizes, values
from devicefix.config.evidence import NO_EVIDENCE, Evidence, Seen
from devicefix.config.values import Exclusion, Kind, PerFileIgnores

ACCELERATOR_SINCE = (2, 6)  # the first torch with torch.accelerator

_GLOBS = (
    "devicefix matches each pattern against both the path and the file name, and `*` also matches `/`. For"
    " example, `tests/*` matches every file below `tests`, and `setup.py` matches every file with this name."
    " `?`, `[a-z]`, `{a,b}` and `**/` work as in a shell. A pattern that starts with `!` matches every file"
    " that the rest of the pattern doesn't match."
)


class ConfigError(Exception):
    """A configuration cannot be used; the message says why, and in which file."""


class Selection(NamedTuple):
    """Codes of rules, or beginnings of codes, that one source selects and ignores."""

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def enables(self, code: str, before: bool) -> bool:
        """Return whether a rule is on, given whether it was on before this selection."""
        chosen = _longest(self.select + self.extend_select, code)
        dropped = _longest(self.ignore, code)
        if self.select or chosen > dropped:
            return chosen > dropped
        return before and not dropped


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The settings that rules may ask for.

    Attributes:
        target: what the rewritten program runs on besides the CPU, one of `values.TARGETS`.
        torch_version: the oldest torch that the rewritten program must run with; None for the newest.
        enabled: the codes of the rules that are on.
        pinned_torch: the torch that the project pins, if it does.
        seen: what runs have shown in the file.
    """

    target: str = "cuda"
    torch_version: tuple[int, int] | None = None
    enabled: frozenset[str] = frozenset()
    pinned_torch: tuple[int, int] | None = None
    seen: frozenset[Seen] = frozenset()

    @property
    def runs_with(self) -> tuple[int, int] | None:
        """Return the torch that the program runs with: the setting's, else the pinned one, if any."""
        return self.torch_version or self.pinned_torch


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration; the command line's option is `--name`.

    Attributes:
        name: the name in the configuration.
        kind: the kind of its value.
        default: the value where nothing is set, as TOML or in words.
        summary: one line, which is also the option's help.
        details: further documentation, as Markdown; may be empty.
        example: a line of TOML, as in `devicefix.toml`.
        variable: an environment variable that overrides the key; the option overrides both.
        short: the option's short form.
    """

    name: str
    kind: Kind
    default: str
    summary: str
    example: str
    details: str = ""
    variable: str | None = None
    short: str | None = None

    @property
    def field(self) -> str:
        """The name in `Settings` and in the Python API."""
        return self.name.replace("-", "_")

    @property
    def type(self) -> str:
        """The Python type of the value in a configuration file."""
        return self.kind.type


def _key(kind: Kind, default: str, summary: str, example: str, **more: str) -> dict[str, Any]:
    """Return the metadata of a field of `Settings` that is a key of the configuration."""
    return {"key": {"kind": kind, "default": default, "summary": summary, "example": example, **more}}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run.

    The fields with metadata are the keys of the configuration, in the order of their documentation. The
    others are set by the commands.

    Attributes:
        root: the folder that `exclude` is relative to.
        below: the selections of rules that `select`, `extend_select` and `ignore` change, such as that of the
            configuration if they are from the command line.
        fixable_below: likewise those that `fixable`, `extend_fixable` and `unfixable` change.
        off: codes of rules that are off in the file at hand.
        fix: make the new source.
        replacements: spell out every fix as plain text.
        ignore_noqa: keep findings that a comment silences.
        executor: the address of a cluster that does the work.
        pinned_torch: the torch that the project pins, if it does.
        evidence: what runs of the program have shown.
    """

    extend: Path | None = field(
        default=None,
        metadata=_key(
            values.EXTENDED,
            "none",
            "Start from the settings of another configuration file.",
            'extend = "../devicefix.toml"',
            details="The path is relative to the configuration's folder. Keys in the configuration override"
            " those in the extended file, except that `ignore` and the keys that begin with `extend-`, such"
            " as `extend-select`, add to them. Paths and patterns in the extended file stay relative to its"
            " own folder. The extended file can itself extend another file.",
        ),
    )
    select: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "the rules that are on by default",
            "Enable only the rules with these codes or prefixes, such as DF101,DF2.",
            'select = ["DF1", "DF201"]',
            details="Each entry is a code or a prefix: `DF1` selects every rule whose code starts with `DF1`."
            " `DF` and `ALL` select every rule, including those that are off by default. If `select` and"
            " `ignore` both match a rule, the longer entry wins. If the entries are equally long, `ignore`"
            " wins. On the command line, `--select` overrides `select`, `extend-select` and `ignore` in the"
            " configuration.",
        ),
    )
    extend_select: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "[]",
            "Like --select, but adds to the rules that are already enabled.",
            'extend-select = ["DF001"]',
            details="On the command line, `--extend-select` adds to the rules that the configuration"
            " selects.",
        ),
    )
    ignore: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "[]",
            "Disable the rules with these codes or prefixes, such as DF101,DF2.",
            'ignore = ["DF702"]',
            details="On the command line, `--ignore` adds to the rules that the configuration ignores.",
        ),
    )
    fixable: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "all rules",
            "Fix only the findings of rules with these codes or prefixes.",
            'fixable = ["DF1", "DF2"]',
            details="devicefix reports the findings of other rules, but doesn't fix them. If `fixable` and"
            " `unfixable` both match a rule, the longer entry wins. On the command line, `--fixable`"
            " overrides `fixable`, `extend-fixable` and `unfixable` in the configuration.",
        ),
    )
    extend_fixable: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "[]",
            "Like --fixable, but adds to the fixable rules that are already configured.",
            'extend-fixable = ["DF104"]',
        ),
    )
    unfixable: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "[]",
            "Report the findings of rules with these codes or prefixes, but do not fix them.",
            'unfixable = ["DF3"]',
        ),
    )
    per_file_ignores: tuple[PerFileIgnores, ...] = field(
        default=(),
        metadata=_key(
            values.PER_FILE,
            "{}",
            "Disable rules in files that match a pattern, such as tests/*:DF101.",
            'per-file-ignores = { "tests/*" = ["DF201"], "!src/*" = ["DF7"] }',
            details="A rule that is disabled for a file stays off in that file, even if you select it."
            f" {_GLOBS}",
        ),
    )
    extend_per_file_ignores: tuple[PerFileIgnores, ...] = field(
        default=(),
        metadata=_key(
            values.PER_FILE,
            "{}",
            "Like --per-file-ignores, but adds to the ignores that are already configured.",
            'extend-per-file-ignores = { "scripts/*" = ["DF101"] }',
        ),
    )
    exclude: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.PATTERNS,
            "[]",
            "Exclude files and folders that match a pattern (.gitignore syntax).",
            'exclude = ["third_party/", "*_pb2.py"]',
            details="The patterns are relative to the configuration's folder. On the command line,"
            " `--exclude` overrides this key, and its patterns are relative to the current folder. devicefix"
            " also excludes files that git ignores, folders such as `.venv` and `node_modules`, and caches"
            " with a `CACHEDIR.TAG` file. If you name a file or folder on the command line, devicefix checks"
            " it even if it is excluded, unless you set `force-exclude`.",
        ),
    )
    extend_exclude: tuple[Exclusion, ...] = field(
        default=(),
        metadata=_key(
            values.EXCLUSIONS,
            "[]",
            "Like --exclude, but adds to the patterns that are already configured.",
            'extend-exclude = ["legacy/"]',
        ),
    )
    force_exclude: bool = field(
        default=False,
        metadata=_key(
            values.SWITCH,
            "false",
            "Apply exclusions even to files and folders that are named on the command line.",
            "force-exclude = true",
            details="devicefix's pre-commit hooks set this option, because pre-commit names the staged files"
            " on the command line.",
        ),
    )
    respect_gitignore: bool = field(
        default=True,
        metadata=_key(
            values.SWITCH,
            "true",
            "Exclude files that git ignores.",
            "respect-gitignore = false",
        ),
    )
    baseline: Path | None = field(
        default=None,
        metadata=_key(
            values.FILE,
            "none",
            "Report only findings that are not in this file, which --write-baseline creates.",
            'baseline = "devicefix-baseline.json"',
            details="The path is relative to the configuration's folder, and must be inside that folder. To"
            " use a file elsewhere, specify it with `--baseline`.",
        ),
    )
    unsafe_fixes: bool = field(
        default=False,
        metadata=_key(
            values.SWITCH,
            "false",
            "Also apply fixes that may change how the program behaves on CUDA.",
            "unsafe-fixes = true",
        ),
    )
    config_files: bool = field(
        default=False,
        metadata=_key(
            values.SWITCH,
            "false",
            "When checking a folder, also check its YAML, JSON and TOML files and shell scripts. In a"
            " notebook, also check shell commands.",
            "config-files = true",
        ),
    )
    environment: bool = field(
        default=False,
        metadata=_key(
            values.SWITCH,
            "false",
            "When checking a folder, also check its requirements files, conda environments, pyproject.toml,"
            " pixi.toml and setup.cfg files, Dockerfiles, Compose files, shell scripts, makefiles and CI"
            " workflows. In a notebook, also check the commands that install packages.",
            "environment = true",
            details="devicefix always checks files that you name on the command line.",
        ),
    )
    docs: bool = field(
        default=False,
        metadata=_key(
            values.SWITCH,
            "false",
            "When checking a folder, also check the Python code blocks in its Markdown and reStructuredText"
            " files.",
            "docs = true",
            details="devicefix checks and rewrites each block as a separate module. It always checks files"
            " that you name on the command line.",
        ),
    )
    target: str = field(
        default="cuda",
        metadata=_key(
            values.TARGET,
            '"cuda"',
            "The device to support besides the CPU: CUDA (the default), or the one that torch.accelerator"
            " finds.",
            'target = "accelerator"',
        ),
    )
    torch_version: tuple[int, int] | None = field(
        default=None,
        metadata=_key(
            values.VERSION,
            "the newest version that devicefix supports",
            "The minimum torch version to support. It limits which functions --target accelerator can use.",
            'torch-version = "2.6"',
            details="This version also determines which half-precision operations a CPU supports. If this"
            " key is not set, devicefix uses the version that the project pins in `requirements.txt`,"
            " `pyproject.toml`, `setup.py`, `setup.cfg`, `Pipfile` or `environment.yml` for this purpose.",
        ),
    )
    max_file_size: str = field(
        default=sizes.LARGEST,
        metadata=_key(
            values.SIZE,
            f'"{sizes.LARGEST}"',
            "The maximum file size (default: 16M). The limit for Python code is an eighth of this size.",
            'max-file-size = "4M"',
            details="devicefix reports an error for a larger file instead of checking it, because checking"
            " Python code can take a thousand times as much memory as the code itself. In a configuration,"
            f" the maximum value is {sizes.LARGEST}.",
        ),
    )
    output_format: str | None = field(
        default=None,
        metadata=_key(
            values.FORMAT,
            "full on a terminal, else concise",
            "The output format (default: full on a terminal, concise elsewhere).",
            'output-format = "grouped"',
            details="This key applies to `devicefix check`. The environment variable"
            " `DEVICEFIX_OUTPUT_FORMAT` overrides it, and the option overrides both.",
            variable="DEVICEFIX_OUTPUT_FORMAT",
        ),
    )
    cache_dir: Path | None = field(
        default=None,
        metadata=_key(
            values.FOLDER,
            ".devicefix_cache next to the configuration file",
            "The cache folder (default: .devicefix_cache next to the configuration file).",
            'cache-dir = ".cache/devicefix"',
            details="The path is relative to the configuration's folder, and must be inside that folder."
            " The environment variable `DEVICEFIX_CACHE_DIR` overrides the key, and the option overrides"
            " both. The variable and the option can set a folder elsewhere. If the folder exists, it must be"
            " empty or a devicefix cache. With `--no-cache`, devicefix neither reads nor writes a cache.",
            variable="DEVICEFIX_CACHE_DIR",
        ),
    )
    jobs: int | None = field(
        default=None,
        metadata=_key(
            values.COUNT,
            "one per core",
            "The number of processes (default: one per core).",
            "jobs = 4",
            short="-j",
        ),
    )
    verbose: bool = field(
        default=False,
        metadata=_key(
            values.FLAG,
            "false",
            "Show which configuration file is used and which files are checked.",
            "verbose = true",
            short="-v",
        ),
    )
    quiet: bool = field(
        default=False,
        metadata=_key(
            values.FLAG,
            "false",
            "Print only findings and errors.",
            "quiet = true",
            short="-q",
        ),
    )
    root: Path = field(default_factory=Path)
    below: tuple[Selection, ...] = ()
    fixable_below: tuple[Selection, ...] = ()
    off: tuple[str, ...] = ()
    fix: bool = False
    replacements: bool = False
    ignore_noqa: bool = False
    executor: str | None = None
    pinned_torch: tuple[int, int] | None = None
    evidence: Evidence = NO_EVIDENCE

    @property
    def largest(self) -> int:
        """The number of bytes that a file may have."""
        return sizes.size(self.max_file_size)

    @property
    def exclusions(self) -> tuple[Exclusion, ...]:
        """The patterns of `exclude` and `extend_exclude`, each with its folder."""
        return (*(Exclusion(pattern, self.root) for pattern in self.exclude), *self.extend_exclude)

    @property
    def selections(self) -> tuple[Selection, ...]:
        """The selections of rules, each of which changes the one before."""
        return *self.below, Selection(self.select, self.extend_select, self.ignore)

    @property
    def fixable_selections(self) -> tuple[Selection, ...]:
        """The selections of rules to fix, each of which changes the one before."""
        return *self.fixable_below, Selection(self.fixable, self.extend_fixable, self.unfixable)

    def enabled(self, code: str, default: bool = True) -> bool:
        """Return whether a rule is on: where `select` and `ignore` both name it, the longer name wins.

        Args:
            code: the rule's code.
            default: whether the rule is on when nothing is selected.
        """
        return _enabled(self.selections, code, default) and not code.startswith(self.off)

    def fixes(self, code: str) -> bool:
        """Return whether the findings of a rule are fixed, rather than only reported.

        Args:
            code: the rule's code.
        """
        return _enabled(self.fixable_selections, code, True)

    def for_file(self, path: str) -> Settings:
        """Return the settings for one file, with the rules that are off in it."""
        listed = self.per_file_ignores + self.extend_per_file_ignores
        if not listed:
            return self
        from devicefix.config.globs import off

        codes = off(path, listed)
        return replace(self, off=codes) if codes else self

    def checked(self) -> Settings:
        """Return these settings if they go together.

        Raises:
            ConfigError: they don't; the message says why.
        """
        if self.target == "accelerator" and self.torch_version and self.torch_version < ACCELERATOR_SINCE:
            given = "{}.{}".format(*self.torch_version)
            raise ConfigError(f"target accelerator needs torch 2.6 or newer, but torch-version is {given}")
        return self


KEYS: dict[str, Key] = {
    key.name: key
    for each in fields(Settings)
    if "key" in each.metadata
    for key in [Key(each.name.replace("_", "-"), **each.metadata["key"])]
}


@cache  # asked for each rule and file
def _enabled(selections: tuple[Selection, ...], code: str, default: bool) -> bool:
    enabled = default
    for selection in selections:
        enabled = selection.enables(code, enabled)
    return enabled


def _longest(prefixes: Iterable[str], code: str) -> int:
    """Return the length of the longest word that names a rule, as a number above 0; 0 if none does."""
    return max((len(prefix) + 1 for prefix in prefixes if code.startswith(prefix)), default=0)
