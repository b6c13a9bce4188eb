"""Damaged and hostile checkpoints, as a user meets them: the right exit code, one error that names the file and the next
step, in bounded memory and time, and nothing left behind."""
import hashlib
import json
import os
import pathlib
import pickle
import resource
import shutil
import socket
import struct
import subprocess
import zipfile

from runner import Result, check, is_sanitized, main

MEMORY = 256 << 20            # the --memory of each run
ADDRESSES = MEMORY + (1 << 30)  # and its limit of address space, program and threads included
SECONDS = 20  # of a processor

BROKEN = {"corrupt": 15, "incomplete": 13, "unsupported": 12, "refused": 15}
UNREAD = ("orbax_",)  # formats that are recognised but not read: refused as such


def limited(sh):
    """Starts a program within ADDRESSES. Sanitizers reserve terabytes: those builds run as they are."""
    if is_sanitized(sh.program):
        return []
    return ["prlimit", f"--as={ADDRESSES}"]


def processor_seconds():
    """Of all finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def refused(sh, source, codes, *flags, verb="convert"):
    """One run of a verb that must end with one of these codes."""
    codes = codes if isinstance(codes, tuple) else (codes,)
    words = [verb, source, *(["out.ckpt"] if verb == "convert" else []), "--memory", str(MEMORY), "--json", *flags]
    before = sorted(p.name for p in sh.directory.iterdir())
    before_s = processor_seconds()
    run = subprocess.run([*limited(sh), sh.program, *map(os.fspath, words)], cwd=sh.directory, env=sh.environment(),
                         timeout=600, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    seconds = processor_seconds() - before_s  # regardless of the machine's load
    result = Result([str(w) for w in words], run.returncode, run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace"))
    check(run.returncode in codes and result.out, f"exit {run.returncode}, not one of {codes}", result)
    check(seconds < SECONDS or is_sanitized(sh.program), f"took {seconds:.1f} s of a processor", result)
    document = json.loads(result.out or "{}")
    check(not sh.schemas.findings(verb, document), "not of its schema", result)
    check(sorted(p.name for p in sh.directory.iterdir()) == before, "something is left behind", result)
    if run.returncode == 1:
        return check(document["data"]["damage"], "no damage is named", result)
    check(len(document["errors"]) == 1, "not one error", result)
    error = document["errors"][0]
    check(error["exit_code"] == run.returncode and error["message"] and len(error["message"]) < 2000, "its message", result)
    check(error.get("file") and error["hint"], "no file or no next step", result)
    return error


def case_every_broken_checkpoint_is_refused_with_its_code(sh):
    helper = os.access(os.path.join(os.path.dirname(sh.program), "ckpt-h5"), os.X_OK)  # else built without HDF5
    unread = UNREAD if helper else (*UNREAD, "hdf5_")
    for case in sorted((sh.golden / "broken").iterdir()):
        about = json.loads((case / "about.json").read_text())
        expected = about["expected"]
        code = 12 if case.name.startswith(unread) else BROKEN[expected["error"]]
        source = case / "ckpt"
        if case.name == "empty_directory":
            source = sh.path("empty")
            source.mkdir(exist_ok=True)
        if case.name == "orbax_uncommitted":
            code = 13
        for verb, codes in (("convert", code), ("verify", (1, code))):  # damage found by verify is its result
            try:
                refused(sh, source, codes, verb=verb)
            except AssertionError as error:
                raise AssertionError(f"{case.name}: {error}") from None
        if expected.get("must_not_exist"):
            check(not list(sh.directory.rglob(expected["must_not_exist"])), "the pickle was executed")


# --- safetensors -----------------------------------------------------------------------------------------------------


def header(sh, text, length=None, data=b"", name="x.safetensors"):
    text = text if isinstance(text, bytes) else text.encode()
    path = sh.path(name)
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def case_headers_that_lie_are_corrupt(sh):
    for length in (1 << 63, (1 << 64) - 1, (1 << 64) - 8, 1 << 40, 100_000_001):
        refused(sh, header(sh, "{}", length=length), (15, 12))
    entry = '{"w":{"dtype":"%s","shape":%s,"data_offsets":%s}}'
    for text in (entry % ("F32", "[-1]", "[0,4]"), entry % ("F32", "[1]", "[-4,0]"), entry % ("F32", "[NaN]", "[0,4]"),
                 entry % ("F32", "[18446744073709551615,2]", "[0,8]"), entry % ("F32", "[1e30]", "[0,4]"),
                 entry % ("F32", "[1]", "[18446744073709551612,18446744073709551616]"),
                 entry % ("F32", "[1]", "[18446744073709551612,0]"), entry % ("Q4_K", "[4]", "[0,4]"),
                 entry % ("F32", "[1]", "[0,Infinity]"), '{"__metadata__":{"a":NaN}}'):
        refused(sh, header(sh, text, data=bytes(8)), (15, 12))


def case_a_hundred_megabytes_of_json_are_refused_in_bounded_memory(sh):
    sh.needs_free(400)
    size = 99_000_000
    bombs = {"arrays": b'{"a":' + b"[" * size, "numbers": b'{"a":[' + b"0," * (size // 2) + b"0]}",
             "texts": b'{"__metadata__":{"a":"' + b"x" * size + b'"', "objects": b'{"a":[' + b"{}," * (size // 3) + b"{}]}",
             "keys": b"{" + b",".join(b'"%d":0' % i for i in range(size // 12)) + b"}",
             "duplicates": b"{" + b'"a":0,' * (size // 6) + b'"a":0}'}
    for name, text in bombs.items():
        refused(sh, header(sh, text.ljust(size)), (15, 17))
        directory = sh.path("hf")
        directory.mkdir(exist_ok=True)
        (directory / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
        (directory / "model.safetensors.index.json").write_bytes(b'{"metadata":{},"weight_map":' + text + b"}")
        refused(sh, directory, (15, 17), verb="inspect")
    sh.path("x.safetensors").unlink()


# --- directories -----------------------------------------------------------------------------------------------------


def copy_of(sh, case, name):
    target = sh.path(name)
    for path in (sh.golden / case / "ckpt").rglob("*"):
        place = target / path.relative_to(sh.golden / case / "ckpt")
        if path.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return target


def plant(kind, path):
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        folder = os.open(path.parent, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(f"/proc/self/fd/{folder}/{path.name}")  # a socket's path is short
        os.close(folder)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "directory":
        path.mkdir()


def case_what_is_no_plain_file_is_refused_and_never_waited_for(sh):
    places = {"torch/dcp_plain": [".metadata", "__1_0.distcp"],
              "safetensors/llama_sharded": ["model.safetensors.index.json", "model-00002-of-00002.safetensors"],
              "deepspeed/zero2_bf16_dp4": ["latest", "global_step3/mp_rank_00_model_states.pt",
                                           "global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"],
              "torch/pt_mixed": ["mixed.pt"],
              "ckpt/0.9-small": ["manifest.json", "sums.bin", "blobs/objects.json", "shards/optim/00000-00000.safetensors"]}
    number = 0
    for case, files in places.items():
        for file in files:
            for kind in ("pipe", "socket", "device", "loop", "dangling", "directory"):
                number += 1
                source = copy_of(sh, case, f"c{number}")
                plant(kind, source / file)
                try:
                    if file.endswith(("index.json", "latest")):  # non-files do not count
                        sh.run("inspect", source, launcher=limited(sh))
                    else:
                        refused(sh, source, (15, 13, 12, 10, 16))
                except AssertionError as error:
                    raise AssertionError(f"{case}/{file} as {kind}: {error}") from None


def case_links_to_plain_files_are_followed(sh):  # as the cache of Hugging Face has them
    source = copy_of(sh, "safetensors/llama_sharded", "linked")
    for path in source.iterdir():
        kept = sh.path(f"blob-{path.name}")
        path.rename(kept)
        if path.name.endswith("json"):
            os.link(kept, path)
        else:
            path.symlink_to(kept)
    sh.run("convert", source, "out.ckpt", launcher=limited(sh))


def case_files_of_absurd_size_are_refused(sh):
    number = 0
    for case, file in (("torch/dcp_plain", ".metadata"), ("deepspeed/zero2_bf16_dp4", "latest"),
                       ("ckpt/0.9-small", "manifest.json"), ("ckpt/0.9-small", "sums.bin"),
                       ("safetensors/llama_sharded", "model.safetensors.index.json"),
                       ("deepspeed/zero2_bf16_dp4", "global_step3/mp_rank_00_model_states.pt")):
        for size in (600 << 20, 3 << 30, 1 << 40):
            number += 1
            source = copy_of(sh, case, f"c{number}")
            os.truncate(source / file, size)  # a hole: no disk is needed
            try:
                refused(sh, source, (15, 17, 12, 13))
            except AssertionError as error:
                raise AssertionError(f"{case}/{file} of {size} bytes: {error}") from None


# --- pickles and archives --------------------------------------------------------------------------------------------


def torch_zip(sh, data, extra=(), name="x.pt", compression=zipfile.ZIP_STORED):
    path = sh.path(name)
    path.unlink(missing_ok=True)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data)
        for entry, content in extra:
            archive.writestr(entry, content)
    return path


def case_pickles_that_would_fill_memory_are_refused(sh):
    sh.needs_free(200)

    def memo_bomb(depth):
        out = b"\x80\x02]q\x00"
        for i in range(depth):
            out += b"](h" + bytes([i]) + b"h" + bytes([i]) + b"h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1])
        return out + b"."

    many = 3_000_000 if is_sanitized(sh.program) else 60_000_000  # a sanitizer makes each step some 20 times as slow
    bombs = {"shared lists": memo_bomb(200), "far memo": b"\x80\x02Nr\xff\xff\xff\xff.", "deep tuples": b"\x80\x02" + b"(" * 900000,
             "deep lists": b"\x80\x02" + b"](" * 200000 + b"e" * 200000 + b".", "huge text": b"\x80\x02X\xff\xff\xff\x7f.",
             "huge bytes": b"\x80\x04\x8e" + b"\xff" * 8 + b".", "huge long": b"\x80\x02\x8b\xff\xff\xff\x7f" + b"1" * 100 + b".",
             "many lists": b"\x80\x02" + b"]" * many, "many marks": b"\x80\x02" + b"(" * many,
             "many memos": b"\x80\x04N" + b"\x94" * many + b".", "later protocol": b"\x80\x09N.",
             "many duplicates": b"\x80\x02]" + b"2a" * (many // 2) + b"."}
    for name, data in {**bombs, **shared_bombs()}.items():
        try:
            refused(sh, torch_zip(sh, data), (15, 12, 17))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def shared_bombs():
    """Pickles of some MB that hold one thing many times: a reader that copies it at each place needs GB, or hours."""
    def text(data):
        return b"X" + struct.pack("<I", len(data)) + data

    long, named = text(b"a" * 10_000_000), [text(b"%07d" % i) for i in range(100_000)]
    kept = b"\x80\x02" + long + b"q\x010"
    return {"a list in itself": b"\x80\x02]" + b"2a" * 32_000 + b".",
            "values of one text": kept + b"}(" + b"".join(key + b"h\x01" for key in named[:1000]) + b"u.",
            "keys of one text": kept + b"}(" + b"h\x01K\x01" * 1000 + b"u.",
            "dicts of one key": kept + b"](" + b"}h\x01K\x01s" * 1000 + b"e.",
            "many below a long key": b"\x80\x02}" + long + b"}(" + b"".join(key + b"]" for key in named[:1000]) + b"us.",
            "a long list under many keys": b"\x80\x02](" + b"K\x01" * 100_000 + b"eq\x010}(" + b"".join(key + b"h\x01" for key in named) + b"u.",
            "groups of an optimizer that is held many times": b"\x80\x02}(" + text(b"state") + b"}" + text(b"param_groups") + b"]}(" + text(b"params")
                + b"](" + b"K\x01" * 20_000 + b"e" + text(b"param_names") + b"](" + b"".join(named[:20_000]) + b"euauq\x010]("
                + b"h\x01" * 1000 + b"e.",
            "a class with a long name": b"\x80\x02c" + b"m" * 10_000_000 + b"\nn\nq\x010](" + b"h\x01)R" * 1000 + b"e."}


def case_a_deepspeed_pickle_that_repeats_one_thing_is_refused(sh):
    sh.needs_free(200)
    bombs = shared_bombs()
    for name in ("a list in itself", "groups of an optimizer that is held many times"):  # here each is one object
        del bombs[name]
    for name, data in bombs.items():
        source = copy_of(sh, "deepspeed/zero2_bf16_dp4", "bomb")
        file = source / "global_step3/mp_rank_00_model_states.pt"
        with zipfile.ZipFile(file) as archive:
            entries = {entry: archive.read(entry) for entry in archive.namelist()}
        with zipfile.ZipFile(file, "w") as archive:
            for entry, content in entries.items():  # the dict of the file gets one more key
                more = b"X\x05\0\0\0extra" + data[2:-1] + b"s."
                archive.writestr(entry, content[:-1] + more if entry.endswith("/data.pkl") else content)
        try:
            refused(sh, source, 15)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        shutil.rmtree(source)


def case_equal_keys_that_are_no_text_take_no_time(sh):
    key = b"G" + struct.pack(">d", 1.5)
    path = torch_zip(sh, b"\x80\x02}(" + key + b"q\x01N" + b"h\x01N" * 20_000 + b"u.")
    before = processor_seconds()
    sh.run("inspect", path, out="20 001 values")
    check(processor_seconds() - before < SECONDS or is_sanitized(sh.program), "took too long")


def case_archives_that_lie_are_refused(sh):
    plain = pickle.dumps({"a": 1}, protocol=2)
    refused(sh, torch_zip(sh, plain, compression=zipfile.ZIP_DEFLATED), 15)
    refused(sh, torch_zip(sh, plain, [("archive/data.pkl", plain)]), 15)
    refused(sh, torch_zip(sh, plain, [("archive/../../x", b"1")]), 15)
    refused(sh, torch_zip(sh, plain, [("/etc/passwd", b"1")]), 15)
    path = torch_zip(sh, plain, [("archive/data/0", bytes(64)), ("archive/data/1", bytes(64))])
    sound = path.read_bytes()
    directory = sound.index(b"PK\1\2")
    second = sound.index(b"PK\1\2", sound.index(b"PK\1\2", directory + 1) + 1)
    for offset in (0, 0xfffffff0, directory, len(sound)):  # the recorded place of its data: another entry's, or outside
        path.write_bytes(sound[:second + 42] + struct.pack("<I", offset) + sound[second + 46:])
        refused(sh, path, 15)


def case_later_versions_say_so(sh):
    source = copy_of(sh, "ckpt/0.9-small", "later")
    text = (source / "manifest.json").read_text()
    for path in (source / "manifest.json", source / "index/manifest.json"):
        path.write_text(text.replace('"version":"0.9"', '"version":"9.0"'))
    refused(sh, source, (12, 15))


def case_a_link_to_data_that_is_gone_is_a_file_that_is_missing(sh):
    run = sh.path("run/checkpoint-3")
    shutil.copytree(sh.checkpoint("torch/pt_trainer"), run)
    os.symlink("../checkpoint-1/model.safetensors", run / "model.safetensors")
    for verb in (["verify"], ["verify", "--quick"]):
        sh.run(*verb, "run/checkpoint-3", code=13, id="E1300", err=["model.safetensors is a link to a file that is missing"])
    sh.run("convert", "run/checkpoint-3", "out", code=13, err="model.safetensors is a link")
    os.symlink("nowhere", run / "latest_log")  # data of no tensor
    (run / "model.safetensors").unlink()
    sh.run("verify", "run/checkpoint-3")


def case_a_checkpoint_of_which_the_optimizer_is_left_is_not_whole(sh):
    run = sh.path("checkpoint-3")
    shutil.copytree(sh.checkpoint("torch/pt_trainer"), run)
    weights = [p for p in run.iterdir() if not p.name.startswith(("optimizer", "scheduler", "rng_state", "training_args", "scaler"))]
    check(weights and (run / "optimizer.pt").exists(), str(list(run.iterdir())))
    for path in weights:
        path.unlink()
    sh.run("verify", "checkpoint-3", code=13, id="E1300", err=["no weights"])
    sh.run("inspect", "checkpoint-3", code=13, err="no weights")
    sh.run("convert", "checkpoint-3/optimizer.pt", "optimizer", out="^done ")



def case_digests_that_megatron_states_are_compared_with_the_files(sh):
    run = sh.path("run")
    shutil.copytree(sh.checkpoint("megatron/core_torch_dist_w4"), run)
    sh.run("verify", run, not_out="SHA-256")
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in run.iterdir()}
    (run / "integrity.json").write_text(json.dumps({"algorithm": "sha256", "files": digests}))
    sh.run("verify", run, out="SHA-256 of 7 files")
    sh.run("verify", run, "--quick", not_out="SHA-256")
    sh.run("convert", run, "again", "--to", "megatron")
    check(not list(sh.path("again").rglob("integrity.json")), "a conversion states digests of other files")
    whole = (run / "metadata.json").read_text()
    (run / "metadata.json").write_text(whole + "\n")
    sh.run("verify", run, code=1, out=["sha256: expected " + digests["metadata.json"], "metadata.json"])
    (run / "metadata.json").write_text(whole)
    (run / "integrity.json").write_text(json.dumps({"algorithm": "sha256", "files": digests | {"gone": "0" * 64}}))
    sh.run("verify", run, code=1, out=["gone", "a digest of it is stated, but it is missing"])
    (run / "integrity.json").write_text(json.dumps({"algorithm": "md5", "files": {}}))
    sh.run("verify", run, code=12, err="integrity.json: digests of 'md5' are not computed")
    (run / "integrity.json").write_text(json.dumps({"algorithm": "sha256", "files": {"../x": "0" * 64}}))
    sh.run("verify", run, code=15, err="names a file outside of its directory")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
