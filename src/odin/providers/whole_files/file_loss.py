"""What a file would lose if a small model's text replaced it: such models often leave out what does not change."""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, cast

CODE = (
    *(".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx"),
    *(".go", ".rs", ".java", ".c", ".h", ".cpp", ".cs", ".kt"),
)
_DEFINITION = re.compile(
    r"^[ \t]*(?:export\s+|default\s+|async\s+|pub\s+|static\s+|abstract\s+|final\s+|public\s+|private\s+)*"
    r"(?:(?:class|struct|interface|enum|trait|impl|def|function\*?|fn|type|func(?:\s+\([^)\n]*\))?)\s+"
    r"(?P<name>[A-Za-z_$][\w$]*)|(?:const\s+|let\s+|var\s+)?(?P<constant>[A-Z][A-Z0-9_]+)\s*(?::[^=\n]+)?=)"
    r"|^(?P<last>if __name__|module\.exports)\b",
    re.MULTILINE,
)
_KEPT_SHARE = 0.5
"""The share of the old lines that a text has from which something was removed on purpose."""
_GONE_SHARE = 0.4
_GONE_CODE_SHARE = 0.65
"""The share of the old lines that may be gone from a text or a program that is shorter."""
_ALIKE = 0.5
"""How alike a line is to another one that may be a version of it."""
_MAX_COMPARED = 200


def list_definitions(path: str, text: str) -> set[str]:
    """Return the functions, classes, methods and constants that a program defines; none for other files."""
    found = _DEFINITION.finditer(text) if path.endswith(CODE) else ()
    return {match["name"] or match["constant"] or match["last"] for match in found}


def find_loss(path: str, new: str, old: str, prompt: str, elsewhere: Collection[str] = ()) -> str:
    """Return what a file would lose that the task does not name, as a sentence for the model; "" if nothing.

    `elsewhere` are the names that the same reply defines in other files.
    """
    if not old.strip() or not new.strip():
        return ""
    before, after = ([line.strip() for line in text.splitlines() if line.strip()] for text in (old, new))
    gone = [line for line in before if line not in set(after)]
    is_mostly_kept = len(gone) <= (1 - _KEPT_SHARE) * len(before)
    if path.endswith(".json"):
        names = [key for key in _list_lost_keys(new, old) if key.rpartition(".")[2] not in prompt]
    else:
        names = _list_lost_names(path, new, old, "" if not is_mostly_kept else prompt, elsewhere)
    if names:
        return f"{path} would lose {', '.join(names[:4])}. Write the complete file."
    is_object = path.endswith(".json") and new.lstrip()[:1] == old.lstrip()[:1] == "{"
    if is_object or list_definitions(path, old).intersection(elsewhere):
        return ""
    share = _GONE_CODE_SHARE if path.endswith(CODE) else _GONE_SHARE
    most = share * len(before) if path.endswith(CODE) or len(before) - len(after) < 2 else 2
    if (len(after) < len(before) and len(gone) > most) or _is_other_text(before, after):
        return f"{path} would lose {len(gone)} lines, for example {gone[0][:80]!r}. Write the complete file."
    return ""


def _list_lost_names(path: str, new: str, old: str, prompt: str, elsewhere: Collection[str]) -> list[str]:
    """Return the names that a program would lose. Some may go if most of it stays: renamed, or named by the prompt.

    `prompt` is "" if most of the program would go.
    """
    defined, written = list_definitions(path, old), list_definitions(path, new)
    lost = sorted(defined - written - set(elsewhere))
    if prompt and len(lost) == len(written - defined):
        return []
    if any(_has_word(new, name) for name in lost):
        return lost
    return [name for name in lost if not _has_word(prompt, name)]


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(word)}(?![\w$])", text) is not None


def _is_other_text(before: list[str], after: list[str]) -> bool:
    """True if no line of a text is like one of another."""
    from difflib import get_close_matches

    if len(before) < 2 or len(before) > _MAX_COMPARED or len(after) > _MAX_COMPARED:
        return False
    folded = [line.casefold() for line in after]
    return not any(get_close_matches(line.casefold(), folded, 1, _ALIKE) for line in before)


def _list_lost_keys(new: str, old: str) -> list[str]:
    try:
        return list(_walk_lost_keys(json.loads(old), json.loads(new)))
    except ValueError:
        return []


def _walk_lost_keys(old: Any, new: Any, owner: str = "") -> Iterator[str]:
    if not isinstance(old, dict):
        return
    have = cast("dict[str, Any]", new) if isinstance(new, dict) else {}
    for key, value in cast("dict[str, Any]", old).items():
        if key not in have:
            yield f"{owner}{key}"
        else:
            yield from _walk_lost_keys(value, have[key], f"{owner}{key}.")
