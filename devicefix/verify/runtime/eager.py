"""Compiled code, run as it stands in the source."""

from __future__ import annotations

import os
import sys

import torch

from devicefix.verify.runtime.imported import when_imported


def run_eagerly() -> None:
    """Let what `torch.compile` was given run uncompiled.

    Compiled code would run past a watch, and TorchDynamo does not go with a mode that is always on.
    """
    if hasattr(torch.compiler if hasattr(torch, "compiler") else None, "set_stance"):
        when_imported("torch._dynamo", lambda: torch.compiler.set_stance("force_eager"))
        return
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    config = sys.modules.get("torch._dynamo.config")
    if config is not None:
        config.disable = True  # type: ignore[attr-defined]
