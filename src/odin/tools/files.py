"""What the file tools share: checking paths, opening files, and decoding them without loss.

Bytes that are not valid UTF-8 are decoded as lone surrogates, so encoding the text again gives the same bytes. A byte
order mark is stored separately. UTF-16 and UTF-32 are recognized by it, some East Asian encodings by their content.
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
"""Maximum size of a file that is read, edited or overwritten as a whole."""

_PROBE_BYTES = 8192
_MAX_REMEMBERED = 500

_written_codecs: OrderedDict[tuple[int, int], str] = OrderedDict()
"""Codec by length and hash of bytes written here in an encoding without a byte order mark. An edit may remove the text
that identified the encoding, and the next edit of the file must not use another one."""

_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

LINES = 2000
"""Maximum lines of one Read."""

LINE_CHARS = 2000
"""Longer lines are cut."""

SHOWN_CHARS = 50_000
"""Maximum characters of numbered lines in one result."""


class Refusal(Exception):
    """A tool refuses a call. The model reads the message, so it says what to do instead.

    `error_type` names the kind of error, if it has one.
    """

    def __init__(self, message: str, error_type: type[OdinError] | None = None) -> None:
        super().__init__(message)
        self.kind = error_type.__name__ if error_type else ""


class FileTool(Tool[A]):
    """Base of tools that work on files: turns Refusal and OSError into error results."""

    async def run(self, args: A, ctx: ToolContext) -> ToolOutput:
        try:
            return await self.work(args, ctx)
        except Refusal as refusal:
            return fail(to_printable(str(refusal)), refusal.kind)
        except OSError as error:
            name = f" {error.filename}" if isinstance(error.filename, str) else ""
            return fail(to_printable(f"The operating system refused it:{name} {error.strerror or error}."))

    @abstractmethod
    async def work(self, args: A, ctx: ToolContext) -> ToolOutput: ...


def to_printable(text: str) -> str:
    """Return text that can be sent as JSON, with U+FFFD for bytes that were not UTF-8."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def require_absolute(path: str, cwd: str, field: str) -> str:
    """Return the normalized path. Raise Refusal if it is not absolute."""
    if not path or "\0" in path:
        raise Refusal(f"{field} is not a path: {path!r}.")
    if not Path(path).is_absolute():
        full = os.path.normpath(Path(cwd, os.path.expanduser(path)))  # noqa: PTH111
        raise Refusal(f"{field} must be an absolute path. Use {full} instead of {path}.")
    return os.path.normpath(path)


def make_missing_refusal(path: str, cwd: str) -> Refusal:
    """Return the refusal for a missing path, with a suggestion of a similar existing one."""
    if Path(path).is_symlink():
        return Refusal(f"{path} is a symbolic link to {os.readlink(path)}, which does not exist.")  # noqa: PTH115
    return Refusal(f"{path} does not exist.{_suggest_path(path, cwd)}")


def _suggest_path(path: str, cwd: str) -> str:
    in_project = Path(cwd, path.lstrip("/"))
    if in_project.exists():
        return f" Did you mean {in_project}?"
    missing = Path(path)
    while not missing.parent.is_dir():
        missing = missing.parent
    try:
        names = os.listdir(missing.parent)[:5000]  # noqa: PTH208
    except OSError:
        return ""
    import difflib

    same = [name for name in names if name.casefold() == missing.name.casefold()]
    similar = same or difflib.get_close_matches(missing.name, names, n=3)
    if not similar:
        return f" The nearest existing folder is {missing.parent}."
    return " Did you mean " + " or ".join(str(missing.parent / name) for name in similar) + "?"


def require_folder(path: str, cwd: str) -> str:
    if Path(path).is_dir():
        return path
    if os.path.lexists(path):
        raise Refusal(f"{path} is a file, not a directory.")
    raise make_missing_refusal(path, cwd)


def open_regular(path: str, cwd: str) -> tuple[FileIO, os.stat_result]:
    """Open a regular file for reading. Refuse pipes, devices and directories, which could block."""
    try:
        kind = Path(path).stat().st_mode
        if stat.S_ISDIR(kind):
            raise Refusal(f"{path} is a directory. Use LS to list it.")
        if not stat.S_ISREG(kind):
            raise Refusal(f"{path} is a device, pipe or socket, not a regular file.")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise make_missing_refusal(path, cwd) from None
    except PermissionError:
        raise Refusal(f"{path} cannot be read: permission denied.") from None
    return FileIO(fd), os.fstat(fd)


