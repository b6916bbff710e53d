"""What git throws away for good, named when such a command is asked about."""

from collections.abc import Sequence

from odin.policy.command.ruinous.targets import Harm
from odin.policy.command.survey import CommandAnalysis

_GIT_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace")
_UNCOMMITTED_HARM = "it throws away changes that are not committed"
_FORCE_OPTIONS = {"-f", "--force", "--discard-changes"}


def find_discard_harm(analysis: CommandAnalysis) -> Harm:
    """What would be lost, as the end of a sentence, or ""."""
    return next((why for part in analysis.commands if part.name == "git" and (why := _check_git(part.texts[1:]))), "")


def _check_git(texts: Sequence[str]) -> Harm:
    rest = list(texts)
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in _GIT_VALUED else rest[1:]
    verb, given = (rest[0] if rest else ""), set(rest[1:])
    letters = {letter for text in given if text.startswith("-") and not text.startswith("--") for letter in text}
    match verb:
        case "clean" if "f" in letters or "--force" in given:
            return "it removes files that git does not keep"
        case "stash" if given & {"drop", "clear"}:
            return "it throws away changes that were put aside"
        case "reset" if given & {"--hard", "--merge", "--keep"}:
            return _UNCOMMITTED_HARM
        case "checkout" | "switch" if given & {*_FORCE_OPTIONS, "--", "."}:
            return _UNCOMMITTED_HARM
        case "restore" if not ("S" in letters or "--staged" in given) or "W" in letters or "--worktree" in given:
            return _UNCOMMITTED_HARM
        case _:
            return ""
