from __future__ import annotations

from devicefix.rules.base import Rule


class CudaImage(Rule):
    """
    ## What it does
    Finds NVIDIA images in Dockerfiles, and Compose services that need a GPU. This rule applies only with
    `--environment`, in `devicefix migrate`, and to files that you name on the command line.

    ## Why it matters
    A service with `runtime: nvidia` usually does not start without a GPU. An image with CUDA can be gigabytes larger
    than one without.

    ## Example
    ```yaml
    services:
      train:
        runtime: nvidia
    ```

    ## Use instead
    Move the service's GPU settings to a second file, and use that file only with a GPU: `docker compose -f compose.yaml
    -f compose.gpu.yaml up`.

    ```yaml
    services:
      train:
        build: .
    ```

    ## Fix safety
    There is no fix, because these files can't depend on whether the machine has a GPU.
    """

    code = "DF908"
    name = "cuda-image"
    summary = "A container image contains CUDA, or a service needs a GPU"
