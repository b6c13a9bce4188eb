"""The dtypes of safetensors, and what torch, numpy and ml_dtypes call them."""

from __future__ import annotations

import importlib
import math
from typing import Any, Dict, NamedTuple, Optional, Sequence

from . import errors


class Dtype(NamedTuple):
    """bits of one element; names in torch, numpy and ml_dtypes, None where there is none."""

    bits: int
    torch: Optional[str]
    numpy: Optional[str]
    ml_dtypes: Optional[str] = None


DTYPES: Dict[str, Dtype] = {
    "BOOL": Dtype(8, "bool", "bool"),
    "F4": Dtype(4, "float4_e2m1fn_x2", None),  # torch packs two elements in one
    "F6_E2M3": Dtype(6, None, None),
    "F6_E3M2": Dtype(6, None, None),
    "U8": Dtype(8, "uint8", "uint8"),
    "I8": Dtype(8, "int8", "int8"),
    "F8_E5M2": Dtype(8, "float8_e5m2", None, "float8_e5m2"),
    "F8_E4M3": Dtype(8, "float8_e4m3fn", None, "float8_e4m3fn"),
    "F8_E8M0": Dtype(8, "float8_e8m0fnu", None, "float8_e8m0fnu"),
    "F8_E4M3FNUZ": Dtype(8, "float8_e4m3fnuz", None, "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": Dtype(8, "float8_e5m2fnuz", None, "float8_e5m2fnuz"),
    "I16": Dtype(16, "int16", "int16"),
    "U16": Dtype(16, "uint16", "uint16"),
    "F16": Dtype(16, "float16", "float16"),
    "BF16": Dtype(16, "bfloat16", None, "bfloat16"),
    "I32": Dtype(32, "int32", "int32"),
    "U32": Dtype(32, "uint32", "uint32"),
    "F32": Dtype(32, "float32", "float32"),
    "C64": Dtype(64, "complex64", "complex64"),
    "F64": Dtype(64, "float64", "float64"),
    "I64": Dtype(64, "int64", "int64"),
    "U64": Dtype(64, "uint64", "uint64"),
}
_OF_TORCH = {d.torch: name for name, d in DTYPES.items() if d.torch}
_OF_NUMPY = {d.numpy or d.ml_dtypes: name for name, d in DTYPES.items() if d.numpy or d.ml_dtypes}


def size_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a dense array. usage: a packed array that does not end on a whole byte."""
    bits = DTYPES[dtype].bits * math.prod(shape)
    if bits % 8:
        raise errors.usage(f"{list(shape)} elements of {dtype} are no whole number of bytes")
    return bits // 8


def of_torch(dtype: Any) -> Optional[str]:
    """The name of a torch.dtype here, or None."""
    return _OF_TORCH.get(str(dtype).rpartition(".")[2])


def of_numpy(dtype: Any) -> Optional[str]:
    """The name of a numpy.dtype in native byte order here, or None."""
    return _OF_NUMPY.get(dtype.name) if dtype.isnative and dtype.names is None else None


def torch_dtype(name: str) -> Any:
    """The torch.dtype. unsupported: torch, or this release of it, has none."""
    import torch

    dtype = getattr(torch, DTYPES[name].torch or "", None)
    if not isinstance(dtype, torch.dtype):
        raise errors.unsupported(f"torch {torch.__version__} has no dtype for {name}", hint="use .read() for its bytes")
    return dtype


def numpy_dtype(name: str) -> Any:
    """The numpy.dtype, of ml_dtypes where numpy has none. unsupported: neither has it, or ml_dtypes is missing."""
    import numpy

    known = DTYPES[name]
    if known.numpy:
        return numpy.dtype(known.numpy)
    if known.ml_dtypes is None:
        raise errors.unsupported(f"numpy has no dtype for {name}", hint="use .read() for its bytes")
    try:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), known.ml_dtypes))
    except (ImportError, AttributeError):
        raise errors.unsupported(f"numpy has no dtype for {name}, and ml_dtypes is not installed or too old",
                                 hint="use .torch(), or install ml_dtypes") from None
