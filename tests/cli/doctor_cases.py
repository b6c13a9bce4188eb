"""ckpt doctor: findings about a directory and the machine."""
import os
import shutil
import subprocess

from runner import check, main
from scrub_cases import damage, place, store


def case_doctor_looks_at_the_machine_and_the_current_directory(sh):
    sh.run("doctor", out=["io_uring", "^ok +locks work between processes", "^(ok|WARN) +.* free of "])
    check(os.listdir(sh.directory) == [], "something stays behind")


def case_doctor_fits_its_schema(sh):
    data = sh.document("doctor", ".")["data"]
    about = {finding["about"] for finding in data["findings"]}
    check({"io_uring", "huge pages", "open files", "file system", "locks", "space"} <= about, str(about))
    check(data["healthy"] and data["disk"] is None and data["need_bytes"] is None, str(data))
    sh.document("doctor", "missing", code=10)


def case_doctor_without_room_for_the_next_save_is_1(sh):
    sh.run("doctor", ".", "--need", "8EB", code=1, out=[r"^FAIL .*; the next save needs 6.94 EiB$", "^ +try +ckpt prune --keep-last 3"])
    sh.run("doctor", ".", "--need", "8EB", "-q", code=1, out="^FAIL", not_out="^ok")
    data = sh.document("doctor", ".", "--need", "1", code=0)["data"]
    check(data["need_bytes"] == 1, str(data))
    data = sh.document("doctor", ".", "--need", "8EB", code=1)["data"]
    check(not data["healthy"], str(data))


def case_doctor_measures_with_either_engine_and_leaves_nothing(sh):
    for engine in ("threads", "auto"):
        sh.run("doctor", ".", "--bench", "--size", "9M", "--need", "1G", "--io", engine,
               out=[r"^disk +write .*/s \(synced\), read .*/s.*\(12(\.0)? MiB, one process\)$", "a save of 1 GiB takes"])
    disk = sh.document("doctor", "--size", "1")["data"]["disk"]
    check(disk["bytes"] == 4 << 20 and disk["write_s"] >= disk["sync_s"] > 0 and disk["read_s"] > 0, str(disk))
    check(os.listdir(sh.directory) == [], "something stays behind")


def case_doctor_says_where_nothing_can_be_written(sh):
    if os.geteuid() == 0:
        sh.run("doctor", "/proc", code=1, out="^FAIL +cannot write here: ")
        return
    sh.path("closed").mkdir(mode=0o500)
    sh.run("doctor", "closed", code=1, out="^FAIL +cannot write here: ")


def case_doctor_refuses_what_is_no_directory_or_size(sh):
    sh.path("file").write_text("")
    sh.run("doctor", "file", code=2, err="file: not a directory")
    sh.run("doctor", "missing", code=10, err="missing: ")
    sh.run("doctor", "--need", "much", code=2, err="--need: 'much' is not a size")


def case_doctor_names_few_open_files(sh):
    limited = ("sh", "-c", 'ulimit -S -n 200; exec "$@"', "sh")
    check(subprocess.run([*limited, "true"]).returncode == 0, "no limit can be set here")
    sh.run("doctor", launcher=limited, out=["^WARN +open file limit: 200$", r"^ +try +ulimit -n \d+$"])


def case_doctor_of_a_store_names_what_is_wrong_in_it(sh):
    store(sh)
    sh.run("list", "--store", "store")
    sh.run("doctor", "store", out="^ok +the catalog is valid and up to date", not_out="left-over|marks")
    sh.path("store/llama/.ckpt").mkdir()
    sh.run("doctor", "store", out="^WARN +1 store in this one, .*, the first store/llama$")
    sh.path("store/llama/.ckpt").rmdir()
    partial = sh.path("store/llama/step-000000009.partial-0123456789abcdef0123456789abcdef")
    partial.mkdir()
    (partial / "sums.bin").write_bytes(b"x" * 100)
    sh.run("doctor", "store", out=["^WARN +1 leftover of killed saves.*100 B", "^ +try +ckpt repair store --apply"])
    (place(sh, 1) / "marks").mkdir()
    (place(sh, 1) / "marks/pin-0000000000000000.json").write_text("{ torn")
    sh.run("doctor", "store", out="^WARN +the marks of 1 checkpoint are unreadable.*step-000000001")
    damage(place(sh, 2))
    sh.run("verify", "--all", "--store", "store", code=1)
    sh.run("doctor", "store", code=1, out=["^FAIL +1 checkpoint is damaged, the first store/llama/step-000000002", "try +ckpt repair store$"])
    sh.run("prune", "--store", "store", "--keep-last", "1", "--grace", "1ms", "--purge-early-below", "0%", "--apply", "-y")
    trash = sh.path("store/.ckpt/trash/llama")
    shutil.copytree(sh.path("one"), trash / "step-000000077.g77")
    sh.run("doctor", "store", code=1, out="^WARN +1 thing in the trash without a record")
    for file in (sh.path("store/.ckpt")).glob("catalog.sqlite*"):
        file.unlink()
    sh.path("store/.ckpt/catalog.sqlite").write_bytes(b"x" * 8192)
    sh.run("doctor", "store", code=1, out=["^WARN +the catalog is damaged [(]no data is lost[)]", "try +ckpt list --rebuild --store store"])
    check(not list(sh.path("store/.ckpt").glob("doctor*")), "something stays behind")



def case_the_store_is_named_in_every_way(sh):
    sh.path("st").mkdir()
    for words, env in ((("st",), {}), (("--store", "st"), {}), ((), {"CKPT_STORE": "st"}), (("st",), {"CKPT_STORE": "elsewhere"})):
        check(sh.document("doctor", *words, env=env)["data"]["path"] == "st", f"{words} {env}")
    sh.run("doctor", "st", "--store", "st", code=2, err="DIR and --store cannot be used together")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
