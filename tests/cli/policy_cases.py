"""ckpt policy: presets, what applies to which run, what a file says and what changed, and how it works out over time."""
import re

from prune_cases import prune, steps, store
from runner import check, main


def policy(sh, *words, **more):
    return sh.run("policy", *words, **more)


def case_init_writes_a_commented_preset_and_never_replaces_one(sh):
    store(sh)
    policy(sh, "init", "store", out=[r"^wrote store/ckpt\.toml \(preset research\)$", "^next: ckpt policy show store, then ckpt prune --store store$"])
    text = sh.path("store/ckpt.toml").read_text()
    settings = [line for line in text.splitlines() if re.match(r"[a-z_]+ = ", line)]
    check(len(settings) >= 5 and all(" # " in line for line in settings), "a line without a comment\n" + text)
    policy(sh, "init", "store", "--preset", "space", code=2, err=[r"store/ckpt\.toml: exists, and is not replaced", "nothing was written"])
    check(sh.path("store/ckpt.toml").read_text() == text, "it was replaced")
    check([p.name for p in sh.path("store").iterdir() if p.name.startswith("ckpt.toml")] == ["ckpt.toml"], "a leftover")
    shown = policy(sh, "init", "-n", "--preset", "space", "--store", "store").out
    check("drop_optimizer_after" in shown and sh.path("store/ckpt.toml").read_text() == text, shown)
    policy(sh, "init", "nowhere", code=10, err="nowhere")
    policy(sh, "init", "store", "--preset", "spce", code=2, err="did you mean '--preset space'")
    data = sh.document("policy", "init", "-n", "store")["data"]
    check(data["written"] is False and data["text"] == text and data["preset"] == "research", str(data))


def case_every_preset_is_a_policy_that_prune_carries_out(sh):
    all_steps = list(range(1000, 9000, 1000))
    left = {"research": [5000, 6000, 7000, 8000], "space": all_steps,
            "production": [1000, 4000, 5000, 6000, 7000, 8000]}  # the first: the oldest stays while hours and days are few
    for preset, expected in left.items():
        run = store(sh, all_steps, run=preset) / preset
        toml = sh.path("store/ckpt.toml")
        policy(sh, "init", "--preset", preset, "store")
        policy(sh, "check", "store", out="valid: 1 policy, ")
        # The disk under the tests may be nearly full.
        toml.write_text(re.sub(r'(?m)^min_free = "10%"', 'min_free = "0%"', toml.read_text()) + 'purge_early_when_free_below = "0%"\n')
        plan = sh.document("prune", preset, "--store", "store")["data"]
        kept = sorted(c["step"] for c in plan["checkpoints"] if c["decision"] != "TRASH")
        check(kept == expected, f"{preset} keeps {kept}")
        prune(sh, preset, "--apply", "-y")
        check(steps(run) == expected, f"{preset} left {steps(run)}")
        prune(sh, preset, out="^would delete 0 of ")
        toml.unlink()


def case_research_ranks_by_a_recorded_metric_and_waits_for_one(sh):
    store(sh)
    check(re.search(r"(?m)^# best = ", policy(sh, "init", "-n", "store").out), "a rule that stops every prune")
    for step, loss in ((1, 0.5), (2, 0.4), (3, 9), (4, 8), (5, 7), (6, 6)):
        sh.run("mark", f"llama@{step}", "--metric", f"eval_loss={loss}", "--metric", "accuracy=0.5", "--store", "store")
    policy(sh, "init", "store")
    check('best = { metric = "eval_loss", n = 2, lower = true }' in sh.path("store/ckpt.toml").read_text(), "another metric")
    plan = sh.document("prune", "--store", "store")["data"]
    check(sorted(c["step"] for c in plan["checkpoints"] if c["decision"] == "KEEP") == [1, 2, 4, 5, 6], str(plan))


