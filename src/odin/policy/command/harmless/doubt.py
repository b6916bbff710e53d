"""What it is about a command that keeps it from running unasked, for the person who is asked."""

from collections.abc import Callable, Iterable, Sequence

from odin.policy.command.harmless.expressions import EXPRESSION_CHECKS
from odin.policy.command.harmless.git import GIT_COMMANDS
from odin.policy.command.harmless.judge import READ_ONLY_COMMANDS
from odin.policy.command.harmless.options import ReadOnlyCommand, parse_options
from odin.policy.command.harmless.place import ReadScope
from odin.policy.command.harmless.steps import CommandStep
from odin.policy.command.shapes import ShellScript, ShellWord, SimpleCommand
from odin.policy.command.wrappers import is_assignment
from odin.policy.confidential import is_secret_path

_MAX_SHOWN = 40
_SEARCHES = ("grep", "egrep", "fgrep", "rg", "git grep")


def explain_doubt(
    script: ShellScript,
    steps: Iterable[CommandStep],
    is_read_only: Callable[[SimpleCommand, str], bool],
    *,
    every: bool,
) -> str:
    """The first part that is not known to only look, as the end of a sentence.

    "" when nothing can be said about it; without `every`, also for programs of which nobody would expect it.
    """
    for simple in script.commands:
        for word in (*simple.words, *(item.target for item in simple.redirects)):
            if word.expands:
                return f"what {_quote_short(word)} stands for is only known when it runs"
    if not script.plain:
        return "it is more than plain commands one after the other"
    return next((_explain_part(simple, every) for simple, folder in steps if not is_read_only(simple, folder)), "")


def _explain_part(simple: SimpleCommand, every: bool) -> str:
    words = list(simple.words)
    while words and is_assignment(words[0]):
        words.pop(0)
    texts = [word.text for word in words]
    name = (
        " ".join(texts[:2]) if texts[:1] == ["git"] and texts[1:2] and texts[1] in GIT_COMMANDS else "".join(texts[:1])
    )
    known = GIT_COMMANDS.get(name.removeprefix("git ")) if name.startswith("git ") else READ_ONLY_COMMANDS.get(name)
    if known is None and name not in EXPRESSION_CHECKS:
        return f"{_quote_short(words[0])} is not one of them" if every and words else ""
    odd = _find_odd_option(known, texts[len(name.split()) :]) if known else ""
    if not odd and name.startswith("git ") and not every:
        return ""
    if odd:
        return f"{name} {odd} is not known to only look"
    secret = next((text for text in texts[1:] if is_secret_path(text)), "")
    if secret:
        return f"{name} would open {secret[:_MAX_SHOWN]}, and people keep secrets in such files"
    if name in _SEARCHES:
        return f"{name} may open files that hold secrets or lie elsewhere, or too many to tell"
    return f"{name} is not known to only look with these words"


def _find_odd_option(known: ReadOnlyCommand, texts: Sequence[str]) -> str:
    """The option that is not on the list. Each is tried by itself, with a word behind it in case it takes a value."""
    here = ReadScope("/", "/")
    options = (text for text in texts if text.startswith("-") and len(text) <= _MAX_SHOWN)
    return next((text for text in options if parse_options(known, [text, "1", "1"], here) is None), "")


def _quote_short(word: ShellWord) -> str:
    return repr(word.text if len(word.text) <= _MAX_SHOWN else word.text[:_MAX_SHOWN] + "…")
