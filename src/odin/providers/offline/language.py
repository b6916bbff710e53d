"""Phrase templates, quoted text, file types and locations in requests.

    [show|list] [me] the (files|folders) in {path}

`[…]` is optional, `(…|…)` a choice, `{name}` one word or one quoted text, and `files?` is file or files. Typed fields:
`{name:text}` any words, `{name:quoted}` a quoted text, `{name:number}`, and `{name:file}`, which also accepts "it",
"that file" and "the second one"; the others are next to their patterns below. A template is compiled only when a
request starts with one of its first words. Quoted text is set aside first, so that nothing inside a quote is parsed.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache

from msgspec import Struct

from odin.providers.offline.task import LAST_FILE, LAST_PLACE, LAST_TERM, PlannerTask, make_entry_ref

_OPEN, _CLOSE = "\ue000", "\ue001"
QUOTED = f"{_OPEN}\\d+{_CLOSE}"
"""Matches one quoted text in a protected request."""

_QUOTE_PAIRS = {'"': '"', "'": "'", "`": "`", "“": "”", "„": "“", "«": "»", "‘": "’"}
_APOSTROPHES = frozenset("'‘")
_PRIVATE_CHARS = "[\ue000-\ue0ff]"
_AFTER_QUOTE = r"[.,;:!?)\]}]*(?:\s|$)|,[\"'`“‘]|\s*(?:->|=>|→)"
"""What may follow a closing quote that could also be an apostrophe or a nested quote."""
_MAX_QUOTES = 100
_MAX_CLOSERS = 200


class QuotedRequest(Struct, frozen=True):
    """A request with its quoted texts set aside. `quoted` holds each text and how it was written."""

    text: str
    quoted: tuple[tuple[str, str], ...]

    def unquote(self, fragment: str) -> str:
        """Return a quoted text without its quotes, or the fragment as typed."""
        fragment = fragment.strip()
        whole = re.fullmatch(QUOTED, fragment)
        if whole:
            return self.quoted[int(fragment[1:-1])][0]
        return self.restore_quotes(fragment)

    def restore_quotes(self, fragment: str) -> str:
        """Return a fragment as typed, with its quotes."""
        return re.sub(QUOTED, lambda found: self.quoted[int(found.group()[1:-1])][1], fragment)


def protect_quotes(text: str) -> QuotedRequest:
    """Set the quoted texts aside. An unclosed quote is a plain character."""
    text = re.sub(_PRIVATE_CHARS, "", text)
    quoted: list[tuple[str, str]] = []
    out: list[str] = []
    unclosed: set[str] = set()
    index = 0
    while index < len(text):
        end = _find_quote_end(text, index, unclosed) if len(quoted) < _MAX_QUOTES else None
        if end is None:
            out.append(text[index])
            index += 1
            continue
        raw = text[index:end]
        quoted.append((_strip_quotes(raw), raw))
        out.append(f"{_OPEN}{len(quoted) - 1}{_CLOSE}")
        index = end
    return QuotedRequest("".join(out), tuple(quoted))


def _strip_quotes(raw: str) -> str:
    if not raw.startswith("```"):
        return raw[1:-1]
    first, newline, rest = raw[3:-3].partition("\n")
    return rest if newline and re.fullmatch(r"[\w.+-]*\s*", first) else raw[3:-3]


def _find_quote_end(text: str, start: int, unclosed: set[str]) -> int | None:
    """Return where the quote that opens at `start` ends, or None if none opens there."""
    char = text[start]
    if text.startswith("```", start) and "```" not in unclosed:
        fence = text.find("```", start + 3)
        if fence >= 0:
            return fence + 3
        unclosed.add("```")
    closer = _QUOTE_PAIRS.get(char)
    if closer is None or char in unclosed:
        return None
    if char in _APOSTROPHES and start > 0 and not (text[start - 1].isspace() or text[start - 1] in "([{=:,>→"):
        return None
    end = _find_closer(text, start + 1, closer)
    if end is None:
        unclosed.add(char)
        return None
    return end + 1 if end > start + 1 or char not in _APOSTROPHES or _is_empty_quote(text, end) else None


def _is_empty_quote(text: str, end: int) -> bool:
    return end + 1 == len(text) or text[end + 1].isspace()


def _find_closer(text: str, start: int, closer: str) -> int | None:
    after = re.compile(_AFTER_QUOTE)
    first = at = text.find(closer, start)
    for _ in range(_MAX_CLOSERS):
        if at < 0:
            break
        if closer in "`”»“" or after.match(text, at + 1):
            return at
        at = text.find(closer, at + 1)
    return first if first >= 0 and closer == '"' else None


FILE_TYPES: dict[str, str] = {
    "python": "py pyi",
    "javascript": "js mjs cjs jsx",
    "js": "js mjs cjs jsx",
    "typescript": "ts tsx",
    "ts": "ts tsx",
    "markdown": "md",
    "rust": "rs",
    "go": "go",
    "golang": "go",
    "java": "java",
    "kotlin": "kt kts",
    "ruby": "rb",
    "php": "php",
    "c": "c h",
    "c++": "cpp hpp cc hh h",
    "cpp": "cpp hpp cc hh h",
    "c#": "cs",
    "csharp": "cs",
    "swift": "swift",
    "scala": "scala",
    "lua": "lua",
    "perl": "pl pm",
    "shell": "sh bash zsh",
    "bash": "sh bash",
    "yaml": "yaml yml",
    "json": "json",
    "toml": "toml",
    "xml": "xml",
    "html": "html htm",
    "css": "css scss",
    "sql": "sql",
    "text": "txt",
    "csv": "csv",
    "image": "png jpg jpeg gif svg webp",
}
"""Names of file types and their suffixes."""

TEST_GLOBS = ("**/test_*", "**/*_test.*", "**/*.test.*", "**/*.spec.*", "**/*Test.*")
CONFIG_GLOBS = ("**/*config*", "**/*.toml", "**/*.ini", "**/*.cfg", "**/*.yaml", "**/*.yml")

_MORE_EXTENSIONS = (
    "rst lock cfg ini conf env log ex exs erl hs ml clj dart r jl vue svelte gradle proto tf ipynb patch diff bat "
    "ps1 mk "
    "adoc org tex bib sass less cmake jsonl tsv pdf zip gz"
)
_EXTENSIONS = frozenset([*" ".join(FILE_TYPES.values()).split(), *_MORE_EXTENSIONS.split()])
_KNOWN_NAMES = (
    "makefile dockerfile license readme changelog contributing gemfile rakefile procfile justfile authors "
    "codeowners notice"
)
_FILE_NAMES = frozenset(_KNOWN_NAMES.split())
_PROGRAMS = (
    "ls make npm npx yarn pnpm bun git python python3 pytest tox nox uv pip pip3 poetry hatch cargo rustc go docker "
    "podman "
    "kubectl terraform echo cat pwd whoami date uname env which wc head tail sort uniq grep rg find sed awk diff du "
    "df ps "
    "curl wget node deno ruby rake bundle java javac mvn gradle gradlew dotnet php composer perl lua bash sh zsh "
    "cmake ctest "
    "ninja gcc g++ clang ruff mypy pyright black isort flake8 eslint prettier tsc jest vitest mkdir rmdir rm mv cp "
    "touch "
    "chmod chown ln tar zip unzip gzip kill true false sleep test printf tree file stat basename dirname realpath "
    "hostname "
    "gh just task pre-commit coverage odin"
)
COMMANDS = frozenset(_PROGRAMS.split())
"""First words that make an unquoted request a command."""


def is_path_like(word: str) -> bool:
    """True if a bare word is more likely a path than an English word."""
    if not word or word in ("/", "and/or", "either/or") or re.search(r"\s|[()<>\"'|=;]", word):
        return False
    if "/" in word:
        return True
    if re.fullmatch(r"\.[A-Za-z][\w.-]*", word) or word.lower() in _FILE_NAMES:
        return True
    stem, dot, ending = word.rpartition(".")
    return bool(dot and stem and ending.lower() in _EXTENSIONS)


def is_file_like(path: str) -> bool:
    """True if a path most likely names a file rather than a folder."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    if path.endswith("/") or name in (".", "..", ""):
        return False
    return name.lower() in _FILE_NAMES or bool(re.search(r"[^.]\.[A-Za-z]\w*$", name))


