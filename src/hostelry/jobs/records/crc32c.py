"""CRC-32C (Castagnoli), as TFRecord files have it."""

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
