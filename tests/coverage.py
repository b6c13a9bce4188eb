"""Sums up what tests reached: python3 tests/coverage.py BUILD

Reads BUILD/profiles/*.profraw, which clang's instrumented programs wrote, and writes BUILD/report.txt: the share of lines
reached, by folder and file, least reached first."""
import collections
import glob
import json
import os
import subprocess
import sys

BATCH = 500  # profiles that one call merges


def main():
    build = os.path.realpath(sys.argv[1])
    root = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
    merged = os.path.join(build, "merged.profdata")
    profiles = sorted(glob.glob(os.path.join(build, "profiles", "*.profraw")))
    if not profiles:
        sys.exit("coverage: no profiles: no instrumented program ran")
    if os.path.exists(merged):
        os.unlink(merged)
    for at in range(0, len(profiles), BATCH):
        before = [merged] if os.path.exists(merged) else []
        subprocess.run(["llvm-profdata-14", "merge", "-sparse", "-o", merged + ".new", *before, *profiles[at:at + BATCH]], check=True)
        os.replace(merged + ".new", merged)
    programs = [path for path in sorted(glob.glob(os.path.join(build, "bin", "*"))) if os.access(path, os.X_OK)]
    objects = [word for path in programs[1:] for word in ("-object", path)]
    exported = subprocess.run(["llvm-cov-14", "export", "-summary-only", "-instr-profile", merged, programs[0], *objects],
                              check=True, capture_output=True, text=True).stdout
    folders, files = collections.defaultdict(lambda: [0, 0]), []
    for file in json.loads(exported)["data"][0]["files"]:
        path = os.path.relpath(file["filename"], root)
        if not path.startswith(("src/", "cli/", "include/")):
            continue
        lines = file["summary"]["lines"]
        files.append((lines["covered"], lines["count"], path))
        for total in (folders[os.path.dirname(path)], folders["all"]):
            total[0] += lines["covered"]
            total[1] += lines["count"]

    def row(covered, count, name):
        return f"{100 * covered / max(count, 1):6.1f} %  {covered:6} of {count:6} lines  {name}"

    with open(os.path.join(build, "report.txt"), "w", encoding="utf-8") as out:
        print("by folder:", *(row(*total, name) for name, total in sorted(folders.items())), sep="\n", file=out)
        least = sorted(files, key=lambda file: file[0] / max(file[1], 1))
        print("\nby file, least reached first:", *(row(*file) for file in least), sep="\n", file=out)


main()
