"""Renames across a project: what a prompt renames, where the old name is left, and the exact change if it is certain.

Small models lose places when they write several files again. If a prompt only renames something, and every place that
means it can be told from the text, Odin renames it without asking the model.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from odin.providers.whole_files.file_outline import CODE
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
    r"\b(?:name[sd]?|short|long|unclear|confusing|misleading|bad|better|clearer|descriptive|readable|meaningless)\b",
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
        return re.search(r"[^\W_]_|\d|[a-z][A-Z]", self.old) is not None

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
        is_better = re.search(r"\bbetter\b", found[0], re.IGNORECASE) is not None
        reason = re.search(r"\bname[ds]?\b", before, re.IGNORECASE) if is_better else _REASON.search(before)
        is_order = re.match(r"rename", found[0], re.IGNORECASE) is not None
        names = [*meant, *names] if len(meant) == 1 and (reason or is_order) else names
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
_PYTHON_QUOTED = re.compile(
    r"(?P<remark>#[^\n]*|\"\"\"[\s\S]*?\"\"\"|\'\'\'[\s\S]*?\'\'\')"
    r"|(?P<prefix>\b[rRbBuUfF]{1,2})?(?:\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
)
_BRACES_QUOTED = re.compile(
    r"(?P<remark>//[^\n]*|/\*[\s\S]*?\*/)|(?P<prefix>)`(?:\\.|[^`\\])*`|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
)
_INSERTED = re.compile(r"\{[^{}]*\}")
"""Code in an f-string or a template."""
_CALLED_BY_OTHERS = re.compile(r"String|Error|Len|Less|Swap|Read|Write|Close|ServeHTTP|MarshalJSON|Scan|Next|run")
"""Methods that a library calls by their name."""
_DATA = (".csv", ".tsv", ".log", ".lock", ".jsonl")
_MAX_CHARS = 200_000
_MAX_LINE = 2_000

Spans = dict[str, list[tuple[int, int]]]


def rename_in_project(rename: Rename, files: Mapping[str, str], named: Collection[str]) -> dict[str, str] | None:
    """Return the new texts of the files that use the old name; None if some use may mean something else.

    `files` are all files that contain the old name, `named` those that the prompt names.
    """
    code = {path: text for path, text in files.items() if path.endswith(CODE) and not path.endswith(".rb")}
    if any(len(text) > _MAX_CHARS or max(map(len, text.split("\n"))) > _MAX_LINE for text in files.values()):
        return None
    uses = _NameUses(rename, code)
    spans = uses.find_uses(named)
    if spans is None:
        return None
    texts = {path: _replace_spans(code[path], found, rename.new) for path, found in spans.items()}
    texts = {path: _rename_in_remarks(rename, path, text) for path, text in texts.items()}
    others = [path for path in files if path not in code and not path.endswith(_DATA)]
    if rename.is_certain and rename.everywhere:
        texts.update({path: replace_name(files[path], rename) for path in others})
    elif rename.is_certain and not all(path.endswith(TEXT_ENDINGS) for path in others):
        return None
    return {path: text for path, text in texts.items() if text != files[path]}


class _NameUses:
    """The uses of a name in the code of a project. `masks` are the texts without strings and comments."""

    def __init__(self, rename: Rename, code: Mapping[str, str]) -> None:
        self.rename = rename
        self.name = re.escape(rename.old)
        self.code = code
        self.masks = {path: _mask_quoted(path, text) for path, text in code.items()}
        self.definers = [path for path, mask in self.masks.items() if _top_definition_of(rename.old).search(mask)]

    def find_uses(self, named: Collection[str]) -> Spans | None:
        rename, definers = self.rename, self.definers
        if any(re.search(_word_of(rename.new), mask) for mask in self.masks.values()):
            return None
        if named and not rename.everywhere and definers and definers[0] not in named:
            return None
        if rename.is_certain and rename.everywhere and (len(definers) > 1 or not self._has_definition()):
            spans: Spans | None = {path: self._find_words(path) for path in self.code}
        elif len(definers) == 1:
            spans = self._find_top_uses(definers[0])
        else:
            spans = None if definers else self._find_method_uses()
        if spans is None or any(self._is_quoted(path, spans) for path in self.code):
            return None
        return spans

    def _has_definition(self) -> bool:
        return bool(self.definers) or is_method_name(self.rename.old, self.masks.values())

    def _find_words(self, path: str) -> list[tuple[int, int]]:
        return [found.span() for found in re.finditer(_word_of(self.rename.old), self.masks[path])]

    def _find_top_uses(self, definer: str) -> Spans | None:
        """Return the uses of what one file defines for all; None if another thing may have the same name."""
        stem = definer.rpartition("/")[2].partition(".")[0]
        use = re.compile(rf"(?<![\w$.])(?:{re.escape(stem)}\.)?(?P<name>{self.name})(?![\w$])")
        for path, mask in self.masks.items():
            text = self.code[path]
            if _is_ambiguous(self.rename.old, mask) or _is_imported_elsewhere(self.name, text, definer):
                return None
            members = re.findall(rf"([\w$]+|[)\]])\s*\.\s*{self.name}(?![\w$])", mask)
            if any(one != stem and (one in ")]" or _is_imported(one, text)) for one in members):
                return None
        return {path: [found.span("name") for found in use.finditer(mask)] for path, mask in self.masks.items()}

    def _find_method_uses(self) -> Spans | None:
        """Return where files define and use a method; None if it is not the only one, or some object is another's."""
        found = [
            (path, match)
            for path, mask in self.masks.items()
            for match in _inner_definition_of(self.rename.old).finditer(mask)
        ]
        if len(found) != 1 or _CALLED_BY_OTHERS.fullmatch(self.rename.old):
            return None
        definer, definition = found[0]
        owner = definition["owner"] or _find_class(self.masks[definer], definition.start())
        if not owner or re.search(
            rf"^(?:export\s+|default\s+)*class\s+{owner}\s*(?:\([^)\s]|extends)", self.masks[definer], re.M
        ):
            return None
        use = re.compile(
            rf"(?:(?P<object>[\w$]+)(?:\([^()]{{0,200}}\)|\[[^\[\]]{{0,200}}\])?\.)?(?<![\w$]){self.name}(?![\w$])"
        )
        spans: Spans = {}
        for path, mask in self.masks.items():
            for match in use.finditer(mask):
                is_definition = path == definer and definition.start() <= match.start() < definition.end()
                inside = path == definer and _find_class(mask, match.start()) in (owner, "")
                if not is_definition and not self._is_meant(match["object"], owner, path, is_inside=inside):
                    return None
                spans.setdefault(path, []).append((match.end() - len(self.rename.old), match.end()))
        return spans

    def _is_meant(self, variable: str | None, owner: str, path: str, *, is_inside: bool) -> bool:
        """True if a method is called on an object of the class. A name like code is hardly that of another method."""
        if not variable or _is_imported(variable, self.code[path]):
            return False
        if variable in ("self", "this"):
            return is_inside
        return self.rename.is_certain or _is_instance(variable, owner, self.masks[path])

    def _is_quoted(self, path: str, spans: Spans) -> bool:
        """True if a string may mean the name: one with exactly it, or any if the name is written like code."""
        rest = _replace_spans(self.code[path], spans.get(path, ()), self.rename.new)
        pattern = _PYTHON_QUOTED if path.endswith(_PYTHON) else _BRACES_QUOTED
        strings = [found[0] for found in pattern.finditer(rest) if found["remark"] is None]
        exported = re.search(r"^__all__\s*=\s*[\[(][^\])]*", rest, re.MULTILINE)
        strings = [one for one in strings if not (exported and one in exported[0])]
        if self.rename.is_certain:
            return not self.rename.everywhere and any(re.search(_word_of(self.rename.old), one) for one in strings)
        alone = re.compile(rf"[rbu]?[\"'`](?:[\w.]*\.)?{self.name}[\"'`]")
        return any(alone.fullmatch(one) or re.search(rf"\{{.*(?<![\w$.]){self.name}\s*\(", one) for one in strings)


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


