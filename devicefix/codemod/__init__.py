"""Provide the rewrite as a LibCST codemod.

python -m libcst.tool codemod -x devicefix.codemod.DeviceAgnostic src/
"""

from devicefix.codemod.command import DeviceAgnostic

__all__ = ["DeviceAgnostic"]
