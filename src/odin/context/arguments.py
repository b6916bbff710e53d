"""Inserts arguments, and the output of commands, into the text of a slash command or a skill.

All of it is done in one pass: nothing in an argument or in an output is replaced again, let alone run.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from odin.core.lazy_pattern import compile_lazily

_SHELL_COMMAND = compile_lazily(r"(?<!\S)!`([^`\n]+)`")


def find_shell_commands(body: str) -> tuple[str, ...]:
    """Return the commands written as `` !`command` ``, each once."""
    return tuple(dict.fromkeys(match[1] for match in _SHELL_COMMAND.finditer(body))) if "!`" in body else ()


def split_arguments(arguments: str) -> list[str]:
    """Split arguments as a shell does; where quotes do not match, at spaces."""
    import shlex

    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def fill_text(
    body: str,
    arguments: str,
    *,
    first: int | None,
    names: Sequence[str] = (),
    outputs: Mapping[str, str] = MappingProxyType({}),
    lead: str = "",
) -> str:
    """Return the text with `$ARGUMENTS`, `$ARGUMENTS[0]`, numbers and names replaced, or with `arguments` at its end.

    `first` is the number of the first argument, as in `$1`; without it numbers belong to a script in the text. A
    command without an output stays as text. `lead` comes before arguments at the end.
    """
    words = split_arguments(arguments)
    named = {name: words[at] if at < len(words) else "" for at, name in enumerate(names)}
    parts = [r"\$ARGUMENTS\[(?P<at>\d{1,4})\]", r"(?P<all>\$ARGUMENTS(?!\w))"]
    parts += [rf"(?<!\S)!`(?P<shell>{'|'.join(map(re.escape, outputs))})`"] if outputs else []
    parts += [rf"\$(?P<short>[{first}-9])(?!\d)"] if first is not None else []
    parts += [rf"\$(?P<n{at}>{re.escape(name)})(?!\w)" for at, name in enumerate(names)]
    used = False

    def fill(match: re.Match[str]) -> str:
        nonlocal used
        found = match.groupdict()
        if found.get("shell") is not None:
            return outputs[found["shell"]]
        used = True
        if found["all"]:
            return arguments
        if found["at"] is None and found.get("short") is None:
            return named[match[0].removeprefix("$")]
        at = int(found["at"]) if found["at"] is not None else int(found["short"]) - (first or 0)
        return words[at] if at < len(words) else ""

    text = re.sub("|".join(parts), fill, body)
    return text if used or not arguments else f"{text}\n\n{lead}{arguments}"
