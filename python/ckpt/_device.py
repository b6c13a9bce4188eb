"""Tensors on a device as bytes in CPU memory: copied through pinned memory by one stream, with one wait for many tensors."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence

_ALIGNMENT = 64
_BUFFER_BYTES = 256 << 20  # torch's allocator rounds each up to a power of two


def is_cuda(tensor: Any) -> bool:
    """Whether the tensor is copied here."""
    return bool(tensor.is_cuda)


def _room(tensor: Any) -> int:
    nbytes: int = tensor.numel() * tensor.element_size()
    return max(1, -(-nbytes // _ALIGNMENT)) * _ALIGNMENT


def _groups(tensors: Sequence[Any]) -> Iterator[List[Any]]:
    """The tensors of each buffer."""
    group: List[Any] = []
    total = 0
    for tensor in tensors:
        if group and total + _room(tensor) > _BUFFER_BYTES:
            yield group
            group, total = [], 0
        group.append(tensor)
        total += _room(tensor)
    if group:
        yield group


class Copies:
    """Copies in flight of dense tensors on CUDA devices.

    tensors  on the CPU, complete once `wait` has returned, in the order given. They share pinned buffers, which torch's
             allocator keeps for the next copies
    """

    def __init__(self, sources: Sequence[Any]) -> None:
        """Starts the copies, after what the devices' current streams do now. `sources` may change after `wait`."""
        self._sources = list(sources)  # alive until they are copied
        self._streams: Dict[Any, Any] = {}
        self.tensors: List[Any] = []
        for group in _groups(self._sources):
            import torch

            buffer = torch.empty(sum(_room(source) for source in group), dtype=torch.uint8, pin_memory=True)
            end = 0
            for source in group:
                target = buffer[end:end + source.numel() * source.element_size()].view(source.dtype).view(source.shape)
                with torch.no_grad(), torch.cuda.stream(self._stream(source.device)):
                    target.copy_(source, non_blocking=True)
                self.tensors.append(target)
                end += _room(source)

    def _stream(self, device: Any) -> Any:
        import torch

        stream = self._streams.get(device)
        if stream is None:
            make: Any = torch.cuda.Stream
            stream = self._streams[device] = make(device)
            stream.wait_stream(torch.cuda.current_stream(device))
        return stream

    def wait(self) -> List[Any]:
        """The tensors, with the values of their sources."""
        for stream in self._streams.values():
            stream.synchronize()
        self._sources.clear()
        return self.tensors


def to_cpu(tensors: Sequence[Any]) -> List[Any]:
    """CUDA tensors of any strides as dense tensors on the CPU."""
    return Copies([tensor.detach().resolve_conj().resolve_neg().contiguous() for tensor in tensors]).wait()
