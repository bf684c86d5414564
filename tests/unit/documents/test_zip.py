"""Zip files: what is read, and that every unsafe one is refused quickly, in little memory."""

from __future__ import annotations

import io
import random
import struct
import time
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.documents import Limits, UploadedFile, read
from grading.domain.errors import ArchiveRefused, DocumentError, EmptyUpload
from grading.domain.messages import Message
from tests.support.german import in_german

CODE = b"x <- 1\nprint(x)\n"


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that are there twice
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for name, data in members:
                info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
                archive.writestr(info, data, compress_type=method)
    return buffer.getvalue()


def refuse(data: bytes, error: type[DocumentError] = ArchiveRefused) -> str:
    return refusal(data, error).message


def refusal(data: bytes, error: type[DocumentError] = ArchiveRefused) -> Message:
    with pytest.raises(error) as caught:
        read([UploadedFile("work.zip", data)], Limits())
    message = caught.value.message
    assert "work.zip" in message or ".zip" in message
    assert message.endswith(".")
    assert "\n" not in message
    return caught.value.coded


def patched(data: bytes, local_at: int, central_at: int, value: bytes) -> bytes:
    """The first entry with bytes of its two headers replaced."""
    out = bytearray(data)
    for start, at in ((out.find(b"PK\x03\x04"), local_at), (out.find(b"PK\x01\x02"), central_at)):
        out[start + at : start + at + len(value)] = value
    return bytes(out)


def header(name: bytes, data: bytes, packed: int) -> bytes:
    return (
        struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 0, zlib.crc32(data), packed, len(data), len(name), 0)
        + name
    )


def table(entries: list[tuple[bytes, bytes, int, int]]) -> bytes:
    return b"".join(
        struct.pack(
            "<4s6H3I5H2I",
            *(
                b"PK\1\2",
                20,
                20,
                0,
                8,
                0,
                0,
                zlib.crc32(data),
                packed,
                len(data),
                len(name),
                0,
                0,
                0,
                0,
                0,
                at,
            ),
        )
        + name
        for name, data, packed, at in entries
    )


def with_table(body: bytes, entries: list[tuple[bytes, bytes, int, int]]) -> bytes:
    central = table(entries)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, len(entries), len(entries), len(central), len(body), 0)
    return body + central + end


