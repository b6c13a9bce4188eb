"""Any pytree of JAX (Flax, Equinox, Optax) as a checkpoint of ckpt.Run.

    from ckpt.integrations.jax import load, save

    with ckpt.Run("runs/exp7", every=100, staging=8 << 30) as run:
        if run.latest is not None:
            state, report = load(run, state)            # arrays with the shardings that `state` has
        for step in range(first, 1001):
            ...
            if run.should_save(step):
                save(run, step, state)

A leaf's name is its path: params.layer.kernel, opt_state.0.mu.layer.kernel. Trees of dict, list and tuple alone need none of
this: Run.save and Run.load take them.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import jax
import numpy

from .. import errors
from ..run import LoadReport, Pending, Run


def save(run: Run, step: int, pytree: Any, *, metrics: Optional[Mapping[str, float]] = None,
         meta: Optional[Mapping[str, str]] = None) -> Pending:
    """Run.save of a pytree. Each device's part of an array is copied from there; replicas are stored once.

    run      with `group`, if there are several processes
    step     of training
    pytree   leaves are jax and numpy arrays of any shape and sharding, random keys, and plain values
    metrics, meta   numbers and texts by name, stored with the checkpoint
    errors   as of Run.save; Usage: two leaves have one name, or the pytree is one leaf
    """
    return run.save(step, _named([(path, _stored(leaf)) for path, leaf in _leaves(pytree)]), metrics=metrics, meta=meta)


def load(run: Run, like: Any, step: Union[int, str] = "latest", *, strict: bool = True) -> Tuple[Any, LoadReport]:
    """Run.load of a pytree.

    run      to load from
    like     stays as it is. Leaves that are arrays, also deleted ones, or jax.ShapeDtypeStruct give shapes, dtypes and
             shardings; without a sharding, the array is on the default device
    step, strict   as of Run.load
    returns  a new pytree of the structure of `like`, and the report
    errors   as of Run.load
    """
    leaves = _leaves(like)
    filled = _named([(path, _target(leaf)) for path, leaf in leaves])
    report = run.load(step, into=filled, strict=strict)
    found = [_restored(_at(filled, path), leaf) for path, leaf in leaves]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), found), report


def _leaves(pytree: Any) -> List[Tuple[Tuple[str, ...], Any]]:
    """Paths and leaves. usage: the pytree is one leaf"""
    pairs = [(tuple(_part(key) for key in path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(pytree)[0]]
    if any(not path for path, _ in pairs):
        raise errors.usage("the pytree is one leaf, which has no name", hint='put it in a dict: {"value": leaf}')
    return pairs


def _part(key: Any) -> str:
    """The text of a DictKey, SequenceKey, GetAttrKey or FlattenedIndexKey."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _named(leaves: List[Tuple[Tuple[str, ...], Any]]) -> Dict[str, Any]:
    """Nested dicts. usage: two leaves have one name"""
    tree: Dict[str, Any] = {}
    for path, leaf in leaves:
        node: Any = tree
        for part in path[:-1]:
            node = node.setdefault(part, {}) if isinstance(node, dict) else None
        if not isinstance(node, dict) or path[-1] in node:
            raise errors.usage(f"{'.'.join(path)}: two leaves of the pytree have this name, or one has a name inside another's")
        node[path[-1]] = leaf
    return tree


def _at(tree: Dict[str, Any], path: Tuple[str, ...]) -> Any:
    for part in path:
        tree = tree[part]
    return tree


def _is_key(leaf: Any) -> bool:
    dtypes: Any = jax.dtypes
    return hasattr(leaf, "dtype") and bool(dtypes.issubdtype(leaf.dtype, dtypes.prng_key))


def _stored(leaf: Any) -> Any:
    """What is stored for a leaf: of random keys their data, of numpy's scalars arrays."""
    if _is_key(leaf):
        return jax.random.key_data(leaf)
    return numpy.asarray(leaf) if isinstance(leaf, numpy.generic) else leaf


def _target(leaf: Any) -> Any:
    """What is loaded into for a leaf."""
    if isinstance(leaf, (numpy.ndarray, numpy.generic)):
        return numpy.empty(leaf.shape, leaf.dtype)
    if _is_abstract_key(leaf):
        data = jax.eval_shape(jax.random.key_data, leaf)  # without a sharding
        struct: Any = jax.ShapeDtypeStruct
        return struct(data.shape, data.dtype, sharding=leaf.sharding)
    return _stored(leaf)


def _is_abstract_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) and _is_key(leaf)


def _impl(key: Any) -> Any:
    """The generator of random keys. jax tells it of an abstract key only where that is traced."""
    if not _is_abstract_key(key):
        return jax.random.key_impl(key)
    found: List[Any] = []
    jax.eval_shape(lambda traced: found.append(jax.random.key_impl(traced)), key)
    return found[0]


def _restored(value: Any, like: Any) -> Any:
    if _is_key(like):
        return jax.random.wrap_key_data(value, impl=_impl(like))
    return value[()] if isinstance(like, numpy.generic) else value
