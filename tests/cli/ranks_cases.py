"""Under mpirun: one rank prints, one exit code, the same result."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tarfile
import time

from console_cases import big_checkpoint, wait_for_partial
from runner import check, main

ZERO2 = "deepspeed/zero2_bf16_dp4"


def launched(sh, ranks):
    return [sh.mpirun, "--oversubscribe", "-n", str(ranks)]


def case_convert_on_three_ranks_speaks_once_and_gives_the_same_bytes(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "one", "--to", "safetensors")
    result = sh.run("convert", sh.checkpoint(ZERO2), "three", "--to", "safetensors", launcher=launched(sh, 3), env=sh.mpi_environment)
    check(len(re.findall("^done ", result.out, re.M)) == 1, "not one voice", result)
    check(re.search("^plan .* each · 3 ranks", result.out, re.M), "the plan does not name the ranks", result)
    for name in os.listdir(sh.path("one")):
        check((sh.path("one") / name).read_bytes() == (sh.path("three") / name).read_bytes(), f"{name} differs", result)


def case_three_ranks_read_a_tar_archive(sh):
    with tarfile.open(sh.path("run.tar"), "w:") as archive:
        archive.add(sh.checkpoint(ZERO2), arcname="run")
    sh.run("convert", sh.checkpoint(ZERO2), "one", "--to", "safetensors")
    sh.run("convert", "run.tar", "three", "--to", "safetensors", launcher=launched(sh, 3), env=sh.mpi_environment)
    sh.run("diff", "one", "three", out=" 0 different, 0 only here, 0 only there")


def case_a_save_on_three_ranks_is_the_one_of_one_rank(sh):
    words = ("save", sh.checkpoint(ZERO2), "--run", "r", "--step", "7", "--store")
    sh.run(*words, "one")
    result = sh.run(*words, "three", launcher=launched(sh, 3), env=sh.mpi_environment)
    check(len(re.findall("^saved   r@7$", result.out, re.M)) == 1, "not one voice", result)
    for path in sh.path("one/r").rglob("*"):
        same = sh.path("three") / path.relative_to(sh.path("one"))
        check(path.is_dir() or path.read_bytes() == same.read_bytes(), f"{path} differs")
    again = sh.document(*words, "three", launcher=launched(sh, 3), env=sh.mpi_environment)["data"]
    check(again["conversion"]["already_done"], str(again))


def case_a_name_of_the_store_is_looked_up_once_for_all_ranks(sh):
    sh.run("save", sh.checkpoint(ZERO2), "--run", "r", "--step", "7", "--store", "runs")
    sh.run("convert", "r@latest", "out", "--store", "runs", out="^done ", launcher=launched(sh, 3), env=sh.mpi_environment)
    result = sh.run("convert", "r@8", "other", "--store", "runs", code=10, launcher=launched(sh, 3), env=sh.mpi_environment,
                    err="run 'r' has no step 8")
    check(len(re.findall("^error:", result.err, re.M)) == 1, "not one message", result)


def case_json_under_mpirun_is_one_document(sh):
    sh.document("convert", sh.checkpoint(ZERO2), "o", launcher=launched(sh, 3), env=sh.mpi_environment)


def case_counts_are_of_all_ranks(sh):
    big_checkpoint(sh, mebibytes=128)
    data = sh.document("convert", "big.safetensors", "o.safetensors", launcher=launched(sh, 3), env=sh.mpi_environment)["data"]
    check(data["source"]["read_bytes"] >= 128 << 20, str(data["source"]))


def case_damage_anywhere_in_a_universal_source_is_found_by_one_rank_and_by_two(sh):
    """In a header, inside tensors, in a leaf that two ranks share, in the last byte."""
    sizes, entries, end = [("a", 9 << 20), ("b", (13 << 20) + 6000), ("c", 100)], {}, 0
    for name, bytes_ in sizes:
        entries[name] = {"dtype": "U8", "shape": [bytes_], "data_offsets": [end, end + bytes_]}
        end += bytes_
    header = json.dumps(entries).encode()
    sh.path("m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + random.Random(3).randbytes(end))
    sh.run("convert", "m.safetensors", "u")
    [shard] = sh.path("u/shards/weights").iterdir()
    size, leaf = shard.stat().st_size, 4 << 20
    for at in (60, 4096, leaf - 1, leaf, 11 << 20, (11 << 20) + 5000, 3 * leaf, size - 1):
        data = bytearray(shard.read_bytes())
        data[at] ^= 4
        shard.write_bytes(data)
        for launcher in ([], launched(sh, 2)):
            sh.run("convert", "u", "o.safetensors", code=15, launcher=launcher, env=sh.mpi_environment,
                   err=[f"xxh3 of bytes {at // leaf * leaf}[.][.]", "ckpt verify u"])
            check(not sh.path("o.safetensors").exists(), f"damage at {at} was published")
        data[at] ^= 4
        shard.write_bytes(data)
    for ranks in (1, 2):
        document = sh.document("convert", "u", f"o{ranks}.safetensors", launcher=launched(sh, ranks), env=sh.mpi_environment)
        check(document["data"]["verify"]["source_hashes"] == (size + leaf - 1) // leaf, str(document["data"]["verify"]))


def case_the_peak_is_that_of_the_largest_rank(sh):
    """Rank 0 has one thread, so few buffers; rank 1 has eight, each with its buffers."""
    big_checkpoint(sh, mebibytes=256)
    one = [sh.mpirun, "--oversubscribe", "-n", "1", "-x", "CKPT_THREADS=1", sh.program, "convert",
           "big.safetensors", "o.safetensors", "--json", ":", "-n", "1", "-x", "CKPT_THREADS=8"]
    data = sh.document("convert", "big.safetensors", "o.safetensors", launcher=one, env=sh.mpi_environment)["data"]
    check(data["memory"]["peak_bytes"] > 64 << 20, f"the peak of rank 0: {data['memory']}")


def case_a_failure_is_told_once_with_one_exit_code(sh):
    broken = sh.checkpoint("broken/zero2_missing_rank")
    result = sh.run("convert", broken, "o", code=13, launcher=launched(sh, 3), env=sh.mpi_environment, err="^  rank     ")
    check(len(re.findall("^error:", result.err, re.M)) == 1, "not one message", result)
    check(os.listdir(sh.directory) == [], "left-overs")
    broken = sh.checkpoint("broken/zip_flipped_tensor_byte")
    for _ in range(8):  # mpirun kills the others once one has ended: none may end before rank 0 has printed the error
        result = sh.run("convert", broken, "o.safetensors", code=15, launcher=launched(sh, 3), env=sh.mpi_environment,
                        id="E1503", err=["^  tensor   emb.weight", r"^  rank     \d on "])
        check(len(re.findall("^error:", result.err, re.M)) == 1, "not one message", result)
    check(os.listdir(sh.directory) == [], "left-overs")


def case_a_late_rank_0_still_tells_a_mistake(sh):
    late = [sh.mpirun, "--oversubscribe", "-n", "1", "sh", "-c", f"sleep 1; exec '{sh.program}' convert --nonsense", ":", "-n", "2"]
    result = sh.run("convert", "--nonsense", code=2, launcher=late, env=sh.mpi_environment)
    check(len(re.findall("^error:", result.err, re.M)) == 1, "not one message", result)


def case_no_plug_in_is_loaded_from_the_current_directory(sh):
    """A downloaded checkpoint may hold a file of that name. This one is not a library, so opening it would show in the
    error."""
    sh.path("libckpt_mpi.so").write_text("not a library")
    shutil.copy(sh.checkpoint("safetensors/single") / "model.safetensors", sh.path("x.safetensors"))
    for searched in ({}, {"LD_LIBRARY_PATH": ""}, {"LD_LIBRARY_PATH": "."}):
        environment = {**sh.environment(sh.mpi_environment), "SLURM_STEP_NUM_TASKS": "2", **searched}
        environment["PATH"] = f"{os.path.dirname(sh.program)}:{environment['PATH']}"
        for words in (["convert", "x.safetensors", "o"], ["save", "x.safetensors", "--store", "s", "--run", "r", "--step", "1"]):
            run = subprocess.run(["ckpt", *words], cwd=sh.directory, env=environment, timeout=60, stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True)
            check("invalid ELF header" not in run.stderr and "file too short" not in run.stderr, run.stderr)
    sh.path("bin").mkdir()  # only the program, as if the package with the plug-in were not installed
    shutil.copy(sh.program, sh.path("bin/ckpt"))
    run = subprocess.run(["bin/ckpt", "convert", "x.safetensors", "o"], cwd=sh.directory, timeout=60, stdin=subprocess.DEVNULL,
                         env={**sh.environment(), "SLURM_STEP_NUM_TASKS": "2", "LD_LIBRARY_PATH": "."}, capture_output=True, text=True)
    check(run.returncode == 2 and "not installed next to ckpt" in " ".join(run.stderr.split()), run.stderr)


def ranks_of(launcher):
    """Process ids of the ranks: the descendants of mpirun that run ckpt."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
                parents[int(entry)] = (int(rest.split()[1]), name)
            except OSError:
                pass
    def below(pid):
        while pid > 1 and pid in parents:
            pid = parents[pid][0]
            if pid == launcher:
                return True
        return False
    return [pid for pid, (_, name) in parents.items() if name == "ckpt" and below(pid)]


