"""ckpt plan: arithmetic, as a user types it."""
import json
import re
import shutil
import xml.dom.minidom

from runner import check, main

WORDS = ("plan", "--params", "70B", "--bw", "40G", "--stall", "1.9s", "--nodes", "128", "--mtbf", "30000h/node")


def case_plan_shows_blocking_beside_asynchronous_saves(sh):
    sh.run(*WORDS, "--keep", "last=3,6h*8,1d*14",
           out=[r"^size +913 GiB \(980 GB\): weights 130 GiB, optimizer 782 GiB$", r"^  write +22\.8 s at 40 GiB/s; largest rank 913 GiB$",
                r"^  a failure +one in 234 h 22 min on 128 nodes; it loses 15 min 15 s of work$", r"^ +blocking +async$", r"^stall +22\.8 s +1\.9 s +per save$",
                r"^best every +1 h 43 min +29 min 49 s ", r"^rule of thumb +7 min 36 s \(overhead cap\) +38\.0 s \(overhead cap\)",
                r"^lost time +0\.73 % +0\.21 %", r"^storage +25 kept at most: 22\.3 TiB$"],
           not_out="ZeRO")


def case_plan_explains_its_choice_and_how_sure_it_is(sh):
    result = sh.run(*WORDS, "--keep", "last=3", "--local-bw", "400G", "--node-loss", "20%",
                    out=[r"^ +blocking +async +tiers$", r"^recommended +async saves every 29 min 49 s$", "^  why +balances the cost", r"^  lost time +0\.21 % by saves, failures",
                         r"^  instead +blocking saves every 1 h 43 min lose 0\.73 %$", r"^  10-90 % +0\.\d\d-", r"^host memory +0 B +913 GiB +913 GiB", r"^SENSITIVITY +blocking +lost +async +lost +tiers +lost$", r"^as given +1 h 43 min +0\.73 %", r"^MTBF x 2 +2 h 26 min +0\.52 % ",
                         r"^  peak +[\d.]+ TiB with \d+ in the trash and one being written"])
    check(result.out.startswith("recommended "), "not the recommendation first", result)
    check(len(re.findall(r"^(bandwidth|MTBF) x (1/2|2) ", result.out, re.M)) == 4, "not four rows", result)
    data = sh.document(*WORDS, "--keep", "last=3")["data"]
    check(data["chosen"] == "async" and data["choices"][1]["lost_low"] < data["choices"][1]["lost"] < data["choices"][1]["lost_high"], str(data))
    check(data["peak_bytes"] == data["total_bytes"] * (3 + 1 + data["trashed"]), str(data))
    between = data["choices"][1]["chosen_s"] + 1.9
    check(data["trashed"] == -(-86400 // between), f"{data['trashed']} in the trash")
    check(sh.document(*WORDS, "--trash", "0s", "--keep", "last=3")["data"]["trashed"] == 0, "nothing stays there")


def case_plan_takes_what_a_checkpoint_and_its_run_say(sh):
    path = sh.checkpoint("ckpt/1.0-mesh")
    data = sh.document("plan", path, "--bw", "1G")["data"]
    seen = sh.document("inspect", path)["data"]
    check(data["total_bytes"] == seen["file_bytes"] and data["parameters"] == seen["parameters"], str(data))
    sh.run("plan", path, code=2, err="^error: --bw or --bench is required")
    sh.run("plan", "nowhere", "--bw", "1G", code=10)
    store = sh.directory / "runs"
    cost = {"schema": "ckpt.save/1", "ranks": [{"rank": 0, "bytes": 1, "plan_s": 0.5, "stage_s": 1.5, "write_s": 0.001}]}
    save = store / "demo/step-000000010.g1"
    shutil.copytree(path, save)
    (save / "marks").mkdir(exist_ok=True)
    (save / "marks/save-statistics.json").write_text(json.dumps(cost))
    data = sh.document("plan", "demo@latest", "--store", store)["data"]
    check([c["name"] for c in data["choices"]] == ["blocking", "async"] and data["choices"][1]["stall_s"] == 2, str(data))
    check(abs(data["write_s"] - 0.001) < 1e-5 and data["mtbf_s"] is None, str(data))
    check(any("the failure rate is unknown" in note for note in data["notes"]), str(data["notes"]))
    sh.run("plan", "demo@11", "--store", store, code=10, err="no step 11")


def case_plan_measures_the_bandwidth_where_it_is_told_to(sh):
    words = ("plan", "--params", "7B", "--bench", ".", "--size", "8M")
    data = sh.document(*words)["data"]
    bench = data["bench"]
    check(bench["bytes"] == 8 << 20 and abs(data["bandwidth"] * bench["write_s"] / bench["bytes"] - 1) < 1e-6, str(bench))
    check(abs(data["write_s"] * data["bandwidth"] / data["total_bytes"] - 1) < 1e-6, "planned with another bandwidth")
    check(any("measured by one process in ." in note for note in data["notes"]) and sh.document(*WORDS)["data"]["bench"] is None, str(data["notes"]))
    sh.run(*words, out=[r"^disk +\.: write .* \(synced\), read .*8 MiB, one process", "^note    the bandwidth was measured by one process"])
    data = sh.document("plan", sh.checkpoint("ckpt/1.0-mesh"), "--bench", ".", "--size", "4M")["data"]
    check(data["bench"]["bytes"] == 4 << 20 and not list(sh.directory.iterdir()), "left over, or nothing measured")
    sh.run(*words, "--bw", "1G", code=2, err="--bench and --bw cannot be used together")
    sh.run(*WORDS, "--size", "1M", code=2, err="--size needs --bench")
    sh.run("plan", "--params", "7B", "--bench", "nowhere", code=10, err="nowhere")


def case_plan_fits_its_schema_with_much_and_with_little(sh):
    data = sh.document(*WORDS, "--rework", "10m", "--step-time", "12s", "--keep", "last=3")["data"]
    check(data["total_bytes"] == 980_000_000_000 and data["kept"] == 3, str(data))
    blocking, asynchronous = data["choices"]
    check(abs(blocking["young_s"] - 6205) < 5 and abs(asynchronous["young_s"] - 1791) < 5, str(data["choices"]))
    check(blocking["chosen_s"] == blocking["chosen_steps"] * 12, "whole steps")
    check(asynchronous["base_rule_limit"] == "rework" and asynchronous["base_rule_s"] == 600, str(asynchronous))
    data = sh.document("plan", "--params", "7B", "--bw", "1GB")["data"]
    check(data["mtbf_s"] is None and data["choices"][0]["lost"] is None and data["kept"] is None, str(data))
    check(data["choices"][0]["chosen_s"] == 20 * 98 and data["notes"], "the base rule decides alone")


def case_plan_says_what_training_takes_and_what_fits(sh):
    words = ("plan", "--params", "7.5B", "--bw", "1G", "--dp", "64")
    result = sh.run(*words, "--gpu-memory", "20GB", "--si", out=[r"^0 +none +120 GB", r"^1 +none +31\.4 GB", r"^3 +none +1\.88 GB"])
    check(re.findall(r"^(\d) .*< ", result.out, re.M) == ["2"], "ZeRO-2 is the first that fits", result)
    rows = sh.document(*words, "--gpu-memory", "20GB")["data"]["memory"]
    check([r["zero_stage"] for r in rows if r["fits"]] == [2] and len(rows) == 10, str(rows))


def case_plan_shows_models_of_usual_sizes_beside_each_other(sh):
    words = ("plan", "--params", "30B", "--bw", "1G", "--dp", "8", "--zero-stage", "3", "--gpu-memory", "80GB", "--si")
    result = sh.run(*words, "--models", out=[r"^7B +14 GB +84 GB +98 GB +12\.2 GB ", r"^13B ", r"^70B +140 GB +840 GB +980 GB +122 GB ",
                                             r"^7B .*< ZeRO [0-3], offload none, fits$"])
    names = re.findall(r"^(\d+B) ", result.out, re.M)
    check(names == ["7B", "13B", "30B", "70B", "175B"], f"{names}", result)
    models = sh.document(*words)["data"]["models"]
    check([m["total_bytes"] for m in models] == [int(14e9) * n for n in (7, 13, 30, 70, 175)], str(models))
    check(not any(row["fits"] for row in models[4]["memory"]), "175B on 8 ranks of 80 GB")
    check("model  " not in sh.run(*words).out, "not asked for")


def case_plan_draws_its_curve_as_text_and_as_svg(sh):
    sh.run(*WORDS, "--curve", out=[r"^ interval +lost  of async saves$", r"#  < best$", "< rule of thumb$"])
    picture = sh.run(*WORDS, "--svg").out
    check(xml.dom.minidom.parseString(picture).documentElement.tagName == "svg", "no picture")
    sh.run("plan", "--params", "7B", "--bw", "1G", "--svg", code=2, err="a curve needs a failure rate")


def case_plan_counts_gpu_hours_and_money_where_it_can(sh):
    plain = sh.run(*WORDS)
    check("GPU hours" not in plain.out and sh.document(*WORDS)["data"]["gpus"] is None, "of how many?", plain)
    words = (*WORDS, "--gpus", "1024", "--gpu-hour", "$2.50", "--restart", "10m")
    sh.run(*words, out=[r"^  a day +70\.2 GPU hours, \$175 lost on 1 024 GPUs$", r"^  a failure .*15 min 15 s of work and 10 min 00 s of restart: 431 GPU hours, \$1 078$",
                        r"^  instead +blocking saves .* lose 0\.80 %: 127 GPU hours, \$319 a day more$"])
    data = sh.document(*words)["data"]
    lost = next(c["lost"] for c in data["choices"] if c["name"] == data["chosen"])
    check(abs(data["gpu_hours_lost_a_day"] - 1024 * 24 * lost) < 1e-6, str(data))
    check(abs(data["money_lost_a_day"] - 2.5 * data["gpu_hours_lost_a_day"]) < 1e-6, str(data))
    few = ("plan", "--params", "7B", "--bw", "2G", "--tp", "2", "--dp", "4")
    sh.run(*few, "--gpu-hour", "2 EUR", out=[r"^  a day +9\.14 GPU hours, 18\.29 EUR lost on 8 GPUs$", r"^  lost time +4\.76 % by saves; failures are not known$"])
    check(sh.document(*few)["data"]["gpus"] == 8 and sh.document(*few)["data"]["money_lost_a_day"] is None, "the ranks")
    for wrong in ("much", "0", "-2", "1.2.3"):
        sh.run(*few, f"--gpu-hour={wrong}", code=2, err="--gpu-hour: .* is not a price")
    _, narrow = sh.terminal(*words, columns=80)
    check("of work, on average" not in narrow and "rule of thumb" in narrow, narrow)
    check(max(len(re.sub("\x1b[^m]*m", "", line)) for line in narrow.split("\r\n")) <= 80, "wider than the terminal\n" + narrow)


def case_plan_says_what_is_missing_or_wrong(sh):
    for words, error in ((["--bw", "1G"], "--params is required"), (["--params", "7B"], "--bw or --bench is required"), ([], "--params and --bw are required"),
                         (["--params", "7G", "--bw", "1G"], "--params: '7G' is not a number of parameters"),
                         (["--params", "7B", "--bw", "fast"], "--bw: 'fast' is not a size"),
                         (["--params", "7B", "--bw", "10"], "--bw: '10' has no unit"),
                         (["--params", "7B", "--bw", "0"], "--bw: the bandwidth must be above 0"),
                         (["--params", "7B", "--bw", "1G", "--mtbf", "0h"], "--mtbf: expected a time above 0"),
                         (["--params", "7B", "--bw", "1G", "--keep", "lats=3"], "unknown rule 'lats'"),
                         (["--params", "7B", "--bw", "1G", "--precision", "mixd"], "did you mean '--precision mixed'")):
        sh.run("plan", *words, code=2, err=error)


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
