"""New device definitions: which names they get, and the edits that insert them."""

from __future__ import annotations

import ast
import os.path
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from functools import cached_property

from devicefix.devices.known import KnownDevices
from devicefix.facts import Facts, Function, Scope
from devicefix.facts.project import Project
from devicefix.facts.scopes import DEFINITIONS, is_main
from devicefix.model import Definition, Edit, Effect, Form, Import, Need
from devicefix.rewrite.placement import Layout, imports_something

CONSTANTS = ("DEFAULT_DEVICE", "_DEFAULT_DEVICE")  # for defaults of parameters, and what shares them
_NAMES = ("device", "default_device", "_device", "torch_device", "_default_device")


class Plan(Enum):
    """Where to define the device of a module in which `device` means something else, or by which name."""

    IN_MODULE = auto()
    AS_DEVICE = auto()  # no site is where another variable has the name
    IN_FUNCTION = auto()
    IN_PLACE = auto()
    AS_CONSTANT = auto()


class Definitions:
    """The definitions that the fixes of a module may insert.

    Args:
        facts: The module's facts.
        project: The facts of all files.
        path: The module's path.
        layout: The module's layout.
        known: The devices that the module has already.

    Attributes:
        plan: How to define the module's device.
    """

    def __init__(
        self, facts: Facts, project: Project, path: str, layout: Layout, known: KnownDevices
    ) -> None:
        self.plan = Plan.IN_MODULE
        self._facts = facts
        self._project = project
        self._path = path
        self._layout = layout
        self._known = known
        self._definitions: dict[Definition, None] = {}  # in the order in which fixes first needed them
        self._shared: set[Definition] = set()
        self._sure: set[Definition] = set()  # those that some fix can't do without
        self._texts: set[Definition] = set()
        self._same: dict[Definition, Definition] = {}  # the device of the same text as a constant
        self._sites: dict[Definition, list[ast.AST]] = {}
        self._used_names: dict[Function, set[str]] = {}
        self._free_names: dict[str, bool] = {}

    def add(self, new: Definition) -> Definition:
        """Return a definition that a fix can need, the same one for each fix that defines a name there."""
        old = self.added(new)
        if old is None:
            self._definitions[new] = None
        elif new.least < old.least:
            self._sure.add(old)
        return old or new

    def added(self, new: Definition) -> Definition | None:
        """Return the definition that another fix needs in place of a new one, None if there is none."""
        for old in self.of_name(new.name):
            if (old.function, old.after, old.flag) == (new.function, new.after, new.flag):
                return old
        return None

    def use(self, definition: Definition, site: ast.AST) -> None:
        """Note that the fix of a site may need a definition."""
        self._sites.setdefault(definition, []).append(site)

    def of_name(self, name: str | None) -> list[Definition]:
        """Return the definitions of a name."""
        return [definition for definition in self._definitions if definition.name == name]

    # -- names ----------------------------------------------------------------------------------------

    @cached_property
    def name(self) -> str | None:
        """A name for a device of the module that is used for nothing else in it."""
        return next(filter(self._is_free, _NAMES), None)

    def name_without_flag(self, site: ast.AST, number: str = "") -> str | None:
        """Return a name for a device of the module that a site can use and no flag chooses.

        Args:
            site: The node that uses it.
            number: The end of the name.
        """
        flagged = {definition.name for definition in self._definitions if definition.flag is not None}
        first = CONSTANTS[:1] if self.plan is Plan.AS_CONSTANT and not number else ()
        names = (name + number for name in (*first, *_NAMES) if name not in flagged and self._is_free(name))
        plain = self.plan is Plan.AS_DEVICE and not number
        name = _NAMES[0] if plain else next(filter(self._is_free, names), None)
        return None if name is None or self._facts.shadowed(name, site) is not None else name

    def name_in(self, function: Function, number: str = "") -> str | None:
        """Return a name for a device of a function that is used for nothing else in it.

        Args:
            function: The function.
            number: The end of the name.
        """
        used = self._used_in(function)
        names = (name + number for name in _NAMES if name not in used)
        return next((name for name in names if name not in used), None)

    def is_free_in(self, function: Function, name: str, value: str) -> bool:
        """Return whether a name is used for nothing else in a function, and no fix gives it another value."""
        values = {each.value for each in self.of_name(name) if each.function in (function, None)}
        return values <= {value} and name not in self._used_in(function) and not self._facts.taken(name)

    def is_free_at(self, name: str, site: ast.AST) -> bool:
        """Return whether a name is used for nothing else in the module, nor shadowed at a site."""
        return self._is_free(name) and self._facts.shadowed(name, site) is None

    def _used_in(self, function: Function) -> set[str]:
        """Return the names that a function, and those in it, use."""
        if function not in self._used_names:
            used: set[str] = set()
            for node in ast.walk(function):
                scope = self._facts.tree.scopes.get(node)
                if scope is not None:
                    used |= scope.bindings.keys() | scope.elsewhere
                elif isinstance(node, ast.Name):
                    used.add(node.id)
                elif isinstance(node, ast.arg):
                    used.add(node.arg)
            self._used_names[function] = used
        return self._used_names[function]

    def is_shadowed(self, site: ast.AST) -> bool:
        """Return whether a site can't use the module's device by its name."""
        return self.name is None or self._facts.shadowed(self.name, site) is not None

    def _is_free(self, name: str) -> bool:
        if name not in self._free_names:
            self._free_names[name] = not self._is_used(name)
        return self._free_names[name]

    def _is_used(self, name: str) -> bool:
        scopes = [scope for scope in self._facts.tree.scopes.values() if name in scope.bindings]
        others = (scope for scope in scopes if name not in self._known.certain(scope))
        return self._is_taken(name) or any(map(self._mentions_cuda, others))

    def _is_taken(self, name: str) -> bool:
        if self._facts.taken(name) or name in self._known.star_names or self._project.is_open(self._path):
            return True
        if self._project.carried(self._path, name) or name in self._bound_in_expressions:
            return True
        return self._is_submodule(name) or self._project.is_set_elsewhere(self._path, name)

    def _is_submodule(self, name: str) -> bool:
        """Return whether a name of the module is that of a submodule, which an import may bind to it."""
        is_package = os.path.basename(self._path) == "__init__.py"
        return is_package and self._project.has_module(self._path, f".{name}")

    def _mentions_cuda(self, scope: Scope) -> bool:
        return isinstance(scope.node, ast.stmt) and "cuda" in self._facts.source.code(scope.node)

    @cached_property
    def _bound_in_expressions(self) -> set[str]:
        """The names that lambdas and comprehensions bind around code for CUDA."""
        tree = self._facts.tree
        inner = {tree.scope(node) for node in tree.nodes_with("cuda")}
        scopes = {scope for each in inner for scope in each.chain()}
        return {name for scope in scopes if isinstance(scope.node, ast.expr) for name in scope.bindings}

    def better_plan(self, *needs: frozenset[Need]) -> Plan:
        """Return how to define the module's device so that fixes with some needs bring no second name."""
        made = self._decide(needs)
        for device in [each for each in self._definitions if each in self._shared and each.name in _NAMES]:
            if device.function is not None or device.flag is not None or device.text is None:
                continue
            if device in self._texts and any(map(made.get, self._constants(device))):
                return Plan.IN_MODULE if device.name == _NAMES[0] and self._same else Plan.AS_CONSTANT
            functions = {self._facts.tree.scope(site).function for site in self._sites[device]}
            is_local = len(functions) == 1 and None not in functions
            if device.name == _NAMES[0]:  # beside the `self.device` of a class, it belongs to its function
                if (is_local or made[device] == 1) and "self.device" in self._facts.tree.attributes:
                    return Plan.IN_FUNCTION
                continue
            if made[device] == 1:
                return Plan.IN_PLACE
            if is_local:
                return Plan.IN_FUNCTION
            shadowed = any(self._facts.shadowed(_NAMES[0], site) for site in self._sites[device])
            return Plan.IN_MODULE if shadowed or self._is_taken(_NAMES[0]) else Plan.AS_DEVICE
        return Plan.IN_MODULE

    # -- edits ----------------------------------------------------------------------------------------

    def shared_name(self, definition: Definition) -> str | None:
        """Return the name of a definition that is inserted: enough of the fixes that are made need it."""
        definition = self._same.get(definition, definition)
        return definition.name if definition in self._shared else None

    def is_text(self, definition: Definition) -> bool:
        """Return whether a device is defined as a string: a fix asks for one, and none for an object."""
        return definition in self._texts

    def insertions(self, *needs: frozenset[Need]) -> list[Edit]:
        """Return the edits that insert what fixes need: imports, then definitions.

        Args:
            needs: What each of the fixes needs.
        """
        newline = self._facts.source.newline
        texts: dict[int, str] = {}
        kinds: dict[int, tuple[str, ...]] = {}
        counts = self._decide(needs)
        imports = sorted((need for need in counts if isinstance(need, Import)), key=lambda need: need.line)
        above = [self._layout.above_import(wanted) for wanted in imports]
        lines = [(*self._layout.import_line(wanted), "Import") for wanted in imports]
        definitions = [each for each in self._definitions if each in self._shared]
        first = next((each for each in definitions if each.function is None), None)
        for definition in definitions:
            after = definition.after
            follows_imports = after is None or after in above or imports_something(after)
            placed = self._placed(definition, group=follows_imports and definition is first)
            lines.append((*placed, "Assign"))
        for at, text, kind in lines:
            is_below_import = kind == "Assign" and kinds.get(at, ())[-1:] == ("Import",)
            gap = newline if is_below_import and not text.startswith(newline) else ""
            texts[at] = texts.get(at, "") + gap + text
            kinds[at] = (*kinds.get(at, ()), kind)
        return [Edit(at, at, text, effect=Effect(added=kinds[at])) for at, text in texts.items()]

    def _decide(self, needs: Iterable[frozenset[Need]]) -> Counter[Need]:
        """Decide which definitions to insert, and in which form, for what some fixes need; return that."""
        counts = Counter(need for needed in needs for need in needed)
        named = {need.definition for need in counts if isinstance(need, Form) and need.text}
        objects = {need.definition for need in counts if isinstance(need, Form) and not need.text}
        named |= {each for each in self._definitions if any(map(counts.get, self._constants(each)))}
        self._texts = {each for each in named - objects if each.text is not None}
        same = ((each, device) for device in self._texts for each in self._constants(device))
        self._same = {each: device for each, device in same if self._sees(each, device)}
        self._shared = set(self._needed(counts))
        return counts

    def _constants(self, device: Definition) -> list[Definition]:
        """Return the constants of the module of the same text as a device, defined at the same place."""
        place = (device.text, device.function, device.after)
        return [each for each in self._definitions if (each.value, each.function, each.after) == place]

    def _sees(self, constant: Definition, device: Definition) -> bool:
        """Return whether all that use a constant can use a device of the module by its name."""
        return all(self._facts.shadowed(device.name, site) is None for site in self._sites[constant])

    def _needed(self, counts: Mapping[Need, int]) -> list[Definition]:
        """Return the definitions that enough fixes need, in a function where none outside needs the value."""
        found = (each for each in self._definitions if not {each, each.others} & self._same.keys())
        needed = [each for each in found if counts[each] >= (1 if each in self._sure else each.least)]
        local = [each for each in needed if each.others is None or counts[each.others] == counts[each]]
        replaced = {each.others for each in local}
        return [
            each for each in needed if each not in replaced and (each in local or each.others not in needed)
        ]

    def _placed(self, definition: Definition, *, group: bool) -> tuple[int, str]:
        """Return the offset at which a definition is inserted, and the text with its line ends.

        Args:
            definition: The definition.
            group: Whether blank lines set it off from imports.
        """
        after = definition.after
        line = f"{definition.name} = {definition.text}" if self.is_text(definition) else definition.line
        block = self._block(definition)
        if not block:
            return self._layout.line_after(after, line, group=group)
        first = self._first_user(definition, block)
        return self._layout.line_in(block, after if after in block else None, line, above=first)

    def _block(self, definition: Definition) -> list[ast.stmt]:
        """Return the block of a function or of `if __name__ == "__main__":` that gets a definition.

        The block is empty for the module.
        """
        tree, after = self._facts.tree, definition.after
        if definition.function is not None:
            return definition.function.body if after is None else tree.block(after)
        if after is not None and tree.parents[after] is not tree.module:
            return tree.block(after)
        if isinstance(after, ast.If) and is_main(after):
            return after.body
        return self._only_block(definition)

    def _only_block(self, definition: Definition) -> list[ast.stmt]:
        """Return the only block that uses a definition of the module, if it runs once; else an empty one."""
        tree = self._facts.tree
        sites = self._users(definition)
        around = [[site, *(parent for _, parent in tree.ancestors(site))] for site in sites]
        tops = {each[-2] for each in around}
        top = tops.pop() if len(tops) == 1 else None
        if isinstance(top, ast.If) and is_main(top):
            return top.body
        if not isinstance(top, ast.FunctionDef) or definition.flag is not None:
            return []
        is_inside = all(each[-3] in top.body for each in around)
        return top.body if is_inside and self._runs_once(top, definition.line) else []

    def _users(self, definition: Definition) -> list[ast.AST]:
        """Return the sites that may need a definition, or a constant that it is."""
        users = (definition, *(each for each, device in self._same.items() if device is definition))
        return [site for user in users for site in self._sites.get(user, ())]

    def _runs_once(self, function: ast.FunctionDef, line: str) -> bool:
        """Return whether a function has one call, in the module's own code, and can hold a line of it."""
        tree = self._facts.tree
        reads = tree.reads(function.name)
        once = len(reads) == 1 and not any(tree.around(reads[0], ast.For, ast.While, *DEFINITIONS))
        names = {node.id for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name)}
        return once and not function.decorator_list and not names & tree.scopes[function].bindings.keys()

    def _first_user(self, definition: Definition, block: list[ast.stmt]) -> ast.stmt | None:
        """Return the first statement of a block that may need a definition, below its place."""
        after = definition.after
        sites = self._users(definition)
        users = {child for site in sites for child, _ in self._facts.tree.ancestors(site)}
        first = next((each for each in block if each in users), None)
        below = after not in block or (first and first.lineno > (after.end_lineno or 0))
        return first if below else None
