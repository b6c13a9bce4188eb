"""Saves and loads jax arrays over 4 devices of the host: jax_job.py DIRECTORY. test_jax.py starts it."""
import collections
import dataclasses
import os
import pathlib
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import conftest  # noqa: F401: where the package is
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ckpt
from ckpt.integrations.jax import load, save

MESH = Mesh(numpy.array(jax.devices()).reshape(2, 2), ("x", "y"))
SPECS = {"rows": PartitionSpec("x"), "columns": PartitionSpec(None, "y"), "both": PartitionSpec("x", "y"),
         "joined": PartitionSpec(("x", "y")), "replicated": PartitionSpec()}
DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn",
          "float8_e5m2"]
Moments = collections.namedtuple("Moments", "mu nu")


def whole(name):
    return numpy.random.default_rng(sum(name.encode())).normal(size=(8, 6)).astype(numpy.float32)


def sharding(name):
    return NamedSharding(MESH, SPECS[name])


def state():
    return {name: jax.device_put(whole(name), sharding(name)) for name in SPECS}


def zeros():
    return {name: jax.device_put(jnp.zeros((8, 6)), sharding(name)) for name in SPECS}


def same(a, b):
    return numpy.asarray(a).tobytes() == numpy.asarray(b).tobytes() and a.dtype == b.dtype and a.shape == b.shape


def raises(kind, part, call):
    try:
        call()
    except kind as reason:
        assert part in str(reason), reason
        return
    raise AssertionError(f"did not raise {kind.__name__}")


def run_trees(directory):
    """Run.save and Run.load take trees with jax arrays."""
    other = NamedSharding(Mesh(numpy.array(jax.devices()[:3]), ("z",)), PartitionSpec(None, "z"))
    with ckpt.Run(directory / "trees", staging=1 << 26) as run:
        given = {**state(), "n": 3, "scalar": jnp.float32(2.5), "numpy": numpy.arange(3), "moments": (Moments(jnp.ones(2), jnp.zeros(2)),)}
        given["tied"] = given["rows"]
        run.save(1, given, wait=True)
        with ckpt.open(directory / "trees") as checkpoint:
            assert checkpoint.ties == {"tied": "rows"} and same(checkpoint["both"].numpy(), whole("both"))
        zero = jnp.zeros((8, 6))  # one array under many names
        into = {**zeros(), "n": 0, "scalar": jnp.float32(0), "numpy": numpy.zeros(3, int), "moments": (Moments(jnp.zeros(2), jnp.ones(2)),),
                "tied": jax.ShapeDtypeStruct((8, 6), jnp.float32, sharding=other), "columns": zero, "rows": zero}
        replicated = into["replicated"]
        report = run.load(into=into)
        assert report.tree is into and into["n"] == 3 and into["scalar"] == 2.5 and into["numpy"][2] == 2 and not replicated.any()
        assert isinstance(into["moments"][0], Moments) and into["moments"][0].mu.tolist() == [1, 1] and into["moments"][0].nu.tolist() == [0, 0]
        for name in SPECS:
            assert same(into[name], whole(name)), name
            if name not in ("rows", "columns"):
                assert into[name].sharding == sharding(name)
        assert into["tied"].sharding == other and same(into["tied"], whole("rows"))
        tree = run.load().tree
        assert into["scalar"].committed == jnp.float32(0).committed and into["rows"].committed == zero.committed and into["both"].committed
        assert tree["tied"] is tree["rows"] and isinstance(tree["rows"], jax.Array) and same(tree["joined"], whole("joined"))

        for wrong, part in ((jax.ShapeDtypeStruct((8, 6), jnp.float32), "x.y: a ShapeDtypeStruct has no data"),
                            (jax.random.key(0), "x.y: jax dtype key<fry> cannot be stored: store jax.random.key_data"),
                            (jnp.zeros(2, jnp.int4), "x.y: jax dtype int4 cannot be stored")):
            raises(ckpt.Unsupported, part, lambda: run.save(2, {"x": {"y": wrong}}))
        raises(ckpt.Unsupported, "w: ", lambda: jax.jit(lambda w: run.save(2, {"w": w}))(jnp.ones(2)))
        raises(ckpt.Usage, "both: F32 [8, 5], in the checkpoint", lambda: run.load(into={"both": jnp.zeros((8, 5))}, strict=False))
        run.save(3, {"double": numpy.ones(2)})
        raises(ckpt.Usage, "jax_enable_x64", lambda: run.load(3, into={"double": jax.ShapeDtypeStruct((2,), numpy.float64)}))


