"""convert, verify, inspect and ls on genuine checkpoints and on broken files, as a user types them."""
import json
import os
import re
import struct

from runner import check, main
from torch_file import Tensor, save

ZERO2 = "deepspeed/zero2_bf16_dp4"
TIED = "safetensors/gpt2_tied"


def broken(sh, name):
    return sh.checkpoint(f"broken/{name}")


def lines(result):
    return [line.split("\t") for line in result.out.splitlines()]


# --- inspect ---------------------------------------------------------------------------------------------------------


def case_inspect_says_what_it_is_whether_it_is_complete_and_what_comes_next(sh):
    sh.run("inspect", sh.checkpoint(ZERO2),
           out=[r"^deepspeed zero-2 .* step 3 .* world 4 .*deepspeed \d", r"^  parameters +[\d ]+ in \d+ tensors",
                r"^  holds +param bf16", "^ +exp_avg_sq f32", r"^  state +complete: \d+ files", r"^  converts to +.*safetensors",
                "^next: ckpt convert "])


def case_inspect_fits_its_schema_for_every_format(sh):
    for name in (ZERO2, "deepspeed/zero3_bf16_dp4", "torch/dcp_2d_s0_s1", "torch/pt_trainer", TIED, "safetensors/single"):
        data = sh.document("inspect", sh.checkpoint(name))["data"]
        check(data["complete"] and data["tensors"] > 0 and data["format"], f"{name}: {data}")
        check("files" not in data, "files without --files")
    files = sh.document("inspect", sh.checkpoint(TIED), "--files")["data"]["files"]
    check(sum(f["bytes"] for f in files) > 0, "no files")
    converted = sh.document("convert", sh.checkpoint(TIED), "w.safetensors", "--only", "weights")["data"]["target"]["files"]
    check([f["path"] for f in converted] == ["w.safetensors"], f"a checkpoint that is a file has no name: {converted}")


def case_inspect_files_as_tsv_is_a_table_of_bytes(sh):
    rows = lines(sh.run("inspect", sh.checkpoint(TIED), "--files", "-q", "--tsv"))
    check(rows[0] == ["FILE", "BYTES"] and all(r[1].isdigit() for r in rows[1:]) and len(rows) > 2, str(rows))


def case_inspect_of_a_checkpoint_with_a_missing_rank_is_13_and_names_the_file(sh):
    sh.run("inspect", broken(sh, "zero2_missing_rank"), code=13, id="E1300", err=["bf16_zero_pp_rank_2_mp_rank_00"], not_out="next:")
    document = sh.document("inspect", broken(sh, "zero2_missing_rank"), code=13)
    check(document["errors"][0]["file"].endswith("bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt"), str(document))


# --- ls --------------------------------------------------------------------------------------------------------------


def case_ls_into_a_pipe_is_what_a_terminal_shows_and_nothing_is_shortened(sh):
    text = sh.run("ls", sh.checkpoint(ZERO2), out=[r"^NAME +DTYPE +SHAPE +SIZE$", r"^h\.0\.fc\.weight +BF16 +\[41, 32\] +2.56 KiB$",
                                                  r"^lm_head\.weight .* tied$"], not_out="\t").out
    check("optimizer.state.h.0.ln.weight.exp_avg_sq" in text and "…" not in text, text)


def case_ls_as_tsv_is_a_table_with_tabs_in_natural_order(sh):
    rows = lines(sh.run("ls", "--tsv", sh.checkpoint(ZERO2)))
    check(rows[0] == ["NAME", "DTYPE", "SHAPE", "BYTES"], str(rows[0]))
    by_name = {r[0]: r[1:] for r in rows[1:]}
    check(by_name["h.0.fc.weight"] == ["BF16", "[41, 32]", "2624"], str(by_name["h.0.fc.weight"]))
    check(by_name["lm_head.weight"] == ["BF16", "[101, 32]", "0"], "a tied name: the shape of its target, no bytes")


def case_ls_long_tells_roles_and_slots(sh):
    rows = {r[0]: r for r in lines(sh.run("ls", "-l", "--tsv", sh.checkpoint(ZERO2)))}
    check(rows["optimizer.state.h.0.fc.weight.exp_avg"][4:7] == ["slot", "exp_avg", "h.0.fc.weight"], str(rows))
    check(rows["lm_head.weight"][4] == "alias" and rows["lm_head.weight"][7] == "wte.weight", str(rows["lm_head.weight"]))


