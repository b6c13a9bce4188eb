"""Every source belongs to a target, and every file of tests is built or run."""
import os
import re

from source_text import arguments, project_files, read, verdict


def without_comments(cmake):
    return re.sub(r"#[^\n]*", "", cmake)


def adds(parent, text, folder):
    """Whether the list of `parent` adds the folder, by its name or with all others below itself."""
    path = os.path.relpath(folder, parent or ".")
    if re.search(rf"add_subdirectory\(\s*{re.escape(path)}\s*\)", text):
        return True
    return os.path.dirname(folder) == parent and re.search(r"GLOB[^)]*\s\*/CMakeLists\.txt\)", text) is not None


def main():
    options = arguments()
    files = project_files(options.root)
    lists = {os.path.dirname(f): without_comments(read(options.root, f)) for f in files
             if os.path.basename(f) == "CMakeLists.txt"}
    named = set()  # what the lists name, as paths of the project
    for folder, text in lists.items():
        for word in re.split(r"[\s()\"]+", text):
            word = word.replace("${CMAKE_CURRENT_SOURCE_DIR}", "/" + folder).replace("${PROJECT_SOURCE_DIR}", "/")
            named.add(os.path.normpath(os.path.join("/", folder, word)).lstrip("/"))
        for name in re.findall(r"\bckpt_fuzz\((\w+)", text):
            named.add(f"{folder}/{name}_fuzz.cpp")
    sources = [f for f in files if f.endswith((".cpp", ".c"))]
    findings = [f"{path}: in no target" for path in sources if path not in named]
    # A folder with a list that no other list adds is never built. A separate project is named by the file that builds
    # it.
    for folder, own in lists.items():
        if folder and re.search(r"^\s*project\(", own, re.M) and folder in named:
            continue
        if folder and not any(adds(parent, text, folder) for parent, text in lists.items() if folder != parent):
            findings.append(f"{folder}/CMakeLists.txt: no add_subdirectory names it")
    for path in files:
        if re.search(r"(^|/)(test_\w+|\w+_test)\.py$", path) and not path.startswith(("tests/interop/", "tests/python/", "bench/")):
            findings.append(f"{path}: no runner looks here")
        if path.startswith("tests/fuzz/") and path.endswith("_fuzz.cpp"):
            corpus = os.path.join(options.root, "tests/fuzz/corpus", os.path.basename(path)[:-len("_fuzz.cpp")])
            if not os.path.isdir(corpus) or not os.listdir(corpus):
                findings.append(f"{path}: no corpus")
    verdict(findings, len(sources))


main()
