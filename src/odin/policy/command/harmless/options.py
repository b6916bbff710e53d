"""The options of a command taken off, one by one, against a list of those that are known.

Options are written as for getopt. Among the short ones, `n:` takes a value, `M?` may have one glued on, `f@` takes the
name of a file that is read. Among the long ones, `name=` takes a value, `name?` may have one after `=`, `name@` names a
file, and `name==` takes the next two words. A long option counts in its full spelling only.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from odin.policy.command.harmless.place import Place


class Globbed(str):
    """A word that the shell puts in place of a pattern. It may be an operand, but never the value of an option."""

    __slots__ = ()


class Taken(Struct):
    """A command line with its options taken off: which were there, with their values, and what is left."""

    options: list[tuple[str, str]]
    operands: list[str]

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    @property
    def led_by_glob(self) -> bool:
        """Whether the first operand is not certain: which of its names a pattern puts first is up to the shell."""
        return bool(self.operands) and isinstance(self.operands[0], Globbed)

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self.options if name in names]


Check = Callable[[Taken, Place], bool]
"""Judges what is left when every option is known."""


class Known(Struct, frozen=True):
    """One command that may run: its harmless options and what its operands must be.

    `number` when it takes `-5`; `values` is what every value of an option must match; `first` when what follows the
    first operand is no option any more, whatever it looks like; `apart` when it does not read a bundle as others do, so
    that an option with a value must stand alone.
    """

    check: Check
    short: str = ""
    long: str = ""
    number: bool = False
    values: str = ""
    first: bool = False
    apart: bool = False

    def accepts(self, words: Sequence[str], place: Place) -> bool:
        taken = take(self, words, place)
        return taken is not None and self.check(taken, place)


@lru_cache(maxsize=512)
def _short_options(spec: str) -> dict[str, str]:
    return dict(re.findall(r"([^:?@])([:?@]?)", spec))


@lru_cache(maxsize=512)
def _long_options(spec: str) -> dict[str, str]:
    return {name.rstrip("=?@"): name[len(name.rstrip("=?@")) :] for name in spec.split()}


def take(known: Known, words: Sequence[str], place: Place) -> Taken | None:
    """The options and operands; None when an option is not known to be harmless."""
    taken = Taken([], [])
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            taken.operands.extend(reversed(rest))
            break
        if not word.startswith("-") or word == "-":
            taken.operands.append(word)
        elif isinstance(word, Globbed) or (known.first and taken.operands) or (known.apart and _glued(word, known)):
            return None
        elif known.number and word[1:].isascii() and word[1:].isdigit():
            taken.options.append(("number", word[1:]))
        elif not (
            _long(word[2:], known, rest, taken) if word.startswith("--") else _bundle(word[1:], known, rest, taken)
        ):
            return None
    return taken if _values_fit(known, taken, place) else None


def _glued(word: str, known: Known) -> bool:
    """Whether an option that takes a value has anything but a number in the same word."""
    options = _short_options(known.short)
    valued = not word.startswith("--") and any(options.get(letter) for letter in word[1:])
    return valued and re.fullmatch(r"-.\d*", word, re.ASCII) is None


def _long(text: str, known: Known, rest: list[str], taken: Taken) -> bool:
    name, equals, value = text.partition("=")
    kind = _long_options(known.long).get(name)
    if kind is None or (equals and kind in ("", "==")):
        return False
    for _ in range(2 if kind == "==" else int(kind in ("=", "@") and not equals)):
        if not rest or isinstance(rest[-1], Globbed):
            return False
        value = rest.pop()
    taken.options.append((name, value))
    return True


def _bundle(letters: str, known: Known, rest: list[str], taken: Taken) -> bool:
    """Short options, which may stand together: `-la`, `-n5`, `-rn5`."""
    options = _short_options(known.short)
    for index, letter in enumerate(letters):
        kind = options.get(letter)
        if kind is None:
            return False
        value = letters[index + 1 :] if kind else ""
        if kind in (":", "@") and not value:
            if not rest or isinstance(rest[-1], Globbed):
                return False
            value = rest.pop()
        taken.options.append((letter, value))
        if kind:
            return True
    return bool(letters)


def _values_fit(known: Known, taken: Taken, place: Place) -> bool:
    for name, value in taken.options:
        if known.values and value and re.fullmatch(known.values, value) is None:
            return False
        kind = (_short_options(known.short) if len(name) == 1 else _long_options(known.long)).get(name, "")
        if kind == "@" and not place.shows(value):
            return False
    return True


# --- what operands may be ---


def nothing(taken: Taken, place: Place) -> bool:
    return not taken.operands


def anything(taken: Taken, place: Place) -> bool:
    return True


def names(taken: Taken, place: Place) -> bool:
    return all("/" not in word for word in taken.operands)


def held(taken: Taken, place: Place) -> bool:
    """Paths of which only the outside is shown: names, sizes, dates."""
    return all(place.holds(word) for word in taken.operands)


def shown(taken: Taken, place: Place) -> bool:
    """Files whose content is shown."""
    return all(place.shows(word) for word in taken.operands)


def one_shown(taken: Taken, place: Place) -> bool:
    """`uniq IN OUT` and its kin write their second operand."""
    return len(taken.operands) <= 1 and shown(taken, place)
