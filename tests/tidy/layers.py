"""Dependencies point down: cli -> api -> writers | loading | convert | catalog -> engine -> format. Siblings never include each other, and no folders
include each other in a cycle."""
import re

from source_text import CPP, arguments, code_only, project_files, read, verdict

MAY_INCLUDE = {
    "src/format": {"format"},
    "src/engine": {"format", "engine", "ckpt"},  # ckpt/comm.h, the table that trainers fill
    "src/writers": {"format", "engine", "writers"},
    "src/loading": {"format", "engine", "loading"},
    "src/convert": {"format", "engine", "convert"},
    "src/catalog": {"format", "engine", "catalog"},
    "src/api": {"format", "engine", "writers", "loading", "convert", "catalog", "api", "ckpt"},
    "cli": {"api", "cli", "ckpt", "catalog", "engine/io/host.hpp", "format/text"},
    "helper": {"format", "helper"},
    "include/ckpt": {"ckpt"},
}
LAYERS = {path.split("/")[-1] for path in MAY_INCLUDE}

# Rooms of a layer, or of a folder, from the lowest up: each may include itself, the folder's own files and these lower rooms.
# A layer that is not here has no walls.
ROOMS = {
    "format": {
        "text": set(),
        "model": {"text"},
        "naming": {"text", "model"},
        "files": {"text", "model"},
        "torch": {"text", "model"},
        "universal": {"text", "model", "files"},
    },
    "engine": {
        "io": set(),
        "process": {"io"},
        "comm": {"io", "process"},
        "mpi": {"comm"},
        "store": {"io", "comm"},
        "locks": {"io", "store"},
        "run": {"io", "process", "comm", "locks"},
        "publish": {"io", "store", "locks", "run"},
        "offload": {"io", "process", "run"},
    },
    "api": {
        "convert": set(),
        "run": set(),
        "catalog": {"convert", "run"},
        "doctor": {"catalog"},
        "offload": set(),
        "c": {"catalog", "run", "offload"},
    },
    "convert/deepspeed": {
        "files": set(),
        "stages": {"files"},
        "model_parallel": {"files", "stages"},
        "writer": {"files", "stages", "model_parallel"},
        "universal": {"files", "stages", "model_parallel", "writer"},
    },
    "catalog": {
        "report": set(),
        "scan": set(),
        "trash": {"scan"},
        "index": {"scan", "trash"},
    },
    "cli": {
        "text": set(),
        "process": {"text"},
        "output": {"text", "process"},
        "words": {"text", "process", "output"},
        "report": {"text", "process", "output", "words"},
        "commands": {"text", "process", "output", "words", "report"},
    },
}

# Outside headers: pattern, the only folders that may include them, what they are.
OWNED = [
    (r"mpi\.h", ("src/engine/mpi/", "include/ckpt/mpi.hpp", "tests/engine/"), "MPI"),
    (r"(hdf5|H5\w+|hdf5_hl)\.h", ("helper/",), "HDF5"),
    (r"(sqlite3\.h|SQLiteCpp/.*)", ("src/catalog/", "tests/catalog/"), "SQLite"),
    (r"liburing.*", ("src/engine/",), "io_uring"),
    (r"CLI/.*", ("cli/",), "CLI11"),
    (r"toml\+\+/.*", ("src/catalog/",), "TOML"),
    (r"nlohmann/.*", ("src/format/text/json.cpp", "tests/"), "JSON"),
    (r"dlfcn\.h|spawn\.h", ("src/engine/",), "plug-ins and helper programs"),
    (r"fstream|filesystem|fcntl\.h|dirent\.h|cstdio|stdio\.h|sys/(stat|mman|uio|file|statfs|statvfs)\.h",
     ("src/engine/", "cli/", "helper/", "tests/", "src/api/run/first_failure.cpp", "src/api/run/exit_report.cpp"), "files"),
    (r"unistd\.h", ("src/engine/", "cli/", "helper/", "tests/", "src/api/"), "the system"),
    (r"thread|mutex|condition_variable|future",
     ("src/engine/", "src/writers/", "src/loading/", "src/catalog/", "src/api/", "src/convert/", "cli/", "tests/", "include/"),
     "threads"),
]


def owner(path):
    return next((folder for folder in MAY_INCLUDE if path.startswith(folder + "/")), None)


def room(path):
    """src/engine/io/posix_io.cpp -> (engine, io); files directly in a layer have no room"""
    path = path.removeprefix("src/")
    for layer in ROOMS:
        parts = path.removeprefix(layer + "/").split("/")
        if path.startswith(layer + "/") and len(parts) > 1:
            return layer, parts[0]
    return None


def format_folder(path):
    """src/convert/dcp/reader.cpp -> dcp; None for files directly in src/convert and elsewhere"""
    match = re.match(r"(?:src/)?convert/([^/]+)/", path)
    return match.group(1) if match else None


def cycles(edges):
    """Folders that include each other, over any others, as sets. `edges`: folder -> {folder that it includes}"""
    reached = {}
    for folder in edges:
        reached[folder], todo = set(), list(edges[folder])
        while todo:
            other = todo.pop()
            if other not in reached[folder]:
                reached[folder].add(other)
                todo += edges.get(other, ())
    found = {frozenset(other for other in below if folder in reached.get(other, ())) for folder, below in reached.items()}
    return [sorted(cycle) for cycle in found if len(cycle) > 1]


def main():
    options = arguments()
    findings, looked_at, edges = [], 0, {}
    for layer, rooms in ROOMS.items():
        for at, (name, below) in enumerate(rooms.items()):
            findings += [f"{layer}: {name} includes {other}, which is not below it" for other in below - set(list(rooms)[:at])]
    for path in project_files(options.root):
        folder = owner(path)
        if not path.endswith(CPP) or (folder is None and not path.startswith("tests/")):
            continue
        looked_at += 1
        text = code_only(read(options.root, path), keep_strings=True)
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if not match:
                continue
            where, name = f"{path}:{number}", match.group(2)
            for pattern, owners, what in OWNED:
                if re.fullmatch(pattern, name) and not path.startswith(owners):
                    findings.append(f"{where}: <{name}>: {what} belong to {', '.join(owners)}")
            if folder is None or match.group(1) == "<":
                continue
            layer = name.split("/")[0]
            here, there = path.removeprefix("src/").rpartition("/")[0], name.rpartition("/")[0]
            if here != there:
                edges.setdefault(here, set()).add(there)
            if "/" not in name or layer not in LAYERS:
                findings.append(f'{where}: "{name}": include paths start at src/ and name the layer')
            elif not {layer, "/".join(name.split("/")[:2]), name} & MAY_INCLUDE[folder]:
                findings.append(f'{where}: "{name}": {folder} may include {", ".join(sorted(MAY_INCLUDE[folder]))}')
            elif room(path) and room(name) and room(path)[0] == room(name)[0] and \
                    room(name)[1] not in ROOMS[room(path)[0]].get(room(path)[1], set()) | {room(path)[1]}:
                findings.append(f'{where}: "{name}": {"/".join(room(path))} may not include {"/".join(room(name))}')
            elif format_folder(name) and format_folder(name) != format_folder(path):
                findings.append(f'{where}: "{name}": formats never include each other')
    findings += [f"{', '.join(cycle)}: these folders include each other" for cycle in cycles(edges)]
    verdict(findings, looked_at)


main()
