"""Follow values: where one comes from, what it may be, where it goes, and in which order that happens.

`reaching` finds the bindings that a name may have where it is read. `sources` goes on from there, backwards
to literals, calls and parameters, and `kinds` says what an expression may be. `forwards` follows it to its
uses, `sinks` is the table of what takes a device, `taken_numbers` judges the uses that need its number,
and `needs` says what a use needs its value to be. `order` is the order of the statements of a function.
`facts/project/flow.py` goes on in other files.
"""
