"""The device that code gets in place of CUDA: one that the module has, or a new one."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from weakref import proxy

from devicefix.devices.accelerator import Accelerator
from devicefix.devices.define import Definitions
from devicefix.devices.known import KnownDevices
from devicefix.devices.places import InsertionPoint, Places, is_main
from devicefix.facts import ASKS, Binding, Facts, Scope, dotted
from devicefix.facts.bound import Bound
from devicefix.facts.flow.kinds import NUMBERS, Kind
from devicefix.facts.project import Project
from devicefix.model import Definition, Edit, Form, Import, Need, Refused
from devicefix.rewrite.placement import Layout

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# The end of a variable's name that its device does not need.
_NUMBERED = re.compile(r"_?(id|ids|idx|index|num|number)\Z")
_SHARED = 2  # uses of a constant
# They pickle functions by value: https://github.com/cloudpipe/cloudpickle
_SENDING = {"ray", "dask", "submitit", "pyspark", "cloudpickle"}


@dataclass(frozen=True, slots=True)
class DeviceExpr:
    """The code of an expression, and the imports and definitions that it needs."""

    text: str
    needs: frozenset[Need] = frozenset()


class Devices:
    """The devices of a module, and the tests for CUDA.

    Every method that takes a site returns code that works at that node of the module.

    Args:
        facts: The module's facts.
        project: The facts of all files.
        path: The module's path.
        accelerator: What any accelerator supports; None where the target is CUDA.
    """

    def __init__(
        self, facts: Facts, project: Project, path: str, accelerator: Accelerator | None = None
    ) -> None:
        self.accelerator = accelerator
        self.facts = facts
        self.path = path
        self._layout = Layout(facts)
        self._project = project
        self._bound = Bound(facts, is_circular=partial(project.is_circular, path))
        self._places = Places(facts, self._bound, project, path, self._layout)
        self._known = KnownDevices(
            facts,
            self._bound,
            partial(project.star_names, path),
            partial(Devices._may_ask, proxy(self)),  # a circle would keep the tree until it is collected
            partial(project.is_set_elsewhere, path),
        )
        self._definitions = Definitions(facts, project, path, self._layout, self._known)

    def is_circular(self) -> bool:
        """Return whether the module is in a circle of imports."""
        return self._project.is_circular(self.path)

    # -- devices --------------------------------------------------------------------------------------

    def current(self, site: ast.AST, *, with_type: bool = False) -> DeviceExpr:
        """Return the current CUDA device, or the CPU: what `.cuda()` moves to.

        This is the name of such a device if the module has one, such as `device`; else the name of a new
        one that the fix defines; else, where nothing can be defined, `"cuda" if … else "cpu"`.

        Args:
            site: The node that uses it.
            with_type: Whether the site reads the `type` of a device that the fix defines.
        """
        known = self._of_module(site)
        if known is not None:
            return known
        new = self._new(site)
        return _as_object(new) if with_type else new

    def shared(self, site: ast.AST, *, define: bool = False, may_be_text: bool = False) -> DeviceExpr | None:
        """Return the name of the current CUDA device, or the CPU, if a site can share one with other code.

        Args:
            site: The node that uses it.
            define: Whether the fix may define the device; else the module or another fix must.
            may_be_text: Whether the site also takes the name of a device, such as `"cuda"`.

        Returns:
            None where there is no such name.
        """
        known = self._of_module(site, may_be_text=may_be_text)
        new = known or self._defined(site, self._definitions.add if define else self._definitions.added)
        return new if new is None or may_be_text else _as_object(new)

    def text(self, site: ast.AST, index: int | None = None) -> tuple[Callable[[], str], DeviceExpr] | None:
        """Return the current CUDA device, or one by its number, or the CPU, by its name: as a string.

        Args:
            site: The node that uses it.
            index: The number.

        Returns:
            A function that returns the code once it is known which fixes are made, and what the code needs;
            None where the module has no device and a fix can't define one.
        """
        if self.accelerator is not None:
            return None
        known = self._known.name_of_current(site) if index is None and not self._sends_functions else None
        if known is not None:
            return lambda: known, DeviceExpr(known)
        new = self._defined(site, self._definitions.add, index)
        if new is None:
            return None
        definition = next(need for need in new.needs if isinstance(need, Definition))
        definitions = self._definitions

        def code() -> str:
            if definitions.is_text(definition):
                return new.text
            return f"{new.text}.type" if index is None else f"str({new.text})"

        return code, DeviceExpr(new.text, new.needs | {Form(definition, text=True)})

    def named(self, site: ast.AST) -> DeviceExpr | None:
        """Return the variable of the module that is the name of the current device, or None."""
        known = None if self._sends_functions else self._known.text(site)
        return DeviceExpr(known) if known else None

    def _of_module(self, site: ast.AST, *, may_be_text: bool = True) -> DeviceExpr | None:
        """Return the name of the current device that the module has already."""
        known = None if self._sends_functions else self._known.current(site, may_be_text=may_be_text)
        return DeviceExpr(known) if known else None

    def indexed(self, site: ast.AST, index: int, *, may_be_text: bool = False) -> DeviceExpr:
        """Return the CUDA device of a literal index, or the CPU: `device1`, which the fix defines.

        Args:
            site: The node that uses it.
            index: The index.
            may_be_text: Whether the site also takes the name of a device, such as `"cuda:1"`.
        """
        new = self._new(site, index)
        return new if may_be_text else _as_object(new)

    def computed(self, site: ast.AST, index: str) -> DeviceExpr:
        """Return the CUDA device of an index that is known at run time, or the CPU.

        Args:
            site: The node that the code is for.
            index: The code of the index.
        """
        return self.either(site, f"{self.torch(site).text}.device({self.device_type(site)}, {index})")

    def of_variable(
        self, site: ast.AST, target: ast.expr, *, none_is_current: bool = True
    ) -> DeviceExpr | None:
        """Return the device of a variable to which a function moves several times: `rank_device`.

        The fix defines it where the variable gets its value. A parameter may be an index, a device, its
        name, or None. The definition is right for all of them, and raises no error that the moves do not.

        Args:
            site: The call that moves.
            target: Its device argument.
            none_is_current: Whether None is the current device for the call, as it is for `.cuda`.

        Returns:
            None where the argument is no such variable, or the definition can't be placed.
        """
        found = self.facts.tree.scope(site).lookup(target.id) if isinstance(target, ast.Name) else None
        if found is None or not self.facts.once(is_moved_to_often, found[0], target.id):  # type: ignore[attr-defined]
            return None
        name = target.id  # type: ignore[attr-defined]
        place = self._place_of_variable(site, *found)
        if place is None or place.function is None:
            return None
        new_name = _name_of_device(name)
        if not self._definitions.is_free_in(place.function, new_name):
            return None
        torch = self._torch_at(place)
        plain = not none_is_current or is_never_none(self.facts, target)
        index = name if plain else f'("cuda" if {name} is None else {name})'
        value = self.facts.source.quoted(f'{index} if {torch.text}.cuda.is_available() else "cpu"')
        new = self._definitions.add(Definition(new_name, value, place.after, place.function))
        if new.value != value:
            return None  # another variable has a device of this name
        return DeviceExpr(new_name, torch.needs | {new})

    def _place_of_variable(
        self, site: ast.AST, scope: Scope, bindings: list[Binding]
    ) -> InsertionPoint | None:
        """Return where a function can define the device of its variable in front of a site."""
        if self.accelerator is not None or self._places.sets_devices_late:
            return None
        if self.facts.tree.scope(site).function is not scope:
            return None
        places = self._places.of_function(site)
        binding = bindings[0].node
        if isinstance(binding, ast.Assign):
            function = scope.node
            assert isinstance(function, _FUNCTIONS)
            below = InsertionPoint(binding, function)
            places = iter([below] if any(places) and self._places.precedes(below, site) else [])
        return next(filter(self._has_torch, places), None)

    def flagged(self, site: ast.AST, flag: ast.expr) -> DeviceExpr | None:
        """Return the device that a flag such as `use_gpu` chooses, which is defined below the flag.

        Returns:
            None where the flag has no single definition before the site.
        """
        if not self._known.has_one_value(flag):
            return None
        known = next(self._known.chosen_by_flag(site, flag), None)
        if known is not None:
            return DeviceExpr(known)
        if self._has_unflagged(site):
            # A second device, chosen by the flag, would be one too many.
            return self.current(site) if self._is_availability(flag) else None
        return self._new_of_flag(site, flag, ast.unparse(flag))

    def either(self, site: ast.AST, cuda: str, cpu: str = '"cpu"', *, of_cuda: bool = False) -> DeviceExpr:
        """Return `cuda if torch.cuda.is_available() else cpu`; for `of_cuda` see `available`."""
        available = self.available(site, of_cuda=of_cuda)
        return DeviceExpr(f"{cuda} if {available.text} else {self.facts.source.quoted(cpu)}", available.needs)

    def device_type(self, site: ast.AST) -> str:
        """Return the code of the type of the current device, which is `"cuda"` or the accelerator's."""
        if self.accelerator is None:
            return self.facts.source.quoted('"cuda"')
        return f"{self.torch(site).text}.accelerator.current_accelerator().type"

    def eventual(self, site: ast.AST, otherwise: Callable[[str], str]) -> Callable[[str], str]:
        """Return the rewrite of code as the name of a device that other fixes define, or else as other code.

        Args:
            site: The node that the code is for.
            otherwise: The rewrite where no other fix defines a device that the site can use.
        """
        candidates: list[Definition] = []

        def kept(new: Definition) -> Definition:
            candidates.append(new)
            return new

        self._defined(site, kept)
        definitions = self._definitions

        def new(text: str) -> str:
            shared = (each.name for each in candidates if definitions.is_shared(each))
            return next(shared, None) or otherwise(text)

        return new

    def constant(
        self, site: ast.AST, names: Sequence[str], value: DeviceExpr
    ) -> tuple[Callable[[], str], DeviceExpr]:
        """Return the name of a new constant, or its value where too few fixes need it.

        It is one of the module, or of the function if no fix outside of the function needs it.

        Args:
            site: The node that the code is for.
            names: The names that the constant may have.
            value: The code of the value at the site.

        Returns:
            A function that returns the code once it is known which fixes are made, and what the code needs.
        """
        of_module = self._constant(site, names, value.text)
        of_function = self._constant_of_function(site, names, value.text, of_module)
        new = [each for each in (of_function, of_module) if each is not None]
        definitions = self._definitions

        def code() -> str:
            return next((each.name for each in new if definitions.is_shared(each)), value.text)

        return code, DeviceExpr(value.text, value.needs | {*new})

    def _constant(self, site: ast.AST, names: Iterable[str], value: str) -> Definition | None:
        """Return the definition of a constant of the module, None where a site can't use one."""
        place = self._module_place
        if place is None and self._is_default_on_import(site):
            place = next(filter(self._has_torch, self._places.of_import), None)
        if self._sends_functions or place is None or not self._places.precedes(place, site):
            return None
        if not all(self._is_same_at(place, name, site) for name in _names_in(value)):
            return None
        value = self.facts.source.quoted(value.replace("'", '"'))
        name = next((name for name in names if self._definitions.is_free_at(name, site)), None)
        if name is None:
            return None
        new = self._definitions.add(Definition(name, value, place.after, least=_SHARED))
        return new if new.value == value else None

    def _is_default_on_import(self, site: ast.AST) -> bool:
        """Return whether a site is the default of a parameter that the import of the module evaluates."""
        parents = self.facts.tree.parents
        arguments = parents.get(site)
        if not isinstance(arguments, ast.arguments):
            return False
        owner = parents.get(parents[arguments])
        while isinstance(owner, ast.ClassDef):
            owner = parents.get(owner)
        return owner is self.facts.tree.module and not isinstance(parents[arguments], ast.Lambda)

    def _constant_of_function(
        self, site: ast.AST, names: Iterable[str], value: str, of_module: Definition | None
    ) -> Definition | None:
        """Return the definition of a constant of the function around a site, None where it can't have one."""
        place = next(filter(self._has_torch, self._places.of_function(site)), None)
        if self._sends_functions or place is None or place.function is None:
            return None
        if _names_in(value) != {self._torch_at(place).text}:
            return None
        function = place.function
        name = next(
            (name.lower() for name in names if self._definitions.is_free_in(function, name.lower())), None
        )
        if name is None:
            return None
        value = self.facts.source.quoted(value.replace("'", '"'))
        new = Definition(name, value, place.after, function, least=_SHARED, others=of_module)
        new = self._definitions.add(new)
        return new if new.value == value else None

    def _is_same_at(self, place: InsertionPoint, name: str, site: ast.AST) -> bool:
        """Return whether a name of the module has at a new line the only value that it ever has."""
        if name == self._torch_at(place).text:
            return name == self.torch(site).text
        bindings = self.facts.tree.root.bindings.get(name, ())
        imported = len(bindings) == 1 and bindings[0].imported is not None
        above = self._places.above(place)
        return imported and self.facts.shadowed(name, site) is None and self._bound.name_after(name, above)

    # -- questions ------------------------------------------------------------------------------------

    def available(self, site: ast.AST, *, of_cuda: bool = False) -> DeviceExpr:
        """Return the test for CUDA or, if that is the target, for any accelerator.

        Args:
            site: The node that needs it. If only CUDA supports something in it, the test is for CUDA.
            of_cuda: Whether the test is for CUDA in any case.
        """
        if of_cuda or (self.accelerator and self.accelerator.only_cuda(site) is not None):
            return self._is_available(site, "cuda")
        return self._target_available(site)

    def question(self, site: ast.AST, *, of_cuda: bool = False) -> DeviceExpr:
        """Return the test for CUDA, or the variable of the program that holds the answer; see `available`."""
        known = None
        if self.accelerator is None and not self._sends_functions and not self._places.sets_devices_late:
            known = self._known.answer(site)
        return DeviceExpr(known) if known else self.available(site, of_cuda=of_cuda)

    def accelerated(self, node: ast.expr) -> tuple[DeviceExpr, Callable[[str], str]] | None:
        """Return the test for an accelerator, and a function that replaces a CUDA device in code by it.

        Returns:
            None where the target is CUDA, or the node is not a device.
        """
        if self.accelerator is None:
            return None
        change = self.accelerator.translation(node, self.torch(node).text)
        return (self._target_available(node), change) if change else None

    def are_bound(self, names: Collection[ast.Name]) -> bool:
        """Return whether names are certainly bound at their places, even if they were not read there."""
        bound = Bound(self.facts, frozenset(names), self.is_circular)
        return all(bound.name(name.id, name) for name in names)

    def why_unsafe(self, site: ast.AST) -> str:
        """Return how safe a fix is that asks for CUDA at a site."""
        return self._places.why_unsafe(site)

    def _may_ask(self, site: ast.AST) -> bool:
        """Return whether a fix that asks for CUDA at a site is made, and safe."""
        refused = any(isinstance(need, Refused) for need in self.available(site).needs)
        return not self.why_unsafe(site) and not refused

    def _target_available(self, site: ast.AST) -> DeviceExpr:
        return self._is_available(site, self._target)

    @property
    def _target(self) -> str:
        return "cuda" if self.accelerator is None else "accelerator"

    def _is_available(self, site: ast.AST, module: str) -> DeviceExpr:
        torch = self.torch(site)
        return DeviceExpr(f"{torch.text}.{module}.is_available()", torch.needs)

    # -- imports --------------------------------------------------------------------------------------

    def torch(self, site: ast.AST) -> DeviceExpr:
        """Return the name of the module torch."""
        scope = self.facts.tree.scope(site)
        name = self._bound_torch(scope, lambda name: self._bound.name(name, site))
        return DeviceExpr(name) if name else self._imported("torch", scope, site)

    def _torch_at(self, place: InsertionPoint) -> DeviceExpr:
        """Return the name of the module torch at a new line."""
        above, function = self._places.above(place), place.function
        scope = self.facts.tree.root if function is None else self.facts.tree.scopes[function]
        name = self._bound_torch(scope, lambda name: self._bound.name_after(name, above, function))
        if name is not None:
            return DeviceExpr(name)
        return self._imported("torch", scope, above if function is None else function.body[0])

    def _bound_torch(self, scope: Scope, is_bound: Callable[[str], bool]) -> str | None:
        if self._layout.torch_comes_late:
            return None
        return next(filter(is_bound, self.facts.torch_names(scope)), None)

    def imports(self, module: str, site: ast.AST) -> frozenset[Need]:
        """Return what code at a site needs that uses a module by its name: an import, unless it is bound."""
        found = self.facts.tree.scope(site).lookup(module)
        if found is not None and all(binding.imported == module for binding in found[1]):
            if self._bound.name(module, site):
                return frozenset()
        new = self._imported(module, self.facts.tree.scope(site), site)
        return (
            new.needs
            if new.text == module
            else frozenset({Refused(f"because `{module}` means something else here")})
        )

    def _imported(self, module: str, scope: Scope, site: ast.AST | None) -> DeviceExpr:
        """Return the name of a module that a fix imports at the top.

        Args:
            module: The module.
            scope: The scope that uses it.
            site: What uses it; None for the beginning of the module.
        """
        bound = scope.lookup(module)
        same = bound is None or (
            bound[0].is_module
            and all((binding.imported or "").rpartition(".")[2] == module for binding in bound[1])
        )
        new = Import(module) if same else Import(module, f"_{module}")
        above = self._layout.above_import(new)
        if self._is_optional(module) or not (
            above is None or (site is not None and (site is above or self._bound.ran(above, site)))
        ):
            return DeviceExpr(
                module,
                frozenset({Refused(f"because `{module}` may not be imported here: import it at the top")}),
            )
        return DeviceExpr(new.alias or module, frozenset({new}))

    def _is_optional(self, module: str) -> bool:
        """Return whether the module imports another one only where it can, or where it is wanted."""
        bindings = self.facts.tree.root.bindings.get(module, ())
        return module not in sys.stdlib_module_names and any(
            isinstance(parent, (ast.Try, ast.If)) and not is_main(parent)
            for binding in bindings
            if binding.imported
            for _, parent in self.facts.tree.ancestors(binding.node)
        )

    def insertions(self, *needs: frozenset[Need]) -> list[Edit]:
        """Return the edits that insert the imports and definitions that fixes need, given for each fix."""
        return self._definitions.insertions(*needs)

    # -- new devices ----------------------------------------------------------------------------------

    def _new(self, site: ast.AST, index: int | None = None) -> DeviceExpr:
        """Return the name of a device that the fix defines, or the device itself where it can't."""
        return self._defined(site, self._definitions.add, index) or self._in_place(site, index)

    def _defined(
        self, site: ast.AST, add: Callable[[Definition], Definition | None], index: int | None = None
    ) -> DeviceExpr | None:
        """Return the name of a device that a fix defines, None where it can't or where nothing is added."""
        place = self._place_on_the_same_machine(site) if self._sends_functions else self._place(site)
        if place is None and not self._sends_functions:
            place = self._places.of_main(site)
        name = self._name(site, place, "" if index is None else str(index)) if place else None
        if place is None or name is None:
            return None
        torch = self.torch(place.before) if place.before is not None else self._torch_at(place)
        value = self._value(torch.text, index)
        text = self._text(torch.text, index) if self.accelerator is None else None
        new = add(Definition(name, value, place.after, place.function, text=text))
        return DeviceExpr(name, torch.needs | {new}) if new is not None else None

    @cached_property
    def _sends_functions(self) -> bool:
        """Return whether functions of the module, with its variables, may run on other machines."""
        return any(
            (binding.imported or "").partition(".")[0] in _SENDING
            for scope in self.facts.tree.scopes.values()
            for bindings in scope.bindings.values()
            for binding in bindings
        )

    def _place(self, site: ast.AST) -> InsertionPoint | None:
        """Return where to define a device, in front of a site and below what binds torch; None if nowhere."""
        if self._module_place is not None and self._places.precedes(self._module_place, site):
            return self._module_place
        return next(filter(self._has_torch, self._places.of_function(site)), None)

    def _place_on_the_same_machine(self, site: ast.AST) -> InsertionPoint | None:
        """Return where to define a device in the function around a site, which runs both."""
        scope = self.facts.tree.scope(site)
        if scope is not scope.function:
            return None  # a function inside it may take the device to another machine
        return next(filter(self._has_torch, self._places.of_function(site)), None)

    @cached_property
    def _module_place(self) -> InsertionPoint | None:
        """Return the place where the module can define a device, if there is one."""
        return next(filter(self._has_torch, self._places.of_module), None)

    def _has_torch(self, place: InsertionPoint) -> bool:
        return not any(isinstance(need, Refused) for need in self._torch_at(place).needs)

    def _name(self, site: ast.AST, place: InsertionPoint, number: str) -> str | None:
        """Return a name with a number for a device that is defined at a place and used at a site."""
        if place.function is not None:
            return self._definitions.name_in(place.function, number)
        return self._definitions.name_without_flag(site, number)

    def _in_place(self, site: ast.AST, index: int | None) -> DeviceExpr:
        """Return a new device as an expression that defines no name."""
        name = self.device_type(site)
        if index is not None:
            name = f'"cuda:{index}"' if self.accelerator is None else f'f"{{{name}}}:{index}"'
        question = self._target_available(site)
        text = f'{name} if {question.text} else "cpu"'
        return DeviceExpr(self.facts.source.quoted(text), question.needs)

    def _value(self, torch: str, index: int | None) -> str:
        """Return a new device as the value of a definition, by the name that torch has there."""
        question = f"{torch}.{self._target}.is_available()"
        if self.accelerator is None:
            return f"{torch}.device({self._text(torch, index)})"
        device = f"{torch}.accelerator.current_accelerator()"
        if index is not None:
            device = f"{torch}.device({device}.type, {index})"
        return self.facts.source.quoted(f'{device} if {question} else {torch}.device("cpu")')

    def _text(self, torch: str, index: int | None) -> str:
        """Return a new device as a string, by the name that torch has there."""
        name = "cuda" if index is None else f"cuda:{index}"
        return self.facts.source.quoted(f'"{name}" if {torch}.cuda.is_available() else "cpu"')

    def _new_of_flag(self, site: ast.AST, flag: ast.expr, code: str) -> DeviceExpr | None:
        """Return the name of a device that a flag chooses, defined below the flag; None where it can't be."""
        bindings = self.facts.bindings(flag)
        tree = self.facts.tree
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.stmt):
            return None
        statement = bindings[0].node
        if tree.parents.get(statement) is not tree.module or dotted(flag) is None:
            return None
        place = InsertionPoint(statement)
        name = self._definitions.name
        if not self._places.precedes(place, site) or self._definitions.is_shadowed(site) or name is None:
            return None
        if any(definition.flag != code for definition in self._definitions.of_name(name)):
            return None
        torch = self._torch_at(place)
        value = self.facts.source.quoted(self._value_of_flag(torch.text, code))
        new = self._definitions.add(Definition(name, value, statement, flag=code))
        return DeviceExpr(name, torch.needs | {new})

    def _value_of_flag(self, torch: str, flag: str) -> str:
        if self.accelerator is None:
            return f'{torch}.device("cuda" if {flag} else "cpu")'
        return f'{torch}.accelerator.current_accelerator() if {flag} else {torch}.device("cpu")'

    def _has_unflagged(self, site: ast.AST) -> bool:
        """Return whether a site can use a device that no flag chooses."""
        if self._known.current(site) is not None:
            return True
        return any(
            definition.flag is None and definition.function is None
            for definition in self._definitions.of_name(self._definitions.name)
        )

    def _is_availability(self, flag: ast.expr) -> bool:
        """Return whether a flag is `torch.cuda.is_available()` and nothing else."""
        value = self.facts.value(flag)
        return value is not None and self.facts.call(value, *ASKS)


