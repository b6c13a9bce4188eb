"""A format is one folder in src/convert and one line in the registry; nothing else knows its name."""
import re

from source_text import CPP, arguments, code_only, project_files, read, verdict

HEADER = "src/convert/formats.hpp"
REGISTRY = "src/convert/registry.cpp"
POLICIES = "src/catalog/policy_import.cpp"  # systems whose retention is known, some of the same name


def main():
    options = arguments()
    declared = re.findall(r"Format (\w+)_format\(\);", read(options.root, HEADER))
    registered = set(re.findall(r"(\w+)_format\(\)", read(options.root, REGISTRY)))
    findings = [f"{REGISTRY}: {name}_format() is declared but not registered" for name in declared
                if name not in registered]
    files = [f for f in project_files(options.root) if f.endswith(CPP) and f.startswith(("src/", "cli/"))]
    for path in files:
        if path in (HEADER, REGISTRY, POLICIES) or re.match(r"src/convert/[^/]+/", path):
            continue  # what a folder knows of another is for layers.py
        code = code_only(read(options.root, path), keep_strings=True)
        for number, line in enumerate(code.splitlines(), 1):
            for name in declared:
                # CKPT_HAS_HDF5 is the library, not the format.
                if re.search(rf'\b{name}_format\b|"{name}"', line) and "CKPT_HAS_" not in line:
                    findings.append(f"{path}:{number}: names the format {name}")
    verdict(findings, len(declared) and len(files))


main()
