"""Find what one file shows the others of its project: each export when another file asks for it.

`export` defines what that is. `texts`, `options`, `forks`, `default_type` and `low_precision` find it in the
bytes of a file, the others in its facts.
"""

from devicefix.facts.exports.classes import own_method
from devicefix.facts.exports.default_type import default_devices
from devicefix.facts.exports.environment import late_calls, late_settings
from devicefix.facts.exports.export import EXPORTS, Export
from devicefix.facts.exports.low_precision import autocasts, has_low_precision
from devicefix.facts.exports.patches import patching

__all__ = [
    "EXPORTS", "Export", "autocasts", "default_devices", "has_low_precision", "late_calls", "late_settings",
    "own_method", "patching",
]  # fmt: skip
