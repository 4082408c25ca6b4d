from __future__ import annotations

from devicefix.rules.base import Rule


class CudaRequirement(Rule):
    """
    ## What it does
    Finds requirements that install CUDA or may fail to install without it. This rule applies only with
    `--environment`, in `devicefix migrate`, and to files other than notebooks that you name on the command line.

    The rule covers:

    - CUDA builds, such as `torch==2.0.1+cu118`, and URLs of their wheels
    - packages that compile CUDA code when they are installed, such as `flash-attn`
    - CUDA packages without macOS wheels, such as `triton` and `nvidia-cublas-cu12`
    - conda packages that install CUDA, such as `pytorch-cuda`, and CUDA builds of conda packages

    The rule checks requirements files, `pyproject.toml`, `setup.cfg`, conda environments, and pip and conda commands in
    other files. It ignores optional dependencies, dependency groups, and files whose names contain `cuda`, `gpu`,
    `nvidia` or a version such as `cu118`.

    ## Why it matters
    Without CUDA, the installation may fail or download gigabytes of unnecessary files.

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
    The fix is safe. With the index for CUDA 11.8, `torch==2.0.1` still installs the build `2.0.1+cu118`, because pip
    prefers local versions. The added marker excludes a package only on macOS, which does not support CUDA. Other
    requirements have no fix, because a requirement cannot depend on whether CUDA is available. Instead, `devicefix
    migrate` can create a second file, such as `requirements-cpu.txt`.
    """

    code = "DF906"
    name = "cuda-requirement"
    summary = "A requirement installs or needs CUDA"
