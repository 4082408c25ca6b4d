"""Where the name `device` comes from at a place: find one that is there, or make one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from devicefix.accelerator import Accelerator
from devicefix.facts import ASKS, Binding, Facts, Scope, dotted
from devicefix.facts.values import cpu, current_device
from devicefix.finding import Edit, Safety
from devicefix.project import Project, late_settings
from devicefix.statements import alone

IMPORT = "import torch"
_NAMES = ("device", "default_device", "_device", "torch_device", "_default_device")


@dataclass(frozen=True, slots=True)
class Use:
    """An expression to write at a place, and the definitions that it needs."""

    text: str
    needs: frozenset[str] = frozenset()

    def __add__(self, other: Use) -> Use:
        return Use(self.text + other.text, self.needs | other.needs)


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
        self.definitions: dict[str, _Definition] = {}
        self.named: dict[Scope, list[str]] = {}
        self.star_names = project.star_names(path)
        self.lazy = path_in(project.late, path) or bool(self._late) or self._torch_may_be_missing

    # -- what a rule asks for -----------------------------------------------------------------------

    def available(self, site: ast.AST, *, of_cuda: bool = False) -> Use:
        """The question whether there is what a site needs: CUDA, or any accelerator if that is the target.

        Args:
            site: where it is asked, and what needs it.
            of_cuda: whether only CUDA will do.
        """
        any_will_do = self.accelerator and not of_cuda and self.accelerator.only_cuda(site) is None
        return self._asked(site, "accelerator" if any_will_do else "cuda")

    def _asked(self, site: ast.AST, module: str) -> Use:
        torch = self.torch(site)
        return Use(f"{torch.text}.{module}.is_available()", torch.needs)

    def accelerated(self, node: ast.expr) -> tuple[Use, Callable[[str], str]] | None:
        """The question whether there is an accelerator, and how a CUDA device's text becomes its.

        None where the target is CUDA, or the node is no device.
        """
        if self.accelerator is None:
            return None
        change = self.accelerator.named(node, self.torch(node).text)
        return (self._asked(node, "accelerator"), change) if change else None

    def numbered(self, site: ast.AST, index: str) -> Use:
        """The device of a number that is known only as the program runs, or the CPU."""
        return self.string(site, f"{self.torch(site).text}.device({self.kind(site)}, {index})")

    def kind(self, site: ast.AST) -> str:
        """The type of the current device, where there is one."""
        if self.accelerator is None:
            return self.facts.source.quoted('"cuda"')
        return f"{self.torch(site).text}.accelerator.current_accelerator().type"

    def torch(self, site: ast.AST) -> Use:
        """The name of the module torch."""
        name = self.facts.torch_name(site)
        return Use("torch", frozenset({IMPORT})) if name is None else Use(name)

    def imported(self, module: str) -> frozenset[str]:
        """What a fix needs that uses a module of the standard library by its name."""
        found = self.facts.tree.root.bindings.get(module, ())
        return (
            frozenset() if any(each.imported == module for each in found) else frozenset({f"import {module}"})
        )

    def string(self, site: ast.AST, cuda: str, cpu: str = '"cpu"', *, of_cuda: bool = False) -> Use:
        """One expression where CUDA is available and another where it is not."""
        available = self.available(site, of_cuda=of_cuda)
        return Use(f"{cuda} if {available.text} else {self.facts.source.quoted(cpu)}", available.needs)

    def current(self, site: ast.AST) -> Use:
        """The current CUDA device, or the CPU: what `x.cuda()` becomes `x.to(...)` of."""
        found = self._existing(site)
        return Use(found) if found else self._made(site, "cuda", "")

    def indexed(self, site: ast.AST, index: int) -> Use:
        """The CUDA device of a literal number, or the CPU."""
        return self._made(site, f"cuda:{index}", str(index))

    def at_import(self, site: ast.AST) -> Safety:
        """How safe it is to ask for CUDA where a site stands.

        Asking starts the driver, which then has read CUDA_VISIBLE_DEVICES. Code that runs as the module is
        imported must not ask where the program sets that variable later.
        """
        late = self.lazy and self.facts.tree.scope(site).function is None
        if late and self._set_at_top and self._after(site, self._late[-1]):
            late = False
        return Safety.UNSAFE if late else Safety.SAFE

    def flagged(self, site: ast.AST, flag: ast.expr) -> Use | None:
        """The device that a flag such as `use_gpu` chooses, defined behind the flag.

        Returns:
            None where the flag has no single definition before the site.
        """
        text = ast.unparse(flag)
        for name, test in self._chosen_by_flag(site):
            if test == text:
                return Use(name)
        there = self._existing(site) is not None or f"{self._module_name}@0" in self.definitions
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
            at, text = self._line_among_imports(line)
            edits[at] = edits.get(at, "") + text
        for definition in wanted:
            if definition.function is not None:
                at, text = self._line_in(definition)
            else:
                group = definition.after is None or _imports_something(definition.after)
                at, text = self._line_after(
                    definition.after, definition.line, group and definition is wanted[0]
                )
            edits[at] = edits.get(at, "") + text
        return [Edit(at, at, text) for at, text in edits.items()]

    # -- one that is there ----------------------------------------------------------------------------

    def _existing(self, site: ast.AST) -> str | None:
        scope = self.facts.tree.scope(site)
        for outer in scope.chain():
            names = [name for name in self._named(outer) if self._visible(name, outer, site)]
            if names:
                return next((name for name in names if name.lower() == "device"), names[0])
        for name, is_device in self.star_names.items():
            if is_device and self.facts.tree.scope(site).lookup(name) is None:
                return name
        return None

    def _named(self, scope: Scope) -> list[str]:
        """The names of a scope that are the current device, or the CPU, whenever they are bound."""
        if scope not in self.named:
            self.named[scope] = list(self._find_named(scope))
        return self.named[scope]

    def _find_named(self, scope: Scope) -> Iterator[str]:
        for name, bindings in tuple(scope.bindings.items()):
            for binding in bindings:
                self.facts.tree.look_into(binding.node)
            values = [binding.value for binding in bindings]
            if any(value is None for value in values):
                continue
            if (len(values) == 1 and current_device(self.facts, values[0])) or (
                len(values) == 2 and self._arms(bindings) is not None
            ):
                yield name

    def _arms(self, bindings: list[Binding]) -> ast.If | None:
        """The `if` statement whose two arms set a name to the current device and to the CPU."""
        parents = {self.facts.tree.parents.get(binding.node) for binding in bindings}
        parent = parents.pop()
        if parents or not isinstance(parent, ast.If):
            return None
        if [any(each.node in block for each in bindings) for block in (parent.body, parent.orelse)] != [
            True,
            True,
        ]:
            return None
        values = [binding.value for binding in bindings if binding.value is not None]
        kinds = {
            ("cpu" if cpu(self.facts, v) else "cuda" if current_device(self.facts, v) else "") for v in values
        }
        return parent if kinds == {"cpu", "cuda"} else None

    def _visible(self, name: str, scope: Scope, site: ast.AST) -> bool:
        """Whether a name of `scope` is bound when the site is reached, and means the same there."""
        tree = self.facts.tree
        found = tree.scope(site).lookup(name)
        if found is None or found[0] is not scope or name in tree.declared_elsewhere:
            return False
        bindings = found[1]
        node = bindings[0].node if len(bindings) == 1 else self._arms(bindings)
        if not isinstance(node, ast.stmt):
            return False
        if scope is tree.scope(site) or scope.is_class:
            return self._precedes(node, site)
        if scope.is_module:
            if tree.parents.get(node) is not tree.module:
                return False
            return self._precedes(node, site) or node.lineno < self._first_local_call
        return node.lineno < tree.statement(site).lineno and node in getattr(scope.node, "body", ())

    def _precedes(self, statement: ast.stmt, site: ast.AST) -> bool:
        """Whether a statement has always run when the site is reached: earlier, in a block around it."""
        block = self.facts.tree.block(statement)
        for child, parent in self.facts.tree.ancestors(site):
            if child in block and parent is self.facts.tree.parents[statement]:
                return block.index(statement) < block.index(child)
        return False

    @cached_property
    def _first_local_call(self) -> int:
        """The line at which the module first calls something of its own while it is imported."""
        tree = self.facts.tree
        own = {each.name for each in tree.module.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
        for statement in tree.module.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and node.id in own:
                    return statement.lineno
        return 1 << 30

    # -- a new one ------------------------------------------------------------------------------------

    def _made(self, site: ast.AST, cuda: str, suffix: str) -> Use:
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
        anywhere = Use(quoted(f'{string} if {available.text} else "cpu"'), available.needs)
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
        return Use(name, torch.needs | available.needs | {key})

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
        settings = [each for each in owner.body if any(late in ast.walk(each) for late in self._late)]
        after = settings[-1] if settings else None
        statement = self.facts.tree.statement(site)
        top = next(
            child
            for child, parent in ((statement, None), *self.facts.tree.ancestors(statement))
            if child in owner.body
        )
        if after is not None and owner.body.index(after) >= owner.body.index(top):
            return None
        if owner.body[0].lineno == owner.lineno:
            return None
        return after, owner

    def _shadow(self, site: ast.AST) -> bool:
        return self._module_name is None or self.facts.shadowed(self._module_name, site) is not None

    def _after(self, site: ast.AST, place: ast.stmt | None) -> bool:
        """Whether code that runs as the module is imported stands behind the place of the definition."""
        if place is None:
            return True
        return self._top(site).lineno > (place.end_lineno or 0)

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
        if self.facts.taken(name) or name in self.star_names or self.project.carried(self.path, name):
            return False
        return not any(
            name in scope.bindings and name not in self._named(scope) and self._holds_cuda(scope)
            for scope in tuple(self.facts.tree.scopes.values())
        )

    def _holds_cuda(self, scope: Scope) -> bool:
        node = scope.node
        return isinstance(node, ast.stmt) and "cuda" in self.facts.source.code(node)

    def _function_name(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
        bound: set[str] = set()
        for node in ast.walk(function):
            scope = self.facts.tree.scopes.get(node)
            if scope is not None:
                bound |= scope.bindings.keys() | scope.elsewhere
        read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        return next((name for name in _NAMES if name not in bound and name not in read), None)

    # -- the device of a flag ---------------------------------------------------------------------------

    def _chosen_by_flag(self, site: ast.AST) -> Iterator[tuple[str, str]]:
        for scope in self.facts.tree.scope(site).chain():
            for name in self._named(scope):
                value = scope.bindings[name][0].value
                if isinstance(value, ast.Call) and value.args:
                    value = value.args[0]
                if isinstance(value, ast.IfExp) and self._visible(name, scope, site):
                    yield name, ast.unparse(value.test)

    def _made_of_flag(self, site: ast.AST, flag: ast.expr, text: str) -> Use | None:
        bindings = self.facts.bindings(flag)
        tree = self.facts.tree
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.stmt):
            return None
        statement = bindings[0].node
        if tree.parents.get(statement) is not tree.module or dotted(flag) is None:
            return None
        in_function = tree.scope(site).function is not None
        runs_before = (
            statement.lineno < self._first_local_call if in_function else self._precedes(statement, site)
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
        return Use(self._module_name, torch.needs | {key})

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
            isinstance(statement, ast.Try) and self._binds_torch(statement)
            for statement in self.facts.tree.module.body
        )

    @cached_property
    def _set_at_top(self) -> bool:
        """CUDA_VISIBLE_DEVICES is set by this module's own top level, so what follows may ask."""
        return bool(self._late) and all(self.facts.tree.scope(each).function is None for each in self._late)

    @cached_property
    def _first_import_place(self) -> ast.stmt | None:
        """The statement after which an import may be added: the docstring and `__future__` imports."""
        place = None
        for statement in self.facts.tree.module.body:
            if _docstring(statement) or (
                isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            ):
                place = statement
            else:
                break
        return place

    @cached_property
    def _leading_imports(self) -> ast.stmt | None:
        """The last statement of the imports that a module begins with."""
        place = self._first_import_place
        for statement in self.facts.tree.module.body:
            if _imports_something(statement):
                place = statement
            elif not _among_imports(statement):
                break
        return place

    @cached_property
    def _module_place(self) -> ast.stmt | None:
        """The last of the leading imports, the import of torch, and the setting of visible devices."""
        place = self._leading_imports
        wanted = [self._top(each) for each in self._late]
        if self.facts.torch_name(self.facts.tree.module) is not None:
            wanted += [each for each in self.facts.tree.module.body if self._binds_torch(each)][:1]
        for statement in wanted:
            if place is None or statement.lineno > place.lineno:
                place = statement
        return place

    def _binds_torch(self, statement: ast.stmt) -> bool:
        if not _imports_something(statement):
            return False
        nodes = set(ast.walk(statement))
        return any(
            binding.node in nodes and binding.imported == "torch"
            for bindings in self.facts.tree.root.bindings.values()
            for binding in bindings
        )

    def _line_among_imports(self, line: str) -> tuple[int, str]:
        """Where and how an import is inserted: before the first of the same package, else of any."""
        package = "torch" if line == IMPORT else ""
        for statement in self.facts.tree.module.body:
            if isinstance(statement, ast.Import):
                name = statement.names[0].name
            elif isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
                name = statement.module or "."
            else:
                continue
            if name.startswith(package) and alone(self.facts.source, statement):
                return self.facts.source.span(statement)[0], f"{line}{self.facts.source.newline}"
        return self._line_after(self._leading_imports, line, group=False)

    def _line_after(self, statement: ast.stmt | None, line: str, group: bool) -> tuple[int, str]:
        """Where and how a line is inserted behind a statement; a group is set off by blank lines."""
        source, newline = self.facts.source, self.facts.source.newline
        if statement is None:
            at = self._prologue_end
            return at, f"{line}{newline}" + (newline if group else "")
        end = source.line_end(source.span(statement)[1])
        if not group:
            return end, f"{newline}{line}"
        rest = source.text[end:].splitlines()[1:2]
        gap = newline if rest and rest[0].strip() else ""
        return end, f"{newline}{newline}{line}{gap}"

    @cached_property
    def _prologue_end(self) -> int:
        """Behind the comments that a file begins with: `#!`, the encoding, a licence."""
        at = 0
        for line in self.facts.source.text.splitlines(keepends=True):
            if not line.startswith("#"):
                break
            at += len(line)
        return at

    def _line_in(self, definition: _Definition) -> tuple[int, str]:
        source, newline = self.facts.source, self.facts.source.newline
        function = definition.function
        assert function is not None
        first = function.body[0]
        start = source.span(first)[0]
        indentation = source.indentation(start)
        after = definition.after or (first if _docstring(first) else None)
        if after is not None:
            return source.line_end(source.span(after)[1]), f"{newline}{indentation}{definition.line}"
        if getattr(first, "decorator_list", None):
            start = source.span(first.decorator_list[0])[0] - 1  # type: ignore[attr-defined]
        line = start - len(indentation)
        return line, f"{indentation}{definition.line}{newline}"


def path_in(paths: frozenset[str], path: str) -> bool:
    """Whether a path is one of a set of normalized ones."""
    import os.path

    return os.path.normpath(path) in paths


def _docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _imports_something(statement: ast.stmt) -> bool:
    """An import, or a `try` or `if` that holds nothing but imports and plain settings."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(statement, (ast.Try, ast.If)):
        inner = [*statement.body, *statement.orelse, *getattr(statement, "finalbody", [])]
        for handler in getattr(statement, "handlers", []):
            inner += handler.body
        return any(map(_imports_something, inner)) and all(
            _imports_something(each) or _among_imports(each) for each in inner
        )
    return False


def _among_imports(statement: ast.stmt) -> bool:
    """What may stand between imports without ending the block of them."""
    if isinstance(statement, ast.Pass) or _docstring(statement):
        return True
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        name = dotted(target.value if isinstance(target, ast.Subscript) else target) or ""
        return (
            name.startswith("__")
            or name.endswith(("environ", "sys.path"))
            or isinstance(statement.value, (ast.Constant, ast.Name))
        )
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        name = dotted(statement.value.func) or ""
        return name.startswith(("sys.", "os.", "warnings.", "matplotlib.", "mpl.", "print", "logging."))
    return False
