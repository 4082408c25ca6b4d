"""Follow values from file to file: what a function returns, what it is passed, and what it does with it.

Each question leads to the module behind an import, or to the files that mention a name, and only these are
parsed. The answers are kinds and uses by name, so that the cache can keep them.
"""

from __future__ import annotations

import ast
import os.path
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

from devicefix.facts.configurations import KEPT, Configurations, fills, loaded_in
from devicefix.facts.effects import only_returns
from devicefix.facts.exports.shared import passed_kinds
from devicefix.facts.exports.texts import moved_imports, moving_functions
from devicefix.facts.flow import settled
from devicefix.facts.flow.forwards import Forwards, Use
from devicefix.facts.flow.kinds import DEVICES, Kind, Kinds
from devicefix.facts.flow.kinds.calls import YIELDED, results
from devicefix.facts.flow.kinds.objects import field_of
from devicefix.facts.flow.kinds.parameters import argument_of, calls_of_object
from devicefix.facts.flow.needs import needs_of, of_number, use_of_parameter
from devicefix.facts.flow.parameters import Parameter
from devicefix.facts.flow.sinks import device_values
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.hugging_face import is_based_on_library
from devicefix.facts.module import Facts
from devicefix.facts.others import UNKNOWN, Others
from devicefix.facts.project.file import ProjectFile
from devicefix.facts.project.files import Definition
from devicefix.facts.project.names import SharedNames
from devicefix.facts.project.questions import remembered
from devicefix.facts.project.values import Values
from devicefix.facts.scopes import Binding, Function, dotted
from devicefix.facts.values import last_name

_FILES = 20  # that call one function; with more, what they pass is not known
_STEPS = 3  # bindings and calls between a device and a parameter
_INFORMED = 16  # files whose facts to keep
_OF_NUMBERS = (b"rank", b"gpu", b"device", b"cuda", b"int(", b"torch")
# The arguments of a call, and what shows that a number may be among them.
_ARGUMENTS = re.compile(rb"\([^()]*(?:\([^()]*\)[^()]*)*")
_NUMBER = re.compile(rb"rank|gpu|device|\d")
_DEVICES = {kind.name for kind in (*DEVICES, Kind.NONE)}


