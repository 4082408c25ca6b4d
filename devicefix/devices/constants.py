"""New constants of a module or a function, which several fixes share."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from devicefix.devices.define import CONSTANTS, Definitions, Plan
from devicefix.devices.expression import DeviceExpr
from devicefix.devices.places import InsertionPoint, Places
from devicefix.devices.torch_names import TorchNames
from devicefix.facts import Facts
from devicefix.facts.bound import Bound
from devicefix.model import Definition

_SHARED = 2  # uses of a constant


class Constants:
    """The constants that the fixes of a module may define.

    Args:
        facts: The module's facts.
        bound: What is bound where.
        places: The lines at which something can be defined.
        names: The names of torch.
        definitions: The definitions of fixes.
    """

    def __init__(
        self, facts: Facts, bound: Bound, places: Places, names: TorchNames, definitions: Definitions
    ) -> None:
        self._facts = facts
        self._bound = bound
        self._places = places
        self._names = names
        self._definitions = definitions

    def shared(
        self, site: ast.AST, names: Sequence[str], value: DeviceExpr
    ) -> tuple[Callable[[], str], DeviceExpr]:
        """Return the name of a new constant, or its value where too few fixes need it.

        It is one of the module, or of the function if no fix outside of the function needs it.
        """
        of_module = self._of_module(site, names, value.text)
        of_function = self._of_function(site, names, value.text, of_module)
        new = [each for each in (of_function, of_module) if each is not None]
        definitions = self._definitions

        def code() -> str:
            return next(filter(None, map(definitions.shared_name, new)), value.text)

        return code, DeviceExpr(value.text, value.needs | {*new})

    def _of_module(self, site: ast.AST, names: Iterable[str], value: str) -> Definition | None:
        """Return the definition of a constant of the module, None where a site can't use one."""
        place = self._names.place_in_module
        if place is None and self._is_default_on_import(site):
            place = self._names.place_on_import()
        if place is None or not self._places.precedes(place, site):
            return None
        if not all(self._is_same_at(place, name, site) for name in _names_in(value)):
            return None
        value = self._facts.source.quoted(value.replace("'", '"'))
        of_device = CONSTANTS[:1] if self._definitions.plan is Plan.AS_CONSTANT else ()
        free = (name for name in names if self._definitions.is_free_at(name, site))
        name = next((name for name in free if name not in of_device), None)
        if name is None:
            return None
        new = self._definitions.add(Definition(name, value, place.after, least=_SHARED))
        self._definitions.use(new, site)
        return new if new.value == value else None

    def _of_function(
        self, site: ast.AST, names: Iterable[str], value: str, of_module: Definition | None
    ) -> Definition | None:
        """Return the definition of a constant of the function around a site, None where it can't have one."""
        place = self._names.place_in_function(site)
        function = place.function if place is not None else None
        if place is None or function is None or _names_in(value) != {self._names.at(place).text}:
            return None
        free = (name.lower() for name in names if self._definitions.is_free_in(function, name.lower()))
        name = next(free, None)
        if name is None:
            return None
        value = self._facts.source.quoted(value.replace("'", '"'))
        new = Definition(name, value, place.after, function, least=_SHARED, others=of_module)
        new = self._definitions.add(new)
        self._definitions.use(new, site)
        return new if new.value == value else None

    def _is_default_on_import(self, site: ast.AST) -> bool:
        """Return whether a site is the default of a parameter that the import of the module evaluates."""
        parents = self._facts.tree.parents
        arguments = parents.get(site)
        if not isinstance(arguments, ast.arguments):
            return False
        owner = parents.get(parents[arguments])
        while isinstance(owner, ast.ClassDef):
            owner = parents.get(owner)
        return owner is self._facts.tree.module and not isinstance(parents[arguments], ast.Lambda)

    def _is_same_at(self, place: InsertionPoint, name: str, site: ast.AST) -> bool:
        """Return whether a name of the module has at a new line the only value that it ever has."""
        if name == self._names.at(place).text:
            return name == self._names.of(site).text
        bindings = self._facts.tree.root.bindings.get(name, ())
        imported = len(bindings) == 1 and bindings[0].imported is not None
        above = self._places.above(place)
        return imported and self._facts.shadowed(name, site) is None and self._bound.name_after(name, above)


def _names_in(code: str) -> set[str]:
    """Return the variables that the code of an expression reads."""
    return {node.id for node in ast.walk(ast.parse(code, mode="eval")) if isinstance(node, ast.Name)}
