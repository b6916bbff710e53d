"""What a command would run: every simple command in it, whatever it is wrapped in.

`survey` finds them for the rules that forbid, and says when it cannot be sure that it found all. `read_only` is the
opposite question and answers yes only to what is plain, known and harmless. What lies between the two is asked.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from odin.policy.command.grammar import Redirect, Script, Simple, Unclear, Word, named, parse
from odin.policy.command.harmless import harmless, harmless_redirect, steps

SHELLS = named("sh bash dash zsh ksh mksh ash fish csh tcsh")
_OPAQUE = named("source . alias parallel enable hash complete")
_MAX_LAYERS = 12
_ASSIGNMENT = r"[A-Za-z_]\w*(\[[^\]]*\])?\+?="


class Part(Struct, frozen=True):
    """One command as words, and whether it stands in the text as such or was found inside something."""

    words: tuple[Word, ...]
    found_inside: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    @property
    def name(self) -> str:
        return self.words[0].text.rsplit("/", 1)[-1] if self.words else ""


class Survey(Struct, frozen=True):
    """`sure` when every command that would run is among the parts.

    `redirects` are those that touch a file; `writes` the ones among them that open it for writing.
    """

    parts: tuple[Part, ...]
    sure: bool
    redirects: tuple[Redirect, ...] = ()
    script: Script | None = None

    @property
    def writes(self) -> tuple[Redirect, ...]:
        return tuple(item for item in self.redirects if item.op not in ("<", "<&"))


_WRAPPERS: dict[str, tuple[str, int]] = {
    "sudo": ("ugpCrtThDRU", 0),
    "doas": ("uC", 0),
    "env": ("uC", 0),
    "nice": ("n", 0),
    "ionice": ("cnpPu", 0),
    "nohup": ("", 0),
    "setsid": ("", 0),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("a", 0),
    "time": ("fo", 0),
    "stdbuf": ("ioe", 0),
    "timeout": ("ks", 1),
    "xargs": ("adEILnPs", 0),
    "flock": ("wE", 1),
    "chroot": ("", 1),
    "taskset": ("", 1),
    "chrt": ("", 1),
    "strace": ("abeEIoOpPsSuUX", 0),
    "ltrace": ("aAeDFlnopsuwx", 0),
    "busybox": ("", 0),
    "unshare": ("", 0),
    "caffeinate": ("tw", 0),
    "function": ("", 1),
    "{": ("", 0),
}

"""Programs that run their arguments: which of their options take a value, and how many operands come first."""

_JOINED = frozenset(("eval", "watch"))


def survey(command: str) -> Survey:
    """Every command that this text would run, as far as can be told without running it."""
    try:
        script = parse(command)
    except Unclear:
        return Survey((), sure=False)
    found = _Finder()
    found.script(script)
    return Survey(tuple(found.parts), found.sure, tuple(found.redirects), script)


def split(command: str) -> list[list[str]] | None:
    """The words of every command in the text; None when it is not certain that these are all."""
    seen = survey(command)
    return [list(part.texts) for part in seen.parts] if seen.sure else None


def read_only(command: str, cwd: str, root: str) -> bool:
    """Whether the command provably only looks at what lies inside the root."""
    try:
        script = parse(command)
    except Unclear:
        return False
    placed = steps(script, cwd, root)
    return bool(placed) and all(harmless(simple, there, root) for simple, there in placed or ())


class _Finder:
    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.redirects: list[Redirect] = []
        self.sure = True
        self._layers = 0

    def script(self, script: Script) -> None:
        self._layers += 1
        if self._layers > _MAX_LAYERS:
            self.sure = False
            return
        shells = False
        for simple in script.commands:
            touching = (item for item in simple.redirects if not item.op.startswith("<<"))
            self.redirects.extend(item for item in touching if not harmless_redirect(item))
            shells |= self._simple(simple)
        if shells:
            for body in script.bodies:
                self._text(body)
        self._layers -= 1

    def _simple(self, simple: Simple) -> bool:
        """Record one command and what it wraps; True when a shell reads its script from elsewhere."""
        words = simple.words
        while words and _assigns(words[0]):
            words = words[1:]
        return self._words(words, simple.nested or len(words) < len(simple.words)) if words else False

    def _words(self, words: Sequence[Word], inside: bool) -> bool:
        part = Part(tuple(words), inside)
        self.parts.append(part)
        if not words[0].literal:
            self.sure = False
            return False
        name = part.name
        if name in SHELLS or name == "su":
            return self._shell(words[1:])
        if name in _OPAQUE:
            self.sure = False
        elif name in _JOINED:
            self._joined(_after_options(words[1:], "n" if name == "watch" else ""))
        elif name == "trap":
            self._joined(_after_options(words[1:], "")[:1])
        elif name == "find":
            self._find(words)
        elif name in _WRAPPERS:
            return self._wrapped(name, words[1:])
        return False

    def _shell(self, args: Sequence[Word]) -> bool:
        for index, word in enumerate(args):
            text = word.text
            if text == "--command" or (text.startswith("-") and not text.startswith("--") and "c" in text[1:]):
                self._joined(args[index + 1 : index + 2])
                return False
        self.sure = False
        return True

    def _joined(self, words: Sequence[Word]) -> None:
        """These words are a script in themselves."""
        if words and all(word.literal for word in words):
            self._text(" ".join(word.text for word in words))
        elif words:
            self.sure = False

    def _text(self, text: str) -> None:
        try:
            script = parse(text)
        except Unclear:
            self.sure = False
            return
        inside = (Simple(item.words, item.redirects, item.after, nested=True) for item in script.commands)
        self.script(Script(tuple(inside), plain=False, bodies=script.bodies))

    def _find(self, words: Sequence[Word]) -> None:
        for index, word in enumerate(words):
            if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
                rest = list(words[index + 1 :])
                ends = [n for n, item in enumerate(rest) if item.text in (";", "+")]
                inner = rest[: ends[0]] if ends else rest
                if inner:
                    self._words(inner, inside=True)

    def _wrapped(self, name: str, args: Sequence[Word]) -> bool:
        valued, operands = _WRAPPERS[name]
        if name == "env":
            self._env_script(args)
        rest = list(_after_options(args, valued))
        while rest and _assigns(rest[0]):
            rest = list(_after_options(rest[1:], valued))
        rest = rest[operands:]
        if not rest:
            return False
        self._layers += 1
        if self._layers > _MAX_LAYERS:
            self.sure = False
            return False
        shells = self._words(rest, inside=True)
        self._layers -= 1
        return shells

    def _env_script(self, args: Sequence[Word]) -> None:
        """`env -S` splits a text into a command of its own."""
        for index, word in enumerate(args):
            if word.text.startswith(("-S", "--split-string")):
                glued = word.text.removeprefix("--split-string").removeprefix("-S").removeprefix("=")
                self._joined([Word(glued, word.expands, word.glob)] if glued else args[index + 1 : index + 2])


def _assigns(word: Word) -> bool:
    return "=" in word.text and re.match(_ASSIGNMENT, word.text) is not None


def _after_options(args: Sequence[Word], valued: str) -> Sequence[Word]:
    """What follows the options, where the letters in `valued` take the next word as their value."""
    index = 0
    while index < len(args):
        text = args[index].text
        if text == "--":
            return args[index + 1 :]
        if not text.startswith("-") or text == "-":
            break
        index += 2 if len(text) == 2 and text[1] in valued else 1
    return args[index:]
