r"""Records of an object, from its bytes as they come: one splitter an object.

split      a record                                              `raw`
--------   ---------------------------------------------------   ---------------------------
None       the whole object                                      the object
Line       a line, without its \n or \r\n                            the line with its ending
RecordIO   the content of one record, or of its parts joined     the record with its framing
TFRecord   the content                                           the record with its framing

Sources: MXNet's RecordIO (dmlc-core/recordio.h), TensorFlow's TFRecord.
"""

import struct
from dataclasses import dataclass
from typing import Protocol

from hostelry.domain.transform_job import SplitType
from hostelry.jobs.records.errors import RecordError

POLYNOMIAL = 0x82F63B78
MASK_DELTA = 0xA282EAD8


def _entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
    return value


TABLE = tuple(_entry(it) for it in range(256))


def crc32c(body: bytes) -> int:
    """The checksum of `body`."""
    table, crc = TABLE, 0xFFFFFFFF
    for byte in body:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(body: bytes) -> int:
    """The checksum as TFRecord stores it: rotated, and moved by a constant."""
    crc = crc32c(body)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


RECORD_IO_MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", RECORD_IO_MAGIC)
HEAD_BYTES = 8
LENGTH_BITS = 29
WHOLE, FIRST, MIDDLE, LAST = range(4)
TF_HEAD = struct.Struct("<QI")
TF_FRAME_BYTES = TF_HEAD.size + 4


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """A record; `raw` is it as the object has it, `content` without ending, framing, padding."""

    raw: bytes
    content: bytes


class Splitter(Protocol):
    """Takes an object's bytes; both raise RecordError."""

    def feed(self, chunk: bytes) -> list[SplitRecord]:
        """The records that are whole now."""
        ...

    def finish(self) -> list[SplitRecord]:
        """The last records; the object has ended."""
        ...


def build_splitter(split: SplitType, uri: str, max_record_bytes: int) -> Splitter:
    """The splitter for the object `uri`, whose records may have `max_record_bytes`."""
    limit = RecordLimit(uri, max_record_bytes)
    if split is SplitType.LINE:
        return LineSplitter(limit)
    if split is SplitType.RECORD_IO:
        return FramedSplitter(limit, RecordIOFrames(limit))
    if split is SplitType.TF_RECORD:
        return FramedSplitter(limit, TFRecordFrames(limit))
    return WholeSplitter(limit)


class RecordLimit:
    """Counts an object's records, and names the one that is wrong."""

    def __init__(self, uri: str, max_record_bytes: int) -> None:
        self.uri = uri
        self.max_bytes = max_record_bytes
        self.number = 1

    def check(self, num_bytes: int) -> None:
        """Raise RecordError where the present record has more bytes than the limit."""
        if num_bytes > self.max_bytes:
            raise RecordError(
                f"Record {self.number} of {self.uri} has at least {num_bytes} bytes; the limit is"
                f" {self.max_bytes} bytes (MaxPayloadInMB). Raise MaxPayloadInMB, or split the"
                " object into smaller records."
            )

    def broken(self, reason: str) -> RecordError:
        """The error for the present record."""
        return RecordError(f"Record {self.number} of {self.uri} {reason}")


class WholeSplitter:
    """The object is one record, also where it is empty."""

    def __init__(self, limit: RecordLimit) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._bytes = 0

    def feed(self, chunk: bytes) -> list[SplitRecord]:
        """Keep the bytes."""
        self._bytes += len(chunk)
        self._limit.check(self._bytes)
        self._pieces.append(chunk)
        return []

    def finish(self) -> list[SplitRecord]:
        """The object."""
        body = b"".join(self._pieces)
        return [SplitRecord(body, body)]


class LineSplitter:
    """Lines; the last may have no ending."""

    def __init__(self, limit: RecordLimit) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._bytes = 0

    def feed(self, chunk: bytes) -> list[SplitRecord]:
        """The lines that end in `chunk`."""
        if b"\n" not in chunk:
            self._keep(chunk)
            return []
        first, *rest = chunk.split(b"\n")
        self._keep(first)
        found = [self._line(b"".join(self._pieces))]
        found += [self._line(it) for it in rest[:-1]]
        self._pieces, self._bytes = [], 0
        self._keep(rest[-1])
        return found

    def finish(self) -> list[SplitRecord]:
        """The last line, where it has no ending."""
        last = b"".join(self._pieces)
        return [SplitRecord(last, last)] if last else []

    def _keep(self, piece: bytes) -> None:
        self._bytes += len(piece)
        self._limit.check(self._bytes)
        if piece:
            self._pieces.append(piece)

    def _line(self, line: bytes) -> SplitRecord:
        self._limit.check(len(line))
        self._limit.number += 1
        return SplitRecord(line + b"\n", line.removesuffix(b"\r"))


