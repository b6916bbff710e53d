"""What a person puts beside the words of a prompt: a file, some lines of it, a picture."""

from msgspec import Struct

MAX_IMAGES = 5
MAX_IMAGE_BYTES = 5_000_000


class Attachment(Struct, frozen=True, omit_defaults=True):
    """`path` is read where the session runs, from line `first` to line `last`; 0 leaves that end open.

    With `data` the bytes come along, as from a clipboard, and `path` is only what they are called. In what a session
    tells they are a file of its own by then, and `name` is what they are called.
    """

    path: str
    first: int = 0
    last: int = 0
    data: bytes = b""
    media_type: str = ""
    name: str = ""
