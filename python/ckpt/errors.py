"""The exceptions of this package: one class for each kind of failure, with the ids of the command line."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Type


class Error(Exception):
    """A failure. `ckpt explain ID` explains the id; the codes are those of docs/exit-codes.md.

    message       "object: operation: reason"
    id            stable, such as "CKPT-E1503"
    code          the exit code of the command for the same failure
    file, tensor  where the failure is, if known; else None
    offset        bytes from the start of the file, if known; else None
    hint          what to do about it, if known; else None
    """

    def __init__(self, message: str, *, id: str = "CKPT-E7000", code: int = 70, file: Optional[str] = None,
                 tensor: Optional[str] = None, offset: Optional[int] = None, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.id = id
        self.code = code
        self.file = file
        self.tensor = tensor
        self.offset = offset
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.message} [{self.id}]"
        return f"{text}\nhint: {self.hint}" if self.hint else text


class NotFound(Error, KeyError):
    """No such checkpoint, file or tensor. A KeyError too, so that mappings behave as usual."""

    __str__ = Error.__str__


class Usage(Error):
    """The call makes no sense: an unknown name or option, a shape that does not fit, a target that exists."""


class Corrupt(Error):
    """Corrupt or hostile content."""


class Incomplete(Error):
    """Files are missing, or the save that wrote the checkpoint never finished."""


class NoSpace(Error):
    """No space, inodes or quota left."""


class Unsupported(Error):
    """A format, dtype or object that is not known or not supported."""


class IOFailure(Error):
    """The system reported an error, or another rank was lost."""


_CLASSES: Dict[int, Type[Error]] = {
    2: Usage, 10: NotFound, 12: Unsupported, 13: Incomplete, 14: NoSpace, 15: Corrupt, 16: IOFailure}


def from_document(error: Mapping[str, Any], code: int) -> Error:
    """The exception of an error document: ckpt_last_error_json, or an entry of `errors` of --json.

    code   used if the document has none
    """
    code = int(error.get("code", error.get("exit_code", code)))
    return _CLASSES.get(code, Error)(
        str(error.get("message", f"ckpt failed with code {code}")), id=str(error.get("id", f"CKPT-E{code * 100}")),
        code=code, file=error.get("file"), tensor=error.get("tensor"), offset=error.get("offset"),
        hint=error.get("hint"))


def usage(message: str, *, tensor: Optional[str] = None, hint: Optional[str] = None) -> Usage:
    """A call that makes no sense, found by this package."""
    return Usage(message, id="CKPT-E200", code=2, tensor=tensor, hint=hint)


def unsupported(message: str, *, tensor: Optional[str] = None, hint: Optional[str] = None) -> Unsupported:
    """An object or dtype that this package cannot handle."""
    return Unsupported(message, id="CKPT-E1200", code=12, tensor=tensor, hint=hint)


def not_found(message: str, *, tensor: Optional[str] = None, hint: Optional[str] = None) -> NotFound:
    """A name that does not exist."""
    return NotFound(message, id="CKPT-E1000", code=10, tensor=tensor, hint=hint)