def quoted_overlap(count: int = 40) -> bytes:
    """Every file's data quotes the next header and then is the next file's data: all share one kernel."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    content = b"#" * 500_000
    body = squeeze.compress(content) + squeeze.flush()
    packed, found = len(body), []
    name = b"%03d.py" % count
    body = header(name, content, packed) + body
    found.append((name, content, packed, len(body)))
    for number in range(count - 1, -1, -1):
        quoted = 30 + len(name)
        block = b"\0" + struct.pack("<HH", quoted, 0xFFFF - quoted)
        content = body[:quoted] + content
        name, packed = b"%03d.py" % number, len(block) + len(body)
        body = header(name, content, packed) + block + body
        found.append((name, content, packed, len(body)))
    return with_table(body, [(n, c, p, len(body) - at) for n, c, p, at in reversed(found)])


def full_overlap() -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = squeeze.compress(CODE) + squeeze.flush()
    body = header(b"a.py", CODE, len(packed)) + packed
    return with_table(body, [(b"a.py", CODE, len(packed), 0), (b"a.py", CODE, len(packed), 0)])


def special(mode: int) -> bytes:
    info = zipfile.ZipInfo("link.py")
    info.create_system, info.external_attr = 3, mode << 16
    return zipped((info, b"/etc/passwd"))


def bomb(size: int = 60_000_000) -> bytes:
    return zipped(("bomb.py", b" " * size))


def wide_bomb() -> bytes:
    """Fifty files, each below the ratio, together above the limit."""
    block = random.Random(1).randbytes(15_000).hex().encode()
    return zipped(*((f"{n}.py", block * 33) for n in range(45)))


def nested(depth: int) -> bytes:
    data = zipped(("a.py", CODE))
    for _ in range(depth):
        data = zipped(("inner.zip", data))
    return data


CORPUS: dict[str, Callable[[], bytes]] = {
    "bomb": bomb,
    "bomb that is no script": lambda: zipped(("bomb.dat", b"\0" * 60_000_000), ("a.py", CODE)),
    "bomb with a lying size": lambda: patched(bomb(), 22, 24, struct.pack("<I", 17)),
    "bomb in a zip": lambda: zipped(("inner.zip", bomb(30_000_000))),
    "many files": wide_bomb,
    "quoted overlap": quoted_overlap,
    "full overlap": full_overlap,
    "parent": lambda: zipped(("../a.py", CODE)),
    "parent inside": lambda: zipped(("x/../../a.py", CODE)),
    "parent with backslashes": lambda: zipped((r"..\..\a.py", CODE)),
    "absolute": lambda: zipped(("/etc/a.py", CODE)),
    "drive": lambda: zipped(("C:/a.py", CODE)),
    "control in name": lambda: zipped(("a\x07.py", CODE)),
    "long name": lambda: zipped(("a" * 300 + ".py", CODE)),
    "symbolic link": lambda: special(0o120777),
    "device": lambda: special(0o020666),
    "pipe": lambda: special(0o010666),
    "password": lambda: patched(zipped(("a.py", CODE)), 6, 8, b"\1\0"),
    "checksum": lambda: patched(zipped(("a.py", CODE)), 14, 16, b"\0\0\0\1"),
    "bzip2": lambda: zipped(("a.py", CODE), method=zipfile.ZIP_BZIP2),
    "lzma": lambda: zipped(("a.py", CODE), method=zipfile.ZIP_LZMA),
    "three deep": lambda: nested(2),
    "same name": lambda: zipped(("a.py", CODE), ("a.py", b"y = 2\n")),
    "same name in another case": lambda: zipped(("a.py", CODE), ("A.PY", b"y = 2\n")),
    "same name composed otherwise": lambda: zipped(("\u00e9.py", CODE), ("e\u0301.py", b"y = 2\n")),
    "too many entries": lambda: zipped(*((f"data/{n}.csv", b"1") for n in range(1200)), ("a.py", CODE)),
    "too many files": lambda: zipped(*((f"{n}.py", CODE) for n in range(51))),
    "large file": lambda: zipped(
        ("a.py", random.Random(2).randbytes(11 * 1024 * 1024)), method=zipfile.ZIP_STORED
    ),
    "cut off": lambda: zipped(("a.py", CODE))[:-30],
    "no zip": lambda: b"PK this is not a zip",
    "local name differs": lambda: zipped(("a.py", CODE)).replace(b"a.py", b"b.py", 1),
    "table outside": lambda: zipped(("a.py", CODE))[:-6] + struct.pack("<I", 9_000_000) + b"\0\0",
}


@cache
def unsafe(name: str) -> bytes:
    """That of CORPUS, made only where it is read: some take long."""
    return CORPUS[name]()


@pytest.mark.parametrize("name", CORPUS)
def test_unsafe_zip_is_refused_quickly_in_little_memory(name: str) -> None:
    data = unsafe(name)
    tracemalloc.start()
    started = time.process_time()
    try:
        said = refusal(data)
        seconds, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seconds < 2
    assert peak < 64 * 1024 * 1024
    assert ".zip" in in_german(said)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bomb with a lying size", "expands to far more|larger than|checksum"),
        ("quoted overlap", "overlap"),
        ("full overlap", "overlap"),
        ("parent", "outside"),
        ("symbolic link", "link"),
        ("password", "password"),
        ("checksum", "checksum"),
        ("lzma", "compression"),
        ("three deep", "ZIP files inside ZIP files"),
        ("same name in another case", "twice"),
        ("too many entries", "1000 entries"),
        ("many files", "32 MB|more than 50"),
    ],
)
def test_refusal_says_why(name: str, words: str) -> None:
    assert any(word in refuse(unsafe(name)) for word in words.split("|"))


def test_members_are_read_and_the_rest_left_out_with_notes() -> None:
    data = zipped(
        ("hw/", b""),
        ("hw/analysis.R", CODE),
        ("hw/data/big.csv", b"1,2\n" * 1000),
        ("hw/plot.png", b"\x89PNG"),
        ("__MACOSX/hw/._analysis.R", b"\0\1"),
        ("hw/.ipynb_checkpoints/old.ipynb", b"{}"),
        ("hw/.DS_Store", b"\0"),
        ("hw/__init__.py", b""),
        ("hw/more.zip", zipped(("tools.py", b"y = 2\n"))),
    )
    submission = read([UploadedFile("work.zip", data)])
    assert [file.name for file in submission.files] == ["hw/analysis.R", "hw/more/tools.py"]
    assert [document.language for document in submission.documents] == ["r", "python"]
    notes = " ".join(submission.notes)
    assert "big.csv" in notes
    assert "plot.png" in notes
    assert "3 files that the system" in notes
    assert "hw/__init__.py is empty" in notes


def test_names_are_made_safe_and_backslashes_are_folders() -> None:
    submission = read([UploadedFile("w.zip", zipped(("hw\\a\u202e:b.py", CODE)))])
    assert [file.name for file in submission.files] == ["hw/a_b.py"]


def test_several_zips_keep_their_files_apart() -> None:
    data = zipped(("main.py", CODE))
    submission = read([UploadedFile("one.zip", data), UploadedFile("two.zip", data)])
    assert [file.name for file in submission.files] == ["one/main.py", "two/main.py"]


def test_large_file_format_and_streamed_zips_are_read() -> None:
    buffer = io.BytesIO()

    class Stream(io.RawIOBase):  # cannot seek, so sizes come after the data
        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            return buffer.write(data)

    with (
        zipfile.ZipFile(Stream(), "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.R", "w", force_zip64=True) as member,
    ):
        member.write(CODE)
    assert read([UploadedFile("w.zip", buffer.getvalue())]).files[0].data == CODE


def test_zip_without_anything_to_grade_is_empty() -> None:
    assert "contains no file that can be graded" in refuse(zipped(("a.csv", b"1")), EmptyUpload)
    refuse(zipped(), EmptyUpload)


@given(st.data())
def test_damaged_zips_raise_nothing_else(data: st.DataObject) -> None:
    whole = bytearray(zipped(("a.py", CODE), ("b/c.R", CODE * 20)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        submission = read([UploadedFile("work.zip", bytes(whole))])
    except DocumentError:
        return
    assert all(file.data in (CODE, CODE * 20) for file in submission.files)
