"""Start-up hook: Python imports this module in every process that has its folder on PYTHONPATH."""

import importlib.machinery
import importlib.util
import os
import sys


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    package = os.path.abspath(os.path.join(here, os.pardir, os.pardir, os.pardir))
    if "devicefix" not in sys.modules:  # this Python may not have devicefix installed
        init = os.path.join(package, "__init__.py")
        spec = importlib.util.spec_from_file_location("devicefix", init, submodule_search_locations=[package])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["devicefix"] = module
        spec.loader.exec_module(module)
    from devicefix.verify.runtime import start

    start.begin()


def _next() -> None:
    """Run the `sitecustomize` module that this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [path for path in sys.path if os.path.abspath(path) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


try:
    _begin()
finally:
    _next()
