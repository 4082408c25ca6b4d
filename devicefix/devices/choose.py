"""The device that code gets in place of CUDA: one that the module has, or a new one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from weakref import proxy

from devicefix.devices.accelerator import Accelerator
from devicefix.devices.constants import Constants
from devicefix.devices.define import Definitions, Plan
from devicefix.devices.expression import DeviceExpr
from devicefix.devices.known import KnownDevices
from devicefix.devices.places import InsertionPoint, Places
from devicefix.devices.torch_names import TorchNames
from devicefix.devices.variables import Variables
from devicefix.facts import ASKS, Facts, dotted
from devicefix.facts.bound import Bound
from devicefix.facts.project import Project
from devicefix.facts.values import last_name
from devicefix.model import Definition, Doubt, Edit, Fix, Form, Need, New
from devicefix.rewrite.operations import Conditional
from devicefix.rewrite.placement import Layout

# They pickle functions by value: https://github.com/cloudpipe/cloudpickle
_SENDING = {"ray", "dask", "submitit", "pyspark", "cloudpickle"}

OF_OTHERS = "the fix may affect another accelerator that the project supports, so use `--target accelerator`"


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
        self._layout = Layout(facts, partial(project.has_module, path))
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
        self._names = TorchNames(facts, self._bound, self._places, self._layout)
        self._constants = Constants(facts, self._bound, self._places, self._names, self._definitions)
        self._variables = Variables(facts, self._places, self._names, self._definitions)

    @cached_property
    def of_others(self) -> frozenset[Need]:
        """The needs of a fix that asks for CUDA, or takes the CPU without it.

        This is nothing, or the doubt that the code may run on another accelerator; the engine drops it
        for code that needs CUDA.
        """
        doubtful = self.accelerator is None and self.facts.serves_others
        return frozenset((Doubt(OF_OTHERS),) if doubtful else ())

    def is_circular(self) -> bool:
        """Return whether the module is in a circle of imports."""
        return self._project.is_circular(self.path)

    # -- devices --------------------------------------------------------------------------------------

    def current(self, site: ast.AST) -> DeviceExpr:
        """Return the current CUDA device, or the CPU: what `.cuda()` moves to.

        This is the name of such a device if the module has one, such as `device`; else the name of a new
        one that the fix defines; else, where nothing can be defined, `"cuda" if … else "cpu"`.

        Args:
            site: The node that uses it.
        """
        return self._of_module(site) or self._new(site)

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
        if self.accelerator is not None and index is not None:
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
        return self.either(site, f"{self._names.of(site).text}.device({self.device_type(site)}, {index})")

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
            return self.current(site) if self.facts.call(self.facts.value(flag), *ASKS) else None
        return self._new_of_flag(site, flag, ast.unparse(flag))

    def either(self, site: ast.AST, cuda: str, cpu: str = '"cpu"', *, of_cuda: bool = False) -> DeviceExpr:
        """Return `cuda if torch.cuda.is_available() else cpu`; for `of_cuda` see `available`."""
        available = self.available(site, of_cuda=of_cuda)
        return DeviceExpr(f"{cuda} if {available.text} else {self.facts.source.quoted(cpu)}", available.needs)

    def device_type(self, site: ast.AST) -> str:
        """Return the code of the type of the current device, which is `"cuda"` or the accelerator's."""
        if self.accelerator is None:
            return self.facts.source.quoted('"cuda"')
        return f"{self._names.of(site).text}.accelerator.current_accelerator().type"

    def constant(
        self, site: ast.AST, names: Sequence[str], value: DeviceExpr
    ) -> tuple[Callable[[], str], DeviceExpr]:
        """Return the name of a new constant, or its value where too few fixes need it.

        Args:
            site: The node that the code is for.
            names: The names that the constant may have.
            value: The code of the value at the site.

        Returns:
            A function that returns the code once it is known which fixes are made, and what the code needs.
        """
        if self._sends_functions:
            return lambda: value.text, value
        return self._constants.shared(site, names, value)

    def of_function(self, device: ast.expr, choice: Conditional) -> tuple[New, Definition] | None:
        """Return what makes a device itself or the CPU: see `Constants.of_variable`."""
        return None if self._sends_functions else self._constants.of_variable(device, choice)

    def of_variable(self, site: ast.AST, target: ast.expr) -> DeviceExpr | None:
        """Return the device of a variable to which a function moves several times; see `Variables.device`."""
        if self.accelerator is not None:
            return None
        of_module = not self._sends_functions and not self._known.is_set_at_run_time(last_name(target))
        return self._variables.device(site, target, of_module=of_module)

    # -- questions ------------------------------------------------------------------------------------

    def available(self, site: ast.AST, *, of_cuda: bool = False, pins: bool = False) -> DeviceExpr:
        """Return the test for CUDA or, if that is the target, for any accelerator.

        Args:
            site: The node that needs it. If only CUDA supports something in it, the test is for CUDA. If MPS
                lacks something in it, the test is for any other accelerator.
            of_cuda: Whether the test is for CUDA in any case.
            pins: Whether the code fails on MPS, as pinning memory does.
        """
        if of_cuda or (self.accelerator and self.accelerator.only_cuda(site) is not None):
            return self._is_available(site, "cuda")
        if self.accelerator and (pins or self.accelerator.fails_on_mps(site)):
            return self.beyond_mps(site)
        return self._target_available(site)

    def beyond_mps(self, site: ast.AST) -> DeviceExpr:
        """Return the test for an accelerator other than MPS."""
        known = self.text(site)
        if known is not None:
            code = self.facts.source.quoted(f'{known[0]()} not in ("cpu", "mps")')
            return DeviceExpr(code, known[1].needs)
        question = self._target_available(site)
        more = self.facts.source.quoted(f'{self.device_type(site)} != "mps"')
        return DeviceExpr(f"{question.text} and {more}", question.needs)

    def question(self, site: ast.AST, *, of_cuda: bool = False) -> DeviceExpr:
        """Return the test for CUDA, or the variable of the program that holds the answer; see `available`."""
        known = None
        if self.accelerator is None and not self._sends_functions and not self._places.sets_devices_late:
            known = self._known.answer(site)
        return DeviceExpr(known, self.of_others) if known else self.available(site, of_cuda=of_cuda)

    def accelerated(self, node: ast.expr) -> tuple[DeviceExpr, Callable[[str], str]] | None:
        """Return the test for an accelerator, and a function that replaces a CUDA device in code by it.

        Returns:
            None where the target is CUDA, or the node is not a device.
        """
        if self.accelerator is None:
            return None
        change = self.accelerator.translation(node, self._names.of(node).text)
        return (self._target_available(node), change) if change else None

    def backend(self, node: ast.expr) -> Fix | None:
        """Return the fix that makes NCCL the default backend of the module's device: Gloo for the CPU.

        Args:
            node: The name of the backend.

        Returns:
            None where CUDA is the target, for another backend, and where the module can have no device.
        """
        is_nccl = isinstance(node, ast.Constant) and node.value == "nccl"
        if not is_nccl or self.accelerator is None or not self.accelerator.knows_backends:
            return None
        device = self.shared(node, define=True)
        if device is None:
            return None
        torch = self._names.of(node)
        new = f"{torch.text}.distributed.get_default_backend_for_device({device.text})"
        return Fix((Edit(*self.facts.source.span(node), new),), needs=device.needs | torch.needs)

    def are_bound(self, names: Collection[ast.Name]) -> bool:
        """Return whether names are certainly bound at their places, even if they were not read there."""
        bound = Bound(self.facts, frozenset(names), self.is_circular)
        return all(bound.name(name.id, name) for name in names)

    def why_unsafe(self, site: ast.AST) -> str:
        """Return how safe a fix is that asks for CUDA at a site."""
        if self._project.is_taken(self.path) and self.facts.tree.scope(site).function is not None:
            return "the function may run elsewhere, where this module's names are undefined"
        return self._places.why_unsafe(site)

    def why_kept(self, question: ast.AST) -> str:
        """Return why a fix that takes a question away is not safe, an empty text if it is."""
        return self._places.why_kept(question)

    def _may_ask(self, site: ast.AST) -> bool:
        """Return whether a fix that asks for CUDA at a site is made, and safe."""
        return not self.why_unsafe(site) and not self.available(site).is_refused

    def _target_available(self, site: ast.AST) -> DeviceExpr:
        return self._is_available(site, self._target)

    @property
    def _target(self) -> str:
        return "cuda" if self.accelerator is None else "accelerator"

    def _is_available(self, site: ast.AST, module: str) -> DeviceExpr:
        torch = self._names.of(site)
        return DeviceExpr(f"{torch.text}.{module}.is_available()", torch.needs | self._doubts(site))

    def _doubts(self, site: ast.AST) -> set[Need]:
        """Return why it is not safe to ask for CUDA at a site, as what the code there needs."""
        return {*self.of_others, *((Doubt(why),) if (why := self.why_unsafe(site)) else ())}

    def torch(self, site: ast.AST) -> DeviceExpr:
        """Return the name of the module torch."""
        return self._names.of(site)

    def imports(self, module: str, site: ast.AST) -> frozenset[Need]:
        """Return what code at a site needs that uses a module by its name: an import, unless it is bound."""
        return self._names.imports(module, site)

    def replan(self, *needs: frozenset[Need]) -> Plan:
        """Return how to define the module's device, given what all fixes need: without a second name."""
        return self._definitions.better_plan(*needs)

    def follow(self, plan: Plan) -> None:
        """Define the module's device in another way from now on."""
        self._definitions.plan = plan

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
        in_place = self._definitions.plan is Plan.IN_PLACE if index is None else self._is_only(index)
        if in_place:
            return None
        place = self._place(site)
        if index is None and self._definitions.plan is Plan.IN_FUNCTION:
            place = self._names.place_in_function(site) or place
        name = self._name(site, place, "" if index is None else str(index)) if place is not None else None
        if place is None or name is None:
            return None
        torch = self._names.at(place)
        if torch.is_refused:
            return None
        value = self._value(torch.text, index)
        text = self._text(torch.text, index) if self.accelerator is None else None
        new = add(Definition(name, value, place.after, place.function, text=text))
        if new is None or new.value != value:  # a constant of another rule may have the name
            return None
        self._definitions.use(new, site)
        doubts = self._doubts(site) if place.function is not None else self.of_others
        return DeviceExpr(name, torch.needs | doubts | {new})

    def _is_only(self, index: int) -> bool:
        """Return whether one place of the module has the device of an index, and so needs no name for it."""
        return self.accelerator is None and self._indexes[str(index)] == 1

    @cached_property
    def _indexes(self) -> Counter[str]:
        """The indexes of devices in the text of the module, each with how often it occurs."""
        return Counter(re.findall(r"cuda[:(](\d+)\b", self.facts.source.text))

    @cached_property
    def _is_script(self) -> bool:
        """Return whether no function or class of the module names CUDA."""
        tree = self.facts.tree
        return all(tree.scope(node) is tree.root for node in tree.nodes_with("cuda"))

    @cached_property
    def _sends_functions(self) -> bool:
        """Return whether functions of the module, with its variables, may run on other machines."""
        bound = (each for scope in self.facts.tree.scopes.values() for each in scope.bindings.values())
        packages = ((each.imported or "").partition(".")[0] for bindings in bound for each in bindings)
        return self._project.is_taken(self.path) or not _SENDING.isdisjoint(packages)

    def _place(self, site: ast.AST) -> InsertionPoint | None:
        """Return where to define a device, in front of a site and below what binds torch; None if nowhere."""
        if self._project.is_taken(self.path):
            return None
        if self._sends_functions:
            scope = self.facts.tree.scope(site)
            # A function inside this one may take the device to another machine.
            return self._names.place_in_function(site) if scope is scope.function else None
        place = self._names.place_in_module
        if place is None or not self._places.precedes(place, site):
            return self._names.place_in_function(site) or self._places.of_main(site)
        if self._names.at(place).needs and self._is_script:
            main = self._places.of_main(site)  # it imports torch late, as that takes long
            return main if main and not self._names.at(main).needs else place
        return place

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
        torch = self._names.at(place)
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
        definitions = self._definitions.of_name(self._definitions.name)
        return any(each.flag is None and each.function is None for each in definitions)


def _as_object(new: DeviceExpr) -> DeviceExpr:
    """Return a device of which a definition must be an object of `torch.device`."""
    forms = {Form(need, text=False) for need in new.needs if isinstance(need, Definition)}
    return DeviceExpr(new.text, new.needs | forms)
