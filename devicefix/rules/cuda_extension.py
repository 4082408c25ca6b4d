from __future__ import annotations

import ast
import os.path
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.devices.expression import DeviceExpr
from devicefix.facts.texts import text_of
from devicefix.model import Finding, Fix
from devicefix.rewrite.operations import Conditional
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.libraries import CudaLibraries

_EXTENSION = "torch.utils.cpp_extension.CUDAExtension"
_SETUP = ("setuptools.setup", "distutils.core.setup")
_CODE = ("packages", "py_modules")  # the options of `setup` that name Python code


class CudaExtension(Rule):
    """
    ## What it does
    Finds a `CUDAExtension` that is always built. The rule ignores extensions under a condition that depends on CUDA or
    on an environment variable that is not set by default. It also ignores extensions in a function that may return
    early. `DF902` reports the code that imports an extension.

    ## Why it matters
    Without the CUDA toolkit, `CUDAExtension` raises `OSError: CUDA_HOME environment variable is not set`, and the
    package can't be installed, even if it has a fallback in plain torch.

    ## Example
    ```python
    setup(
        name="ops",
        packages=["ops"],
        ext_modules=[CUDAExtension("ops._C", ["ops.cu"])],
        cmdclass={"build_ext": BuildExtension},
    )
    ```

    ## Use instead
    ```python
    setup(
        name="ops",
        packages=["ops"],
        ext_modules=[CUDAExtension("ops._C", ["ops.cu"])] if torch.utils.cpp_extension.CUDA_HOME or torch.version.hip or torch.cuda.is_available() else [],
        cmdclass={"build_ext": BuildExtension},
    )
    ```

    ## Fix safety
    The fix is safe: the extension is omitted only if torch finds neither the toolkit nor a GPU, and isn't built for
    ROCm. In this case, the original `setup.py` fails. There is no fix if `ext_modules` has other extensions, or if
    `setup` installs no Python code that can be imported without the extension.
    """

    code = "DF909"
    name = "cuda-extension"
    summary = "The installation always compiles CUDA code"
    words = (b"CUDAExtension",)
    INVALID = (
        Example(
            "extensions of a package",
            before="""
                from setuptools import find_packages, setup
                from torch.utils.cpp_extension import BuildExtension, CUDAExtension

                setup(
                    name="ops",
                    packages=find_packages(),
                    ext_modules=[
                        CUDAExtension("ops._C", ["ops.cpp", "ops.cu"]),
                        CUDAExtension("ops._D", ["more.cu"]),
                    ],
                    cmdclass={"build_ext": BuildExtension},
                )
            """,
            after="""
                from setuptools import find_packages, setup
                import torch
                from torch.utils.cpp_extension import BuildExtension, CUDAExtension

                setup(
                    name="ops",
                    packages=find_packages(),
                    ext_modules=[
                        CUDAExtension("ops._C", ["ops.cpp", "ops.cu"]),
                        CUDAExtension("ops._D", ["more.cu"]),
                    ] if torch.utils.cpp_extension.CUDA_HOME or torch.version.hip or torch.cuda.is_available() else [],
                    cmdclass={"build_ext": BuildExtension},
                )
            """,
        ),
        Example(
            "extensions in a variable",
            before="""
                import torch
                from setuptools import setup
                from torch.utils import cpp_extension

                extensions = [cpp_extension.CUDAExtension("ops._C", ["ops.cu"])]

                setup(name="ops", py_modules=["ops"], ext_modules=extensions)
            """,
            after="""
                import torch
                from setuptools import setup
                from torch.utils import cpp_extension

                extensions = (
                    [cpp_extension.CUDAExtension("ops._C", ["ops.cu"])]
                    if torch.utils.cpp_extension.CUDA_HOME or torch.version.hip or torch.cuda.is_available()
                    else []
                )

                setup(name="ops", py_modules=["ops"], ext_modules=extensions)
            """,
        ),
        Example(
            "an extension, and nothing else to install",
            before="""
                from setuptools import setup
                from torch.utils.cpp_extension import CUDAExtension

                setup(name="ops", ext_modules=[CUDAExtension("ops", ["ops.cu"])])
            """,
        ),
        Example(
            "an extension among others",
            before="""
                from setuptools import setup
                from torch.utils.cpp_extension import CppExtension, CUDAExtension

                setup(name="ops", packages=["ops"], ext_modules=[CppExtension("a", ["a.cpp"]), CUDAExtension("b", ["b.cu"])])
            """,
        ),
        Example(
            "an extension outside of a list",
            before="""
                from torch.utils.cpp_extension import CUDAExtension

                module = CUDAExtension("ops", ["ops.cu"])
            """,
        ),
        Example(
            "a list that is used elsewhere, too",
            before="""
                from setuptools import setup
                from torch.utils.cpp_extension import CUDAExtension

                modules = [CUDAExtension("ops", ["ops.cu"])]
                print(modules[0].sources)
                setup(name="ops", packages=["ops"], ext_modules=modules)
            """,
        ),
        Example(
            "an extension that an environment variable switches off",
            before="""
                import os

                from torch.utils.cpp_extension import CUDAExtension

                SKIP_CUDA_BUILD = os.getenv("SKIP_CUDA_BUILD", "FALSE").upper() == "TRUE"
                if not SKIP_CUDA_BUILD:
                    CUDAExtension("scan_cuda", ["scan.cu"])
            """,
        ),
    )
    VALID = (
        Example(
            "an extension that an environment variable switches on",
            """
                import os

                from torch.utils.cpp_extension import CUDAExtension

                if os.environ.get("BUILD_CUDA", "0") == "1":
                    CUDAExtension("scan_cuda", ["scan.cu"])
            """,
        ),
        Example(
            "an extension that is built for CUDA or the CPU",
            """
                import torch
                from torch.utils.cpp_extension import CUDA_HOME, CUDAExtension, CppExtension

                if CUDA_HOME is None:
                    ext = CppExtension('ops', ['ops.cpp'])
                else:
                    ext = CUDAExtension('ops', ['ops.cu'])
            """,
        ),
        Example(
            "a function that returns none without the toolkit",
            """
                from torch.utils.cpp_extension import CUDAExtension


                def extensions():
                    if not has_nvcc():
                        return []
                    return [CUDAExtension("ops", ["ops.cu"])]
            """,
        ),
        Example(
            "the output of the fix",
            """
                import torch
                from setuptools import setup
                from torch.utils.cpp_extension import CUDAExtension

                setup(
                    packages=["ops"],
                    ext_modules=[CUDAExtension("ops._C", ["ops.cu"])]
                    if torch.utils.cpp_extension.CUDA_HOME or torch.version.hip or torch.cuda.is_available()
                    else [],
                )
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._libraries = CudaLibraries(context)
        self._reported = False

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if self._reported or not self._is_extension(node):
            return
        if self._libraries.copes(node, "cuda") or self._is_behind_return(node):
            return
        self._reported = True  # one finding for a list of extensions
        advice = "build it only if the toolkit is available, and add a CPU path in plain torch"
        fix, unless = None, "because the extension is not in a list passed directly to setuptools' `setup`"
        extensions = self.facts.tree.parents.get(node)
        if isinstance(extensions, ast.List) and (setup := self._setup(extensions)) is not None:
            if self._is_all(node) or not any(keyword.arg in _CODE for keyword in setup.keywords):
                advice, unless = "without CUDA, do not install this package", ""
            elif all(map(self._is_extension, extensions.elts)):
                fix = self._only_with_toolkit(extensions)
            else:
                unless = "because the list has other extensions"
        yield self.finding(node, f"`CUDAExtension(...)` needs the CUDA toolkit; {advice}", fix, unless)

    def _is_extension(self, node: ast.AST) -> bool:
        return self.facts.call(node, _EXTENSION)

    def _is_all(self, node: ast.Call) -> bool:
        """Return whether the package of an extension can't be imported without it."""
        names = (*node.args[:1], *(each.value for each in node.keywords if each.arg == "name"))
        package = "".join(text_of(each) or "" for each in names).partition(".")[0]
        file = os.path.join(os.path.dirname(self.devices.path), package, "__init__.py")
        return bool(self.context.project.needs_cuda(file))

    def _is_behind_return(self, node: ast.Call) -> bool:
        """Return whether the function around a call may return no extensions before it."""
        around = [parent for _, parent in self.facts.tree.ancestors(node)]
        function = next((parent for parent in around if isinstance(parent, ast.FunctionDef)), None)
        tests = (each for each in function.body if isinstance(each, ast.If)) if function is not None else ()
        before = (test for test in tests if test not in around and test.lineno < node.lineno)
        return any(isinstance(test.body[-1], ast.Return) for test in before)

    def _setup(self, extensions: ast.List) -> ast.Call | None:
        """Return the call of `setup` that builds all extensions of a list; None if there is none."""
        parents = self.facts.tree.parents
        parent = parents.get(extensions)
        if isinstance(parent, ast.Assign):
            reads = self._reads(parent)
            parent = parents.get(reads[0]) if len(reads) == 1 else None
        if not isinstance(parent, ast.keyword) or parent.arg != "ext_modules":
            return None
        call = parents.get(parent)
        return call if self.facts.call(call, *_SETUP) else None

    def _reads(self, assignment: ast.Assign) -> list[ast.Name]:
        """Return where the variable of an assignment is read; nothing if it may have other values."""
        match assignment.targets:
            case [ast.Name(id=name)]:
                names = (node for node in ast.walk(self.facts.tree.module) if isinstance(node, ast.Name))
                uses = [each for each in names if each.id == name]
                return [use for use in uses if isinstance(use.ctx, ast.Load)] if len(uses) == 2 else []
        return []

    def _only_with_toolkit(self, extensions: ast.List) -> Fix:
        """Return the fix that builds extensions only where they may be built."""
        torch = self.devices.torch(extensions)
        question = self.devices.question(extensions, of_cuda=True)
        toolkit = f"{torch.text}.utils.cpp_extension.CUDA_HOME or {torch.text}.version.hip"
        condition = f"{toolkit} or {question.text}"
        new = DeviceExpr(condition, torch.needs | question.needs)
        return self.context.edit(extensions, Conditional(condition, "[]"), new)
