"""Paths as the model gives them: absolute, existing, of the right kind; and a helpful sentence when they are not.

Bytes to text and back without losing one.

Text that is not valid UTF-8 is decoded with an escape for each odd byte, so encoding it again gives the same bytes. A
byte order mark is kept aside. UTF-16 and UTF-32 are recognised by their mark, some East Asian encodings by what is
written in them.
"""

import codecs
import os
import re
import stat
from abc import abstractmethod
from collections import OrderedDict
from io import FileIO
from pathlib import Path

from msgspec import Struct

from odin.core.errors import OdinError
from odin.core.tool import A, Tool, ToolContext, ToolOutput, fail

WHOLE_BYTES = 50_000_000
"""The largest file that is read, edited or overwritten as a whole."""


class Refusal(Exception):
    """The call cannot be done as asked. The sentence is what the model reads, so it says what to do instead.

    `named` is the error it is, where people and programs have a name for it.
    """

    def __init__(self, sentence: str, error_type: type[OdinError] | None = None) -> None:
        super().__init__(sentence)
        self.kind = error_type.__name__ if error_type else ""


class FileTool(Tool[A]):
    """A tool about files: what it refuses and what the system refuses become error results."""

    async def run(self, args: A, ctx: ToolContext) -> ToolOutput:
        try:
            return await self.work(args, ctx)
        except Refusal as refusal:
            return fail(to_printable(str(refusal)), refusal.kind)
        except OSError as error:
            name = f" {error.filename}" if isinstance(error.filename, str) else ""
            return fail(to_printable(f"The system refused it:{name} {error.strerror or error}."))

    @abstractmethod
    async def work(self, args: A, ctx: ToolContext) -> ToolOutput: ...


def to_printable(text: str) -> str:
    """Text that can be sent as JSON: bytes that were not UTF-8 show as U+FFFD."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def require_absolute(path: str, cwd: str, field: str) -> str:
    """The path without `..` and doubled slashes, provided it is absolute."""
    if not path or "\0" in path:
        raise Refusal(f"{field} is not a path: {path!r}.")
    if not Path(path).is_absolute():
        full = os.path.normpath(Path(cwd, os.path.expanduser(path)))  # noqa: PTH111
        raise Refusal(f"{field} must be an absolute path. Use {full} instead of {path}.")
    return os.path.normpath(path)


def make_missing_refusal(path: str, cwd: str) -> Refusal:
    """The sentence for a path that does not exist, with the nearest one that does."""
    if Path(path).is_symlink():
        return Refusal(f"{path} is a symbolic link to {os.readlink(path)}, which does not exist.")  # noqa: PTH115
    return Refusal(f"{path} does not exist.{_suggest_path(path, cwd)}")


def _suggest_path(path: str, cwd: str) -> str:
    inside = Path(cwd, path.lstrip("/"))
    if inside.exists():
        return f" Did you mean {inside}?"
    wanted = Path(path)
    while not wanted.parent.is_dir():
        wanted = wanted.parent
    try:
        names = os.listdir(wanted.parent)[:5000]  # noqa: PTH208
    except OSError:
        return ""
    import difflib

    same = [name for name in names if name.casefold() == wanted.name.casefold()]
    near = same or difflib.get_close_matches(wanted.name, names, n=3)
    if not near:
        return f" The nearest folder that exists is {wanted.parent}."
    return " Did you mean " + " or ".join(str(wanted.parent / name) for name in near) + "?"


def require_folder(path: str, cwd: str) -> str:
    if Path(path).is_dir():
        return path
    if os.path.lexists(path):
        raise Refusal(f"{path} is a file, not a directory.")
    raise make_missing_refusal(path, cwd)


def open_regular(path: str, cwd: str) -> tuple[FileIO, os.stat_result]:
    """Open a file for reading. A pipe, a device or a directory is refused before it can make us wait."""
    try:
        kind = Path(path).stat().st_mode
        if stat.S_ISDIR(kind):
            raise Refusal(f"{path} is a directory. Use LS to list it.")
        if not stat.S_ISREG(kind):
            raise Refusal(f"{path} is not a regular file but a device, pipe or socket; it is not opened.")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise make_missing_refusal(path, cwd) from None
    except PermissionError:
        raise Refusal(f"{path} cannot be read: permission denied.") from None
    return FileIO(fd), os.fstat(fd)


def read_whole(file: FileIO, info: os.stat_result) -> bytes | None:
    """All of an open file, or None when it is larger than what is handled in memory."""
    parts: list[bytes] = []
    size = 0
    while size <= WHOLE_BYTES:
        part = file.read(max(info.st_size - size, 0) + 4096)
        if not part:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        parts.append(part)
        size += len(part)
    return None


_PROBE_BYTES = 8192
_MAX_REMEMBERED = 500

_written_codecs: OrderedDict[tuple[int, int], str] = OrderedDict()
"""Length and hash of bytes that were made here in an encoding without a mark. An edit may take out what it would be
recognised by, and the next edit of the same file must not put in another."""

_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class DecodedText(Struct, frozen=True):
    """A file's text. `valid` is false when its encoding is not known; odd bytes are lone surrogates in `text`."""

    text: str
    codec: str = "utf-8"
    bom: bytes = b""
    valid: bool = True

    @property
    def is_wide(self) -> bool:
        return self.codec.startswith(("utf-16", "utf-32"))

    def encode(self, text: str) -> bytes:
        """`text` as bytes in this file's encoding."""
        if self.codec == "utf-8":
            return self.bom + text.encode("utf-8", "surrogateescape")
        if self.is_wide:
            return self.bom + text.encode(self.codec, "surrogatepass")
        try:
            data = text.encode(self.codec)
        except UnicodeEncodeError as error:
            odd = text[error.start : error.start + 1]
            raise Refusal(f"The file is in {self.codec}, which has no {odd!r} (U+{ord(odd):04X}).") from None
        _remember_codec(data, self.codec)
        return data

    def check_text(self, new: str, field: str) -> None:
        """Refuse text that this file cannot take without mixing encodings."""
        try:
            new.encode("utf-8")
        except UnicodeEncodeError:
            raise Refusal(f"{field} contains half of a surrogate pair, which is not a character.") from None
        if not self.valid and not new.isascii():
            raise Refusal(
                "The file is not UTF-8 and its encoding is not known for certain, so only ASCII text can be put into "
                "it without mixing encodings. Use ASCII, or convert the file with a command first."
            )
        if not self.is_wide and self.codec != "utf-8" and not self._can_encode(new):
            raise Refusal(f"{field} has characters that do not exist in {self.codec}, the encoding of the file.")

    def _can_encode(self, new: str) -> bool:
        try:
            return new.encode(self.codec).decode(self.codec) == new
        except UnicodeEncodeError:
            return False


