"""Pictures as coloured half blocks, once their small copies are there; until then, and without Pillow, their names."""

from pathlib import Path

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from odin.core.message import Image
from odin.ui.tui.paint.canvas import Canvas, Line
from odin.ui.tui.paint.foreign import sanitize_line
from odin.ui.tui.paint.gallery import Pixels


def paint_image(image: Image, canvas: Canvas) -> list[Strip]:
    size = f", {image.width}×{image.height}" if image.width and image.height else ""
    label = canvas.paint_row(
        (f"  [image: {sanitize_line(image.name or Path(image.path).name)}{size}]", canvas.palette.dim)
    )
    pixels = canvas.thumbnails.find(image, max(canvas.width - 4, 4))
    return [label, *(Strip([Segment("  "), *line]) for line in _paint_half_blocks(pixels))] if pixels else [label]


def _paint_half_blocks(pixels: Pixels) -> list[Line]:
    """Two rows of pixels in each line: the upper one as letters, the lower one as ground."""
    below = pixels[1::2] if len(pixels) % 2 == 0 else [*pixels[1::2], pixels[-1]]
    return [
        [
            Segment("▀", Style(color=Color.from_rgb(*high), bgcolor=Color.from_rgb(*low)))
            for high, low in zip(upper, lower, strict=True)
        ]
        for upper, lower in zip(pixels[::2], below, strict=True)
    ]
