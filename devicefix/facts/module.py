"""The facts of one module: what torch is called, what names are bound to, what runs only with CUDA."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property

from devicefix.facts.guards import Guards
from devicefix.facts.scopes import Binding, Scope, Tree, dotted
from devicefix.source import Source

Question = Callable[[str], bool]


class Facts:
    """Facts of one module, gathered on demand.

    Args:
        source: the module's text.
        module: its syntax tree.
        is_option: whether a name is that of an option that is an int in the other files.
        is_flag: whether an attribute is one that other files set, and only to what is true only with CUDA.
    """

    def __init__(
        self,
        source: Source,
        module: ast.Module,
        is_option: Question = lambda name: False,
        is_flag: Question = lambda name: False,
    ) -> None:
        self._is_option = is_option
        self.is_flag = is_flag
        self.source = source
        self.tree = Tree(module, source.text)
        self.guards = Guards(self)
        self._resolved: dict[tuple[Scope, str, int], str | None] = {}
        self._resolved_in = 0

    @classmethod
    def read(cls, data: bytes) -> Facts:
        """The facts of a module, by its bytes.

        Raises:
            DecodeError, SyntaxError, ValueError, RecursionError, MemoryError: they are no module's.
        """
        source = Source(data)
        return cls(source, parse(source.text))

    def informed(self, is_option: Question, is_flag: Question) -> Facts:
        """The facts of the same module where more is known of others; the tree is shared."""
        more = copy(self)
        more._is_option, more.is_flag, more.guards = is_option, is_flag, Guards(more)
        return more

    def bindings(self, node: ast.expr) -> Sequence[Binding]:
        """What a name, or a dotted path such as `args.cuda`, is bound to in this module.

        Empty where that can't be known: a parameter, an import, a builtin, an attribute of one.
        """
        found: Sequence[Binding] = ()
        if isinstance(node, ast.Name):
            looked_up = self.tree.scope(node).lookup(node.id)
            if looked_up is not None and not any(each.parameter or each.imported for each in looked_up[1]):
                found = looked_up[1]
        else:
            found = self.tree.attributes.get(dotted(node) or "", ())
        for binding in found:
            self.tree.look_into(binding.node)
        return found

    def value(self, node: ast.expr) -> ast.expr | None:
        """The one expression that a name is bound to, or None."""
        bindings = self.bindings(node)
        return bindings[0].value if len(bindings) == 1 else None

    def resolve(self, node: ast.expr, depth: int = 4) -> str | None:
        """The dotted name that an expression stands for, by the module's imports.

        `tc.synchronize` is `torch.cuda.synchronize` after `import torch.cuda as tc`. None for what is
        no import, or an attribute of one.
        """
        if isinstance(node, ast.Attribute):
            inner = node
            while isinstance(inner.value, ast.Attribute):
                inner = inner.value
            base = self.resolve(inner.value, depth)
            path = dotted(node) if base else None
            return path and f"{base}.{path.partition('.')[2]}"
        if not isinstance(node, ast.Name):
            return None
        if self._resolved_in != self.tree.bound:  # what a name stands for can change with each one
            self._resolved.clear()
            self._resolved_in = self.tree.bound
        key = self.tree.scope(node), node.id, depth
        if key not in self._resolved:
            self._resolved[key] = self._imported(node, depth)
        return self._resolved[key]

    def _imported(self, node: ast.Name, depth: int) -> str | None:
        found = self.tree.scope(node).lookup(node.id)
        if found is None:
            return "torch" if node.id == "torch" else None
        imported = {each.imported for each in found[1] if each.imported}
        # `import model` and then `model = model.Net()`: not the module any more.
        others = [each for each in found[1] if not each.imported and not _missing(each)]
        if imported and not others:
            return "torch" if "torch" in imported else imported.pop() if len(imported) == 1 else None
        if len(found[1]) == 1 and depth and isinstance(found[1][0].value, (ast.Name, ast.Attribute)):
            return self.resolve(found[1][0].value, depth - 1)
        return None

    def call(self, node: ast.AST, *names: str) -> bool:
        """Whether a node is a call of one of the functions with these full names."""
        return isinstance(node, ast.Call) and self.resolve(node.func) in names

    def guarded(self, node: ast.AST) -> bool:
        """Whether a node is evaluated only where CUDA is available."""
        return self.guards.guarded(node)

    def torch_name(self, node: ast.AST) -> str | None:
        """What torch is called at a place, None where it is not imported there."""
        for scope in self.tree.scope(node).chain():
            for name in scope.bindings:
                if any(each.imported == "torch" for each in scope.bindings[name]):
                    return name
        return "torch" if self._torch_from_star else None

    @cached_property
    def _torch_from_star(self) -> bool:
        """`torch` is used and bound nowhere: a star import brings it."""
        bound = any("torch" in scope.bindings for scope in self.tree.scopes.values())
        return not bound and bool(self.tree.star_imports) and "torch" in self.tree.loads

    def taken(self, name: str) -> bool:
        """Whether binding a new name in the module's scope would change what something means."""
        return (
            name in self.tree.root.bindings
            or name in self.tree.declared_elsewhere
            or (name in self.tree.loads and not self._bound_wherever_read(name))
        )

    def _bound_wherever_read(self, name: str) -> bool:
        return not any(
            isinstance(node, ast.Name) and node.id == name and self.tree.scope(node).lookup(name) is None
            for node in self.tree.nodes
        )

    def shadowed(self, name: str, node: ast.AST) -> Scope | None:
        """The scope inside the module that binds a name as seen from a place, if one does."""
        found = self.tree.scope(node).lookup(name)
        return None if found is None or found[0].is_module else found[0]

    def is_integer_option(self, name: str) -> bool:
        """Whether an attribute is an option of the command line that is always an int."""
        kinds = {kind for option, kind in self.options if option == name}
        return kinds == {"int"} or (not kinds and self._is_option(name))

    @cached_property
    def options(self) -> frozenset[tuple[str, str]]:
        """The command line's options that this module declares, each with its type."""
        found: set[tuple[str, str]] = set()
        for node in self.tree.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "add_argument":
                    found.update((name, _option_type(node)) for name in option_names(node))
        return frozenset(found)


def _missing(binding: Binding) -> bool:
    """`torch = None` or the like, which stands in for an import that failed."""
    return isinstance(binding.value, ast.Constant) and not binding.value.value


def _option_type(call: ast.Call) -> str:
    kind = next((each.value for each in call.keywords if each.arg == "type"), None)
    return kind.id if isinstance(kind, ast.Name) else ""


def option_names(call: ast.Call) -> list[str]:
    """The attribute names that `add_argument("--local-rank", "-r")` may lead to."""
    names = [each.value for each in call.args if isinstance(each, ast.Constant)]
    names += [
        each.value.value
        for each in call.keywords
        if each.arg == "dest" and isinstance(each.value, ast.Constant)
    ]
    return [name.lstrip("-").replace("-", "_") for name in names if isinstance(name, str)]


def parse(text: str) -> ast.Module:
    """The syntax tree of a module; warnings about its string literals are its author's affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)
