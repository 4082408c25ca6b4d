from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.expression import DeviceExpr
from devicefix.facts.configurations import device_reads
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.device_uses import checked_for_uses

_MIXED = "the user may set this value, and should then still get an error without CUDA"


class ConfiguredDevice(Rule):
    """
    ## What it does
    Finds code that reads a device from one of the project's configuration files, if that file selects CUDA. The file
    must be in YAML, JSON or TOML format, and its path or name must appear in the code, for example as an argument, as
    an option's default, or in Hydra's `config_name`.

    ## Why it matters
    The program uses the value as is, so moving anything to the device fails without CUDA.

    ## Example
    ```python
    config = yaml.safe_load(open("config.yaml"))  # device: cuda
    model.to(config["device"])
    ```

    ## Use instead
    ```python
    config = yaml.safe_load(open("config.yaml"))  # device: cuda
    model.to(config["device"] if torch.cuda.is_available() or config["device"] != "cuda" else "cpu")
    ```

    ## Fix safety
    The fix is safe: it replaces only the value that the project's own file contains, and only without CUDA, where the
    program would have failed. Any other value stays the same: if the user chooses a device that does not exist, such as
    `cuda:1` or `mps`, the program still raises an error.

    The fix is unsafe if command-line options can override the value, as with Hydra, or if the program merges or changes
    the configuration. In these cases, the user may have chosen the device, and should still get an error if it does not
    exist. The fix is also unsafe if the program reads the device index from the value, or stops if the device is the
    CPU. There is no fix with `--target accelerator`.
    """

    code = "DF207"
    name = "configured-device"
    summary = "A project configuration file selects CUDA"
    words = (b"safe_load", b"full_load", b"yaml.load", b"OmegaConf.load", b"hydra.main")
    VALID = (
        Example(
            "a configuration without a device for CUDA",
            """
                import torch
                import yaml

                config = yaml.safe_load(open("nothing-of-the-kind.yaml"))
                model.to(config["device"])
            """,
        ),
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        for value, key, is_mixed in device_reads(self.facts):
            found = self.context.project.configured(self.devices.path, key)
            if found and not self.facts.is_guarded(value):
                finding = self._found(value, found)
                yield finding.unsafe(_MIXED) if is_mixed and finding.fix is not None else finding

    def _found(self, value: ast.expr, found: list[list[str]]) -> Finding:
        code = self.context.source.code(value)
        places = ", ".join(f"{file}, line {line}" for file, line, _ in found)
        texts = sorted({text for _, _, text in found})
        message = f"`{code}` is `{texts[0]}` ({places}), which may not exist; without CUDA, use the CPU"
        if self.context.accelerator is not None:
            return self.finding(value, message)
        available = self.devices.available(value)
        same = f"!= {_quoted(texts[0], code)}" if len(texts) == 1 else f"not in {_several(texts, code)}"
        new = f"{code} if {available.text} or {code} {same} else {_quoted('cpu', code)}"
        fix = self.context.replace(value, DeviceExpr(new, available.needs))
        return checked_for_uses(self.context, value, self.finding(value, message, fix))


def _quoted(text: str, code: str) -> str:
    """Return a string in the quotes that some code has."""
    return f"'{text}'" if "'" in code else f'"{text}"'


def _several(texts: list[str], code: str) -> str:
    return f"({', '.join(_quoted(text, code) for text in texts)})"
