"""Uncompiled execution of code that the program compiles."""

from __future__ import annotations

import os
import sys

import torch

from devicefix.verify.runtime.imported import when_imported


def run_eagerly() -> None:
    """Make functions that are passed to `torch.compile` run uncompiled.

    A watch does not see the operations of compiled code, and TorchDynamo does not support a mode that is
    always on.
    """
    if hasattr(torch.compiler if hasattr(torch, "compiler") else None, "set_stance"):
        when_imported("torch._dynamo", lambda: torch.compiler.set_stance("force_eager"))
        return
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    config = sys.modules.get("torch._dynamo.config")
    if config is not None:
        config.disable = True  # type: ignore[attr-defined]
