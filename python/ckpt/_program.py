"""Finds the command and becomes it. Imports little: this is how the command starts."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # see the package
if TYPE_CHECKING:
    from typing import NoReturn, Optional, Sequence

INSTALLED = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_native")  # what `cmake --install` made


def program() -> Optional[str]:
    """The command: CKPT if it is set, else the one installed with this package, else the one on PATH."""
    given = os.environ.get("CKPT")
    if given:
        return given
    installed = os.path.join(INSTALLED, "bin", "ckpt")
    if os.path.exists(installed):
        return installed
    import shutil

    return shutil.which("ckpt")


def main(arguments: Optional[Sequence[str]] = None) -> NoReturn:
    """Becomes the command, with these arguments or those of the process. Exits with 12 if it is not installed."""
    path = program()
    # The one on PATH may be the script that calls this function.
    if path is None or os.path.realpath(path) == os.path.realpath(sys.argv[0]):
        sys.exit(_failed("the command is not installed with this package: install it with pip, or set CKPT"))
    try:
        os.execv(path, [path, *(sys.argv[1:] if arguments is None else arguments)])
    except OSError as reason:
        sys.exit(_failed(f"{path}: {reason}"))


def _failed(reason: str) -> int:
    print(f"ckpt: {reason}", file=sys.stderr)
    return 12
