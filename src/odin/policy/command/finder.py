"""Every command that a text would run, also those that other programs are given to run."""

import re
from collections.abc import Callable, Sequence

from odin.policy.command.feeding import inputs, loose_words
from odin.policy.command.folder import led
from odin.policy.command.grammar import examine
from odin.policy.command.shapes import MAX_CHARS, Redirect, Script, Simple, Word, named
from odin.policy.command.survey import Part, Survey
from odin.policy.command.tree import read
from odin.policy.command.wrappers import (
    JOINED,
    OPAQUE,
    SHELLS,
    SSH_VALUED,
    WRAPPERS,
    after_options,
    assigns,
    option_value,
    steers,
)

_MAX_LAYERS = 12
_GIT_VALUED = named("-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env")
_GIT_KEEPING = named("init.defaultBranch user.name user.email core.quotePath color.ui advice.detachedHead")
_EVALUATING = named("declare typeset local readonly export read let printf test [ unset getopts wait")
_DECLARING = named("declare typeset local readonly")
_MARKS = re.compile(r"\[[^\]]*[$`]|\$\(|`")
_COPIES = named("<<< << <<-")


def look(command: str) -> Survey:
    """Every command that this text would run, as far as can be told without running it."""
    script, why = examine(command)
    finder = Finder()
    finder.script(script)
    reason = why or finder.reason
    return Survey(
        tuple(finder.parts),
        not reason,
        tuple(finder.redirects),
        None if why else script,
        reason,
        tuple(finder.assigned),
        tuple(finder.functions),
        tuple(finder.given),
        tuple(finder.unread),
    )


