"""Express a change of one file as the tool calls that a model would make.

The form varies at random (exact or plain line ends, much or little context, part of a line, one call or several), so
that a history covers every form. A change that tool calls cannot express raises `Unsayable` with the reason.
"""

from difflib import SequenceMatcher
from random import Random
from typing import Any, NamedTuple

from odin.tools.files import DecodedText, decode

LARGEST = 4_000_000
_COMPARED = 6000
_MOST_HUNKS = 120
_WIDEST = 400

NOT_UTF8 = "bytes that are not UTF-8 in what changes"
BINARY = "binary"
REDACTED = "a mark that stands for a secret, which no tool writes into a new file"
LARGE = f"over {LARGEST // 1_000_000} MB"

Lines = tuple[int, int]


class Unsayable(Exception):
    """The change cannot be expressed in JSON text. The message is the reason, which the tally counts."""


class Call(NamedTuple):
    name: str
    args: dict[str, Any]


class Phrased(NamedTuple):
    """The calls, and the lines of the old file (from 1) that must be read first, or None."""

    calls: list[Call]
    reads: list[Lines] | None


class _Hunk(NamedTuple):
    """Lines i1 to i2 of the old file become lines j1 to j2 of the new one."""

    i1: int
    i2: int
    j1: int
    j2: int


class _Said(NamedTuple):
    old: str
    new: str
    first: int
    last: int


def created(path: str, after: bytes, *, patches: bool = False) -> Phrased:
    if patches and b"\r" not in after and (not after or after.endswith(b"\n")):
        lines = _as_content(after).split("\n")[:-1]
        return Phrased([_patch(f"*** Add File: {path}", *(f"+{line}" for line in lines))], None)
    return Phrased([Call("WriteFile", {"file_path": path, "content": _as_content(after)})], None)


def deleted(paths: list[str]) -> Call:
    return _patch(*(f"*** Delete File: {path}" for path in paths))


def _patch(*lines: str) -> Call:
    return Call("apply_patch", {"input": "\n".join(["*** Begin Patch", *lines, "*** End Patch"])})


def modified(path: str, before: bytes, after: bytes, chance: Random, *, patches: bool = False) -> Phrased:
    if max(len(before), len(after)) > LARGEST:
        raise Unsayable(LARGE)
    old = decode(before)
    if old is None or not before:
        return created(path, after)
    new = _encode_like(old, after)
    if new is None:
        return _anew(path, after)
    phrasing = _Phrasing(path, old, new, after, chance)
    return (phrasing.phrase_as_patch() if patches else None) or phrasing.phrase()


def _as_content(after: bytes) -> str:
    if len(after) > LARGEST:
        raise Unsayable(LARGE)
    if b"\0" in after[:8192]:
        raise Unsayable(BINARY)
    if b"[redacted: " in after:
        raise Unsayable(REDACTED)
    try:
        return after.decode("utf-8")
    except UnicodeDecodeError:
        raise Unsayable(NOT_UTF8) from None


def _anew(path: str, after: bytes) -> Phrased:
    """Delete and recreate the file, because its encoding or byte order mark changes."""
    content = _as_content(after)
    gone = Call("Delete", {"paths": [path], "reason": "its encoding changes"})
    return Phrased([gone, Call("WriteFile", {"file_path": path, "content": content})], None)


def _encode_like(old: DecodedText, after: bytes) -> str | None:
    """Return the new text, or None if the old file's encoding cannot represent it.

    This does not use the code under test, so that a bug there cannot hide a change.
    """
    if not after.startswith(old.bom) or (not old.is_wide and b"\0" in after[:8192]):
        return None
    body = after[len(old.bom) :]
    try:
        text = body.decode(old.codec, _errors(old))
    except UnicodeDecodeError:
        return None
    return text if old.bom + text.encode(old.codec, _errors(old)) == after else None


def _errors(old: DecodedText) -> str:
    return "surrogateescape" if old.codec == "utf-8" else "surrogatepass" if old.is_wide else "strict"


