"""Run a rewritten program under limits, and decide whether it works on a CPU."""
