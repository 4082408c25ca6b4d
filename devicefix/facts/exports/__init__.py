"""Summarize what the other files of a project need to know of one.

`summary` defines what that is. `scan` finds it in the bytes of a file that has no tie to CUDA; `imports`,
`classes` and `environment` find parts of it in a syntax tree, and `summarize` puts them together.
"""

from devicefix.facts.exports.classes import own_method
from devicefix.facts.exports.environment import late_calls, late_settings
from devicefix.facts.exports.low_precision import autocasts, has_low_precision, low_flags
from devicefix.facts.exports.patches import patching
from devicefix.facts.exports.scan import passed_through
from devicefix.facts.exports.summarize import matters_to_others, summarize, summary_of
from devicefix.facts.exports.summary import Summary

__all__ = [
    "Summary", "autocasts", "has_low_precision", "late_calls", "late_settings", "low_flags",
    "matters_to_others", "own_method", "passed_through", "patching", "summarize", "summary_of",
]  # fmt: skip