def extensions_of(word: str) -> tuple[str, ...]:
    """Return the suffixes of a file type: "python" → py, pyi; ".md" and "*.md" → md."""
    word = word.lower()
    if word in FILE_TYPES:
        return tuple(FILE_TYPES[word].split())
    bare = re.fullmatch(r"\*?\.([a-z0-9]+)", word)
    if bare:
        return (bare[1],)
    return (word,) if word in _EXTENSIONS else ()


def to_singular(word: str) -> str:
    """Return TODO for TODOs: the singular of a marker in capitals."""
    return (
        word[:-1] if re.fullmatch(r"[A-Z][A-Z_0-9]+'?s", word) and not word.endswith("'s") else word.removesuffix("'s")
    )


_WORD_PATTERN = rf"(?:{QUOTED}|[^\s,;]+)"
_PRONOUN_PATTERN = r"(?:it|that|this|(?:that|this|the|the same|the last) (?:file|one|script))"
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "last": -1, "top": 1}
_ITEM_PATTERN = r"(?:one|result|match|hit|file|entry|of them|of those)"
_ENTRY_PATTERN = (
    rf"(?:the )?(?:{'|'.join(_ORDINALS)}|\d+(?:st|nd|rd|th)) {_ITEM_PATTERN}|(?:{_ITEM_PATTERN} |number )#?\d+|#\d+"
)
_NUMBERS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}
_FIELD_PATTERNS = {
    "": _WORD_PATTERN,
    "text": ".+?",
    "quoted": QUOTED,
    "number": rf"\d+|{'|'.join(_NUMBERS)}",
    "noun": r"(?:text )?(?:file|script|document|module|page)",
    "place": r"(?:in|inside|under|across|within|throughout) .+",
    "flags": r"-[\w-]+(?: -[\w-]+)*",
    "uses": r"(?:uses?|usages?|occurrences?|references?|mentions?|matches|callers|calls) (?:of|to|for) .+",
    "file": rf"{_PRONOUN_PATTERN}|{_ENTRY_PATTERN}|{_WORD_PATTERN}",
}


