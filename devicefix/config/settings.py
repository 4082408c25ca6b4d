"""The settings; keys, options and documentation are made from the table in keys.toml."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config import sizes
from devicefix.config.evidence import NO_EVIDENCE, Evidence, Seen
from devicefix.config.toml import parse
from devicefix.config.values import KINDS, NEUTRAL, Exclusion, Origin, PerFileIgnores

ACCELERATOR_SINCE = (2, 6)  # the first torch with torch.accelerator


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
        unsafe_fixes: whether unsafe fixes are made, too.
        seen: what runs have shown in the file.
    """

    target: str = "cuda"
    torch_version: tuple[int, int] | None = None
    enabled: frozenset[str] = frozenset()
    unsafe_fixes: bool = False
    seen: frozenset[Seen] = frozenset()


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration; the command line's option is `--name`.

    Attributes:
        name: the name in the configuration.
        kind: the kind of its value, one of `KINDS`.
        default: the value where nothing is set, as TOML or in words.
        summary: one line, which is also the option's help.
        details: further documentation, as Markdown; may be empty.
        example: a line of TOML, as in `devicefix.toml`.
        variable: an environment variable that overrides the key; the option overrides both.
        short: the option's short form.
    """

    name: str
    kind: str
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
        return KINDS[self.kind].type

    def read(self, value: Any, origin: Origin) -> Any:
        """Return the value for `Settings`.

        Raises:
            ValueError: it is wrong.
        """
        return KINDS[self.kind].read(value, origin)


_, _TABLE = parse(Path(__file__).with_name("keys.toml").read_bytes())
KEYS = {name: Key(name, **about) for name, about in _TABLE.items()}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run.

    The first fields, up to `quiet`, are the keys of the configuration. The others are set by the commands.

    Attributes:
        below: the selections of rules that `select`, `extend_select` and `ignore` change, such as that of the
            configuration if they are from the command line.
        fixable_below: likewise those that `fixable`, `extend_fixable` and `unfixable` change.
        off: codes of rules that are off in the file at hand.
        fix: make the new source.
        replacements: spell out every fix as plain text.
        ignore_noqa: keep findings that a comment silences.
        executor: the address of a cluster that does the work.
        evidence: what runs of the program have shown.
        line_length: how long the lines of the project may be, in characters; None if its files show it.
    """

    extend: Path | None = None
    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fixable: tuple[str, ...] = ()
    extend_fixable: tuple[str, ...] = ()
    unfixable: tuple[str, ...] = ()
    per_file_ignores: tuple[PerFileIgnores, ...] = ()
    extend_per_file_ignores: tuple[PerFileIgnores, ...] = ()
    exclude: tuple[Exclusion, ...] = ()
    extend_exclude: tuple[Exclusion, ...] = ()
    force_exclude: bool = False
    respect_gitignore: bool = True
    baseline: Path | None = None
    unsafe_fixes: bool = False
    config_files: bool = False
    environment: bool = False
    docs: bool = False
    target: str = "cuda"
    torch_version: tuple[int, int] | None = None
    max_file_size: str = sizes.LARGEST
    output_format: str | None = None
    cache_dir: Path | None = None
    jobs: int | None = None
    verbose: bool = False
    quiet: bool = False
    below: tuple[Selection, ...] = ()
    fixable_below: tuple[Selection, ...] = ()
    off: tuple[str, ...] = ()
    fix: bool = False
    replacements: bool = False
    ignore_noqa: bool = False
    executor: str | None = None
    evidence: Evidence = NO_EVIDENCE
    line_length: int | None = None

    @property
    def largest(self) -> int:
        """The number of bytes that a file may have."""
        return sizes.size(self.max_file_size)

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
        chosen = {code for each in self.selections for code in each.select + each.extend_select}
        if self.target != "accelerator" and NEUTRAL in chosen:
            raise ConfigError(f'the rules {NEUTRAL} need `target = "accelerator"` or --target accelerator')
        return self


@cache  # asked for each rule and file
def _enabled(selections: tuple[Selection, ...], code: str, default: bool) -> bool:
    enabled = default
    for selection in selections:
        enabled = selection.enables(code, enabled)
    return enabled


def _longest(prefixes: Iterable[str], code: str) -> int:
    """Return the length of the longest word that names a rule, as a number above 0; 0 if none does."""
    return max((len(prefix) + 1 for prefix in prefixes if code.startswith(prefix)), default=0)
