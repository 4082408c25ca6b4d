"""The devices and backends that a program reads from its configuration files."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from devicefix.facts.flow.forwards import Forwards, Use, use_of_import
from devicefix.facts.flow.needs import need_of, use_of_parameter
from devicefix.facts.flow.parameters import Function, argument_at, described
from devicefix.facts.flow.sinks import part_read, takes_device
from devicefix.facts.flow.sources import How, Source, Sources
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Scope, dotted
from devicefix.facts.values import cpu, last_name, receiver, without_call

_LOADER = re.compile(r"(yaml|json|toml|tomli|tomllib|omegaconf\.OmegaConf)\.(\w+_)?loads?|hydra\.compose")
_CHANGING = re.compile("update|merge|setdefault|set_defaults|__setitem__")
# What loads a configuration, or the name by which other files pass it on, and the keys from it to a part.
Way = tuple[ast.expr, str]
_TRAINER = re.compile(r"(lightning|pytorch_lightning)\..*(Trainer|Fabric)")
KEPT = "="  # a function or class that makes a configuration of its arguments
_TIED = Use.DEVICE | Use.BACKEND
_FILLING = re.compile("setattr|__dict__|__setitem__")  # in a class that is a configuration
_STEPS = 14  # bindings, calls and keys between a value and the file that it is read from


class Configurations(Sources):
    """The ways from the expressions of one module back to what loads or parses configurations.

    Args:
        facts: the facts of the module, with what the other files show.
        calls: the calls that parse a configuration in the code.
    """

    def __init__(self, facts: Facts, calls: Collection[ast.expr] = ()) -> None:
        how = How.BOUND | How.PART | How.PASSED | How.RETURNED | How.ARGUMENT | How.ELEMENT | How.CHOICE
        super().__init__(facts, how, _STEPS)
        self._calls = calls
        self._filled: dict[tuple[str, Scope | None], list[ast.expr]] = {}

    def reads(self, key: str) -> Iterator[tuple[ast.expr, list[Way]]]:
        """Yield what reads a key for a device or a backend, or passes on a whole with it; and from where."""
        forwards = Forwards(self._facts)
        reads = (*forwards.key_reads(key), *forwards.attribute_reads(key))
        taken = ((read, part_read(read)) for read in reads if self._is_taken(forwards, read))
        for read, part in (*taken, *((each, (each, "")) for each in self._unpacked(forwards, key))):
            if part is not None and not self._facts.is_guarded(read):
                yield read, list(self.ways(part[0]))

    def ways(self, value: ast.expr) -> Iterator[Way]:
        """Yield the ways from configurations to an expression, the shortest first."""
        for source in self.of(value):
            for held in self._held(source.node):
                yield source.node, ".".join([held, *_keys(list(source.way()))])

    def _is_taken(self, forwards: Forwards, read: ast.expr) -> bool:
        """Return whether a value is taken for a device or a backend, and nothing sets it to the CPU."""
        found, facts = forwards.of(read), self._facts
        bound = [*facts.bindings(read), *(each for variable in found.variables for each in variable.bindings)]
        if any(each.value is not None and cpu(facts, each.value) for each in bound):
            return False
        shared = (variable.name for variable in found.variables if variable.elsewhere)
        uses = (use for use in found.uses if not facts.is_guarded(use))
        return any(_takes(forwards, use) for use in uses) or any(map(facts.others.is_device_place, shared))

    def _unpacked(self, forwards: Forwards, key: str) -> Iterator[ast.expr]:
        """Yield each `**whole` of a call that takes a key for what needs CUDA, or what Hydra instantiates."""
        for unpacked in self._facts.tree.nodes_with("**"):
            call = self._facts.tree.parents.get(unpacked)
            if isinstance(unpacked, ast.keyword) and unpacked.arg is None and isinstance(call, ast.Call):
                own = (each for each in forwards.functions(call.func) if isinstance(each, Function))
                uses = [use_of_parameter(forwards, each, key) for each in own]  # fields of a class are read
                uses.append(use_of_import(self._facts, call.func, key))
                is_trainer = key == "accelerator" and _TRAINER.match(self._facts.resolve(call.func) or "")
                if is_trainer or any(use & _TIED for use in uses):
                    yield unpacked.value
        for call in self._facts.tree.nodes_with("instantiate("):
            yield from call.args[:1] if self._facts.call(call, "hydra.utils.instantiate") else ()

    def _held(self, node: ast.expr) -> list[str]:
        """Return the keys of the part of a configuration that an expression is, also in other files."""
        facts = self._facts
        if node in self._calls or _loads(facts, node):
            return [""]
        found = self.parameter(node)
        if found is not None:
            if any(facts.resolve(without_call(each)) == "hydra.main" for each in found[0].decorator_list):
                return [""]
            name, (parameter, place) = described(facts.tree, found[0], last_name(node))
            return list(facts.others.configuration_passed(name, parameter, place))
        return [each for each in self._imported(without_call(node)) if each != KEPT]

    def _imported(self, node: ast.expr) -> Sequence[str]:
        name = self._facts.resolve(node)
        return self._facts.others.configuration_of(name) if name is not None else ()

    def _of_path(self, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
        yield from super()._of_path(node)
        yield from self._put_in(node)

    def _put_in(self, holder: ast.expr) -> list[ast.expr]:
        """Return what code puts under computed keys of a name or an attribute, as the user's options."""
        tree, path = self._facts.tree, dotted(holder) or ""
        scope = (tree.lookup(holder) or (None,))[0]
        if (path, scope) not in self._filled:
            reads = (use for use in tree.reads(path) if (tree.lookup(use) or (None,))[0] is scope)
            self._filled[path, scope] = [value for use in reads for value in self._put_at(use)]
        return self._filled[path, scope]

    def _put_at(self, use: ast.expr) -> Iterator[ast.expr]:
        """Yield what code puts under computed keys of an object, given where it reads the object."""
        parents = self._facts.tree.parents
        parent = parents[use]
        match parent, parents[parent]:
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.expr() as key, value]), _:
                yield from () if isinstance(key, ast.Constant) else (value,)
            case ast.Attribute(attr="__dict__") | ast.Call(func=ast.Name(id="vars")), ast.Attribute() as it:
                yield from _given(parents[it])
            case ast.Attribute(attr=name), ast.Call() as call if _CHANGING.match(name):
                yield from _given(call)
            case ast.Subscript(value=whole, slice=key, ctx=ast.Store()), ast.Assign(value=value):
                if whole is use and not isinstance(key, ast.Constant):
                    yield value

    def _of_call(self, call: ast.Call) -> Iterator[ast.expr]:
        facts = self._facts
        bound = facts.tree.bound(call.func) or facts.tree.bound(receiver(call.func))
        made = bound[0].node if len(bound) == 1 else None  # `Config(path)`, or `Config.load(path)`
        imported = self._imported(call.func)
        if isinstance(call.func, ast.Attribute) and call.func.attr.startswith("parse_"):
            yield call.func.value  # `parser.set_defaults(**config)`
        elif isinstance(made, ast.ClassDef):
            yield from (*_given(call), *loaded_in(facts, made)) if fills(facts, made) else ()
        else:
            takes, given = KEPT in imported or isinstance(call.func, ast.Name), list(_given(call))
            for each in super()._of_call(call):
                if each not in given or (takes and not isinstance(each, (ast.Constant, ast.Dict))):
                    yield each


