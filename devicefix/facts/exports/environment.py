"""Find the statements that set an environment variable of CUDA's driver after torch may be in use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from devicefix.facts.bound.evaluation import always_evaluated
from devicefix.facts.exports.export import of_facts
from devicefix.facts.exports.imports import modules_of
from devicefix.facts.flow.parameters import called
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.guards.answers import ASKS
from devicefix.facts.module import Facts
from devicefix.facts.values import last_name
from devicefix.files.notebook.markers import MAGIC

# The driver reads these once, when `torch.cuda.is_available()` starts it, and torch its own one in that call:
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars. The excluded ones are for builds.
_OF_DRIVER = re.compile(
    r"CUDA_(?!HOME|PATH|ROOT|DIR|BIN|INC|LIB|VERSION|TOOLKIT|ARCH|NVCC)\w+"
    r"|PYTORCH_NVML_BASED_CUDA_CHECK|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES"
)
# What sets one by its name, any by an expression, or those of a file.
_SETTING = rb"CUDA_|_VISIBLE_DEVICES|environ(?:\[|\.\w+\(|\s*\|=)\s*[\w*]|load_dotenv|read_env"
_WORDS = (b"CUDA_", b"_VISIBLE_DEVICES", b"environ", b"load_dotenv", b"read_env")
# What may call a function that a text names: `getattr(module, name)`, and not `getattr(self, name)`.
BY_TEXT = re.compile(
    rb"(?:instantiate|import_module|__import__|locate|(?<![\w.])(?<!def )eval)\(|globals\(\)"
    rb"|getattr\(\s*(?!self\b|torch\b|nn\b|args\b|config\b)[\w.]+\s*,\s*(?![\s\"'])"
)
_FOLLOWED = How.BOUND | How.ELEMENT | How.ITEM | How.CHOICE | How.PASSED | How.DEFAULT
_TEXTS, _COLLECTIONS = (ast.Constant, ast.Dict), (ast.List, ast.Tuple, ast.Set)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NOTES = ("annotation", "returns")
_LOADERS = ("putenv", "load_dotenv", "read_env")  # the last two set those of a file


def late_settings(facts: Facts) -> list[ast.stmt]:
    """Return the statements that set an environment variable of CUDA's driver where torch may be in use.

    They are below the import of torch, or in a function.
    """
    return [setting for setting in _settings(facts) if _is_late(facts, setting)]


@of_facts(*_WORDS, pattern=_SETTING, anywhere=True)
def imported_early(facts: Facts) -> frozenset[str]:
    """Return the modules that a file imports above a setting of such a variable that is above torch."""
    early = [setting.lineno for setting in _settings(facts) if not _is_late(facts, setting)]
    imports = (node for node in facts.tree.module.body if isinstance(node, ast.Import | ast.ImportFrom))
    above = (node for node in imports if node.lineno < max(early, default=0))
    return frozenset(name for node in above for name in modules_of(node))


def _settings(facts: Facts) -> list[ast.stmt]:
    """Return the statements that set an environment variable of CUDA's driver."""
    if not re.search(_SETTING.decode(), facts.source.text):
        return []
    statements = (node for node in facts.tree.statements if isinstance(node, ast.stmt))
    named = ((node, _set_in_environment(facts, node)) for node in statements)
    return [node for node, names in named if any(_may_be_of_driver(facts, each) for each in names)]


def _is_late(facts: Facts, setting: ast.stmt) -> bool:
    """Return whether a setting is in a function, or below the module's import of torch, if it has one."""
    if facts.tree.scope(setting).function is not None:
        return True
    imports = (node for node in facts.tree.module.body if isinstance(node, ast.Import | ast.ImportFrom))
    modules = ((node.lineno, name.partition(".")[0]) for node in imports for name in modules_of(node))
    return setting.lineno > next((line for line, module in modules if module == "torch"), 0)


def late_calls(facts: Facts, settings: Iterable[ast.stmt], elsewhere: Iterable[str] = ()) -> list[ast.stmt]:
    """Return the statements that call a function that sets such a variable, itself or by its calls.

    Args:
        facts: the module's facts.
        settings: the statements of the module that set one.
        elsewhere: the names of the functions of other files that set one.
    """
    todo = list(dict.fromkeys([*elsewhere, *_functions_of(facts, settings)]))
    names = set(todo)
    found: list[ast.stmt] = []
    for name in todo:  # which grows
        for node in facts.tree.nodes_with(f"{name}("):
            if isinstance(node, ast.Call) and last_name(node.func) == name:
                statement = facts.tree.statement(node)
                callers = _functions_of(facts, [statement])
                found.append(statement)
                todo += (caller for caller in dict.fromkeys(callers) if caller not in names)
                names.update(callers)
    return found


@of_facts(*_WORDS, pattern=_SETTING, anywhere=True)
def late_functions(facts: Facts) -> frozenset[str]:
    """Return the functions that set such a variable, or call one that does; "" for the module's own code."""
    settings = late_settings(facts)
    at_top = {""} if any(facts.tree.scope(each).function is None for each in settings) else set()
    return frozenset({*at_top, *_functions_of(facts, [*settings, *late_calls(facts, settings)])})