class Finder:
    """Collects commands and looks through those that run others. `reason` says why they may not be all."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.redirects: list[Redirect] = []
        self.reason = ""
        self.assigned: list[tuple[str, str | None]] = []
        self.functions: list[str] = []
        self.given: list[tuple[str, Word]] = []
        self.unread: list[str] = []
        self._fed: tuple[str, ...] = ()
        self._layers = 0

    def doubt(self, reason: str) -> None:
        self.reason = self.reason or reason

    def script(self, script: Script, *, inside: bool = False) -> None:
        self._layers += 1
        if self._layers > _MAX_LAYERS:
            self.doubt("it is nested too deeply")
        else:
            self._script(script, inside=inside)
        self._layers -= 1

    def _script(self, script: Script, *, inside: bool) -> None:
        for reason in script.doubts:
            self.doubt(reason)
        self.assigned += script.assigned
        self.functions += script.functions
        self.given += script.given
        fed: list[str | None] = []
        before = self._fed
        for simple, texts in zip(script.commands, inputs(script.commands), strict=True):
            self.redirects.extend(item for item in simple.redirects if _touches_a_file(item))
            self._fed = texts or before
            if self._simple(simple, inside=inside):
                fed.append(simple.folder)
                for text in texts:
                    self._text(text, simple.folder)
        self._fed = before
        for folder in fed[:1]:
            for body in script.bodies:
                self._text(body, folder)

    def _simple(self, simple: Simple, *, inside: bool) -> bool:
        """Record one command and what it wraps; True when a shell reads its script from elsewhere."""
        words = simple.words
        while words and assigns(words[0]):
            words = words[1:]
        inside = inside or simple.nested or len(words) < len(simple.words)
        return self._words(words, simple.folder, inside=inside) if words else False

    def _words(self, words: Sequence[Word], folder: str | None, *, inside: bool) -> bool:
        part = Part(tuple(words), inside, folder, self._fed)
        self.parts.append(part)
        if not words[0].literal:
            self.doubt(f"the name of a command is not written out: {words[0].text}")
            return False
        name = part.name
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, words, folder)
        if name in SHELLS:
            return self._shell(words[1:], folder)
        if name in OPAQUE:
            self.doubt(f"{name} changes what later commands do, or runs what cannot be seen")
        if name in WRAPPERS:
            return self._wrapped(name, words[1:], folder)
        if name in JOINED:
            self._joined(after_options(words[1:], JOINED[name]), folder)
        elif name in _EVALUATING:
            self._evaluating(name, words[1:])
        return False

    # --- shells ---

    def _shell(self, args: Sequence[Word], folder: str | None) -> bool:
        """A shell with a text to run, or a script that is not here: True when that may come from its input."""
        if [word.text for word in args] in (["--version"], ["--help"]):
            return False
        rest = list(args)
        given = False
        while rest and rest[0].text.startswith(("-", "+")):
            text = rest.pop(0).text
            if text in ("--", "-"):
                break
            given = given or text == "--command" or (not text.startswith("--") and "c" in text[1:])
            if re.fullmatch(r"[-+]\w*[oO]|--rcfile|--init-file", text) and rest:
                rest.pop(0)
        if given and rest:
            self._joined(rest[:1], folder)
            return False
        self.doubt("a shell runs a script that cannot be seen here")
        return True

    def _switched_user(self, words: Sequence[Word], folder: str | None) -> bool:
        """`su` and `runuser` run a shell as another user."""
        login = any(re.fullmatch(r"-|--login|-\w*l\w*", word.text) for word in words[1:])
        given = option_value(words[1:], "c", "command")
        if given is not None:
            self._joined([given], "~" if login else folder)
            return False
        self.doubt("a shell runs a script that cannot be seen here")
        rest = [word for word in words[1:] if word.text == "--"]
        if words[0].text.endswith("runuser") and rest:
            return self._inner(words[list(words).index(rest[0]) + 1 :], folder)
        return True

    def _recorded(self, words: Sequence[Word], folder: str | None) -> bool:
        """`script` runs a command given as one text, or a shell."""
        given = option_value(words[1:], "c", "command")
        if given is None:
            self.doubt("a shell runs a script that cannot be seen here")
            return True
        self._joined([given], folder)
        return False

    def _joined(self, words: Sequence[Word], folder: str | None) -> None:
        """These words are a script in themselves."""
        if not words:
            return
        if not all(word.literal for word in words):
            self.doubt("a text that is made while it runs is run as a command")
        self._text(" ".join(word.text for word in words), folder)

    def _text(self, text: str, folder: str | None) -> None:
        if self._layers > _MAX_LAYERS or len(text) > MAX_CHARS:
            self.doubt("it is nested too deeply")
            self.unread.append(text)
            return
        script, flaw = read(text, folder)
        if flaw:
            self.doubt(flaw)
            self.unread.append(text)
        self.script(script, inside=True)

    def _keyword(self, words: Sequence[Word], folder: str | None) -> bool:
        """A word of the shell itself where the name of a command should be: what follows it may be one."""
        self.doubt(f"{words[0].text!r} is a word of the shell itself")
        rest = words[1:]
        opening = [index for index, word in enumerate(rest[:2]) if word.text == "{"]
        if opening:
            rest = rest[opening[0] + 1 :]
        return self._inner(rest, folder) if rest else False

    def _remote(self, words: Sequence[Word], folder: str | None) -> bool:
        """ssh gives all words after the host to a shell there."""
        rest = after_options(words[1:], SSH_VALUED)
        if len(rest) > 1:
            self._joined(after_options(rest[1:], SSH_VALUED), None)
        self.doubt("it runs on another machine")
        return False

    def _windows_shell(self, words: Sequence[Word], folder: str | None) -> bool:
        """`cmd /c ...` and `powershell -Command ...`."""
        self.doubt("a shell runs a script that cannot be seen here")
        for index, word in enumerate(words[1:], 1):
            text = word.text.casefold()
            if re.fullmatch(r"/[ck]|-c(o(m(m(a(n(d)?)?)?)?)?)?", text) or " " in text:
                self._joined(words[index if " " in text else index + 1 :], folder)
                break
        return False

    def _trap(self, words: Sequence[Word], folder: str | None) -> bool:
        self._joined(after_options(words[1:], "")[:1], folder)
        return False

    # --- programs that run others ---

    def _wrapped(self, name: str, args: Sequence[Word], folder: str | None) -> bool:
        wrapper = WRAPPERS[name]
        rest = list(after_options(args, wrapper.valued, wrapper.long))
        while rest and assigns(rest[0]):
            rest = list(after_options(rest[1:], wrapper.valued, wrapper.long))
        rest = rest[wrapper.operands :]
        if name == "xargs" and rest:
            rest += [word for text in self._fed for word in loose_words(text)]
        if wrapper.folder and len(rest) < len(args):
            into = option_value(args[: len(args) - len(rest)], wrapper.folder, "chdir")
            folder = led(folder, into) if into is not None else folder
        return self._inner(rest, folder) if rest else False

    def _inner(self, words: Sequence[Word], folder: str | None) -> bool:
        self._layers += 1
        if self._layers > _MAX_LAYERS:
            self.doubt("it is nested too deeply")
            fed = False
        else:
            fed = self._words(words, folder, inside=True)
        self._layers -= 1
        return fed

    def _env(self, words: Sequence[Word], folder: str | None) -> bool:
        """`env` sets variables, and with -S splits a text into a command of its own."""
        args = words[1:]
        for index, word in enumerate(args):
            if re.match(r"--s|-[a-zA-Z0]*S", word.text):
                glued = re.sub(r"^(--s[a-z-]*=?|-[a-zA-Z0]*?S)", "", word.text)
                text = Word(glued, word.expands, word.glob) if glued else (*args[index + 1 :], Word(""))[0]
                return self._split(text, args[index + (1 if glued else 2) :], folder)
            if not word.text.startswith("-") and not assigns(word):
                break
        for word in args:
            name, equals, value = word.text.partition("=")
            if equals and steers(name, value):
                self.doubt(f"it changes {name}, on which it depends what other programs do")
        return self._wrapped("env", args, folder)

    def _split(self, text: Word, rest: Sequence[Word], folder: str | None) -> bool:
        """The words of a text take its place among the arguments of `env`."""
        script, flaw = read(text.text, folder)
        if flaw or not text.literal or len(script.commands) != 1 or script.commands[0].redirects:
            self.doubt("env is given a text that cannot be read with certainty")
            self._text(text.text, folder)
        words = [word for simple in script.commands[:1] for word in simple.words]
        if any(re.match(r"--s|-[a-zA-Z0]*S", word.text) for word in words):
            self.doubt("env is given a text that cannot be read with certainty")
        return self._wrapped("env", [*words, *rest], folder)

    def _flock(self, words: Sequence[Word], folder: str | None) -> bool:
        given = option_value(words[1:], "c", "command")
        if given is not None:
            self._joined([given], folder)
            return False
        return self._wrapped("flock", words[1:], folder)

    def _parallel(self, words: Sequence[Word], folder: str | None) -> bool:
        """The words are a command, what follows `:::` are its arguments, one after the other."""
        self.doubt("parallel runs commands that it puts together while it runs")
        rest = list(after_options(words[1:], WRAPPERS["parallel"].valued, WRAPPERS["parallel"].long))
        cut = next((index for index, word in enumerate(rest) if word.text.startswith(":::")), len(rest))
        if len(rest[:cut]) == 1 and rest[0].literal:
            self._joined(rest[:1], folder)
        if rest[:cut]:
            extra = [word for word in rest[cut + 1 :] if not word.text.startswith(":::")]
            self._inner([*rest[:cut], *extra], folder)
        return False

    def _find(self, words: Sequence[Word], folder: str | None) -> bool:
        fed = False
        for index, word in enumerate(words):
            if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
                rest = list(words[index + 1 :])
                ends = [n for n, item in enumerate(rest) if item.text in (";", "+")]
                inner = rest[: ends[0]] if ends else rest
                if inner:
                    fed |= self._inner(inner, folder)
        return fed

    def _git(self, words: Sequence[Word], folder: str | None) -> bool:
        """git runs programs that its configuration names, so one that is given on the command line is a doubt."""
        args = words[1:]
        index = 0
        while index < len(args) and args[index].text.startswith("-"):
            text = args[index].text
            if text == "-c" and index + 1 < len(args) and args[index + 1].text.split("=")[0] not in _GIT_KEEPING:
                self._alias(args[index + 1], folder)
            if text.startswith(("--exec-path=", "--config-env")):
                self.doubt("git is told to run other programs")
            index += 2 if text in _GIT_VALUED else 1
        verb = args[index].text if index < len(args) else ""
        after = args[index + 1 :]
        if verb == "submodule" and any(word.text == "foreach" for word in after):
            start = next(n for n, word in enumerate(after) if word.text == "foreach")
            self._joined(after_options(after[start + 1 :], ""), None)
        given = option_value(after, "x", "exec") if verb == "rebase" else None
        if given is not None:
            self._joined([given], folder)
        if verb == "bisect" and after and after[0].text == "run":
            return self._inner(after[1:], folder) if len(after) > 1 else False
        if verb in ("filter-branch", "difftool", "mergetool"):
            self.doubt(f"git {verb} runs other programs")
        return False

    def _alias(self, word: Word, folder: str | None) -> None:
        self.doubt("git is given a setting that may run other programs")
        value = word.text.partition("=")[2]
        if value.startswith("!"):
            self._text(value[1:], folder)

    # --- builtins that evaluate their words ---

    def _evaluating(self, name: str, args: Sequence[Word]) -> None:
        """Some builtins treat a word as a variable with an index, and run what stands in the index."""
        texts = [word.text for word in args]
        if name == "let" and any(re.search(r"[A-Za-z_$`\[]", text.partition("=")[2] or text) for text in texts):
            self.doubt("arithmetic may run what a variable holds")
        elif name == "printf" and any(text.startswith("-v") for text in texts[:1]):
            self.doubt("printf -v may run what its words hold")
        elif name in _DECLARING and any(re.match(r"[-+]\w*[in]", text) for text in texts):
            self.doubt(f"{name} may run what its words hold")
        elif name in ("test", "[") and "-v" in texts and any("[" in text for text in texts):
            self.doubt("test -v may run what its words hold")
        elif name not in ("printf", "export") and any(_MARKS.search(word.text) for word in args if not word.expands):
            self.doubt(f"{name} may run what its words hold")


def _touches_a_file(redirect: Redirect) -> bool:
    """Not into the null device, not one stream into another, not text that stands in the command itself."""
    target = redirect.target
    if redirect.op in _COPIES:
        return False
    if not target.literal:
        return True
    if redirect.op in (">&", "<&") and re.fullmatch(r"\d+-?|-", target.text):
        return False
    return target.text != "/dev/null"


_SPECIAL: dict[str, Callable[[Finder, Sequence[Word], str | None], bool]] = {
    **dict.fromkeys(("!", "{", "coproc", "do", "then", "else", "if", "while", "until", "elif"), Finder._keyword),
    "su": Finder._switched_user,
    "runuser": Finder._switched_user,
    "script": Finder._recorded,
    "ssh": Finder._remote,
    **dict.fromkeys(("cmd", "cmd.exe", "powershell", "powershell.exe", "pwsh"), Finder._windows_shell),
    "trap": Finder._trap,
    "env": Finder._env,
    "flock": Finder._flock,
    "parallel": Finder._parallel,
    "find": Finder._find,
    "git": Finder._git,
}