def read_whole(file: FileIO, info: os.stat_result) -> bytes | None:
    """Return the whole content of an open file, or None if it is larger than WHOLE_BYTES."""
    parts: list[bytes] = []
    size = 0
    while size <= WHOLE_BYTES:
        part = file.read(max(info.st_size - size, 0) + 4096)
        if not part:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        parts.append(part)
        size += len(part)
    return None


class DecodedText(Struct, frozen=True):
    """A file's text. `valid` is false if the encoding is unknown; undecodable bytes are lone surrogates in `text`."""

    text: str
    codec: str = "utf-8"
    bom: bytes = b""
    valid: bool = True

    @property
    def is_wide(self) -> bool:
        return self.codec.startswith(("utf-16", "utf-32"))

    def encode(self, text: str) -> bytes:
        """Return `text` in this file's encoding."""
        if self.codec == "utf-8":
            return self.bom + text.encode("utf-8", "surrogateescape")
        if self.is_wide:
            return self.bom + text.encode(self.codec, "surrogatepass")
        try:
            data = text.encode(self.codec)
        except UnicodeEncodeError as error:
            char = text[error.start : error.start + 1]
            raise Refusal(f"The file is in {self.codec}, which has no {char!r} (U+{ord(char):04X}).") from None
        _remember_codec(data, self.codec)
        return data

    def check_text(self, new: str, field: str) -> None:
        """Raise Refusal for text that would mix encodings in this file."""
        try:
            new.encode("utf-8")
        except UnicodeEncodeError:
            raise Refusal(f"{field} contains half of a surrogate pair, which is not a character.") from None
        if not self.valid and not new.isascii():
            raise Refusal(
                "The file is not UTF-8 and its encoding is unknown, so only ASCII text can be added without mixing "
                "encodings. Use ASCII, or convert the file with a command first."
            )
        if not self.is_wide and self.codec != "utf-8" and not self._can_encode(new):
            raise Refusal(f"{field} contains characters that do not exist in {self.codec}, the encoding of the file.")

    def _can_encode(self, new: str) -> bool:
        try:
            return new.encode(self.codec).decode(self.codec) == new
        except UnicodeEncodeError:
            return False


def decode(data: bytes) -> DecodedText | None:
    """Return the text of a file, or None if it is binary: like git, by a NUL byte near the start."""
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
    """Remember the codec of written bytes, unless they are ASCII, which is the same in all codecs."""
    if data.isascii():
        return
    _written_codecs[len(data), hash(data)] = codec
    if len(_written_codecs) > _MAX_REMEMBERED:
        _written_codecs.popitem(last=False)


def _decode_other(body: bytes, bom: bytes) -> DecodedText:
    from odin.tools.encoding import recognize_encoding

    recognized = recognize_encoding(body) if not bom else None
    if recognized is not None:
        return DecodedText(*recognized)
    return DecodedText(body.decode("utf-8", "surrogateescape"), bom=bom, valid=False)


def _decode_wide(data: bytes, bom: bytes, codec: str) -> DecodedText | None:
    try:
        text = data[len(bom) :].decode(codec, "surrogatepass")
    except UnicodeDecodeError:
        return None
    decoded = DecodedText(text, codec, bom)
    return decoded if "\0" not in text and decoded.encode(text) == data else None


def is_crlf(text: str) -> bool:
    """True if every line of the text ends with CRLF."""
    lines = text.count("\n")
    return lines > 0 and lines == text.count("\r\n")


class NumberedLines(Struct, frozen=True):
    """The numbered lines `first` to `last`. `cut`: at least one line was shortened."""

    text: str
    first: int
    last: int
    cut: bool


def number_lines(lines: list[str], first: int, limit: int = SHOWN_CHARS) -> NumberedLines:
    """Number lines like `cat -n`, up to `limit` characters in total; very long lines are cut."""
    out: list[str] = []
    cut, size = False, 0
    for number, line in enumerate(lines, first):
        shown = line.removesuffix("\r")
        if len(shown) > LINE_CHARS:
            cut = True
            shown = f"{shown[:LINE_CHARS]}... [line cut: {LINE_CHARS} of {len(shown)} characters]"
        size += len(shown) + 8
        if size > limit and out:
            break
        out.append(f"{number:6}\t{shown}")
    return NumberedLines("\n".join(out), first, first + len(out) - 1, cut)