def case_ls_quiet_prints_names_only(sh):
    names = sh.run("ls", "-q", sh.checkpoint(TIED)).out.splitlines()
    check(len(names) == 28 and all(re.fullmatch(r"[\w.]+", n) for n in names), str(names))


def case_ls_filters_and_sorts(sh):
    names = [r[0] for r in lines(sh.run("ls", "--tsv", sh.checkpoint(TIED), "--only", "*.mlp.*", "--only", "*.wte.*"))[1:]]
    check(len(names) == 9 and all(".mlp." in n or ".wte." in n for n in names), str(names))
    roles = {only: {r[4] for r in lines(sh.run("ls", "-l", "--tsv", sh.checkpoint(ZERO2), "--only", only))[1:]} for only in ("weights", "optimizer")}
    check(roles == {"weights": {"param", "alias"}, "optimizer": {"slot"}}, str(roles))
    sizes = [int(r[3]) for r in lines(sh.run("ls", "--tsv", sh.checkpoint(TIED), "--sort", "size"))[1:]]
    check(sizes == sorted(sizes, reverse=True), str(sizes))
    dtypes = {r[1] for r in lines(sh.run("ls", "--tsv", sh.checkpoint(ZERO2), "--dtype", "bfloat16"))[1:]}
    check(dtypes == {"BF16"}, str(dtypes))


def case_ls_that_finds_nothing_says_what_there_is(sh):
    sh.run("ls", sh.checkpoint(TIED), "--only", "wte", code=10, err=["no tensor matches --only wte", r"'\*.mlp.\*', not 'mlp'"])
    sh.run("ls", sh.checkpoint(TIED), "--dtype", "bf16", code=10, err="the checkpoint has f32")


def case_ls_tree_sums_the_branches(sh):
    result = sh.run("ls", sh.checkpoint(ZERO2), "--tree", "--depth", "1",
                    out=[r"^h +[\d.]+ KiB +6 tensors$", r"^optimizer +[\d.]+ KiB +30 tensors$"])
    check(len(result.out.splitlines()) == 6, "more than one level", result)
    sh.run("tree", sh.checkpoint(ZERO2), "--tree", out=r"^    fc +[\d.]+ KiB +2 tensors$")


def case_ls_fits_its_schema(sh):
    for name in (ZERO2, TIED, "torch/dcp_all_dtypes", "safetensors/dtypes", "safetensors/no_tensors"):
        sh.document("ls", sh.checkpoint(name))
    sh.document("ls", sh.checkpoint(TIED), "--only", "nothing", code=10)


# --- convert ---------------------------------------------------------------------------------------------------------


