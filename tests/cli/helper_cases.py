"""A helper (ckpt-h5) that prints too much, hangs, dies or exceeds a limit: none of these is reported as damage."""
import base64
import lzma
import os
import re
import shutil
import signal
import subprocess
import time

from runner import check, main

# An HDF5 file of one dataset: a single gzip chunk of 512 MiB of zeros (h5py, compressed by xz).
ONE_LARGE_CHUNK = (
    "/Td6WFoAAATm1rRGAgAhARwAAAAQz1jM6AQPAaVdAESSBIRvent3SsRmT2odD3JpHhjMHuy+ST6Gpd8eTLYkqtcpWoaPdMdxMonSx03HLiKjFN"
    "0Wf0qxjceIzA+q55/0BvCyln/cOkZBICHIuQyRXQSaM4xcj3WebmIPUWsOqynkka+k7yOlilmvq9gav3zlFOSM7bR/OzIhsKJ7zNIaw8ke2BZ2"
    "3xgZ70Xcc7wi6oqRePj2mhj3mDO/efK9dEaaisHPMaQ0i+AfuoyKThtB2FZ1sKGRT3uLM3LlMtDEYPZtc86SuLtx2BBEs3vs/5U8UtR+Mjv2tt"
    "MQ5/Tdm/XF0F0TiPxuMqchXeixghG582jZssPbPrFZ9ch2WJpQ59UN+AV0xlFxNSgLvhj7pnStI6AbJ39MRrHvgYP82g3pl7peSzTeUYXg5+8w"
    "vQ01HRoGgaZEY51MhoLMCADWocTgdyilUfJd/DrtK2aWjcZXKIedw3tLDepQJvTzGmSlOnn8AdWxSsOdwAaYTZj92K/VkA/EJVP49ZE2MQWlsO"
    "5vwXBNRwzRkRGqrWAdus6xJxhcWYbpZlJYuSG92sUU0ez1cUshtOMAAAAAdjq3c16BamwAAcEDkIggACLso5mxxGf7AgAAAAAEWVo=")


def hdf5_file(sh):
    """An intact file that is read through the helper."""
    return next((sh.golden / "hdf5" / "plain_groups" / "ckpt").rglob("*.h5"))


def with_helper(sh, script):
    """From here on the shell runs a copy of the program, beside which this script is the helper."""
    sh.path("bin").mkdir()
    program = sh.path("bin/ckpt")
    try:
        os.link(sh.program, program)
    except OSError:
        shutil.copy2(sh.program, program)
    helper = sh.path("bin/ckpt-h5")
    helper.write_text("#!/bin/bash\n" + script + "\n")
    helper.chmod(0o755)
    sh.program = str(program)