def _takes(forwards: Forwards, use: ast.expr) -> bool:
    """Return whether a function takes an argument for a device, or for the backend of a process group."""
    call, place = argument_at(forwards.tree, use) or (None, None)
    is_device = call is not None and place is not None and takes_device(forwards.facts, call.func, place)
    return is_device or place == "accelerator" or bool(need_of(forwards, use) & _TIED)


def _given(call: ast.AST) -> Iterator[ast.expr]:
    if isinstance(call, ast.Call):
        yield from (*call.args, *(each.value for each in call.keywords))


def _loads(facts: Facts, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and bool(_LOADER.fullmatch(facts.resolve(node.func) or ""))


def _keys(way: list[Source]) -> Iterator[str]:
    """Yield the keys on the way from a configuration to a part of it."""
    for whole, part in pairwise(way):
        owner, key = part_read(part.node) or (None, "")
        if owner is whole.node:
            yield key or "*"


def fills(facts: Facts, node: ast.ClassDef) -> bool:
    """Return whether a class takes its attributes from its arguments, under their own names."""
    created = any(isinstance(each, ast.FunctionDef) and each.name == "__init__" for each in node.body)
    return not created or bool(_FILLING.search(facts.source.code(node)))


def loaded_in(facts: Facts, node: ast.ClassDef) -> list[ast.expr]:
    """Return the calls that load a configuration in a class that takes its attributes from one."""
    nodes = ast.walk(node) if fills(facts, node) else ()
    return [each for each in nodes if isinstance(each, ast.expr) and _loads(facts, each)]
