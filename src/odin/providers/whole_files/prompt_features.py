"""What a prompt for a small model names: files, names in code, a command, the tests.

It decides what Odin looks up and runs. What is to be done is for the model to say: only a question mark at the end is
certain, then no file is changed.
"""

import re
from collections.abc import Collection

from msgspec import Struct

from odin.core.path_names import quote_path
from odin.providers.whole_files.project_tests import PYTEST, is_test

_MAX_TERMS = 3
_MAX_START = 4_000
_MAX_END = 2_000

_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|(?<!\w)'([^'\n]{2,80})'(?!\w)")

# --- names ---

_IDENTIFIER = re.compile(
    r"\b(?:[a-zA-Z]\w*_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|[A-Z][A-Z0-9]{2,}\b|[A-Za-z_]\w*(?=\())\b"
)
"""Words that are written like code: snake_case, camelCase, PascalCase, CONSTANT, call()."""
_NAME_AFTER = re.compile(
    r"\b(?:class|function|method|constant|variable|type|struct|interface|decorator|key|setting|field|word)"
    r"\s+([A-Za-z_]\w+)"
)
_NAME_BEFORE = re.compile(r"\b([A-Za-z_]\w+)\s+(?:class|function|method|constant|variable|comments?)\b")
_CAPITALIZED = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+\w*\b")
_COUNTED_NAME = re.compile(
    r"\b(?:times|often)\s+(?:is|are|does|do|has|was)\s+(?:the\s+)?(?:(?:word|function|method|string|name)\s+)?(\w+)"
    r"|\b(?:files|modules|functions|places|lines|who|that|which)\s+(?:import|use|call|contain|mention)s?\s+(?:the\s+)?(\w+)"
    r"|\b([A-Z]{3,})s\b"
)
"""A word that is counted or searched: `how often is print called`, `files import slugify`, `TODOs`."""
_TERMS = (_IDENTIFIER, _COUNTED_NAME, _NAME_AFTER, _NAME_BEFORE, _CAPITALIZED)
"""Kinds of words that are names in code, the most telling first."""
_COMMON = re.compile(
    r"README|JSON|YAML|TOML|HTML|CSS|HTTP|API|CLI|Python|JavaScript|TypeScript|Go|Git|Markdown|an?|the|this|that|these"
    r"|those|each|every|both|all|any|one|no|new|same|first|second|last|single|small|main|tests?|which|what|python|named"
    r"|called|helper|its|and|or|in|is|of|to|for|with|from",
    re.IGNORECASE,
)
_FOLDER = re.compile(r"\b([\w@+-][\w@+./-]*?)/?\s+(?:folder|directory)\b")
_PATH = re.compile(
    r"(?<![\w/.*-])(?:\./)?(?!(?:e\.g|i\.e)\b)((?:\.?[\w@+-][\w@.+-]*/)*[\w@+-]*\.?[\w@+-]+\.[A-Za-z]\w{0,7}|[\w@+./-]+/[\w@+-]+/?"
    r"|(?:\.?[\w@+-][\w@.+-]*/)*\.[a-z][\w-]{2,}(?:\.[\w-]+)*|Makefile|Dockerfile|LICENSE)(?![\w/-])"
)
"""A name with an ending, a path with a slash, a hidden file (.env), or one of the files without an ending."""
_ENDING = re.compile(
    r"(?:py|pyi|[cm]?[jt]sx?|json[5cl]?|toml|ya?ml|md|mdx|rst|txt|text|csv|tsv|go|mod|sum|rs|java|kts?|c|h|cc|cpp|hpp|cs|rb"
    r"|php|sh|bash|zsh|bat|ps1|sql|html?|css|s[ac]ss|less|xml|svg|ini|cfg|conf|config|env|properties|lock|log|vue|svelte"
    r"|swift|scala|lua|pl|r|dart|ex|exs|erl|hs|ml|clj|ipynb|tex|proto|graphql|tmpl|tpl|j2|jinja|png|jpe?g|gif|ico|pdf|zip"
    r"|gz|tar|dat|data|bin|out|bak|old|orig|tmp|example|sample|template|dist|gradle|cmake|mk|in)",
    re.IGNORECASE,
)
"""Endings of files. Other words with a dot, such as math.pi, are code."""

# --- commands ---

