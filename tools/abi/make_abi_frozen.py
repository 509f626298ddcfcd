#!/usr/bin/env python3
"""Writes tests/abi/abi_frozen.c: one static assertion per member offset, enum value and flag of the SDK headers.

If a header moves, resizes or renumbers a member, that file no longer compiles. New members at the end of a struct are
allowed. While the major version of the ABI is 0, the layout may change. After a change, run this script again and
describe the change in CHANGELOG.md. From version 1.0 on, lines may only be added.

    python3 tools/abi/make_abi_frozen.py [CC]
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SDK = ROOT / "core" / "include" / "keel"
OUT = ROOT / "tests" / "abi" / "abi_frozen.c"


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def members(body):
    """Returns the names of the members in a struct's body, in order."""
    names = []
    for declaration in body.replace("KEEL_ARGS_HEAD;", "keel_header h; uint64_t features; keel_plan *plan;").split(";"):
        declaration = " ".join(declaration.split())
        if not declaration:
            continue
        pointer = re.search(r"\(\s*KEEL_CALL\s*\*\s*(\w+)\s*\)", declaration)
        if pointer:
            names.append(pointer.group(1))
            continue
        for part in declaration.split(","):
            names.append(re.search(r"(\w+)\s*(\[\w+\])*\s*$", part).group(1))
    return names


def parse(text):
    structs, constants = [], []
    pattern = r"(?:typedef\s+)?struct\s+(keel_\w+)\s*\{(.*?)\n\}\s*\w*;|typedef struct (keel_\w+) \{([^\n]*)\} \w+;"
    for match in re.finditer(pattern, text, flags=re.S):
        name, body = (match.group(1), match.group(2)) if match.group(1) else (match.group(3), match.group(4))
        structs.append((name, members(body)))
    for body in re.findall(r"enum\s+keel_\w+\s*\{(.*?)\}", text, flags=re.S):
        constants += re.findall(r"\b(KEEL_\w+)\s*=", body)
    constants += re.findall(r"^#define (KEEL_\w+) \(?(?:1ull << \d+|\d+u?)\)?\s*$", text, flags=re.M)
    return structs, constants


def main():
    compiler = sys.argv[1] if len(sys.argv) > 1 else "cc"
    headers = sorted(path.relative_to(SDK.parent) for path in SDK.rglob("*.h") if "draft" not in path.parts)
    structs, constants = [], []
    for header in headers:
        found = parse(without_comments((SDK.parent / header).read_text()))
        structs += found[0]
        constants += found[1]
    constants = [c for c in dict.fromkeys(constants) if c not in ("KEEL_ABI_MINOR", "KEEL_SANITIZER_HERE")]
    program = ["#include <stdio.h>"] + [f"#include <{h}>" for h in headers] + ["int main(void) {"]
    for name, fields in structs:
        program.append(f'printf("\\n/* {name} */\\n");')
        for f in fields:
            program.append(f'printf("MEMBER({name}, {f}, %zu, %zu);\\n", offsetof({name}, {f}), sizeof((({name} *)0)->{f}));')
    program.append('printf("\\n#endif\\n\\n");')
    for c in constants:
        program.append(f'printf("VALUE({c}, %lluull);\\n", (unsigned long long)({c}));')
    program.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "offsets.c"
        source.write_text("\n".join(program))
        binary = pathlib.Path(folder) / "offsets"
        subprocess.run([compiler, "-std=c11", "-I", str(SDK.parent), "-o", str(binary), str(source)], check=True)
        lines = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout
    text = "/* Made by tools/abi/make_abi_frozen.py; what it is for stands there. Layout of 64-bit systems. */\n/* clang-format off */\n"
    text += "".join(f"#include <{h}>\n" for h in headers)
    text += "\n#define MEMBER(type, member, at, bytes)                                                      \\\n"
    text += '    _Static_assert(offsetof(type, member) == (at), #type "." #member " moved");             \\\n'
    text += '    _Static_assert(sizeof(((type *)0)->member) == (bytes), #type "." #member " was resized")\n'
    text += '#define VALUE(name, value) _Static_assert((unsigned long long)(name) == (value), #name " was renumbered")\n'
    text += "\n#if UINTPTR_MAX == 0xffffffffffffffffu\n" + lines
    OUT.write_text(text)
    print(f"{OUT}: {len(structs)} structs, {len(constants)} constants")


if __name__ == "__main__":
    main()
