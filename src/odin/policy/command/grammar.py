"""A command line taken apart into words, operators and redirections, as a POSIX shell would before it runs anything.

This is a careful reader, not a shell: where it is not certain it says so, and whoever asks must then assume the worst.
Commands inside substitutions, groups and here-documents are read too, so that nothing hides in them.
"""

import re

from msgspec import Struct

MAX_CHARS = 10_000
_MAX_DEPTH = 20

_OPERATORS = (";;&", "&&", "||", ";;", ";&", "|&", ";", "&", "|", "(", ")", "\n")
_REDIRECT = r"(&>>?)|(\d{0,9})(<<<|<<-|<<|<&|<>|<(?!\()|>>|>&|>\||>(?!\())"
_BREAKS = " \t\n;&|<>()"


def named(text: str) -> frozenset[str]:
    """A set of names written as one text."""
    return frozenset(text.split())


_OPENERS = named("if then elif else while until do ! { coproc")
_KEYWORDS = _OPENERS | named("fi done esac for case select function } [[ ]] time")


class Unclear(Exception):
    """The text cannot be read with certainty."""


class Word(Struct, frozen=True):
    """One word after quotes are removed. `expands` when the shell would still put something else in its place."""

    text: str
    expands: bool = False
    glob: bool = False
    quoted: bool = False

    @property
    def literal(self) -> bool:
        return not (self.expands or self.glob)


class Redirect(Struct, frozen=True):
    fd: str
    op: str
    target: Word


class Simple(Struct, frozen=True):
    """One simple command. `after` is the operator before it; `nested` when it stands inside another word or group."""

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()
    after: str = ""
    nested: bool = False


class Script(Struct, frozen=True):
    """All simple commands of a text, in order.

    `plain` when there is nothing but them and the operators between them. `bodies` are here-documents.
    """

    commands: tuple[Simple, ...]
    plain: bool
    bodies: tuple[str, ...] = ()


def parse(text: str) -> Script:
    """Read a command line. Raises Unclear when it is too long, unbalanced, or hides characters."""
    if len(text) > MAX_CHARS:
        raise Unclear("it is too long")
    if not text.replace("\n", "").replace("\t", "").isprintable():
        raise Unclear("it holds invisible characters")
    reader = _Reader(text)
    reader.script("")
    return Script(tuple(reader.commands), reader.plain, tuple(reader.bodies))


class _Open(Struct):
    """The simple command that is being read."""

    after: str
    words: list[Word]
    redirects: list[Redirect]


