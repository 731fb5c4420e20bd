r"""Records of a transform job's object: split from its bytes, and put together into payloads.

split      a record                                              `raw`
--------   ---------------------------------------------------   ---------------------------
None       the whole object                                      the object
Line       a line, without its \n or \r\n                        the line with its ending
RecordIO   the content of one record, or of its joined parts     the record with its framing
TFRecord   the content                                           the record with its framing

Sources: MXNet's RecordIO (dmlc-core/recordio.h), TensorFlow's TFRecord.
"""

import struct
from collections.abc import Iterable
from typing import Protocol

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.domain.transform_job import BatchStrategy, SplitType


class RecordError(HostelryError):
    """Records cannot be read or sent, or answers cannot be kept. A repeat fails, too."""


POLYNOMIAL = 0x82F63B78
MASK_DELTA = 0xA282EAD8


def _entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
    return value


TABLE = tuple(_entry(it) for it in range(256))


def crc32c(body: bytes) -> int:
    """Compute the CRC-32C of `body`."""
    table, crc = TABLE, 0xFFFFFFFF
    for byte in body:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(body: bytes) -> int:
    """Compute the checksum as TFRecord stores it: rotated, and moved by a constant."""
    crc = crc32c(body)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


RECORD_IO_MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", RECORD_IO_MAGIC)
HEAD_BYTES = 8
LENGTH_BITS = 29
WHOLE, FIRST, MIDDLE, LAST = range(4)
TF_HEAD = struct.Struct("<QI")
TF_FRAME_BYTES = TF_HEAD.size + 4


class SplitRecord(msgspec.Struct, frozen=True):
    """A record: its bytes in the object, and its content without ending, framing and padding."""

    raw: bytes
    content: bytes


class Splitter(Protocol):
    """Splits the bytes of one object. Methods raise RecordError."""

    def add_bytes(self, chunk: bytes) -> list[SplitRecord]:
        """Take bytes, and return the records that are complete now."""
        ...

    def finish(self) -> list[SplitRecord]:
        """End the object, and return its last records."""
        ...


def build_splitter(split: SplitType, uri: str, max_record_bytes: int) -> Splitter:
    """Build the splitter of the object `uri`, whose records have at most `max_record_bytes`."""
    limit = RecordLimit(uri, max_record_bytes)
    if split is SplitType.LINE:
        return LineSplitter(limit)
    if split is SplitType.RECORD_IO:
        return FramedSplitter(limit, RecordIOFrames(limit))
    if split is SplitType.TF_RECORD:
        return FramedSplitter(limit, TFRecordFrames(limit))
    return WholeSplitter(limit)


class RecordLimit:
    """Counts an object's records, checks their sizes, and names the current record in errors."""

    def __init__(self, uri: str, max_record_bytes: int) -> None:
        self.uri = uri
        self.max_bytes = max_record_bytes
        self.number = 1

    def check(self, num_bytes: int) -> None:
        """Raise RecordError if the current record has more bytes than the limit."""
        if num_bytes > self.max_bytes:
            raise RecordError(
                f"Record {self.number} of {self.uri} has at least {num_bytes} bytes; the limit is"
                f" {self.max_bytes} bytes (MaxPayloadInMB). Raise MaxPayloadInMB, or split the"
                " object into smaller records."
            )

    def build_error(self, reason: str) -> RecordError:
        """Build an error about the current record."""
        return RecordError(f"Record {self.number} of {self.uri} {reason}")


class WholeSplitter:
    """The object is one record, even if it is empty."""

    def __init__(self, limit: RecordLimit) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._bytes = 0

    def add_bytes(self, chunk: bytes) -> list[SplitRecord]:
        """Keep the bytes. No record is complete before the end."""
        self._bytes += len(chunk)
        self._limit.check(self._bytes)
        self._pieces.append(chunk)
        return []

    def finish(self) -> list[SplitRecord]:
        """Return the object as a record."""
        body = b"".join(self._pieces)
        return [SplitRecord(body, body)]


class LineSplitter:
    """Records are lines. The last line may have no ending."""

    def __init__(self, limit: RecordLimit) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._bytes = 0

    def add_bytes(self, chunk: bytes) -> list[SplitRecord]:
        """Take bytes, and return the lines that end in `chunk`."""
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
        """Return the last line if it has no ending."""
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
        """Return the end of the frame that begins at `begin`. None if its head is incomplete."""
        ...

    def content(self, frame: bytes) -> bytes | None:
        """Return the record that ends with this frame. None if the record has more frames."""
        ...

    def check_end(self) -> None:
        """Raise RecordError if a record lacks frames."""
        ...