def _sayable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _hunks(a: list[str], b: list[str]) -> list[_Hunk]:
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    x, y = a[head : len(a) - tail], b[head : len(b) - tail]
    if len(x) + len(y) > _COMPARED:
        return [_Hunk(head, len(a) - tail, head, len(b) - tail)]
    codes = (
        SequenceMatcher(None, x, y, autojunk=False).get_opcodes() if x and y else [("replace", 0, len(x), 0, len(y))]
    )
    return [_Hunk(head + op[1], head + op[2], head + op[3], head + op[4]) for op in codes if op[0] != "equal"]


class _Phrasing:
    def __init__(self, path: str, old: DecodedText, new: str, after: bytes, chance: Random) -> None:
        self._path = path
        self._old = old
        self._text = new
        self._after = after
        self._chance = chance
        self._a, self._b = _lines(old.text), _lines(new)
        self._found = _hunks(self._a, self._b)

    def phrase(self) -> Phrased:
        changed = sum(hunk.j2 - hunk.j1 for hunk in self._found)
        rewrite = len(self._found) > _MOST_HUNKS or changed > 0.8 * len(self._b) or self._chance.random() < 0.04
        whole = self._whole() if rewrite else None
        found = whole or self._everywhere() or self._by_hunks() or self._whole()
        return found or _anew(self._path, self._after)

    # --- a patch ---

    def phrase_as_patch(self) -> Phrased | None:
        """Say all hunks in one patch. Return None if a patch cannot: for mixed line ends or another final line end."""
        texts = (self._old.text, self._text)
        if any("\r" in text.replace("\r\n", "") or text.count("\r\n") not in (0, text.count("\n")) for text in texts):
            return None
        if len({(text.endswith("\n"), "\r" in text) for text in texts}) > 1 or not all(texts):
            return None
        a, b = ([line.rstrip("\r\n") for line in lines] for lines in (self._a, self._b))
        said: list[str] = []
        reads: list[Lines] = []
        cursor = 0
        following = [hunk.i1 for hunk in self._found[1:]] + [len(a)]
        for hunk, next_change in zip(self._found, following, strict=True):
            current = b[: hunk.j1] + a[hunk.i1 :]
            end = hunk.j1 + hunk.i2 - hunk.i1
            limit = end + next_change - hunk.i2
            up = down = self._chance.choice((0, 1, 2, 3)) or (hunk.i1 == hunk.i2)
            while True:
                low, high = max(cursor, hunk.j1 - up), min(limit, end + down)
                if low < high and _count_blocks(current, current[low:high], cursor) == 1:
                    break
                if low == cursor and high == limit:
                    return None
                up, down = up + 1 + up // 2, down + 1 + down // 2
            lead, trail = current[low : hunk.j1], current[end:high]
            removed, added = current[hunk.j1 : end], b[hunk.j1 : hunk.j2]
            said += ["@@", *(f" {line}" for line in lead), *(f"-{line}" for line in removed)]
            said += [*(f"+{line}" for line in added), *(f" {line}" for line in trail)]
            cursor = hunk.j2 + len(trail)
            reads.append((max(1, hunk.i1 + 1 - len(lead)), hunk.i2 + len(trail)))
        if not self._fits("\n".join(said), "\n".join(said)):
            return None
        return Phrased([_patch(f"*** Update File: {self._path}", *said)], reads)

    # --- the whole file ---

    def _whole(self) -> Phrased | None:
        """Use WriteFile if the style that it keeps from the old file is the wanted one."""
        for content in self._chance.sample([self._text, self._text.replace("\r\n", "\n")], 2):
            if _sayable(content) and (self._old.valid or content.isascii()) and self._kept_style(content) == self._text:
                return Phrased([Call("WriteFile", {"file_path": self._path, "content": content})], None)
        return None

    def _kept_style(self, content: str) -> str:
        text = self._old.text
        if "\r" not in content and 0 < text.count("\n") == text.count("\r\n"):
            return content.replace("\n", "\r\n")
        return content if not (self._old.bom and content.startswith("\ufeff")) else content[1:]

    # --- one text everywhere ---

    def _everywhere(self) -> Phrased | None:
        """Use replace_all if one word was replaced everywhere."""
        if len(self._found) < 2 or any(hunk.i2 - hunk.i1 != hunk.j2 - hunk.j1 for hunk in self._found):
            return None
        first = self._found[0]
        pair = _smallest(self._a[first.i1], self._b[first.j1])
        if pair is None:
            return None
        start, end, new_end = pair
        line, other = self._a[first.i1], self._b[first.j1]
        while start and line[start - 1].isalnum():
            start -= 1
        while end < len(line) and line[end].isalnum():
            end, new_end = end + 1, new_end + 1
        old, new = line[start:end], other[start:new_end]
        if not old.strip() or not self._fits(old, new) or self._old.text.replace(old, new) != self._text:
            return None
        args = {"file_path": self._path, "old_string": old, "new_string": new, "replace_all": True}
        return Phrased([Call("EditTool", args)], [(hunk.i1 + 1, hunk.i2) for hunk in self._found])

    # --- hunk by hunk ---

    def _by_hunks(self) -> Phrased | None:
        said: list[_Said] = []
        same = {j: i for i, j in _same_lines(self._found, len(self._a), len(self._b))}
        for hunk in self._found:
            current = self._b[: hunk.j1] + self._a[hunk.i1 :]
            one = self._say(hunk, current, same)
            if one is None:
                return None
            said.append(one)
        edits = [{"old_string": one.old, "new_string": one.new} for one in said]
        reads = [(one.first, one.last) for one in said if one.last >= one.first]
        marked = self._old.codec == "utf-8" or self._old.is_wide
        together = len(edits) > 1 and (not marked or self._chance.random() < 0.7)
        if together or (len(edits) == 1 and self._chance.random() < 0.1):
            return Phrased([Call("MultiEditTool", {"file_path": self._path, "edits": edits})], reads)
        return Phrased([Call("EditTool", {"file_path": self._path, **edit}) for edit in edits], reads)

    def _say(self, hunk: _Hunk, current: list[str], same: dict[int, int]) -> _Said | None:
        text = "".join(current)
        inside = self._inside_line(hunk, text) if self._chance.random() < 0.4 else None
        if inside is not None:
            return _Said(*inside, hunk.i1 + 1, hunk.i2)
        end = hunk.j1 + hunk.i2 - hunk.i1
        up = down = self._chance.choice((0, 1, 2, 3))
        while True:
            low, high = max(0, hunk.j1 - up), min(len(current), end + down)
            lead, trail = current[low : hunk.j1], current[end:high]
            old = "".join([*lead, *current[hunk.j1 : end], *trail])
            new = "".join([*lead, *self._b[hunk.j1 : hunk.j2], *trail])
            pair = self._worded(old, new, text, len("".join(current[:low])))
            if pair is not None:
                rows = [
                    same[row] if row < hunk.j1 else hunk.i1 + row - hunk.j1
                    for row in range(low, high)
                    if row >= hunk.j1 or row in same
                ]
                return _Said(*pair, min(rows, default=0) + 1, max(rows, default=-1) + 1)
            if (low == 0 and high == len(current)) or up > _WIDEST or not _sayable(old):
                return None
            up, down = up + 1 + up // 2, down + 1 + down // 2

    def _worded(self, old: str, new: str, text: str, at: int) -> tuple[str, str] | None:
        """Return the two strings for EditTool, or None if they would not make exactly this change."""
        plain = (old.replace("\r\n", "\n"), new.replace("\r\n", "\n"))
        if self._chance.random() < 0.5 and plain != (old, new) and self._plain_enough(old, new, plain, text):
            return plain
        if not old or not self._fits(old, new) or not _only_one(text, old):
            return None
        if "\r" in text and "\r" not in old + new and "\n" in new and _end_at(text, at) != "\n":
            return None
        ends_unended = at + len(old) == len(text) and not (old + new).endswith("\n") and new
        if ends_unended and "\r" not in text and self._chance.random() < 0.3 and f"{old}\n" not in text:
            return f"{old}\n", f"{new}\n"
        return old, new

    def _plain_enough(self, old: str, new: str, plain: tuple[str, str], text: str) -> bool:
        """True if plain line feeds, as Read shows them, are equivalent: all line ends are CRLF before and after."""
        crlf = all(part.count("\n") == part.count("\r\n") == part.count("\r") for part in (old, new))
        unique = _once(text.replace("\r\n", "\n"), plain[0]) and plain[0] not in text
        return crlf and unique and plain[0] != plain[1] and "\n" in plain[0] and self._fits(*plain)

    def _inside_line(self, hunk: _Hunk, text: str) -> tuple[str, str] | None:
        """Edit only the part of one line that differs, with a little context."""
        if hunk.i2 - hunk.i1 != 1 or hunk.j2 - hunk.j1 != 1:
            return None
        line, other = self._a[hunk.i1], self._b[hunk.j1]
        pair = _smallest(line, other)
        if pair is None:
            return None
        start, end, new_end = pair
        for _ in range(12):
            old, new = line[start:end], other[start:new_end]
            free = not start or not "\udc80" <= line[start - 1] <= "\udcff"
            if old and free and _once(text, old) and self._fits(old, new):
                return (old, new) if not ("\r" in old + new and "\n" in text) else None
            grown = self._chance.randint(1, 8)
            start = max(0, start - grown)
            limit = len(line.rstrip("\r\n")) - end
            end, new_end = end + min(grown, limit), new_end + min(grown, limit)
        return None

    def _fits(self, old: str, new: str) -> bool:
        return _sayable(old) and _sayable(new) and (self._old.valid or new.isascii())


