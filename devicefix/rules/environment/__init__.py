"""Readers of the files that say what a project installs: requirements, conda environments, projects, images.

In the order in which they need one another: `names` normalizes names, `packages` is a table of packages that need CUDA, `requirements`
examines one requirement, and the other modules find the requirements in a kind of file; `examine` checks a file.
"""
