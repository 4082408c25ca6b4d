from __future__ import annotations

from devicefix.rules.base import Rule


class CudaImage(Rule):
    """
    ## What it does
    Finds images and services that need CUDA in Dockerfiles and Compose files. This rule applies only with
    `--environment` and in `devicefix migrate`.

    ## Why it matters
    A service with `driver: nvidia` does not start without a GPU. An image that contains CUDA is several gigabytes larger
    than necessary.

    ## Example
    ```yaml
    services:
      train:
        runtime: nvidia
    ```

    ## Use instead
    Put the setting into a second file, and use it only with a GPU: `docker compose -f compose.yaml -f compose.gpu.yaml up`.

    ```yaml
    services:
      train:
        build: .
    ```

    ## Fix safety
    There is no fix, because these files cannot depend on the machine.
    """

    code = "DF908"
    name = "cuda-image"
    summary = "An image or service needs CUDA"
