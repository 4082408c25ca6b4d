from __future__ import annotations

from devicefix.rules.base import Rule


class CudaIndex(Rule):
    """
    ## What it does
    Finds package indexes that have only CUDA builds. The rule checks requirements files, `pyproject.toml`, conda
    environments and pip commands. It applies only with `--environment`, in `devicefix migrate`, and to files other
    than notebooks that you name on the command line.

    ## Why it matters
    For a machine without CUDA, such an index has no builds, or builds with CUDA that are several times larger
    than necessary.

    ## Example
    ```text
    --extra-index-url https://download.pytorch.org/whl/cu118
    torch==2.0.1
    ```

    ## Use instead
    ```text
    --extra-index-url https://download.pytorch.org/whl/cpu
    torch==2.0.1
    ```

    ## Fix safety
    There is no fix, because the index can't depend on whether CUDA is available. For requirements files and
    conda environments, `devicefix migrate` writes a second file for the CPU.
    """

    code = "DF907"
    name = "cuda-index"
    summary = "A package index has only CUDA builds"
