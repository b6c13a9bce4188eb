"""A format is one folder in src/convert and one line in its list; nothing else knows its name, or its framework's."""
import re

from source_text import CPP, arguments, code_only, project_files, read, verdict

LIST = "src/convert/formats.hpp"
POLICIES = "src/catalog/policy_import.cpp"  # systems whose retention is known, some of the same name
SIDES = "src/format/naming/side.cpp"  # frameworks whose tensor names are known, likewise

# Names of other frameworks, and of their files and directories. Formats supply them to the engine and
# the catalog as ForeignNames.
FOREIGN = re.compile(r"deepspeed|megatron|lightning|accelerate|hugging.?face|orbax|torchtitan|global_step|checkpoint[-_]"
                     r"|\biter_|latest_checkpointed_iteration|trainer_state|pytorch_model|\.distcp|\"metadata\.json\""
                     r"|\"\.metadata\"", re.I)
KNOW_NONE = ("src/engine/", "src/catalog/")
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')


def main():
    options = arguments()
    declared = re.findall(r"^\s*FORMAT\((\w+)\)", read(options.root, LIST), re.M)
    findings = []
    files = [f for f in project_files(options.root) if f.endswith(CPP) and f.startswith(("src/", "cli/"))]
    for path in files:
        if path in (LIST, POLICIES, SIDES) or re.match(r"src/convert/[^/]+/", path):
            continue  # what a folder knows of another is for layers.py
        code = code_only(read(options.root, path), keep_strings=True)
        for number, line in enumerate(code.splitlines(), 1):
            for name in declared:
                # CKPT_HAS_HDF5 is the library, not the format.
                if re.search(rf'\b{name}_format\b|"{name}"', line) and "CKPT_HAS_" not in line:
                    findings.append(f"{path}:{number}: names the format {name}")
    for path in files:
        if not path.startswith(KNOW_NONE) or path == POLICIES:
            continue
        code = code_only(read(options.root, path), keep_strings=True)
        for number, line in enumerate(code.splitlines(), 1):
            if re.match(r"\s*#\s*include", line):
                continue
            for text in STRING.findall(line):
                if FOREIGN.search(text):
                    findings.append(f"{path}:{number}: {text}: a name of another framework; its format supplies it")
    verdict(findings, len(declared) and len(files))


main()
