"""Pictures in the outputs of notebooks: only PNG and JPEG that are really that, bounded, without extras."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from grading.documents.outputs import joined
from grading.shared.cache import BoundedCache

MOST_BYTES = 2 * 1024 * 1024
"""Largest picture that is shown."""
MOST_PIXELS = 16_000_000
MOST_SIDE = 12_000
MOST_INSIDE = 64_000_000
"""Bytes of the lines of a PNG, unpacked."""
MOST_PICTURES = 200
"""Of one notebook."""
STEP = 1024 * 1024
MOST_KEPT = 32 * 1024 * 1024
"""Bytes of the pictures that are kept for the next request."""
MOST_NUMBERS = 50_000
"""Pictures of which it is kept that they can be shown."""
PNG = b"\x89PNG\r\n\x1a\n"
_KEPT = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
"""Parts of a PNG that make its picture; texts, colour profiles and times are left out."""
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_FRAMES = frozenset({*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)})
_COMMON_FRAMES = (0xC0, 0xC1, 0xC2)


@dataclass(frozen=True)
class Picture:
    """A picture that was looked into."""

    kind: Literal["png", "jpeg"]
    data: bytes
    width: int
    height: int


def pictures(notebook: bytes) -> dict[tuple[int, int], Picture]:
    """(cell from 1, number of the picture in its outputs from 0) -> picture. Empty for what is no notebook.

    Numbers of what cannot be shown are left out.
    """
    try:
        book = json.loads(notebook)
    except (ValueError, RecursionError):
        return {}
    cells = book.get("cells") if isinstance(book, dict) else None
    found: dict[tuple[int, int], Picture] = {}
    for number, cell in enumerate(cells if isinstance(cells, list) else [], start=1):
        for index, data in enumerate(_outputs(cell)):
            if len(found) >= MOST_PICTURES:
                return found
            if (picture := _picture(data)) is not None:
                found[number, index] = picture
    return found


def _outputs(cell: Any) -> Iterator[dict[str, Any]]:
    """What the outputs of a cell that have a picture say of it, by type."""
    outputs = cell.get("outputs") if isinstance(cell, dict) else None
    for output in outputs if isinstance(outputs, list) else []:
        data = output.get("data") if isinstance(output, dict) else None
        if isinstance(data, dict) and any(str(kind).startswith("image/") for kind in data):
            yield data


def _picture(data: dict[str, Any]) -> Picture | None:
    for kind in ("image/png", "image/jpeg"):
        text = joined(data.get(kind))
        if text and len(text) <= MOST_BYTES * 3 // 2:
            try:
                raw = base64.b64decode("".join(text.split()), validate=True)
            except (binascii.Error, ValueError):
                continue
            if (found := looked_into(raw)) is not None:
                return found
    return None


def looked_into(data: bytes) -> Picture | None:
    """The picture, if these bytes are one from their first to their last."""
    if len(data) > MOST_BYTES:
        return None
    try:
        found = _png(data) if data.startswith(PNG) else _jpeg(data)
    except (IndexError, zlib.error):
        return None
    fits = found is not None and 0 < found.width <= MOST_SIDE and 0 < found.height <= MOST_SIDE
    return found if found and fits and found.width * found.height <= MOST_PIXELS else None


def _png(data: bytes) -> Picture | None:
    """Chunks with their sums; the picture must hold as many bytes as its size asks for."""
    chunks, at = [PNG], len(PNG)
    names: list[bytes] = []
    pixels: list[bytes] = []
    width = height = wanted = 0
    while not names or names[-1] != b"IEND":
        length, name = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        body, end = data[at + 8 : at + 8 + length], at + 12 + length
        if end > len(data) or int.from_bytes(data[end - 4 : end]) != zlib.crc32(name + body):
            return None
        if not names:
            width, height, wanted = _header(name, body)
            if not 0 < width * height <= MOST_PIXELS:
                return None
        if name == b"IDAT":
            pixels.append(body)
        if name in _KEPT:
            chunks.append(data[at:end])
        names.append(name)
        at = end
    # interlaced pictures hold some bytes more
    whole = 0 < wanted <= MOST_INSIDE and _inflated(b"".join(pixels), wanted) >= wanted
    return Picture("png", b"".join(chunks), width, height) if whole else None


def _inflated(packed: bytes, most: int) -> int:
    """How many bytes are in there, up to about `most`; they are not kept."""
    unpack, count = zlib.decompressobj(), 0
    while packed and count < most and (some := unpack.decompress(packed, STEP)):
        count, packed = count + len(some), unpack.unconsumed_tail
    return count


def _header(name: bytes, body: bytes) -> tuple[int, int, int]:
    """Width, height and the bytes of all lines; zeros for what is no header."""
    if name != b"IHDR" or len(body) != 13 or body[8] not in _DEPTHS.get(body[9], ()):
        return 0, 0, 0
    width, height = int.from_bytes(body[:4]), int.from_bytes(body[4:8])
    if body[10] or body[11] or body[12] > 1:
        return 0, 0, 0
    return width, height, height * (1 + (width * body[8] * _CHANNELS[body[9]] + 7) // 8)


def _jpeg(data: bytes) -> Picture | None:
    """Segments up to the scan; comments and what programs added are left out."""
    if data[:3] != b"\xff\xd8\xff" or data.rstrip(b"\0")[-2:] != b"\xff\xd9":
        return None
    segments, at, size = [data[:2]], 2, (0, 0)
    while data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4])
        if marker in (0x01, 0xFF, 0xD8, 0xD9) or 0xD0 <= marker <= 0xD7 or length < 2:
            return None
        if marker in _FRAMES:
            if marker not in _COMMON_FRAMES or data[at + 4] != 8 or size != (0, 0):
                return None
            size = int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        if marker == 0xDA:
            return Picture("jpeg", b"".join([*segments, data[at:]]), *size) if all(size) else None
        if not (0xE1 <= marker <= 0xED or marker in (0xEF, 0xFE)):
            segments.append(data[at : at + 2 + length])
        at += 2 + length
    return None


class Numbers:
    """Which pictures of a notebook can be shown, by its content, so that pages need not look again."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[tuple[int, int], ...]] = BoundedCache(MOST_NUMBERS)
        self._pictures: BoundedCache[dict[tuple[int, int], Picture]] = BoundedCache(MOST_KEPT)

    def of(self, sha256: str, read: Callable[[], bytes]) -> tuple[tuple[int, int], ...]:
        """(cell, number) of each; `read` gives the notebook where it is not known."""
        found = self._known.find(sha256)
        if found is None:
            found = tuple(self._all(sha256, read))
            self._known.put(sha256, len(found) + 1, found)
        return found

    def picture(self, sha256: str, cell: int, number: int, read: Callable[[], bytes]) -> Picture | None:
        """One of a notebook's, or nothing; a page asks for them one after the other."""
        return self._all(sha256, read).get((cell, number))

    def _all(self, sha256: str, read: Callable[[], bytes]) -> dict[tuple[int, int], Picture]:
        found = self._pictures.find(sha256)
        if found is None:
            found = pictures(read())
            self._pictures.put(sha256, sum(len(one.data) for one in found.values()) + 1000, found)
        return found