def _smallest(line: str, other: str) -> tuple[int, int, int] | None:
    """Return where two lines differ (start, end in the first, end in the second).

    Return None if they are equal or differ only in the line end.
    """
    body, changed = line.rstrip("\r\n"), other.rstrip("\r\n")
    if body == changed or line[len(body) :] != other[len(changed) :]:
        return None
    start = 0
    while start < min(len(body), len(changed)) and body[start] == changed[start]:
        start += 1
    back = 0
    while back < min(len(body), len(changed)) - start and body[-1 - back] == changed[-1 - back]:
        back += 1
    return start, len(body) - back, len(changed) - back


def _count_blocks(lines: list[str], block: list[str], start: int) -> int:
    """Return how often the block occurs in the lines from `start`."""
    size = len(block)
    return sum(lines[at : at + size] == block for at in range(start, len(lines) - size + 1) if lines[at] == block[0])


def _only_one(text: str, old: str) -> bool:
    """True if the text occurs once, also with line ends normalized and with overlapping matches counted."""
    if not _once(text, old):
        return False
    return "\r" in old or "\r" not in text or _once(text.replace("\r\n", "\n"), old)


def _once(text: str, old: str) -> bool:
    at = text.find(old)
    return at >= 0 and text.find(old, at + 1) < 0


def _end_at(text: str, start: int) -> str:
    """Return the next line end after the position, else the one before it."""
    at = text.find("\n", start)
    at = at if at >= 0 else text.rfind("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _same_lines(hunks: list[_Hunk], a: int, b: int) -> list[Lines]:
    """Return pairs of line numbers (old, new) of unchanged lines."""
    pairs: list[Lines] = []
    i = j = 0
    for hunk in [*hunks, _Hunk(a, a, b, b)]:
        pairs += zip(range(i, hunk.i1), range(j, hunk.j1), strict=True)
        i, j = hunk.i2, hunk.j2
    return pairs
