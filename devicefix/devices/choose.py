"""Where the name `device` comes from at a place: find one that is there, or make one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from devicefix.devices.accelerator import Accelerator
from devicefix.devices.known import BoundDevices
from devicefix.facts import ASKS, Facts, Scope, dotted
from devicefix.facts.exports import late_settings
from devicefix.facts.project import Project
from devicefix.model import Edit, Safety
from devicefix.rewrite.placement import IMPORT, Layout, imports_something

_NAMES = ("device", "default_device", "_device", "torch_device", "_default_device")


@dataclass(frozen=True, slots=True)
class DeviceExpr:
    """An expression to write at a place, and the definitions that it needs."""

    text: str
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Definition:
    """A line to insert after a statement, or at the start of a function's body."""

    line: str
    after: ast.stmt | None
    function: ast.FunctionDef | ast.AsyncFunctionDef | None = None


class Devices:
    """The devices of one module.

    Args:
        facts: the module's facts.
        project: the facts of all files.
        path: where the module is.
        accelerator: what any accelerator can do, None where the target is CUDA.
    """

    def __init__(
        self, facts: Facts, project: Project, path: str, accelerator: Accelerator | None = None
    ) -> None:
        self.accelerator = accelerator
        self.facts = facts
        self.project = project
        self.path = path
        self.layout = Layout(facts)
        self.definitions: dict[str, _Definition] = {}
        self._settings: dict[ast.stmt, ast.stmt | None] = {}
        self._function_names: dict[ast.stmt, str | None] = {}
        self._known_free: dict[str, bool] = {}
        self.star_names = project.star_names(path)
        self.bound = BoundDevices(facts, self.star_names)

    @cached_property
    def late(self) -> bool:
        """Whether the module must not ask for CUDA as it is imported."""
        return bool(self._late) or self.project.is_late(self.path)

    @cached_property
    def lazy(self) -> bool:
        """Whether the device must be made where it is needed, and not as the module is imported."""
        return self.late or self._torch_may_be_missing or self.project.is_forked(self.path)

    # -- what a rule asks for -----------------------------------------------------------------------

    def available(self, site: ast.AST, *, of_cuda: bool = False) -> DeviceExpr:
        """The question whether there is what a site needs: CUDA, or any accelerator if that is the target.

        Args:
            site: where it is asked, and what needs it.
            of_cuda: whether only CUDA will do.
        """
        any_will_do = self.accelerator and not of_cuda and self.accelerator.only_cuda(site) is None
        return self._asked(site, "accelerator" if any_will_do else "cuda")

    def _asked(self, site: ast.AST, module: str) -> DeviceExpr:
        torch = self.torch(site)
        return DeviceExpr(f"{torch.text}.{module}.is_available()", torch.needs)

    def accelerated(self, node: ast.expr) -> tuple[DeviceExpr, Callable[[str], str]] | None:
        """The question whether there is an accelerator, and how a CUDA device's text becomes its.

        None where the target is CUDA, or the node is no device.
        """
        if self.accelerator is None:
            return None
        change = self.accelerator.named(node, self.torch(node).text)
        return (self._asked(node, "accelerator"), change) if change else None

    def numbered(self, site: ast.AST, index: str) -> DeviceExpr:
        """The device of a number that is known only as the program runs, or the CPU."""
        return self.either(site, f"{self.torch(site).text}.device({self.kind(site)}, {index})")

    def kind(self, site: ast.AST) -> str:
        """The type of the current device, where there is one."""
        if self.accelerator is None:
            return self.facts.source.quoted('"cuda"')
        return f"{self.torch(site).text}.accelerator.current_accelerator().type"

    def torch(self, site: ast.AST) -> DeviceExpr:
        """The name of the module torch."""
        name = self.facts.torch_name(site)
        if name is not None and not self.layout.torch_comes_late:
            return DeviceExpr(name)
        bound = self.facts.tree.scope(site).lookup("torch")
        if bound is None or all((each.imported or "").rpartition(".")[2] == "torch" for each in bound[1]):
            return DeviceExpr("torch", frozenset({IMPORT}))
        return DeviceExpr("_torch", frozenset({f"{IMPORT} as _torch"}))  # `torch` means something else

    def imported(self, module: str) -> frozenset[str]:
        """What a fix needs that uses a module of the standard library by its name."""
        found = self.facts.tree.root.bindings.get(module, ())
        return (
            frozenset() if any(each.imported == module for each in found) else frozenset({f"import {module}"})
        )

    def either(self, site: ast.AST, cuda: str, cpu: str = '"cpu"', *, of_cuda: bool = False) -> DeviceExpr:
        """One expression where CUDA is available and another where it is not."""
        available = self.available(site, of_cuda=of_cuda)
        return DeviceExpr(f"{cuda} if {available.text} else {self.facts.source.quoted(cpu)}", available.needs)

    def current(self, site: ast.AST) -> DeviceExpr:
        """The current CUDA device, or the CPU: what `x.cuda()` becomes `x.to(...)` of."""
        found = self.bound.current(site)
        return DeviceExpr(found) if found else self._made(site, "cuda", "")

    def indexed(self, site: ast.AST, index: int) -> DeviceExpr:
        """The CUDA device of a literal number, or the CPU."""
        return self._made(site, f"cuda:{index}", str(index))

    def at_import(self, site: ast.AST) -> Safety:
        """How safe it is to ask for CUDA where a site stands.

        Asking starts the driver, which then has read CUDA_VISIBLE_DEVICES. Code that runs as the module is
        imported must not ask where the program sets that variable later.
        """
        late = self.late and self.facts.tree.scope(site).function is None
        if late and self._set_at_top and self._after(site, self._late[-1]):
            late = False
        return Safety.UNSAFE if late else Safety.SAFE

    def flagged(self, site: ast.AST, flag: ast.expr) -> DeviceExpr | None:
        """The device that a flag such as `use_gpu` chooses, defined behind the flag.

        Returns:
            None where the flag has no single definition before the site.
        """
        text = ast.unparse(flag)
        for name, test in self.bound.chosen_by_flag(site):
            if test == text:
                return DeviceExpr(name)
        there = self.bound.current(site) is not None or f"{self._module_name}@0" in self.definitions
        if there and self._is_availability(flag):
            return self.current(site)
        # A second device beside one that does not ask the flag would be one too many.
        return None if there else self._made_of_flag(site, flag, text)

    def _is_availability(self, flag: ast.expr) -> bool:
        """Whether a flag is `torch.cuda.is_available()` and nothing else."""
        value = self.facts.value(flag)
        return value is not None and self.facts.call(value, *ASKS)

    def insertions(self, needs: Iterable[str]) -> list[Edit]:
        """The edits that put the needed definitions into the module."""
        wanted = [self.definitions[key] for key in self.definitions if key in set(needs)]
        edits: dict[int, str] = {}
        for line in sorted(key for key in needs if key.startswith("import ")):
            at, text = self.layout.import_line(line)
            edits[at] = edits.get(at, "") + text
        for definition in wanted:
            if definition.function is not None:
                at, text = self.layout.line_in(definition.function, definition.after, definition.line)
            else:
                group = definition.after is None or imports_something(definition.after)
                at, text = self.layout.line_after(
                    definition.after, definition.line, group and definition is wanted[0]
                )
            edits[at] = edits.get(at, "") + text
        return [Edit(at, at, text) for at, text in edits.items()]

    # -- a new one ------------------------------------------------------------------------------------

    def _made(self, site: ast.AST, cuda: str, suffix: str) -> DeviceExpr:
        torch = self.torch(site)
        available = self.available(site)
        quoted = self.facts.source.quoted
        value = quoted(f'{torch.text}.device("{cuda}" if {available.text} else "cpu")')
        string = quoted(f'"{cuda}"')
        if self.accelerator is not None:
            available = self._asked(site, "accelerator")
            there = f"{torch.text}.accelerator.current_accelerator()"
            string = quoted(f'f"{{{there}.type}}:{suffix}"') if suffix else f"{there}.type"
            there = f"{torch.text}.device({there}.type, {suffix})" if suffix else there
            value = quoted(f'{there} if {available.text} else {torch.text}.device("cpu")')
        anywhere = DeviceExpr(quoted(f'{string} if {available.text} else "cpu"'), available.needs)
        place = self._place(site)
        if place is None:
            return anywhere
        after, function = place
        base = self._function_name(function) if function else self._unflagged_name
        if base is None:
            return anywhere
        name = base + suffix
        key = f"{name}@{function.lineno if function else 0}"
        self.definitions[key] = _Definition(f"{name} = {value}", after, function)
        return DeviceExpr(name, torch.needs | available.needs | {key})

    def _place(
        self, site: ast.AST
    ) -> tuple[ast.stmt | None, ast.FunctionDef | ast.AsyncFunctionDef | None] | None:
        """After which statement of which block a device is defined for a site; None: nowhere."""
        function = self.facts.tree.scope(site).function
        if not self.lazy or self._set_at_top:
            after = self._module_place
            if function is None and not self._after(site, after):
                return None
            if function is not None and self._shadow(site):
                return None
            return after, None
        if function is None:
            return None
        owner = function.node
        assert isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef))
        after = self._setting(owner)
        place = after or owner.body[0]
        if after is not None or self.layout.last_on_line(place) is not place:
            if not self._after(site, place):
                return None
        if owner.body[0].lineno == owner.lineno:
            return None
        return after, owner

    def _setting(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt | None:
        """The last statement of a function in which CUDA_VISIBLE_DEVICES is set."""
        if function not in self._settings:
            found = [each for each in function.body if each in self._around_late]
            self._settings[function] = found[-1] if found else None
        return self._settings[function]

    @cached_property
    def _around_late(self) -> set[ast.AST]:
        """The statements that set CUDA_VISIBLE_DEVICES late, and what they are in."""
        around: set[ast.AST] = set()
        todo: list[ast.AST] = list(self._late)
        while todo:
            node = todo.pop()
            if node not in around:
                around.add(node)
                todo += filter(None, [self.facts.tree.parents.get(node)])
        return around

    def _shadow(self, site: ast.AST) -> bool:
        return self._module_name is None or self.facts.shadowed(self._module_name, site) is not None

    def _after(self, site: ast.AST, place: ast.stmt | None) -> bool:
        """Whether code that runs after the statements around it stands behind the place of a definition."""
        if place is None:
            return True
        statement = self.facts.tree.statement(site)
        return statement.lineno > (self.layout.last_on_line(place).end_lineno or 0)

    def _top(self, site: ast.AST) -> ast.stmt:
        top = site
        for _child, parent in self.facts.tree.ancestors(site):
            if parent is not self.facts.tree.module:
                top = parent
        assert isinstance(top, ast.stmt)
        return top

    @cached_property
    def _module_name(self) -> str | None:
        """A name for a device of the module that means nothing else anywhere in it."""
        return next((name for name in _NAMES if self._free(name)), None)

    @property
    def _unflagged_name(self) -> str | None:
        """A name for a device that no flag chooses, beside one that a flag does."""
        flagged = {key.partition("@")[0] for key in self.definitions if not key.partition("@")[2].isdigit()}
        return next((name for name in _NAMES if name not in flagged and self._free(name)), None)

    def _free(self, name: str) -> bool:
        if name not in self._known_free:
            self._known_free[name] = self._means_nothing(name)
        return self._known_free[name]

    def _means_nothing(self, name: str) -> bool:
        if self.facts.taken(name) or name in self.star_names or self.project.carried(self.path, name):
            return False
        return not any(
            name in scope.bindings and name not in self.bound.named(scope) and self._holds_cuda(scope)
            for scope in tuple(self.facts.tree.scopes.values())
        )

    def _holds_cuda(self, scope: Scope) -> bool:
        node = scope.node
        return isinstance(node, ast.stmt) and "cuda" in self.facts.source.code(node)

    def _function_name(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
        if function not in self._function_names:
            used: set[str] = set()
            for node in ast.walk(function):
                scope = self.facts.tree.scopes.get(node)
                if scope is not None:
                    used |= scope.bindings.keys() | scope.elsewhere
                elif isinstance(node, ast.Name):
                    used.add(node.id)
                elif isinstance(node, ast.arg):
                    used.add(node.arg)
            self._function_names[function] = next((name for name in _NAMES if name not in used), None)
        return self._function_names[function]

    # -- the device of a flag ---------------------------------------------------------------------------

    def _made_of_flag(self, site: ast.AST, flag: ast.expr, text: str) -> DeviceExpr | None:
        bindings = self.facts.bindings(flag)
        tree = self.facts.tree
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.stmt):
            return None
        statement = bindings[0].node
        if tree.parents.get(statement) is not tree.module or dotted(flag) is None:
            return None
        in_function = tree.scope(site).function is not None
        runs_before = (
            statement.lineno < self.bound.first_local_call
            if in_function
            else self.bound.precedes(statement, site)
        )
        if not runs_before or self._shadow(site) or self._module_name is None:
            return None
        others = {key for key in self.definitions if key.startswith(f"{self._module_name}@")}
        if others - {f"{self._module_name}@{text}"}:
            return None
        torch = self.torch(site)
        key = f"{self._module_name}@{text}"
        line = self.facts.source.quoted(f"{self._module_name} = {self._by_flag(torch.text, text)}")
        self.definitions[key] = _Definition(line, statement)
        return DeviceExpr(self._module_name, torch.needs | {key})

    def _by_flag(self, torch: str, flag: str) -> str:
        if self.accelerator is None:
            return f'{torch}.device("cuda" if {flag} else "cpu")'
        return f'{torch}.accelerator.current_accelerator() if {flag} else {torch}.device("cpu")'

    # -- where the lines go -----------------------------------------------------------------------------

    @cached_property
    def _late(self) -> list[ast.stmt]:
        return late_settings(self.facts)

    @property
    def _torch_may_be_missing(self) -> bool:
        """torch is imported in a `try` that copes without it."""
        return any(
            isinstance(statement, ast.Try) and self.layout.binds_torch(statement)
            for statement in self.facts.tree.module.body
        )

    @cached_property
    def _set_at_top(self) -> bool:
        """CUDA_VISIBLE_DEVICES is set by this module's own top level, so what follows may ask."""
        return bool(self._late) and all(self.facts.tree.scope(each).function is None for each in self._late)

    @cached_property
    def _module_place(self) -> ast.stmt | None:
        """The last of the leading imports, the import of torch, and the setting of visible devices."""
        place = self.layout.leading_imports
        wanted = [self._top(each) for each in self._late]
        if self.layout.torch_import is not None and not self.layout.torch_comes_late:
            wanted.append(self.layout.torch_import)
        for statement in wanted:
            if place is None or statement.lineno > place.lineno:
                place = statement
        return place
