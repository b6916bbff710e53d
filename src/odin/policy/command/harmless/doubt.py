"""What it is about a command that keeps it from running unasked, for the person who is asked."""

from collections.abc import Callable, Iterable, Sequence

from odin.policy.command.harmless.expressions import EXPRESSIONS
from odin.policy.command.harmless.git import KNOWN
from odin.policy.command.harmless.judge import LISTS
from odin.policy.command.harmless.options import Known, take
from odin.policy.command.harmless.place import Place
from odin.policy.command.harmless.steps import Step
from odin.policy.command.shapes import Script, Simple, Word
from odin.policy.command.wrappers import assigns
from odin.policy.confidential import confidential

_MAX_SHOWN = 40
_SEARCHES = ("grep", "egrep", "fgrep", "rg", "git grep")


def doubt(script: Script, placed: Iterable[Step], looks: Callable[[Simple, str], bool], *, every: bool) -> str:
    """The first part that is not known to only look, as the end of a sentence.

    "" when nothing can be said about it; without `every`, also for programs of which nobody would expect it.
    """
    for simple in script.commands:
        for word in (*simple.words, *(item.target for item in simple.redirects)):
            if word.expands:
                return f"what {_shown(word)} stands for is only known when it runs"
    if not script.plain:
        return "it is more than plain commands one after the other"
    return next((_part(simple, every) for simple, folder in placed if not looks(simple, folder)), "")


def _part(simple: Simple, every: bool) -> str:
    words = list(simple.words)
    while words and assigns(words[0]):
        words.pop(0)
    texts = [word.text for word in words]
    name = " ".join(texts[:2]) if texts[:1] == ["git"] and texts[1:2] and texts[1] in KNOWN else "".join(texts[:1])
    known = KNOWN.get(name.removeprefix("git ")) if name.startswith("git ") else LISTS.get(name)
    if known is None and name not in EXPRESSIONS:
        return f"{_shown(words[0])} is not one of them" if every and words else ""
    odd = _odd_option(known, texts[len(name.split()) :]) if known else ""
    if not odd and name.startswith("git ") and not every:
        return ""
    if odd:
        return f"{name} {odd} is not known to only look"
    secret = next((text for text in texts[1:] if confidential(text)), "")
    if secret:
        return f"{name} would open {secret[:_MAX_SHOWN]}, and people keep secrets in such files"
    if name in _SEARCHES:
        return f"{name} may open files that hold secrets or lie elsewhere, or too many to tell"
    return f"{name} is not known to only look with these words"


def _odd_option(known: Known, texts: Sequence[str]) -> str:
    """The option that is not on the list. Each is tried by itself, with a word behind it in case it takes a value."""
    here = Place("/", "/")
    options = (text for text in texts if text.startswith("-") and len(text) <= _MAX_SHOWN)
    return next((text for text in options if take(known, [text, "1", "1"], here) is None), "")


def _shown(word: Word) -> str:
    return repr(word.text if len(word.text) <= _MAX_SHOWN else word.text[:_MAX_SHOWN] + "…")