def _find_class(mask: str, at: int) -> str:
    """Return the class around a place in Python or JavaScript, or ""."""
    found = re.findall(r"^(?:export\s+|default\s+)*(?:class\s+(\w+)|(?:def|function|func)\b)", mask[:at], re.MULTILINE)
    return found[-1] if found else ""


def _is_imported(name: str, text: str) -> bool:
    """True if a name stands for a module, or comes from one."""
    word = re.escape(name)
    return (
        re.search(
            rf"^\s*(?:from\s+\S+\s+)?import\b.*(?<![\w$]){word}(?![\w$])|(?<![\w$]){word}\s*=\s*require\("
            rf"|^\s*(?:{word}\s+)?\"(?:[^\"\n]*/)?{word}\"\s*$|^\s*(?:import\s+)?{word}\s+\"[^\"\n]+\"\s*$",
            text,
            re.MULTILINE,
        )
        is not None
    )


def _is_imported_elsewhere(name: str, text: str, definer: str) -> bool:
    """True if a file imports the same name from elsewhere."""
    stem = re.escape(definer.rpartition("/")[2].partition(".")[0])
    stem = stem if stem != "__init__" else re.escape(definer.split("/")[-2])
    sources = re.findall(rf"^\s*from\s+(\S+)\s+import\b[^\n]*(?<![\w$]){name}(?![\w$])", text, re.MULTILINE)
    sources += re.findall(rf"\{{[^{{}}]*(?<![\w$]){name}(?![\w$])[^{{}}]*\}}\s*(?:=|from)\s*([^;\n]+)", text)
    return any(re.search(rf"(?<![\w-]){stem}(?:\.\w+)?[\"')]*\s*;?$", source.strip()) is None for source in sources)


