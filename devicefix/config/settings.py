"""The settings: one table, from which keys, options, API parameters and documentation are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config import sizes, values
from devicefix.config.values import Exclusion, Kind, PerFileIgnores

ACCELERATOR_SINCE = (2, 6)  # the first torch with torch.accelerator

_GLOBS = (
    "A pattern is matched against the path, where `*` also matches `/`, and against the file name: `tests/*`"
    " is every file below `tests`, `setup.py` every file of that name. `?`, `[a-z]`, `{a,b}` and `**/` work"
    " as in a shell. A pattern that starts with `!` matches all files that the rest does not match."
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
    """

    target: str = "cuda"
    torch_version: tuple[int, int] | None = None
    enabled: frozenset[str] = frozenset()
    pinned_torch: tuple[int, int] | None = None

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
    """

    extend: Path | None = field(
        default=None,
        metadata=_key(
            values.EXTENDED,
            "none",
            "Start from the settings of another configuration file.",
            'extend = "../devicefix.toml"',
            details="The path is relative to the folder of the configuration. The keys of this file override"
            " those of the other one; `extend-select`, `ignore` and the other keys that begin with `extend-`"
            " add to them. Paths and patterns in the other file stay relative to its own folder. The other"
            " file may extend another one in turn.",
        ),
    )
    select: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "the rules that are on by default",
            "Enable only the rules with these codes or prefixes, such as DF101,DF2.",
            'select = ["DF1", "DF201"]',
            details="A code, or the beginning of one: `DF1` is every rule whose code starts with it. `DF` and"
            " `ALL` are every rule, including those that are off by default. Where `select` and `ignore` both"
            " name a rule, the longer name wins; where they are equally long, `ignore` wins. On the"
            " command line, `--select` overrides `select`, `extend-select` and `ignore` in the"
            " configuration.",
        ),
    )
    extend_select: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "[]",
            "Enable these rules in addition to those that are selected or on by default.",
            'extend-select = ["DF001"]',
            details="On the command line, `--extend-select` adds to what the configuration selects.",
        ),
    )
    ignore: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "[]",
            "Disable the rules with these codes or prefixes, such as DF101,DF2.",
            'ignore = ["DF702"]',
            details="On the command line, `--ignore` adds to what the configuration ignores.",
        ),
    )
    fixable: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "all rules",
            "Fix only what the rules with these codes find.",
            'fixable = ["DF1", "DF2"]',
            details="The findings of other rules are reported, but not fixed. Where `fixable` and `unfixable`"
            " both name a rule, the longer name wins. On the command line, `--fixable` overrides `fixable`,"
            " `extend-fixable` and `unfixable` in the configuration.",
        ),
    )
    extend_fixable: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "[]",
            "Also fix what these rules find, in addition to the fixable rules.",
            'extend-fixable = ["DF104"]',
        ),
    )
    unfixable: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.CODES,
            "[]",
            "Report what the rules with these codes find, but do not fix it.",
            'unfixable = ["DF3"]',
        ),
    )
    per_file_ignores: tuple[PerFileIgnores, ...] = field(
        default=(),
        metadata=_key(
            values.PER_FILE,
            "{}",
            "Disable rules in some files, such as tests/*:DF101.",
            'per-file-ignores = { "tests/*" = ["DF201"], "!src/*" = ["DF7"] }',
            details=f"A rule that is ignored for a file stays off there, whatever selects it. {_GLOBS}",
        ),
    )
    extend_per_file_ignores: tuple[PerFileIgnores, ...] = field(
        default=(),
        metadata=_key(
            values.PER_FILE,
            "{}",
            "Like --per-file-ignores, but adds to what the configuration ignores.",
            'extend-per-file-ignores = { "scripts/*" = ["DF101"] }',
        ),
    )
    exclude: tuple[str, ...] = field(
        default=(),
        metadata=_key(
            values.PATTERNS,
            "[]",
            "Exclude files that match a pattern (.gitignore syntax).",
            'exclude = ["third_party/", "*_pb2.py"]',
            details="Patterns are relative to the folder of the configuration, on the command line to the"
            " current folder, where `--exclude` overrides this key. Files that git ignores, folders such as"
            " `.venv` and `node_modules`, and caches with a `CACHEDIR.TAG` are excluded as well. A file that"
            " is named on the command line is checked even if it is excluded; see `force-exclude`.",
        ),
    )
    extend_exclude: tuple[Exclusion, ...] = field(
        default=(),
        metadata=_key(
            values.EXCLUSIONS,
            "[]",
            "Also exclude files that match a pattern (.gitignore syntax).",
            'extend-exclude = ["legacy/"]',
            details="On the command line, `--extend-exclude` adds to what the configuration excludes.",
        ),
    )
    force_exclude: bool = field(
        default=False,
        metadata=_key(
            values.SWITCH,
            "false",
            "Exclude files that match the exclusions even if they are named on the command line.",
            "force-exclude = true",
            details="The hooks for pre-commit, which names the files that are staged, set it.",
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
            details="The path is relative to the folder of the configuration, and inside it; the option can"
            " name a file elsewhere.",
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
            "Also check YAML, JSON, TOML and shell scripts in folders, and the shell commands in notebooks.",
            "config-files = true",
        ),
    )
    docs: bool = field(
        default=False,
        metadata=_key(
            values.SWITCH,
            "false",
            "Also check blocks of Python in Markdown and reStructuredText in folders.",
            "docs = true",
            details="Each block is checked and rewritten as a separate module. A file that is named on"
            " the command line is always checked.",
        ),
    )
    target: str = field(
        default="cuda",
        metadata=_key(
            values.TARGET,
            '"cuda"',
            "What to run on besides the CPU: CUDA (the default), or whatever torch.accelerator finds.",
            'target = "accelerator"',
        ),
    )
    torch_version: tuple[int, int] | None = field(
        default=None,
        metadata=_key(
            values.VERSION,
            "the newest that devicefix knows",
            "The oldest torch that the result must run with; it limits what --target accelerator may use.",
            'torch-version = "2.6"',
            details="Which operations a CPU has in half precision depends on it as well; by default on the"
            " version that a `requirements.txt`, `pyproject.toml`, `setup.py`, `setup.cfg`, `Pipfile` or"
            " `environment.yml` of the project pins.",
        ),
    )
    max_file_size: str = field(
        default=sizes.LARGEST,
        metadata=_key(
            values.SIZE,
            f'"{sizes.LARGEST}"',
            "The maximum file size (default: 16M). Python code may take up an eighth of it.",
            'max-file-size = "4M"',
            details="A larger file is an error, and is not read: some code needs a thousand times its size in"
            f" memory. A configuration may set at most {sizes.LARGEST}.",
        ),
    )
    output_format: str | None = field(
        default=None,
        metadata=_key(
            values.FORMAT,
            "full on a terminal, else concise",
            "The output format; by default full on a terminal, and concise elsewhere.",
            'output-format = "grouped"',
            details="For `devicefix check`. The environment variable `DEVICEFIX_OUTPUT_FORMAT` overrides it,"
            " and the option overrides both.",
            variable="DEVICEFIX_OUTPUT_FORMAT",
        ),
    )
    cache_dir: Path | None = field(
        default=None,
        metadata=_key(
            values.FOLDER,
            ".devicefix_cache next to the configuration",
            "The folder for the cache; by default .devicefix_cache next to the configuration.",
            'cache-dir = ".cache/devicefix"',
            details="The path is relative to the folder of the configuration, and inside it. The environment"
            " variable `DEVICEFIX_CACHE_DIR` overrides it, and the option overrides both; they can name a"
            " folder elsewhere. A folder that exists must be empty, or a cache of devicefix. `--no-cache`"
            " neither reads nor writes a cache.",
            variable="DEVICEFIX_CACHE_DIR",
        ),
    )
    jobs: int | None = field(
        default=None,
        metadata=_key(
            values.COUNT,
            "one process a core",
            "The number of processes; by default one a core.",
            "jobs = 4",
            short="-j",
        ),
    )
    verbose: bool = field(
        default=False,
        metadata=_key(
            values.FLAG,
            "false",
            "List the files that are checked.",
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