_ABOUT_RUNNING = re.compile(
    r"\b(?:run|runs|running|execute|fails?|failing|failed|prints?|output|crash\w*|error|traceback)\b",
    re.I,
)
_PROGRAMS = r"(?:python3?|node|npm|npx|pnpm|yarn|go|make|pytest|bash|sh|cargo|ruby|deno)"
_QUOTED_COMMAND = re.compile(rf"`((?:\./|{_PROGRAMS}\b)[^`\n]*)`")
_JOINING = r"(?!(?:and|to|it|in|with|the|on|for|at|when|then|prints?|fails?|crash\w*|gives?|shows?)\b)"
"""No argument: a word that goes on with the sentence."""
_ARGUMENTS = rf"(?:\s+(?:-{{1,2}}[\w=./-]*\w(?:\s+{_JOINING}\w+)?|[\w./-]*\w\.\w+|\./\S*|\d+))*"
_COMMAND = re.compile(
    rf"\b(pytest(?=[\s.,;!?]|$)(?:\s+(?:-{{1,2}}[\w=./-]*\w|[\w./-]*[/.][\w./-]*\w))*"
    r"|(?:npm|pnpm|yarn)\s+(?:test|start|run\s+[\w:-]+)"
    r"|go\s+(?:test|run|build|vet)(?:\s+(?:\./\.\.\.|-[\w=]+|[\w./-]*[./][\w./-]*\w|\.))*"
    r"|cargo\s+(?:test|run|build|check)"
    rf"|(?:python3?|node|bash|sh|ruby|deno)\s+(?:-m\s+[\w.]*\w|(?:-[A-Za-z]+\s+)*[\w./-]*\w\.\w+){_ARGUMENTS})"
)
"""A command whose shape proves it: a program with a file that has an ending, with `-m`, or with a known subcommand."""
_RUN_FILE = re.compile(
    r"\b(?:run|execute|running)\s+(?:the\s+)?(?:script\s+|file\s+|program\s+)?`?([\w./-]*\w\.(py|js|mjs|sh))\b", re.I
)
_PRINTED_FILE = re.compile(
    r"\bwhat\s+(?:does|will|would)\s+(?:the\s+)?(?:script\s+|file\s+|program\s+)?`?([\w./-]*\w\.(py|js|mjs|sh))`?"
    r"\s+(?:print|output)",
    re.IGNORECASE,
)
_PROGRAM = re.compile(
    r"\b(?:run|execute)\s+(?:the|this|my)\s+(?:program|script|app|application|project|code)\b"
    r"|\bwhat\s+(?:does|will)\s+(?:the|this|my)\s+(?:program|script|app|application|project|code)\s+(?:print|output|say)",
    re.IGNORECASE,
)
"""A prompt about the output of the program, without its name."""
RUNNERS = {"py": "python3", "js": "node", "mjs": "node", "sh": "bash"}
_MAKE = re.compile(
    r"\b(?:run|running|execute)\s+(make(?:\s+(?!and\b|to\b|in\b|it\b)[\w-]+)?)\b|\b(make (?:test|check))\b"
)
_RUNS = re.compile(r"\b(?:run|execute|running|start)\b", re.I)
_MAY_NOT_END = re.compile(r"\b(?:start|serve|dev|watch|http\.server|runserver|go run)\b|\bserver\.\w+|\bapp\.(?:py|js)")
"""Commands that may start a server: they run only if the prompt says so, and never to check a change."""

_HAS_EFFECTS = re.compile(
    r"deploy|publish|push|release|upload|delete|drop|clean|reset|migrat|install|\brm\b|seed|send|sync", re.IGNORECASE
)
"""Commands that may do more than compute: they run only if the prompt says `run` right before them."""

# --- what is asked ---

_ABOUT_TESTS = re.compile(r"\b(?:unit)?tests?\b|\b(?:pytest|checks)\b", re.IGNORECASE)
_RUN_TESTS = re.compile(
    r"\b(?:run|execute)\b.{0,30}\b(?:tests?|suite)\b|\btests?\b.{0,40}\b(?:fail\w*|pass\w*|broken|red|green|work)\b"
    r"|\b(?:fail\w*|broken|red)\b.{0,20}\btests?\b",
    re.IGNORECASE | re.DOTALL,
)
_FAILURE = re.compile(r"\b(?:fail\w*|broken|red|crash\w*|error|traceback|exception)\b", re.IGNORECASE)
_REPAIRS = re.compile(r"\b(?:implement|fix|correct|repair|complete|finish|solve|fill in)\b", re.IGNORECASE)