def _is_ambiguous(name: str, mask: str) -> bool:
    """True if something else may have the same name: a variable, a parameter, a key, a field or a method."""
    word = _word_of(name)
    bound = (
        rf"(?:^|[^\S\n]|[(,])(?<!\.){word}\s*(?:[-+*/|&]?=(?!=)|:(?!:))|\bfor\s+[^\n:]{{0,80}}?{word}[^\n:]{{0,80}}?\s(?:in|of)\b"
        rf"|\b(?:as|lambda)\s+{word}|\bdef\s+\w+\([^)]{{0,400}}?{word}|\bfunction\s*\w*\([^)]{{0,400}}?{word}"
        rf"|\([^()]{{0,400}}?{word}[^()]{{0,400}}?\)\s*=[>\s]|^func\s.*\(.*{word}\s[^()]*\)|{word}\s*(?::=|,[^\n]{{0,80}}:=)"
        rf"|^\s+{word}\s+[\w\[\]*.]+\s*$|{word}\s+as\s"
    )
    rest = _top_definition_of(name).sub("", mask)
    return re.search(bound, rest, re.MULTILINE) is not None or is_method_name(name, (rest,))


def _is_instance(name: str, owner: str, mask: str) -> bool:
    """True if a variable is certainly an object of a class: it is called like it, or made or declared as one."""
    variable = rf"(?<![\w$.]){re.escape(name)}\b\s*"
    of_class = rf"(?:await\s+)?(?:new\s+|&)?(?:\w+\.)?(?:New)?{owner}\b"
    made = re.findall(rf"{variable}:?=(?!=)\s*(.{{0,80}})", mask)
    if made:
        return all(re.match(of_class, value) for value in made)
    is_alike = len(name) > 2 and (
        owner.casefold().endswith(name.casefold()) or name.casefold().endswith(owner.casefold())
    )
    return is_alike or re.search(rf"{variable}:?\s*[*&]?(?:\w+\.)?{owner}\b", mask) is not None


def _replace_spans(text: str, spans: Iterable[tuple[int, int]], new: str) -> str:
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]}{new}{text[end:]}"
    return text


def _rename_in_remarks(rename: Rename, path: str, text: str) -> str:
    """Rename in comments and docstrings if the name is written like code, else only where they certainly mean it."""
    if rename.is_certain:
        pattern = _PYTHON_QUOTED if path.endswith(_PYTHON) else _BRACES_QUOTED
        return pattern.sub(
            lambda found: replace_name(found[0], rename) if rename.everywhere or found["remark"] else found[0], text
        )
    old = re.escape(rename.old)
    defined = rf"(?:func\s+(?:\([^)]*\)\s*)?|type\s+|const\s+|var\s+){re.escape(rename.new)}(?!\w)"
    if path.endswith(".go") and (found := re.search(rf"^(?://.*\n)+(?={defined})", text, re.MULTILINE)):
        told = re.sub(rf"^(//\s*){old}(?!\w)", rf"\g<1>{rename.new}", found[0], count=1, flags=re.MULTILINE)
        text = f"{text[: found.start()]}{told}{text[found.end() :]}"
    exported = re.search(r"^__all__\s*=\s*[\[(][^\])]*", text, re.MULTILINE)
    if exported is None:
        return text
    return text.replace(exported[0], re.sub(rf"(?<=[\"']){old}(?=[\"'])", rename.new, exported[0]), 1)


def _mask_quoted(path: str, text: str) -> str:
    """Return code with spaces in the place of comments and strings; code inside of strings stays."""
    quoted = _PYTHON_QUOTED if path.endswith(_PYTHON) else _BRACES_QUOTED
    return quoted.sub(_mask_match, text)


def _mask_match(found: re.Match[str]) -> str:
    text = found[0]
    blank = re.sub(r"[^\n]", " ", text)
    prefix = found["prefix"]
    if found["remark"] is not None or prefix is None or (prefix and "f" not in prefix.casefold()):
        return blank
    for inserted in _INSERTED.finditer(text):
        blank = f"{blank[: inserted.start()]}{inserted[0]}{blank[inserted.end() :]}"
    return blank
