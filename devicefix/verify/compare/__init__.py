"""Comparison of two runs of a program by the events that they recorded.

The events that are compared, for each process separately:

- `seen`: a tensor value that the program read (`devicefix.verify.runtime.observe` defines the fields);
- `draw` (number, device, op, numel, file, line): a new kind of random draw; `drawn` (numbers): the kinds in
  the order of drawing;
- `move` (source, target, options, file, line): a new way in which a line moves a tensor;
- `autocast` (device, what, file, line): that a line enters autocast in a dtype, "off", or makes a "scaler";
  `scaler` (file, line, state), at the end: the state of a gradient scaler;
- `operations` (cuda, cpu), at the end: the number of operations on each device;
- `error` and `ended`: how the process ended. A stream without `ended`, or with an error, is incomplete.
"""
