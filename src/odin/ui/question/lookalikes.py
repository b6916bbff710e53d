"""Letters that pass for others: a person who allows `gіt` should know that it is not git."""

import re

_MAX_NAMED = 3
_HOMOGLYPHS = dict.fromkeys("аеорсухіјѕԁһӏԛԝкмтнвгпАВЕКМНОРСТХІЅЈЗαορνικυχτεωγΑΒΕΖΗΙΚΜΝΟΡΤΥΧıȷɡɑǃ", True)
"""Of the scripts beside the Latin one: what has the shape of a Latin letter."""

_WORD_PATTERN = re.compile(r"\w+")
_HOMOGLYPH_SIGN = re.compile(
    "[\u037e\u0387\u055d\u0589\u05c3\u2024\u2039\u203a\u2044"
    "\u204e\u2052-\u2053\u2212\u2215-\u2217\u2223\u2236\u223c\u223d\u2571-\u2573\u27cb\u27cd\u29f5\u29f8\u29f9\u2cf9"
    "\ua4f8\ua789\ufe50-\ufe6b\uff01-\uff5e\U0001d400-\U0001d7ff]"
)
"""Signs that look like those of a shell or a path, and whole alphabets in the shape of the Latin one."""


def warn_of_homoglyphs(text: str) -> list[str]:
    """A warning that names them, or nothing. Words that are wholly of another script are just words."""
    if text.isascii():
        return []
    found = dict.fromkeys(sign for sign in _HOMOGLYPH_SIGN.findall(text))
    for word in _WORD_PATTERN.findall(text):
        if not word.isascii() and any(char.isascii() and char.isalpha() for char in word):
            found.update((char, None) for char in word if char in _HOMOGLYPHS)
    if not found:
        return []
    names = [_describe_character(char) for char in list(found)[:_MAX_NAMED]]
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    return [f"Look twice: it has letters or signs that look like others: {', '.join(names)}{more}."]


def _describe_character(char: str) -> str:
    import unicodedata

    name = unicodedata.name(char, "").lower() or "a letter without a name"
    return f"{char} is {name} (U+{ord(char):04X})"
