"""Renames across a project: what a prompt renames, where the old name is left, and the exact change if it is certain.

Small models lose places when they write several files again. If a prompt only renames something, and every place that
means it can be told from the text, Odin renames it without asking the model.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from odin.providers.whole_files.turn_history import FoundLine

_NAME = r"[`\"']?([A-Za-z_$][\w$]*)(?:\(\))?[`\"']?"
_KINDS = r"(?:function|method|class|constant|type|struct|interface|variable|helper|field|attribute|property|enum)"
_KIND = rf"(?:the\s+)?(?:(?:{_KINDS}|name of)\s+)*"
_PLACE = (
    r"(?:\s+(?:in|of|from|on)\s+(?:the\s+)?(?:(?:file|class|module|struct|type|package)\s+)?[`\"']?[\w./]*\w[`\"']?"
    r"(?:\s+(?:file|class|module|struct|type|package))?)?"
)
_TO = r"\s*(?:\s(?:to|into|as)\s|->|=>|\u2192)\s*"
_RENAME = re.compile(
    rf"\brenam(?:e|ing)\s+{_KIND}{_NAME}(?:\s+{_KINDS})?{_PLACE}{_TO}(?:be\s+)?{_NAME}(?!\w|[./]\w)"
    rf"|\bchang(?:e|ing)\s+the\s+name\s+of\s+{_KIND}{_NAME}{_PLACE}\s+(?:to|into)\s+{_NAME}(?!\w|[./]\w)"
    rf"|\bchang(?:e|ing)\s+the\s+{_KINDS}\s+name\s+(?:from\s+)?{_NAME}{_PLACE}\s+(?:to|into)\s+{_NAME}(?!\w|[./]\w)"
    rf"|(?<![\w$]){_NAME}{_PLACE}\s+(?:should|shall|must|to)\s+be\s+(?:called|named|renamed to)\s+{_NAME}(?!\w|[./]\w)",
    re.IGNORECASE,
)
"""`rename X to Y` in its usual forms, for names without a dot. Parameters are names in one function."""
_EVERYWHERE = re.compile(
    r"\beverywhere\b|\b(?:all|every|each)\s+(?:\w+\s+)?(?:files?|uses?|usages?|callers?|occurrences?|places?|references?)\b"
    r"|\b(?:whole|entire)\s+(?:project|code ?base)\b|\bthroughout\b|\bwherever\b",
    re.IGNORECASE,
)
_USES = r"(?:files?|uses?|usages?|callers?|calls?|imports?|references?|occurrences?|places?|tests?|code)"
_NOTHING_MORE = re.compile(
    rf"\b(?:please|can|could|would|you|we|i|want|like|need|let'?s|now|just|the|everywhere|{_KINDS})\b"
    rf"|\b(?:and|also|then)?\s*(?:update|chang\w*|fix|adapt|adjust|correct|includ\w*|with|in|of|to|across|throughout)?\s+"
    rf"(?:(?:all|every|each|both|its|the|any|other|of)\s+)*(?:\w+\s+)?{_USES}"
    r"(?:\s+(?:of it|to it|that use it|that calls? it|where it is used|in the project|accordingly|too|as well))*\b"
    r"|\b(?:in|across|throughout)?\s*the\s+(?:whole|entire)?\s*(?:project|code ?base)\b"
    r"|\b(?:(?:wherever|where|in which)\s+)?(?:it|they)(?:'s|\s+is|\s+are)\s+(?:used|called|imported)\b"
    r"|\b(?:in|of|from)\s+[`\"']?[\w./]+\.\w+[`\"']?",
    re.IGNORECASE,
)
"""What a prompt may say beside the rename without asking for anything else."""
_TEXT = (".md", ".txt", ".rst", ".adoc")
_MAX_NAMED = 6


class Rename(Struct, frozen=True):
    """A name that the prompt wants to be replaced. `everywhere`: in texts, too. `is_all`: it wants nothing else."""

    old: str
    new: str
    everywhere: bool
    is_all: bool = False

    @property
    def is_certain(self) -> bool:
        """True if the old name is written like code, so that each place where it occurs means it."""
        return re.search(r"_|\d|[a-z][A-Z]|^[A-Z]+$", self.old) is not None

    @property
    def pattern(self) -> str:
        """The search for every place where the old name may be."""
        return rf"\b{self.old}\b"


def find_rename(prompt: str) -> Rename | None:
    """Return what the prompt renames, if it says so in so many words."""
    found = _RENAME.search(prompt)
    if found is None:
        return None
    old, new = [name for name in found.groups() if name]
    if old == new:
        return None
    rest = _NOTHING_MORE.sub(" ", f"{prompt[: found.start()]} . {prompt[found.end() :]}")
    return Rename(old, new, _EVERYWHERE.search(prompt) is not None, is_all=not re.search(r"\w", rest))


def replace_name(text: str, rename: Rename) -> str:
    return re.sub(_word_of(rename.old), rename.new, text)


def _word_of(name: str) -> str:
    return rf"(?<![\w$]){re.escape(name)}(?![\w$])"


# --- what a change has left out ---


def list_leftovers(
    rename: Rename, found: Iterable[FoundLine], named: Iterable[str], *, is_method: bool
) -> list[FoundLine]:
    """Return the lines that still use the old name. Files that the prompt names limit it, unless it says everywhere."""
    limits = () if rename.everywhere else tuple(named)
    word = re.compile(_word_of(rename.old))
    before = r"(?<![\w$])" if is_method else r"(?<![\w$.])"
    in_code = rf"{before}{re.escape(rename.old)}\s*\(|\b(?:import|require)\b.*{word.pattern}"
    use = word if rename.is_certain else re.compile(in_code)
    return [
        line
        for line in found
        if use.search(line.text)
        and (rename.everywhere or not line.path.endswith(_TEXT))
        and (not limits or line.path in limits)
    ]


def describe_leftovers(rename: Rename, leftovers: list[FoundLine]) -> str:
    places = ", ".join(f"{line.path}:{line.number}" for line in leftovers[:_MAX_NAMED])
    return f"{rename.old} still occurs in {places}. Change these files, too." if leftovers else ""


# --- a rename without the model ---

_PYTHON = (".py", ".pyi")
_BRACES = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".java", ".c", ".h", ".cpp", ".cs", ".kt")
_PYTHON_QUOTED = re.compile(
    r"#[^\n]*|(?P<prefix>\b[rRbBuUfF]{1,2})?(?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
)
_BRACES_QUOTED = re.compile(
    r"//[^\n]*|/\*[\s\S]*?\*/|(?P<prefix>)`(?:\\.|[^`\\])*`|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
)
_INSERTED = re.compile(r"\{[^{}]*\}")
"""Code in an f-string or a template."""


def rename_in_project(rename: Rename, files: Mapping[str, str], named: Collection[str]) -> dict[str, str] | None:
    """Return the new texts of the files that use the old name; None if some use may mean something else.

    `files` are all files that contain the old name, `named` those that the prompt names.
    """
    code = {path: text for path, text in files.items() if path.endswith((*_PYTHON, *_BRACES))}
    masks = {path: _mask_quoted(path, text) for path, text in code.items()}
    if any(re.search(_word_of(rename.new), mask) for mask in masks.values()):
        return None
    definers = [path for path, mask in masks.items() if _top_definition_of(rename.old).search(mask)]
    if len(definers) == 1:
        is_elsewhere = bool(named) and definers[0] not in named and not rename.everywhere
    else:
        is_limited = bool(named) and not is_method_name(rename.old, masks.values())
        is_elsewhere = not rename.everywhere and (bool(definers) or is_limited)
    if is_elsewhere or (len(definers) != 1 and not rename.is_certain):
        return None
    if not rename.is_certain and any(_is_ambiguous(rename.old, mask) for mask in masks.values()):
        return None
    return {path: new for path, text in files.items() if (new := _rename_in_file(rename, path, text, masks)) != text}


def _rename_in_file(rename: Rename, path: str, text: str, masks: Mapping[str, str]) -> str:
    if path not in masks:
        is_meant = rename.everywhere and path.endswith(_TEXT)
        return replace_name(text, rename) if is_meant and rename.is_certain else text
    if rename.is_certain:
        return replace_name(text, rename)
    spans = [found.span() for found in re.finditer(rf"(?<![\w$.]){re.escape(rename.old)}(?![\w$])", masks[path])]
    spans += [found.span(1) for found in _member_of(rename.old, masks).finditer(masks[path])]
    spans += _list_exports(rename.old, text)
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]}{rename.new}{text[end:]}"
    return text


def _top_definition_of(name: str) -> re.Pattern[str]:
    """Return the pattern of a definition that the whole project can use."""
    return re.compile(
        r"^(?:export\s+|default\s+|async\s+|pub\s+|abstract\s+)*"
        rf"(?:(?:def|class|function\*?|func|const|let|var|type|fn|struct|interface|enum)\s+{re.escape(name)}(?![\w$])"
        rf"|{re.escape(name)}\s*(?::[^=\n]+)?=(?!=))",
        re.MULTILINE,
    )


def is_method_name(name: str, texts: Iterable[str]) -> bool:
    return any(_inner_definition_of(name).search(text) for text in texts)


def _inner_definition_of(name: str) -> re.Pattern[str]:
    """Return the pattern of a method."""
    return re.compile(
        rf"^[ \t]+(?:async\s+|static\s+)*(?:def\s+{re.escape(name)}\b|{re.escape(name)}\s*\([^()]*\)\s*\{{)"
        rf"|^func\s+\([^)]*\)\s*{re.escape(name)}\(",
        re.MULTILINE,
    )


def _member_of(name: str, masks: Mapping[str, str]) -> re.Pattern[str]:
    """Return the pattern of uses through the module that defines a name: `checks.valid`."""
    definers = [path for path, mask in masks.items() if _top_definition_of(name).search(mask)]
    stems = "|".join(re.escape(path.rpartition("/")[2].partition(".")[0]) for path in definers)
    return re.compile(rf"(?<![\w$.])(?:{stems or '(?!)'})\.({re.escape(name)})(?![\w$])")


def _is_ambiguous(name: str, mask: str) -> bool:
    """True if something else may have the same name: a variable, a parameter, a key or a method."""
    word = _word_of(name)
    bound = (
        rf"(?:^|[^\S\n]|[(,])(?<!\.){word}\s*(?:[-+*/|&]?=(?!=)|:(?!:))|\bfor\s+[\w, ]*{word}[\w, ]*\s(?:in|of)\b"
        rf"|\b(?:as|lambda)\s+{word}|\bdef\s+\w+\([^)]*{word}|\bfunction\s*\w*\([^)]*{word}|\([^()]*{word}[^()]*\)\s*=>"
        rf"|^func\s.*\(.*{word}\s[^()]*\)|{word}\s*:="
    )
    rest = _top_definition_of(name).sub("", mask)
    return re.search(bound, rest, re.MULTILINE) is not None or is_method_name(name, (rest,))


def _list_exports(name: str, text: str) -> list[tuple[int, int]]:
    """Return where Python's `__all__` names a definition."""
    listed = re.search(r"^__all__\s*=\s*[\[(][^\])]*", text, re.MULTILINE)
    if listed is None:
        return []
    found = re.finditer(rf"(?<=[\"']){re.escape(name)}(?=[\"'])", listed[0])
    return [(listed.start() + match.start(), listed.start() + match.end()) for match in found]


def _mask_quoted(path: str, text: str) -> str:
    """Return code with spaces in the place of comments and strings; code inside of strings stays."""
    quoted = _PYTHON_QUOTED if path.endswith(_PYTHON) else _BRACES_QUOTED
    return quoted.sub(_mask_match, text)


def _mask_match(found: re.Match[str]) -> str:
    text = found[0]
    blank = re.sub(r"[^\n]", " ", text)
    prefix = found["prefix"]
    if prefix is None or (prefix and "f" not in prefix.casefold()):
        return blank
    for inserted in _INSERTED.finditer(text):
        blank = f"{blank[: inserted.start()]}{inserted[0]}{blank[inserted.end() :]}"
    return blank
