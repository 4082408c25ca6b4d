"""New constants of a module or a function, which several fixes share."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence

from devicefix.devices.define import CONSTANTS, Definitions, Plan
from devicefix.devices.expression import DeviceExpr
from devicefix.devices.known import own_attributes
from devicefix.devices.places import InsertionPoint, Places
from devicefix.devices.torch_names import TorchNames
from devicefix.devices.variables import name_of_device
from devicefix.facts import Facts, dotted
from devicefix.facts.bound import Bound
from devicefix.model import Definition, New
from devicefix.rewrite.operations import Conditional

_SHOWN = re.compile(r"""[\w.]+|f?(["'])cuda(:\{[\w.]+\})?\1""")  # devices that only read variables, if any
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
        value = self._facts.source.quoted(value.replace("'", '"'))
        lower = map(str.lower, names)
        name = next((name for name in lower if self._definitions.is_free_in(function, name, value)), None)
        if name is None:
            return None
        new = Definition(name, value, place.after, function, least=_SHARED, others=of_module)
        new = self._definitions.add(new)
        self._definitions.use(new, site)
        return new if new.value == value else None

    def of_variable(self, device: ast.expr, choice: Conditional) -> tuple[New, Definition] | None:
        """Return what makes a variable's device itself or the CPU, by a name of the function: `rank_device`.

        Args:
            device: The device.
            choice: How to make it that without a name, as too few fixes may need it.

        Returns:
            The change and the definition; None where the function can't have one.
        """
        code = self._facts.source.code(device)
        place = self._names.place_in_function(device) if _SHOWN.fullmatch(code) else None
        place = place and self._below(device, place)
        if place is None or place.function is None or not self._places.precedes(place, device):
            return None
        torch, plain = self._names.at(place), f"({code} if {choice.test} else {choice.otherwise})"
        value, name = plain[1:-1], name_of_device(re.findall(r"\w+", code)[-1].replace("cuda", ""))
        asks = choice.test == f"{torch.text}.cuda.is_available()" and not torch.needs
        if not asks or choice.otherwise not in ('"cpu"', "'cpu'"):
            return None
        if not self._definitions.is_free_in(place.function, name, value):
            return None
        new = self._definitions.add(Definition(name, value, place.after, place.function, least=_SHARED))
        self._definitions.use(new, device)
        return lambda _: self._definitions.shared_name(new) or (plain if choice.brackets else value), new

    def _below(self, device: ast.expr, place: InsertionPoint) -> InsertionPoint | None:
        """Return the first line below a place of a function from which on a device is the same, or None."""
        tree, function, after = self._facts.tree, place.function, place.after
        owner, own = own_attributes(self._facts, device)
        for part in (each for each in ast.walk(device) if isinstance(each, ast.Name | ast.Attribute)):
            scope, found = tree.lookup(part) or (tree.root, [])
            if isinstance(part, ast.Attribute) and dotted(part) == f"self.{part.attr}":
                is_own = part.attr in own and self._facts.others.is_constant(owner, part.attr)
                found = [own[part.attr]] if is_own else []
            elif scope.node is not function or dotted(part) in tree.declared_elsewhere:
                return None
            node = found[0].node if len(found) == 1 else None
            if isinstance(node, ast.Assign) and tree.parents[node] is function:
                after = node if after is None or after.lineno < node.lineno else after
            elif node is None or not (found[0].parameter or isinstance(part, ast.Attribute)):
                return None
        return InsertionPoint(after, function)

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