class Flow(SharedNames, Values):
    """The values that go from one file to another."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: it finds the facts of files itself."""
        return {name: value for name, value in self.__dict__.items() if name != "_informed"}

    def view(self, path: str) -> Others:
        """Return the other files as the file at `path` sees them."""
        return Others(self, path)

    def informed(self, file: ProjectFile) -> Facts | None:
        """Return the facts of a file with what the other files show; None if it does not parse."""
        file.is_followed = True
        plain = file.facts
        if plain is None:
            return None
        known = self._informed.get(file.normal)
        if known is None or known[0] is not plain:
            known = self._informed[file.normal] = plain, plain.informed(self.view(file.path))
            if len(self._informed) > _INFORMED:
                self._informed.popitem(last=False)
        return known[1]

    @cached_property
    def _informed(self) -> OrderedDict[str, tuple[Facts, Facts]]:
        """The facts of files, each without and with what the other files show, the oldest first."""
        return OrderedDict()

    # -- backwards ------------------------------------------------------------------------------------

    @remembered
    def kinds_of(self, path: str, name: str, part: str) -> list[str]:
        """Return the kinds of what the file at `path` imports by its full name; see `Others.kinds_of`."""
        found = self.definition(path, name.removesuffix("()"))
        if found is None or not _may_bind(*found, called=name.endswith("()")):
            return []
        facts, bindings = self._bound(found)
        if facts is None:
            return []
        kinds = [list(_kinds(facts, each, part, called=name.endswith("()"))) for each in bindings]
        return list(dict.fromkeys(chain.from_iterable(kinds))) if all(kinds) else []

    @remembered
    def is_pure(self, path: str, name: str) -> bool:
        """Return whether a function that the file at `path` imports returns an int, and does nothing else."""
        facts, bindings = self._bound(self.definition(path, name.removesuffix("()")))
        node = bindings[0].node if len(bindings) == 1 else None
        if facts is None or not isinstance(node, ast.FunctionDef):
            return False
        return only_returns(facts, node) and facts.kinds.returned(node).are({Kind.INDEX})

    @remembered
    def passed(self, path: str, function: str, parameter: str, position: int) -> list[str]:
        """Return the kinds of what other files than `path` pass to functions of a name for a parameter.

        They are those of devices only if a call passes a number, and all calls pass devices.
        """
        passed = (each for file in self.mentioning(function) for each in file.export(passed_kinds))
        own = (each for called, each in passed if called == function)
        scanned = {kind for place, kind in own if place in (parameter, position)}
        return sorted(scanned | self._numbers_passed(path, function, parameter, position))

    @remembered
    def configuration_of(self, path: str, name: str) -> list[str]:
        """Return which parts of configurations the file at `path` imports by a full name; see `Others`."""
        owner = name.rpartition(".")[0]
        facts, bindings = self._bound(self.definition(path, name) or self.definition(path, owner))
        if facts is None:
            return [KEPT]
        ways, found = Configurations(facts), set[str]()
        for binding in bindings:
            node, values = binding.node, _values(facts, binding, called=isinstance(binding.node, Function))
            if isinstance(node, ast.ClassDef):
                values = loaded_in(facts, node)
                found |= {KEPT} if fills(facts, node) else set()
            found |= {keys for value in values for _, keys in ways.ways(value)}
        return sorted(found)

    @remembered
    def configuration_passed(self, path: str, function: str, parameter: str, position: int) -> list[str]:
        """Return which parts of configurations other files pass to functions of a name; see `Others`."""
        importing, found = self._importing(path), set[str]()
        files = [file for file in self.mentioning(function) if file.normal in importing]
        for facts, call in self._reads(files[:_FILES], function, os.path.normpath(path)):
            value = argument_of(call, parameter, position) if isinstance(call, ast.Call) else None
            found |= {keys for _, keys in Configurations(facts).ways(value)} if value is not None else set()
        return sorted(found)

    def _numbers_passed(self, path: str, function: str, parameter: str, position: int) -> set[str]:
        found, name = set[str](), function.removesuffix("()")
        files, rest = self._calling(path, name), self._without_number(name)
        if name == function and not any(_passes_number(file, function) for file in (*files, *rest)):
            return found
        for facts, call in self._reads(files, function, os.path.normpath(path)):
            value = argument_of(call, parameter, position) if isinstance(call, ast.Call) else None
            if value is not None:
                found |= _passed(facts, value)
            if UNKNOWN in found:
                return set()
        if Kind.INDEX.name not in found:
            rest = [file for file in rest if _passes_number(file, name)]
        for facts, call in self._reads(rest, function, os.path.normpath(path)):
            for each in settled.arguments([call], parameter, position) or ():
                if settled.is_other_device(facts, each):
                    found.add(Kind.DEVICE.name)
                elif _passed(facts, each) == {Kind.INDEX.name}:
                    found.add(Kind.INDEX.name)
        return found if Kind.INDEX.name in found and found <= _DEVICES else set()

    @remembered
    def gives(self, path: str, called: str, part: str, position: int) -> bool:
        """Return whether other files than `path` give no number to a function of it; see `Others.gives`."""
        here = os.path.normpath(path)
        files = [file for file in self.mentioning(called.removesuffix("()")) if file.normal != here]
        for facts, call in self._reads(files, called, here) if len(files) <= _FILES else ():
            values, given = Forwards(facts), settled.arguments([call], part, position)
            if part[0] == "." and not settled.is_kept(values, call, part[1:]):
                return False
            own = [each for each in given or () if not settled.has_own_fix(values, each)]
            if (given is None and part[0] != ".") or not all(
                settled.is_settled(values, each) for each in own
            ):
                return False
        return len(files) <= _FILES

    def _calling(self, path: str, function: str) -> list[ProjectFile]:
        """Return the files that may call a function with the number of a GPU; none if there are too many."""
        here = os.path.normpath(path)
        others = (file for file in self.mentioning(function) if file.normal != here)
        found = list(islice((file for file in others if file.has_number), _FILES + 1))
        return found if len(found) <= _FILES else []

    def _without_number(self, function: str) -> list[ProjectFile]:
        """Return files that mention a function, and have no word of a GPU's number."""
        return [file for file in self.mentioning(function) if not file.has_number][:_FILES]

    def _reads(self, files: Sequence[ProjectFile], name: str, path: str) -> Iterator[tuple[Facts, ast.expr]]:
        """Yield what may read or call a name of the file at a normal path, or an attribute, in some files.

        With `()`, that are the calls of the objects that a class makes.
        """
        made = name.removesuffix("()")
        for file in files:
            facts = self.informed(file)
            for node in _named(facts, made) if facts is not None else ():
                assert facts is not None
                if isinstance(node.ctx, ast.Load) and self._is_of(path, file, facts, node, made):
                    read = facts.tree.call_of(node) or node
                    if made == name:
                        yield facts, read
                    elif isinstance(read, ast.Call):  # another name of a class makes nothing
                        yield from ((facts, each) for each in calls_of_object(facts, read))

    def _is_of(
        self, path: str, file: ProjectFile, facts: Facts, node: ast.Name | ast.Attribute, name: str
    ) -> bool:
        """Return whether a name or an attribute in a file may be that of the file at a normal path."""
        full = facts.resolve(node)
        if full is None:
            is_own = dotted(node) in (name, f"self.{name}") and file.defines(name)
            in_module = b"\ndef %s(" % name.encode() in self.files[path].data
            if isinstance(node, ast.Attribute) and in_module and facts.kinds.of(node.value).classes:
                return False  # a method
            return not is_own and (isinstance(node, ast.Attribute) or facts.tree.call_of(node) is not None)
        owner = full.rpartition(".")[0]  # of a class attribute
        found = self.definition(file.path, full) or self.definition(file.path, owner)
        return found is not None and found[0].normal == path

    @remembered
    def receives_number(self, path: str) -> bool:
        """Return whether the file at `path` passes on as a device what calls show to be a GPU's number."""
        file = self.file(path)
        if file is None:
            return False
        called = {name for name in file.export(moving_functions) if self._may_get_number(path, name)}
        receivers = _receivers(file.facts) if called and file.facts is not None else ()
        return any(
            Kind.INDEX.name in self.passed(path, name, *place) for name, place in receivers if name in called
        )

    def _may_get_number(self, path: str, function: str) -> bool:
        """Return whether the bytes of another file show that it may pass a number to a function."""
        if function not in self._passing:
            files = (*self._calling("", function), *self._without_number(function))
            passing = (file for file in files if not file.defines(function))
            self._passing[function] = {file.normal for file in passing if _passes_number(file, function)}
        return not self._passing[function].issubset({os.path.normpath(path)})

    @cached_property
    def _passing(self) -> dict[str, set[str]]:
        """The files whose bytes show that they may pass a number to a function, by its name."""
        return {}

    @remembered
    def brings_number(self, path: str) -> bool:
        """Return whether the file at `path` passes on as a device what another file shows to be a number."""
        file = self.file(path)
        names = file.export(moved_imports) if file is not None else ()
        return any(map(self._is_number, sorted(names)))

    def _is_number(self, name: str) -> bool:
        """Return whether a file binds a name to a GPU's number, or defines a function that returns one."""
        if name not in self._numbers:
            self._numbers[name] = any(
                Kind.INDEX in facts.kinds.of(value).seen or Kind.INDEX in facts.kinds.elements(value).seen
                for file in self.mentioning(name)
                if file.binds(name) or _may_bind(file, name, called=True)
                for facts in [self.informed(file)]
                if facts is not None
                for binding in facts.tree.root.bindings.get(name, ())
                for value in _values(facts, binding, called=file.defines(name))
            )
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[str, bool]:
        return {}

    # -- forwards -------------------------------------------------------------------------------------

    @remembered
    def use_of_argument(self, path: str, name: str, place: int | str) -> int:
        """Return the value of the `Use` of an argument of a function that the file at `path` imports."""
        facts, bindings = self._bound(self.definition(path, name))
        owner, _, method = name.rpartition(".")
        if not bindings:
            facts, owners = self._bound(self.definition(path, owner))
            scopes = [facts.tree.scopes.get(each.node) for each in owners] if facts is not None else []
            bindings = [each for scope in scopes if scope for each in scope.bindings.get(method, ())]
        if facts is None:
            return 0
        values, number, use = Forwards(facts), facts.once(settled.numbers, facts.tree.root), Use.NOTHING
        free = Use.NOTHING
        for node in (binding.node for binding in bindings):  # with `@overload`, there are several
            function = values.constructor(node) if isinstance(node, ast.ClassDef) else node
            if isinstance(function, Function):
                use |= use_of_parameter(values, function, place)
                use |= settled.only_device(values, function, place)
                free |= number.use_of_parameter(function, place) if Use.DEVICE in use else use
        return (use if Use.DEVICE in free else use | Use.SETTLED).value

    @remembered
    def is_of_library(self, path: str, name: str) -> bool:
        """Return whether a class that a file imports, or that of a method, is based on a library's."""
        for full in (name, name.rpartition(".")[0]):
            facts, bindings = self._bound(self.definition(path, full))
            classes = (binding.node for binding in bindings if isinstance(binding.node, ast.ClassDef))
            if facts is not None and any(is_based_on_library(facts, each) for each in classes):
                return True
        return False

    @remembered
    def use_of_result(self, path: str, name: str) -> int:
        """Return the `Use` that files that import `path` make of a name, an attribute or a result."""
        here = os.path.normpath(path)
        importing = self._importing(here)
        files = [file for file in self.mentioning(name) if file.normal in importing and file.normal != here]
        if len(files) > _FILES:
            return Use.UNKNOWN.value
        own, use = self.file(path), Use.NOTHING
        is_global = own is not None and own.facts is not None and name in own.facts.tree.root.bindings
        for facts, read in self._reads(files, name, here):
            values = Forwards(facts)
            if is_global and isinstance(read, ast.Call):  # nobody imports a method
                use |= values.use_of(read)
            use |= needs_of(values, of_number(values, read))
        return use.value

    def _bound(self, found: Definition | None) -> tuple[Facts | None, Sequence[Binding]]:
        """Return the facts of a definition's file, and the bindings of the name there."""
        facts = self.informed(found[0]) if found is not None else None
        return facts, facts.tree.root.bindings.get(found[1], ()) if found and facts is not None else ()


