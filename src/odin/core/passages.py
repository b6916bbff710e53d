"""Selects the passages of a long text that match a question, by shared words."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

MAX_PASSAGE_CHARS = 2000
_STOP_WORDS = (
    " the and for with from this that are was were has have had will can does did not what when where which who why "
    "page site web tell give show list find please about into its any all there their your you out use used using it "
    "is of to in on an or be do me how work works "
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ers", "er", "ed", "es", "s", "e", "y")


class Passage(Struct, frozen=True):
    """A paragraph, list, table or code block, and the heading above it."""

    heading: str
    text: str


def passages_of(text: str) -> list[Passage]:
    """Return the passages of a Markdown text, none longer than `LONGEST`. A fenced block stays whole if it fits."""
    found: list[Passage] = []
    heading, block, fenced = "", list[str](), False
    for line in [*text.splitlines(), ""]:
        if line.startswith("```"):
            fenced = not fenced
        if fenced or (line.strip() and not re.match(r"#{1,6} ", line)):
            block.append(line)
            continue
        found.extend(Passage(heading, piece) for piece in _split_block(block))
        block = []
        heading = line.strip() or heading
    found.extend(Passage(heading, piece) for piece in _split_block(block))
    return found


def _split_block(lines: Sequence[str]) -> Iterable[str]:
    """Yield the lines in portions that fit, breaking lines that are too long."""
    portion: list[str] = []
    size = 0
    broken = (line[at : at + MAX_PASSAGE_CHARS] for line in lines for at in range(0, len(line) or 1, MAX_PASSAGE_CHARS))
    for line in broken:
        if portion and size + len(line) >= MAX_PASSAGE_CHARS:
            yield "\n".join(portion)
            portion, size = [], 0
        portion.append(line)
        size += len(line) + 1
    if portion:
        yield "\n".join(portion)


def words_of(text: str) -> set[str]:
    """Return the significant words, stemmed. Names with an underscore stay whole."""
    words = re.findall(r"\w+", re.sub(r"\]\([^)\s]*[^)]*\)", "]", text).casefold())
    return {_strip_ending(word) for word in words if len(word) > 1 and f" {word} " not in _STOP_WORDS}


def _strip_ending(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and "_" not in word:
            return word[: -len(ending)]
    return word


def rank_passages(passages: Sequence[Passage], question: str) -> list[int]:
    """Return the indexes of passages that share words with the question, best first. Rare words weigh more."""
    wanted = words_of(question)
    held = [words_of(passage.text) & wanted for passage in passages]
    titles = [words_of(passage.heading) & wanted for passage in passages]
    spread = Counter(word for one, other in zip(held, titles, strict=True) for word in one | other)

    def weight(words: Iterable[str]) -> float:
        return sum(1.0 / spread[word] + 0.1 for word in words)

    scores = [weight(text) + weight(title) for text, title in zip(held, titles, strict=True)]
    return sorted((at for at, score in enumerate(scores) if score > 0), key=lambda at: (-scores[at], at))


def join_passages(passages: Sequence[Passage], chosen: Iterable[int]) -> str:
    """Return the chosen passages in order, under their headings, with a mark at each gap."""
    parts: list[str] = []
    before, heading = -1, ""
    for at in sorted(chosen):
        if at != before + 1:
            parts.append("[…]")
        if passages[at].heading != heading:
            heading = passages[at].heading
            parts.append(heading)
        parts.append(passages[at].text)
        before = at
    return "\n\n".join(part for part in [*parts, "[…]" if before < len(passages) - 1 else ""] if part)


def select_fitting(passages: Sequence[Passage], order: Iterable[int], limit: int) -> list[int]:
    """Return as many passages as fit into `limit`, in the given order of preference."""
    chosen: list[int] = []
    for at in dict.fromkeys(order):
        cost = len(passages[at].text) + len(passages[at].heading) + 9
        if cost <= limit:
            chosen.append(at)
            limit -= cost
    return chosen


def extract_excerpt(text: str, question: str, limit: int) -> str:
    """Return the whole text if it fits; else its start, the matching passages, and then what follows the start."""
    if len(text) <= limit:
        return text
    passages = passages_of(text)
    everything = range(len(passages))
    beginning = select_fitting(passages, everything, limit // 5)
    chosen = select_fitting(passages, (*beginning, *rank_passages(passages, question), *everything), limit)
    return join_passages(passages, chosen)
