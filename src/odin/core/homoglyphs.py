"""Homoglyphs: characters that look like others. Who allows `gіt` (with a Cyrillic letter) should know it is not git."""

import unicodedata

from odin.core.lazy_pattern import compile_lazily

_MAX_NAMED = 3

_HOMOGLYPHS = frozenset("аеорсухіјѕԁһӏԛԝкмтнвгпАВЕКМНОРСТХІЅЈЗαορνικυχτεωγΑΒΕΖΗΙΚΜΝΟΡΤΥΧıȷɡɑǃ")
"""Letters of other scripts that look like Latin letters."""

_WORD = compile_lazily(r"\w+")
_SIGN = compile_lazily(
    "[\u037e\u0387\u055d\u0589\u05c3\u2024\u2039\u203a\u2044"
    "\u204e\u2052-\u2053\u2212\u2215-\u2217\u2223\u2236\u223c\u223d\u2571-\u2573\u27cb\u27cd\u29f5\u29f8\u29f9\u2cf9"
    "\ua4f8\ua789\ufe50-\ufe6b\uff01-\uff5e\U0001d400-\U0001d7ff]"
)
"""Characters that look like shell or path syntax, and styled Latin alphabets."""


def describe_homoglyphs(text: str) -> str:
    """Return a warning that names the homoglyphs, or "". Words entirely in another script are fine."""
    found = dict.fromkeys(_SIGN.findall(text))
    for word in _WORD.findall(text):
        if not word.isascii() and any(char.isascii() and char.isalpha() for char in word):
            found.update((char, None) for char in word if char in _HOMOGLYPHS)
    if not found:
        return ""
    names = [
        f"{char} is {unicodedata.name(char, '').lower() or 'a letter without a name'} (U+{ord(char):04X})"
        for char in list(found)[:_MAX_NAMED]
    ]
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    return f"Warning: it contains characters that look like others: {', '.join(names)}{more}."
