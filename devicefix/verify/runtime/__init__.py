"""Code that runs inside the user's program: rewritten modules, watches, and the simulated CUDA machine.

It imports only the standard library, torch and itself, since the program's Python may differ from the
Python that runs devicefix.
"""