def case_convert_says_source_plan_done_and_next(sh):
    result = sh.run("convert", sh.checkpoint(ZERO2), "m.safetensors", "--only", "weights",
                    out=["^source  deepspeed zero-2, .*latest", "^target  safetensors, 1 file: m.safetensors$",
                         r"^plan    read .* KiB → write .* KiB · 10 tensors · memory limit .*B$", "^free    .*B afterwards$",
                         "^note    weights taken from the fp32 masters", r"^done    1 file, .* in .*peak memory .*iB · \d+ source checksums OK$",
                         "^next: ckpt inspect m.safetensors$"])
    check(result.err == "", "standard error is for warnings, errors and progress", result)
    check(sorted(os.listdir(sh.directory)) == ["m.safetensors"], "left-overs")
    with open(sh.path("m.safetensors"), "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    check(header["wte.weight"]["dtype"] == "F32", "not the master")


def case_verify_full_reads_what_is_already_done(sh):
    source = sh.checkpoint("safetensors/single")
    for target in ("out", "out.safetensors"):
        words = ("convert", source, target, "--verify", "full")
        sh.run(*words, out="^done ")
        sh.run(*words, out="^already done: ")
        path = sh.path(target)
        file = path if path.is_file() else sorted(path.glob("shards/weights/*.safetensors"))[0]
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        sh.run(*words, code=15, err=["already converted, but damaged since", "--overwrite"])
        sh.run(*words, "--overwrite", out="^done ")
        sh.run(*words, out="^already done: ")


def case_convert_twice_is_already_done(sh):
    words = ["convert", sh.checkpoint(ZERO2), "out", "--to", "safetensors"]
    sh.run(*words)
    sh.run(*words, out="^already done: out ")
    check(sh.document(*words)["data"]["already_done"], "not already done")


def case_what_lacks_a_file_is_not_done(sh):
    for to, source in (("safetensors", ZERO2), ("ckpt", ZERO2), ("dcp", ZERO2), ("deepspeed", ZERO2), ("torch", ZERO2),
                       ("deepspeed-universal", ZERO2)):
        words = ("convert", sh.checkpoint(source), f"out-{to}", "--to", to, *{"deepspeed": ("--zero-stage", "2"), "safetensors": ("--shard-size", "20K")}.get(to, ()))
        sh.run(*words, "--allow-skipped")
        sh.run(*words, "--allow-skipped", out="^already done")
        files = [p for p in sh.path(f"out-{to}").rglob("*") if p.is_file() and p.stat().st_size > 1000 and p.suffix != ".json" and p.name not in (".metadata", "model.safetensors")]
        for number, file in enumerate(sorted(files)[:: max(1, len(files) // 3)]):
            whole = file.read_bytes()
            if number % 2:
                file.unlink()
            else:
                file.write_bytes(whole[:-8])
            sh.run(*words, "--allow-skipped", code=(2, 13), err="^hint: ((use )?--overwrite |remove it by hand, then convert again$)")
            sh.run(*words, "--allow-skipped", "--verify", "full", code=(2, 13, 15))
            again = sh.run(*words, "--allow-skipped", "--overwrite", code=(0, 2))
            if again.code == 2:  # a file that cannot be read may be anyone's
                check("cannot overwrite: which files belong to it is not known: " in again.err, "no reason", again)
                file.write_bytes(whole)
            check(file.read_bytes() == whole, f"{file} is not as before")
        sh.run(*words, "--allow-skipped", out="^already done")


def case_verify_full_compares_what_was_selected_cast_and_renamed(sh):
    for number, words in enumerate((("--only", "weights"), ("--only", "weights", "--dtype", "fp16"), ("--add-prefix", "x."), ("--weights", "param"))):
        convert = ("convert", sh.checkpoint(ZERO2), f"w{number}.safetensors", *words, "--allow-skipped", "--verify", "full")
        sh.run(*convert)
        sh.run(*convert, out="^already done")
        file = sh.path(f"w{number}.safetensors")
        data = bytearray(file.read_bytes())
        data[-5] ^= 1
        file.write_bytes(data)
        sh.run(*convert, code=15, err="already converted, but damaged since: ")
        sh.run(*convert, "--overwrite", out="^done ")
        sh.run(*convert, out="^already done")


def case_small_files_of_a_target_count_too(sh):
    for to, name, words in (("deepspeed", "latest", ("--zero-stage", "1")), ("dcp", ".metadata", ()), ("ckpt", "index/manifest.json", ())):
        convert = ("convert", sh.checkpoint(ZERO2), to, "--to", to, *words, "--allow-skipped")
        sh.run(*convert)
        file = sh.path(to) / name
        whole = file.read_bytes()
        for damage in (b"", whole + b" ", whole[:-1] + b"~"):
            file.write_bytes(damage)
            sh.run(*convert, code=(2, 13, 15), not_out="already done")
        file.write_bytes(whole)
        sh.run(*convert, out="^already done")


def case_convert_never_replaces_unasked(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "m.safetensors")
    before = sh.path("m.safetensors").read_bytes()
    sh.run("convert", sh.checkpoint(TIED), "m.safetensors", code=2, id="E201", err=["--overwrite"])
    check(sh.path("m.safetensors").read_bytes() == before, "replaced")
    sh.run("convert", sh.checkpoint(TIED), "m.safetensors", "--overwrite", out="^done ")
    check(sh.path("m.safetensors").read_bytes() != before, "not replaced")


def case_convert_dry_run_writes_nothing_and_says_what_would_be(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "out", "-n", out=["^plan ", "dry run: "], not_out="^done")
    document = sh.document("convert", sh.checkpoint(ZERO2), "out", "-n")
    check(document["data"]["dry_run"] and document["data"]["target"]["bytes"] > 0, "no plan")
    check(os.listdir(sh.directory) == [], "something was written")


def case_convert_fits_its_schema_and_names_its_files(sh):
    data = sh.document("convert", sh.checkpoint(ZERO2), "hf", "--to", "safetensors", "--shard-size", "20K")["data"]
    for file in data["target"]["files"]:
        check(os.path.getsize(sh.path("hf") / file["path"]) == file["bytes"], f"{file} is not so")
    check(len(data["target"]["files"]) > 3, "no shards")
    check(data["memory"]["peak_bytes"] > 0 and (data["source"]["format"], data["source"]["variant"]) == ("deepspeed", "zero-2"), str(data))
    times = data["times"]
    check(times["plan_s"] > 0 and times["copy_s"] > 0 and times["commit_s"] > 0 and times["verify_s"] == 0, str(times))
    check(sum(times.values()) <= data["elapsed_s"], str(data))
    checked = sh.document("convert", sh.checkpoint(ZERO2), "hf2", "--to", "safetensors", "--verify", "full")["data"]
    check(checked["times"]["verify_s"] > 0, str(checked["times"]))


def case_convert_quiet_says_nothing(sh):
    result = sh.run("convert", "-q", sh.checkpoint(ZERO2), "out")
    check(result.out == result.err == "", "it spoke", result)


def case_convert_prefixes_rename(sh):
    sh.run("convert", sh.checkpoint(TIED), "m.safetensors", "--strip-prefix", "transformer.", "--add-prefix", "gpt.")
    check("gpt.wte.weight" in sh.run("ls", "-q", "m.safetensors").out, "no new names")


def case_convert_of_paths_that_are_not_utf8_keeps_their_bytes(sh):
    name = b"m-\xff.safetensors"
    data = sh.document("convert", os.fsdecode(sh.checkpoint(TIED)), os.fsdecode(name))["data"]
    check(data["target"]["path_b64"] == "bS3/LnNhZmV0ZW5zb3Jz", str(data["target"]))
    check(name in os.listdir(os.fsencode(sh.directory)), "another name")


# --- verify ----------------------------------------------------------------------------------------------------------


def case_verify_of_a_universal_checkpoint_finds_one_flipped_bit(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "out")
    sh.run("verify", "out", out=[r"^out   ok   ckpt .* in \d+ files", r"^  checked     \d+ checksums? OK .*XXH3"])
    sh.run("verify", "out", "--quick", out="^out   ok ")
    shard = next(sh.path("out").glob("shards/weights/*.safetensors"))
    shard.chmod(0o644)
    with open(shard, "r+b") as file:
        file.seek(-3, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    sh.run("verify", "out", "--quick", out="^out   ok ")
    sh.run("verify", "out", code=1, out=["^out   DAMAGED ", r"^  damage +.*shards/weights/\S+\.safetensors"])
    document = sh.document("verify", "out", code=1)
    check(not document["data"]["intact"] and document["data"]["damage"][0]["file"], str(document["data"]))
    sh.run("convert", "out", "m.safetensors", code=15, id="E1503", err=["nothing was written to m.safetensors"])
    check(not sh.path("m.safetensors").exists(), "a target of damaged bytes")


def case_verify_against_measures_values_and_finds_prefixes(sh):
    source = sh.checkpoint("safetensors/single")
    sh.run("convert", source, "half.safetensors", "--dtype", "bf16")
    sh.run("diff", "half.safetensors", source, code=1,
           out=["0 identical, 4 different", r"^  values +47 of 47 differ in these tensors, max \|a-b\| 0.00094, relative 0.003, relative norm 0.00059$",
                r"^  different +a   BF16 here, F32 there; 7 of 7 values differ, max \|a-b\| 0.00094"])
    data = sh.document("verify", "half.safetensors", "--against", source, code=1)["data"]["against"]["different"]
    check(all(d["values"]["differing"] == d["values"]["elements"] and 0 < d["values"]["max_relative"] < 2 ** -8 for d in data), str(data))
    edited = bytearray((source / "model.safetensors").read_bytes())
    edited[-4:] = b"\0\0\xc0\x7f"  # NaN
    sh.path("edited.safetensors").write_bytes(edited)
    sh.run("diff", "edited.safetensors", source, code=1, out=[r"3 identical, 1 different", "1 of 24 values differ, 1 NaN on one side"])
    sh.run("convert", source, "wrapped.safetensors", "--add-prefix", "model.")
    sh.run("diff", "wrapped.safetensors", source, code=1,
           out=["4 only here, 4 only there", "all 4 names match after dropping the prefix 'model.': .*--strip-prefix model."])
    sh.run("diff", "wrapped.safetensors", source, "--strip-prefix", "model.", out="4 identical, 0 different, 0 only here, 0 only there")
    state = sh.checkpoint("deepspeed/zero2_bf16_dp4")
    sh.run("convert", state, "wrapped", "--add-prefix", "model.")
    sh.run("diff", state, "wrapped", "--strip-prefix", "model.", out=" 0 different, 0 only here, 0 only there")
    sh.run("diff", "half.safetensors", code=2, err="missing")
    sh.run("diff", "-h", out=["^Compare the tensors of two checkpoints", "^Usage: ckpt diff A B"])
    sh.run("diff", source, source, "--quick", code=2, err="unknown option '--quick' of 'ckpt diff'")
    check(sh.document("diff", source, source)["schema"] == "ckpt.diff/1", "schema")


def case_diff_compares_what_is_asked_for(sh):
    whole = sh.checkpoint("deepspeed/zero2_bf16_dp4")
    sh.run("convert", whole, "w.safetensors", "--only", "weights", "--weights", "param")
    sh.run("diff", "w.safetensors", whole, code=1, out="10 identical, 0 different, 0 only here, 30 only there")
    sh.run("diff", "w.safetensors", whole, "--only", "weights", out="10 identical, 0 different, 0 only here, 0 only there")
    sh.run("diff", "w.safetensors", whole, "--only", "h.0.*", out="^against .*: 6 identical, 0 different, 0 only here, 0 only there")
    sh.run("diff", "w.safetensors", whole, "--only", "nothing", code=10, err="matches --only nothing")


def case_equal_values_of_other_types_are_said_to_be_equal(sh):
    save({"a": Tensor([1, 2])}, sh.path("one.pt"))
    sh.run("convert", "one.pt", "half.safetensors", "--dtype", "bf16")
    sh.run("diff", "one.pt", "half.safetensors", code=1, out="^  different +a   F32 here, BF16 there; all values are equal$")
    sh.run("diff", "one.pt", "half.safetensors", "--rtol", "0", out="1 within the tolerance, 0 different")


def case_a_double_is_compared_as_a_double(sh):
    for name, kind, data in (("one", "F32", struct.pack("<f", 1)), ("two", "F64", struct.pack("<d", 1 + 1e-10)), ("same", "F64", struct.pack("<d", 1))):
        header = json.dumps({"a": {"dtype": kind, "shape": [1], "data_offsets": [0, len(data)]}}).encode()
        sh.path(f"{name}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    sh.run("diff", "one.safetensors", "two.safetensors", code=1, out=r"F32 here, F64 there; 1 of 1 values differ, max \|a-b\| 1e-10")
    sh.run("diff", "one.safetensors", "two.safetensors", "--rtol", "0", code=1)
    sh.run("diff", "one.safetensors", "same.safetensors", code=1, out="all values are equal")


def case_a_tolerance_is_that_of_numpy(sh):
    source = sh.checkpoint("safetensors/single")
    sh.run("convert", source, "half.safetensors", "--dtype", "bf16")
    sh.run("diff", "half.safetensors", source, "--rtol", "0.01", out="0 identical, 4 within the tolerance, 0 different")
    data = sh.document("verify", "half.safetensors", "--against", source, "--rtol=1e-3", code=1)["data"]["against"]
    check(data["within_tolerance"] + len(data["different"]) == 4 and data["different"], str(data))
    sh.run("diff", "half.safetensors", source, "--atol", "0.001", out="4 within the tolerance")
    sh.run("diff", "half.safetensors", source, "--atol", "-1", code=2, err="--atol: '-1' is not a number of at least 0")
    sh.run("verify", source, "--rtol", "1", code=2, err=["--rtol: nothing to compare with", "hint: ckpt diff A B --rtol 1"])


def case_what_differs_in_all_layers_is_one_line(sh):
    def model(path, factor, layers):
        save({f"layers.{i}.{name}": Tensor([1 + factor * i, 2]) for i in range(layers) for name in ("up", "down")}, sh.path(path))

    model("one.pt", 1, 20)
    model("two.pt", 2, 14)
    sh.run("diff", "one.pt", "two.pt", code=1, out=[
        "2 identical, 26 different, 12 only here, 0 only there",
        r"^  different   layers\.\*\.(up|down) \(13 tensors\)   13 of 26 values differ, max \|a-b\| 13, .*; most in 13$",
        r"^  only here   layers\.\*\.up \(6 tensors\)$"])
    sh.run("diff", "one.pt", "two.pt", "-v", code=1, out=[r"^  different +layers\.13\.up   1 of 2 values differ", r"^  only here +layers\.19\.down$"])


def case_verify_against_compares_across_formats(sh):
    sh.run("convert", sh.checkpoint(TIED), "m.safetensors")
    sh.run("verify", "m.safetensors", "--against", sh.checkpoint(TIED), out=r"28 identical, 0 different, 0 only here")
    sh.run("convert", sh.checkpoint(TIED), "half.safetensors", "--dtype", "fp16")
    document = sh.document("verify", "half.safetensors", "--against", sh.checkpoint(TIED), code=1)
    check(len(document["data"]["against"]["different"]) == 28, str(document["data"]["against"]))
    sh.run("verify", "half.safetensors", "--against", sh.checkpoint(TIED), code=1, out=["^half.safetensors   DIFFERS", "6 more; -v"])


def case_verify_of_a_foreign_format_says_what_was_checked(sh):
    document = sh.document("verify", sh.checkpoint(ZERO2))
    check(document["data"]["intact"] and document["data"]["checked_by"], str(document["data"]))
    sh.document("verify", broken(sh, "zip_flipped_tensor_byte"), code=1)
    sh.run("verify", broken(sh, "st_overlap"), code=1, out=["DAMAGED$", "^  damage +.*two tensors"], not_out="0 tensors")


def case_verify_names_the_rank_whose_file_is_not_its_own(sh):
    sh.run("convert", sh.checkpoint(ZERO2), "whole", "--verify", "full", out="output read back, identical")
    document = sh.document("verify", sh.checkpoint(ZERO2))["data"]
    check((document["masters_compared"], document["source_checksums_unread"]) == (10, 0), str(document))
    sh.run("verify", broken(sh, "zero2_rank_copied"), code=1, out=["DAMAGED", "^  damage .*rank_1_mp_rank_00_optim_states.pt"])


def case_verify_finite_and_sample_say_what_they_saw(sh):
    save({"good": Tensor([1, 2]), "bad": Tensor([float("nan"), float("inf"), 0, float("-inf")])}, sh.path("m.pt"))
    sh.run("verify", "m.pt", out="^m.pt   ok ")
    sh.run("verify", "m.pt", "--finite", code=1, out=["^m.pt   NOT FINITE ", "^  not finite  bad   1 NaN, 2 Inf$"])
    data = sh.document("verify", "m.pt", "--finite", code=1)["data"]
    check(data["not_finite"] == [{"name": "bad", "nan": 1, "infinite": 2}], str(data))
    sh.run("verify", sh.checkpoint(ZERO2), "--finite", out=["^  finite +no NaN, no Inf$"])
    sh.run("verify", sh.checkpoint(ZERO2), "--sample", "50%", "--seed", "3", out=r"\d+ of \d+ leaves of 4 MiB, seed 3")
    check(sh.document("verify", sh.checkpoint(ZERO2), "--sample", "5%")["data"]["sample"] == {"share": 0.05, "seed": 0}, "sample")
    for words in (["--sample", "5"], ["--sample", "0%"], ["--seed", "1"], ["--quick", "--finite"], ["--quick", "--sample", "5%"]):
        sh.run("verify", "m.pt", *words, code=2)


def case_inspect_names_what_is_unexpected_and_the_next_commands(sh):
    sh.run("inspect", sh.checkpoint("deepspeed/zero2_fp32_dp3_frozen"), out=["^note    3 of 9 parameters have no optimizer state [(]frozen[?][)]: ", "^  checks +CRC-32s; .ckpt verify. ", "^next: ckpt convert "])
    sh.run("inspect", sh.checkpoint("torch/fsdp2_hsdp_bf16"), out="are 16-bit without an fp32 master: training updates rounded weights")
    sh.run("inspect", sh.checkpoint("safetensors/llama_sharded"), out="^note    16-bit weights only [(]no fp32 masters, no optimizer state[)]$")
    sh.run("inspect", sh.checkpoint("deepspeed/zero2_fp32_dp3_round_robin"), out="^note    round_robin_gradients: ")


# --- what goes wrong -------------------------------------------------------------------------------------------------


def case_a_missing_path_is_10_for_every_verb(sh):
    for words in (["inspect"], ["ls"], ["verify"], ["convert"]):
        words += ["nowhere"] + (["out"] if words == ["convert"] else [])
        result = sh.run(*words, code=10, err="^error: nowhere: ", not_err="explain")
        sh.run(*words, "-v", code=10, err=["^error: nowhere: ", "^exit 10 · ckpt explain E1000$"])
        check(result.out == "", "an error belongs on standard error", result)
        sh.document(*words, code=10)


def case_a_text_file_is_12_and_its_message_says_what_can_be_read(sh):
    for verb in ("inspect", "ls", "verify"):
        sh.run(verb, broken(sh, "text_file"), code=12, id="E1200", err=["safetensors"])
        sh.document(verb, broken(sh, "text_file"), code=12)
    sh.run("convert", broken(sh, "text_file"), "out", code=12, err="effect +nothing was written to out")


def case_targets_that_are_no_paths_are_refused_before_anything_is_read(sh):
    sh.run("convert", sh.checkpoint(TIED), "s3://bucket/run", code=12, err="cannot write to a URL")
    sh.run("convert", sh.checkpoint(TIED), "-", code=2, err="standard output")
    sh.run("convert", sh.checkpoint(TIED), "no/such/out", code=10, err="^hint: mkdir -p no/such$")
    sh.path("file").write_text("x")
    sh.run("convert", sh.checkpoint(TIED), "file/below/out", code=10, err="^hint: file is a file: choose another path for the target$")
    sh.path("file").unlink()
    check(os.listdir(sh.directory) == [], "left-overs")


def case_a_format_known_by_name_only_is_12_and_named(sh):
    sh.run("inspect", sh.checkpoint("megatron/core_torch_dist_w4"), "--from", "dcp", out="in 4 tensors", err="skipped a file, .*common.pt")
    sh.run("convert", sh.checkpoint("orbax/direct_standard"), "out", code=12, err="Orbax")


def case_a_missing_rank_is_13_and_hostile_content_15(sh):
    sh.run("convert", broken(sh, "zero2_missing_rank"), "out", code=13, err="zero_pp_rank")
    sh.run("convert", broken(sh, "pickle_os_system"), "out", code=15, id="E1510", err=[r"os\b"])
    check(os.listdir(sh.directory) == [], "left-overs")


def case_names_in_messages_cannot_move_the_cursor(sh):
    name = "evil\x1b[2J\rname"
    sh.run("inspect", name, code=10, err=r"evil\?\[2J\?name")


def case_the_log_file_has_times_and_everything(sh):
    sh.run("-q", "inspect", "nowhere", "--log-file", "log", code=10)
    sh.run("convert", sh.checkpoint(TIED), "o.safetensors", "--log-file", "log")
    log = sh.path("log").read_text()
    check(re.search(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ error: nowhere", log, re.M), log)
    check(log.count(" exit ") >= 2 and "ckpt -q inspect nowhere" in log and "plan " in log, log)
    sh.run("ls", "x", "--log-file", "no/such/dir/log", code=16, err="cannot write the log")


def case_files_of_pipeline_stages_keep_all_weights(sh):
    """They are laid out by the stored weights, not by the masters."""
    for name in ("pp2_dp2_zero0_fp16", "pp2_dp2_zero0_bf16", "pp2_dp2_zero1_fp32"):
        source = sh.checkpoint(f"deepspeed/{name}")
        for i, flags in enumerate((("--only", "weights", "--fresh-optimizer"), ("--dtype", "fp32"), ("--dtype", "fp16"))):
            sh.run("convert", source, f"{name}{i}", "--to", "deepspeed", *flags, code=(0, 3))
            sh.run("verify", f"{name}{i}")
            sh.run("diff", f"{name}{i}", source, "--only", "weights", "--rtol", "0.01", "--atol", "0.01", code=(0, 1),
                   out=r" (\d) only here, \1 only there")  # a tied weight may have its other name
        sh.run("convert", source, "masters", "--to", "deepspeed", "--weights", "master", code=12, err="--weights master is not supported where the target keeps the model-parallel ranks")


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
