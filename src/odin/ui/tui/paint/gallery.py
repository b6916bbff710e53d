"""Small copies of pictures. They are read in a thread, only when somebody looks at them, and a few are kept."""

from pathlib import Path

from odin.core.message import Image

MAX_THUMBNAIL_ROWS = 16
MAX_THUMBNAIL_COLUMNS = 60
MAX_IMAGE_FILE_BYTES = 20_000_000
MAX_IMAGE_PIXELS = 60_000_000
MAX_THUMBNAILS = 40

Pixels = list[list[tuple[int, int, int]]]
ThumbnailKey = tuple[str, int]


class ThumbnailCache:
    """The small copies of pictures, by file and width. What is not known yet is `wanted`; `load` runs in a thread."""

    def __init__(self) -> None:
        self._known: dict[ThumbnailKey, Pixels | None] = {}
        self.missing: set[ThumbnailKey] = set()

    def find(self, image: Image, width: int) -> Pixels | None:
        key = image.path, min(width, MAX_THUMBNAIL_COLUMNS)
        if key not in self._known:
            self.missing.add(key)
        return self._known.get(key)

    def store(self, key: ThumbnailKey, pixels: Pixels | None) -> None:
        self.missing.discard(key)
        self._known[key] = pixels
        while len(self._known) > MAX_THUMBNAILS:
            del self._known[next(iter(self._known))]


def load_thumbnail(path: str, width: int) -> Pixels | None:
    """The picture in as many pixels as it gets, or None when it cannot be shown."""
    try:
        from PIL import Image as Pillow

        if Path(path).stat().st_size > MAX_IMAGE_FILE_BYTES:
            return None
        with Pillow.open(path) as picture:
            if picture.width * picture.height > MAX_IMAGE_PIXELS:
                return None
            picture.thumbnail((width, MAX_THUMBNAIL_ROWS * 2))
            small = picture.convert("RGB")
    except Exception:
        return None
    data, row = small.tobytes(), small.width * 3
    return [
        [(data[place], data[place + 1], data[place + 2]) for place in range(start, start + row, 3)]
        for start in range(0, row * small.height, row)
    ]
