"""Renames across a project: what a prompt renames, where the old name is left, and the exact change if it is certain.

Small models lose places when they write several files again. If a prompt only renames something, and every place that
means it can be told from the text, Odin renames it without asking the model.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from odin.providers.whole_files.prompt_intent import TEXT_ENDINGS
from odin.providers.whole_files.turn_history import FoundLine

_NAME = r"(?!(?:it|them|this|that)\b)[`\"']?([A-Za-z_$][\w$]*)(?:\(\))?[`\"']?"
_KINDS = r"(?:function|method|class|constant|type|struct|interface|variable|helper|field|attribute|property|enum)"
_KIND = rf"(?:the\s+)?(?:(?:{_KINDS}|name of)\s+)*"
_PLACE = (
    r"(?:\s+\(?(?:in|of|from|on)\s+(?:the\s+)?(?:(?:file|class|module|struct|type|package)\s+)?[`\"']?[\w./]*\w[`\"']?\)?"
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
_RENAME_IT = re.compile(
    rf"\brename\s+it\s+(?:(?:to|into|as)\s+)?{_NAME}(?!\w|[./]\w)|\b(?:call|name)\s+it\s+{_NAME}(?!\w|[./]\w)(?:\s+instead)?"
    rf"|(?<![\w$]){_NAME}\s+(?:would\s+be|is)\s+(?:an?\s+)?(?:much\s+)?better(?:\s+name)?\b",
    re.IGNORECASE,
)
_ANTECEDENT = re.compile(
    rf"(?i:{_KINDS}\s+(?!name\b){_NAME}|\bname\s+{_NAME})|`([A-Za-z_$][\w$]*)(?:\(\))?`|\b([A-Za-z_$][\w$]*)\(\)"
    r"|\b([A-Za-z]\w*_\w+|[a-z]+[A-Z]\w*)\b|^(?:The\s+)?(?!(?:There|This|That|It|The)\b)([A-Za-z_$][\w$]*)\s+(?:in|is)\b"
)
"""The name that `it` means: `The name conv is too short. Rename it to convert.`"""
_PATH = re.compile(r"[`\"']?[\w./]*\w\.\w+[`\"']?")
_REASON = re.compile(
    r"\b(?:name[sd]?|short|long|unclear|confusing|misleading|bad|better|clear(?:er)?|descriptive|readable|meaningless)\b",
    re.IGNORECASE,
)
"""Why something is renamed."""
_EVERYWHERE = re.compile(
    r"\beverywhere\b|\b(?:all|every|each)\s+(?:\w+\s+)?(?:files?|uses?|usages?|callers?|occurrences?|places?|references?)\b"
    r"|\b(?:whole|entire)\s+(?:project|code ?base)\b|\bthroughout\b|\bwherever\b",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"a|accordingly|across|adapt|adjust|all|also|and|any|are|as|be|both|called|caller|"
    r"callers|calls|can|change|changing|code|codebase|correct|correctly|could|each|entire|"
    r"every|everything|everywhere|file|files|fix|from|i|import|imported|imports|in|include|"
    r"including|is|it|its|itself|just|let|lets|like|make|name|need|new|now|occurrence|"
    r"occurrences|of|old|other|place|places|please|project|reference|references|rename|"
    r"renaming|s|so|source|sure|test|tests|that|the|their|them|then|there|they|this|those|"
    r"throughout|to|too|update|updating|usage|usages|use|used|uses|want|we|well|where|wherever|"
    r"which|whole|with|would|you|accordingly|should|still|pass|passes|work|works|must|definition|consistently|on"
)
"""Words that a prompt may contain beside the rename without asking for anything else."""
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
    found = _RENAME.search(prompt) or _RENAME_IT.search(prompt)
    if found is None:
        return None
    before = _PATH.sub(" ", prompt[: found.start()])
    names = [name for name in found.groups() if name]
    if len(names) == 1:
        meant = {name for match in _ANTECEDENT.finditer(before) for name in match.groups() if name}
        names = [*meant, *names] if len(meant) == 1 and _REASON.search(prompt) else names
        before = ""
    if len(set(names)) != 2:
        return None
    old, new = names
    rest = f"{before} {_PATH.sub(' ', prompt[found.end() :])}"
    rest = re.sub(rf"\b(?:{_KINDS}|{re.escape(old)})\b", " ", rest)
    is_all = all(map(_FILLER.fullmatch, re.findall(r"\w+", rest.casefold())))
    return Rename(old, new, _EVERYWHERE.search(prompt) is not None, is_all)


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
        and (rename.everywhere or not line.path.endswith(TEXT_ENDINGS))
        and (not limits or line.path in limits)
    ]


def describe_leftovers(rename: Rename, leftovers: list[FoundLine]) -> str:
    places = ", ".join(f"{line.path}:{line.number}" for line in leftovers[:_MAX_NAMED])
    return f"{rename.old} still occurs in {places}. Change these files, too." if leftovers else ""


def limit_to_rename(old: str, new: str, rename: Rename) -> str:
    """Return the old text with the lines that the new one renames, and no other change."""
    written = {replace_name(line, rename).strip(): line.strip() for line in new.splitlines()}
    word = re.compile(_word_of(rename.old))
    lines = [
        line.replace(line.strip(), written.get(replace_name(line, rename).strip(), line.strip()))
        if word.search(line)
        else line
        for line in old.splitlines(keepends=True)
    ]
    return "".join(lines)


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
    definers = [path for path, mask in masks.items() if _top_definition_of(rename.old).search(mask)]
    is_limited = bool(named) and not rename.everywhere
    if any(re.search(_word_of(rename.new), mask) for mask in masks.values()):
        return None
    if is_limited and definers and definers[0] not in named:
        return None
    if not rename.is_certain:
        spans = _find_uses(rename.old, masks, definers)
        if spans is None:
            return None
        texts = {path: _replace_spans(code[path], found, rename.new) for path, found in spans.items()}
        texts = {path: _rename_in_comment(rename, text) for path, text in texts.items()}
    else:
        is_inner = bool(definers) or is_method_name(rename.old, masks.values())
        if not rename.everywhere and (len(definers) > 1 or (is_limited and not is_inner)):
            return None
        meant = [path for path in files if path in code or (rename.everywhere and path.endswith(TEXT_ENDINGS))]
        texts = {path: replace_name(files[path], rename) for path in meant}
    return {path: text for path, text in texts.items() if text != files[path]}


def _find_uses(name: str, masks: Mapping[str, str], definers: list[str]) -> dict[str, list[tuple[int, int]]] | None:
    """Return where files use a definition whose name is an ordinary word; None if that is not certain."""
    if not definers:
        return _find_method_uses(name, masks)
    if len(definers) > 1 or any(_is_ambiguous(name, mask) for mask in masks.values()):
        return None
    stem = re.escape(definers[0].rpartition("/")[2].partition(".")[0])
    use = re.compile(rf"(?<![\w$.])(?:{stem}\.)?(?P<name>{re.escape(name)})(?![\w$])")
    return {path: [found.span("name") for found in use.finditer(mask)] for path, mask in masks.items()}


def _find_method_uses(name: str, masks: Mapping[str, str]) -> dict[str, list[tuple[int, int]]] | None:
    """Return where files define and use a method; None if it is not the only one, or some object may be another's."""
    found = [(path, match) for path, mask in masks.items() for match in _inner_definition_of(name).finditer(mask)]
    if len(found) != 1:
        return None
    definer, definition = found[0]
    before = masks[definer][: definition.start()]
    owner = definition["owner"] or next(
        iter(re.findall(r"^(?:export\s+|default\s+)*class\s+(\w+)", before, re.M)[-1:]), ""
    )
    use = re.compile(rf"(?:(?P<object>[\w$]+)(?:\([^()]*\)|\[[^\[\]]*\])?\.)?(?<![\w$]){re.escape(name)}(?![\w$])")
    spans: dict[str, list[tuple[int, int]]] = {}
    for path, mask in masks.items():
        for match in use.finditer(mask):
            is_definition = path == definer and definition.start() <= match.start() < definition.end()
            if not is_definition and not _is_instance(match["object"], owner, mask, is_inside=path == definer):
                return None
            spans.setdefault(path, []).append((match.end() - len(name), match.end()))
    return spans


