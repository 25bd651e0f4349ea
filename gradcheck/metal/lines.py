"""Which line of which file a machine address comes from: the line table of a library, read here.

No tool is needed for it: a machine that has clang need not have llvm-symbolizer, the ziglang wheel has none, and pyelftools would be a
dependency for eighty lines. Only what `compile` writes is read: ELF, 64 bits, little-endian, DWARF 4.
"""

from __future__ import annotations

import functools
import struct
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

Row = tuple[int, str, int, int]

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _SET_COLUMN, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 5, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


def look_up(library: Path, address: int) -> tuple[str, int, int] | None:
    """File, line and column of the instruction before an address (a return address, counted from where the library begins); else None."""
    rows = line_table(library)
    i = bisect_right(rows, (address - 1, "\U0010ffff", 0, 0)) - 1
    if i < 0 or not rows[i][1]:
        return None
    return rows[i][1:]


@functools.lru_cache(maxsize=64)
def line_table(library: Path) -> tuple[Row, ...]:
    """Rows of address, file, line and column, by address. A row of no file ends a stretch of code; line 0 is code of no line."""
    data = _section(library.read_bytes(), b".debug_line")
    rows: list[Row] = []
    reader = _Reader(data)
    while reader.at < len(data):
        rows += _program(reader)
    # Code that belongs to no line (line 0, which inlining leaves behind) is given the line before it.
    return tuple(row for row in sorted(rows, key=lambda row: (row[0], bool(row[1]))) if row[2] or not row[1])


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int = 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return int(value)

    def leb(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return found


def _program(reader: _Reader) -> list[Row]:  # noqa: C901, PLR0912, PLR0915 - one branch per instruction
    """The rows of one compilation unit; the reader is left behind it."""
    end = reader.take("I") + reader.at
    version = reader.take("H")
    if version not in {2, 3, 4}:
        reader.at = end  # not ours
        return []
    program = reader.take("I") + reader.at
    step = reader.take("B")
    if version == 4:
        reader.take("B")
    reader.take("B")
    base, span, first = reader.take("b"), reader.take("B"), reader.take("B")
    lengths = [0, *(reader.take("B") for _ in range(first - 1))]
    while reader.text():  # the folders
        pass
    files = [""]
    while name := reader.text():
        files.append(name)
        for _ in range(3):
            reader.leb()
    reader.at = program
    rows: list[Row] = []
    address, file, line, column = 0, 1, 1, 0
    while reader.at < end:
        code = reader.take("B")
        if code >= first:
            address += (code - first) // span * step
            line += base + (code - first) % span
            rows.append((address, files[file], line, column))
        elif code == 0:
            length = reader.leb()
            following = reader.at + length
            kind = reader.take("B")
            if kind == _END_SEQUENCE:
                rows.append((address, "", 0, 0))
                address, file, line, column = 0, 1, 1, 0
            elif kind == _SET_ADDRESS:
                address = reader.take("Q")
            reader.at = following
        elif code == _COPY:
            rows.append((address, files[file], line, column))
        elif code == _ADVANCE_PC:
            address += reader.leb() * step
        elif code == _ADVANCE_LINE:
            line += reader.leb(signed=True)
        elif code == _SET_FILE:
            file = reader.leb()
        elif code == _SET_COLUMN:
            column = reader.leb()
        elif code == _CONST_ADD_PC:
            address += (255 - first) // span * step
        elif code == _FIXED_ADVANCE_PC:
            address += reader.take("H")
        else:
            for _ in range(lengths[code]):
                reader.leb()
    reader.at = end
    return rows


def _section(data: bytes, name: bytes) -> bytes:
    """The bytes of a section of an ELF file; none where it has no such section or is no such file."""
    if data[:6] != b"\x7fELF\x02\x01":
        return b""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    (at,) = struct.unpack_from("<Q", data, table + names * size + 0x18)
    for i in range(count):
        head = table + i * size
        (label,) = struct.unpack_from("<I", data, head)
        if data[at + label : data.index(b"\0", at + label)] == name:
            offset, length = struct.unpack_from("<QQ", data, head + 0x18)
            return data[offset : offset + length]
    return b""
