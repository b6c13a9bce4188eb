"""The universal format for other programs: examples/read_universal.py, and verify on directories that violate
FORMAT.md."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

from runner import check, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
sys.path[:0] = [str(EXAMPLES), str(ROOT / "tests" / "interop")]


def numpy_is_here():
    if importlib.util.find_spec("numpy"):
        return True
    print("skipped: numpy is missing")
    return False


def plain_read(path):
    """The example's answer in the form of tests/interop/truth.py: dtype, shape, bytes."""
    import read_universal
    manifest, tensors, objects = read_universal.read(path)
    rows = {row["name"]: row for row in manifest["tensors"]}
    rows.update({row["name"]: rows[row["target"]] for row in manifest["aliases"]})
    return {name: (rows[name]["dtype"], tuple(map(int, rows[name]["shape"])), values.tobytes())
            for name, values in tensors.items()}, objects


def outcome(path):
    run = subprocess.run([sys.executable, EXAMPLES / "read_universal.py", path], capture_output=True, text=True)
    check("Traceback" not in run.stderr, run.stderr)
    return run.returncode


def case_the_example_reads_what_releases_wrote(sh):
    if not numpy_is_here():
        return
    import truth
    for name in ("ckpt/0.9-small", "ckpt/0.9-tied"):
        lines, compared = truth.differences(sh.golden / name, plain_read(sh.checkpoint(name))[0])
        check(not lines and compared > 0, "\n".join(lines[:10]))
    check(outcome(sh.checkpoint("ckpt/1.0-mesh")) == 12, "a layout that the example does not read")


def case_the_example_reads_what_convert_writes(sh):
    if not numpy_is_here():
        return
    import truth
    for name in ("deepspeed/zero2_bf16_dp4", "safetensors/dtypes", "torch/pt_dtypes"):
        target = sh.path(name.replace("/", "-"))
        sh.run("convert", sh.checkpoint(name), target, "--shard-size", "20KB", "--to", "ckpt")
        lines, compared = truth.differences(sh.golden / name, plain_read(target)[0])
        check(not lines and compared > 0, "\n".join(lines[:10]))


def case_the_example_refuses_what_is_damaged(sh):
    if not numpy_is_here():
        return
    good = sh.path("good")
    sh.run("convert", sh.checkpoint("ckpt/0.9-tied"), good)
    for file in sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file()):
        if str(file) == "index/manifest.json":
            continue  # reading does not need it
        bad = sh.path("bad")
        shutil.copytree(good, bad)
        data = bytearray((bad / file).read_bytes())
        data[len(data) // 2] ^= 1
        (bad / file).write_bytes(data)
        check(outcome(bad) == 15, f"{file}: a flipped bit")
        os.remove(bad / file)
        check(outcome(bad) == 13, f"{file}: missing")
        shutil.rmtree(bad)


def case_the_examples_hash_is_xxh3(sh):
    if not numpy_is_here():
        return
    from xxh3 import xxh3_128
    # XXH3_128bits of the library, over bytes of a generator, at every length at which the algorithm changes.
    data, state = bytearray(), 1
    for _ in range(2049):
        state = (state * 1664525 + 1013904223) & 0xffffffff
        data.append(state >> 24)
    for length, digest in KNOWN.items():
        check(xxh3_128(bytes(data[:length])).hex() == digest, f"{length} bytes")


KNOWN = {
    1: "beff62be44bc9be4429e81bc6744101c",
    2: "e06f6948991f8637a65771cbfd464c2d",
    3: "9dce807f4a9aaa5632dbb5c7774cc94f",
    4: "9772187e76395ea05def542b8e8255bb",
    5: "7f628d5a7483bbec7a25306dedbc0165",
    8: "29a3277f85f28675da3ca77f4508da63",
    9: "57fc1cef528bd18785e53a642b77ffab",
    12: "1f204d9220906ac76291f44304248516",
    16: "f8ae1a6f144fb00b4c6929dc65a535a0",
    17: "0ad716e7cfed9dc843287186cdfec85d",
    32: "3061e37048c04caacf805526ea96182f",
    33: "7787bc63ca3818d69fc38e5c19be3ef3",
    64: "87477a4bb45568ed4cbebc1074a4c793",
    65: "1df8ba4eac471be18f4238b9da164902",
    96: "6eea949b1d64d297bc2bc1d3d2a98617",
    97: "3abe16c7b27cae022dc297aec6120b11",
    128: "2b83749a25627c556772960c7e09e15b",
    129: "d2c5fdf14399d768d15020c0444d308f",
    130: "801f57ab57489244b8e527ec30aea21b",
    160: "0cbccabccae4eb0df9025b7b4fa59974",
    239: "4a7316f241d6d324ffda43ed497caa57",
    240: "b2c3c2aa029b2279e16f608e11e76335",
    241: "e75e577a31d24834d6afac6f8fa85b01",
    255: "5afba4ec2dcd2de122062a421972fdde",
    256: "5f3bd3b68315e0249e6593bab96413da",
    1023: "dfd1bc5c5a55d341120a0457e3e899f6",
    1024: "1ac8856c8b289d9abb9f0c3761cdfd54",
    1025: "15379a00bb4cec9895edccc1adc4d895",
    1088: "1d6f34c84443eb69e8391a3978cbcf06",
    2048: "dda6abe2811d8216278f7a6a39416b51",
    2049: "8030e23166b51b02644272755e8980a0",
}


def case_data_files_that_no_record_names_are_damage(sh):
    """Programs that read every *.safetensors of a folder would read them too."""
    sh.run("convert", sh.checkpoint("ckpt/0.9-tied"), "c")
    sh.run("verify", "c")
    for stray, word in (("shards/weights/00099-00000.safetensors", "looks like a data file"), ("index/00042.bin", "looks like a data file"),
                        ("shards/optim/copy.safetensors", "looks like a data file"), ("shards/old.safetensors", "looks like a data file")):
        (sh.path("c") / stray).write_bytes(b"x")
        sh.run("verify", "c", code=1, out=f"{stray} is not part of this checkpoint.*{word}.*check 62")
        sh.run("convert", "c", "out.safetensors", "--allow-skipped", "--overwrite")  # others ignore it
        os.remove(sh.path("c") / stray)
    for stray in ("shards/weights/README", "index/00042.bin.tmp"):
        (sh.path("c") / stray).write_bytes(b"x")
        sh.run("verify", "c", out=f"{stray} is not part of this checkpoint")


def case_a_damaged_mark_is_named_and_keeps_protecting(sh):
    sh.run("convert", sh.checkpoint("ckpt/0.9-tied"), "c")
    (sh.path("c") / "marks").mkdir()
    text = '{"schema":"ckpt.mark/1","kind":"pin","name":"p","until":"2030-01-02T00:00:00Z","xxh3":"' + "0" * 32 + '"}\n'
    (sh.path("c") / "marks" / "pin-0123456789abcdef.json").write_text(text)
    sh.run("verify", "c", err=r"warning: .*pin-0123456789abcdef\.json.*checksum")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
