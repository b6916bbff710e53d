"""Exact text replacement, tolerant only of line endings, with helpful refusals when the old text is not found.

Everything outside the replaced lines keeps its bytes: lines that the old and the new text share keep their own endings,
and new lines get the line ending used at that place.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import accumulate

from msgspec import Struct

from odin.tools.diff import split_lines
from odin.tools.files import Refusal, number_lines

_MAX_OLD_LINES = 60
_MAX_LINE_CHARS = 400

_MAX_COMMON = 50
"""A line or word that occurs more often than this is not used to locate a block."""
_MAX_SCANNED_CHARS = 2_000_000
_MAX_CHECKED = 8
_MIN_SIMILARITY = 0.5

_WORD = re.compile(r"\w{2,}")
_NUMBERED = re.compile(r"^ *(\d+)(?:\t|[:|] ?| )(.*)$")
"""A line as Read shows it, or as models copy it from there."""

Span = tuple[int, int]
_MIN_CERTAIN_CHARS = 4
_MAX_EXACT_SPANS = 1000
_MAX_OCCURRENCES = 4
_CONTEXT_CHARS = 160
_MAX_UNSEEN = 200
_MAX_READS = 5


class SimilarBlock(Struct, frozen=True):
    """A block of lines starting at line `first` (from 1). `is_same_but_spacing`: it differs only in whitespace."""

    first: int
    lines: list[str]
    is_same_but_spacing: bool


def find_nearest(text: str, old: str) -> SimilarBlock | None:
    """Return the block of `text` most similar to `old`, or None if nothing is similar. Takes bounded time."""
    old_lines = [line.strip()[:_MAX_LINE_CHARS] for line in old.split("\n")[:_MAX_OLD_LINES]]
    blank_lines = next((number for number, line in enumerate(old_lines) if line), len(old_lines))
    old_lines = old_lines[blank_lines:]
    while old_lines and not old_lines[-1]:
        old_lines.pop()
    if not old_lines:
        return None
    lines = text[:_MAX_SCANNED_CHARS].removesuffix("\n").split("\n")
    file_lines = [line.strip()[:_MAX_LINE_CHARS] for line in lines]
    starts = _rank_by_lines(file_lines, old_lines) or _rank_by_words(file_lines, old_lines)
    if not starts:
        return None
    similarity, start = max(
        (_score_similarity(file_lines, start, old_lines), -start) for start in starts[:_MAX_CHECKED]
    )
    start = -start
    if similarity < _MIN_SIMILARITY:
        return None
    first = max(0, start - blank_lines)
    block = file_lines[start : start + len(old_lines)]
    return SimilarBlock(
        first + 1,
        lines[first : start + len(old_lines) + 1],
        [_strip_spaces(line) for line in block] == _strip_all_spaces(old_lines),
    )


def _rank_by_lines(file_lines: list[str], old_lines: list[str]) -> list[int]:
    """Return possible starts of the block, best first, checked by lines that are equal except for surrounding
    spaces."""
    occurrences: defaultdict[str, list[int]] = defaultdict(list)
    distinct = {line for line in old_lines if line}
    for number, line in enumerate(file_lines):
        if line in distinct:
            occurrences[line].append(number)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(old_lines):
        if 0 < len(occurrences.get(line, ())) <= _MAX_COMMON:
            for number in occurrences[line]:
                votes[max(0, number - offset)] += 1 + min(len(line), 40)
    return [start for start, _ in votes.most_common(_MAX_CHECKED)]


def _rank_by_words(file_lines: list[str], old_lines: list[str]) -> list[int]:
    """Return possible starts of the block, best first, checked by common words; rare words weigh more."""
    offsets: dict[str, int] = {}
    for offset, line in enumerate(old_lines):
        for word in _WORD.findall(line):
            offsets.setdefault(word, offset)
    occurrences: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(file_lines):
        for word in set(_WORD.findall(line)) & offsets.keys():
            occurrences[word].append(number)
    votes: Counter[int] = Counter()
    for word, numbers in occurrences.items():
        for number in numbers[: _MAX_COMMON * 4]:
            votes[max(0, number - offsets[word])] += max(1, _MAX_COMMON // len(numbers))
    return [start for start, _ in votes.most_common(_MAX_CHECKED)]


def _score_similarity(file_lines: list[str], start: int, old_lines: list[str]) -> float:
    from difflib import SequenceMatcher

    block = file_lines[start : start + len(old_lines)]
    total = sum(len(line) + 1 for line in old_lines)
    score = 0.0
    for line, other in zip(old_lines, block, strict=False):
        ratio = 1.0 if line == other else SequenceMatcher(None, line, other, autojunk=False).ratio()
        score += ratio * (len(line) + 1)
    return score / total


def _strip_spaces(line: str) -> str:
    return "".join(line.split())


def _strip_all_spaces(lines: list[str]) -> list[str]:
    return [_strip_spaces(line) for line in lines]


def measure_common_prefix(text: str, old: str) -> int:
    """Return the length of the longest prefix of `old` that occurs in `text`."""
    low, high = 0, min(len(old), 4000)
    while low < high:
        middle = (low + high + 1) // 2
        if old[:middle] in text:
            low = middle
        else:
            high = middle - 1
    return low


class Edit(Struct, frozen=True):
    old: str
    new: str
    replace_all: bool = False


class Occurrences(Struct, frozen=True):
    """Where the old text occurs. `loose`: only line endings differ; `unended`: the file lacks the final newline."""

    spans: list[Span]
    loose: bool = False
    unended: bool = False


class EditBuffer:
    """A text being edited. `unseen` are line ranges the model has not read, which edits may not touch.

    `is_encoding_unknown`: a byte that looks like an ASCII letter may be half of a character.
    """

    def __init__(
        self, text: str, unseen: list[tuple[int, int]] | None = None, *, is_encoding_unknown: bool = False
    ) -> None:
        self.text = text
        self._unseen_spans = _to_char_spans(text, unseen or [])
        self._unseen_first_lines = [first for first, _ in unseen or []]
        self._is_encoding_unknown = is_encoding_unknown

    def apply(self, edit: Edit) -> int:
        """Apply one edit and return the number of replacements. Raise Refusal if it is ambiguous."""
        if not edit.old:
            raise Refusal("old_string is empty. Use WriteFile to create or overwrite a file.")
        if edit.old == edit.new:
            raise Refusal("old_string and new_string are identical; there is nothing to change.")
        occurrences = locate(self.text, edit.old)
        if not occurrences.spans and (plain := drop_line_numbers(edit, self.text)) is not None:
            edit, occurrences = plain, locate(self.text, plain.old)
        if not occurrences.spans:
            raise Refusal(f"old_string was not found.{_suggest_match(self.text, edit.old)}")
        if not edit.replace_all and (len(occurrences.spans) > 1 or _is_repeated(self.text, occurrences.spans[0])):
            raise Refusal(_describe_ambiguity(self.text, _add_overlapping(self.text, occurrences.spans)))
        self._check_seen(occurrences.spans)
        self._check_whole(occurrences.spans, edit.old)
        fitted = self._fit_replacements(edit, occurrences)
        self._splice(occurrences.spans, fitted)
        return len(fitted)

    def apply_at(self, edit: Edit, choose: Callable[[list[Span]], Span]) -> int:
        """Replace whole lines at the match that `choose` picks; return the position after the new lines.

        `edit.old` ends with a newline; the last line of the file may lack it.
        """
        padded = self.text if self.text.endswith("\n") else f"{self.text}\n"
        occurrences = locate(padded, edit.old)
        spans = [
            (start, min(end, len(self.text)))
            for start, end in _add_overlapping(padded, occurrences.spans)
            if start == 0 or padded[start - 1] == "\n"
        ]
        if not spans:
            raise Refusal(f"its lines were not found.{_suggest_match(self.text, edit.old)}")
        span = choose(spans)
        self._check_seen([span])
        self._check_whole([span], edit.old)
        unended = span[1] == len(self.text) < len(padded)
        match = Occurrences([span], loose=occurrences.loose or unended, unended=unended)
        fitted = self._fit_replacements(edit, match)
        self._splice(match.spans, fitted)
        return span[0] + len(fitted[0])

    def _fit_replacements(self, edit: Edit, occurrences: Occurrences) -> list[str]:
        """Return the new text for each match, adapted to the line endings of a file with carriage returns."""
        if "\r" not in self.text and not occurrences.loose:
            return [edit.new] * len(occurrences.spans)
        fragments = [self.text[start:end] for start, end in occurrences.spans]
        endings = [_detect_line_ending(self.text, span) for span in occurrences.spans]
        fitted = [
            _fit_line_endings(fragment, edit, occurrences, ending)
            for fragment, ending in zip(fragments, endings, strict=True)
        ]
        if fitted == fragments:
            raise Refusal("The edit would change nothing: only line endings differ, and those are kept.")
        return fitted

    def _check_seen(self, spans: list[Span]) -> None:
        """Raise Refusal if a match lies in unseen lines. Line numbers are those of the file, before earlier edits."""
        missing = _merge_ranges(self._find_unseen_lines(spans))
        if missing:
            ranges = " and ".join(f"{first}-{last}" for first, last in missing)
            calls = ", then ".join(f"offset={first} and limit={last - first + 1}" for first, last in missing)
            raise Refusal(
                f"Must read lines {ranges} first: you have not seen the part of the file to change. "
                f"Read it with {calls}, then repeat the edit."
            )

    def _find_unseen_lines(self, spans: list[Span]) -> list[Span]:
        ranges: list[Span] = []
        for start, end in spans:
            for (unseen_start, unseen_end), line in zip(self._unseen_spans, self._unseen_first_lines, strict=True):
                if start < unseen_end and unseen_start < end:
                    first = line + self.text.count("\n", unseen_start, max(start, unseen_start))
                    last = line + self.text.count("\n", unseen_start, min(end, unseen_end) - 1)
                    ranges.append((first, last))
            if len(ranges) > _MAX_UNSEEN:
                break
        return ranges

    def _check_whole(self, spans: list[Span], old: str) -> None:
        """Raise Refusal if a short match may start inside a two-byte character of an unknown encoding."""
        for start, _ in spans if self._is_encoding_unknown and len(old) < _MIN_CERTAIN_CHARS else ():
            if start and "\udc80" <= self.text[start - 1] <= "\udcff" and _is_half_character(self.text, start):
                raise Refusal(
                    f"The match on line {get_line_number(self.text, start)} begins right after a byte of "
                    "unknown encoding, and may be the second half of a character. Use a longer old_string."
                )

    def _splice(self, spans: list[Span], fitted: list[str]) -> None:
        out: list[str] = []
        at = 0
        for (start, end), fragment in zip(spans, fitted, strict=True):
            out += (self.text[at:start], fragment)
            at = end
        out.append(self.text[at:])
        self.text = "".join(out)
        self._unseen_spans = [
            (first + _compute_shift(spans, fitted, first), last + _compute_shift(spans, fitted, last))
            for first, last in self._unseen_spans
        ]


def drop_line_numbers(edit: Edit, text: str) -> Edit | None:
    """Return the edit without the line numbers that the model copied from Read; None if it copied none.

    They count only if every line of the old text is the line of the file that has this number.
    """
    found = [_NUMBERED.match(line) for line in edit.old.rstrip("\n").split("\n")]
    numbered = [(int(match[1]), match[2]) for match in found if match]
    lines = text.split("\n")
    if len(numbered) < len(found) or not all(0 < number <= len(lines) for number, _ in numbered):
        return None
    old = [lines[number - 1].removesuffix("\r") for number, _ in numbered]
    if [line.strip() for line in old] != [line.strip() for _, line in numbered]:
        return None
    tail = "\n" if edit.old.endswith("\n") else ""
    return Edit("\n".join(old) + tail, _strip_numbers(edit.new), edit.replace_all)


def _strip_numbers(text: str) -> str:
    """Return the text without numbers at the start of its lines, if all its lines have them."""
    lines = text.split("\n")
    found = [_NUMBERED.match(line) if line.strip() else None for line in lines]
    if any(match is None and line.strip() for match, line in zip(found, lines, strict=True)):
        return text
    return "\n".join(match[2] if match else line for match, line in zip(found, lines, strict=True))


def locate(text: str, old: str) -> Occurrences:
    """Find `old` in `text`. LF in `old` also matches CRLF, because Read does not show carriage returns."""
    spans = _find_all(text, old)
    if "\n" in old and ("\r" in text or "\r" in old) and not (spans and "\r" in old):
        loose = _find_ignoring_crlf(text, old) or ([] if spans else _find_with_lone_returns(text, old))
        if len(loose) > len(spans):
            return Occurrences(loose, loose=True)
    if spans:
        return Occurrences([_extend_over_return(text, span) for span in spans] if "\r" not in old else spans)
    body = old[:-1].removesuffix("\r") if old.endswith("\n") else ""
    if body and text.endswith(body) and len(locate(text, body).spans) == 1:
        return Occurrences(locate(text, body).spans, loose=True, unended=True)
    return Occurrences([])


def _is_repeated(text: str, span: Span) -> bool:
    """True if the text at this span occurs again, overlapping itself, so that the match is not unique."""
    start, end = span
    return text.find(text[start:end], start + 1, 2 * end - start) >= 0


def _add_overlapping(text: str, spans: list[Span]) -> list[Span]:
    """Return the spans and the matches that overlap them; with very many spans, just the spans."""
    if len(spans) > _MAX_EXACT_SPANS:
        return spans
    overlapping: list[Span] = []
    for start, end in spans:
        at = start
        while 0 <= at < end:
            overlapping.append((at, at + end - start))
            at = text.find(text[start:end], at + 1, 2 * end - start)
    return overlapping


def _find_all(text: str, old: str) -> list[Span]:
    spans: list[Span] = []
    at = text.find(old)
    while at >= 0:
        spans.append((at, at + len(old)))
        at = text.find(old, at + len(old))
    return spans


def _find_ignoring_crlf(text: str, old: str) -> list[Span]:
    """Find `old` with CRLF and LF treated as equal: search the normalized text, then map positions back by lines."""
    plain = text.replace("\r\n", "\n")
    spans = _find_all(plain, old.replace("\r\n", "\n"))
    if not spans or len(plain) == len(text):
        return spans
    starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]

    def to_original(position: int) -> int:
        return starts[plain.count("\n", 0, position)] + position - (plain.rfind("\n", 0, position) + 1)

    return [(to_original(start), to_original(end)) for start, end in spans]


def _find_with_lone_returns(text: str, old: str) -> list[Span]:
    if not re.search(r"\r(?!\n)", text):
        return []
    lines = [re.escape(line) for line in old.replace("\r\n", "\n").split("\n")]
    return [match.span() for match in re.finditer(r"(?:\r\n?|\n)".join(lines), text)]


def _extend_over_return(text: str, span: Span) -> Span:
    """Extend a match that starts with LF over the CR before it, which belongs to the same line end."""
    start, end = span
    return (start - 1, end) if start and text[start] == "\n" and text[start - 1] == "\r" else span


def _fit_line_endings(fragment: str, edit: Edit, occurrences: Occurrences, ending: str) -> str:
    """Return the new text for one match, with the line endings used there."""
    if not occurrences.loose and ("\r" in edit.old or "\r" in edit.new):
        return edit.new
    old, new = split_lines(edit.old.replace("\r\n", "\n")), split_lines(edit.new.replace("\r\n", "\n"))
    if occurrences.unended:
        old[-1] = old[-1].removesuffix("\n")
        new[-1:] = [new[-1].removesuffix("\n")] if new else []
    actual = re.findall(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+", fragment) if "\r" in fragment else split_lines(fragment)
    shorter = min(len(old), len(new)) if len(actual) == len(old) else 0
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    middle = "".join(new[head : len(new) - tail]).replace("\n", ending)
    return "".join(actual[:head]) + middle + "".join(actual[len(actual) - tail :] if tail else [])


def _detect_line_ending(text: str, span: Span) -> str:
    """Return the line ending used at this span: inside, after or before it."""
    start, end = span
    at = text.find("\n", start)
    if at < 0:
        at = text.rfind("\n", 0, end)
    if at < 0:
        return "\r" if "\r" in text else "\n"
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _merge_ranges(ranges: list[Span]) -> list[Span]:
    """Merge adjacent ranges, and all of them if there are too many to read one by one."""
    joined: list[Span] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined if len(joined) <= _MAX_READS else [(joined[0][0], joined[-1][1])]


def _compute_shift(spans: list[Span], fitted: list[str], position: int) -> int:
    return sum(
        len(fragment) - (end - start) for (start, end), fragment in zip(spans, fitted, strict=True) if end <= position
    )


def _to_char_spans(text: str, lines: list[tuple[int, int]]) -> list[Span]:
    """Convert line ranges to character spans."""
    if not lines:
        return []
    starts = [0]
    for line in split_lines(text):
        starts.append(starts[-1] + len(line))
    last = len(starts) - 1
    return [(starts[min(first - 1, last)], starts[min(end, last)]) for first, end in lines]


def get_line_number(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _is_half_character(text: str, position: int) -> bool:
    from odin.tools.encoding import is_inside_character

    before = len(text[:position].encode("utf-8", "surrogateescape"))
    return is_inside_character(text.encode("utf-8", "surrogateescape"), before)


def describe_places(text: str, spans: list[Span]) -> str:
    """Return how often something occurs and on which lines, as the end of a sentence."""
    shown = ", ".join(str(get_line_number(text, start)) for start, _ in spans[:20])
    more = ", ..." if len(spans) > 20 else ""
    return f"occurs {len(spans)} times (lines {shown}{more})."


def _describe_ambiguity(text: str, spans: list[Span]) -> str:
    occurrences = "\n--\n".join(_format_occurrence(text, start) for start, _ in spans[:_MAX_OCCURRENCES])
    rest = f"\n({_MAX_OCCURRENCES} of {len(spans)} occurrences shown)" if len(spans) > _MAX_OCCURRENCES else ""
    return (
        f"old_string {describe_places(text, spans)} "
        f"Add surrounding lines to make it unique, or set replace_all. The occurrences:\n{occurrences}{rest}"
    )


def _format_occurrence(text: str, start: int) -> str:
    """Return the line of a match with its neighbors, or part of a very long line."""
    head = max(text.rfind("\n", 0, start) + 1, start - _CONTEXT_CHARS)
    above = max(text.rfind("\n", 0, max(head - 1, 0)) + 1, head - _CONTEXT_CHARS)
    end = text.find("\n", start)
    below = text.find("\n", end + 1) if end >= 0 else -1
    tail = min(below if below >= 0 else len(text), start + 2 * _CONTEXT_CHARS)
    lines = text[above:tail].removesuffix("\n").split("\n")
    return number_lines(lines, get_line_number(text, above), 3 * _CONTEXT_CHARS + 100).text


def _suggest_match(text: str, old: str) -> str:
    bare = re.sub(r"^\s*\d+\t", "", old, flags=re.MULTILINE)
    if bare != old and locate(text, bare).spans:
        return " It seems to contain the line numbers that Read shows; leave them out."
    if "\ufffd" in old:
        return " U+FFFD stands for bytes that are not UTF-8; use text without it."
    block = find_nearest(text, old)
    if block is not None:
        shown = number_lines(block.lines, block.first, 3000)
        reason = " Only the spacing differs." if block.is_same_but_spacing else ""
        cut = (
            f"\n(lines {block.first}-{shown.last} of it shown)"
            if shown.last < block.first + len(block.lines) - 1
            else ""
        )
        return f"{reason} The most similar text in the file is:\n{shown.text}{cut}"
    return (
        _describe_divergence(text, old) or " It must match the file exactly, including whitespace. Read the file again."
    )


def _describe_divergence(text: str, old: str) -> str:
    """For text in very long lines: say where it stops matching the file, and how the file continues."""
    same = measure_common_prefix(text, old)
    if same < 20:
        return ""
    at = text.find(old[:same]) + same
    return (
        f" Its first {same} characters are on line {get_line_number(text, at - same)}, but then the file continues "
        f"with {text[at : at + 60]!r} and not with {old[same : same + 60]!r}."
    )
