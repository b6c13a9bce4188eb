"""Words that code of a layer must not contain: printing below cli, the environment, ending the process, unowned TODOs,
long files."""
import re

from source_text import CPP, arguments, code_only, project_files, read, verdict

LONGEST = 600  # lines

PRINTS = "only cli prints"
# A trainer without a log, or one that ends without closing its run, still learns that its saves fail.
MAY_PRINT = ("src/api/run/first_failure.cpp", "src/api/run/exit_report.cpp")

# pattern in code, the folders in which it is searched, why it is forbidden there
RULES = [
    (r"std::(cout|cerr|clog)\b|\b(printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror)\s*\(|\bfmt::print(ln)?\b",
     ("src/", "include/"), PRINTS),
    (r"\b(secure_)?getenv\b|\bsetenv\b|\bputenv\b", ("src/", "include/"), "the environment is read in cli"),
    (r"\b(v?fork|system|popen|exec[vl]p?e?)\s*\(", ("src/", "include/", "cli/"), "helpers are started by posix_spawn"),
    (r"(?<![\w.>])(std::)?(exit|_exit|quick_exit|abort|terminate)\s*\(", ("src/", "include/"),
     "the library never ends the process"),
    (r"\b(atoi|atol|atoll|strtok|sprintf|gets|strcpy|strcat)\s*\(", ("src/", "include/", "cli/", "helper/"),
     "unchecked"),
    (r"_clock::now\b|\b(clock_gettime|gettimeofday|time)\s*\(", ("src/format/",), "clocks are passed in"),
    (r"^using\s+namespace\b", ("src/", "include/", "cli/", "helper/"), "names stay where they are"),
]


def main():
    options = arguments()
    findings, looked_at = [], 0
    for path in project_files(options.root):
        if not path.endswith(CPP + (".py", ".sh", ".cmake", "CMakeLists.txt", "check", "quickstart")):
            continue
        looked_at += 1
        text = read(options.root, path)
        lines = text.count("\n") + (not text.endswith("\n") and text != "")
        if lines > LONGEST:
            findings.append(f"{path}: {lines} lines, more than {LONGEST}: one idea a file")
        for number, line in enumerate(text.splitlines(), 1):
            if path != "tests/tidy/forbidden.py" and re.search(r"\b(TODO|FIXME|XXX|HACK)\b(?!\([\w.@-]+\))", line):
                findings.append(f"{path}:{number}: TODO(owner): who does it?")
        if not path.endswith(CPP):
            continue
        for number, line in enumerate(code_only(text).splitlines(), 1):
            for pattern, folders, why in RULES:
                allowed = why == PRINTS and path in MAY_PRINT
                if path.startswith(folders) and re.search(pattern, line) and not allowed:
                    findings.append(f"{path}:{number}: {why}: {line.strip()}")
    verdict(findings, looked_at)


main()
