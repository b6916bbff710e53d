"""The patch format that some models are trained on: parse a patch, and apply its hunks to a text.

    *** Begin Patch
    *** Update File: src/app.py
    *** Move to: src/main.py
    @@ class App:
     context
    -removed
    +added
    *** Add File: notes.md
    +content
    *** Delete File: old.py
    *** End Patch

A hunk has no line numbers: its unchanged and removed lines locate it. Lines after `@@` are headers, such as the class
or function that contains the hunk. A hunk that fits in two places is refused.
"""

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from odin.tools.files import Refusal
from odin.tools.replacement import Edit, EditBuffer, Span, describe_places, get_line_number

PatchAction = Literal["add", "update", "delete"]

_BEGIN, _END, _END_OF_FILE, _MOVE = "*** Begin Patch", "*** End Patch", "*** End of File", "*** Move to: "
_ACTIONS: dict[str, PatchAction] = {
    "*** Add File: ": "add",
    "*** Update File: ": "update",
    "*** Delete File: ": "delete",
}
_LINE_NUMBERS = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?")
"""Line numbers of a unified diff in a header. They are not used."""

_OPENING = ("{", "(", "[", ")", "]")
"""A line that starts so belongs to the header above it, although it is not indented more."""


class Hunk(Struct, frozen=True):
    """Lines to replace. `headers` name what contains them, outermost first. `at_end`: they end the file."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    headers: tuple[str, ...] = ()
    at_end: bool = False

    @property
    def edit(self) -> Edit:
        return Edit("".join(f"{line}\n" for line in self.old), "".join(f"{line}\n" for line in self.new))


class FilePatch(Struct, frozen=True):
    """What a patch does with one file. `content` is the text of an added file."""

    action: PatchAction
    path: str
    move_to: str = ""
    hunks: tuple[Hunk, ...] = ()
    content: str = ""


@lru_cache(maxsize=8)
def parse_patch(text: str) -> tuple[FilePatch, ...]:
    """Return the files of a patch. Raise Refusal that names the line of the patch that is wrong."""
    # The lines of the patch without a here-document around it.
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    match = re.fullmatch(r"(?:apply_patch\s+)?<<-?\s*(['\"]?)(\w+)\1\s*", lines[0])
    if match and lines[-1].strip() == match[2]:
        lines = lines[1:-1]
    return _PatchParser(lines).parse()


class _PatchParser:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def parse(self) -> tuple[FilePatch, ...]:
        if self._peek().strip() == _BEGIN:
            self._at += 1
        files: list[FilePatch] = []
        while self._peek().strip() != _END:
            if self._at >= len(self._lines):
                raise Refusal(f"The patch is incomplete: its last line must be {_END!r}.")
            files.append(self._parse_file())
        if not files:
            raise Refusal("The patch changes no file.")
        paths = [path for file in files for path in (file.path, file.move_to) if path]
        twice = next((path for at, path in enumerate(paths) if path in paths[:at]), "")
        if twice:
            raise Refusal(f"{twice} occurs twice in the patch. Put all hunks of a file below one line for it.")
        return tuple(files)

    def _peek(self) -> str:
        return self._lines[self._at] if self._at < len(self._lines) else ""

    def _parse_file(self) -> FilePatch:
        line = self._peek()
        start = next((start for start in _ACTIONS if line.startswith(start)), "")
        path = line.removeprefix(start).strip()
        if not start or not path:
            raise self._refuse("expected '*** Add File: PATH', '*** Update File: PATH' or '*** Delete File: PATH'")
        self._at += 1
        match _ACTIONS[start]:
            case "add":
                lines: list[str] = []
                while self._at < len(self._lines) and not self._peek().startswith("*** "):
                    if not self._peek().startswith("+"):
                        raise self._refuse("every line of an added file starts with +")
                    lines.append(self._peek()[1:])
                    self._at += 1
                return FilePatch("add", path, content="".join(f"{line}\n" for line in lines))
            case "delete":
                return FilePatch("delete", path)
            case "update":
                move_to = ""
                if self._peek().startswith(_MOVE):
                    move_to = self._peek().removeprefix(_MOVE).strip()
                    self._at += 1
                hunks = tuple(self._parse_hunks())
                if not hunks and not move_to:
                    raise self._refuse(f"the update of {path} has no lines")
                return FilePatch("update", path, move_to, hunks)

    def _parse_hunks(self) -> list[Hunk]:
        hunks: list[Hunk] = []
        while self._at < len(self._lines) and not self._is_next_file():
            headers: list[str] = []
            while self._peek().startswith("@@"):
                header = _LINE_NUMBERS.sub("", self._peek()[2:].lstrip(" ") if self._peek() != "@@" else "")
                headers += [header] if header.strip() else []
                self._at += 1
            old: list[str] = []
            new: list[str] = []
            start = self._at
            while self._at < len(self._lines) and not self._peek().startswith(("@@", "*** ")):
                if not self._peek().startswith("\\ No newline"):
                    self._read_line(self._peek(), old, new)
                self._at += 1
            at_end = self._peek().rstrip() == _END_OF_FILE
            if self._at == start:
                raise self._refuse("expected a line that starts with a space, + or -")
            if old == new:
                raise self._refuse("this hunk changes nothing: it has no line that starts with + or -")
            self._at += at_end
            hunks.append(Hunk(tuple(old), tuple(new), tuple(headers), at_end))
        return hunks

    def _is_next_file(self) -> bool:
        return self._peek().strip() == _END or self._peek().startswith(tuple(_ACTIONS))

    def _read_line(self, line: str, old: list[str], new: list[str]) -> None:
        sign, rest = line[:1], line[1:]
        if sign not in ("", " ", "+", "-"):
            raise self._refuse("expected a line that starts with a space, + or -")
        if sign != "+":
            old.append(rest)
        if sign != "-":
            new.append(rest)

    def _refuse(self, reason: str) -> Refusal:
        found = f" Found: {self._peek()[:100]!r}." if self._at < len(self._lines) else ""
        return Refusal(f"Line {self._at + 1} of the patch: {reason}.{found} Nothing was written.")


def apply_hunks(buffer: EditBuffer, hunks: tuple[Hunk, ...]) -> None:
    """Apply the hunks in order, each after the one before it. Raise Refusal if one fits nowhere or in two places."""
    cursor = 0
    for number, hunk in enumerate(hunks, 1):
        try:
            cursor = _apply_hunk(buffer, hunk, cursor)
        except Refusal as refusal:
            raise Refusal(f"Hunk {number} of {len(hunks)}: {refusal}") from None


def _apply_hunk(buffer: EditBuffer, hunk: Hunk, cursor: int) -> int:
    """Apply one hunk after the position `cursor`; return the position after it."""
    if hunk.old:
        return buffer.apply_at(hunk.edit, lambda spans: _choose(buffer.text, spans, hunk, cursor))
    if hunk.headers and not hunk.at_end:
        anchor = _find_last_header(buffer.text, hunk, cursor)
    elif buffer.text:
        start = buffer.text.removesuffix("\n").rfind("\n") + 1
        anchor = (start, len(buffer.text))
    else:
        buffer.text = hunk.edit.new
        return len(buffer.text)
    line = buffer.text[slice(*anchor)]
    ended = line if line.endswith("\n") else f"{line}\n"
    return buffer.apply_at(Edit(ended, ended + hunk.edit.new), lambda spans: anchor)


def _choose(text: str, spans: list[Span], hunk: Hunk, cursor: int) -> Span:
    """Return the only place of a hunk."""
    places = [span for span in spans if span[0] >= cursor]
    if not places:
        after = get_line_number(text, cursor)
        raise Refusal(f"its lines were found only above line {after}. The hunks of a file must be in its order.")
    if hunk.at_end:
        places = [span for span in places if span[1] == len(text)]
        if not places:
            raise Refusal(f"its lines are not at the end of the file, although it says {_END_OF_FILE!r}.")
    if hunk.headers:
        # The places inside what the headers name; if there are none, those after the last header.
        inside = [span for span in places if _is_inside(text, span[0], hunk.headers)]
        if inside:
            places = inside
        else:
            _, end = _find_last_header(text, hunk, cursor)
            below = [span for span in places if span[0] >= end]
            if not below:
                raise Refusal(f"its lines were not found below {hunk.headers[-1].strip()!r}.")
            places = below
    if len(places) > 1:
        raise Refusal(
            f"the place is not clear: it {describe_places(text, places)} Add unchanged lines, or a line '@@ ' with "
            "the function or class that contains them."
        )
    return places[0]


def _is_inside(text: str, position: int, headers: tuple[str, ...]) -> bool:
    """True if the position is in the block of each header, the innermost last. A header may be the line itself."""
    remaining = [header.strip() for header in headers]
    first = next((line for line in text[position:].splitlines() if line.strip()), "")
    if first.strip() == remaining[-1]:
        remaining.pop()
    limit = _count_indent(first)
    for line in reversed(text[:position].split("\n")[:-1]):
        if not remaining:
            break
        if not line.strip() or line.strip().startswith(_OPENING):
            continue
        indent = _count_indent(line)
        if indent >= limit:
            continue
        limit = indent
        if line.strip() == remaining[-1]:
            remaining.pop()
    return not remaining


def _count_indent(line: str) -> int:
    line = line.expandtabs(8)
    return len(line) - len(line.lstrip())


def _find_last_header(text: str, hunk: Hunk, cursor: int) -> Span:
    """Return the line of the innermost header. Raise Refusal if there is none or more than one."""
    start = cursor
    span = (cursor, cursor)
    for header in hunk.headers:
        # The lines after `start` that are equal to the header except for surrounding spaces.
        pattern = re.compile(rf"^[^\S\n]*{re.escape(header.strip())}[^\S\n]*(?:\n|\Z)", re.MULTILINE)
        found = [match.span() for match in pattern.finditer(text, start)]
        if not found:
            raise Refusal(f"the line {header.strip()!r} was not found.")
        if len(found) > 1:
            raise Refusal(f"{header.strip()!r} {describe_places(text, found)} Add unchanged lines around the change.")
        span = found[0]
        start = span[1]
    return span
