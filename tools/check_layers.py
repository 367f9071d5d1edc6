#!/usr/bin/env python3
"""Checks the rules of the source tree that a compiler does not: layers, outside libraries, file length.

A folder includes only folders of lower rank; folders of one rank never include each other. Outside
libraries stay in the folders that own them. No source file is longer than 400 lines.
usage: check_layers.py [ROOT]; exit 1 with a list of violations.
"""
import pathlib
import re
import sys

RANK = {"base": 0, "device": 1, "data": 1, "ops": 2, "comm": 2, "model": 3, "io": 3, "parallel": 4,
        "config": 5, "train": 6, "convert": 6, "app": 7}
LIMIT = 400

# Include pattern -> folders (or twin folders) in which it may stand.
OWNERS = [
    (r"^mpi\.h$", ["comm", "io"]),
    (r"^hdf5", ["io"]),
    (r"^cblas\.h$", ["ops/cpu"]),
    (r"^(cuda|cublas|cudnn)", ["device/cuda", "ops/cuda", "comm/cuda"]),
    (r"^nccl\.h$", ["comm/cuda"]),
    (r"^boost/", ["config", "app"]),
    (r"^(pcre2|unicode/|sentencepiece|zlib|zstd)", ["data"]),
    (r"^nlohmann/", ["io", "data", "train", "convert", "app"]),
]


def folder_of(path):
    parts = path.parts
    if parts[0] == "include":
        return parts[2], parts[2]
    twin = f"{parts[1]}/{parts[2]}" if len(parts) > 3 and parts[2] in ("cpu", "cuda") else parts[1]
    return parts[1], twin


def check_include(target, folder, twin):
    ours = re.match(r"^(?:trireme/)?(\w+)/", target)
    if ours and ours.group(1) in RANK and (target.startswith("trireme/") or ours.group(1) != "boost"):
        other = ours.group(1)
        if other != folder and RANK[other] >= RANK[folder]:
            return f"{folder} (rank {RANK[folder]}) may not include {other} (rank {RANK[other]})"
        private = not target.startswith("trireme/")
        if private and other != folder and not (folder == "comm" and other == "device") and not (
                folder == "ops" and other == "device"):
            return f"{target} is private to {other}"
        return None
    for pattern, owners in OWNERS:
        if re.match(pattern, target) and folder not in owners and twin not in owners:
            return f"{target} belongs in {', '.join(owners)}"
    return None


def check_file(path, relative):
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) > LIMIT:
        yield f"{relative}: {len(lines)} lines, the limit is {LIMIT}: split it"
    if relative.parts[0] not in ("include", "src"):
        return
    folder, twin = folder_of(relative)
    for number, line in enumerate(lines, 1):
        found = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        fault = found and check_include(found.group(1), folder, twin)
        if fault:
            yield f"{relative}:{number}: {fault}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    faults, files = [], 0
    for top in ("include", "src", "tests"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".hpp", ".cpp", ".cu", ".cuh"):
                files += 1
                faults += check_file(path, path.relative_to(root))
    print("\n".join(faults) if faults else f"layers: {files} files follow the rules")
    return 1 if faults or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
