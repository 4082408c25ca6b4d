"""Know the uses that the functions of libraries make of their arguments, by their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.parameters import Place
from devicefix.facts.flow.steps import Layers, text_of_literal
from devicefix.facts.names import option_names

SHOWS = {
    "print", "debug", "info", "warning", "error", "critical", "exception", "log", "write", "echo", "len",
    "bool", "repr", "type", "isinstance", "issubclass", "hasattr", "startswith", "endswith",
}  # fmt: skip
CALLED = "()"  # around what a function returns, where the function itself is the value
# They return the elements of their arguments.
SEQUENCES = {"list", "tuple", "set", "iter", "reversed", "sorted", "enumerate", "zip"}
ADDS = {"append", "add", "insert", "appendleft"}
KEEPS = ("SimpleNamespace", "Namespace", "replace", "_replace")  # what keeps its arguments as attributes
# They make a path, of which an argument is a folder or a file.
PATHS = ("os.path.join", "pathlib.Path", "pathlib.PurePath")
_SAME = {
    "list", "tuple", "set", "iter", "reversed", "sorted", "cycle", "str", "copy", "deepcopy", "deque",
    "cast", "field", "Field", "ib", "attrib", "Option", "Argument",
}  # fmt: skip
_DEFAULTS = {"get", "pop", "setdefault", "getenv", "next"}
_OBJECTS = {"dict", "Namespace", "SimpleNamespace", "EasyDict", "edict", "AttrDict", "DictConfig", "HParams"}
# They search a text or a container for what they get, or look up an attribute of that name.
_SEARCHES = {
    "startswith", "endswith", "replace", "count", "index", "find", "hasattr", "delattr", "attrgetter",
    "import_module", "__import__", "__contains__", "Choice",
}  # fmt: skip
_KEY = {"get": 0, "pop": 0, "setdefault": 0, "methodcaller": 0, "getattr": 1, "setattr": 1}


def searches(name: str, place: Place) -> bool:
    """Return whether a function only looks for an argument among others, or for what has it as its key."""
    return name in _SEARCHES or place == "choices" or _KEY.get(name) == place


def in_result(name: str, place: Place, layers: Layers) -> Layers | None:  # noqa: PLR0911 (one case a function)
    """Return the containers around an argument in what a function returns, None if it is not in there.

    Args:
        name: the name of the function.
        place: the position or the keyword of the argument.
        layers: the containers around the value in the argument.
    """
    if name in _SAME and place in (0, "default"):
        return layers
    if (name in _DEFAULTS and place == 1) or (name == "getattr" and place == 2):
        return layers
    if name in _OBJECTS and isinstance(place, str):
        return (place, *layers)
    if name == "format" or (name == "join" and layers):
        return ()
    if not layers:
        return None
    if layers[0] == CALLED:
        return _of_called(name, place, layers[1:])
    if name in ("next", "choice", "max", "min") and place == 0:
        return layers[1:]
    if name == "zip" and isinstance(place, int):
        return ("", str(place), *layers[1:])
    if name == "enumerate" and place == 0:
        return ("", "1", *layers[1:])
    return layers if name in _OBJECTS and place == 0 else None


def _of_called(name: str, place: Place, layers: Layers) -> Layers | None:
    """Return the containers around what a function returns in the result of one that gets it and calls it."""
    if name in _SAME and place in ("default_factory", "factory"):
        return layers
    return ("", *layers) if name == "map" and place == 0 else None


def stored_as(call: ast.Call, name: str, place: Place, layers: Layers) -> Iterator[tuple[str, Layers]]:
    """Yield the keys, attributes and options that hold an argument, each with the containers there."""
    if name in ("setdefault", "setattr") and place == len(call.args) - 1:
        yield text_of_literal(call.args[-2]), layers
    elif name in ("update", "replace", "_replace", "evolve") and isinstance(place, str):
        yield place, layers
    elif name == "update" and place == 0 and layers and layers[0]:
        yield layers[0], layers[1:]
    elif name in ("add_argument", "DEFINE_string") and place in ("default", "const", 1):
        yield from ((option, layers) for option in option_names(call))


def decorated_with(call: ast.Call, name: str, place: Place, layers: Layers) -> Iterator[tuple[str, Layers]]:
    """Yield the parameters that get an argument of a decorator, each with the containers there."""
    if name == "option" and place == "default":
        yield from ((option, layers) for option in option_names(call))
    elif name == "parametrize" and place == 1 and layers:
        yield text_of_literal(call.args[0]), layers[1:]


def offers_both(call: ast.Call) -> bool:
    """Return whether an argument of a call is a list of choices with `"cuda"` and `"cpu"`."""
    arguments = (*call.args, *(keyword.value for keyword in call.keywords))
    lists = (node.elts for node in arguments if isinstance(node, (ast.List, ast.Tuple)))
    return any({"cuda", "cpu"} <= set(map(text_of_literal, elements)) for elements in lists)
