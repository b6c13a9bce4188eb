"""Trees of dict, list and tuple with arrays and plain values, and how a checkpoint stores them.

Arrays become tensors, named by their path: {"model": {"a.b": w}} has the tensor "model.a%2Eb". '%' is %25 and '.' inside a
key is %2E, so that every path has its own name. Structure and plain values are one blob of JSON, "python.json":

    {"version": 1, "tree": NODE}
    NODE   null, true, 3, 0.5, "text"; {"float": "nan"} for floats that JSON lacks;
           {"dict": [[KEY, NODE], ...]} with text and integer keys; {"list": [NODE, ...]}; {"tuple": [NODE, ...]};
           {"tensor": NAME, "library": "torch"}, where several nodes may have the same NAME: tied tensors
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Container, Dict, Iterable, List, Mapping, Set, Tuple

from . import _arrays, _jax, errors

BLOB = "python.json"
VERSION = 1
MOST_LEVELS = 100
_SHOWN = 10  # problems in one message
_MOST_BITS = 14_000  # of an integer: JSON is decimal, and Python reads 4,300 digits
_MOST_NAMES = 256 << 20  # bytes of names beyond the text that they come from
_quoted = json.encoder.encode_basestring_ascii  # text as JSON


@dataclass
class Flat:
    """The leaves of a tree by name.

    arrays     every name of an array, tied ones too
    kinds      of the arrays
    ties       second names of arrays, with the name of the first
    addresses  of arrays whose memory holds their elements, dense
    values     int, float, bool, str and None
    texts      the tree as JSON, cut where `values` are: one more than there are of them
    states     beginnings of names: of what lies below "state" in a dict that has "param_groups" too, as torch's optimizers have
    """

    arrays: Dict[str, Any] = field(default_factory=dict)
    kinds: Dict[str, _arrays.Kind] = field(default_factory=dict)
    ties: Dict[str, str] = field(default_factory=dict)
    addresses: Dict[str, int] = field(default_factory=dict)
    values: Dict[str, Any] = field(default_factory=dict)
    texts: List[str] = field(default_factory=list)
    states: List[str] = field(default_factory=list)

    @property
    def slots(self) -> Set[str]:
        """Names of arrays that are optimizer state, and nothing else by another name."""
        beginnings = tuple(self.states)
        found = {name for name in self.arrays if name.startswith(beginnings)} if beginnings else set()
        return found - {first for name, first in self.ties.items() if name not in found}

    @property
    def text(self) -> str:
        """The tree as JSON."""
        return written(self.texts, value_texts(self.values.values()))


def escaped(part: str) -> str:
    """One part of a path as part of a dotted name."""
    return part.replace("%", "%25").replace(".", "%2E")


def unescaped(name: str) -> str:
    """A dotted name as formats that escape nothing have it."""
    return name.replace("%2E", ".").replace("%25", "%")


def joined(name: str, key: Any) -> str:
    """The name of what a container of that name has under `key`."""
    part = escaped(str(key))
    return f"{name}.{part}" if name else part


def _is_text(key: str) -> bool:
    try:
        return b"\0" not in key.encode("utf-8")
    except UnicodeEncodeError:  # lone surrogates
        return False


class _Flattener:
    """Walks a tree once; `problems` says what cannot be stored, with its path. The JSON is written on the way: building its
    nodes first takes twice as long for many small arrays.
    """

    def __init__(self, own_names: bool, is_saved: bool) -> None:
        self.flat = Flat()
        self.problems: List[str] = []
        self.text: List[str] = []
        self._own_names = own_names
        self._is_saved = is_saved
        self._looks = _arrays.Looks()
        self._first: Dict[Any, str] = {}

    def walk(self, value: Any, name: str, level: int) -> None:
        if level > MOST_LEVELS:
            self.problems.append(f"{name}: nested deeper than {MOST_LEVELS} levels, or contains itself")
        elif isinstance(value, dict):
            self._walk_dict(value, name, level)
        elif isinstance(value, (list, tuple)):
            self.text.append('{"list": [' if isinstance(value, list) else '{"tuple": [')
            for i, each in enumerate(value):
                if i:
                    self.text.append(", ")
                self.walk(each, joined(name, i), level + 1)
            self.text.append("]}")
        else:
            self._leaf(value, name)

    def _walk_dict(self, value: Dict[Any, Any], name: str, level: int) -> None:
        prefix = f"{name}." if name else ""
        if "state" in value and isinstance(value.get("param_groups"), list):
            self.flat.states.append(f"{prefix}state.")
        text, begin = self.text, '{"dict": [['
        for key, each in value.items():
            is_text = type(key) is str and key.isascii() and "\0" not in key and key != ""
            if not is_text and not self._is_key(key, name):
                continue
            path = prefix + escaped(str(key))
            if path == BLOB:
                self.problems.append(f"{BLOB}: this name is reserved")
                continue
            text.append(f"{begin}{_quoted(key) if type(key) is str else key}, ")
            begin = "], ["
            self.walk(each, path, level + 1)
        text.append('{"dict": []}' if begin == '{"dict": [[' else "]]}")

    def _is_key(self, key: Any, name: str) -> bool:
        if type(key) not in (str, int):
            self.problems.append(f"{joined(name, key)}: a key of type {type(key).__name__}, not str or int")
        elif key == "" or not _is_text(str(key)):
            self.problems.append(f"{name or 'the tree'}: the key {key!r} is empty or no valid text")
        else:
            return True
        return False

    def _leaf(self, value: Any, name: str) -> None:
        if name in self.flat.arrays or name in self.flat.values:
            self.problems.append(f"{name}: two keys with this name")
        library = self._looks.library_of(value)
        if library is not None:
            try:
                self._array(value, name, library)
            except Exception as reason:  # of arrays without memory, such as those of torch.func
                self.problems.append(f"{name}: {type(reason).__name__}: {reason}")
        elif type(value) is int and value.bit_length() > _MOST_BITS:
            self.problems.append(f"{name}: an integer of {value.bit_length()} bits")
        elif value is not None and type(value) not in (bool, int, float, str):
            self.problems.append(f"{name}: {type(value).__module__}.{type(value).__qualname__} is no tensor and no "
                                 "plain value")
        else:
            self.flat.values[name] = value
            self.cut()

    def cut(self) -> None:
        """Ends one of `flat.texts`."""
        self.flat.texts.append("".join(self.text))
        self.text.clear()

    def _array(self, value: Any, name: str, library: str) -> None:
        kind, address = self._looks.at(value, library)
        if isinstance(kind, str):
            self.problems.append(f"{name}: {kind}")
            return
        if library == "jax" and self._is_saved:
            reason = _jax.refusal_to_save(value, is_alone=not self._own_names)
            if reason is not None:
                self.problems.append(f"{name}: {reason}")
                return
        flat = self.flat
        flat.arrays[name] = value
        flat.kinds[name] = kind
        identity: Any
        if address:
            flat.addresses[name] = address
            identity = (address, id(kind))  # one Kind for all of a kind
        elif library == "jax" and not self._is_saved:
            identity = None  # names get arrays of their own
        else:
            identity = _arrays.identity(value, library)
        first = name if identity is None else self._first.setdefault(identity, name)
        if first != name:
            flat.ties[name] = first
        self.text.append(f'{{"tensor": {_quoted(name if self._own_names else first)}, "library": "{library}"}}')


def check_type(tree: Any) -> None:
    """errors   Usage: it is no container"""
    if not isinstance(tree, (dict, list, tuple)):
        raise errors.usage(f"the tree is of type {type(tree).__name__}, not a dict, list or tuple")


def flatten(tree: Any, own_names: bool = False, is_saved: bool = False) -> Flat:
    """The leaves of a tree. Copies nothing.

    own_names   in the JSON, tied arrays too have their own names; for several ranks
    is_saved    the arrays have data; else they are loaded, and jax arrays are never tied
    errors      Unsupported: it holds other objects, the message names each by its path; Usage: it is no container
    """
    check_type(tree)
    walk = _Flattener(own_names, is_saved)
    walk.walk(tree, "", 0)
    walk.cut()
    if walk.problems:
        more = len(walk.problems) - _SHOWN
        text = "\n  ".join(walk.problems[:_SHOWN] + ([f"and {more} more"] if more > 0 else []))
        action = "stored" if is_saved else "loaded"
        raise errors.unsupported(f"the tree cannot be {action}:\n  {text}", tensor=walk.problems[0].split(":")[0],
                                 hint="convert these objects to tensors, numbers or text, or leave them out")
    return walk.flat


def value_texts(values: Iterable[Any]) -> List[str]:
    """Plain values as JSON.

    errors   Unsupported: an integer is too large, or text has two surrogates that JSON would join to one character
    """
    values = list(values)
    try:
        texts = [json.dumps(value if not isinstance(value, float) or math.isfinite(value) else {"float": repr(value)}) for value in values]
    except ValueError as reason:
        raise errors.unsupported(f"a plain value of the tree cannot be stored: {reason}") from None
    for value, text in zip(values, texts):
        if "\\ud" in text and json.loads(text) != value:
            raise errors.unsupported(f"a plain value of the tree cannot be stored: {text}: surrogates that form a pair")
    return texts


def written(texts: List[str], values: Iterable[str]) -> str:
    """The tree as JSON, of its pieces and the `value_texts` between them."""
    return "".join(itertools.chain.from_iterable(zip(texts, itertools.chain(values, ("",)))))


def build(tree: str) -> bytes:
    """The bytes of the blob, of a tree's JSON."""
    return f'{{"version": {VERSION}, "tree": {tree}}}'.encode("ascii")


