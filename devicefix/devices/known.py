"""The devices that a module has already: the names bound to one, and where they can be used."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

from devicefix.facts import Binding, Facts, Scope
from devicefix.facts.bound import Bound
from devicefix.facts.certain import certain_device, means_cuda
from devicefix.facts.flow.kinds.library import CURRENT_ACCELERATOR
from devicefix.facts.flow.steps import related
from devicefix.facts.guards.answers import AVAILABLE
from devicefix.facts.tree import walk
from devicefix.facts.values import cpu, cuda_string, current_device, device_name, last_name

_WRITES = re.compile(r"globals\(\)\s*(?:\[[^]]*\]\s*=(?!=)|\.(?:update|setdefault|__setitem__)\b)")
_ANSWER = re.compile(r"=\s*[\w.]*is_available\(\)")
_STEPS = 4  # from name to name
_KEEPING = ("torch.no_grad", "torch.inference_mode")  # what they decorate gets the same `self`
_OTHERS = ("torch.backends.mps.is_available", "torch.mps.is_available", "torch.xpu.is_available")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class KnownDevices:
    """The names that are bound to the current device, or to the CPU where there is none.

    Args:
        facts: The module's facts.
        bound: What is bound where.
        star_names: Returns the names that star imports bind, each with whether it is such a device.
        may_ask: Whether a fix that asks for CUDA at a node is made, and safe.
        is_set_elsewhere: Whether another file sets a name of the module.
    """

    def __init__(
        self,
        facts: Facts,
        bound: Bound,
        star_names: Callable[[], Mapping[str, bool]],
        may_ask: Callable[[ast.AST], bool],
        is_set_elsewhere: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._star_names = star_names
        self._facts = facts
        self._bound = bound
        self._is_set_elsewhere = is_set_elsewhere
        self._may_ask = may_ask
        self._certain: dict[Scope, list[str]] = {}
        self._named: dict[Scope, list[str]] = {}
        self._preferred: dict[Scope, list[str]] = {}
        self._of_one_value: dict[ast.expr, bool] = {}
        self._of_answer: dict[Scope, list[str]] = {}

    @cached_property
    def star_names(self) -> Mapping[str, bool]:
        """The names that star imports bind, each with whether it is such a device."""
        return self._star_names()

    def current(self, site: ast.AST, *, may_be_text: bool = True) -> str | None:
        """Return the name of such a device that a site can use, `device` before any other.

        A device that a flag may set to the CPU on a machine with CUDA counts only where the flag is true.

        Args:
            site: The node that uses it.
            may_be_text: Whether the site also takes the name of a device, such as `"cuda"`.
        """
        scope = self._facts.tree.scope(site)
        for outer in scope.chain():
            if outer.is_module and (own := self._own(site, may_be_text)):
                return own
            for name in self._by_preference(outer):
                if not may_be_text and not all(self._is_object(each.value) for each in outer.bindings[name]):
                    continue
                if self._is_visible(name, outer, site) and self._is_cuda(name, outer, site):
                    return name
        if not may_be_text:
            return None  # what a star import brings may be a text
        imported = (name for name, is_device in self.star_names.items() if is_device)
        bound = (name for name in imported if scope.lookup(name) is None and self._bound.name(name, site))
        return next(bound, None)

    def _own(self, site: ast.AST, may_be_text: bool) -> str | None:
        """Return the attribute that holds such a device in all objects of the class around a site."""
        owner, own = own_attributes(self._facts, site)
        for name, binding in own.items():
            value = binding.value
            if value is None or not certain_device(self._facts, value):
                continue
            is_form = (may_be_text or self._is_object(value)) and self._needs_no_cuda(value)
            if is_form and (device_name(name) or not cuda_string(value)):
                if self._facts.others.is_constant(owner, name):
                    return f"self.{name}"
        return None

    def text(self, site: ast.AST) -> str | None:
        """Return the name of a constant of the module that a site can use: a device by its name, a string."""
        root = self._facts.tree.root
        for name in self.certain(root):
            is_text = all(self._is_text(binding.value) for binding in root.bindings[name])
            if is_text and self._is_visible(name, root, site):
                return name
        return None

    def answer(self, site: ast.AST) -> str | None:
        """Return a variable that a site can use which holds whether CUDA is available, and nothing else."""
        if not self._holds_answers:
            return None
        scopes = self._facts.tree.scope(site).chain()
        answers = ((name, scope) for scope in scopes for name in self._answers(scope))
        return next((name for name, scope in answers if self._is_visible(name, scope, site)), None)

    def _answers(self, scope: Scope) -> list[str]:
        if scope not in self._of_answer:
            single = ((name, found[0]) for name, found in scope.bindings.items() if len(found) == 1)
            asking = ((name, only) for name, only in single if self._facts.call(only.value, AVAILABLE))
            self._of_answer[scope] = [name for name, only in asking if not self._is_looped(only)]
        return self._of_answer[scope]

    @cached_property
    def _holds_answers(self) -> bool:
        """Return whether the module may bind a variable to whether CUDA is available."""
        return _ANSWER.search(self._facts.source.text) is not None

    def name_of_current(self, site: ast.AST) -> str | None:
        """Return the code of the name of such a device that a site can use, a string: `device.type`."""
        for outer in self._facts.tree.scope(site).chain():
            if outer.is_module and (own := self._own(site, may_be_text=False)):
                return f"{own}.type"
            for name in self._by_preference(outer):
                values = [binding.value for binding in outer.bindings[name]]
                is_text = all(value and (cuda_string(value) or self._is_text(value)) for value in values)
                if not is_text and not all(map(self._is_object, values)):
                    continue
                may_be_none = any(value and self._may_be_none(value) for value in values)
                if self._is_visible(name, outer, site) and name in self.certain(outer) and not may_be_none:
                    return name if is_text else f"{name}.type"
        return None

    def named(self, scope: Scope) -> list[str]:
        """Return the names of a scope all of whose bindings are the current device, or the CPU."""
        if scope not in self._named:
            self._named[scope] = [name for name in tuple(scope.bindings) if self._is_device(name, scope)]
        return self._named[scope]

    def chosen_by_flag(self, site: ast.AST, flag: ast.expr) -> Iterator[str]:
        """Yield the devices that a site can use, and that a flag chooses."""
        for scope in self._facts.tree.scope(site).chain():
            for name in self.named(scope):
                value = scope.bindings[name][0].value
                if isinstance(value, ast.Call) and value.args:
                    value = value.args[0]
                if isinstance(value, ast.IfExp) and self._is_visible(name, scope, site):
                    if self._is_same(value.test, flag):
                        yield name

    def certain(self, scope: Scope) -> list[str]:
        """Return those of the names that are the current CUDA device on every machine with CUDA."""
        if scope not in self._certain:
            named = self.named(scope)
            self._certain[scope] = [name for name in named if self._is_certain(scope.bindings[name])]
        return self._certain[scope]

    def _is_cuda(self, name: str, scope: Scope, site: ast.AST) -> bool:
        """Return whether a device is the current CUDA device at a site on every machine with CUDA."""
        return name in self.certain(scope) or self._is_wanted(scope.bindings[name], site)

    def _is_object(self, value: ast.expr | None, depth: int = _STEPS) -> bool:
        """Return whether a value is an object of `torch.device`, not the name of a device."""
        match value:
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_object(body, depth) and self._is_object(orelse, depth)
            case ast.Name() if depth:
                return self._is_object(self._facts.value(value), depth - 1)
            case ast.Call():
                return self._facts.call(value, "torch.device", CURRENT_ACCELERATOR)
        return False

    def _may_be_none(self, value: ast.expr) -> bool:
        """Return whether a value is the accelerator, which is None on a CPU, and the program does not ask."""
        return self._facts.call(value, CURRENT_ACCELERATOR) and not self._facts.is_guarded(value)

    def _is_text(self, value: ast.expr | None) -> bool:
        """Return whether a value is `"cuda" if … else "cpu"`, two names of devices."""
        return isinstance(value, ast.IfExp) and all(
            isinstance(each, ast.Constant) for each in (value.body, value.orelse)
        )

    def _is_certain(self, bindings: list[Binding]) -> bool:
        if all(certain_device(self._facts, binding.value) for binding in bindings):
            return True
        choice = self._if_statement(bindings)
        return choice is not None and any(
            means_cuda(self._facts, choice.test, self._facts.tree.block(binding.node) is choice.body)
            and certain_device(self._facts, binding.value)
            for binding in bindings
            if isinstance(binding.node, ast.stmt)
        )

    def _is_wanted(self, bindings: list[Binding], site: ast.AST) -> bool:
        """Return whether the test that chooses a device is true at a site: it is CUDA there."""
        value = bindings[0].value
        if isinstance(value, ast.Call) and value.args:
            value = value.args[0]
        if len(bindings) > 1 or not isinstance(value, ast.IfExp) or not cpu(self._facts, value.orelse):
            return False
        if not certain_device(self._facts, value.body) or not self._is_constant(value.test, bindings[0].node):
            return False
        return any(
            isinstance(parent, ast.If | ast.IfExp)
            and child in (parent.body if isinstance(parent, ast.If) else [parent.body])
            and self._is_same(parent.test, value.test)
            for child, parent in self._facts.tree.ancestors(site)
        )

    def _is_constant(self, test: ast.expr, node: ast.AST) -> bool:
        """Return whether a flag has one value, from before a statement on."""
        if not isinstance(test, ast.Name) or not self.has_one_value(test):
            return False
        if test.id in self._facts.tree.declared_elsewhere:
            return False
        found = self._facts.tree.scope(test).lookup(test.id)
        return found is not None and (found[0].is_module or found[0] is self._facts.tree.scope(node))

    def _is_same(self, test: ast.expr, other: ast.expr) -> bool:
        """Return whether two tests have the same code, and read the same variables."""
        return ast.unparse(test) == ast.unparse(other) and self._variables(test) == self._variables(other)

    def _variables(self, test: ast.expr) -> list[Scope | None]:
        """Return the scopes that bind the names of a test."""
        names = (node for node in ast.walk(test) if isinstance(node, ast.Name))
        found = (self._facts.tree.scope(node).lookup(node.id) for node in names)
        return [each and each[0] for each in found]

    def has_one_value(self, test: ast.expr) -> bool:
        """Return whether what a test reads is bound at most once, in no loop and not by other files."""
        if test not in self._of_one_value:
            self._of_one_value[test] = all(map(self._is_bound_once, ast.walk(test)))
        return self._of_one_value[test]

    def _is_bound_once(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            found = self._facts.tree.scope(node).lookup(node.id)
            if found is not None and found[0].is_module and self.is_set_at_run_time(node.id):
                return False
        bindings = self._bindings(node)
        return len(bindings) <= 1 and not any(map(self._is_looped, bindings))

    def _bindings(self, node: ast.AST) -> Sequence[Binding]:
        """Return the bindings of a name, or the first two of an attribute of any object."""
        tree = self._facts.tree
        if (found := tree.lookup(node)) is not None:
            return found[1]
        if isinstance(node, ast.Attribute):
            paths = tree.paths_by_name.get(node.attr, ())
            return list(islice((each for path in paths for each in tree.attributes[path]), 2))
        return ()

    def _is_looped(self, binding: Binding) -> bool:
        return isinstance(binding.node, _LOOPS) or any(self._facts.tree.around(binding.node, *_LOOPS))

    def _by_preference(self, scope: Scope) -> list[str]:
        if scope not in self._preferred:
            self._preferred[scope] = sorted(self.named(scope), key=lambda name: name.lower() != "device")
        return self._preferred[scope]

    def _is_device(self, name: str, scope: Scope) -> bool:
        """Return whether all bindings of a name are the current device, or the CPU."""
        bindings = scope.bindings[name]
        values = [binding.value for binding in bindings]
        if any(value is None for value in values):
            return False
        if any(value and cuda_string(value) for value in values) and not device_name(name):
            return False  # a string that may never become a device
        if len(values) == 1:
            return current_device(self._facts, values[0]) and self._needs_no_cuda(values[0])
        if all(certain_device(self._facts, value) and self._needs_no_cuda(value) for value in values):
            return True
        return self._if_statement(bindings) is not None

    def _needs_no_cuda(self, value: ast.expr | None) -> bool:
        """Return whether a device is the CPU without CUDA, or will be; nothing reports an unread `"cuda"`."""
        for _ in range(_STEPS):
            if isinstance(value, ast.Name):
                value = self._facts.value(value)
        return value is None or not cuda_string(value) or self._may_ask(value)

    def _if_statement(self, bindings: list[Binding]) -> ast.If | None:
        """Return the `if` statement that binds a name to the current device and to the CPU.

        Between them, `elif` may bind it to other devices where these are available.
        """
        tree = self._facts.tree
        parent = tree.parents.get(bindings[0].node)
        if not isinstance(parent, ast.If):
            return None
        branches, last = [parent.body], parent.orelse
        while len(last) == 1 and isinstance(last[0], ast.If) and self._facts.call(last[0].test, *_OTHERS):
            branches, last = [*branches, last[0].body], last[0].orelse
        blocks = [tree.block(binding.node) for binding in bindings if isinstance(binding.node, ast.stmt)]
        kinds = [self._kind(binding.value) for binding in bindings if binding.value is not None]
        is_whole = [*map(id, blocks)] == [*map(id, [*branches, last])] and "cuda" not in kinds[1:-1]
        return parent if is_whole and {kinds[0], kinds[-1]} == {"cpu", "cuda"} else None

    def _kind(self, value: ast.expr) -> str:
        if cpu(self._facts, value):
            return "cpu"
        return "cuda" if current_device(self._facts, value) else ""

    def _is_visible(self, name: str, scope: Scope, site: ast.AST) -> bool:
        """Return whether a name of a scope is bound when a site is reached, and means the same there."""
        tree = self._facts.tree
        found = tree.scope(site).lookup(name)
        if found is None or found[0] is not scope or name in tree.declared_elsewhere:
            return False
        if scope.is_module and self.is_set_at_run_time(name):
            return False
        return self._bound.name(name, site)

    def is_set_at_run_time(self, name: str) -> bool:
        """Return whether something other than the module's statements may bind a name of it."""
        return self._writes_globals or self._is_set_elsewhere(name)

    @cached_property
    def _writes_globals(self) -> bool:
        """Return whether the module may bind any name at run time, as in `globals()["device"] = "cpu"`."""
        return bool(self._facts.tree.reads("exec")) or bool(_WRITES.search(self._facts.source.text))


