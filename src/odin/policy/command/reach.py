"""Where the words of a command lead: the first that names something outside the project.

Words are judged as paths whether they are meant as such or not, since a program may take any of them for one. What a
variable or a program's own code reaches cannot be seen here; such commands are asked about for other reasons.
"""

from collections.abc import Iterator

from odin.policy import paths
from odin.policy.command.harmless import steps
from odin.policy.shell import Survey


def outside_word(seen: Survey, cwd: str, root: str) -> str:
    """The first word that leads out of the project, or "". The names of programs do not count."""
    return next((text for text, there in _words(seen, cwd, root) if leaves(text, there, root)), "")


def _words(seen: Survey, cwd: str, root: str) -> Iterator[tuple[str, str]]:
    """Each word with the folder it would be read from, which `cd` may have changed when that is certain."""
    placed = steps(seen.script, cwd, root) if seen.script else None
    for simple, there in placed or ():
        yield from ((word.text, there) for word in simple.words[1:])
        yield from ((redirect.target.text, there) for redirect in simple.redirects)
    if placed:
        yield from ((text, cwd) for part in seen.parts if part.found_inside for text in part.texts[1:])
        return
    yield from ((redirect.target.text, cwd) for redirect in seen.redirects)
    yield from ((text, cwd) for part in seen.parts for text in part.texts[1:])


def leaves(word: str, cwd: str, root: str) -> bool:
    """Whether a word, or the value glued to an option in it, is a path that leads out of the project."""
    return any(_leads_out(form, cwd, root) for form in _path_forms(word))


def _path_forms(word: str) -> list[str]:
    forms = [word]
    if "=" in word:
        forms.append(word.split("=", 1)[1])
    if word.startswith("-") and len(word) > 2:
        forms.append(word[2:])
    return forms


def _leads_out(text: str, cwd: str, root: str) -> bool:
    if not text or text.startswith("-") or paths.is_stream(text):
        return False
    if text.startswith(("~", "$HOME", "${HOME}")):
        return True
    return not paths.inside(text, root, cwd)