def _named(facts: Facts, name: str) -> Iterator[ast.Name | ast.Attribute]:
    """Yield what reads or sets a name or an attribute, also by another name that it is imported as."""
    imported = (alias for each in facts.tree.imports for alias in each.names)
    names = {name, *(alias.asname for alias in imported if alias.name == name and alias.asname)}
    for each in sorted(names):
        for node in facts.tree.nodes_with_name(each):
            if isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) in names:
                yield node


def _receivers(facts: Facts) -> frozenset[Parameter]:
    """Return the functions that pass on a parameter as a device, each with the parameter and its position."""
    return Sources(facts, How.BOUND | How.PASSED, _STEPS).parameters(device_values(facts))


def _passes_number(file: ProjectFile, function: str) -> bool:
    """Return whether the bytes of a file show that it may call a function of a name with a number."""
    name, data = function.encode(), file.data
    at = data.find(name + b"(")
    while at >= 0:
        arguments = _ARGUMENTS.match(data, at + len(name))
        if arguments is not None and _NUMBER.search(arguments[0]):
            return True
        at = data.find(name + b"(", at + 1)
    return False


def _may_bind(file: ProjectFile, name: str, *, called: bool) -> bool:
    """Return whether the bytes of a file may bind a name to a number or a device, or to a function of one."""
    if called:
        return file.defines(name) and any(map(file.holds, _OF_NUMBERS))
    return file.binds(name)