def _is_instance(name: str | None, owner: str, mask: str, *, is_inside: bool) -> bool:
    """True if a variable is certainly an object of a class: it is called like it, or made or declared as one."""
    if not name or not owner:
        return False
    if name in ("self", "this"):
        return is_inside
    made = r":?=\s*(?:await\s+)?(?:new\s+|&)?(?:\w+\.)?(?:New)?"
    declared = r":?\s*[*&]?(?:\w+\.)?"
    is_alike = len(name) > 2 and (
        owner.casefold().endswith(name.casefold()) or name.casefold().endswith(owner.casefold())
    )
    return is_alike or re.search(rf"(?<![\w$.]){re.escape(name)}\b\s*(?:{made}|{declared}){owner}\b", mask) is not None


def _replace_spans(text: str, spans: Iterable[tuple[int, int]], new: str) -> str:
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]}{new}{text[end:]}"
    return text


def _rename_in_comment(rename: Rename, text: str) -> str:
    """Rename in Go's comment above a definition, which starts with the name, and in Python's list of exports."""
    old = re.escape(rename.old)
    defined = rf"(?:func\s+(?:\([^)]*\)\s*)?|type\s+|const\s+|var\s+){re.escape(rename.new)}(?!\w)"
    text = re.sub(rf"^(//\s*){old}(?!\w)(?=.*\n(?://.*\n)*{defined})", rf"\g<1>{rename.new}", text, flags=re.M)
    exported = re.search(r"^__all__\s*=\s*[\[(][^\])]*", text, re.MULTILINE)
    if exported is None:
        return text
    return text.replace(exported[0], re.sub(rf"(?<=[\"']){old}(?=[\"'])", rename.new, exported[0]), 1)


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
        rf"|^func\s+\(\s*(?:\w+\s+)?\*?(?P<owner>\w+)[^)]*\)\s*{re.escape(name)}\(",
        re.MULTILINE,
    )


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
