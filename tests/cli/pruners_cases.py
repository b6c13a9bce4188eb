"""ckpt prune by several real processes on one store at once, and beside saves: each exits with 0 or 11, they decide the
same, and the result is that of a single prune."""
import json
import random
import shutil
import subprocess

from runner import check, main

ROUNDS = 12
PRUNE = ("prune", "--store", "store", "--keep-last", "2", "--keep-every", "4", "--purge-early-below", "0", "--apply", "-y", "--json")


def start(sh, *words):
    return subprocess.Popen([sh.program, *map(str, words)], cwd=sh.directory, env=sh.environment({"CKPT_NO_MPI": "1"}), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(process):
    out, err = process.communicate(timeout=120)
    check(process.returncode in (0, 11), f"exit {process.returncode}", f"{out}\n{err}")
    return process.returncode, json.loads(out)


def store(sh, steps):
    """A run of the same checkpoint under many steps; the bytes of one."""
    one = sh.path("one")
    if not one.exists():
        sh.run("convert", sh.checkpoint("safetensors/single"), one, "--to", "ckpt")
    shutil.rmtree(sh.path("store"), ignore_errors=True)
    for step in steps:
        shutil.copytree(one, sh.path("store/r") / f"step-{step:09}.g{step}")
    return tree(one)


def tree(place):
    """Its files, without later marks."""
    return {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*")
            if p.is_file() and "marks" not in p.relative_to(place).parts}


def steps_in(folder):
    return sorted(int(p.name[5:14]) for p in folder.iterdir() if p.is_dir() and p.name.startswith("step-")) if folder.is_dir() else []


def whole(sh, folder, data):
    for place in sh.path(folder).iterdir() if sh.path(folder).is_dir() else ():
        if place.is_dir():
            check(tree(place) == data, f"{place} is not what it was")


def case_pruners_at_once_decide_alike_and_leave_what_one_would(sh):
    dice = random.Random(7)
    print("seed 7")
    for number in range(ROUNDS):
        steps = sorted(dice.sample(range(1, 40), 10))
        data = store(sh, steps)
        pinned = dice.choice(steps)
        sh.run("pin", f"r@{pinned}", "--store", "store", "--reason", "cited")
        verified = dice.choice(steps)
        sh.run("verify", sh.path("store/r") / f"step-{verified:09}.g{verified}")
        sh.run("list", "--store", "store")
        wanted = {s for s in steps if s % 4 == 0} | set(steps[-2:]) | {pinned}
        waiting = number % 3 == 2
        words = (*PRUNE, "--lock-timeout", "60s") if waiting else PRUNE
        answers = [ended(process) for process in [start(sh, *words) for _ in range(3)]]
        check(any(code == 0 for code, _ in answers) and (not waiting or all(code == 0 for code, _ in answers)), str(answers))
        kept = set(steps_in(sh.path("store/r")))
        check(wanted <= kept, f"round {number}: {sorted(wanted - kept)} of {steps} are gone, {sorted(wanted)} should stay")
        check(set(steps_in(sh.path("store/.ckpt/trash/r"))) == set(steps) - kept, f"round {number}: neither here nor there")
        whole(sh, "store/r", data)
        whole(sh, "store/.ckpt/trash/r", data)
        code, alone = ended(start(sh, *PRUNE))
        check(code == 0 and set(steps_in(sh.path("store/r"))) == kept, f"round {number}: one alone decides otherwise: {alone}")


def case_prune_beside_saves_takes_nothing_that_stays(sh):
    data = store(sh, range(1, 9))
    saver = subprocess.Popen(["sh", "-c", 'for n in 101 102 103 104 105 106; do "$0" save one --store store --run r --step $n -q || exit; done',
                              sh.program], cwd=sh.directory, env=sh.environment({"CKPT_NO_MPI": "1"}), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    rounds = 0
    while saver.poll() is None or rounds < 3:
        for process in [start(sh, *PRUNE) for _ in range(2)]:
            ended(process)
        rounds += 1
    out, err = saver.communicate(timeout=120)
    check(saver.returncode == 0, f"a save failed\n{out}\n{err}")
    saved = out.split()
    check(len(saved) == 6 and sorted(int(name.rsplit("@", 1)[1]) for name in saved) == list(range(101, 107)), str(saved))
    kept, gone = steps_in(sh.path("store/r")), steps_in(sh.path("store/.ckpt/trash/r"))
    check(sorted(kept + gone) == [*range(1, 9), *range(101, 107)], f"{kept} and {gone}")
    check({4, 8, 104, 105, 106} <= set(kept), str(kept))
    for place in [*sh.path("store/r").iterdir(), *(p for p in sh.path("store/.ckpt/trash/r").iterdir() if p.is_dir())]:
        check("partial" not in place.name, str(place))
        sh.run("verify", place, "--quick")
        if int(place.name[5:14]) < 100:
            check(tree(place) == data, f"{place} is not what it was")
    listed = sh.document("list", "--store", "store")["data"]["checkpoints"]
    check(sh.document("list", "--store", "store", "--rebuild")["data"]["checkpoints"] == listed, "another catalog from the disk alone")
    check(sorted(row["step"] for row in listed) == kept, str(listed))


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