def resident_mib(sh, *words, code):
    process = subprocess.Popen([sh.program, *map(os.fspath, words)], cwd=sh.directory, env=sh.environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    check(process.returncode == code, f"exit {process.returncode}, not {code}", out)
    return usage.ru_maxrss >> 10


def case_what_a_helper_says_is_bounded_as_it_comes(sh):
    with_helper(sh, 'if [[ -e errors ]]; then exec head -c 1000000000 /dev/zero >&2; fi; exec head -c 1500000000 /dev/zero')
    for stream in ("output", "errors"):
        if stream == "errors":
            sh.path("errors").touch()
        most = resident_mib(sh, "inspect", hdf5_file(sh), "--memory", "64M", code=17)
        check(most < 700, f"{most} MiB for what a helper said on its standard {stream}")


def ends_soon_after_a_signal(sh, *words):
    process = subprocess.Popen([sh.program, *map(os.fspath, words)], cwd=sh.directory, env=sh.environment({"CKPT_VERBOSE": "1"}),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while not sh.path("began").exists():
        check(process.poll() is None, "it ended by itself")
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    try:
        out = process.communicate(timeout=60)[0].decode()
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    check(process.returncode == 143, f"exit {process.returncode}", out)
    # One error, that of the signal: not a failure of the helper, and with a name.
    check(re.findall("^(?:error|damage).*", out, re.M) == re.findall("^error: .*stopped.*", out, re.M), "another error", out)
    check(len(re.findall("^error: ", out, re.M)) == 1 and re.search("^exit 143 · ckpt explain E14300$", out, re.M), "no id", out)


def case_a_helper_that_closes_its_pipes_and_lives_on_is_ended_with_the_command(sh):
    with_helper(sh, 'exec >&- 2>&- <&-; touch began; exec sleep 300')
    ends_soon_after_a_signal(sh, "inspect", hdf5_file(sh))


def case_a_command_that_waits_for_a_helper_ends_at_sigterm(sh):
    with_helper(sh, 'touch began; exec sleep 300')
    ends_soon_after_a_signal(sh, "convert", sh.checkpoint("safetensors/single"), "out.h5")
    check(not sh.path("out.h5").exists(), "a target")


def case_how_a_helper_ended_says_what_it_was(sh):
    with_helper(sh, '''read -r end < end; [[ $end == signal* ]] && kill -${end#signal} $$; echo "x.h5: so it was" >&2; exit $end''')
    for end, code in (("1", 15), ("3", 15), ("4", 12), ("5", 14), ("6", 17), ("7", 16), ("signal11", 15), ("signal9", 16), ("signal24", 16)):
        sh.path("end").write_text(end + "\n")
        sh.run("verify", hdf5_file(sh), code=1 if code == 15 and end != "3" else code,
               err=() if code == 15 and end != "3" else "^error: ")


def case_how_a_helper_ended_is_seen_where_the_signal_of_it_is_ignored(sh):
    with_helper(sh, '''read -r end < end; echo "x.h5: so it was" >&2; exit $end''')
    for end, code in (("3", 15), ("4", 12), ("7", 16)):
        sh.path("end").write_text(end + "\n")
        sh.run("verify", hdf5_file(sh), code=code, err="x.h5: so it was", launcher=("env", "--ignore-signal=CHLD"))


def case_nothing_with_a_name_is_left_where_a_file_is_laid_out(sh):
    scratch = lambda: {n for n in os.listdir("/tmp") if n.startswith("ckpt-scratch-")}
    before = scratch()
    with_helper(sh, 'touch began; exec sleep 300')
    process = subprocess.Popen([sh.program, "convert", sh.checkpoint("safetensors/single"), "out.h5"], cwd=sh.directory,
                               env=sh.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not sh.path("began").exists():
        check(process.poll() is None, "it ended by itself")
        time.sleep(0.05)
    during = scratch()
    process.send_signal(signal.SIGTERM)
    check(process.wait(timeout=60) == 143, "it did not end with the signal")  # the helper sleeps for longer
    check(during <= before, f"{during - before}")


def case_a_chunk_over_the_memory_of_the_helper_is_no_damage(sh):
    sh.path("large.h5").write_bytes(lzma.decompress(base64.b64decode(ONE_LARGE_CHUNK)))
    sh.run("verify", "large.h5", "--memory", "256M", code=17, id="E1700", err=["chunk of 536870912 bytes"], not_out="damage")
    sh.run("verify", "large.h5", "--quick", out="ok")


def case_a_pipe_is_no_target(sh):
    os.mkfifo(sh.path("pipe.h5"))
    for words in ((), ("--overwrite",)):
        sh.run("convert", sh.checkpoint("safetensors/single"), "pipe.h5", *words, code=2)
    check(sh.path("pipe.h5").is_fifo(), "replaced")


def case_the_helper_reads_the_file_that_was_looked_at(sh):
    """The name is a link that leads elsewhere while the helper opens it, and back again afterwards."""
    source = next((sh.golden / "hdf5" / "chunked_filters" / "ckpt").rglob("*.h5"))
    for name in ("a.h5", "b.h5"):
        shutil.copy(source, sh.path(name))
    link = sh.path("link.h5")
    real = os.path.join(os.path.dirname(sh.program), "ckpt-h5")
    with_helper(sh, f'''[ "$2" = "$SWAPPED" ] && ln -sfn b.h5 "{link}"
{real} "$@"
status=$?
ln -sfn a.h5 "{link}"
exit $status''')
    for verb in ("map", "decode"):
        link.unlink(missing_ok=True)
        link.symlink_to("a.h5")
        sh.run("convert", "link.h5", "out-" + verb, code=11, env={"SWAPPED": verb},
               err="link.h5: the file was replaced while it was being read")
        check(not sh.path("out-" + verb).exists(), "another file than the one that was looked at was converted")
    sh.run("convert", "link.h5", "out")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
