"""The names of torch and of other modules at a place, and the places where a new line can use torch."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property

from devicefix.devices.expression import DeviceExpr
from devicefix.devices.places import InsertionPoint, Places
from devicefix.facts import Facts, Scope
from devicefix.facts.bound import Bound
from devicefix.facts.exports.imports import full_names
from devicefix.facts.scopes import FUNCTIONS, is_main
from devicefix.model import Doubt, Import, Need, Refused
from devicefix.rewrite.placement import Layout


class TorchNames:
    """The names of torch in a module.

    Args:
        facts: The module's facts.
        bound: What is bound where.
        places: The lines at which something can be defined.
        layout: The module's layout.
    """

    def __init__(self, facts: Facts, bound: Bound, places: Places, layout: Layout) -> None:
        self._facts = facts
        self._bound = bound
        self._places = places
        self._layout = layout

    def of(self, site: ast.AST) -> DeviceExpr:
        """Return the name of the module torch."""
        scope = self._facts.tree.scope(site)
        name = self._bound_torch(scope, lambda name: self._bound.name(name, site))
        return DeviceExpr(name) if name else self._imported("torch", scope, site)

    def at(self, place: InsertionPoint) -> DeviceExpr:
        """Return the name of the module torch at a new line."""
        above, function = self._places.above(place), place.function
        scope = self._facts.tree.root if function is None else self._facts.tree.scopes[function]
        name = self._bound_torch(scope, lambda name: self._bound.name_after(name, above, function))
        if name is not None:
            return DeviceExpr(name)
        return self._imported("torch", scope, above if function is None else function.body[0])

    def _bound_torch(self, scope: Scope, is_bound: Callable[[str], bool]) -> str | None:
        if self._layout.torch_comes_late:
            return None
        return next(filter(is_bound, self._facts.torch_names(scope)), None)

    def imports(self, module: str, site: ast.AST) -> frozenset[Need]:
        """Return what code at a site needs that uses a module by its name: an import, unless it is bound."""
        found = self._facts.tree.scope(site).lookup(module)
        if found is not None and all(binding.imported == module for binding in found[1]):
            if self._bound.name(module, site):
                return frozenset()
        new = self._imported(module, self._facts.tree.scope(site), site)
        if new.text == module:
            return new.needs
        return frozenset({Refused(f"because `{module}` means something else here")})

    def _imported(self, module: str, scope: Scope, site: ast.AST | None) -> DeviceExpr:
        """Return the name of a module that a fix imports at the top.

        Args:
            module: The module.
            scope: The scope that uses it.
            site: What uses it; None for the beginning of the module.
        """
        where, bindings = scope.lookup(module) or (None, ())
        imported = all((binding.imported or "").rpartition(".")[2] == module for binding in bindings)
        same = where is None or (where.is_module and imported)
        new = Import(module) if same else Import(module, f"_{module}")
        above = self._layout.above_import(new)
        site = None if above is not None and above.col_offset else site  # after `%time`
        ran = above is None or (site is not None and (site is above or self._bound.ran(above, site)))
        if self._is_optional(module) or not ran:
            why = f"because `{module}` might not be imported here; import it at the top"
            return DeviceExpr(module, frozenset({Refused(why)}))
        doubts = [Doubt(f"this module imports `{module}` only in functions")] if self._is_late(module) else []
        return DeviceExpr(new.alias or module, frozenset({new, *doubts}))

    def _is_optional(self, module: str) -> bool:
        """Return whether the module imports another one only where it can, or where it is wanted."""
        bindings = self._facts.tree.root.bindings
        every = ((name, binding) for name, found in bindings.items() for binding in found)
        own = (each.node for name, each in every if each.imported and module in (name, each.imported))
        around = (parent for node in own for parent in self._facts.tree.around(node, ast.Try, ast.If))
        return module not in sys.stdlib_module_names and not all(map(is_main, around))

    def _is_late(self, module: str) -> bool:
        """Return whether only functions import another module, so that this one can be used without it."""
        tree, start = self._facts.tree, re.compile(rf"{module}\b")
        used = [each for each in tree.imports if any(map(start.match, full_names(each)))]
        is_late = bool(used) and all(any(tree.around(each, *FUNCTIONS)) for each in used)
        return is_late and module not in sys.stdlib_module_names

    @cached_property
    def place_in_module(self) -> InsertionPoint | None:
        """Return the place where the module can define a device, if there is one."""
        return self.first(self._places.of_module)

    def first(self, places: Iterator[InsertionPoint]) -> InsertionPoint | None:
        """Return the first place at which a new line can certainly use torch, or None."""
        return next((each for each in places if not self.at(each).is_doubtful), None)

    def place_in_function(self, site: ast.AST) -> InsertionPoint | None:
        """Return the place where the function around a site can define a device in front of it, or None."""
        return self.first(self._places.of_function(site))

    def place_on_import(self) -> InsertionPoint | None:
        """Return the place where the module can define a value for code that runs on import, or None."""
        return self.first(self._places.of_import)