def own_attributes(facts: Facts, site: ast.AST) -> tuple[str, dict[str, Binding]]:
    """Return the name of the class around a site, and what nothing else in the module binds of its objects.

    These are attributes that its constructor binds, each before any other method runs.
    """
    tree = facts.tree
    found = tree.scope(site).lookup("self")
    method = found[0].node if found is not None else None
    owner = tree.parents.get(method)
    if found is None or not isinstance(owner, ast.ClassDef) or not isinstance(method, ast.FunctionDef):
        return "", {}
    decorators = (facts.resolve(getattr(each, "func", each)) for each in method.decorator_list)
    is_method = len(found[1]) == 1 and method.args.args[:1] == [found[1][0].node]
    if not is_method or any(each not in _KEEPING for each in decorators):
        return "", {}
    own = facts.once(_attributes_of, tree.scopes[owner])
    if method.name == "__init__":
        line = tree.statement(site).lineno
        own = {name: each for name, each in own.items() if tree.statement(each.node).lineno < line}
    return owner.name, own


def _attributes_of(facts: Facts, scope: Scope) -> dict[str, Binding]:
    """Return the attributes that the constructor of a class binds, and nothing else in the module."""
    tree, owner, found = facts.tree, scope.node, dict[str, Binding]()
    assert isinstance(owner, ast.ClassDef)
    made = next((each for each in owner.body if getattr(each, "name", "") == "__init__"), None)
    bases = (facts.resolve(base) or last_name(base) for base in owner.bases)
    calls = [getattr(tree.call_of(each), "args", []) for each in tree.reads("setattr")]
    names = {
        getattr(second, "value", None) for arguments in calls for second in [None, *arguments][2:3] or [None]
    }
    if not isinstance(made, ast.FunctionDef) or None in names or "__dict__" in tree.text:
        return found
    if owner.keywords or not all(base == "object" or base.startswith(("torch.", "abc.")) for base in bases):
        return found
    stored = set[str | None]()
    for statement in made.body:
        uses = [tree.parents[each] for each in walk(statement) if getattr(each, "id", "") == "self"]
        bound = {each.attr for each in uses if isinstance(getattr(each, "ctx", None), ast.Store)}  # type: ignore[attr-defined]
        for name in bound - names if isinstance(statement, ast.Assign) else ():
            if tree.paths_by_name[name] == [f"self.{name}"] and _is_bound_once(facts, owner, name):
                bindings = tree.attributes[f"self.{name}"]
                found[name] = next(each for each in bindings if each.node is statement)
        stored |= bound
        if any(getattr(each, "attr", None) not in stored for each in uses):
            break  # it may call a method
    return found


def _is_bound_once(facts: Facts, owner: ast.ClassDef, name: str) -> bool:
    """Return whether the objects of a class bind an attribute at one place of the module."""
    places = (binding.node for binding in facts.tree.attributes[f"self.{name}"])
    classes = (next(facts.tree.around(place, ast.ClassDef), None) for place in places)
    return sum(related(facts, owner, each) for each in classes) == 1
