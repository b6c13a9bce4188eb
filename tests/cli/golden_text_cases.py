"""The whole text of commands equals that of tests/golden_text, which tests/golden_text/regenerate writes."""
import difflib
import re

import golden_text
from runner import check, main


def compare(sh, name, columns, place):
    golden_text.prepare(sh)
    file = golden_text.folder() / golden_text.file_name(name, columns, place)
    expected = file.read_text() if file.exists() else ""
    got = golden_text.output(sh, name, columns, place)
    lines = difflib.unified_diff(expected.splitlines(), got.splitlines(), file.name, "now", lineterm="")
    check(got == expected, "\n".join(lines) + "\nif this is the new text: tests/golden_text/regenerate CKPT")


def case_no_file_is_left_of_a_scenario_that_is_gone(sh):
    del sh
    expected = {golden_text.file_name(n, c, p) for n in golden_text.SCENARIOS for c in golden_text.COLUMNS for p in golden_text.PLACES}
    found = {p.name for p in golden_text.folder().glob("*.txt")}
    check(found == expected, f"{sorted(found ^ expected)}")


def case_what_is_replaced_is_only_what_varies(sh):
    text = "llama  40 d  1.01 MiB  8509d024\ndone  1 file, 27.7 KiB in 33 ms · peak memory 19.9 MiB\nfree 76.3 GiB\nwould free 2 KiB\nsaved 2026-11-26 04:48 UTC\n"
    got = golden_text.fixed(text, "list", sh.directory)
    check(got == "llama  40 d  1.01 MiB  0a1b2c3d\ndone  1 file, 27.7 KiB in TIME · peak memory SIZE\nfree SIZE\nwould free 2 KiB\nsaved 2026-01-02 03:04 UTC\n", got)
    check(golden_text.fixed("stall   22.8 s  1.9 s", "plan", sh.directory) == "stall   22.8 s  1.9 s", "plan has no clock")
    check(not re.search(r"(?m)^.{81,}$", (golden_text.folder() / "list-80-terminal.txt").read_text().split("[exit", 1)[0]), "wider than the terminal")


for _name in golden_text.SCENARIOS:
    for _columns in golden_text.COLUMNS:
        for _place in golden_text.PLACES:
            globals()[f"case_{_name}_at_{_columns}_columns_in_a_{_place}"] = (
                lambda sh, name=_name, columns=_columns, place=_place: compare(sh, name, columns, place))


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
