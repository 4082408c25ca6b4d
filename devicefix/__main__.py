"""`python -m devicefix` is the same program as `devicefix`."""

from devicefix.cli import main

main(prog_name="python -m devicefix")