class PromptFeatures(Struct, frozen=True):
    """What a prompt names and asks for. `is_question`: an answer is wanted, and no file is changed.

    `text` is the prompt, shortened if it is very long.
    """

    text: str
    paths: tuple[str, ...]
    terms: tuple[str, ...]
    is_question: bool
    command: str
    """The command that the prompt is about, or ""."""
    runs_program: bool
    runs_tests: bool
    mentions_tests: bool
    reports_failure: bool
    """It says that something fails."""
    repairs: bool
    """It asks for something that does not work yet."""

    @property
    def only_edits(self) -> bool:
        """True if the prompt is about nothing that runs: the fewer choices a small model has, the better it does."""
        return not (self.is_question or self.command or self.runs_program or self.runs_tests)

    @property
    def has_quotes(self) -> bool:
        return _QUOTED.search(self.text) is not None

    @property
    def trusts_tests(self) -> bool:
        """True if failing tests are to pass, and the prompt does not name them."""
        names_test = any(is_test(path) for path in self.paths)
        return self.runs_tests and self.reports_failure and not self.is_question and not names_test

    @property
    def checks_with_command(self) -> bool:
        """True if the command of the prompt ends by itself, so that it can show whether a change works."""
        return bool(self.command) and _MAY_NOT_END.search(self.command) is None


def classify_prompt(prompt: str) -> PromptFeatures:
    """Return what the prompt names and asks for. Of a very long one, only the start and the end are read."""
    text = _shorten(prompt)
    written = [match[1].rstrip("/") for match in _PATH.finditer(text) if _is_written_path(match[1])]
    folders = [match[1] for match in _FOLDER.finditer(text) if not _COMMON.fullmatch(match[1])]
    paths = tuple(dict.fromkeys([*written, *folders]))
    return PromptFeatures(
        text=text,
        paths=paths,
        terms=_find_terms(text, paths),
        is_question=text.rstrip().endswith("?"),
        command=_find_command(text),
        runs_program=bool(_PROGRAM.search(text)),
        runs_tests=bool(_RUN_TESTS.search(text)),
        mentions_tests=bool(_ABOUT_TESTS.search(text)),
        reports_failure=bool(_FAILURE.search(text)),
        repairs=bool(_REPAIRS.search(text)),
    )


def _shorten(prompt: str) -> str:
    """Return a prompt of bounded length without long runs of letters or spaces, which patterns would take long for."""
    if len(prompt) > _MAX_START + _MAX_END:
        prompt = f"{prompt[:_MAX_START]}\n{prompt[-_MAX_END:]}"
    return re.sub(r"[^\S\n]{2,}", " ", re.sub(r"\S{200,}", "X", re.sub(r"\n{3,}", "\n\n", prompt)))


def _is_written_path(word: str) -> bool:
    """True if a word is the path of a file or folder, not an address or an attribute such as math.pi."""
    if word.startswith("//"):
        return False
    name = word.rpartition("/")[2]
    return "/" in word or "." not in name[1:] or _ENDING.fullmatch(name.rpartition(".")[2]) is not None


def _find_terms(text: str, paths: Collection[str]) -> tuple[str, ...]:
    """Return the words of a prompt that are names in code, or quoted, the most telling first."""
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(text)]
    unquoted = _QUOTED.sub(lambda found: "X" if " " in found[0] else found[0], text)
    matches = (match for kind in _TERMS for match in kind.finditer(unquoted))
    named = [next(filter(None, match.groups()), match[0]) for match in matches]
    phrases = [term for term in quoted if " " in term]  # new values, mostly
    found = [term.strip() for term in (*(term for term in quoted if " " not in term), *named, *phrases)]
    parts = {part for path in paths for part in (path, *re.split(r"[/.]", path))}
    wanted = [term for term in found if len(term) > 2 and term not in parts and not _COMMON.fullmatch(term)]
    return tuple(dict.fromkeys(term for term in wanted if not _is_command(term)))[:_MAX_TERMS]


# --- commands ---


def _is_command(text: str) -> bool:
    return _COMMAND.match(text) is not None or _QUOTED_COMMAND.match(f"`{text}`") is not None


def _find_command(text: str) -> str:
    """Return the command that the prompt is about, or ""."""
    if not _ABOUT_RUNNING.search(text):
        return ""
    command = ""
    if found := _QUOTED_COMMAND.search(text) or _COMMAND.search(text):
        command = found[1].strip()
    elif found := _RUN_FILE.search(text) or _PRINTED_FILE.search(text):
        command = f"{RUNNERS[found[2]]} {quote_path(found[1])}"
    elif found := _MAKE.search(text):
        command = found[1] or found[2]
    if _MAY_NOT_END.search(command) and not _RUNS.search(text.replace(command, "")):
        return ""
    if _HAS_EFFECTS.search(command) and not re.search(rf"\b(?:run|execute)\s+`?{re.escape(command)}", text, re.I):
        return ""
    return re.sub(r"^pytest\b", PYTEST, command)