def case_production_keeps_the_tags_of_the_store(sh):
    store(sh, range(1, 9))
    sh.run("mark", "llama@1", "--tag", "paper", "--store", "store")
    sh.run("pin", "llama@2", "--store", "store")
    policy(sh, "init", "--preset", "production", "store")
    check('tags_any = ["keep", "release", "paper"]' in sh.path("store/ckpt.toml").read_text(), "the tag is not named")
    plan = sh.document("prune", "--store", "store")["data"]
    check(sorted(c["step"] for c in plan["checkpoints"] if c["decision"] == "KEEP") == [1, 2, 4, 5, 6, 7, 8], str(plan))


def case_space_keeps_two_whole_and_the_weights_of_the_others(sh):
    for number in range(1, 6):
        sh.run("save", sh.checkpoint("ckpt/1.0-mesh"), "--store", "store", "--run", "llama", "--step", str(number))
    policy(sh, "init", "--preset", "space", "store")
    toml = sh.path("store/ckpt.toml")
    toml.write_text(toml.read_text().replace('min_free = "10%"', 'min_free = "0%"'))
    plan = sh.document("prune", "--store", "store")["data"]["checkpoints"]
    decisions = {c["step"]: c["decision"] for c in plan}
    check(decisions == {1: "DEMOTE", 2: "DEMOTE", 3: "DEMOTE", 4: "KEEP", 5: "KEEP"}, str(decisions))


TWO = '[[rule]]\nruns = "prod/*"\nkeep = { last = 4, every_steps = 3 }\n[[rule]]\nruns = "scratch"\nkeep = { last = 3 }\n'


def case_show_says_which_rules_apply_to_which_run(sh):
    store(sh, run="prod/a")
    store(sh, run="scratch")
    store(sh, [1], run="other")
    policy(sh, "show", "store", out=[r"^store/ckpt\.toml does not exist: no policy applies", "^next: ckpt policy init store$"])
    check(sh.document("policy", "show", "store")["data"]["policy"] is None, "a policy")
    sh.path("store/ckpt.toml").write_text(TWO)
    whole = policy(sh, "show", "store", out=[r"^policy     for prod/\* \(ckpt\.toml\)$", r"^runs       prod/a \(6\)$", r"^keep       the newest 4 \(now 4\)$",
                                             r"^keep       steps that are multiples of 3 \(now 2\)$", r"^now        2 of 6 checkpoints would be deleted$",
                                             r"^policy     for scratch ", r"^now        3 of 6 checkpoints would be deleted$",
                                             r"^no policy  other \(1\): no pattern matches; prune never changes this run$"])
    check(whole.out.index("for prod/*") < whole.out.index("for scratch"), "the order of the file")
    one = policy(sh, "show", "store", "scratch", out=r"^now        3 of 6 ", not_out=["prod", "no policy"])
    check(one.out == policy(sh, "show", "--store", "store", "scratch").out, "--store differs", one)
    policy(sh, "show", "store", "prod/next", out=[r"^policy     for prod/\*", r"^runs       prod/next \(no checkpoint yet\)$"])
    policy(sh, "show", "store", "elsewhere", out=r"^no policy  elsewhere \(no checkpoint yet\): no pattern matches", not_out="^policy ")
    data = sh.document("policy", "show", "store")["data"]
    check([p["delete_count"] for p in data["policies"]] == [2, 3] and data["unmatched"] == [{"run": "other", "checkpoints": 1}], str(data))
    policy(sh, "show", "store", "scratch", "more", code=2, err="unexpected argument")
    sh.path("store/ckpt.toml").write_text('[interval]\nevery = "30m"\n' + TWO + '[[rule]]\nruns = "prod/*"\ninterval = { every_steps = 200 }\n')
    policy(sh, "show", "store", "prod/a", out=r"^save       prod/\*: every 200 steps$", not_out="30 min")
    policy(sh, "show", "store", "scratch", out="^save       every 30 min$", not_out="200 steps")
    policy(sh, "show", "store", out=["^save       prod/.*200 steps$", "^save       every 30 min$"])
    _, narrow = sh.terminal("policy", "show", "store", columns=50)
    check(max(len(line) for line in narrow.split("\r\n")) <= 50, narrow)


