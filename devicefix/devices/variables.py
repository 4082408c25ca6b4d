"""New devices of variables, such as `rank_device`, to which a function moves several times."""

from __future__ import annotations

import ast
import re

from devicefix.devices.define import Definitions
from devicefix.devices.expression import DeviceExpr
from devicefix.devices.places import InsertionPoint, Places
from devicefix.devices.torch_names import TorchNames
from devicefix.facts import Binding, Facts, Function, Scope
from devicefix.facts.flow.kinds import NUMBERS, Kind
from devicefix.facts.flow.settled import is_moved_to_often
from devicefix.facts.values import is_constant
from devicefix.model import Definition

# The end of a variable's name that its device does not need.
_NUMBERED = re.compile(r"_?(id|ids|idx|index|num|number)\Z")


class Variables:
    """The variables of a module's functions that hold devices.

    Args:
        facts: The module's facts.
        places: The lines at which something can be defined.
        names: The names of torch.
        definitions: The definitions of fixes.
    """

    def __init__(self, facts: Facts, places: Places, names: TorchNames, definitions: Definitions) -> None:
        self._facts = facts
        self._places = places
        self._names = names
        self._definitions = definitions

    def device(self, site: ast.AST, target: ast.expr, *, of_module: bool = False) -> DeviceExpr | None:
        """Return the device of a variable to which its function or module moves several times: `rank_device`.

        The fix defines it where the variable gets its value. A parameter may be an index, a device, its
        name, or None. The definition is right for all of them, and raises no error that the moves do not.

        Args:
            site: The call that moves.
            target: Its device argument.
            of_module: Whether the module may have such a device.

        Returns:
            None where the argument is no such variable, or the definition can't be placed.
        """
        name = target.id if isinstance(target, ast.Name) else ""
        found = self._facts.tree.scope(site).lookup(name)
        if found is None or not self._facts.once(is_moved_to_often, found[0], name):
            return None
        place = self._place_of_variable(site, *found)
        new_name = name_of_device(name)
        if place is None or (place.function is None and not of_module):
            return None
        if place.function is None and not self._definitions.is_free_at(new_name, site):
            return None
        torch = self._names.at(place)
        index = name if is_never_none(self._facts, target) else f'("cuda" if {name} is None else {name})'
        value = self._facts.source.quoted(f'{index} if {torch.text}.cuda.is_available() else "cpu"')
        if place.function is not None and not self._definitions.is_free_in(place.function, new_name, value):
            return None
        new = self._definitions.add(Definition(new_name, value, place.after, place.function))
        if new.value != value:
            return None  # another variable has a device of this name
        self._definitions.use(new, site)
        return DeviceExpr(new_name, torch.needs | {new})

    def _place_of_variable(
        self, site: ast.AST, scope: Scope, bindings: list[Binding]
    ) -> InsertionPoint | None:
        """Return where a function can define the device of its variable in front of a site."""
        if self._places.sets_devices_late:
            return None
        if not scope.is_module and self._facts.tree.scope(site).function is not scope:
            return None
        places = self._places.of_module if scope.is_module else self._places.of_function(site)
        binding = bindings[0].node
        if isinstance(binding, ast.Assign):
            below = InsertionPoint(binding, scope.node if isinstance(scope.node, Function) else None)
            places = iter([below] if any(places) and self._places.precedes(below, site) else [])
        return self._names.first(places)


def is_never_none(facts: Facts, target: ast.expr) -> bool:
    """Return whether an expression is the number of a GPU or a device, and not None, as a default may be."""
    if any(is_constant(binding.default, None) for binding in facts.tree.bound(target)):
        return False
    return facts.kinds.of(target).are({*NUMBERS, Kind.DEVICE, Kind.CUDA})


def name_of_device(variable: str) -> str:
    """Return a name for the device of a variable: `rank_device` for `rank`, `gpu_device` for `gpu_id`."""
    stem = _NUMBERED.sub("", variable)
    return f"{stem}_device" if stem.isidentifier() and "device" not in stem else "target_device"
