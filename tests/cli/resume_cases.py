"""A conversion that is killed, and the next one, which continues from its finished leaves."""
import json
import os
import signal
import time

from console_cases import big_checkpoint, end, start
from runner import check, main

LEAF = 4 << 20


def left_overs(sh, target):
    """Partials of a target; its records, which name the leaves that are finished."""
    names = [name for name in os.listdir(sh.directory) if name.startswith(target + ".partial-")]
    return ([name for name in names if not name.endswith(".leaves")], [name for name in names if name.endswith(".leaves")])


def finished_leaves(sh, target):
    count = 0
    for name in left_overs(sh, target)[1]:
        slots = sh.path(name).read_bytes()[64:]
        count += sum(slots[at:at + 16] != bytes(16) for at in range(0, len(slots), 32))
    return count


def killed_midway(sh, *words, target, which=signal.SIGKILL):
    """Runs a conversion of a large checkpoint, twice as large if the last one ended too soon, and kills it when some
    leaf is finished."""
    for mebibytes in (256, 512, 1024, 2048, 4096):
        big_checkpoint(sh, mebibytes=mebibytes)
        process = start(sh, "convert", "big.safetensors", target, "--threads", "1", *words)
        deadline = time.monotonic() + 120
        while process.poll() is None and finished_leaves(sh, target) == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(which)
        result = end(process, list(words))
        if not os.path.exists(sh.path(target)):
            partials, records = left_overs(sh, target)
            check(len(partials) == 1 and len(records) == 1 and finished_leaves(sh, target) > 0, "nothing is left to go on from", result)
            return result
        for name in [target, *sum(left_overs(sh, target), [])]:
            os.remove(sh.path(name))
    raise AssertionError("no conversion lasted long enough to be killed")


def expect_goes_on(sh, *words, target):
    """The next run reuses finished leaves, and its bytes equal those of an undisturbed run."""
    finished = finished_leaves(sh, target)
    data = sh.document("convert", "big.safetensors", target, *words)["data"]
    check(LEAF <= data["resumed_bytes"] <= finished * LEAF, f"{data['resumed_bytes']} of {finished} leaves")
    check(left_overs(sh, target) == ([], []), str(os.listdir(sh.directory)))
    if target.endswith(".h5"):  # the converter's own second run must be identical, whatever the library writes
        name = "again.h5"
    else:
        name = "again.safetensors"
    sh.run("convert", "big.safetensors", name, *words)
    with open(sh.path(target), "rb") as one, open(sh.path(name), "rb") as other:
        while True:
            a, b = one.read(1 << 24), other.read(1 << 24)
            check(a == b, "another result than in one go")
            if not a:
                break
    sh.run("convert", "big.safetensors", target, *words, out="^already done: ")


def case_killed_it_goes_on_where_it_was(sh):
    killed_midway(sh, "--dtype", "bf16", target="o.safetensors")
    expect_goes_on(sh, "--dtype", "bf16", target="o.safetensors")


def case_killed_it_goes_on_in_hdf5(sh):
    if not os.access(os.path.join(os.path.dirname(sh.program), "ckpt-h5"), os.X_OK):
        return  # built without HDF5
    killed_midway(sh, target="o.h5")
    expect_goes_on(sh, target="o.h5")


def case_stopped_it_says_what_it_leaves_and_goes_on(sh):
    result = killed_midway(sh, target="o.safetensors", which=signal.SIGTERM)
    check(result.code == 143 and "nothing was written to o.safetensors" in result.err, "no message", result)
    check("to continue from" in result.err and "--restart" in result.err, "no word of what it leaves", result)
    expect_goes_on(sh, target="o.safetensors")


def case_the_summary_says_what_was_there(sh):
    killed_midway(sh, target="o.safetensors")
    sh.run("convert", "big.safetensors", "o.safetensors", "-n", out="^note +.*was left by this conversion; the next run continues from it")
    sh.run("convert", "big.safetensors", "o.safetensors", out=["^resumed .*iB of .*iB already written and verified$", "^done "])


def case_restart_begins_anew(sh):
    killed_midway(sh, target="o.safetensors")
    data = sh.document("convert", "big.safetensors", "o.safetensors", "--restart")["data"]
    check(data["resumed_bytes"] == 0, str(data))
    check(left_overs(sh, "o.safetensors") == ([], []), str(os.listdir(sh.directory)))


def case_other_parameters_begin_anew_and_name_what_is_left(sh):
    killed_midway(sh, target="o.safetensors")
    partials, _ = left_overs(sh, "o.safetensors")
    document = sh.document("convert", "big.safetensors", "o.safetensors", "--dtype", "bf16")
    check(document["data"]["resumed_bytes"] == 0, str(document))
    check(partials[0] in [os.path.basename(note.get("file", "")) for note in document["data"]["notes"]], json.dumps(document))
    check(left_overs(sh, "o.safetensors")[0] == partials, "another conversion's left-over is not this one's to remove")


if __name__ == "__main__":
    main({name: value for name, value in globals().items() if name.startswith("case_")})
