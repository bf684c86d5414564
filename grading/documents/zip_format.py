"""The table and the entries of one zip file, read without trusting it.

The standard library's reader is not used: its older versions let entries overlap. Every number of a header is
checked against the bytes, and data is unpacked under a running count.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from grading.documents.files import UploadedFile, megabytes, safe_part, same_name, shown
from grading.documents.limits import MIB, Limits
from grading.domain.errors import ArchiveRefused
from grading.domain.messages import MessageType, define_message

_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_CHUNK = 64 * 1024
DAMAGED = define_message(
    "zip.damaged",
    "%(zip)s is damaged or not a ZIP file. Create the ZIP file again with your computer's zip "
    "command and upload it again.",
)
OVERLAPPING = define_message(
    "zip.overlapping",
    "%(zip)s has entries that overlap (%(name)s). Create the ZIP file again with your computer's zip "
    "command and upload it again.",
)
SAME_NAME = define_message("zip.same_name", "%(zip)s contains %(name)s twice; rename one of the two.")
TOO_MANY_FILES = define_message(
    "zip.too_many_files", "%(zip)s contains more than %(most)s files to grade; submit only your own work."
)
WRONG_CHECKSUM = define_message(
    "zip.wrong_checksum",
    "%(zip)s is damaged: %(name)s does not match its checksum. Create the ZIP file again with your "
    "computer's zip command and upload it again.",
)
TOO_DENSE = define_message(
    "zip.too_dense",
    "%(zip)s expands to far more than its size (%(name)s). Create the ZIP file again with your "
    "computer's zip command and upload it again.",
)
FILE_TOO_LARGE = define_message(
    "zip.file_too_large", "%(zip)s contains %(name)s, which is larger than %(most)s; make that file smaller."
)
TOO_LARGE = define_message(
    "zip.too_large", "%(zip)s expands to more than %(most)s; submit only your own work."
)
TOO_MANY_ENTRIES = define_message(
    "zip.too_many_entries", "%(zip)s has more than %(most)s entries; include only your own files."
)
MULTIPART = define_message(
    "zip.multipart",
    "%(zip)s is one part of a split archive. Create the ZIP file again with your computer's zip "
    "command and upload it again.",
)
SPECIAL_FILE = define_message(
    "zip.special_file", "%(zip)s contains a link or special file (%(name)s); add the file itself instead."
)
ENCRYPTED = define_message(
    "zip.encrypted", "%(zip)s is protected with a password; create it again without one."
)
UNKNOWN_COMPRESSION = define_message(
    "zip.unknown_compression",
    "%(zip)s uses an unsupported compression. Create the ZIP file again with your computer's zip "
    "command and upload it again.",
)
CONTRADICTORY = define_message(
    "zip.contradictory",
    "%(zip)s is inconsistent (%(name)s). Create the ZIP file again with your computer's zip command "
    "and upload it again.",
)
OUTSIDE = define_message(
    "zip.outside",
    "%(zip)s contains a path that points outside of it (%(name)s). Create the ZIP file again with "
    "your computer's zip command and upload it again.",
)
UNUSABLE_NAME = define_message(
    "zip.unusable_name", "%(zip)s contains a file name that cannot be used (%(name)s); rename that file."
)
NESTED_TOO_DEEP = define_message(
    "zip.nested_too_deep",
    "%(zip)s contains ZIP files inside ZIP files; unpack them and add the files themselves.",
)
SAME_NAME_UNPACKED = define_message(
    "zip.same_name_unpacked", "%(zip)s contains two files of the same name; rename one of them."
)


@dataclass
class Budget:
    """What one submission may still take while it is unpacked; shared by all its zips."""

    entries: int
    bytes: int
    files: int


@dataclass(frozen=True)
class Entry:
    """What the table says of one entry, already checked against its local header."""

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    mode: int
    start: int
    """Where the local header begins."""


class ZipReader:
    """One zip in memory."""

    def __init__(self, upload: UploadedFile, limits: Limits, budget: Budget) -> None:
        self.name, self.limits, self.budget = upload.name, limits, budget
        self.data = memoryview(upload.data)
        self.raw = upload.data
        self.count, self.table, self.end = self._directory()

    def refused(self, why: MessageType, **params: Any) -> ArchiveRefused:
        """The refusal as one sentence that names the zip."""
        return ArchiveRefused(why(zip=shown(self.name), **params))

    def damaged(self) -> ArchiveRefused:
        """The refusal for what no zip program would write."""
        return self.refused(DAMAGED)

    def members(self) -> list[tuple[Entry, str]]:
        """The files of the zip with safe paths, after all checks that need no unpacking."""
        entries = list(self._entries())
        spans = sorted((*self._span(entry), entry.name) for entry in entries)
        for (_, end, _), (start, _, name) in pairwise(spans):
            if start < end:
                raise self.refused(OVERLAPPING, name=shown(name))
        files = [(entry, self._path(entry)) for entry in entries if not self._is_folder(entry)]
        seen: set[str] = set()
        for _, path in files:
            if same_name(path) in seen:
                raise self.refused(SAME_NAME, name=shown(path))
            seen.add(same_name(path))
        return files

    def take_file(self) -> None:
        """Counts one file to grade. Raises ArchiveRefused above the limit."""
        self.budget.files -= 1
        if self.budget.files < 0:
            raise self.refused(TOO_MANY_FILES, most=self.limits.max_files)

    def unpack(self, entry: Entry) -> bytes:
        """The bytes of an entry, never more than the limits in memory."""
        start, end = self._payload(entry)
        if entry.method == 0:
            self._count(entry, end - start)
            out = bytes(self.data[start:end])
        else:
            out = self._inflate(entry, start, end)
        if len(out) != entry.size or zlib.crc32(out) != entry.crc:
            raise self.refused(WRONG_CHECKSUM, name=shown(entry.name))
        self.budget.bytes -= len(out)
        return out

    def _inflate(self, entry: Entry, start: int, end: int) -> bytes:
        inflater, out = zlib.decompressobj(-15), bytearray()
        waiting: bytes | memoryview = b""
        try:
            while not inflater.eof:
                if not waiting:
                    waiting = self.data[start : min(start + _CHUNK, end)]
                    start += len(waiting)
                    if not waiting:
                        raise self.damaged()
                out += inflater.decompress(waiting, _CHUNK)
                waiting = inflater.unconsumed_tail
                self._count(entry, len(out))
        except zlib.error as error:
            raise self.damaged() from error
        if inflater.unused_data or start < end:
            raise self.damaged()
        return bytes(out)

    def _count(self, entry: Entry, size: int) -> None:
        limits = self.limits
        if size > MIB and size > limits.max_ratio * max(entry.packed, 1):
            raise self.refused(TOO_DENSE, name=shown(entry.name))
        if size > limits.max_file_bytes:
            most = megabytes(limits.max_file_bytes)
            raise self.refused(FILE_TOO_LARGE, name=shown(entry.name), most=most)
        if size > self.budget.bytes:
            most = megabytes(limits.max_upload_bytes)
            raise self.refused(TOO_LARGE, most=most)

    def _entries(self) -> Iterator[Entry]:
        at, end = self.table, self.end
        most = self.limits.max_entries
        for _ in range(self.count):
            self.budget.entries -= 1
            if self.budget.entries < 0:
                raise self.refused(TOO_MANY_ENTRIES, most=most)
            if at + _CENTRAL.size > end:
                raise self.damaged()
            fields = _CENTRAL.unpack_from(self.data, at)
            sign, flags, method = fields[0], fields[3], fields[4]
            crc, packed, size, names, extras, remarks = fields[7:13]
            attributes, start = fields[15:]
            if sign != b"PK\x01\x02" or at + _CENTRAL.size + names + extras + remarks > end:
                raise self.damaged()
            at += _CENTRAL.size
            raw = bytes(self.data[at : at + names])
            size, packed, start = self._wide(
                bytes(self.data[at + names : at + names + extras]), size, packed, start
            )
            at += names + extras + remarks
            entry = Entry(self._decode(raw, flags), flags, method, crc, packed, size, attributes >> 16, start)
            self._check(entry, raw)
            yield entry
        if at != end:
            raise self.damaged()

    def _directory(self) -> tuple[int, int, int]:
        """Number of entries, start and end of the table of contents."""
        at = self.raw.rfind(b"PK\x05\x06", max(0, len(self.raw) - 65557))
        if at < 0 or at + _END.size > len(self.raw):
            raise self.damaged()
        _, disk, first, _, count, size, start, _ = _END.unpack_from(self.data, at)
        if 0xFFFFFFFF in (size, start) or count == 0xFFFF:
            at -= 20
            if at < 0 or self.raw[at : at + 4] != b"PK\x06\x07":
                raise self.damaged()
            at = int(struct.unpack_from("<Q", self.data, at + 8)[0])
            if at + _END64.size > len(self.raw) or self.raw[at : at + 4] != b"PK\x06\x06":
                raise self.damaged()
            *_, disk, first, _, count, size, start = _END64.unpack_from(self.data, at)
        if disk or first:
            raise self.refused(MULTIPART)
        if start + size > at:
            raise self.damaged()
        return count, start, start + size

    @staticmethod
    def _wide(extra: bytes, size: int, packed: int, start: int) -> tuple[int, int, int]:
        """Size, packed size and offset, from the large-file extra field where the short ones say so."""
        values = [size, packed, start]
        at = 0
        while at + 4 <= len(extra) and 0xFFFFFFFF in values:
            tag, length = struct.unpack_from("<2H", extra, at)
            at += 4
            if tag == 1:
                wide = iter(struct.unpack_from(f"<{min(length, len(extra) - at) // 8}Q", extra, at))
                values = [next(wide, value) if value == 0xFFFFFFFF else value for value in values]
                break
            at += length
        return values[0], values[1], values[2]

    def _decode(self, raw: bytes, flags: int) -> str:
        try:
            return raw.decode("utf-8")  # also macOS, which forgets the flag
        except UnicodeDecodeError:
            if flags & 0x800:
                raise self.damaged() from None
            return raw.decode("cp437")

    def _check(self, entry: Entry, raw: bytes) -> None:
        shape = stat.S_IFMT(entry.mode)
        if shape not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise self.refused(SPECIAL_FILE, name=shown(entry.name))
        if entry.flags & _ENCRYPTED or entry.method == 99:
            raise self.refused(ENCRYPTED)
        if entry.method not in (0, 8):
            raise self.refused(UNKNOWN_COMPRESSION)
        if entry.method == 0 and entry.packed != entry.size:
            raise self.damaged()
        if entry.size > MIB and entry.size > self.limits.max_ratio * max(entry.packed, 1):
            raise self.refused(TOO_DENSE, name=shown(entry.name))
        self._path(entry)
        start, _ = self._payload(entry)
        _, _, flags, method, *_, names, extras = _LOCAL.unpack_from(self.data, entry.start)
        at = start - names - extras
        if flags & _ENCRYPTED:
            raise self.refused(ENCRYPTED)
        if method != entry.method or bytes(self.data[at : at + names]) != raw:
            raise self.refused(CONTRADICTORY, name=shown(entry.name))

    def _payload(self, entry: Entry) -> tuple[int, int]:
        """Start and end of an entry's packed bytes."""
        if (
            entry.start + _LOCAL.size > len(self.raw)
            or self.raw[entry.start : entry.start + 4] != b"PK\x03\x04"
        ):
            raise self.damaged()
        names, extras = struct.unpack_from("<2H", self.data, entry.start + 26)
        start = entry.start + _LOCAL.size + names + extras
        if start + entry.packed > self.table:
            raise self.damaged()
        return start, start + entry.packed

    def _span(self, entry: Entry) -> tuple[int, int]:
        return entry.start, self._payload(entry)[1]

    def _is_folder(self, entry: Entry) -> bool:
        return entry.name.endswith(("/", "\\")) or stat.S_ISDIR(entry.mode)

    def _path(self, entry: Entry) -> str:
        """A relative path with `/`. Raises ArchiveRefused for names that lead out of the zip's folder."""
        name = entry.name.replace("\\", "/")
        if name.startswith("/") or name[1:2] == ":" or ".." in (part.strip() for part in name.split("/")):
            raise self.refused(OUTSIDE, name=shown(entry.name))
        if any(ord(char) < 32 for char in name) or len(name) > self.limits.max_name_chars:
            raise self.refused(UNUSABLE_NAME, name=shown(entry.name))
        parts = [part for part in map(safe_part, name.split("/")) if part not in ("", ".")]
        if not parts or ".." in parts:
            raise self.refused(UNUSABLE_NAME, name=shown(entry.name))
        return "/".join(parts)
