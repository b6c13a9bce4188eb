"""Arrays of jax. Their sharding says which boxes the devices of this process hold; equal boxes are replicas.

jax arrays do not change: loading makes new ones with the sharding of a jax.Array or a jax.ShapeDtypeStruct. Who has one has
imported jax.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _dtypes

Box = Tuple[Tuple[int, ...], Tuple[int, ...]]  # offset and extent, in elements


class Shard(NamedTuple):
    """A box of an array that a device of this process holds."""

    whole: Any
    box: Box

    def dense(self) -> Any:
        """Its elements as a numpy array, row-major: on the CPU the memory of jax, else a copy."""
        import numpy

        for shard in self.whole.addressable_shards:
            if _box(shard.index, self.whole.shape) == self.box:
                return numpy.require(numpy.asarray(shard.data), requirements="C")
        raise AssertionError("no device here holds it")


def described(value: Any) -> Union[Tuple[str, Tuple[int, ...]], str]:
    """dtype and shape of an array, or why it cannot be stored."""
    dtype = _dtypes.of_numpy(value.dtype) if hasattr(value.dtype, "isnative") else None
    if dtype is not None:
        return dtype, tuple(value.shape)
    hint = ": store jax.random.key_data" if str(value.dtype).startswith("key<") else ""
    return f"jax dtype {value.dtype} cannot be stored{hint}"


def refusal_to_save(value: Any, is_alone: bool) -> Optional[str]:
    """Why an array cannot be saved, or None. `is_alone`: this process saves without others."""
    if not hasattr(value, "addressable_shards"):
        return "a ShapeDtypeStruct has no data"
    if is_alone and not (value.is_fully_addressable or value.is_fully_replicated):
        return "other processes hold parts of it: open the run with group="
    return None


def refusal_to_load(value: Any) -> Optional[str]:
    """Why no array can be made of what is loaded, or None."""
    import jax

    is_kept = jax.dtypes.canonicalize_dtype(value.dtype) == value.dtype
    return None if is_kept else f"jax makes {value.dtype} arrays only with jax_enable_x64"


def shards(value: Any) -> List[Shard]:
    """The boxes that this process holds, each once."""
    return [Shard(value, box) for box in dict.fromkeys(_devices(value).values())]


def assembled(value: Any, parts: Dict[Box, Any]) -> Any:
    """A new array with the sharding of `value`, of numpy arrays for the boxes of shards(). Like `value`, it may move to other
    devices, or not (jax calls that committed).
    """
    import jax

    if value.sharding is None or not getattr(value, "committed", getattr(value, "_committed", True)):
        (part,) = parts.values()
        return jax.device_put(part)
    sharding = _sharding(value)
    pieces = [jax.device_put(parts[box], jax.sharding.SingleDeviceSharding(device, memory_kind=sharding.memory_kind))
              for device, box in _devices(value).items()]
    no_pieces: Dict[str, Any] = {} if pieces else {"dtype": value.dtype}
    return jax.make_array_from_single_device_arrays(tuple(value.shape), sharding, pieces, **no_pieces)


def abstract(dtype: str, shape: Sequence[int]) -> Any:
    """The shape and dtype of an array that will be loaded to the default device."""
    import jax

    struct: Any = jax.ShapeDtypeStruct
    return struct(tuple(shape), _dtypes.numpy_dtype(dtype))


def _sharding(value: Any) -> Any:
    import jax

    return value.sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


def _devices(value: Any) -> Dict[Any, Box]:
    """The box of each device of this process."""
    indices = _sharding(value).addressable_devices_indices_map(tuple(value.shape))
    return {device: _box(index, value.shape) for device, index in indices.items()}


def _box(index: Sequence[slice], shape: Sequence[int]) -> Box:
    ranges = [each.indices(length) for each, length in zip(index, shape)]
    return tuple(begin for begin, _, _ in ranges), tuple(end - begin for begin, end, _ in ranges)