class PhraseMatch(Struct, frozen=True):
    """The fields a template found in a clause."""

    clause: str
    words: QuotedRequest
    fields: dict[str, str]

    def __getitem__(self, name: str) -> str:
        """Return a field without its quotes; "" if it was omitted."""
        return self.words.unquote(self.fields.get(name, ""))

    def get_raw(self, name: str) -> str:
        return self.fields.get(name, "")

    def is_quoted(self, name: str) -> bool:
        return re.fullmatch(QUOTED, self.get_raw(name)) is not None

    def parse_number(self, name: str) -> int:
        word = self.get_raw(name).lower()
        return _NUMBERS.get(word) or int(word[:7] or 0)

    def get_path(self, name: str = "path") -> str:
        """Return the path in a field, keeping "it" and "the second one" as references."""
        word = self.get_raw(name)
        if re.fullmatch(_PRONOUN_PATTERN, word, re.IGNORECASE):
            return LAST_FILE
        if re.fullmatch(_ENTRY_PATTERN, word, re.IGNORECASE):
            digits = re.search(r"\d+", word)
            named = next((at for ordinal, at in _ORDINALS.items() if ordinal in word.lower().split()), 0)
            return make_entry_ref(int(digits[0][:4]) if digits else named)
        return self.words.unquote(word)


TaskMaker = Callable[[PhraseMatch], PlannerTask | None]


class PhraseRule(Struct, frozen=True):
    """Templates with the same meaning, and the function that makes a task of them; None declines."""

    make: PlannerTask | TaskMaker
    templates: tuple[str, ...]


def make_rule(make: PlannerTask | TaskMaker, *templates: str) -> PhraseRule:
    return PhraseRule(make, templates)


class PhraseTable:
    """Rules in order of precedence, indexed by the first word of a clause."""

    def __init__(self, *rules: PhraseRule) -> None:
        self._rules = rules
        self._index: dict[str, list[tuple[str, PlannerTask | TaskMaker]]] = {}

    def __call__(self, clause: str, words: QuotedRequest) -> PlannerTask | None:
        if not self._index:
            self._fill_index()
        first = clause.split(maxsplit=1)[0].lower() if clause.strip() else ""
        for template, make in self._index.get(first, self._index[""]):
            found = compile_template(template).fullmatch(f" {clause}")
            if not found:
                continue
            fields = {name: value for name, value in found.groupdict().items() if value}
            task = make if isinstance(make, PlannerTask) else make(PhraseMatch(clause, words, fields))
            if task is not None:
                return task
        return None

    def _fill_index(self) -> None:
        """Index the templates by first word; "" lists those that accept any word."""
        rows = [(template, one.make, first_words_of(template)) for one in self._rules for template in one.templates]
        words = {word for _, _, starts in rows for word in starts} | {""}
        for word in words:
            self._index[word] = [(template, make) for template, make, starts in rows if starts & {word, ""}]


