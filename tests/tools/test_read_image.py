"""Read of images: formats, the copy in the session, limits, damaged files."""

import os
import stat
from pathlib import Path

import pytest

from odin.tools.images import MAX_BYTES
from tests import pictures
from tests.tools.toolbox import Toolbox

VALID_IMAGES = {
    "a.png": (pictures.png(800, 600), "800x600, png"),
    "a.jpg": (pictures.jpeg(), "1x1, jpeg"),
    "a.gif": (pictures.gif(), "1x1, gif"),
    "a.webp": (pictures.WEBP_LOSSY, "1x1, webp"),
    "b.webp": (pictures.WEBP_LOSSLESS, "1x1, webp"),
    "c.webp": (pictures.webp_extended(1, 1), "1x1, webp"),
    "name-says.txt": (pictures.png(3, 2), "3x2, png"),
}


@pytest.mark.parametrize("name", VALID_IMAGES)
async def test_an_image_is_recognized_by_its_bytes_and_copied_into_the_session(box: Toolbox, name: str) -> None:
    data, about = VALID_IMAGES[name]
    output = await box.ok("Read", file_path=box.write(name, data))
    assert output.text.startswith(f"(image: {name}, {about}, ")
    (image,) = output.images
    assert Path(image.path).parent == box.session / "images"
    assert Path(image.path).read_bytes() == data
    assert stat.S_IMODE(os.stat(image.path).st_mode) == 0o600
    assert f"{image.width}x{image.height}, {image.media_type.removeprefix('image/')}" == about


async def test_the_copy_stays_when_the_file_changes(box: Toolbox) -> None:
    path = box.write("a.png", pictures.png(shade=1))
    first = (await box.ok("Read", file_path=path)).images[0]
    again = (await box.ok("Read", file_path=path)).images[0]
    box.write("a.png", pictures.png(shade=2))
    second = (await box.ok("Read", file_path=path)).images[0]
    assert first == again != second
    assert Path(first.path).read_bytes() == pictures.png(shade=1)
    assert sorted(os.listdir(box.session / "images")) == sorted({Path(first.path).name, Path(second.path).name})


async def test_of_an_animated_gif_the_first_frame_is_shown(box: Toolbox) -> None:
    (image,) = (await box.ok("Read", file_path=box.write("a.gif", pictures.gif(3)))).images
    assert Path(image.path).read_bytes() == pictures.gif(1)


async def test_an_image_with_a_damaged_comment_is_shown_without_it(box: Toolbox) -> None:
    data = pictures.png(noise=b"a comment")
    (image,) = (await box.ok("Read", file_path=box.write("a.png", data.replace(b"comment", b"cOmment")))).images
    assert Path(image.path).read_bytes() == pictures.png()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pictures.png(8001, 2), "it has 8001x2 pixels; at most 8000 per side"),
        (pictures.png(2, 9000), "2x9000 pixels"),
        (pictures.jpeg(6_000_000), "it has 6.0 MB; at most 3.9 MB are allowed"),
        (pictures.png()[:20], "its header is cut off"),
        (pictures.png(50, 50)[:-20], "it is cut off"),
        (pictures.png(50, 50).replace(b"IDAT", b"IDAU"), "it is damaged"),
        (pictures.png(50, 50).replace(b"IEND", b"iEND"), "it is cut off"),
        (pictures.png(50, 50)[:33] + pictures.png(50, 40)[33:], "its pixels are cut off"),
        (pictures.png(5, 5)[:33] + pictures.png(5000, 5000)[33:], "it unpacks to more data than its size allows"),
        (pictures.jpeg()[:-2], "it is cut off"),
        (pictures.gif()[:-6], "it is cut off"),
        (b"GIF89a" + bytes(7) + b";", "no size"),
        (pictures.WEBP_LOSSY[:-4], "it is cut off"),
        (pictures.webp_extended(9, 9, animated=True), "it is animated"),
    ],
)
async def test_images_that_an_api_would_reject_are_refused_with_a_hint(box: Toolbox, data: bytes, why: str) -> None:
    text = await box.refused("Read", file_path=box.write("it's.png", data))
    assert "is an image that cannot be shown" in text
    assert why in text
    assert "magick " in text
    assert not (box.session / "images").exists()


async def test_the_largest_image_still_fits_into_base64(box: Toolbox) -> None:
    empty = len(pictures.png(noise=b"x"))
    data = pictures.png(noise=b"x" * (MAX_BYTES - empty + 1))
    assert len(data) == MAX_BYTES
    assert len((await box.ok("Read", file_path=box.write("a.png", data))).images) == 1
    assert "at most 3.9 MB" in await box.refused("Read", file_path=box.write("b.png", data[:-12] + b"x" + data[-12:]))


async def test_a_huge_image_is_refused_for_its_size(box: Toolbox) -> None:
    path = Path(box.write("a.png", pictures.png()))
    with path.open("ab") as file:
        file.truncate(60_000_000)
    assert "it has 60.0 MB" in await box.refused("Read", file_path=str(path))


async def test_an_empty_file_and_an_svg_are_text(box: Toolbox) -> None:
    assert (await box.ok("Read", file_path=box.write("a.png", b""))).text == "(empty file)"
    svg = await box.ok("Read", file_path=box.write("a.svg", "<svg/>\n"))
    assert svg.text == "     1\t<svg/>"
    assert svg.images == ()
    assert (await box.ok("Read", file_path=box.write("b.png", "no image\n"))).text == "     1\tno image"


async def test_reading_an_image_does_not_allow_editing_it(box: Toolbox) -> None:
    path = box.write("a.png", pictures.png())
    await box.ok("Read", file_path=path)
    assert box.files.get_cached_file(path) is None
    assert "binary" in await box.refused("EditTool", file_path=path, old_string="PNG", new_string="GNP")
