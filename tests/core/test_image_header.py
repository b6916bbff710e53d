"""Reading the kind and size of an image from its header."""

import pytest

from odin.core.image_header import BrokenImage, ImageHeader, read_image_header
from odin.core.message import detect_image_kind
from tests import pictures

SAMPLES = {
    "png": pictures.png(800, 600),
    "jpeg": pictures.jpeg(),
    "gif": pictures.gif(),
    "webp": pictures.WEBP_LOSSY,
    "webp lossless": pictures.WEBP_LOSSLESS,
    "webp extended": pictures.webp_extended(4000, 3000),
}


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("png", (800, 600)),
        ("jpeg", (1, 1)),
        ("gif", (1, 1)),
        ("webp", (1, 1)),
        ("webp lossless", (1, 1)),
        ("webp extended", (4000, 3000)),
    ],
)
def test_kind_and_size_come_from_the_header(name: str, size: tuple[int, int]) -> None:
    kind = name.split()[0]
    assert read_image_header(SAMPLES[name]) == ImageHeader(kind, *size)
    assert detect_image_kind(SAMPLES[name][:12]) == kind


def test_jpeg_size_is_that_of_the_image_and_not_of_its_preview() -> None:
    preview = pictures.jpeg()
    data = bytearray(pictures.jpeg())
    at = data.index(b"\xff\xc9")
    data[at + 5 : at + 9] = (600).to_bytes(2, "big") + (800).to_bytes(2, "big")
    data[2:2] = b"\xff\xe1" + (len(preview) + 2).to_bytes(2, "big") + preview
    assert read_image_header(bytes(data)) == ImageHeader("jpeg", 800, 600)


@pytest.mark.parametrize("name", SAMPLES)
def test_truncated_image_is_broken_or_read_correctly(name: str) -> None:
    whole = read_image_header(SAMPLES[name])
    seen = set[str]()
    for end in range(len(SAMPLES[name])):
        try:
            found = read_image_header(SAMPLES[name][:end])
        except BrokenImage as broken:
            seen.add(str(broken))
        else:
            assert found in (None, whole)
    assert seen <= {"its header is cut off", "its header is damaged"}
    assert seen


def test_other_data_has_no_image_header() -> None:
    for data in (
        b"",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"BM\0\0",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"GIF8",
        b"\x89PNG",
    ):
        assert read_image_header(data) is None


def test_an_image_without_a_size_is_broken() -> None:
    with pytest.raises(BrokenImage, match="no size"):
        read_image_header(pictures.png(0, 5))
