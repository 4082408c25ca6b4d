"""What runs inside the user's program: the rewritten modules, the watches, the simulated machine.

Imports nothing but the standard library and torch, and nothing of devicefix outside this folder: the
program's Python may be another one than devicefix's own.
"""