def every_dtype(directory):
    arrays = {name: jax.device_put(numpy.arange(24).reshape(4, 6).astype(getattr(ml_dtypes, name, None) or numpy.dtype(name)),
                                   NamedSharding(MESH, PartitionSpec("x", "y"))) for name in DTYPES}
    arrays |= {"empty": jnp.zeros((0, 3)), "transposed": jnp.arange(6.0).reshape(2, 3).T}
    with ckpt.Run(directory / "dtypes") as run:
        run.save(1, arrays)
        into = {name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding) for name, array in arrays.items()}
        run.load(into=into)
    assert all(same(into[name], array) and into[name].sharding == array.sharding for name, array in arrays.items())
    with jax.enable_x64(True), ckpt.Run(directory / "wide") as run:
        wide = {"f": jnp.ones(3, jnp.float64), "i": jnp.arange(3, dtype=jnp.int64)}
        run.save(1, wide)
        assert all(same(array, wide[name]) for name, array in run.load().tree.items())


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TrainState:
    params: dict
    moments: tuple
    key: jax.Array
    step: int
    rate: numpy.float32


def pytrees(directory):
    """A trainer of a registered class, whose step donates the state, resumes with the same values."""
    def fresh():
        params = {"w": jax.device_put(whole("w"), sharding("both")), "layers": [jnp.ones(6), {"b.c": jnp.zeros(6)}]}
        return TrainState(params, (Moments(jax.tree.map(jnp.zeros_like, params), None),), jax.random.key(7), 0, numpy.float32(0.5))

    @jax.jit
    def update(params, mu, key):
        key, one = jax.random.split(key)
        gradient = jax.tree.map(lambda p: p * 0.1 + jax.random.normal(one, p.shape), params)
        mu = jax.tree.map(lambda m, g: 0.9 * m + g, mu, gradient)
        return jax.tree.map(lambda p, m: p - 0.01 * m, params, mu), mu, key

    def train(state, last, run=None):
        while state.step < last:
            params, mu, key = update(state.params, state.moments[0].mu, state.key)
            state = TrainState(params, (Moments(mu, None),), key, state.step + 1, state.rate)
            if run is not None and run.should_save(state.step):
                save(run, state.step, state, metrics={"step": state.step})
        return state

    expected = train(fresh(), 6)
    with ckpt.Run(directory / "pytree", every=2, staging=1 << 24) as run:
        train(fresh(), 5, run)
        assert run.latest == 4
        with ckpt.open(directory / "pytree") as checkpoint:
            assert "params.w" in checkpoint and "moments.0.mu.layers.1.b.c" in checkpoint and checkpoint.info.metrics == {"step": 4}
        like = fresh()
        like.params["w"].delete()  # as after donation
        state, report = load(run, like)
        assert report.step == 4 and state.step == 4 and like.step == 0 and type(state.rate) is numpy.float32
        assert state.params["w"].sharding == sharding("both")
        got = train(state, 6)
        assert same(got.params["w"], expected.params["w"]) and same(got.moments[0].mu["layers"][0], expected.moments[0].mu["layers"][0])
        assert (jax.random.key_data(got.key) == jax.random.key_data(expected.key)).all()
        assert load(run, fresh(), 2)[0].step == 2
        raises(ckpt.Usage, "one leaf", lambda: save(run, 9, jnp.ones(2)))
        raises(ckpt.NotFound, "lacks other", lambda: load(run, {"other": jnp.ones(2)}))
    keys = jax.device_put(jax.random.split(jax.random.key(3, impl="rbg"), 4), NamedSharding(Mesh(jax.devices(), ("d",)), PartitionSpec("d")))
    with ckpt.Run(directory / "keys") as run:
        save(run, 1, {"key": keys})
        for like in (keys, jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=keys.sharding), jax.eval_shape(lambda: keys)):
            got = load(run, {"key": like})[0]["key"]
            assert got.dtype == keys.dtype and (jax.random.key_data(got) == jax.random.key_data(keys)).all()
            assert like.sharding is None or got.sharding == keys.sharding


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    run_trees(path)
    every_dtype(path)
    pytrees(path)