def case_a_killed_rank_ends_all_within_a_minute_and_publishes_nothing(sh):
    big_checkpoint(sh, mebibytes=2048)
    process = subprocess.Popen([*launched(sh, 3), sh.program, "convert", "big.safetensors", "o", "--threads", "1"],
                               cwd=sh.directory, env=sh.environment(sh.mpi_environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    wait_for_partial(sh, process)
    victim = max(ranks_of(process.pid))
    start = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    process.communicate(timeout=120)
    check(process.returncode != 0, "success without a rank")
    check(time.monotonic() - start < 60, "more than 60 s")
    check(not sh.path("o").exists(), "published")


def case_sigterm_to_mpirun_leaves_a_whole_target_or_none_and_one_message_at_most(sh):
    """mpirun forwards the signal with a delay, and kills after a second: the program may end before either."""
    big_checkpoint(sh, mebibytes=2048)
    process = subprocess.Popen([*launched(sh, 3), sh.program, "convert", "big.safetensors", "o", "--threads", "1"],
                               cwd=sh.directory, env=sh.environment(sh.mpi_environment), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_partial(sh, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    check(process.returncode != 0, "success after SIGTERM")
    check(err.count(b"error:") <= 1, err.decode())
    if sh.path("o").exists():
        sh.run("verify", "o", "--against", "big.safetensors")


def case_reading_verbs_are_done_by_rank_0_alone(sh):
    for verb in ("inspect", "ls", "verify"):
        alone = sh.run(verb, sh.checkpoint(ZERO2))
        several = sh.run(verb, sh.checkpoint(ZERO2), launcher=launched(sh, 3), env=sh.mpi_environment)
        first = lambda result: result.out.splitlines()[0].split("   ")[0]
        check(len(several.out.splitlines()) == len(alone.out.splitlines()) and first(several) == first(alone), "not one voice", several)
    sh.run("verify", sh.checkpoint("broken/zip_flipped_tensor_byte"), code=1, launcher=launched(sh, 2), env=sh.mpi_environment)


def case_mistakes_are_told_once(sh):
    result = sh.run("convrt", code=2, launcher=launched(sh, 3), env=sh.mpi_environment, err="did you mean")
    check(len(re.findall("^error:", result.err, re.M)) == 1, "not one message", result)


def case_a_promised_world_that_cannot_be_joined_is_2(sh):
    """The environment of a launcher, without the launcher: every rank would assume that it is alone."""
    result = sh.run("convert", sh.checkpoint(ZERO2), "o", code=2, id="E202", err=["PMI_SIZE=2", "--no-mpi"],
                    env={"PMI_SIZE": "2", "PMI_RANK": "0", **sh.mpi_environment})
    check(os.listdir(sh.directory) == [], "something was written", result)
    sh.run("convert", sh.checkpoint(ZERO2), "o", "--no-mpi", env={"PMI_SIZE": "2", "PMI_RANK": "0"}, out="^done ")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
