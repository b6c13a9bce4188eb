"""Terminals, signals, progress, closed pipes and full disks: the behaviour towards the environment."""
import json
import os
import re
import signal
import struct
import subprocess
import time

from runner import Result, check, main

TIED = "safetensors/gpt2_tied"


def big_checkpoint(sh, name="big.safetensors", mebibytes=1024):
    """A sparse safetensors file: tensors of 64 MiB of zeros. Its conversion takes that space, and other tests run at
    the same time."""
    sh.needs_free(2 * mebibytes)
    size = 64 << 20
    count = mebibytes // 64
    header = {f"layer.{i}.weight": {"dtype": "F32", "shape": [size // 4], "data_offsets": [i * size, (i + 1) * size]}
              for i in range(count)}
    text = json.dumps(header).encode()
    with open(sh.path(name), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + count * size)
    return sh.path(name)


def start(sh, *words, env=None):
    return subprocess.Popen([sh.program, *map(os.fspath, words)], cwd=sh.directory, env=sh.environment(env),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(process, words):
    out, err = process.communicate(timeout=120)
    return Result(words, process.returncode, out.decode(), err.decode())


def wait_for_partial(sh, process):
    """Waits until the conversion has begun to write."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if any(".partial-" in name for name in os.listdir(sh.directory)):
            return
        time.sleep(0.002)
    check(process.poll() is None, "it ended before it began to write", end(process, []))


def case_a_terminal_gets_a_moving_line_that_is_wiped_at_the_end(sh):
    code, text = sh.terminal("convert", big_checkpoint(sh), "o.safetensors", columns=110)
    check(code == 0, text)
    bars = re.findall(r"\r( read\+convert +\d+ % .*?)\x1b\[K", text)
    check(bars and all(len(bar) < 110 for bar in bars), f"{bars}\n{text}")
    check(re.search(r"\r\x1b\[Kdone|\r\x1b\[K\r?\n?done|\r\x1b\[K", text), "not wiped")
    check(re.search("^done ", text.replace("\r\x1b[K", "\n"), re.M), text)


def case_a_terminal_gets_a_table_that_fits_and_colours_only_where_wanted(sh):
    _, text = sh.terminal("ls", "-l", sh.checkpoint(TIED), columns=60)
    table = text.replace("\r", "").splitlines()
    check(table[0].startswith("NAME ") and len(table) == 30, text)
    check(all(len(line) <= 60 for line in table[:-1]), text)
    check("shortened; -q prints full names" in table[-1], text)
    _, text = sh.terminal("inspect", "nowhere")
    check("\x1b[1;31merror:\x1b[0m" in text, text)
    for quiet in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CKPT_COLOR": "never"}):
        _, text = sh.terminal("inspect", "nowhere", env=quiet)
        check("\x1b" not in text and "error:" in text, text)
    run = subprocess.run([sh.program, "inspect", "nowhere"], cwd=sh.directory, env=sh.environment({"CLICOLOR_FORCE": "1"}),
                         capture_output=True, text=True)
    check("\x1b[1;31m" in run.stderr, run.stderr)


def case_a_terminal_without_utf8_gets_ascii(sh):
    _, text = sh.terminal("convert", sh.checkpoint(TIED), "o", "--to", "safetensors", env={"LC_ALL": "C"})
    check(text.isascii() and "->" in text, text)


def case_outside_a_terminal_progress_is_whole_lines(sh):
    words = ["convert", big_checkpoint(sh), "o.safetensors"]
    sh.run(*words, env={"CKPT_PROGRESS_EVERY": "100ms"}, err=r"^ckpt: read\+convert \d+ %, .*/1\.00 GiB, .* \(mean .*\), ETA ")
    quick = sh.run("convert", sh.checkpoint(TIED), "s.safetensors")
    check(quick.err == "", "progress before five seconds", quick)
    silent = sh.run("convert", sh.path("big.safetensors"), "n.safetensors", "--progress=none", env={"CKPT_PROGRESS_EVERY": "100ms"})
    check(silent.err == "", "progress in spite of none", silent)


def case_progress_json_is_one_object_a_line_on_standard_error(sh):
    result = sh.run("convert", big_checkpoint(sh), "o.safetensors", "--progress", "json")
    rows = [json.loads(line) for line in result.err.splitlines()]
    check(len(rows) >= 1 and rows[-1]["done_bytes"] == rows[-1]["total_bytes"], "no end", result)
    for row in rows:
        findings = sh.schemas.findings("progress", row)
        check(not findings, str(findings), result)


def case_sigusr1_prints_one_status_line_and_does_no_harm(sh):
    words = ["convert", big_checkpoint(sh, mebibytes=2048), "o.safetensors", "--progress=none"]
    process = start(sh, *words)
    wait_for_partial(sh, process)
    process.send_signal(signal.SIGUSR1)
    result = end(process, words)
    check(result.code == 0, "it died of SIGUSR1", result)
    check(re.search("^ckpt: (read|preparing)", result.err, re.M), "no status", result)


def interrupted(sh, which, code, id):
    words = ["convert", big_checkpoint(sh, mebibytes=2048), "o.safetensors", "--threads", "1"]
    process = start(sh, *words)
    wait_for_partial(sh, process)
    process.send_signal(which)
    result = end(process, words)
    check(result.code == code, f"not {code}", result)
    check(id in result.err and "nothing was written to o.safetensors" in result.err, "no message", result)
    others = [name for name in os.listdir(sh.directory) if name != "big.safetensors"]
    check(all(".partial-" in name for name in others), f"left-overs: {others}", result)
    # A conversion that was stopped before it finished a piece leaves nothing.
    check(("to continue from" in " ".join(result.err.split())) == bool(others), "what it leaves, it says", result)


def case_ctrl_c_ends_with_130_and_leaves_no_target(sh):
    interrupted(sh, signal.SIGINT, 130, "error: stopped")


def case_sigterm_ends_with_143_and_leaves_no_target(sh):
    interrupted(sh, signal.SIGTERM, 143, "error: stopped")


def case_a_closed_standard_output_is_never_a_file_of_the_target(sh):
    """The next opened files get the numbers of closed streams."""
    big_checkpoint(sh, mebibytes=64)
    for closed in ((0,), (1,), (2,), (0, 1, 2)):
        target = f"o{len(closed)}{closed[0]}"
        process = subprocess.Popen([sh.program, "convert", "big.safetensors", target, "-v", "--io", "threads"], cwd=sh.directory,
                                   env=sh.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=lambda: [os.close(number) for number in closed])
        process.communicate(timeout=120)
        check(process.returncode == 0, f"{closed}: exit {process.returncode}")
        sh.run("verify", target)


def case_a_reader_that_goes_away_ends_no_conversion(sh):
    big_checkpoint(sh, mebibytes=64)
    read, write = os.pipe()
    os.close(read)
    for words in (["convert", "big.safetensors", "o", "--progress", "json"], ["ls", "big.safetensors"], ["ls", "big.safetensors", "--json"]):
        run = subprocess.run([sh.program, *words], cwd=sh.directory, env=sh.environment(), stdin=subprocess.DEVNULL, stdout=write,
                             stderr=write, timeout=60)
        check(run.returncode == 0, f"{words}: exit {run.returncode}")
    os.close(write)
    sh.run("verify", "o")


def case_a_full_standard_output_is_an_error(sh):
    with open("/dev/full", "w") as full:
        run = subprocess.run([sh.program, "help", "convert"], stdout=full, stderr=subprocess.PIPE, text=True, env=sh.environment())
    check(run.returncode == 14 and "standard output" in run.stderr and "only its output is lost" in run.stderr, f"{run.returncode} {run.stderr}")


def case_an_answer_on_a_closed_standard_output_is_an_error(sh):
    sh.run("convert", sh.checkpoint("safetensors/single"), "one")
    for words, code in ((("ls", "one"), 16), (("inspect", "one", "--json"), 16), (("help", "convert"), 16),
                        (("convert", "one", "two", "--json"), 16), (("convert", "one", "three"), 0)):
        run = subprocess.run([sh.program, *words], cwd=sh.directory, env=sh.environment(), stdin=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.close(1))
        check(run.returncode == code and ("standard output" in run.stderr) == (code != 0), f"{words}: {run.returncode} {run.stderr}")


def case_memory_and_threads_come_from_the_environment_and_are_kept(sh):
    document = sh.document("convert", sh.checkpoint(TIED), "o", "--to", "safetensors", env={"CKPT_MEMORY": "200M"})
    check(document["data"]["memory"]["bound_bytes"] == 200 << 20, str(document["data"]["memory"]))
    check(document["data"]["memory"]["peak_bytes"] <= 200 << 20, str(document["data"]["memory"]))


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
