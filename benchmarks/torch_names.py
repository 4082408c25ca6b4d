"""List the public functions and classes of a package such as torch.cuda, without an import."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

MODULES = {"jiterator", "sparse"}  # in torch.cuda, without public names


def names(folder: Path) -> set[str]:
    """Return the public names of a package but its modules, those in a module after the name of the module.

    Args:
        folder: The folder of the package, for example `torch/cuda` of an unpacked wheel; may not exist.
    """
    found: set[str] = set()
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix("__init__").strip(".")
        if not any(part.startswith("_") for part in module.split(".")):
            found |= {f"{module}.{name}".lstrip(".") for name in public(path)}
    return {name for name in found if not any(other.startswith(f"{name}.") for other in found)} - MODULES


def public(path: Path) -> list[str]:
    """Return the names in a module's `__all__`, without one the functions and classes that it defines."""
    body = ast.parse(path.read_bytes()).body
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value):
                return list(ast.literal_eval(value))
    defined = (node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return [name for name in defined if not name.startswith("_")]


if __name__ == "__main__":
    print(*sorted(names(Path(sys.argv[1]))), sep="\n")
