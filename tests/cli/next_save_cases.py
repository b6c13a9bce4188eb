"""ckpt next-save: a script asks whether the trainer should save."""
import json
import shutil

from runner import check, main

RUN = "llama"


def make_store(sh, policy="", step=1000, cost=None):
    """A run with one checkpoint of ours, saved long ago by its own clock; `cost`: of its save."""
    store = sh.directory / "runs"
    save = store / RUN / f"step-{step:09}.g1"
    shutil.copytree(sh.golden / "ckpt/1.0-mesh/ckpt", save)
    if cost:
        (save / "marks").mkdir(exist_ok=True)
        (save / "marks/save-statistics.json").write_text(json.dumps(cost))
    if policy:
        (store / "ckpt.toml").write_text(policy)
    return store


def step_of(sh, store):
    return sh.document("list", "--store", store)["data"]["checkpoints"][0]["step"]


def case_next_save_answers_with_its_exit_code_and_one_line(sh):
    store = make_store(sh, "[interval]\nevery_steps = 500\n", step=10)
    last = step_of(sh, store)
    at = ("next-save", RUN, "--store", store, "--step")
    result = sh.run(*at, str(last + 1), code=1, out=rf"^not yet  next at step 500 · last step {last}, ")
    check(len(result.out.splitlines()) == 1, "one line is promised", result)
    sh.run(*at, "500", out=rf"^due      every 500 steps · last step {last}, ")
    sh.run(*at, "777", out="^due ")  # 500 was passed without a save
    sh.run(*at, str(last), code=1, out="this step is already saved")
    check(sh.run(*at, "500", "-q").out == "", "-q speaks")
    sh.run("next-save", RUN, "--store", store, code=1, out="^not yet  next at step 500")  # no --step
    data = sh.document(*at, "777")["data"]
    check(data["due"] and data["next_step"] == 777 and data["last_step"] == last and data["rules_from"] == "ckpt.toml", str(data))
    data = sh.document(*at, "0", code=1)["data"]
    check(not data["due"] and data["rolled_back"] and data["last_step"] is None, f"step 0 is not saved unasked: {data}")


def case_next_save_by_time_by_cost_and_by_the_end_of_the_job(sh):
    store = make_store(sh, step=10)
    at = ("next-save", RUN, "--store", store)
    sh.run(*at, "--every", "1h", out="since the last save began")
    sh.run(*at, "--every", "10000d", code=1, out=r"^not yet  next in \d+ ")
    data = sh.document(*at, "--every", "10000d", "--before-end", "5m", "--time-left", "10m", code=1)["data"]
    check(data["next_time"] is not None and data["next_step"] is None, str(data))
    sh.run(*at, "--every", "10000d", "--before-end", "5m", "--time-left", "4m", out="240 s left until the job's time limit")
    sh.run(*at, "--optimal", "--mtbf", "50h", out="^due ")
    document = sh.document("next-save", "new", "--store", store, "--every", "10000d")
    check(document["data"]["because"] == "no save yet" and document["warnings"], str(document))


def case_next_save_takes_the_measures_of_the_runs_own_saves(sh):
    store = make_store(sh, step=10)
    before = sh.document("next-save", RUN, "--store", store, "--optimal", "--mtbf", "50h")["data"]
    check(before["stall_s"] is None and before["because"].startswith("first save"), str(before))
    ranks = [{"rank": r, "bytes": 1, "plan_s": 0.5, "stage_s": 1.5 + r, "write_s": 20.0} for r in range(2)]
    shutil.rmtree(store)
    store = make_store(sh, step=10, cost={"schema": "ckpt.save/1", "ranks": ranks})
    data = sh.document("next-save", RUN, "--store", store, "--optimal", "--mtbf", "50h")["data"]
    check(data["stall_s"] == 3.0 and data["durable_s"] == 23.0 and data["mtbf_s"] == 180000, str(data))
    check(abs(data["planned_interval_s"] - (2 * 3 * 180000) ** 0.5) < 20, str(data))  # Young's, nearly
    data = sh.document("next-save", RUN, "--store", store, "--optimal")["data"]
    check(data["mtbf_s"] is None and data["planned_interval_s"] == 60, f"20 times the stall: {data}")


def case_next_save_says_what_is_missing_or_wrong(sh):
    store = make_store(sh)
    at = ("next-save", RUN, "--store", store)
    sh.run(*at, code=2, err=["no rule says when to save", r"\[interval\]"])
    for words, error in ((["--every", "soon"], "--every: 'soon'"), (["--every", "0s"], "--every: expected a time above 0"),
                         (["--max-overhead", "3%"], "--max-overhead only limits other rules"), (["--before-end", "5m"], "--time-left"),
                         (["--every-steps", "0"], "--every-steps"), (["--step", "-1", "--every", "1h"], "--step")):
        sh.run(*at, *words, code=2, err=error)
    (store / "ckpt.toml").write_text("[interval]\nevery_steps = 5\nevry = '1h'\n")
    sh.run(*at, code=2, err=["ckpt.toml: line 3 column 1: .*evry", "every"])
    sh.run("prune", "--store", store, code=2, err="line 3 column 1")
    sh.run("next-save", RUN, "--store", "nowhere", "--every", "1h", code=10, err="nowhere")


def case_a_run_has_rules_of_its_own(sh):
    rules = '[interval]\nevery_steps = 500\n[[rule]]\nruns = "ll*"\ninterval = { every_steps = 200, mtbf = "40h" }\n'
    store = make_store(sh, rules + '[[rule]]\nruns = "*"\nkeep = { last = 1 }\n', step=10)
    sh.run("next-save", RUN, "--store", store, "--step", "11", code=1, out="next at step 200 ")
    sh.run("next-save", "other", "--store", store, "--step", "11", code=1, out="next at step 500 ")
    shown = sh.run("prune", "--store", store, "--check-policy", out=["^interval  when to save, for ll", "every 200 steps", "^interval  when to save$"])
    check(shown.out.count("policy  ") == 1, "a policy that keeps nothing", shown)
    plan = sh.document("prune", "--store", store)["data"]
    check(plan["run_intervals"][0]["runs"] == "ll*" and plan["interval"][0] == "every 500 steps", str(plan))
    sh.run("plan", f"{RUN}@latest", "--store", store, "--bw", "1G", out=["^  a failure +one in 40", "the store's ckpt.toml: every 200 steps"])


def case_check_policy_shows_when_to_save(sh):
    store = make_store(sh, "[[rule]]\nruns = '*'\nkeep = { last = 1 }\n[interval]\nevery = '30m'\nmax_overhead = '3%'\n")
    sh.run("prune", "--store", store, "--check-policy", out=["^interval  when to save$", "^  every 30 min$", "^  at most 3 % of the time$"])
    check("every 30 min" in sh.document("prune", "--store", store, "--check-policy")["data"]["interval"], "not in the document")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
