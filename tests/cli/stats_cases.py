"""ckpt stats: what the values of each tensor are, against numbers that Python calculates."""
import json
import math
import random
import statistics
import struct

from runner import check, main
from torch_file import Tensor, save

CODES = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I8": "b", "U8": "B"}


def encoded(dtype, values):
    if dtype == "BF16":  # the upper half of an F32
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    if dtype == "C64":
        return b"".join(struct.pack("<ff", v.real, v.imag) for v in values)
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def write(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-10, abs_tol=1e-12)


def stats(sh, *words):
    return {t["name"]: t for t in sh.document("stats", *words)["data"]["tensors"]}


def case_every_type_has_the_numbers_that_python_calculates(sh):
    chance = random.Random(1)
    values = {"F64": [chance.gauss(1e6, 1) for _ in range(5000)],  # a plain sum of squares would lose the deviation
              "F32": [struct.unpack("<f", struct.pack("<f", chance.gauss(0, 2)))[0] for _ in range(1025)],
              "F16": [0.5, -2.0, 0.0, -0.0, 1024.0], "BF16": [1.5, -3.0, 0.0, 256.0],
              "I64": [-5, 7, 0, 0, 1 << 40], "I8": [-128, 127, 3], "U8": [0, 255]}
    write(sh.path("m.safetensors"), {d.lower(): (d, [len(v)], encoded(d, v)) for d, v in values.items()})
    found = stats(sh, "m.safetensors")
    check(len(found) == len(values), str(list(found)))
    for dtype, numbers in values.items():
        one = found[dtype.lower()]
        wanted = {"min": min(numbers), "max": max(numbers), "mean": statistics.fmean(numbers), "std": statistics.pstdev(numbers),
                  "norm": math.sqrt(math.fsum(v * v for v in numbers))}
        for key, value in wanted.items():
            check(close(one[key], value), f"{dtype} {key}: {one[key]}, not {value}")
        check(one["elements"] == len(numbers) and one["zeros"] == sum(v == 0 for v in numbers) and one["nan"] == one["inf"] == 0, str(one))


def case_nan_and_inf_count_nowhere_else(sh):
    nan, inf = math.nan, math.inf
    write(sh.path("m.safetensors"), {"some": ("F32", [5], encoded("F32", [1, nan, -inf, 3, inf])),
                                     "all": ("BF16", [2], encoded("BF16", [nan, inf])),
                                     "none": ("F32", [0], b""), "one": ("F16", [], encoded("F16", [-2.0])),
                                     "complex": ("C64", [3], encoded("C64", [3 + 4j, 0j, complex(nan, 1)])),
                                     "eight": ("F8_E5M2", [3], bytes([0x3c, 0x7c, 0x7f])),  # 1, inf, nan
                                     "huge": ("F64", [4], encoded("F64", [1e300, -1e300, -1e300, 1e300])),
                                     "packed": ("F4", [4], b"\x12\x34")})
    found = stats(sh, "m.safetensors")
    def of(name):
        return tuple(found[name][key] for key in ("min", "max", "mean", "std", "norm", "zeros", "nan", "inf"))
    check(of("some") == (1, 3, 2, 1, math.sqrt(10), 0, 1, 2), str(of("some")))
    check(of("all") == (None, None, None, None, 0, 0, 1, 1), str(of("all")))
    check(of("none") == (None, None, None, None, 0, 0, 0, 0), str(of("none")))
    check(of("one") == (-2, -2, -2, 0, 2, 0, 0, 0), str(of("one")))
    check(of("complex") == (None, None, None, None, 5, 1, 1, 0), str(of("complex")))
    check(of("huge") == (-1e300, 1e300, 0, 1e300, 2e300, 0, 0, 0), str(of("huge")))
    check(of("eight") == (1, 1, 1, 0, 1, 0, 1, 1), str(of("eight")))
    check(of("packed") == (None, None, None, None, None, 0, 0, 0) and found["packed"]["elements"] == 4, str(of("packed")))
    text = sh.run("stats", "m.safetensors", out=["^NAME +DTYPE +SHAPE +MIN +MAX +MEAN +STD +NORM +ZEROS +NAN +INF$", "^some .* 1 +2$",
                                                 "^8 tensors, .* · 4 with NaN or Inf$"]).out
    check(len(text.splitlines()) == 10, text)
    rows = [line.split("\t") for line in sh.run("stats", "m.safetensors", "--tsv").out.splitlines()]
    check(rows[0][:5] == ["NAME", "DTYPE", "SHAPE", "ELEMENTS", "MIN"] and rows[1][3:6] == ["5", "1", "3"], str(rows[:2]))


def case_the_result_does_not_depend_on_threads_and_leaves(sh):
    raw = random.Random(2).randbytes(9 << 20)  # three leaves; NaNs among them
    write(sh.path("m.safetensors"), {"big": ("BF16", [len(raw) // 2], raw), "small": ("U8", [16], raw[:16])})
    first = stats(sh, "m.safetensors", "--threads", "1")
    check(first["big"]["nan"] > 1000 and first["big"]["elements"] == len(raw) // 2, str(first["big"]))
    for threads, io in (("2", "threads"), ("7", "threads"), ("4", "auto")):
        check(stats(sh, "m.safetensors", "--threads", threads, "--io", io) == first, f"{threads} threads")


def case_tensors_of_any_format_are_selected_and_what_none_has_is_an_error(sh):
    ds = sh.checkpoint("deepspeed/zero2_bf16_dp4")
    weights = stats(sh, ds, "--only", "weights")
    check(len(weights) == 10 and all(w["norm"] > 0 or w["zeros"] for w in weights.values()), str(weights))
    slots = stats(sh, ds, "--only", "*.exp_avg_sq")
    check(len(slots) == 10 and all(s["min"] >= 0 for s in slots.values()), "a negative square")
    sh.run("stats", ds, "--only", "wte.wieght", code=10, err=["no tensor matches --only wte.wieght", "did you mean 'wte.weight'"])
    sh.run("save", ds, "--store", "st", "--run", "r", "-q")
    sh.run("stats", "r@latest", "--store", "st", "--only", "wte.weight", out="^wte.weight +BF16")
    sh.run("stats", "nowhere", code=10)


def case_repeated_elements_are_read_once(sh):
    """torch.zeros(1).expand(n) takes one element in the file, whatever n is."""
    save({"w": Tensor([3.0], [1 << 40], steps=[0])}, sh.path("e.pt"))
    one = stats(sh, "e.pt")["w"]
    check((one["min"], one["mean"], one["zeros"], one["elements"]) == (3, 3, 0, 1 << 40), str(one))
    check(close(one["norm"], 3 * math.sqrt(1 << 40)), str(one))


if __name__ == "__main__":
    main({k: v for k, v in list(globals().items()) if k.startswith("case_")})
