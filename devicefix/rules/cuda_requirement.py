from __future__ import annotations

from devicefix.rules.base import Rule


class CudaRequirement(Rule):
    """
    ## What it does
    Finds requirements that cannot be installed without CUDA, or that install CUDA. This rule applies only with
    `--environment` and in `devicefix migrate`.

    It covers:

    - builds for CUDA, such as `torch==2.0.1+cu118`, and wheels of them
    - packages that compile CUDA code when they are installed, such as `flash-attn` and `mamba-ssm`
    - packages without a release for macOS, such as `triton`, `cupy-cuda12x` and `nvidia-cublas-cu12`
    - conda packages that install CUDA, such as `cudatoolkit` and `pytorch-cuda`, and builds for CUDA

    The rule checks files of requirements and constraints, `pyproject.toml`, `setup.cfg`, `pixi.toml` and conda
    environments such as `environment.yml`. It ignores optional dependencies and dependency groups, and files whose names
    contain `cuda`, `gpu` or `cu118`, because these are meant for CUDA.

    ## Why it matters
    Without CUDA, the installation fails, or downloads gigabytes that the program cannot use.

    ## Example
    ```text
    torch==2.0.1+cu118
    triton==2.0.0
    ```

    ## Use instead
    ```text
    torch==2.0.1
    triton==2.0.0 ; sys_platform != "darwin"
    ```

    ## Fix safety
    The fix is safe. With an index for CUDA, such as `--extra-index-url https://download.pytorch.org/whl/cu118`,
    `torch==2.0.1` still installs the build `2.0.1+cu118`, because pip prefers local versions. The marker leaves the
    package out only on macOS, which has no CUDA. Other requirements have no fix, because a requirement cannot depend on
    CUDA. For those, `devicefix migrate` writes a second file, such as `requirements-cpu.txt`.
    """

    code = "DF906"
    name = "cuda-requirement"
    summary = "A requirement needs CUDA"
