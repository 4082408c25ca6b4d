"""Libraries that need CUDA: where a module imports them, and what it can't run without."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from devicefix.devices.context import Context
from devicefix.facts import dotted
from devicefix.facts.defaults import Defaults
from devicefix.facts.exports.imports import full_names
from devicefix.facts.flow.parameters import reads_of
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.refusals import caught
from devicefix.facts.scopes import FUNCTIONS
from devicefix.facts.tree import walk
from devicefix.facts.values import is_constant, last_name, without_call
from devicefix.rules.shared.library_facts import LIBRARIES
from devicefix.rules.shared.optional_imports import Asking, OptionalImports, for_types

_TRITON = {
    "language", "jit", "Config", "autotune", "heuristics", "cdiv", "runtime", "compiler", "testing", "ops",
}  # fmt: skip
_MENTION = re.compile(
    r"(?<![a-z])(apex|amp_c|pycuda|cupy|tensorrt|trt|dali|flash_?attn|flash_attention|xformers|triton|"
    r"transformer_engine|mamba_ssm|tinycudann|tcnn|nvdiffrast|deepspeed)(?![a-z])",
    re.I,
)
_EXTENSION = re.compile(r"\w{1,100}_cuda(_\w{1,100})?")
_EXTENSIONS = "_C"  # the name that torch's tutorial gives to the compiled part of a package
# The errors of a failed import, or of a program that does not exist.
_FAILED = {
    "ImportError", "ModuleNotFoundError", "Exception", "BaseException", "OSError", "RuntimeError",
    "FileNotFoundError", "CalledProcessError",
}  # fmt: skip


class CudaLibraries:
    """The libraries of one module that need CUDA.

    Args:
        context: the context of the module.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts

    @cached_property
    def required(self) -> str | None:
        """A library that the module can't be imported without, None if there is none."""
        for statement, library in self._imports:
            at_import = self.facts.tree.scope(statement).function is None
            if at_import and not self.copes(statement, library):
                return library
        return None

    def needed_by(self, function: ast.AST, site: ast.AST) -> str | None:
        """Return a library that a function reads, imports or mentions, None if there is none.

        Args:
            function: the function or, for what is outside of all, the module.
            site: a statement or expression in it. What another test that names the library guards is optional.
        """
        if self.required is not None or not isinstance(function, (ast.stmt, ast.expr)):
            return self.required
        todo: list[ast.AST] = [function]
        while todo:
            node = todo.pop()
            library = self._named_by(node)
            if library is not None:
                return library
            if not (isinstance(node, ast.If) and self._is_optional(node, site)):
                todo.extend(ast.iter_child_nodes(node))
        return None

    def _named_by(self, node: ast.AST) -> str | None:
        """Return the library that a node names by itself."""
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.alias(name=text):
                mentioned = _MENTION.search(text)
            case ast.Constant(value=str(text)):
                mentioned = _MENTION.search(text)
            case _:
                return None
        if mentioned:
            return mentioned[0].lower()
        if not isinstance(node, ast.Name):
            return None
        imported = text == _EXTENSIONS and not (self.facts.resolve(node) or "torch").startswith("torch")
        return text if imported else self._tied.get(text)

    def _is_optional(self, node: ast.If, site: ast.AST) -> bool:
        """Return whether an `if` asks for a library, and is not around a site."""
        asked = any(self._named_by(part) for part in walk(node.test))
        return asked and all(part is not site for part in walk(node))

    @cached_property
    def _imports(self) -> list[tuple[ast.Import | ast.ImportFrom, str]]:
        """The imports of such libraries, each with the library."""
        named = ((each, map(self.of, full_names(each))) for each in self.facts.tree.imports)
        known = ((statement, next(filter(None, found), None)) for statement, found in named)
        return [(statement, found[0]) for statement, found in known if found is not None]

    @cached_property
    def _tied(self) -> dict[str, str]:
        """The names that imports of such libraries bind, and the kernels that the module defines with one."""
        tied: dict[str, str] = {}
        for statement, library in self._imports:
            for alias in statement.names:
                tied[alias.asname or alias.name.partition(".")[0]] = library
        for node in self.facts.tree.scopes:
            for decorator in getattr(node, "decorator_list", ()):
                name = dotted(without_call(decorator)) or ""
                if name.partition(".")[0] in tied:
                    tied[node.name] = tied[name.partition(".")[0]]  # type: ignore[attr-defined]
        return tied

    def of(self, name: str) -> tuple[str, str] | None:
        """Return the library of an imported name and what to do without it, or None."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            library = ".".join(parts[:end])
            fact = LIBRARIES.get(library)
            if library == "triton" and parts[1:] and parts[1] not in _TRITON:
                continue  # the inference server of NVIDIA has the same name
            if fact is not None and not any(map(self._is_of_project, (library, parts[0]))):
                return library, fact.advice
        if re.match(r"triton_\w*\.language\b", name):  # a copy of Triton under another name
            fact = LIBRARIES["triton"]
            return None if self._is_of_project(parts[0]) else (parts[0], fact.advice)
        # The imports of extensions that the project builds with CUDA on every machine, with their names.
        extensions = self.context.project.imported_extensions(self.context.devices.path)
        module = extensions.get(name.removesuffix(".*")) or _compiled(name)
        if module is not None and not any(map(self._is_of_project, (name, module))):
            advice = "import it only if CUDA is available, and add a CPU path in plain torch"
            return module, advice
        return None

    def _is_of_project(self, module: str) -> bool:
        return self.context.project.replaces_library(self.context.devices.path, module)

    def _is_lazy(self, node: ast.AST) -> bool:
        """Return whether a node is part of a function that the module only calls under a guard."""
        function = next(self.facts.tree.around(node, *FUNCTIONS), None)
        uses = reads_of(self.facts.tree, function) if function is not None else ()
        return bool(uses) and all(map(self.facts.is_guarded, uses))

    @cached_property
    def optional(self) -> OptionalImports:
        """The imports of such libraries that may fail without an error."""
        return OptionalImports(self.facts, [statement for statement, _ in self._imports])

    def copes(self, node: ast.AST, library: str) -> bool:
        """Return whether a program continues without the code at a node if CUDA is not available."""
        if self.facts.is_guarded(node) or self._is_lazy(node):
            return True
        asking = Asking(self.facts, library)
        for child, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
                asks = asking.asks(parent.test) or for_types(parent.test)
                if asks and not self._runs_by_default(child, parent):
                    return True
            if isinstance(parent, ast.Try) and child in parent.body:
                if any(map(self._goes_on, parent.handlers)):
                    return True
            manager = parent.items[0].context_expr if isinstance(parent, ast.With) else None
            if manager is not None and "suppress" in self.context.source.code(manager):
                return True
        return False

    def _runs_by_default(self, child: ast.AST, parent: ast.If | ast.IfExp) -> bool:
        """Return whether a branch runs where no environment variable is set: nobody asked for the library."""
        taken = Defaults(self.facts, self.context.project.default_of_option).truth(parent.test)
        if isinstance(parent, ast.If):
            return taken is (child in parent.body)
        return taken is (child is parent.body)

    def switch(self, node: ast.AST) -> tuple[str, ast.expr] | None:
        """Return the switch of the program that code depends on, and the `True` that makes it run by default.

        It is None where the program has no other path, as far as its tests of the switch show.
        """
        for child, parent in self.facts.tree.ancestors(node):
            if not isinstance(parent, (ast.If, ast.IfExp)) or child is parent.test:
                continue
            name = last_name(parent.test)
            sources = Sources(self.facts, How.BOUND | How.DEFAULT | How.OPTION, 3).of(parent.test)
            on = next((source.node for source in sources if is_constant(source.node, True)), None)
            if name and on is not None and self._runs_by_default(child, parent) and self._has_other(name):
                return name, on
        return None

    def _has_other(self, switch: str) -> bool:
        """Return whether the program tests a switch, and does something else where it is off."""
        tree = self.facts.tree
        reads = (node for node in tree.nodes_with_name(switch) if isinstance(node, (ast.Name, ast.Attribute)))
        return any(
            isinstance(test, ast.IfExp)
            or (isinstance(test, ast.If) and (bool(test.orelse) or isinstance(test.body[-1], ast.Return)))
            for test in (tree.parents[read] for read in reads if last_name(read) == switch)
        )

    def _goes_on(self, handler: ast.ExceptHandler) -> bool:
        """Return whether a handler catches the error of a failed import, and the program continues."""
        return not (_FAILED.isdisjoint(caught(handler)) or self.facts.guards.refusals.refuses(handler.body))


def _compiled(name: str) -> str | None:
    """Return the name of a compiled extension, by the usual names `nms_cuda` and `._ext.nms`, or None."""
    parts = name.lstrip(".").split(".")
    if name.startswith("."):
        if parts[0] == "_ext":
            return ".".join(parts)
        return parts[0] if len(parts) == 1 and _EXTENSION.fullmatch(parts[0]) else None
    return parts[0] if _EXTENSION.fullmatch(parts[0]) else None
