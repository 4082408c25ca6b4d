"""The rule for names of CUDA devices (DF203): each module holds the examples of what it decides.

In the order in which they need one another: `literals` finds the names of CUDA devices that no other rule checks,
`safety` decides from its uses whether a name is a device and its fix safe, `defaults` makes the fixes of defaults,
which share a constant, `arguments` those of arguments, which get a device of the module, and `rule` is the rule.
"""

from devicefix.rules.device_value.rule import DeviceValue

__all__ = ["DeviceValue"]
