"""Sums up test runs from their JUnit files: what failed and its output, what was skipped and why, and the slowest tests.

    python3 tests/report.py [--failed-steps N] FILE.xml...

Prints for people; the last line is "N passed, N failed, N skipped". A step that failed without being a test, and a file that is
missing or cut short, count as one failure each. Exit 0: something ran and nothing failed."""
import argparse
import collections
import os
import re
import sys
import xml.etree.ElementTree

SLOWEST = 20
LINES_OF_OUTPUT = 30  # of a failed test, the last ones


def cases(path):
    """(name, seconds, verdict, text) of each test; verdict: passed, failed or skipped."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = re.sub(r"  # GetParam\(\) = .*", "", case.get("name"))
        if case.get("classname") and case.get("classname") != case.get("name"):
            name = f"{case.get('classname')}.{name}"
        failure = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
        output = case.findtext("system-out") or ""
        if failure is not None or case.get("status") == "fail":
            yield name, float(case.get("time") or 0), "failed", output or (failure.text or "" if failure is not None else "")
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped = case.find("skipped")
            yield name, 0.0, "skipped", output or (skipped.get("message") if skipped is not None else "") or ""
        else:
            yield name, float(case.get("time") or 0), "passed", ""
            for part, why in re.findall(r"^skip +(\w+): (.*)$", output, re.MULTILINE):  # cases of one script
                yield f"{name}: {part}", 0.0, "skipped", f"skipped: {why}"


def reason(text):
    """The line of a skipped test's output that says why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in lines if line.lower().startswith("skipped:")), None)
    if said:
        return said[len("skipped:"):].strip()
    for i, line in enumerate(lines):  # GoogleTest: FILE:LINE: Skipped, and the message below it
        if re.search(r": Skipped$", line):
            return lines[i + 1] if i + 1 < len(lines) else "no reason given"
    return lines[-1] if lines else "no reason given"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--failed-steps", type=int, default=0)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    found = collections.Counter(failed=options.failed_steps)
    failed, skipped, timed = [], [], []
    for path in options.files:
        run = os.path.splitext(os.path.basename(path))[0]
        try:
            for name, seconds, verdict, text in cases(path):
                found[verdict] += 1
                timed.append((seconds, f"{run}: {name}"))
                if verdict == "failed":
                    failed.append((f"{run}: {name}", text))
                elif verdict == "skipped":
                    skipped.append((reason(text), f"{run}: {name}"))
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            found["failed"] += 1
            failed.append((f"{run}: no result ({error})", ""))
    if timed:
        print(f"\nslowest {SLOWEST} tests:")
        for seconds, name in sorted(timed, reverse=True)[:SLOWEST]:
            print(f"  {seconds:7.1f} s  {name}")
    if skipped:
        print("\nskipped:")
        by_reason = collections.defaultdict(list)
        for why, name in skipped:
            by_reason[why].append(name)
        for why, names in sorted(by_reason.items()):
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            print(f"  {why}: {', '.join(names[:3])}{more}")
    for name, text in failed:
        lines = [line for line in text.splitlines() if line.strip()]
        print(f"\nfailed: {name}")
        print("\n".join(f"  | {line[:300]}" for line in lines[-LINES_OF_OUTPUT:]))
    if failed:
        print("\nfailed:")
        for name, _ in failed:
            print(f"  {name}")
    print(f"\n{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped")
    sys.exit(0 if found["passed"] and not found["failed"] else 1)


main()