@of_facts(b"is_available")
def asks_on_import(facts: Facts) -> bool:
    """Return whether a module asks for CUDA whenever it is imported."""
    assigned = (each for each in facts.tree.module.body if isinstance(each, (ast.Assign, ast.AnnAssign)))
    values = (each.value for each in assigned if each.value is not None)
    return any(facts.call(part, *ASKS) for value in values for part in always_evaluated(value))


def readers(facts: Facts, name: str) -> frozenset[str]:
    """Return the functions and classes at the top of a module whose code reads a name; "" for other code.

    Who has a class may call its methods. Annotations call nothing; what has a decorator, others may call.
    """
    tree, found = facts.tree, set[str]()
    for node in tree.nodes_with_name(name):
        parts = (getattr(node, each, None) for each in ("name", "id", "attr", "value"))
        texts = [each for each in parts if isinstance(each, str) and re.search(rf"\b{name}\b", each)]
        if not texts or isinstance(tree.parents[node], ast.Expr) or not getattr(node, "asname", "a"):
            continue  # a docstring, or an import
        above = list(tree.ancestors(node))
        top, inside = above[-1][0], isinstance(node, _DEFINITIONS) or tree.scope(node).function
        if not any(getattr(parent, each, None) is child for child, parent in above for each in _NOTES):
            is_own = inside and isinstance(top, _DEFINITIONS) and not top.decorator_list
            found.add(getattr(top, "name", "") if is_own else "")
    return frozenset(found - {name})


def _functions_of(facts: Facts, statements: Iterable[ast.stmt]) -> list[str]:
    """Return the names of the functions that hold statements; that of the class for `__init__`."""
    found: list[str] = []
    for statement in statements:
        function = facts.tree.scope(statement).function
        node = function and function.node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(called(facts.tree, node))
    return found


def _set_in_environment(  # noqa: PLR0911 (one case a kind of statement)
    facts: Facts, statement: ast.stmt
) -> Iterable[ast.expr]:
    """Return the names of the environment variables that a statement sets, or a mapping of them."""
    match statement:
        case (
            ast.Expr(value=ast.Call(func=function, args=args))
            | ast.Assign(value=ast.Call(func=function, args=args))
        ) if (name := (facts.resolve(function) or last_name(function)).rpartition(".")[2]) in _LOADERS:
            return args[:1] if name == "putenv" else [function]
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            items = [each for each in targets if isinstance(each, ast.Subscript)]
            return [each.slice for each in items if _is_environment(facts, each.value)]
        case ast.AugAssign(target=target, value=value) if _is_environment(facts, target):
            return [value]
        case ast.With(items=items):  # `mock.patch.dict(os.environ, {...})`
            calls = [item.context_expr for item in items if isinstance(item.context_expr, ast.Call)]
            return [
                name
                for call in calls
                if call.args and last_name(call.func) == "dict" and _is_environment(facts, call.args[0])
                for name in (*call.args[1:], *(ast.Constant(each.arg) for each in call.keywords))
            ]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=attr), args=args) as call) if (
            _is_environment(facts, owner)
        ):
            if attr == "update":
                named = (each.value if each.arg is None else ast.Constant(each.arg) for each in call.keywords)
                return [*args, *named]
            return args[:1] if attr in ("setdefault", "pop", "__setitem__") else []
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[ast.Name(id=variable)])) if (
            name.startswith(MAGIC)
        ):  # `%env A=1` in a notebook
            return [ast.Constant(variable)]
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(attr="run_line_magic" | "magic"),
                args=[*names, ast.Constant(str() as rest)],
            )
        ):  # as in a notebook that was converted to a script
            words = [name.value for name in names if isinstance(name, ast.Constant)]
            command = " ".join([*map(str, words), rest]).lstrip("%").split(None, 1)
            if command[:1] in (["env"], ["set_env"]) and command[1:]:
                return [ast.Constant(re.split(r"[\s=]", command[1])[0])]
    return []


def _is_environment(facts: Facts, node: ast.expr) -> bool:
    return last_name(node) == "environ" or facts.resolve(node) == "os.environ"


def _may_be_of_driver(facts: Facts, names: ast.expr) -> bool:
    """Return whether a name, or one in a mapping, may be that of a variable of the driver."""
    if isinstance(names, ast.Dict):
        return any(key is None or _may_be_of_driver(facts, key) for key in names.keys)
    if isinstance(names, ast.Constant):
        return _OF_DRIVER.fullmatch(str(names.value)) is not None
    ends = Sources(facts, _FOLLOWED, steps=8).ends(names)
    texts = [each for each in ends if isinstance(each, _TEXTS)]
    unknown = any(not isinstance(each, (*_TEXTS, *_COLLECTIONS)) for each in ends)
    return unknown or any(_may_be_of_driver(facts, each) for each in texts)