class FramedSplitter:
    """Records are frames. The head of a frame has its length."""

    def __init__(self, limit: RecordLimit, frames: Frames) -> None:
        self._limit = limit
        self._frames = frames
        self._held = bytearray()
        self._raw = b""

    def add_bytes(self, chunk: bytes) -> list[SplitRecord]:
        """Take bytes, and return the records that end in `chunk`."""
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
        """Raise RecordError if the last record is cut off."""
        if self._held:
            raise self._limit.build_error(
                f"is cut off: {len(self._held)} bytes are left at the end."
            )
        self._frames.check_end()
        return []


class RecordIOFrames:
    """A magic number, a word with kind and length, content, and zeros up to a multiple of 4."""

    def __init__(self, limit: RecordLimit) -> None:
        self._limit = limit
        self._parts: list[bytes] = []

    def next_end(self, held: bytearray, begin: int) -> int | None:
        """Return the end of the frame, including padding."""
        if len(held) - begin < HEAD_BYTES:
            return None
        magic, word = struct.unpack_from("<II", held, begin)
        if magic != RECORD_IO_MAGIC:
            raise self._limit.build_error(
                f"begins with {magic:#010x}, not RecordIO's {RECORD_IO_MAGIC:#010x}; is SplitType"
                " right?"
            )
        length: int = word & ((1 << LENGTH_BITS) - 1)
        return begin + HEAD_BYTES + (length + 3) // 4 * 4

    def content(self, frame: bytes) -> bytes | None:
        """Return the content. Between the parts of a record stood the magic number."""
        word = struct.unpack_from("<I", frame, 4)[0]
        kind, length = word >> LENGTH_BITS, word & ((1 << LENGTH_BITS) - 1)
        begins = kind in (WHOLE, FIRST)
        if kind > LAST or begins == bool(self._parts):
            raise self._limit.build_error(f"has a part of kind {kind} out of place.")
        self._parts.append(frame[HEAD_BYTES : HEAD_BYTES + length])
        if kind in (FIRST, MIDDLE):
            return None
        whole = MAGIC_BYTES.join(self._parts)
        self._parts = []
        return whole

    def check_end(self) -> None:
        """Raise RecordError if the last record lacks parts."""
        if self._parts:
            raise self._limit.build_error("is cut off: its last part is missing.")


class TFRecordFrames:
    """The length and its checksum, the content and its checksum."""

    def __init__(self, limit: RecordLimit) -> None:
        self._limit = limit

    def next_end(self, held: bytearray, begin: int) -> int | None:
        """Return the end of the frame, after the checksum of its length is verified."""
        if len(held) - begin < TF_HEAD.size:
            return None
        length, checksum = TF_HEAD.unpack_from(held, begin)
        if masked_crc32c(bytes(held[begin : begin + 8])) != checksum:
            raise self._limit.build_error(
                "has a length with a wrong checksum; the object is damaged, or no TFRecord file."
            )
        end: int = begin + length + TF_FRAME_BYTES
        return end

    def content(self, frame: bytes) -> bytes | None:
        """Return the content, after its checksum is verified."""
        content = frame[TF_HEAD.size : -4]
        if masked_crc32c(content) != struct.unpack("<I", frame[-4:])[0]:
            raise self._limit.build_error("has a wrong checksum; the object is damaged.")
        return content

    def check_end(self) -> None:
        """Do nothing, because each frame is a record."""


class Payload(msgspec.Struct, frozen=True):
    """Records that are sent at once. `first_number` is the first record's, from 1."""

    records: tuple[SplitRecord, ...]
    first_number: int
    is_framed: bool

    @property
    def body(self) -> bytes:
        """The bytes to send. Framing and endings are kept between the records of a batch."""
        if not self.is_framed:
            return self.records[0].content
        return b"".join([it.raw for it in self.records])


class Batcher:
    """Puts the records of one object together. Splitters have checked each record's size."""

    def __init__(self, strategy: BatchStrategy, max_payload_bytes: int) -> None:
        self._strategy = strategy
        self._max_bytes = max_payload_bytes
        self._held: list[SplitRecord] = []
        self._bytes = 0
        self._number = 1

    def add(self, records: Iterable[SplitRecord]) -> list[Payload]:
        """Take records, and return the payloads that are full now."""
        found = []
        for record in records:
            if self._strategy is BatchStrategy.SINGLE_RECORD:
                found.append(Payload((record,), self._number, False))
                self._number += 1
                continue
            size = len(record.raw)
            if self._held and self._bytes + size > self._max_bytes:
                found.append(self._take())
            self._held.append(record)
            self._bytes += size
        return found

    def finish(self) -> list[Payload]:
        """Return the last payload if records are left."""
        return [self._take()] if self._held else []

    def _take(self) -> Payload:
        payload = Payload(tuple(self._held), self._number, True)
        self._number += len(self._held)
        self._held, self._bytes = [], 0
        return payload
