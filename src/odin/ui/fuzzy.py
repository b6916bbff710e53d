"""How well a few letters go with a text."""

EXACT_PART_SCORE = 50_000
"""From here on every word stands in the text as it is."""


def score_match(words: str, text: str) -> int:
    """0 when the letters do not occur in this order; higher the better: the whole, its beginning, a part, the letters.

    Every word has to be found; only letters count, not their case.
    """
    sought, where = words.casefold().strip(), text.casefold()
    if not sought:
        return 1
    if where == sought:
        return 1_000_000
    if where.startswith(sought):
        return 500_000 - min(len(where), 1000)
    found = [_score_word(word, where) for word in sought.split()]
    return 0 if 0 in found else min(found)


def _score_word(word: str, where: str) -> int:
    at = where.find(word)
    if at >= 0:
        begins = at == 0 or not where[at - 1].isalnum()
        return (200_000 if begins else 100_000) - min(at, 1000)
    place, first = -1, 0
    for letter in word:
        place = where.find(letter, place + 1)
        if place < 0:
            return 0
        first = first or place + 1
    spread = place + 1 - first - len(word)
    return max(1, 10_000 - 50 * spread) if spread <= 2 * len(word) else 0
