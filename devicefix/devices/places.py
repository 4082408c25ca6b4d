"""Where a module can define a device: at its top level, in the function that uses it, or nowhere."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, takewhile
from typing import cast

from devicefix.facts import ASKS, Facts, Function, Scope, dotted
from devicefix.facts.bound import Bound
from devicefix.facts.exports import late_calls, late_settings
from devicefix.facts.exports.imports import modules_of
from devicefix.facts.project import Project
from devicefix.facts.scopes import is_main
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name
from devicefix.rewrite.lines import begins_line
from devicefix.rewrite.placement import Layout, docstring, imports_something

_MOVES = {"cuda", "to"}
# They neither start CUDA nor ask for it.
_NOT_STARTING = (
    "torch.device", "torch.manual_seed", "torch.load", "torch.set_", "torch.nn.", "torch.distributed.",
    "torch.utils.", "torch.backends.", "torch.multiprocessing.", "torch.cuda.device_count",
    "torch.cuda.empty_cache", "torch.cuda.Event", "torch.cuda.is_initialized", "torch.cuda.manual_seed",
    "torch.cuda.seed", "torch.cuda.nvtx.", "torch.cuda.tunable.", "torch.cuda.change_current_allocator",
    "torch.cuda.memory.change_current_allocator",
)  # fmt: skip
# Why not to ask for CUDA at a place.
_FORKED = "the fix checks for a GPU at module level, which may break CUDA in processes that the program forks"
_FORKED_BELOW = "the fix checks for a GPU before the program forks processes, which may break CUDA in them"
_SETS_LATE = "the fix checks for a GPU before the program sets `CUDA_VISIBLE_DEVICES`, which is then ignored"
TOO_EARLY = (_FORKED, _FORKED_BELOW, _SETS_LATE)  # a run on one machine does not show whether they matter
_TO_DEVICE = re.compile(r"cuda|device|\.to\(")
_FORKING = {"Process", "Pool", "ProcessPoolExecutor", "fork", "start", "start_processes", "DataLoader"}


@dataclass(frozen=True, slots=True)
class InsertionPoint:
    """A line of a module or of a function at which a definition can be inserted.

    Attributes:
        after: The statement that the line follows; None for the beginning of the module or function. In
            `if __name__ == "__main__":`, this statement itself for the beginning of its block.
        function: The function; None for the module.
    """

    after: ast.stmt | None
    function: Function | None = None


class Places:
    """The places in a module at which a program can ask whether CUDA is available.

    `torch.cuda.is_available()` starts the driver, which reads its environment variables once. Code must not
    ask before the program sets one, such as CUDA_VISIBLE_DEVICES. A process that has asked can't fork workers
    that use CUDA.

    Args:
        facts: The module's facts.
        bound: What is bound where.
        project: The facts of all files.
        path: The module's path.
        layout: The module's layout.
    """

    def __init__(self, facts: Facts, bound: Bound, project: Project, path: str, layout: Layout) -> None:
        self._facts = facts
        self._bound = bound
        self._project = project
        self._path = path
        self._layout = layout
        self._local_imports: dict[Function, list[ast.stmt]] = {}
        self._of_main: dict[ast.If, InsertionPoint] = {}

    @property
    def of_module(self) -> Iterator[InsertionPoint]:
        """The lines of the module at which a device can be defined, if it may be defined there at all.

        They are below the prologue or, where torch is imported later, below that.
        """
        if not self._only_in_functions:
            yield from self._of_top

    @property
    def of_import(self) -> Iterator[InsertionPoint]:
        """The lines of the module at which to define a value for code that asks for CUDA on import itself."""
        if not self.sets_devices_late and not self._torch_may_be_missing:
            yield from self._of_top

    @property
    def _of_top(self) -> Iterator[InsertionPoint]:
        """The lines of the module below the imports, and below that of torch, if it can have a new name."""
        if self._project.is_open(self._path):
            return
        first = self._end_of_prologue
        yield InsertionPoint(first)
        body = self._facts.tree.module.body
        below = body if first is None else body[body.index(first) + 1 :]
        names = [*self._facts.torch_names(self._facts.tree.root)]
        binding = (each for each in below if any(self._bound.name_after(name, each) for name in names))
        statement = next(binding, None)
        if statement is not None:
            yield InsertionPoint(self._with_imports(statement))

    def of_function(self, site: ast.AST) -> Iterator[InsertionPoint]:
        """Return the lines of the function around a site, in front of the site, at which one can be defined.

        They are at its start, below its own settings of such a variable and the processes that it forks, and
        below its imports of torch.
        """
        function = self._facts.tree.scope(site).function
        if function is None:
            return
        owner = function.node
        assert isinstance(owner, Function)
        if not begins_line(self._facts.source, owner.body[0]) or function in self._with_settings_inside:
            return
        nested = self._is_nested(site)
        if self._forks_below(owner, site) and (nested or not self._starts_cuda_at(site)):
            return
        if nested and self._project.is_open(self._path):  # an inner function may run without the outer one
            return
        barriers = filter(None, (self._last_setting(owner, site), self._last_fork(owner, site)))
        barrier = max(barriers, key=lambda statement: statement.lineno, default=None)
        for after in (barrier, *self._imports_of_torch(function, owner)):
            place = InsertionPoint(after, owner)
            if barrier is None or after is barrier or (after is not None and after.lineno > barrier.lineno):
                if self.precedes(place, site):
                    yield place

    def of_main(self, site: ast.AST) -> InsertionPoint | None:
        """Return the line of `if __name__ == "__main__":` in front of the first of its sites, or None.

        The block asks for CUDA where it did before.
        """
        tree = self._facts.tree
        if tree.scope(site) is not tree.root or (self.sets_devices_late and self.why_unsafe(site)):
            return None
        chain = [each for each, _ in tree.ancestors(site) if isinstance(each, ast.stmt)]
        if len(chain) < 2:
            return None
        child, main = chain[-2:]
        if not isinstance(main, ast.If) or not is_main(main) or child not in main.body:
            return None
        if main not in self._of_main and begins_line(self._facts.source, child):
            index = main.body.index(child)
            self._of_main[main] = InsertionPoint(main.body[index - 1] if index else main)
        place = self._of_main.get(main)
        return place if place is not None and place.after.lineno < child.lineno else None  # type: ignore[union-attr]

    def _imports_of_torch(self, scope: Scope, function: Function) -> list[ast.stmt]:
        """Return the statements of a function's body that import torch."""
        if function not in self._local_imports:
            bindings = [binding for found in scope.bindings.values() for binding in found]
            torch = {binding.node for binding in bindings if binding.imported == "torch"}
            self._local_imports[function] = [statement for statement in function.body if statement in torch]
        return self._local_imports[function]

    def precedes(self, place: InsertionPoint, site: ast.AST) -> bool:
        """Return whether a new line at a place has run whenever a site is reached."""
        return self._bound.ran(self.above(place), site, place.function)

    def above(self, place: InsertionPoint) -> ast.stmt | None:
        """Return the last statement above a new line; None at the beginning."""
        after = place.after
        if after is None and place.function is not None and docstring(place.function.body[0]):
            after = place.function.body[0]
        return None if after is None else self._layout.last_on_line(after)

    def why_unsafe(self, site: ast.AST) -> str:
        """Return why a fix that asks for CUDA at a site is not safe, an empty text if it is.

        It is unsafe in code that runs before the program sets a variable of the driver: during import, and in
        a function that sets it further down, or is called by code that does. It is unsafe as well during the
        import of code that forks processes later. It is safe where the program itself starts CUDA or asks.
        """
        if not self._project.may_fork(self._path) and not self.sets_devices_late:
            return ""
        return "" if self._starts_cuda_at(site) else self._why_too_early(site)

    def why_kept(self, question: ast.AST) -> str:
        """Return why a fix that takes a question away is not safe: it may have chosen the GPUs."""
        tree, late = self._facts.tree, self._last_late
        function = tree.scope(question).function
        node = function and function.node
        is_global = isinstance(node, Function) and tree.parents[node] is tree.module
        calls = tree.reads(getattr(node, "name", "")) if is_global and None in late else ()
        ran = any(each in late and self._follows(question, late[each]) for each in (function, None))
        after = (tree.scope(each).function is None and self._follows(each, late[None]) for each in calls)
        return _SETS_LATE if late and not ran and not (calls and all(after)) else ""

    def _why_too_early(self, site: ast.AST) -> str:
        function = self._facts.tree.scope(site).function
        if function is None:
            return self._why_unsafe_on_import(site)
        if any(self._precedes(site, function, each) for each in self._last_late.values()):
            return _SETS_LATE
        if self._forks_below(self._owner(site), site):
            return _FORKED_BELOW
        calls = self._calls_on_import(function)
        return next(filter(None, map(self._why_unsafe_on_import, calls)), "")

    def _why_unsafe_on_import(self, site: ast.AST) -> str:
        """Return why it is not safe to ask for CUDA at a site of the module's own code."""
        in_script = self._is_in_script(site)
        if in_script and self._forks_below(self._facts.tree.module, site):
            return _FORKED_BELOW
        if not in_script and not self._starts_cuda and self._project.is_forked(self._path):
            return "" if self._is_asked_above(site) else _FORKED
        if not self.sets_devices_late:
            return ""
        if in_script:
            last = self._last_late.get(None)
            too_early = last is not None and not self._follows(site, last)
        else:
            too_early = not (self._set_at_top and self._follows(site, self._settings[-1]))
        return _SETS_LATE if too_early else ""

    def _is_asked_above(self, site: ast.AST) -> bool:
        """Return whether a module that is imported above a site asks for CUDA on import."""
        tree, line = self._facts.tree, self._facts.tree.statement(site).lineno
        above = (e for e in tree.imports if e.lineno < line and tree.parents[e] is tree.module)
        names = (name for each in above for name in modules_of(each))
        return any(self._project.asks_on_import(self._path, name) for name in names)

    def _calls_on_import(self, function: Scope) -> list[ast.Call]:
        """Return the calls of a function, or of the class of a constructor, that run on import."""
        node, tree = function.node, self._facts.tree
        assert isinstance(node, Function)
        owner = tree.parents.get(node)
        name = owner.name if node.name == "__init__" and isinstance(owner, ast.ClassDef) else node.name
        calls = (each for each in tree.calls_with_name(name) if last_name(each.func) == name)
        if owner is tree.module:  # what is called by a path, as in `@hydra.main()`, is another function
            calls = (call for call in calls if isinstance(call.func, ast.Name))
        at_top = (call for call in calls if tree.scope(call).function is None)
        return [call for call in at_top if not self._is_in_script(call)]

    def _is_in_script(self, node: ast.AST) -> bool:
        """Return whether code runs only in the module that is the program, and not during its import."""
        return is_main(node) or any(is_main(parent) for _, parent in self._facts.tree.ancestors(node))

    def _starts_cuda_at(self, site: ast.AST) -> bool:
        """Return whether the program itself starts CUDA, or asks for it, where a fix of a site would ask."""
        around = [site, *(parent for _, parent in self._facts.tree.ancestors(site))]
        expressions = list(takewhile(lambda node: not isinstance(node, ast.stmt), around))
        if isinstance(site, ast.Expr):
            expressions.append(site.value)
        if any(isinstance(node, ast.Call) and self._is_tensor_call(node.func) for node in expressions):
            return True
        tests = (node.test for node in around if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)))
        return any(self._facts.call(part, *ASKS) for test in tests for part in ast.walk(test))

    @cached_property
    def _starts_cuda(self) -> bool:
        """Return whether the module moves something to a device when it runs, above all forks of its own."""
        nodes = self._facts.tree.nodes_with(".cuda(", ".to(", *_FORKING)
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        own = [call for call in calls if self._facts.tree.scope(call).function is None]
        first = min((call.lineno for call in own if last_name(call.func) in _FORKING), default=sys.maxsize)
        early = (call.func for call in own if call.lineno < first)
        return any(isinstance(func, ast.Attribute) and func.attr in _MOVES for func in early)

    def _is_tensor_call(self, func: ast.expr) -> bool:
        """Return whether what is called moves or creates a tensor."""
        if isinstance(func, ast.Attribute) and func.attr in _MOVES:
            return True
        name = self._facts.resolve(func) or ""
        return name.startswith("torch.") and not name.startswith(_NOT_STARTING)

    def _precedes(self, site: ast.AST, function: Scope, setting: ast.stmt) -> bool:
        """Return whether a site in a function runs before a setting, by the code around the setting."""
        tree = self._facts.tree
        setter = tree.scope(setting).function
        if setter is function:
            return not self._follows(site, setting)
        assert isinstance(function.node, Function)
        calls = (node for node in tree.reads(function.node.name) if tree.scope(node).function is setter)
        calls = (call for call in calls if tree.statement(call) is not setting)  # else the calls inside count
        return any(not self._follows(call, setting) for call in calls)

    @cached_property
    def sets_devices_late(self) -> bool:
        """Return whether the program sets a variable of the driver after it has imported this module."""
        return bool(self._settings) or self._project.is_late(self._path)

    @cached_property
    def _only_in_functions(self) -> bool:
        """Return whether the module must not create a device while it is imported."""
        set_on_import = not any(map(self._is_in_script, self._settings))
        is_late = self.sets_devices_late and not (self._set_at_top and set_on_import)
        return self._torch_may_be_missing or is_late or self._project.is_forked(self._path)

    @property
    def _torch_may_be_missing(self) -> bool:
        """Return whether the module imports torch in a `try` statement."""
        tries = (each for each in self._facts.tree.module.body if isinstance(each, ast.Try))
        return any(map(self._layout.binds_torch, tries))

    @cached_property
    def _settings(self) -> list[ast.stmt]:
        """The statements that set a variable of the driver late."""
        return late_settings(self._facts)

    @cached_property
    def _late(self) -> list[ast.stmt]:
        """The settings, and the calls of functions that set such a variable, here or in other files."""
        if not self.sets_devices_late:
            return []
        calls = late_calls(self._facts, self._settings, self._project.late_functions(self._path))
        return [*self._settings, *calls, *self._setting_imports]

    @property
    def _setting_imports(self) -> Iterator[ast.stmt]:
        """The imports in functions and blocks of files that set such a variable."""
        for statement in self._facts.tree.imports:
            if self._facts.tree.parents[statement] is not self._facts.tree.module:
                if any(self._project.sets_on_import(self._path, each) for each in modules_of(statement)):
                    yield statement

    @cached_property
    def _last_late(self) -> dict[Scope | None, ast.stmt]:
        """The last of these statements in each function, and in the module's own code."""
        scope = self._facts.tree.scope
        return {scope(each).function: each for each in sorted(self._late, key=lambda each: each.lineno)}

    @cached_property
    def _with_settings_inside(self) -> set[Scope]:
        """The functions that hold another function, or a class, with such a statement."""
        scopes = [self._facts.tree.scope(each) for each in self._late]
        return {outer for scope in scopes if (outer := scope.function) is not None and outer is not scope}

    @cached_property
    def _set_at_top(self) -> bool:
        """Return whether the module itself sets the variables of the driver, at its top level alone."""
        scope = self._facts.tree.scope
        return bool(self._settings) and all(scope(setting).function is None for setting in self._settings)

    def _last_setting(self, function: Function, site: ast.AST) -> ast.stmt | None:
        """Return the last statement that sets such a variable, of a function or a `with` around a site."""
        last, block = None, function.body
        while found := [statement for statement in block if statement in self._around_settings]:
            last, block = found[-1], []
            if isinstance(last, ast.With) and last in self._facts.tree.around(site, ast.With):
                block = last.body
        return last

    def _last_fork(self, function: Function, site: ast.AST) -> ast.stmt | None:
        """Return the last statement of a function's body that may fork processes before a site is reached."""
        line = getattr(site, "lineno", 0)
        around = {parent for _, parent in self._facts.tree.ancestors(site)}  # called after their arguments
        body = reversed(function.body) if self._project.may_fork(self._path) else ()
        above = (each for each in body if each.lineno <= line)
        return next((each for each in above if self._may_fork(each, around)), None)

    def _is_nested(self, site: ast.AST) -> bool:
        """Return whether a site is in a function that is part of another one."""
        scope = self._facts.tree.scope(site)
        functions = [each for each in scope.chain() if isinstance(each.node, Function)]
        return len(functions) > 1

    def _owner(self, node: ast.AST) -> ast.AST:
        """Return the innermost function around a node, or the module."""
        scopes = self._facts.tree.scope(node).chain()
        return next(each.node for each in scopes if isinstance(each.node, (Function, ast.Module)))

    def _forks_below(self, owner: ast.AST, site: ast.AST) -> bool:
        """Return whether a function or the module forks below a site, and starts CUDA nowhere above that."""
        line = self._facts.tree.statement(site).lineno
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        below = (each for each in self._forks if each.lineno > line)
        forks = (e for e in below if owner in (self._owner(e), *self._facts.tree.around(e, *functions)))
        fork = min(forks, key=lambda each: each.lineno, default=None)
        if fork is None or not self._project.is_forked(self._path):
            return False
        around = {parent for _, parent in self._facts.tree.ancestors(fork)}
        own = (each for each in walk(owner) if isinstance(each, ast.Call) and self._owner(each) is owner)
        return not any(
            each.lineno < fork.lineno and self._is_tensor_call(each.func)
            for each in own
            if self._facts.tree.parents[self._facts.tree.statement(each)] in around
            if _TO_DEVICE.search(self._facts.source.code(each))
        )

    @cached_property
    def _forks(self) -> list[ast.expr | ast.stmt]:
        """The calls that may fork processes, and the statements that call functions of the module that do."""
        names = sorted(_FORKING) if self._project.may_fork(self._path) else ()
        calls = chain.from_iterable(map(self._facts.tree.calls_with_name, names))
        forks = dict.fromkeys(call for call in calls if last_name(call.func) in _FORKING)
        late = late_calls(self._facts, map(self._facts.tree.statement, forks))
        return [*map(self._first_use, forks), *late]

    def _first_use(self, fork: ast.Call) -> ast.expr:
        """Return the first use of a loader that a variable holds, which starts its workers; else the fork."""
        target = getattr(self._facts.tree.parents.get(fork), "targets", [fork])[0]
        is_kept = isinstance(target, ast.Name) and last_name(fork.func) == "DataLoader"
        reads = self._facts.reads_in(self._facts.tree.scope(target), target.id) if is_kept else ()
        below = reads and reads[0].lineno > fork.lineno and self._owner(reads[0]) is self._owner(fork)
        return reads[0] if below else fork

    def _may_fork(self, statement: ast.stmt, around: set[ast.AST]) -> bool:
        """Return whether a statement may fork processes: by a name, in other files, or by what it calls."""
        own_function, todo = self._facts.guards.refusals.own_function, [cast(ast.AST, statement)]
        for part in todo:  # which grows
            for call in (each for each in walk(part) if isinstance(each, ast.Call) and each not in around):
                function = own_function(call.func)
                if last_name(call.func) in _FORKING:
                    if self._project.is_forked(self._path):
                        return True
                elif function is None or function.decorator_list:
                    name = self._facts.resolve(call.func)
                    is_own = function is not None or (dotted(call.func) or "").startswith("self.")
                    if (is_own or name) and self._project.starts_forks(self._path, None if is_own else name):
                        return True
                elif function not in todo:
                    todo.append(function)
        return False

    @cached_property
    def _around_settings(self) -> set[ast.AST]:
        """The settings of the driver, and the nodes around them."""
        around = (parent for each in self._late for _, parent in self._facts.tree.ancestors(each))
        return {*self._late, *around}

    @cached_property
    def _end_of_prologue(self) -> ast.stmt | None:
        """The last of the leading imports, the import of torch, and the settings of the driver."""
        last = self._layout.leading_imports
        others = [self._at_top_level(setting) for setting in self._settings]
        if self._layout.torch_import is not None and not self._layout.torch_comes_late:
            others.append(self._layout.torch_import)
        for statement in others:
            if last is None or statement.lineno > last.lineno:
                last = statement
        return last and self._with_imports(last)

    def _with_imports(self, statement: ast.stmt) -> ast.stmt:
        """Return the last of the imports that follow a statement of the module, itself if none does."""
        body = self._facts.tree.module.body
        below = body[body.index(statement) + 1 :]
        return [statement, *takewhile(imports_something, below)][-1]

    def _at_top_level(self, node: ast.AST) -> ast.stmt:
        """Return the statement of the module's body that a node is part of."""
        *_, (statement, _) = self._facts.tree.ancestors(node)
        assert isinstance(statement, ast.stmt)
        return statement

    def _follows(self, site: ast.AST, setting: ast.stmt) -> bool:
        """Return whether a site of the module's own code is on a line below a setting."""
        statement = self._facts.tree.statement(site)
        return statement.lineno > (self._layout.last_on_line(setting).end_lineno or 0)
