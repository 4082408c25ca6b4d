from __future__ import annotations

from devicefix.rules.base import Rule


class CudaIndex(Rule):
    """
    ## What it does
    Finds package indexes that only have builds for CUDA, in files of requirements and in `pyproject.toml`. This rule
    applies only with `--environment` and in `devicefix migrate`.

    ## Why it matters
    Without CUDA, such an index has either no packages for the platform, or packages that contain CUDA and are several
    times as large.

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
    There is no fix, because an index cannot depend on CUDA. `devicefix migrate` writes a second file, such as
    `requirements-cpu.txt`.
    """

    code = "DF907"
    name = "cuda-index"
    summary = "A package index only has builds for CUDA"