def decode(data: bytes) -> DecodedText | None:
    """The text of a file, or None when it is binary: a NUL byte near the start, as git decides it."""
    for bom, codec in _WIDE_MARKS:
        if data.startswith(bom):
            return _decode_wide(data, bom, codec)
    if b"\0" in data[:_PROBE_BYTES]:
        return None
    codec = _written_codecs.get((len(data), hash(data))) if _written_codecs else None
    if codec is not None:
        return DecodedText(data.decode(codec), codec)
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    body = data[len(bom) :] if bom else data
    try:
        return DecodedText(body.decode("utf-8"), bom=bom)
    except UnicodeDecodeError:
        return _decode_other(body, bom)


def _remember_codec(data: bytes, codec: str) -> None:
    """Plain ASCII is the same in all of them and says nothing about the next file that looks like it."""
    if data.isascii():
        return
    _written_codecs[len(data), hash(data)] = codec
    if len(_written_codecs) > _MAX_REMEMBERED:
        _written_codecs.popitem(last=False)


def _decode_other(body: bytes, bom: bytes) -> DecodedText:
    from odin.tools.encoding import recognize_encoding

    found = recognize_encoding(body) if not bom else None
    if found is not None:
        return DecodedText(*found)
    return DecodedText(body.decode("utf-8", "surrogateescape"), bom=bom, valid=False)


def _decode_wide(data: bytes, bom: bytes, codec: str) -> DecodedText | None:
    try:
        text = data[len(bom) :].decode(codec, "surrogatepass")
    except UnicodeDecodeError:
        return None
    found = DecodedText(text, codec, bom)
    return found if "\0" not in text and found.encode(text) == data else None


def is_crlf(text: str) -> bool:
    """Whether every line of the text ends with a carriage return and a line feed."""
    lines = text.count("\n")
    return lines > 0 and lines == text.count("\r\n")