def case_check_names_the_line_of_an_error(sh):
    sh.path("store").mkdir()
    file = sh.path("store/ckpt.toml")
    policy(sh, "check", "store", code=10, err="ckpt.toml")
    file.write_text(TWO)
    policy(sh, "check", "store", out=[r"^store/ckpt\.toml: valid: 2 policies, 3 rules$", "^no policy has been applied in this store yet$"])
    policy(sh, "check", file, out="valid: 2 policies")
    file.write_text(TWO.replace("last = 3", "lst = 3"))
    policy(sh, "check", "store", code=2, err=[r"line 6", "lst"])
    file.write_text(TWO.replace("last = 3", "last = 0"))
    policy(sh, "check", "store", code=2, err="would delete everything")
    file.write_text(TWO.replace("prod/*", "*"))
    policy(sh, "check", "store", out=r"^note    policy 2 \(scratch\) never applies")
    check(sh.document("policy", "check", "store")["data"]["never_apply"] == [1], "not in the document")


def case_check_shows_what_changed_since_the_last_prune(sh):
    store(sh)
    file = sh.path("store/ckpt.toml")
    file.write_text('[[rule]]\nruns = "*"\nkeep = { last = 4 }\n')
    prune(sh, "--apply")
    policy(sh, "check", "store", out="^the last prune applied the same policy$")
    file.write_text('[[rule]]\nruns = "*"\nmax_size = "1 TiB"\nkeep = { last = 3, every_steps = 2 }\n')
    policy(sh, "check", "store", out=[r"^since the last prune, by ckpt\.toml", r"^  - keep       the newest 4$", r"^  \+ keep       the newest 3$",
                                      r"^  \+ keep       steps that are multiples of 2$", r"^  \+ space      checkpoints take at most 1(\.00)? TiB$"], not_out="guard")
    data = sh.document("policy", "check", "store")["data"]
    check(data["last_prune"] == "changed" and len(data["changes"]) == 5, str(data))
    prune(sh, "--keep-last", "2", "--apply", "-y")
    policy(sh, "check", "store", out=[r"^since the last prune, by the command line", r"^  - keep       the newest 2$"])
    known = sh.path("store/.ckpt/policies.json")  # of a release that noted no rules
    known.write_text('{"format": "ckpt.policies/1", "sources": {"ckpt.toml": ["00"]}}\n')
    policy(sh, "check", "store", out="whose rules are not recorded$")


def case_simulate_draws_what_is_kept_over_time(sh):
    store(sh)
    words = ("--interval", "100", "--until", "2000")
    sh.path("store/ckpt.toml").write_text('[[rule]]\nruns = "*"\nkeep = { last = 2, every_steps = 1000 }\n')
    result = policy(sh, "simulate", "store", *words, out=[r"^ +1000  \.{8}##            +2 ", r"^ +2000  \.{9}#\.{8}## +3 "])
    old = sh.run("prune", "--simulate", "--store", "store", *words)
    check(result.out == old.out, "the old name differs", old)
    moments = sh.document("policy", "simulate", "store", *words)["data"]["simulations"][0]["moments"]
    check(len(moments) == 10 and moments[-1]["whole"] == [1000, 1900, 2000], str(moments))
    check(sh.document("prune", "--simulate", "--store", "store", *words)["data"]["simulations"][0]["moments"] == moments, "another document")
    policy(sh, "simulate", "store", code=2, err="ckpt policy simulate needs --interval STEPS and --until STEPS")
    policy(sh, "simulate", "store", "--preset", "space", code=2, err="--preset is not an option of 'ckpt policy simulate'")


def case_policy_guides_who_mistypes(sh):
    policy(sh, code=2, err="missing argument")
    policy(sh, "shwo", code=2, err="did you mean 'ckpt policy show'")
    policy(sh, "explain", code=2, err="unknown action 'explain'")
    policy(sh, "init", "store", "--store", "other", code=2, err="cannot be used together")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