@cache
def compile_template(template: str) -> re.Pattern[str]:
    pattern = "".join(_render_node(node) for node in _parse_template(template))
    return re.compile(pattern, re.IGNORECASE)


@cache
def first_words_of(template: str) -> frozenset[str]:
    """Return the words a matching clause can start with; "" stands for any word."""
    return frozenset(_first_words_of_nodes(_parse_template(template))[0])


TemplateNode = tuple[str, str, "list[list[TemplateNode]]"]
"""A word, a typed field, or a choice with its alternatives."""


def _parse_template(template: str) -> list[TemplateNode]:
    tokens = iter(re.findall(r"\{[^}]*\}|[\[\]()|]|[^\s\[\](){}|]+", template))
    return _parse_alternatives(tokens)[0]


def _parse_alternatives(tokens: Iterator[str]) -> list[list[TemplateNode]]:
    """Return the alternatives up to the closing bracket."""
    ways: list[list[TemplateNode]] = [[]]
    for token in tokens:
        if token in "])":
            break
        if token == "|":
            ways.append([])
        elif token in "[(":
            ways[-1].append(("optional" if token == "[" else "choice", "", _parse_alternatives(tokens)))
        elif token.startswith("{"):
            ways[-1].append(("field", token[1:-1], []))
        else:
            ways[-1].append(("word", token, []))
    return ways


def _render_node(node: TemplateNode) -> str:
    kind, text, ways = node
    if kind == "word":
        return " " + re.escape(text).replace(r"\?", "?")
    if kind == "field":
        name, _, sort = text.partition(":")
        return f" (?P<{name}>{_FIELD_PATTERNS[sort]})"
    inside = "|".join("".join(_render_node(part) for part in way) for way in ways)
    return f"(?:{inside}){'?' if kind == 'optional' else ''}"


def _first_words_of_nodes(nodes: list[TemplateNode]) -> tuple[set[str], bool]:
    """Return the first words of a sequence, and whether all of it is optional."""
    found: set[str] = set()
    for kind, text, ways in nodes:
        if kind == "field":
            return found | {""}, False
        if kind == "word":
            bare = re.sub(r".\?", "", text)
            return found | {bare.lower(), text.replace("?", "").lower()}, False
        skippable = kind == "optional"
        for way in ways:
            starts, empty = _first_words_of_nodes(way)
            found |= starts
            skippable = skippable or empty
        if not skippable:
            return found, False
    return found, True


_IN_WORDS = r"(?:in|inside|within|under|across|from|throughout|through|over)"
_PROJECT_WORDS = (
    r"(?:the|this|my|our|your) (?:whole |entire |current |complete |source )?"
    r"(?:project|repo|repository|code ?base|code|workspace|tree|working directory|directory|folder)"
)
_ALL_FILES = r"(?:all|every|any|each)(?: (?:of|the|my|our|project|source))* files?"
_EVERYWHERE = (
    r",? ?\b(?:everywhere|anywhere|globally|recursively|"
    rf"{_IN_WORDS} (?:{_PROJECT_WORDS}|{_ALL_FILES}|here|everything))$"
)
_KIND_PATTERN = (
    rf"(?:^| )(?:{_IN_WORDS}|for|among) (?:(?:all|any|every|the|my|our) )*(?P<kind>[\w.*+#]+)[ -]"
    r"(?:source |code )?(?:files?|sources?|modules?|scripts?|code)$"
)
_GLOB_PATTERN = rf"(?:^| ){_IN_WORDS} (?:all )?(?P<glob>[\w./-]*\*[\w./*-]*)$"
_BACK_REFERENCE = (
    rf"(?:^| ){_IN_WORDS} (?:it|that|this|there|them|"
    r"(?:that|this|the same|the last) (?:file|folder|directory|place|one))$"
)
_THING = r"(?:file|folder|directory|dir|subfolder|module|package|tree)"
_PLACE_PATTERN = rf"(?:^| ){_IN_WORDS} (?:(?:the|my|our) )?(?:{_THING} )?(?P<place>{QUOTED}|[^\s,;]+)(?: {_THING})?$"