class Frames(Protocol):
    """A framing of binary records."""

    def next_end(self, held: bytearray, begin: int) -> int | None:
        """Where the frame that begins at `begin` ends; None until its head is there."""
        ...

    def content(self, frame: bytes) -> bytes | None:
        """The record that this frame ends; None where more frames belong to it."""
        ...

    def check_end(self) -> None:
        """Raise RecordError where a record lacks frames."""
        ...


class FramedSplitter:
    """Records with a head that has their length."""

    def __init__(self, limit: RecordLimit, frames: Frames) -> None:
        self._limit = limit
        self._frames = frames
        self._held = bytearray()
        self._raw = b""

    def feed(self, chunk: bytes) -> list[SplitRecord]:
        """The records that end in `chunk`."""
        self._held += chunk
        found, begin = [], 0
        while (end := self._frames.next_end(self._held, begin)) is not None:
            self._limit.check(len(self._raw) + end - begin)
            if end > len(self._held):
                break
            frame = bytes(self._held[begin:end])
            begin = end
            self._raw += frame
            content = self._frames.content(frame)
            if content is not None:
                found.append(SplitRecord(self._raw, content))
                self._raw = b""
                self._limit.number += 1
        del self._held[:begin]
        return found

    def finish(self) -> list[SplitRecord]:
        """Nothing; raises RecordError where the last record is cut off."""
        if self._held:
            raise self._limit.broken(f"is cut off: {len(self._held)} bytes are left at the end.")
        self._frames.check_end()
        return []


class RecordIOFrames:
    """Magic number, kind and length in one word, content, zeros up to a multiple of 4."""

    def __init__(self, limit: RecordLimit) -> None:
        self._limit = limit
        self._parts: list[bytes] = []

    def next_end(self, held: bytearray, begin: int) -> int | None:
        """Where the frame ends, padding included."""
        if len(held) - begin < HEAD_BYTES:
            return None
        magic, word = struct.unpack_from("<II", held, begin)
        if magic != RECORD_IO_MAGIC:
            raise self._limit.broken(
                f"begins with {magic:#010x}, not RecordIO's {RECORD_IO_MAGIC:#010x}; is SplitType"
                " right?"
            )
        length: int = word & ((1 << LENGTH_BITS) - 1)
        return begin + HEAD_BYTES + (length + 3) // 4 * 4

    def content(self, frame: bytes) -> bytes | None:
        """The content; parts of one record had the magic number between them."""
        word = struct.unpack_from("<I", frame, 4)[0]
        kind, length = word >> LENGTH_BITS, word & ((1 << LENGTH_BITS) - 1)
        begins = kind in (WHOLE, FIRST)
        if kind > LAST or begins == bool(self._parts):
            raise self._limit.broken(f"has a part of kind {kind} out of place.")
        self._parts.append(frame[HEAD_BYTES : HEAD_BYTES + length])
        if kind in (FIRST, MIDDLE):
            return None
        whole = MAGIC_BYTES.join(self._parts)
        self._parts = []
        return whole

    def check_end(self) -> None:
        """Raise RecordError where the last record has parts to come."""
        if self._parts:
            raise self._limit.broken("is cut off: its last part is missing.")


class TFRecordFrames:
    """Length, its checksum, content, its checksum."""

    def __init__(self, limit: RecordLimit) -> None:
        self._limit = limit

    def next_end(self, held: bytearray, begin: int) -> int | None:
        """Where the frame ends; the length is believed once its checksum is right."""
        if len(held) - begin < TF_HEAD.size:
            return None
        length, checksum = TF_HEAD.unpack_from(held, begin)
        if masked_crc32c(bytes(held[begin : begin + 8])) != checksum:
            raise self._limit.broken(
                "has a length with a wrong checksum; the object is damaged, or no TFRecord file."
            )
        end: int = begin + length + TF_FRAME_BYTES
        return end

    def content(self, frame: bytes) -> bytes | None:
        """The content, whose checksum is right."""
        content = frame[TF_HEAD.size : -4]
        if masked_crc32c(content) != struct.unpack("<I", frame[-4:])[0]:
            raise self._limit.broken("has a wrong checksum; the object is damaged.")
        return content

    def check_end(self) -> None:
        """Nothing: a record is one frame."""
