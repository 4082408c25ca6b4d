"""The names of one module: what they are bound to, and what the imports resolve them to."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeGuard, TypeVar

from devicefix.facts.flow.reaching import reaching
from devicefix.facts.others import Others
from devicefix.facts.scopes import Binding, Scope, dotted
from devicefix.facts.texts import text_of
from devicefix.facts.tree import Tree
from devicefix.files.text import Source

Answer = TypeVar("Answer")

_HOPS = 4  # how many names to follow from one to the next: `a = torch`, `b = a`


class Names:
    """The names and options of one module, resolved.

    Args:
        source: the module's text.
        module: its syntax tree.

    Attributes:
        others: the other files of the project.
    """

    def __init__(self, source: Source, module: ast.Module) -> None:
        self.others = Others()
        self.source = source
        self.tree = Tree(module, source.text)
        self._resolved: dict[ast.expr, str | None] = {}
        self._answers: dict[tuple[Any, ...], Any] = {}
        self._reads: dict[str, dict[Scope, list[ast.expr]]] = {}

    def once(
        self,
        question: Callable[..., Answer],
        about: Scope | Sequence[Binding] | list[ast.expr],
        *more: object,
    ) -> Answer:
        """Return the answer to a question about a scope, all bindings of a name, or elements, from a cache.

        A name may be bound, and asked about, in thousands of places.

        Args:
            question: a function of these facts and what follows here.
            about: what it is about; of bindings all, as the tree holds them.
            more: what else the answer depends on.
        """
        key = question, id(about), *more  # what it is about lives as long as the tree
        if key not in self._answers:
            self._answers[key] = question(self, about, *more)
        answer: Answer = self._answers[key]
        return answer

    def bindings(self, node: ast.expr) -> Sequence[Binding]:
        """Return the bindings of a name, or of a dotted path such as `args.cuda`, in this module.

        Empty where that can't be known: a parameter, an import, a builtin, an attribute of one.
        """
        is_name = isinstance(node, ast.Name)
        found = self.tree.bound(node) if is_name else self.tree.attributes.get(dotted(node) or "", ())
        return self.once(_assigned, found) if found else ()

    def reads_in(self, scope: Scope, name: str) -> Sequence[ast.expr]:
        """Return the places that read a name of a scope, in the order of the source."""
        if name not in self._reads:
            by_scope = self._reads[name] = {}
            for read in self.tree.reads(name):
                found = self.tree.scope(read).lookup(name)
                if found is not None:
                    by_scope.setdefault(found[0], []).append(read)
        return self._reads[name].get(scope, ())

    def value(self, node: ast.expr) -> ast.expr | None:
        """Return the one expression that a name is bound to, or None."""
        bindings = self.bindings(node)
        return bindings[0].value if len(bindings) == 1 else None

    def resolve(self, node: ast.expr) -> str | None:
        """Return the dotted name that the module's imports resolve an expression to.

        `tc.synchronize` is `torch.cuda.synchronize` after `import torch.cuda as tc`, and so is
        `getattr(tc, "synchronize")`. None for anything but an import or an attribute of one.
        """
        if node not in self._resolved:
            self._resolved[node] = self._resolve(node, _HOPS)
        return self._resolved[node]

    def may_resolve(self, node: ast.expr) -> Iterator[str]:
        """Yield the dotted names that an expression may have, whose name is also bound to something else."""
        base, names = _parts(node)
        found = self.tree.scope(base).lookup(base.id) if isinstance(base, ast.Name) else None
        if found is None and isinstance(base, ast.Name) and self.resolve(node) is None:
            yield from (".".join((module, base.id, *names)) for module in self.tree.star_imports)
        elif found is not None and self.resolve(node) is None:
            yield from (".".join((name, *names)) for name in self.once(_imports_in, found[1]))

    def _resolve(self, node: ast.expr, hops: int) -> str | None:
        base, names = _parts(node)
        imported = self._imported(base, hops) if isinstance(base, ast.Name) else None
        return imported and ".".join((imported, *names))

    def _imported(self, node: ast.Name, hops: int) -> str | None:
        found = self.tree.scope(node).lookup(node.id)
        if found is None:
            return "torch" if node.id == "torch" else self._from_star(node.id)
        bindings = found[1]
        if self.once(_imports_in, bindings):
            # It may be bound again below.
            return self.once(_import_of, bindings) or _import_of(self, reaching(self.tree, node, bindings))
        value = bindings[0].value
        if len(bindings) == 1 and hops and isinstance(value, (ast.Name, ast.Attribute, ast.Call)):
            return self._resolve(value, hops - 1)
        return None

    def _from_star(self, name: str) -> str | None:
        """Return the full name of what the only star import of the module brings from torch."""
        match self.tree.star_imports:
            case [module] if module.partition(".")[0] == "torch" and not hasattr(builtins, name):
                return f"{module}.{name}"
        return None

    def call(self, node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
        """Return whether a node is a call of one of the functions with these full names."""
        return isinstance(node, ast.Call) and self.resolve(node.func) in names

    def torch_name(self, node: ast.AST) -> str | None:
        """Return the name of torch at a node, None where it is not imported there; for plugins."""
        return next(self.torch_names(self.tree.scope(node)), None)

    def torch_names(self, here: Scope) -> Iterator[str]:
        """Yield the names of torch that a scope sees, inner to outer."""
        for scope in here.chain():
            name = self.once(_torch_in, scope)
            found = here.lookup(name) if name is not None else None
            if name is not None and found is not None and found[0] is scope:  # and no parameter of that name
                yield name
        if self._torch_from_star:
            yield "torch"

    @cached_property
    def _torch_from_star(self) -> bool:
        """Return whether a star import brings `torch`, which is read and bound nowhere."""
        bound = any("torch" in scope.bindings for scope in self.tree.scopes.values())
        reads = self.tree.reads("torch") if self.tree.star_imports and not bound else ()
        return any(self.tree.scope(node).lookup("torch") is None for node in reads)

    def taken(self, name: str) -> bool:
        """Return whether a new name in the module's scope would clash with one that is there."""
        known = name in self.tree.root.bindings or name in self.tree.declared_elsewhere
        return known or any(self.tree.scope(node).lookup(name) is None for node in self.tree.reads(name))

    def shadowed(self, name: str, node: ast.AST) -> Scope | None:
        """Return the scope inside the module that binds a name as seen from a place, if one does."""
        found = self.tree.scope(node).lookup(name)
        return None if found is None or found[0].is_module else found[0]

    def is_integer_option(self, name: str) -> bool:
        """Return whether an attribute is an option of the command line that is always an int."""
        kinds = self._kinds_of_options.get(name)
        return kinds == {"int"} or (not kinds and self.others.is_integer_option(name))

    @cached_property
    def _kinds_of_options(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for option, kind, _ in self.options:
            found.setdefault(option, set()).add(kind)
        return found

    @cached_property
    def options(self) -> frozenset[tuple[str, str, str]]:
        """Return the command line's options that this module declares; see `options_of`."""
        calls = (node for node in self.tree.nodes_with("add_argument") if isinstance(node, ast.Call))
        return frozenset(option for call in calls for option in options_of(call))


def options_of(call: ast.Call) -> Iterator[tuple[str, str, str]]:
    """Yield the options that a call of `add_argument` declares, each with its type and its default.

    The default is a literal, or empty if it is not known.
    """
    if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
        kind, default = _option_type(call), _option_default(call)
        yield from ((name, kind, default) for name in option_names(call))


def _parts(node: ast.expr) -> tuple[ast.expr, list[str]]:
    """Return what an expression takes attributes from, and their names."""
    names = []
    while (found := _attribute(node)) is not None:
        node, name = found
        names.append(name)
    return node, names[::-1]


def _attribute(node: ast.expr) -> tuple[ast.expr, str] | None:
    """Return the object and the name of `object.name` or `getattr(object, "name")`, else None."""
    match node:
        case ast.Attribute(value=value, attr=name):
            return value, name
        case ast.Call(func=ast.Name(id="getattr"), args=[value, text], keywords=[]):
            name = text_of(text) or ""
            return (value, name) if name.isidentifier() else None
    return None


def _assigned(_facts: Names, bindings: Sequence[Binding]) -> Sequence[Binding]:
    """Return the bindings of a name; none if one is a parameter or an import."""
    if any(binding.parameter or binding.imported for binding in bindings):
        return ()
    return bindings


def _import_of(facts: Names, bindings: Sequence[Binding]) -> str | None:
    """Return the dotted name that imports bind a name to."""
    imported = {binding.imported for binding in bindings if binding.imported}
    # `import model` and then `model = model.Net()`: not the module any more.
    if not imported or not all(binding.imported or _missing(facts, binding) for binding in bindings):
        return None
    return "torch" if "torch" in imported else imported.pop() if len(imported) == 1 else None


def _imports_in(_facts: Names, bindings: Sequence[Binding]) -> Sequence[str]:
    """Return the dotted names of the imports among the bindings of a name."""
    return [binding.imported for binding in bindings if binding.imported]


def _torch_in(facts: Names, scope: Scope) -> str | None:
    """Return the name that a scope imports torch by, or None."""
    names = (name for name, bindings in scope.bindings.items() if _import_of(facts, bindings) == "torch")
    return next(names, None)


def _missing(facts: Names, binding: Binding) -> bool:
    """Return whether a binding such as `torch = None` replaces an import that failed."""
    caught = isinstance(facts.tree.parents.get(binding.node), ast.ExceptHandler)
    return caught or (isinstance(binding.value, ast.Constant) and not binding.value.value)


def _option_type(call: ast.Call) -> str:
    kind = next((keyword.value for keyword in call.keywords if keyword.arg == "type"), None)
    return kind.id if isinstance(kind, ast.Name) else ""


def _option_default(call: ast.Call) -> str:
    """Return the default of an option as a literal, an empty text if it is not known.

    https://docs.python.org/3/library/argparse.html#action
    """
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if "default" not in given:
        action = given.get("action")
        flag = action.value if isinstance(action, ast.Constant) else None
        return {"store_true": "False", "store_false": "True"}.get(str(flag), "None")
    try:
        return repr(ast.literal_eval(given["default"]))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ""


def option_names(call: ast.Call) -> list[str]:
    """Return the attribute names that `add_argument("--local-rank", "-r")` may lead to."""
    given = (*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "dest"))
    names = [each.value for each in given if isinstance(each, ast.Constant)]
    return [name.lstrip("-").replace("-", "_") for name in names if isinstance(name, str)]