def _as_object(new: DeviceExpr) -> DeviceExpr:
    """Return a device of which a definition must be an object of `torch.device`."""
    forms = {Form(need, text=False) for need in new.needs if isinstance(need, Definition)}
    return DeviceExpr(new.text, new.needs | forms)


def _names_in(code: str) -> set[str]:
    """Return the variables that the code of an expression reads."""
    return {node.id for node in ast.walk(ast.parse(code, mode="eval")) if isinstance(node, ast.Name)}


def is_never_none(facts: Facts, target: ast.expr) -> bool:
    """Return whether an expression is the number of a GPU or a device, and not None, as a default may be."""
    found = facts.tree.scope(target).lookup(target.id) if isinstance(target, ast.Name) else None
    defaults = [binding.default for binding in found[1]] if found is not None else []
    if any(isinstance(default, ast.Constant) and default.value is None for default in defaults):
        return False
    return facts.kinds.of(target).are({*NUMBERS, Kind.DEVICE, Kind.CUDA})


def _name_of_device(variable: str) -> str:
    """Return a name for the device of a variable: `rank_device` for `rank`, `gpu_device` for `gpu_id`."""
    stem = _NUMBERED.sub("", variable)
    return "target_device" if not stem or "device" in stem else f"{stem}_device"


def is_moved_to_often(facts: Facts, scope: Scope, name: str) -> bool:
    """Return whether a name is a variable of a function that moves to it several times, as by `x.cuda(name)`.

    It is a parameter, or gets its value in a statement of the function's body, and never another one.
    """
    binding, *others = scope.bindings[name]
    if others or name in facts.tree.declared_elsewhere or not isinstance(scope.node, _FUNCTIONS):
        return False
    match binding.node:
        case ast.Assign(targets=[ast.Name()]) as statement if facts.tree.parents.get(statement) is scope.node:
            pass
        case _ if not binding.parameter:
            return False
    if any(facts.tree.scope(read).function is scope for read in facts.tree.reads("locals")):
        return False
    moves = (read for read in facts.reads_in(scope, name) if facts.tree.scope(read).function is scope)
    return sum(_is_moved_to(facts, read) for read in moves) > 1


def _is_moved_to(facts: Facts, target: ast.expr) -> bool:
    """Return whether an expression is the device argument of a call that moves, which no guard protects."""
    parent = facts.tree.parents.get(target)
    call = facts.tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if isinstance(parent, ast.keyword):
        return parent.arg == "device" and not facts.is_guarded(target)
    match call:
        case ast.Call(func=ast.Attribute(attr="cuda" | "to"), args=[first, *_]):
            return first is target and not facts.is_guarded(call)
    return False
