"""Offer the rewrite as a codemod for LibCST.

python -m libcst.tool codemod -x devicefix.codemod.DeviceAgnostic src/
"""

from devicefix.codemod.command import DeviceAgnostic

__all__ = ["DeviceAgnostic"]