class PlaceScope(Struct, frozen=True):
    """The location in a request; `rest` is the request without it."""

    rest: str
    path: str = ""
    globs: tuple[str, ...] = ()
    everywhere: bool = False

    @property
    def is_given(self) -> bool:
        return bool(self.path or self.globs or self.everywhere)


def cut_scope(text: str, words: QuotedRequest) -> PlaceScope:
    """Cut the location off the end of a request: a file type, a folder, or both."""
    scope = PlaceScope(text.strip())
    for _ in range(3):
        shorter = _cut_once(scope, words)
        if shorter is None:
            break
        scope = shorter
    return scope


def _cut_once(scope: PlaceScope, words: QuotedRequest) -> PlaceScope | None:
    text = scope.rest
    found = re.search(_EVERYWHERE, text, re.IGNORECASE)
    if found:
        return PlaceScope(text[: found.start()].rstrip(" ,"), scope.path, scope.globs, True)
    globs, start = ((), 0) if scope.globs else _find_kind_at_end(text)
    if globs:
        return PlaceScope(text[:start].rstrip(), scope.path, globs, scope.everywhere)
    if scope.path:
        return None
    found = re.search(_BACK_REFERENCE, text, re.IGNORECASE)
    if found:
        path = LAST_FILE if text.lower().endswith("file") else LAST_PLACE
        return PlaceScope(text[: found.start()].rstrip(), path, scope.globs, scope.everywhere)
    found = re.search(_PLACE_PATTERN, text, re.IGNORECASE)
    if found:
        return PlaceScope(text[: found.start()].rstrip(), words.unquote(found["place"]), scope.globs, scope.everywhere)
    return None


def _find_kind_at_end(text: str) -> tuple[tuple[str, ...], int]:
    """Return the globs of "in python files" or "in *.py" at the end, and where that starts."""
    found = re.search(_KIND_PATTERN, text, re.IGNORECASE)
    if found:
        if found["kind"].lower() in ("test", "tests"):
            return TEST_GLOBS, found.start()
        return tuple(f"**/*.{ending}" for ending in extensions_of(found["kind"])), found.start()
    found = re.search(_GLOB_PATTERN, text)
    return ((found["glob"],), found.start()) if found else ((), 0)


_BEFORE_A_TERM = (
    ("", r"(?:all|any|every|each|both|the|of|for|single) "),
    ("word", r"(?:uses?|usages?|references?|calls?|callers?) (?:of|to|for) "),
    ("", r"(?:number of) "),
    ("", r"(?:occurrences?|instances?|mentions?|appearances?|matches|lines?) (?:of|to|for|with|containing) "),
    (
        "",
        r"(?:words?|strings?|texts?|phrases?|terms?|symbols?|functions?|methods?|variables?|identifiers?|constants?) ",
    ),
    ("regex", r"(?:regexp?|regular expression|pattern) "),
    ("", r"(?:named|called) "),
)
"""Words around a search term that are not part of it, and what they mean for the search."""


def clean_term(text: str, words: QuotedRequest) -> tuple[str, str]:
    """Return the bare term of "all uses of the function 'foo'", and how to match it: "word", "regex" or ""."""
    variant = ""
    fragment = text.strip()
    if re.fullmatch(r"all|(?:the|that|this|those|these) (?:term|word|text|match|matches|ones?|hits?)", fragment, re.I):
        return LAST_TERM, variant
    for _ in range(6):
        before = fragment
        for meant, pattern in _BEFORE_A_TERM:
            found = re.match(rf"{pattern}(?=\S)", fragment, re.IGNORECASE)
            if found:
                fragment = fragment[found.end() :]
                variant = meant or variant
        if fragment == before:
            break
    if re.fullmatch(r"(?:it|them|those|these)(?: all)?|that|this", fragment, re.IGNORECASE):
        return LAST_TERM, variant
    quoted = re.fullmatch(rf"({QUOTED})(?: (?:comments?|markers?|calls?|uses|lines?))?", fragment, re.IGNORECASE)
    if quoted:
        return words.unquote(quoted[1]), variant
    marker = re.fullmatch(r"([A-Z_]{2,}s?) (?:comments?|markers?|notes?|tags?)", fragment)
    return to_singular(marker[1] if marker else words.unquote(fragment)), variant
