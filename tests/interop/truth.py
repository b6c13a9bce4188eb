"""Compares what ckpt wrote with the truth of a golden case, tensor by tensor, bit for bit. Needs only Python and h5py.

A set of tensors is a dict: name -> (dtype as safetensors calls it, shape, bytes). The rule of names is in tests/golden/README.md.
"""
import json
import pathlib
import struct

ROLES = ("param", "master", "exp_avg", "exp_avg_sq", "state", "buffer")


def from_safetensors(path):
    """Reads one file, or every .safetensors below a directory; parsed here, so that no library converts a value."""
    path = pathlib.Path(path)
    tensors = {}
    for file in sorted(path.rglob("*.safetensors")) if path.is_dir() else [path]:
        data = file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            assert name not in tensors, f"{file}: {name} stands in two files"
            tensors[name] = (entry["dtype"], tuple(entry["shape"]), data[8 + length + begin:8 + length + end])
    return tensors


def from_hdf5(path):
    """Every dataset under every name that links to it, by the rules of docs/formats.md, "HDF5"."""
    import h5py
    tensors = {}

    def text(attributes, key):
        value = attributes.get(key)
        return value.decode() if isinstance(value, bytes) else value

    def visit(group, prefix):
        for part, node in group.items():
            if isinstance(node, h5py.Group):
                visit(node, [*prefix, part])
                continue
            name = text(node.attrs, "ckpt_name") or ".".join(prefix if part == "__value__" else [*prefix, part])
            shape = text(node.attrs, "ckpt_shape")
            shape = tuple(node.shape) if shape is None else tuple(int(n) for n in shape.split(",") if n)
            tensors[name] = (text(node.attrs, "ckpt_dtype"), shape, node[()].tobytes())

    with h5py.File(path, "r") as file:
        visit(file, [])
    return tensors


def candidates(key, about):
    """Possible names of the tensor of a truth key, in order."""
    names, aliases = about.get("names") or {}, about.get("aliases") or {}
    key = key.removesuffix("#c128")
    role, name = key.split("/", 1)
    found = [names[key]] if key in names else []
    if name in aliases:
        found += candidates(f"{role}/{aliases[name]}", {"names": names})
    if role in ("param", "buffer"):
        return found + [name, name.replace("/", ".")]  # HDF5: the path of the dataset
    if role == "state":
        slot, _, parameter = name.partition("/")
        return found + [f"optimizer.state.{parameter or slot}.{slot}", parameter or slot]
    return found + [f"optimizer.state.{name}.{role}"]


def expected(case):
    """The case's truth: key -> (dtype, shape, bytes), tensors of a known role only."""
    truth = from_safetensors(case / "truth.safetensors")
    return {key: tensor for key, tensor in truth.items() if "/" in key and key.split("/", 1)[0] in ROLES}


def differences(case, tensors, roles=ROLES):
    """One line for each truth key of the roles that is missing in `tensors` or differs, and how many were compared."""
    about = json.loads((case / "about.json").read_text())
    truth = {key: tensor for key, tensor in expected(case).items() if key.split("/", 1)[0] in roles}
    stored_otherwise = about.get("stored_names_differ_from_truth") or []
    lines, compared = [], 0
    for key, wanted in truth.items():
        if key.split("/", 1)[1] in stored_otherwise:
            continue  # fused in the model only; same_names() compares these
        compared += 1
        name = next((n for n in candidates(key, about) if n in tensors), None)
        if name is None:
            lines.append(f"missing {key}")
        elif tensors[name][2] != wanted[2] or (tensors[name][:2] != wanted[:2] and not key.endswith("#c128")):
            lines.append(f"{key} as {name}: {wanted[0]}{list(wanted[1])} became {tensors[name][0]}{list(tensors[name][1])}")
    return lines, compared


def same_names(wanted, tensors):
    """Differences between two sets of tensors under their own names; `tensors` may hold more."""
    return [name for name in wanted if tensors.get(name) != wanted[name]]