@dataclass
class Stored:
    """A tree as a checkpoint stores it: names of arrays with the tensors that hold them and the library they came from,
    plain values, and the tree as JSON.
    """

    tensors: Dict[str, str] = field(default_factory=dict)
    values: Dict[str, Any] = field(default_factory=dict)
    libraries: Dict[str, str] = field(default_factory=dict)
    node: Any = None

    def of_paths(self, flat: Flat, objects: Mapping[str, Any]) -> Stored:
        """Of a checkpoint that Run.save did not write, whose names escape nothing: those of the tree's names that it has are the
        tree's here, and so are plain values among its `objects`.
        """
        tensors = {}
        for name in flat.arrays:
            plain = unescaped(name)
            if plain in self.tensors and name not in self.tensors and plain not in flat.arrays:
                tensors[name] = self.tensors[plain]
        taken = set(map(unescaped, tensors))
        kept = {name: tensor for name, tensor in self.tensors.items() if name not in taken}
        plain_values = {name: objects.get(unescaped(name), self) for name in flat.values}
        values = {name: value for name, value in plain_values.items() if value is None or type(value) in (bool, int, float, str)}
        return Stored({**kept, **tensors}, values, self.libraries, self.node)

    def without_absent(self, present: Container[str]) -> Tuple[Stored, List[str]]:
        """The same without tensors that are not `present`, and the names of these."""
        absent = [name for name, tensor in self.tensors.items() if tensor not in present]
        if not absent:
            return self, absent
        kept = {name: tensor for name, tensor in self.tensors.items() if tensor in present}
        return Stored(kept, self.values, self.libraries, self.node), absent

    @property
    def ties(self) -> Dict[str, str]:
        """Second names of tensors."""
        return {name: target for name, target in self.tensors.items() if name != target}


