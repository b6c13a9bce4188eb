"""python -m ckpt ARGUMENTS: the command itself."""

from ._program import main

main()
