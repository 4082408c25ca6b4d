"""Plugins: rules of other distributions, found by the entry points of the group `devicefix.rules`."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from devicefix.config.settings import ConfigError
from devicefix.config.values import TARGETS
from devicefix.rules.base import Rule, visitors_of
from devicefix.rules.environment.names import normalized

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "devicefix.rules"
_CODE = re.compile(r"[A-Z]+[0-9]+")
_OURS = re.compile(r"DF[0-9]+")
_TUPLES = {"words": bytes, "companions": bytes, "common_words": bytes, "before": str, "references": str}
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A distribution that contains rules."""

    name: str
    version: str
    rules: tuple[type[Rule], ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def files(self) -> set[str]:
        """The files that define the rules."""
        modules = (sys.modules.get(rule.__module__) for rule in self.rules)
        return {module.__file__ for module in modules if module and module.__file__}


class PluginError(ConfigError):
    """An installed distribution cannot be used as a plugin; the message says which, and why."""

    def __init__(self, plugin: str, problem: str) -> None:
        name = plugin.partition(" ")[0]
        super().__init__(f"the plugin {plugin} {problem} (update it, or uninstall it: pip uninstall {name})")


def plugins(own: Mapping[str, type[Rule]]) -> list[Plugin]:
    """Return the installed distributions that contain rules.

    Args:
        own: the rules of devicefix itself, by code.

    Raises:
        PluginError: one of them cannot be loaded, or contains an invalid rule or a duplicate of another.
    """
    found: dict[str, Plugin] = {}
    for folder in _distributions(sys.path):
        plugin = _loaded(folder, found)
        if plugin is not None:
            found[normalized(plugin.name)] = plugin
    taken = {word: "devicefix itself" for rule in own.values() for word in (rule.code, rule.name)}
    for plugin in found.values():
        for rule in plugin.rules:
            unknown = [code for code in rule.before if _OURS.fullmatch(code) and code not in own]
            if unknown:
                raise PluginError(str(plugin), f"puts {rule.code} before {unknown[0]}, which does not exist")
            for word in (rule.code, rule.name):
                if word in taken:
                    problem = f"contains a rule {word!r}, which {taken[word]} contains as well"
                    raise PluginError(str(plugin), problem)
            taken |= dict.fromkeys((rule.code, rule.name), f"the plugin {plugin}")
    return list(found.values())


def _distributions(path: Iterable[str]) -> Iterator[str]:
    """Yield the metadata folders of the distributions that may contain rules.

    Usually there are none. Importing `importlib.metadata` takes 30 ms, and it reads more of each distribution.
    """
    for folder in path:
        with suppress(OSError):
            for name in sorted(os.listdir(folder or ".")):
                path = os.path.join(folder, name)
                if name.endswith((".dist-info", ".egg-info")):
                    with suppress(OSError), open(os.path.join(path, "entry_points.txt"), "rb") as file:
                        if GROUP.encode() in file.read():
                            yield path


def _loaded(folder: str, known: Mapping[str, Plugin]) -> Plugin | None:
    """Return the plugin of a distribution, or None if one of the same name is earlier on the path."""
    from importlib.metadata import Distribution

    distribution = Distribution.at(folder)
    name = distribution.metadata["Name"] or os.path.basename(folder).partition("-")[0]
    points = distribution.entry_points.select(group=GROUP)
    if not points or normalized(name) in known:
        return None
    label = f"{name} {distribution.version}"
    rules: dict[str, type[Rule]] = {}
    for point in points:
        for rule in _rules(label, point):
            if rules.setdefault(rule.code, rule) is not rule:
                raise PluginError(label, f"contains two rules with the code {rule.code!r}")
    return Plugin(name, distribution.version, tuple(rules.values()))


def _rules(plugin: str, point: EntryPoint) -> list[type[Rule]]:
    """Return the rules of an entry point, which names a rule, or a module with rules."""
    try:
        named = point.load()
    except (Exception, SystemExit) as problem:
        what = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise PluginError(plugin, f"cannot be loaded: {point.value} fails with {what}") from None
    found = _members(named) if isinstance(named, ModuleType) else [named]
    if not found:
        raise PluginError(plugin, f"contains no rule: {point.value} has no subclass of Rule with a code")
    for rule in found:
        wrong = _wrong(rule)
        if wrong:
            raise PluginError(plugin, f"contains an invalid rule: {point.value}: {wrong}")
    return found


def _members(module: ModuleType) -> list[type[Rule]]:
    """Return the rules in a module, including imported ones, except those of devicefix."""
    members = (
        member for _, member in inspect.getmembers(module, inspect.isclass) if issubclass(member, Rule)
    )
    own = (member for member in members if not member.__module__.startswith("devicefix."))
    return [member for member in own if "code" in vars(member)]


def _wrong(rule: Any) -> str | None:
    """Return what is wrong with a rule, or None."""
    if not (inspect.isclass(rule) and issubclass(rule, Rule)):
        return "it is not a subclass of devicefix.plugins.Rule"
    return _wrong_names(rule) or _wrong_declarations(rule)


def _wrong_names(rule: Any) -> str | None:
    """Return what is wrong with the code, name or summary of a rule, or None."""
    code, name, summary = (getattr(rule, field, None) for field in ("code", "name", "summary"))
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        return f"the code {code!r} is not capital letters followed by digits, such as 'XY101'"
    if _OURS.fullmatch(code):
        return f"the code {code!r} starts with DF, which is reserved for devicefix"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"the name {name!r} of {code} is not in kebab-case, such as 'no-bare-cuda'"
    if not isinstance(summary, str) or not summary:
        return f"{code} has no summary"
    return None


def _wrong_declarations(rule: type[Rule]) -> str | None:
    """Return what is wrong with the other declarations of a rule, or None."""
    code = rule.code
    for attribute, kind in _TUPLES.items():
        value = getattr(rule, attribute)
        if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
            return f"the attribute `{attribute}` of {code} is not a tuple of {kind.__name__}"
    if bool(rule.references) != (rule.visit_reference is not Rule.visit_reference):
        return f"{code} needs both `references` and `visit_reference`, or neither"
    if not set(rule.targets) <= set(TARGETS):
        return f"the targets of {code} are not among {', '.join(TARGETS)}"
    try:
        visitors_of(rule)  # type: ignore[arg-type]  # mypy takes the class for an object
    except AttributeError as problem:
        return f"{code} has a `visit_` method for a class that is not in `ast`: {problem}"
    return None
