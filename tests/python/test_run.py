"""ckpt.Run: what is saved is loaded bit for bit, and failures leave nothing half done."""
import collections
import copy
import gc
import math
import os
import pathlib
import subprocess
import sys
import threading
import warnings

import ckpt
import numpy
import pytest
import torch


def bits(tensor):
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


TORCH_DTYPES = [getattr(torch, name) for name in (
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
    "complex64", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu") if hasattr(torch, name)]


def of_bytes(dtype, shape):
    """A tensor with random bits."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    data = torch.randint(0, 256, (math.prod(shape) * torch.empty(0, dtype=dtype).element_size(),), dtype=torch.uint8)
    return data.view(dtype).view(shape)


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_every_dtype_comes_back_bit_for_bit(run_path, dtype):
    whole = of_bytes(dtype, (6, 4))
    tree = {"whole": whole, "transposed": whole.t(), "strided": whole[::2, 1:3], "scalar": whole[0, 0], "empty": whole[:0]}
    with ckpt.Run(run_path) as run:
        run.save(1, tree)
        loaded = run.load().tree
        into = {name: of_bytes(dtype, tuple(value.shape)) for name, value in tree.items()}
        into["transposed"] = of_bytes(dtype, (6, 4)).t()  # not dense
        run.load(1, into=into)
    for got in (loaded, into):
        for name, value in tree.items():
            assert got[name].dtype == dtype and got[name].shape == value.shape and bits(got[name]) == bits(value), name


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4")
def test_two_elements_in_a_byte(run_path):
    pairs = of_bytes(torch.float4_e2m1fn_x2, (6, 4))
    with ckpt.Run(run_path) as run:
        run.save(1, {"w": pairs})
        loaded = run.load().tree["w"]
    tensor = ckpt.open(run_path)["w"]
    assert loaded.dtype == pairs.dtype and loaded.shape == pairs.shape and bits(loaded) == bits(pairs)
    assert tensor.dtype == "F4" and tensor.shape == (6, 8) and bits(tensor[1:3].torch()) == bits(pairs)[4:12]


def test_numpy_arrays_of_any_strides(run_path):
    base = numpy.arange(24, dtype=numpy.int64).reshape(4, 6)
    tree = {"back": base[:, ::-1], "fortran": numpy.asfortranarray(base), "f2": base.astype(numpy.float16),
            "flag": base > 3, "c": base.astype(numpy.complex64), "zero": numpy.zeros((0, 3)), "point": numpy.array(2.5)}
    with ckpt.Run(run_path) as run:
        run.save(1, tree)
        loaded = run.load().tree
        into = {name: numpy.zeros_like(value) for name, value in tree.items()}
        into["back"] = numpy.zeros_like(base)[:, ::-1]
        run.load(into=into)
    for name, value in tree.items():
        numpy.testing.assert_array_equal(loaded[name], value, strict=True)
        numpy.testing.assert_array_equal(into[name], value, strict=True)


Pair = collections.namedtuple("Pair", "first second")
VALUES = {"none": None, "yes": True, "int": -7, "big": 1 << 80, "float": 0.1, "whole": 1.0, "inf": math.inf, "text": "a\n'\"é\ud800",
          "nested": [1, (2, {"k.%": 3}), {}, []], 5: {"int key": 6}, "a": {"b": 1}, "a.b": 2}


def test_plain_values_and_structure_come_back_as_they_were(run_path):
    tree = {**VALUES, "w": torch.ones(2), "pair": Pair(1, torch.zeros(1)), "ordered": collections.OrderedDict(x=1)}
    with ckpt.Run(run_path) as run:
        run.save(1, tree)
        loaded = run.load().tree
    for name, value in VALUES.items():
        assert repr(loaded[name]) == repr(value)
    assert loaded["pair"][0] == 1 and type(loaded["pair"]) is tuple and loaded["ordered"] == {"x": 1}
    into = {"a": {"b": 0}, "a.b": 0, "pair": Pair(0, torch.ones(1)), "nested": [0, (0, {"k.%": 0}), {}, []]}
    with ckpt.Run(run_path) as run:
        run.load(into=into, strict=False)
    assert into["a"] == {"b": 1} and into["a.b"] == 2 and into["nested"] == VALUES["nested"]
    assert into["pair"].first == 1 and into["pair"].second == 0
    with ckpt.open(run_path) as checkpoint:
        assert checkpoint.objects["a.b"] == 1 and checkpoint.objects["a%2Eb"] == 2 and checkpoint.objects["big"] == 1 << 80


def test_nan_is_kept(run_path):
    with ckpt.Run(run_path) as run:
        run.save(1, {"x": math.nan}, metrics={"loss": math.nan, "good": 1.5}, meta={"note": "été"})
        assert math.isnan(run.load().tree["x"])
    info = ckpt.open(run_path).info
    assert info.metrics == {"loss": None, "good": 1.5} and info.metadata == {"note": "été"} and info.step == 1


def test_a_tensor_that_occurs_twice_is_stored_once(run_path):
    weight = torch.randn(1000)
    tree = {"embed": weight, "head": weight, "half": weight[:500], "same": weight.view(1000)}
    with ckpt.Run(run_path) as run:
        run.save(1, tree)
        loaded = run.load().tree
        separate = {name: torch.zeros_like(value) for name, value in tree.items()}
        run.load(into=separate)
    with ckpt.open(run_path) as checkpoint:
        assert checkpoint.ties == {"head": "embed", "same": "embed"}
        assert len(set(t.name for t in checkpoint.values())) == 2
        assert bits(checkpoint["head"].torch()) == bits(weight)
    assert loaded["head"] is loaded["embed"] and bits(loaded["half"]) == bits(weight[:500])
    assert all(bits(separate[name]) == bits(value) for name, value in tree.items())


def test_an_optimizer_resumes(run_path):
    def trainer():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).bfloat16()
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(model, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            model(torch.full((2, 4), step / 10, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()

    model, optimizer = trainer()
    train(model, optimizer, range(5))
    with ckpt.Run(run_path, staging=1 << 20) as run:
        run.save(4, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        train(model, optimizer, range(5, 8))  # changes the tensors while they are written
    again, restored = trainer()
    with ckpt.Run(run_path) as run:
        tree = run.load().tree
    again.load_state_dict(tree["model"])
    restored.load_state_dict(tree["optimizer"])
    train(again, restored, range(5, 8))
    assert all(bits(a) == bits(b) for a, b in zip(model.parameters(), again.parameters()))


class Thing:
    pass


def test_objects_that_cannot_be_stored_are_named_before_anything_is_written(run_path):
    cycle = []
    cycle.append(cycle)
    with ckpt.Run(run_path) as run:
        with pytest.raises(ckpt.Unsupported) as refused:
            run.save(1, {"fine": torch.zeros(1), "a": {"thing": Thing(), "b.c": [numpy.float32(1)]}, "sparse": torch.eye(2).to_sparse(),
                         "meta": torch.zeros(1, device="meta"), "cycle": cycle, 1.5: 0, "": 0, "text": numpy.array("x"),
                         "sub": torch.zeros(1).as_subclass(type("Sub", (torch.Tensor,), {}))})
        for path in ("a.thing: ", "a.b%2Ec.0: ", "sparse: ", "meta: ", "cycle.0.", "1%2E5: ", "key ''", "text: "):
            assert path in str(refused.value), path
        with pytest.raises(ckpt.Usage):
            run.save(1, torch.zeros(1))
        with pytest.raises(ckpt.Unsupported, match="two keys"):
            run.save(1, {1: 0, "1": 0})
        assert run.latest is None
    assert not list(run_path.glob("step-*"))


def test_shapes_and_dtypes_that_do_not_fit_change_nothing(run_path):
    with ckpt.Run(run_path) as run:
        run.save(1, {"a": torch.ones(2, 3), "b": torch.ones(4), "n": 1})
        first = torch.zeros(2, 3)
        into = {"a": first, "b": torch.zeros(5), "n": 2}
        for wrong, text in (({"b": torch.zeros(5)}, "b: F32 \\[5\\], in the checkpoint F32 \\[4\\]"),
                            ({"b": torch.zeros(4).half()}, "b: F16 \\[4\\], in the checkpoint F32"), ({"b": 1}, "b: a tensor in"),
                            ({"n": torch.zeros(1)}, "n: a plain value in"), ({"b": torch.zeros(1).expand(4)}, "share memory")):
            tree = {**into, "b": torch.zeros(4), **wrong}
            for step in (1, "latest"):
                with pytest.raises(ckpt.Usage, match=text):
                    run.load(step, into=tree)
            assert bits(first) == bytes(24) and tree["n"] is {**into, **wrong}["n"]
        frozen = numpy.zeros(4, numpy.float32)
        frozen.flags.writeable = False
        with pytest.raises(ckpt.Usage, match="read-only"):
            run.load(into={"a": first, "b": frozen, "n": 0})


def test_names_that_only_one_side_has(run_path):
    with ckpt.Run(run_path) as run:
        run.save(1, {"a": torch.ones(2), "b": torch.ones(2), "n": 1})
        with pytest.raises(ckpt.NotFound, match="lacks c"):
            run.load(into={"a": torch.zeros(2), "b": torch.zeros(2), "n": 0, "c": 5})
        with pytest.raises(ckpt.Usage, match="also has b, n"):
            run.load(into={"a": torch.zeros(2)})
        into = {"a": torch.zeros(2), "c": 5}
        report = run.load(into=into, strict=False)
        assert report.missing == ["c"] and report.unexpected == ["b", "n"] and report.tree is into
        assert into["c"] == 5 and into["a"].sum() == 2 and report.step == 1


def test_arrays_that_share_memory_are_loaded_only_if_they_are_equal(run_path):
    a, b = torch.arange(3.0), torch.arange(3.0) + 10
    with ckpt.Run(run_path) as run:
        run.save(1, {"x": a, "y": b})
        w = torch.zeros(3)
        for into in ({"x": w, "y": w}, {"x": w.view(3), "y": w.view(3)}):
            with pytest.raises(ckpt.Usage, match="y: the same memory as x"):
                run.load(into=into)
        w = torch.zeros(5)
        with pytest.raises(ckpt.Usage, match="y: shares memory with x"):
            run.load(into={"x": w[:3], "y": w[2:]})
        assert not w.any()
        w = torch.zeros(6)
        run.load(into={"x": w[::2], "y": w[1::2]})
        assert w.tolist() == [0, 10, 1, 11, 2, 12]
        run.save(2, {"x": a, "y": a.clone()})
        w = torch.zeros(3)
        run.load(into={"x": w, "y": w})
        assert torch.equal(w, a)
        run.save(3, {"x": torch.arange(6.0).view(3, 2)})
        for strides in ((1, 1), (0, 1), (1, 2)):
            with pytest.raises(ckpt.Usage, match="share memory"):
                run.load(into={"x": torch.zeros(6).as_strided((3, 2), strides)})
        into = torch.zeros(9).as_strided((3, 2), (1, 4))
        run.load(into={"x": into})
        assert torch.equal(into, torch.arange(6.0).view(3, 2))


def test_arrays_without_their_memory_are_named(run_path):
    freed, shrunk = torch.ones(4), torch.ones(4)[2:]
    freed.untyped_storage().resize_(0)
    shrunk.untyped_storage().resize_(12)
    masked = numpy.ma.masked_array([1, 2], mask=[True, False])
    with ckpt.Run(run_path) as run:
        for name, value, why in (("freed", freed, "0 bytes"), ("shrunk", shrunk, "12 bytes"), ("masked", masked, "MaskedArray"), ("big", 10**5000, "bits")):
            with pytest.raises(ckpt.Unsupported, match=f"{name}: .*{why}"):
                run.save(1, {"w": torch.ones(1), name: value})
        with pytest.raises(ckpt.Usage, match="NoneType"):
            run.save(1, None)
        with pytest.raises(ckpt.Unsupported, match="w: "):
            torch.func.grad(lambda w: (run.save(1, {"w": w}), w.sum())[1])(torch.ones(2))
    assert os.listdir(run_path) == []


def test_a_run_stays_where_it_was_opened(run_path, tmp_path, monkeypatch):
    os.makedirs(tmp_path / "a" / "b")
    monkeypatch.chdir(tmp_path / "a")
    with ckpt.Run("run", staging=1 << 20, keep=5) as run:
        run.save(1, {"w": torch.ones(2)})
        monkeypatch.chdir(tmp_path / "a" / "b")
        run.save(2, {"w": torch.ones(2)})
        assert run.latest == 2
    assert os.listdir(tmp_path / "a" / "b") == []
    monkeypatch.chdir(tmp_path / "a")
    with ckpt.open("run") as checkpoint:
        monkeypatch.chdir(tmp_path)
        assert checkpoint["w"].torch().tolist() == [1, 1]


def test_what_cannot_be_copied_says_so(run_path):
    with ckpt.Run(run_path) as run:
        run.save(1, {"w": torch.ones(2)})
        with ckpt.open(run_path) as checkpoint:
            for each in (run, checkpoint):
                with pytest.raises(TypeError, match="cannot be copied"):
                    copy.copy(each)
            assert checkpoint["w"].torch().tolist() == [1, 1]


def test_a_thread_that_saves_when_the_interpreter_ends(run_path):
    script = f"""
import conftest, ckpt, numpy, threading, time
run = ckpt.Run({str(run_path)!r}, staging=1 << 24)
def save():
    for step in range(1, 1 << 30):
        run.save(step, {{"w": numpy.ones(100_000)}})
threading.Thread(target=save, daemon=True).start()
while run.latest is None:
    time.sleep(0.01)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=os.path.dirname(__file__), capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_steps_and_pending(run_path):
    with ckpt.Run(run_path, staging=1 << 20) as run:
        assert run.latest is None
        with pytest.raises(ckpt.NotFound):
            run.load()
        pending = [run.save(step, {"w": torch.full((3,), float(step))}) for step in (10, 20)]
        pending[-1].wait(timeout=60)
        assert pending[-1].done() and pending[-1].poll() and pending[-1].name.startswith("step-000000020.")
        assert set(pending[-1].seconds) == {"plan", "stage", "write", "commit"}
        assert run.latest == 20 and run.load().step == 20 and run.load(10).tree["w"].tolist() == [10, 10, 10]
        with pytest.raises(ckpt.NotFound, match="step 15"):
            run.load(15)
        assert run.save(30, {"w": torch.zeros(3)}, wait=True).done()
    assert "closed" in repr(run)
    for call in (lambda: run.save(1, {}), lambda: run.load(), lambda: run.should_save(1)):
        with pytest.raises(ckpt.Usage, match="closed"):
            call()
    run.close()


def test_load_waits_for_saves_in_flight(run_path):
    tree = {"w": torch.ones(4 << 20)}  # 16 MiB
    with ckpt.Run(run_path, staging=128 << 20) as run:
        for step in (1, 2, 3):
            run.save(step, tree)
            assert run.load().step == step
            run.save(step + 10, tree)
            assert run.latest == step + 10
            run.save(step + 20, tree)
            assert run.load(step + 20).step == step + 20


def test_numbers_out_of_range_are_refused(run_path):
    with ckpt.Run(run_path) as run:
        for step in (-1, 1 << 64):
            with pytest.raises(ckpt.Usage, match="step"):
                run.save(step, {})
            with pytest.raises(ckpt.Usage, match="step"):
                run.should_save(step)
    for wrong in ({"every": -1}, {"every_seconds": -0.5}, {"staging": -1}):
        with pytest.raises(ckpt.Usage, match="less than 0"):
            ckpt.Run(run_path, **wrong)


def test_should_save_and_stop(run_path):
    with ckpt.Run(run_path, every=3) as run:
        assert [step for step in range(10) if run.should_save(step)] == [3, 6, 9]
        assert not run.stop_requested
    code = ("import os, signal, sys, ckpt\nwith ckpt.Run(sys.argv[1], catch_signals=True) as run:\n"
            "    os.kill(os.getpid(), signal.SIGTERM)\n    print([run.should_save(s) for s in (1, 2)], run.stop_requested)")
    out = subprocess.run([sys.executable, "-c", code, run_path], capture_output=True, text=True, check=True).stdout
    assert out == "[True, False] True\n", "one last save"


def test_a_damaged_checkpoint_is_skipped(run_path):
    with ckpt.Run(run_path) as run:
        for step in (1, 2):
            run.save(step, {"w": torch.full((100_000,), float(step)), "n": step})
        shard = max(run_path.glob("step-000000002*/**/*.safetensors"), key=lambda path: path.stat().st_size)
        shard.chmod(0o600)
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data)
        into = {"w": torch.zeros(100_000), "n": 0}
        report = run.load(into=into)
        assert report.step == 1 and report.skipped == 1 and into["n"] == 1 and into["w"].sum() == 100_000
        assert run.load().tree["n"] == 1
        with pytest.raises(ckpt.Corrupt):
            run.load(2)


def test_a_look_or_a_load_that_fails_does_not_change_where_saves_continue(run_path):
    tree = {"w": numpy.arange(3.0)}
    with ckpt.Run(run_path) as run:
        for step in (100, 200, 300):
            run.save(step, tree)
    with ckpt.Run(run_path) as run:
        run.load(200)
        assert run.latest == 300
        with pytest.raises(ckpt.NotFound):
            run.load("latest", into={"other": 1})
        run.save(250, tree)
    with ckpt.Run(run_path) as run:
        assert run.latest == 250
        run.load()
        with pytest.raises(ckpt.NotFound):
            run.load(100, into={"other": 1})
        run.save(260, tree)
        for wrong in (200.9, "200", "best"):
            with pytest.raises(ckpt.Usage):
                run.load(wrong)
    with ckpt.Run(run_path) as run:
        assert run.latest == 260
    listed = {each.step: each.series for each in ckpt.list(os.path.dirname(run_path)).checkpoints}
    assert listed == {100: 0, 200: 0, 300: 0, 250: 1, 260: 1}


def test_after_going_back_to_a_step_the_newest_is_what_follows_it(run_path):
    with ckpt.Run(run_path) as run:
        for step in (10, 20, 30):
            run.save(step, {"w": torch.full((3,), float(step))})
    with ckpt.Run(run_path) as run:
        assert run.load(10).tree["w"].tolist() == [10, 10, 10]
        run.save(15, {"w": torch.zeros(3)}, wait=True)
    with ckpt.Run(run_path) as run:
        assert run.load().step == 15
    assert ckpt.prune(store=run_path.parent, keep_last=1, apply=True, yes=True).ok
    assert (run_path / "step-000000015.g4").is_dir()  # not the newest of the old series only


def test_an_exception_in_the_loop_leaves_complete_checkpoints_only(run_path, monkeypatch):
    with pytest.raises(ZeroDivisionError):
        with ckpt.Run(run_path, staging=1 << 20) as run:
            run.save(1, {"w": torch.ones(1 << 16)})
            raise ZeroDivisionError
    with ckpt.Run(run_path) as run:
        assert run.latest == 1
        monkeypatch.setattr("ckpt._tree.build", lambda flat: 1 / 0)  # in the middle of a save
        with pytest.raises(ZeroDivisionError):
            run.save(2, {"w": torch.ones(1 << 16)})
        monkeypatch.undo()
        run.save(3, {"w": torch.ones(2)})
    assert sorted(ckpt.open(path).info.step for path in run_path.glob("step-*")) == [1, 3]
    assert ckpt.verify(run_path).intact


def test_the_end_of_the_interpreter_waits_for_saves(run_path):
    code = ("import sys, ckpt, numpy\nrun = ckpt.Run(sys.argv[1], staging=64 << 20)\n"
            "run.save(7, {'w': numpy.ones(4 << 20)})")
    subprocess.run([sys.executable, "-c", code, run_path], check=True)
    with ckpt.Run(run_path) as run:
        assert run.latest == 7 and run.load(7).tree["w"].sum() == 4 << 20


@pytest.mark.parametrize("steps", [1, 2], ids=["first", "again"])
def test_arrays_need_no_torch(run_path, steps):
    code = ("import sys; sys.modules.update(torch=None, jax=None)\nimport ckpt, numpy\nwith ckpt.Run(sys.argv[1]) as run:\n"
            "    for step in range(int(sys.argv[2])):\n        run.save(step, {'w': numpy.arange(9)[::-1], 'n': step})\n"
            "    tree = run.load().tree\n    into = {'w': numpy.zeros(9, int), 'n': 0}\n    run.load(into=into)\n"
            "assert (tree['w'] == into['w']).all() and into['w'][0] == 8\nassert (ckpt.open(sys.argv[1])['w'].numpy() == tree['w']).all()")
    subprocess.run([sys.executable, "-c", code, run_path, str(steps)], check=True)


def test_a_failed_save_is_an_exception(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ckpt.Error) as failed:
        ckpt.Run(tmp_path / "file" / "run")
    assert failed.value.code in (2, 10, 16)


def test_a_forked_child_cannot_save(run_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: what a DataLoader does
        with ckpt.Run(run_path, staging=1 << 20) as run:
            run.save(1, {"n": 1}, wait=True)
            child = os.fork()
            if child == 0:
                try:
                    run.save(2, {"n": 2})
                except ckpt.Usage:
                    os._exit(42)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
            assert run.latest == 1


def resources():
    gc.collect()
    resident = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), resident


def test_two_hundred_saves_leak_nothing(run_path):
    tree = {"w": torch.zeros(1 << 16), "layers": [{"n": 1, "w": torch.ones(3)} for _ in range(20)]}
    with ckpt.Run(run_path, staging=8 << 20) as run:
        def save(step):
            run.save(step, tree, metrics={"loss": 1.0}, wait=True)
            run.load(into=tree)
            for old in sorted(run_path.glob("step-*"))[:-2]:
                subprocess.run(["rm", "-rf", old], check=True)

        for step in range(20):
            save(step)
        descriptors, threads, resident = resources()
        for step in range(20, 200):
            save(step)
        after = resources()
    assert after[0] <= descriptors and after[1] <= threads
    assert after[2] - resident < 24 << 20, "under 100 KB a save: a leaked tensor of 256 KiB would be 45 MiB"


def test_other_threads_run_during_a_save(run_path):
    counted = [0]
    stop = threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            stop.wait(0.001)

    thread = threading.Thread(target=count)
    with ckpt.Run(run_path) as run:
        tree = {"w": torch.zeros(32 << 20)}  # 128 MiB
        thread.start()
        before = counted[0]
        run.save(1, tree)
        during = counted[0] - before
        stop.set()
        thread.join()
    assert during > 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_tensors_on_a_cuda_device(run_path):
    whole = torch.randn(1000, 300, device="cuda")
    tree = {"whole": whole, "transposed": whole.t(), "strided": whole[::3, 5:9], "empty": whole[:0], "point": whole[0, 0],
            "large": torch.arange(80 << 20, device="cuda"), "half": whole.bfloat16(), "host": torch.ones(3)}
    copy = {name: tensor.cpu().clone() for name, tensor in tree.items()}
    with ckpt.Run(run_path, staging=1 << 30) as run:
        pending = run.save(1, tree)
        for tensor in tree.values():
            tensor.zero_()  # staged: may change
        pending.wait()
        into = {name: torch.zeros_like(tensor) for name, tensor in tree.items()}
        run.load(into=into)
    assert all(bits(into[name].cpu()) == bits(value) for name, value in copy.items())
    assert into["whole"].is_cuda
