"""Writes a file as torch.save does (zip, protocol 2), without torch: nested dicts and lists of plain values and tensors."""
import io
import pickle
import struct
import sys
import types
import zipfile


class Tensor:
    """A tensor of float32, or of bytes."""

    def __init__(self, values, shape=None, bytes_only=False, steps=None):
        self.values, self.shape, self.bytes_only, self.steps = list(values), list(shape or [len(values)]), bytes_only, steps

    def packed(self):
        return bytes(self.values) if self.bytes_only else struct.pack(f"<{len(self.values)}f", *self.values)


class Parameter(Tensor):
    """An nn.Parameter with Python attributes."""

    def __init__(self, values, attributes):
        super().__init__(values)
        self.attributes = attributes


class _Storage:
    def __init__(self, key, count, kind):
        self.key, self.count, self.kind = key, count, kind


class _FloatStorage:
    pass


class _ByteStorage:
    pass


def _rebuild_tensor_v2():
    pass


def _rebuild_parameter_with_state():
    pass


_FloatStorage.__module__, _FloatStorage.__qualname__ = "torch", "FloatStorage"
_ByteStorage.__module__, _ByteStorage.__qualname__ = "torch", "ByteStorage"
for _function in (_rebuild_tensor_v2, _rebuild_parameter_with_state):
    _function.__module__, _function.__qualname__ = "torch._utils", _function.__name__


class _Rebuilt:
    """The pickled form of a Tensor: a call of torch._utils._rebuild_tensor_v2."""

    def __init__(self, tensor, key):
        steps, step = [], 1
        for size in reversed(tensor.shape):
            steps.insert(0, step)
            step *= size
        steps = tensor.steps or steps
        self.arguments = (_Storage(key, len(tensor.values), _ByteStorage if tensor.bytes_only else _FloatStorage), 0, tuple(tensor.shape), tuple(steps), False, {})

    def __reduce__(self):
        return (_rebuild_tensor_v2, self.arguments)


class _RebuiltParameter:
    def __init__(self, rebuilt, attributes):
        self.arguments = (rebuilt, True, {}, attributes)

    def __reduce__(self):
        return (_rebuild_parameter_with_state, self.arguments)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, _Storage):
            return ("storage", value.kind, value.key, "cpu", value.count)
        return None


def _stand_in_for_torch():
    """Modules in which pickle finds the names above; removed afterwards."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.FloatStorage, torch.ByteStorage, torch._utils = _FloatStorage, _ByteStorage, utils
    utils._rebuild_tensor_v2, utils._rebuild_parameter_with_state = _rebuild_tensor_v2, _rebuild_parameter_with_state
    return {"torch": torch, "torch._utils": utils}


def save(value, path):
    storages, keys = [], {}

    def replaced(part):
        if isinstance(part, Tensor):
            if id(part) not in keys:  # one object in two places shares its storage
                keys[id(part)] = str(len(storages))
                storages.append(part.packed())
            rebuilt = _Rebuilt(part, keys[id(part)])
            return _RebuiltParameter(rebuilt, replaced(part.attributes)) if isinstance(part, Parameter) else rebuilt
        if isinstance(part, dict):
            return {k: replaced(v) for k, v in part.items()}
        return [replaced(v) for v in part] if isinstance(part, list) else part

    value, stream, before = replaced(value), io.BytesIO(), dict(sys.modules)
    sys.modules.update(_stand_in_for_torch())
    try:
        _Pickler(stream, 2).dump(value)
    finally:
        for name in ("torch", "torch._utils"):
            sys.modules.pop(name)
            if name in before:
                sys.modules[name] = before[name]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", stream.getvalue())
        file.writestr("archive/byteorder", b"little")
        for key, data in enumerate(storages):
            file.writestr(f"archive/data/{key}", data)
        file.writestr("archive/version", b"3\n")
