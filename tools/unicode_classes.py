"""Writes src/tokenizer/split/table.rs: the Unicode 15.1 classes that pre-tokenizers ask for.

Needs the package unicodedata2 at 15.1.0, the version of the Unicode data that llama.cpp splits by.
Usage: python tools/unicode_classes.py > src/tokenizer/split/table.rs
"""

import unicodedata2

VERSION = "15.1.0"
CLASSES = {"L": 1, "N": 2, "M": 3, "P": 4, "S": 5}
SPACE = 6
SPACES = {*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
PER_LINE = 9


def class_of(code: int) -> int:
    if code in SPACES:
        return SPACE
    return CLASSES.get(unicodedata2.category(chr(code))[0], 0)


def runs() -> list[int]:
    """start << 3 | class of every run of one class, in order."""
    out, last = [], None
    for code in range(0x110000):
        this = class_of(code)
        if this != last:
            out.append(code << 3 | this)
            last = this
    return out


def main() -> None:
    assert unicodedata2.unidata_version == VERSION, unicodedata2.unidata_version
    table = runs()
    print("//! Runs of Unicode 15.1 classes, written by `tools/unicode_classes.py`.")
    print()
    print("/// `first code point << 3 | class` of every run, ascending; the classes are those of `chars::Class`.")
    print("#[rustfmt::skip]")
    print(f"pub(super) static RUNS: [u32; {len(table)}] = [")
    for i in range(0, len(table), PER_LINE):
        print("    " + " ".join(f"0x{v:06x}," for v in table[i : i + PER_LINE]))
    print("];")


main()