def _kinds(facts: Facts, binding: Binding, part: str, *, called: bool) -> Iterator[str]:
    """Yield the names of the kinds of a part of what a name of a module is bound to, or returns."""
    for value in _values(facts, binding, called=called, yielded=part == YIELDED):
        if part in ("", YIELDED):
            yield from _names(facts.kinds.of(value))
            continue
        made = (facts.value(value) or value) if called else value
        piece = field_of(facts, made, part)
        yield from _names(facts.kinds.of(piece)) if piece is not None else (UNKNOWN,)
        if isinstance(made, ast.Call) and not _is_fixed(facts, made):
            yield UNKNOWN


def _values(facts: Facts, binding: Binding, *, called: bool, yielded: bool = False) -> list[ast.expr]:
    """Return what a name of a module is bound to, or what a function of the name returns or yields."""
    if not called:
        return [binding.value] if binding.value is not None else []
    if not isinstance(binding.node, Function) or binding.node.decorator_list:
        return []
    values, generates = facts.once(results, facts.tree.scopes[binding.node])
    return list(values) if generates is yielded else []


def _is_fixed(facts: Facts, call: ast.Call) -> bool:
    """Return whether a call makes a named tuple, whose fields nothing changes."""
    found = facts.bindings(call.func)
    made, node = (found[0].value, found[0].node) if len(found) == 1 else (None, None)
    if isinstance(node, ast.ClassDef):
        return any(last_name(base) == "NamedTuple" for base in node.bases)
    return isinstance(made, ast.Call) and last_name(made.func) == "namedtuple"


def _passed(facts: Facts, value: ast.expr) -> set[str]:
    """Return the names of the kinds of an argument; other calls are looked at one by one."""
    return set(_names(replace(facts.kinds.of(value), open=False)))


def _names(kinds: Kinds) -> Iterator[str]:
    yield from (kind.name for kind in kinds.seen)
    if kinds.unknown or kinds.open or not kinds.seen:
        yield UNKNOWN
