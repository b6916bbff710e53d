"""Makes small images that every decoder accepts."""

import binascii
import struct
import zlib

_GIF_FRAME = bytes.fromhex("2c00000000 0100 0100 00 02 02 4401 00")
_JPEG = bytes.fromhex(
    "ffd8ffdb004300030202020202030202020303030304060404040404080606050609080a0a090809090a0c0f0c0a0b0e0b09090d110d0e"
    "0f101011100a0c12131210130f101010ffc9000b080001000101011100ffcc000600101005ffda0008010100003f00d2cf20ffd9"
)


def png(width: int = 3, height: int = 2, *, shade: int = 0, noise: bytes = b"") -> bytes:
    """Return a gray PNG. `noise` goes into a text chunk and makes the file larger."""
    rows = (b"\0" + bytes([shade]) * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    extra = _chunk(b"tEXt", b"Comment\0" + noise) if noise else b""
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + extra + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND")


def _chunk(name: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def jpeg(padding: int = 0) -> bytes:
    """Return a JPEG of one pixel with `padding` bytes of comments in its header."""
    comments = b"".join(
        b"\xff\xfe" + struct.pack(">H", min(65_000, padding - at) + 2) + b"c" * min(65_000, padding - at)
        for at in range(0, padding, 65_000)
    )
    return _JPEG[:2] + comments + _JPEG[2:]


def gif(frames: int = 1) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(3) + b"\xff" * 3
    control = bytes.fromhex("21f90400000000 00")
    return head + (control + _GIF_FRAME) * frames + b";"


WEBP_LOSSY = binascii.a2b_base64("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")
WEBP_LOSSLESS = binascii.a2b_base64("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")


def webp_extended(width: int, height: int, *, animated: bool = False) -> bytes:
    body = (
        bytes([2 if animated else 0, 0, 0, 0]) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    )
    chunks = b"VP8X" + struct.pack("<I", len(body)) + body + WEBP_LOSSY[12:]
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks
