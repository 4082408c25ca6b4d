"""The rule for configuration files and shell scripts, and their scanners."""

from __future__ import annotations

from devicefix.rules.base import Rule


class ConfigFile(Rule):
    """
    ## What it does
    Finds settings that need CUDA in configuration files, scripts and notebooks. This rule applies only with
    `--config-files`, in `devicefix migrate`, and to configuration files and scripts that you name on the command line.

    The rule covers:

    - devices, GPU counts, Lightning's `accelerator: gpu` and the NCCL backend in YAML, JSON and TOML files
    - `CUDA_VISIBLE_DEVICES`, `--gpu`, `--device cuda` and similar options in shell scripts and makefiles
    - the same options in a notebook's shell commands, along with `!nvidia-smi`, cells such as `%%cu`, and metadata that
      requests a GPU from Colab or Kaggle

    ## Why it matters
    Such a setting may fail without a GPU.

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
    If possible, omit the setting or use `device: auto`. Alternatively, use separate files for the GPU and the CPU, or
    override the setting in the program:

    ```python
    device = torch.device(config["device"] if torch.cuda.is_available() else "cpu")
    ```

    ## Fix safety
    There is no fix, because the meaning of a setting depends on the program that reads it. To suppress a
    finding in YAML, TOML, a script or a shell command, add `# noqa: DF905` to its line. The rule ignores comments
    (except `#SBATCH`), template syntax, and text that a script only prints.
    """

    code = "DF905"
    name = "config-file"
    summary = "A configuration file, script or notebook needs CUDA"
