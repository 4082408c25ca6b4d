"""The devices that a program reads from its configuration files."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from devicefix.facts.flow.sinks import device_values, key_read
from devicefix.facts.flow.sources import How, Source, Sources
from devicefix.facts.module import Facts
from devicefix.facts.scopes import dotted
from devicefix.facts.values import cpu, without_call

_LOADERS = {
    "yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "json.load", "json.loads",
    "toml.load", "toml.loads", "tomllib.load", "tomllib.loads", "tomli.load", "tomli.loads",
    "omegaconf.OmegaConf.load",
}  # fmt: skip
_MAIN = "hydra.main"
_LOADING = re.compile(r"yaml|json\.load|toml|OmegaConf|hydra")
_CHANGING = re.compile("update|merge|setdefault|__setitem__")
_STEPS = 12  # bindings, calls and keys between a value and the file that it is read from


def device_reads(facts: Facts, calls: Collection[ast.expr]) -> Iterator[tuple[ast.expr, str, ast.expr, bool]]:
    """Yield the expressions that read a device from a configuration.

    Args:
        facts: the facts of the module.
        calls: those that parse a configuration in the code.

    Yields:
        The expression, the key, what loads the configuration, and whether the user may give the value in
        another way.
    """
    if not calls and not _LOADING.search(facts.source.text):
        return
    seen: set[ast.expr] = set()
    configurations = _Configurations(facts, calls)
    for passed in device_values(facts):
        for value in _origins(facts, passed):
            key = key_read(value)
            if key and value not in seen and not facts.is_guarded(passed):
                seen.add(value)
                way = configurations.way(value)
                if way is not None:
                    yield value, key, way[0].node, configurations.is_mixed(way)


def _origins(facts: Facts, passed: ast.expr) -> list[ast.expr]:
    """Return a device and what its variable is bound to, or nothing if that may be the CPU."""
    bound = [binding.value for binding in facts.bindings(passed)]
    values = [value for value in bound if value is not None]
    if any(cpu(facts, value) for value in values):
        return []
    return [passed, *values]


class _Configurations:
    """The ways from the expressions of one module back to what loads or parses configurations."""

    def __init__(self, facts: Facts, calls: Collection[ast.expr]) -> None:
        self.facts = facts
        self._calls = calls
        how = How.BOUND | How.PART | How.PASSED | How.RETURNED | How.ARGUMENT
        self._sources = Sources(facts, how, _STEPS)

    def way(self, value: ast.expr) -> list[Source] | None:
        """Return the shortest way from an expression to a loaded configuration, None if there is none."""
        source = self._sources.first(value, lambda node: self._is_loaded(node) or self._is_of_hydra(node))
        return None if source is None else list(source.way())

    def is_mixed(self, way: list[Source]) -> bool:
        """Return whether options may replace what the file says on a way."""
        names = (source.node for source in way if isinstance(source.node, (ast.Name, ast.Attribute)))
        return (
            self._is_of_hydra(way[0].node)  # its command line takes `device=cuda`
            or any(source.several for source in way)
            or any(map(self._is_changed, names))
        )

    def _is_loaded(self, node: ast.expr) -> bool:
        """Return whether an expression loads a configuration."""
        return node in self._calls or self.facts.call(node, *_LOADERS)

    def _is_of_hydra(self, node: ast.expr) -> bool:
        """Return whether a name is the configuration that Hydra passes to the program."""
        found = self._sources.parameter(node)
        decorators = map(without_call, found[0].decorator_list) if found is not None else ()
        return any(self.facts.resolve(each) == _MAIN for each in decorators)

    def _is_changed(self, configuration: ast.expr) -> bool:
        """Return whether the module changes a configuration, perhaps by the user's options."""
        parents = self.facts.tree.parents
        for use in self.facts.tree.reads(dotted(configuration) or ""):
            match parents.get(use):
                case ast.Attribute(attr=name) if _CHANGING.match(name):
                    return True
                case ast.Subscript(value=whole, ctx=ast.Store()) if whole is use:
                    return True
                case ast.Call(func=ast.Name(id="setattr" | "vars")):
                    return True
        return False