def parse(data: bytes) -> Stored:
    """Reads the blob. Corrupt: no such JSON, or names that take much more memory than it; Unsupported: of a later version."""
    stored = Stored()
    room = _MOST_NAMES + len(data)

    def visit(node: Any, name: str, level: int) -> None:
        nonlocal room
        room -= len(name)
        if level > MOST_LEVELS or room < 0:
            raise ValueError("nested too deep" if room >= 0 else "its names take too much memory")
        if isinstance(node, dict) and "tensor" in node:
            stored.tensors[name] = str(node["tensor"])
            stored.libraries[name] = str(node["library"])
        elif isinstance(node, dict) and "float" not in node:
            for key, each in items(node):
                visit(each, joined(name, key), level + 1)
        else:
            stored.values[name] = _value(node)

    try:
        document = json.loads(data)
        version = document["version"]
        if type(version) is not int:
            raise ValueError(f"the version {version!r}")
        if version == VERSION:
            stored.node = document["tree"]
            visit(stored.node, "", 0)
    except (ValueError, KeyError, TypeError, RecursionError) as reason:
        raise errors.Corrupt(f"{BLOB}: not what Run.save writes: {reason}", id="CKPT-E1500", code=15) from None
    if version != VERSION:
        raise errors.unsupported(f"{BLOB}: version {version} is not known to this release")
    return stored


def items(node: Any) -> List[Any]:
    """The pairs of key and node of a container."""
    (kind, content), = node.items()
    if kind == "dict":
        pairs = [(key, each) for key, each in content]
        if any(type(key) not in (str, int) for key, _ in pairs) or len(dict(pairs)) < len(pairs):
            raise ValueError("two equal keys, or one that is neither text nor an integer")
        return pairs
    if kind in ("list", "tuple"):
        return list(enumerate(content))
    raise ValueError(f"a node of kind {kind!r}")


def _value(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node["float"] not in ("nan", "inf", "-inf"):
        raise ValueError(f"the float {node['float']!r}")
    return float(node["float"])


def rebuilt(node: Any, array: Callable[[str], Any], name: str = "") -> Any:
    """A new tree of a stored one. `array` gives the array for each name."""
    if not isinstance(node, dict):
        return node
    if "tensor" in node:
        return array(name)
    if "float" in node:
        return _value(node)
    made = [(key, rebuilt(each, array, joined(name, key))) for key, each in items(node)]
    if "dict" in node:
        return dict(made)
    return [each for _, each in made] if "list" in node else tuple(each for _, each in made)


def with_values(tree: Any, values: Dict[str, Any], name: str = "") -> Any:
    """The same tree with new plain values and jax arrays: dicts and lists change in place, tuples are replaced. Other arrays
    stay.
    """
    if isinstance(tree, dict):
        for key in tree:
            tree[key] = with_values(tree[key], values, joined(name, key))
        return tree
    if isinstance(tree, list):
        tree[:] = [with_values(each, values, joined(name, i)) for i, each in enumerate(tree)]
        return tree
    if isinstance(tree, tuple):
        parts = [with_values(each, values, joined(name, i)) for i, each in enumerate(tree)]
        if all(new is old for new, old in zip(parts, tree)):
            return tree
        return type(tree)._make(parts) if hasattr(tree, "_make") else type(tree)(parts)
    return values.get(name, tree) if _arrays.library_of(tree) in (None, "jax") else tree
