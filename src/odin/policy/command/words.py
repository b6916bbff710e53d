"""Words as bash makes them out of quoted and unquoted pieces."""

import re

from odin.policy.command.shapes import ShellWord

_TILDE = re.compile(r"(?:^|[=:])~")
_HISTORY = re.compile(r"![\w!?#-]")
_BREAKING = frozenset(" \t\n\"'`;&|<>()$")


class WordBuilder:
    """A word that is being put together from its pieces."""

    def __init__(self) -> None:
        self._chars: list[str] = []
        self._bare: list[str] = []
        self.expands = False
        self._quoted = False

    def add_bare(self, text: str) -> bool:
        """Add unquoted text; False when it holds a character that would have ended the word."""
        if "\\" not in text:
            self._chars.append(text)
            self._bare.append(text)
            return _BREAKING.isdisjoint(text)
        sound = True
        at = 0
        while at < len(text):
            char = text[at]
            if char == "\\":
                following = text[at + 1 : at + 2]
                if following != "\n":
                    self.add_quoted(following)
                sound = sound and bool(following)
                at += 2
                continue
            sound = sound and char not in _BREAKING
            self._chars.append(char)
            self._bare.append(char)
            at += 1
        return sound

    def add_quoted(self, text: str) -> None:
        """Add text in which nothing has a meaning any more."""
        self._quoted = True
        self._bare.append("\0")
        if text:
            self._chars.append(text)

    def add_double_quoted(self, text: str) -> None:
        """Add literal text from between double quotes."""
        if "!" in text and _HISTORY.search(text):
            self.expands = True
        self.add_quoted(re.sub(r'\\(["$`\\])', r"\1", text.replace("\\\n", "")) if "\\" in text else text)

    def add_expansion(self, text: str) -> None:
        """Add something that the shell will replace."""
        self.expands = True
        self._bare.append("\0")
        self._chars.append(text)

    def build(self) -> ShellWord:
        text = "".join(self._chars)
        bare = "".join(self._bare)
        glob = "*" in bare or "?" in bare or ("[" in bare and "]" in bare[bare.index("[") :])
        return ShellWord(text, self.expands or _is_changed_by_shell(bare), glob, self._quoted)


def _is_changed_by_shell(bare: str) -> bool:
    """Whether unquoted text, its quoted pieces shown as NUL, is one that a shell may replace."""
    if not bare:
        return False
    if bare[0] in "=^" and len(bare) > 1 and bare not in ("==", "=~"):
        return True
    if "~" in bare and _TILDE.search(bare):
        return True
    if "{" in bare and has_brace_expansion(bare):
        return True
    return "!" in bare and _HISTORY.search(bare) is not None


def has_brace_expansion(bare: str) -> bool:
    """Whether braces in unquoted text may stand for several words: after an opening one comes a comma or two dots."""
    insides = (piece.partition("{")[2] for piece in bare.split("}"))
    return any("," in inside or ".." in inside for inside in insides)
