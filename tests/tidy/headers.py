"""Every header compiles alone, and says #pragma once (those for C: a guard). One that a source file includes before anything
else needs no compiler here: clang-tidy and the preset dev compile each source alone, and so that header first."""
import concurrent.futures
import os
import re
import shutil
import subprocess

from source_text import arguments, project_files, read, verdict


def main():
    options = arguments()
    headers = [f for f in project_files(options.root)
               if f.endswith((".hpp", ".h")) and f.startswith(("src/", "include/", "cli/", "helper/"))]
    headers = [f for f in headers if not f.startswith(("src/engine/mpi/", "helper/", "include/ckpt/mpi.hpp"))]

    cache = ["ccache"] if shutil.which("ccache") else []

    def is_first_of_a_source(path):
        source = os.path.splitext(path)[0] + ".cpp"
        if not os.path.exists(os.path.join(options.root, source)):
            return False
        first = re.search(r'^#include [<"](.*)[>"]$', read(options.root, source), re.M)
        return first is not None and (path == first[1] or path.endswith("/" + first[1]))

    def compile_alone(path):
        guard = r"^#ifndef (CKPT_\w+_H)\n#define \1$" if path.endswith(".h") else "^#pragma once$"
        found = [] if re.search(guard, read(options.root, path), re.M) else [f"{path}: nothing keeps it from being included twice"]
        if is_first_of_a_source(path):
            return found
        name, *language = ("alone.c", "-x", "c", "-std=c11") if path.endswith(".h") else ("alone.cpp", "-std=c++20")
        includes = [f"-I{options.root}/{folder}" for folder in ("src", "include", ".")]
        # Read as an #include from a file, so that #pragma once is no warning. Object files instead of -fsyntax-only: ccache keeps
        # them, so that only headers that changed are compiled.
        folder = os.path.join("headers", path)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as source:
            source.write(f'#include "{os.path.join(options.root, path)}"\n')
        run = subprocess.run([*cache, options.cxx, "-Wall", "-Wextra", "-Werror", *language, *includes, "-c",
                              os.path.join(folder, name), "-o", os.path.join(folder, "alone.o")], capture_output=True, text=True)
        if run.returncode != 0:
            found.append(f"{path}: does not compile alone:\n{run.stderr[:1500]}")
        return found

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = [finding for found in pool.map(compile_alone, headers) for finding in found]
    verdict(findings, len(headers))


main()
