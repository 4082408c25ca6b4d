from __future__ import annotations

from devicefix.rules.base import Rule


class ConfigFile(Rule):
    """
    ## What it does
    With `--config-files`, reports what ties a program to CUDA in the files beside its code: devices, numbers
    of GPUs and the nccl backend in YAML, JSON and TOML, and `CUDA_VISIBLE_DEVICES`, `--gpu`, `--device cuda`
    and their kin in shell scripts and makefiles.

    ## Why it matters
    The code may run anywhere, and yet the setting that it reads sends it to a GPU that is not there.

    ## Example
    ```yaml
    device: cuda
    dist_backend: nccl
    gpu_ids: [0, 1]
    ```

    ```sh
    CUDA_VISIBLE_DEVICES=0 python train.py --device cuda:0 --cuda
    ```

    ## Use instead
    Leave the choice to the program: `device: auto`, or no setting at all, where it understands that; or give
    the files for a GPU and for a CPU different names. A value that a program reads as a device can be made
    safe where it is read:

    ```python
    device = torch.device(config["device"] if torch.cuda.is_available() else "cpu")
    ```

    ## Fix safety
    There is no fix: what a setting means is for the program that reads it to say. A line is silenced with
    `# noqa: DF905`, as in code. Comments, templates' own syntax, and what a script only prints are passed over,
    and so are files of more than a megabyte, which hold data.
    """

    code = "DF905"
    name = "config-file"
    summary = "A configuration file or script asks for CUDA"
