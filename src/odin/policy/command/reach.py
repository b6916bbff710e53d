"""Where the words of a command lead: the first that names something outside the project.

Words are judged as paths whether they are meant as such or not, since a program may take any of them for one. So are
the values that variables are given in the text. What other variables and a program's own code reach cannot be seen
here; such commands are asked about for other reasons.
"""

import re
from collections.abc import Iterable, Iterator

from odin.policy import paths
from odin.policy.command.harmless import is_step_read_only, locate_steps
from odin.policy.command.shapes import ShellWord, SimpleCommand
from odin.policy.command.survey import CommandAnalysis

_HOMES = ("~", "$HOME", "${HOME}", "$OLDPWD", "${OLDPWD}")
_PATH_SEPARATORS = re.compile(r"[/=:]")
_GLUE = re.compile(r"[=:,{}]")
_GLUED_PATH = re.compile(r"/|~|\.\.(?:/|$)")
_BUNDLE = re.compile(r"-[^-ILDWFECOo\W]\w{1,6}(?=/|~|\.\.)")
"""Options in one word with a path behind the last: `-xvf/etc/x`. What `-Isrc/x` begins with takes all of the rest."""

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def find_outside_word(analysis: CommandAnalysis, cwd: str, root: str) -> str:
    """The first word that leads out of the project, or "". The names of programs do not count."""
    for word, there in dict.fromkeys(_find_words(analysis, cwd, root)):
        if is_outside_word(word.text, there, root):
            return word.text
        found = _find_outside_match(word.text, there, root) if word.glob else ""
        if found:
            return found
        if word.expands and ".." in _PATH_SEPARATORS.split(word.text):
            return word.text
    return next((value for _, value in analysis.assigned if value and is_outside_word(value, cwd, root)), "")


def _find_words(analysis: CommandAnalysis, cwd: str, root: str) -> Iterator[tuple[ShellWord, str]]:
    """Each word with the folder it would be read from, which `cd` may have changed when that is certain.

    A command that is known to stay inside is passed over: its words may be patterns and texts that look like paths.
    """
    placed = locate_steps(analysis.script, cwd, root) if analysis.script else None
    for simple, there in placed or ():
        if not is_step_read_only(simple, there, root):
            yield from _words_of(simple, there)
    if placed:
        yield from _attach_folder((part.words[1:] for part in analysis.commands if part.is_inner), cwd)
        return
    yield from _attach_folder(([redirect.target] for redirect in analysis.redirects), cwd)
    yield from _attach_folder((part.words[1:] for part in analysis.commands), cwd)


def _words_of(simple: SimpleCommand, there: str) -> Iterator[tuple[ShellWord, str]]:
    assigned = "=" in simple.words[0].text if simple.words else False
    yield from ((word, there) for word in (simple.words if assigned else simple.words[1:]))
    yield from ((redirect.target, there) for redirect in simple.redirects if not redirect.op.startswith("<<"))


def _attach_folder(groups: Iterable[Iterable[ShellWord]], there: str) -> Iterator[tuple[ShellWord, str]]:
    return ((word, there) for words in groups for word in words)


def is_outside_word(word: str, cwd: str, root: str) -> bool:
    """Whether a word, or the value glued to an option or a name in it, is a path that leads out of the project."""
    return any(_is_outside_path(form, cwd, root) for form in _path_forms_of(word))


def _path_forms_of(word: str) -> Iterator[str]:
    yield word
    if word.startswith("-") and len(word) > 2:
        yield word[2:]
        bundle = _BUNDLE.match(word)
        if bundle is not None:
            yield word[bundle.end() :]
    if _ADDRESS.match(word):
        if word.casefold().startswith("file://"):
            yield word[len("file://") :]
    elif not any(char.isspace() for char in word):
        yield from (piece for piece in _GLUE.split(word)[1:] if _GLUED_PATH.search(piece))
    elif "=" in word:
        yield word.split("=", 1)[1]


def _is_outside_path(text: str, cwd: str, root: str) -> bool:
    if not text or text.startswith("-") or paths.is_stream(text):
        return False
    return text.startswith(_HOMES) or not paths.is_inside(text, root, cwd)


def _find_outside_match(pattern: str, cwd: str, root: str) -> str:
    """A link that leads out, among what the pattern stands for. Of very many names, only the pattern is judged."""
    from odin.policy.command.harmless.globs import TooManyMatches, find_matches

    try:
        return next((name for name in find_matches(pattern, cwd) if not paths.is_inside(name, root, cwd)), "")
    except TooManyMatches:
        return ""
