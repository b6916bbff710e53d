"""What the file tools share: finding the checked path, opening it, and decoding files without loss.

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
from odin.core.tool import A, ResolvedPath, Tool, ToolContext, ToolOutput, fail
from odin.policy.paths import OpenFolder, PathChanged, name_in, open_folder, open_parent, resolve_given

WHOLE_BYTES = 50_000_000
"""Maximum size of a file that is read, edited or overwritten as a whole."""

_PROBE_BYTES = 8192
_MAX_REMEMBERED = 500

_written_codecs: OrderedDict[tuple[int, int], str] = OrderedDict()
"""Codec by length and hash of bytes written here in an encoding without a byte order mark. An edit may remove the text
that identified the encoding, and the next edit of the file must not use another one, in whichever session it happens.
Equal bytes of another file can be written back unchanged in any encoding that reads them."""

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
        self.error_type = error_type

    @property
    def kind(self) -> str:
        return self.error_type.__name__ if self.error_type else ""


class FileTool(Tool[A]):
    """Base of tools that work on files: turns Refusal and OSError into error results."""

    async def run(self, args: A, ctx: ToolContext) -> ToolOutput:
        try:
            return await self.work(args, ctx)
        except (Refusal, OSError) as error:
            return _describe_failure(error)

    @abstractmethod
    async def work(self, args: A, ctx: ToolContext) -> ToolOutput: ...

    async def dry_run(self, args: A, ctx: ToolContext) -> ToolOutput | None:
        try:
            self.plan(args, ctx)
        except (Refusal, OSError) as error:
            return _describe_failure(error)
        return None

    def plan(self, args: A, ctx: ToolContext) -> object:
        """Do everything that this call does before it changes something. Raise as it would."""
        return None


def _describe_failure(error: Refusal | OSError) -> ToolOutput:
    if isinstance(error, Refusal):
        return fail(to_printable(str(error)), error.kind)
    if isinstance(error, PathChanged):
        return fail(to_printable(str(error)))
    name = f" {error.filename}" if isinstance(error.filename, str) else ""
    return fail(to_printable(f"The operating system refused it:{name} {error.strerror or error}."))


def to_printable(text: str) -> str:
    """Return text that can be sent as JSON, with U+FFFD for bytes that were not UTF-8."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def find_resolved_path(path: str, ctx: ToolContext, *, on_links: bool = False) -> ResolvedPath:
    """Return a path of the call as it was checked. Raise Refusal if it leads nowhere.

    Without a check the path is resolved now.
    """
    known = ctx.resolved_paths
    found = next((item for item in known or () if item.written == path), None)
    if found is None:
        if known is not None:
            raise Refusal(f"{path} was not part of the approved call, so it is not used.")
        found = resolve_given(path, ctx.cwd, ctx.environment.home, on_links=on_links)
    if found.fault:
        raise Refusal(found.fault)
    return found


def find_working_folder(ctx: ToolContext) -> ResolvedPath:
    """Return the working directory, which a call without a path uses. It was resolved when the session started."""
    cwd = ctx.cwd
    return (
        resolve_given(cwd, "/", ctx.environment.home)
        if ctx.resolved_paths is None
        else ResolvedPath(cwd, cwd, cwd, cwd)
    )


def make_missing_refusal(place: ResolvedPath, cwd: str) -> Refusal:
    """Return the refusal for a missing path, with a suggestion of a similar existing one."""
    if place.shown != place.path:
        return Refusal(f"{place.shown} leads to {place.path}, which does not exist.")
    return Refusal(f"{place.path} does not exist.{_suggest_path(place.path, cwd)}")


def _suggest_path(path: str, cwd: str) -> str:
    in_project = Path(cwd, path.lstrip("/"))
    if in_project.exists():
        return f" Did you mean {in_project}?"
    missing = Path(path)
    while not missing.parent.is_dir():
        missing = missing.parent
    try:
        with open_folder(str(missing.parent)) as folder:
            names = folder.list_names()[:5000]
    except OSError:
        return ""
    import difflib

    same = [name for name in names if name.casefold() == missing.name.casefold()]
    similar = same or difflib.get_close_matches(missing.name, names, n=3)
    if not similar:
        return f" The nearest existing folder is {missing.parent}."
    return " Did you mean " + " or ".join(str(missing.parent / name) for name in similar) + "?"


def open_listed_folder(place: ResolvedPath, cwd: str) -> OpenFolder:
    """Open a folder to list it. Raise Refusal if there is none."""
    try:
        return open_folder(place.path, readable=True)
    except FileNotFoundError:
        raise make_missing_refusal(place, cwd) from None
    except NotADirectoryError as error:
        if error.filename == place.path:
            raise Refusal(f"{place.shown} is a file, not a directory.") from None
        raise make_missing_refusal(place, cwd) from None
    except PermissionError:
        raise Refusal(f"{place.shown} cannot be read: permission denied.") from None


def open_regular(place: ResolvedPath, cwd: str) -> tuple[FileIO, os.stat_result]:
    """Open a regular file for reading. Refuse pipes, devices and directories, which could block."""
    try:
        with open_parent(place.path) as folder:
            name = name_in(place.path)
            kind = folder.read_status(name).st_mode
            if stat.S_ISREG(kind):
                file = FileIO(folder.open_file(name, os.O_RDONLY | os.O_NONBLOCK))
                info = os.fstat(file.fileno())
                if stat.S_ISREG(info.st_mode):
                    return file, info
                file.close()
            elif stat.S_ISLNK(kind):
                raise PathChanged(place.path)
    except (FileNotFoundError, NotADirectoryError):
        raise make_missing_refusal(place, cwd) from None
    except PermissionError:
        raise Refusal(f"{place.shown} cannot be read: permission denied.") from None
    if stat.S_ISDIR(kind):
        raise Refusal(f"{place.shown} is a directory. Use LS to list it.")
    raise Refusal(
        f"{place.shown} is a device, pipe or socket, not a regular file. "
        "Use a command that ends by itself instead, such as `timeout 5 head -c 4096 FILE`."
    )


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
        # Remember the codec of written bytes, unless they are ASCII, which is the same in all codecs.
        if not data.isascii():
            _written_codecs[len(data), hash(data)] = self.codec
            if len(_written_codecs) > _MAX_REMEMBERED:
                _written_codecs.popitem(last=False)
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
            try:
                text = data[len(bom) :].decode(codec, "surrogatepass")
            except UnicodeDecodeError:
                return None
            decoded = DecodedText(text, codec, bom)
            return decoded if "\0" not in text and decoded.encode(text) == data else None
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
        from odin.tools.encoding import recognize_encoding

        recognized = recognize_encoding(body) if not bom else None
        if recognized is not None:
            return DecodedText(*recognized)
        return DecodedText(body.decode("utf-8", "surrogateescape"), bom=bom, valid=False)


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
