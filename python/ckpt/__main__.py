"""python -m ckpt ARGUMENTS: the command itself."""

from .commands import main

main()