class _Heredoc(Struct):
    delimiter: str
    quoted: bool
    dashed: bool


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.plain = True
        self.commands: list[Simple] = []
        self.bodies: list[str] = []
        self._depth = 0
        self._heredocs: list[_Heredoc] = []

    def script(self, end: str) -> None:
        """Read commands until the closing character, or the end of the text when it is empty."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Unclear("it is nested too deeply")
        current = _Open("", [], [])
        groups = cases = 0
        while True:
            self._skip_blanks()
            if self.at >= len(self.text):
                if end or groups:
                    raise Unclear("a parenthesis is not closed")
                self._flush(current)
                break
            operator = self._operator()
            if operator == ")" and not groups and end == ")" and not cases:
                self._flush(current)
                break
            if not operator:
                self._item(current)
                cases += self._case_step(current)
                continue
            groups = self._grouped(operator, groups, cases)
            joint = self._joint(operator)
            if joint == "\n" and not current.words and not current.redirects:
                continue
            if operator != "(":
                self._flush(current)
            current = _Open(joint, [], []) if operator != "(" else self._entered(current)
        self._depth -= 1

    @staticmethod
    def _grouped(operator: str, groups: int, cases: int) -> int:
        """How many groups are open after this operator."""
        if operator == "(":
            return groups + 1
        if operator != ")":
            return groups
        if not groups and not cases:
            raise Unclear("a parenthesis is closed that was not opened")
        return groups - 1 if groups else 0

    def _entered(self, current: _Open) -> _Open:
        """A group begins. What stands right before it is the name of a function, or nothing."""
        if current.words or current.redirects:
            self._flush(current)
        return _Open("(", [], [])

    def _joint(self, operator: str) -> str:
        if operator in ("(", ")", ";;", ";&", ";;&", "&", "|&"):
            self.plain = False
        if operator == "\n":
            self._take_bodies()
        return operator

    @staticmethod
    def _case_step(current: _Open) -> int:
        """+1 when a `case` just opened, -1 when it closed: inside, a closing parenthesis ends a pattern."""
        if len(current.words) != 1 or current.words[0].quoted:
            return 0
        return {"case": 1, "esac": -1}.get(current.words[0].text, 0)

    def _skip_blanks(self) -> None:
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text[self.at] == "#":
                self.plain = False
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return

    def _operator(self) -> str:
        if self.text.startswith("&>", self.at):
            return ""
        for operator in _OPERATORS:
            if self.text.startswith(operator, self.at):
                self.at += len(operator)
                return operator
        return ""

    def _flush(self, current: _Open) -> None:
        if current.words or current.redirects:
            nested = self._depth > 1
            self.commands.append(Simple(tuple(current.words), tuple(current.redirects), current.after, nested))
        elif current.after in ("&&", "||", "|"):
            raise Unclear("a command is missing")

    def _item(self, current: _Open) -> None:
        redirect = self._redirect()
        if redirect is not None:
            current.redirects.append(redirect)
            return
        word = self._word()
        if not current.words and not word.quoted and word.text in _KEYWORDS:
            self.plain = False
            if word.text in _OPENERS:
                return
        current.words.append(word)

    def _redirect(self) -> Redirect | None:
        if self.text[self.at] not in "<>&0123456789":
            return None
        found = re.match(_REDIRECT, self.text[self.at : self.at + 16])
        if found is None:
            return None
        self.at += found.end()
        fd, op = found[2] or "", found[1] or found[3]
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        target = self._word()
        if not target.text and not target.quoted:
            raise Unclear("a redirection has no target")
        if op in ("<<", "<<-"):
            self.plain = False
            self._heredocs.append(_Heredoc(target.text, target.quoted, op == "<<-"))
        return Redirect(fd, op, target)

    def _take_bodies(self) -> None:
        for heredoc in self._heredocs:
            lines: list[str] = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if (line.lstrip("\t") if heredoc.dashed else line) == heredoc.delimiter:
                    break
                lines.append(line)
            body = "\n".join(lines)
            self.bodies.append(body)
            if not heredoc.quoted:
                self._inside(body)
        self._heredocs.clear()

    def _inside(self, text: str) -> None:
        """Collect the substitutions of a text that is otherwise only data."""
        inner = _Reader(text)
        inner._depth = self._depth
        inner.data("")
        self.commands.extend(inner.commands)

    # --- words ---

    def _word(self) -> Word:
        made = _Made()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _BREAKS:
                if char in "<>" and self.text.startswith("(", self.at + 1):
                    self._substitution(made, 2)
                    continue
                break
            self._step(char, made)
        return made.word()

    def _step(self, char: str, made: "_Made") -> None:
        if char == "'":
            made.quote(self._until("'", self.at + 1))
        elif char == '"':
            self.at += 1
            made.quote(self.data('"', made))
        elif char == "\\":
            if not self.text.startswith("\n", self.at + 1):
                made.quote(self.text[self.at + 1 : self.at + 2])
            self.at += 2
        elif char == "$":
            self._dollar(made, quoted=False)
        elif char == "`":
            self._backtick(made)
        else:
            made.plain(char)
            self.at += 1

    def _until(self, closing: str, start: int) -> str:
        end = self.text.find(closing, start)
        if end < 0:
            raise Unclear("a quote is not closed")
        self.at = end + 1
        return self.text[start:end]

    def data(self, closing: str, made: "_Made | None" = None) -> str:
        """Read text in which only `$`, backticks and backslashes count, up to the closing character."""
        target = made or _Made()
        start = len(target.chars)
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == closing:
                self.at += 1
                return target.cut(start)
            if char == "\\":
                pair = self.text[self.at : self.at + 2]
                target.chars.append(pair[1:] if pair[1:] in ('"', "$", "`", "\\") else pair.replace("\\\n", ""))
                self.at += 2
            elif char == "$":
                self._dollar(target, quoted=True)
            elif char == "`":
                self._backtick(target)
            else:
                target.chars.append(char)
                self.at += 1
        if closing:
            raise Unclear("a quote is not closed")
        return target.cut(start)

    def _dollar(self, made: "_Made", *, quoted: bool) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following == "(":
            self._substitution(made, 2)
        elif following == "{":
            made.expands = True
            self.plain = False
            self.at += 2
            made.chars.append("${" + self._parameter() + "}")
        elif following in ("'", '"') and not quoted:
            made.expands = True
            self.at += 1
            if following == "'":
                self._ansi(made)
        elif following and (following.isalnum() or following in "_@*#?$!-"):
            made.expands = True
            made.chars.append("$")
            self.at += 1
        else:
            made.quote("$")
            self.at += 1

    def _parameter(self) -> str:
        """What stands between `${` and `}`. Quotes in there follow rules of their own, so they make it unclear."""
        start = self.at
        inner = self.data("}")
        if any(char in self.text[start : self.at] for char in "'\"\\"):
            raise Unclear("a parameter expansion holds quotes")
        return inner

    def _ansi(self, made: "_Made") -> None:
        end = self.at + 1
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise Unclear("a quote is not closed")
        made.chars.append(self.text[self.at + 1 : end])
        self.at = end + 1

    def _substitution(self, made: "_Made", width: int) -> None:
        made.expands = True
        self.plain = False
        start = self.at
        self.at += width
        held, self._heredocs = self._heredocs, []
        self.script(")")
        self._heredocs = held
        made.chars.append(self.text[start : self.at])

    def _backtick(self, made: "_Made") -> None:
        made.expands = True
        self.plain = False
        end = self.at + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise Unclear("a backtick is not closed")
        body = self.text[self.at + 1 : end]
        inner = _Reader(re.sub(r"\\([\\`$])", r"\1", body))
        inner._depth = self._depth
        inner.script("")
        self.commands.extend(inner.commands)
        self.bodies.extend(inner.bodies)
        made.chars.append(f"`{body}`")
        self.at = end + 1


class _Made:
    """A word that is being put together."""

    def __init__(self) -> None:
        self.chars: list[str] = []
        self.bare: list[str] = []
        self.expands = False
        self.quoted = False

    def plain(self, char: str) -> None:
        if char == "~" and (not self.chars or self.chars[-1] in "=:"):
            self.expands = True
        if char in "{}":
            self.expands = True
        if char == "=" and not self.chars:
            self.expands = True
        self.chars.append(char)
        self.bare.append(char)

    def quote(self, text: str) -> None:
        self.quoted = True
        if text:
            self.chars.append(text)

    def cut(self, start: int) -> str:
        """Take back what was added since `start`."""
        text = "".join(self.chars[start:])
        del self.chars[start:]
        return text

    def word(self) -> Word:
        text = "".join(self.chars)
        bare = "".join(self.bare)
        if text in ("{", "}", "{}") and not self.quoted:
            return Word(text)
        glob = any(char in bare for char in "*?") or ("[" in bare and "]" in bare[bare.index("[") :])
        return Word(text, self.expands, glob, self.quoted)
