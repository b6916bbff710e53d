"""Reads what a prompt for a small model names and asks for.

The reading decides what Odin looks up, runs and insists on. It is a guess about ordinary English, so only what is
certain has consequences that cannot be undone: `Intent.ASK` keeps files from being changed, `Intent.CHANGE` keeps prose
from being accepted, and everything between them leaves it to the reply.
"""

import re
from collections.abc import Collection
from enum import IntEnum

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
_RUNNERS = {"py": "python3", "js": "node", "mjs": "node", "sh": "bash"}
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
_CHANGES_TESTS = re.compile(
    r"\b(?:write|add|create|update|adapt|adjust|change|extend|rewrite|rename|remove|delete)\s+(?:\w+\s+){0,3}tests?\b",
    re.IGNORECASE,
)
_COUNTS = re.compile(r"\b(?:how many|how often|count|number of)\b", re.IGNORECASE)
_LOCATES = re.compile(r"\b(?:where|which file|what file|in which|find|locate|who calls|used|uses)\b", re.IGNORECASE)

_CHANGE = re.compile(
    r"(?:add|adjust|adapt|allow|append|apply|avoid|bump|capitali[sz]e|change|clean|comment|complete|convert|copy|correct|"
    r"create|decrease|define|delete|disable|document|drop|edit|enable|ensure|exclude|extend|extract|fill|finish|fix|"
    r"format|generate|get rid|give(?! me)|handle|hide|ignore|implement|improve|include|increase|indent|initiali[sz]e|"
    r"inline|insert|introduce|limit|log|lower|make|mark|merge|migrate|modify|move|optimi[sz]e|prepend|prevent|put|raise|"
    r"reduce|refactor|remove|rename|reorder|repair|replace|reset|restore|return|reverse|revert|rewrite|round|save|set|"
    r"shorten|simplify|skip|solve|sort|split|store|support|swap|switch|throw|translate|trim|turn|uncomment|update|upgrade|use|"
    r"validate|wrap|write)\b(?!\s+(?:nothing|anything)\b)",
    re.IGNORECASE,
)
"""How a clause that asks for a change starts."""
_BEFORE_VERB = re.compile(
    r"(?:please|pls|kindly|now|then|also|just|next|first|finally|ok|okay|so|but|let's|let us|lets"
    r"|(?:can|could) we|(?:can|could|would|will) you|you (?:can|should|must|need to|have to)"
    r"|help me(?: to)?|try to|go ahead(?: and)?"
    r"|(?:i|we)(?:'d| would)? (?:want|like|need)(?: you)?(?: to)?|(?:your|the) task is to"
    r"|if (?:not|so|yes|needed|necessary|possible)"
    r"|(?:in|for|inside|within) (?!which|what)(?:the )?(?:(?:file|function|class|method|script|module) )?[^\s,]+"
    r"(?: (?:file|function|class|method|script|module))?)[\s,]+",
    re.IGNORECASE,
)
"""What may stand before the verb of an order."""
_WISH = re.compile(r"\b(?:should|shall|must|needs? to|has to|have to|ought to)\b", re.IGNORECASE)
"""Words of a statement that says how the code is to be."""
_WANTS_THING = re.compile(
    r"(?:i|we)(?:'d| would)? (?:like|want|need)(?: to have)? (?:an?|another|some|the|more)\b.*"
    r"\b(?:files?|tests?|unittests?|functions?|methods?|scripts?|modules?|class(?:es)?|flags?|options?|sections?|entry)\b",
    re.IGNORECASE | re.DOTALL,
)
"""`I need a script that …`: an order without a verb of change."""
_STOPS = re.compile(r"\b(?:instead of|no longer|any ?more)\b", re.IGNORECASE)
"""Words of an order or statement that says how the code is not to be."""
_HOW_TO = re.compile(r"\bhow (?:to|do|does|can|could|should|would)\b|^\W*(?:what|where) (?:do|should|can) i\b", re.I)
"""A question about changes that someone else makes."""
_POLITE = re.compile(
    r"\b(?:can|could|should|must)\b.{0,60}\bbe \w+(?:ed|en|t|d)\b|\bpossible to\b|\bwould you mind\b"
    r"|^\W*(?:how about|what about|why not|why don't (?:you|we))\b",
    re.IGNORECASE,
)
"""A question that may be an order: `Can it be changed?`, `How about renaming it?`"""
_INTO_TEXT = re.compile(
    r"(?:explain|describe|summari[sz]e)\b.*\b(?:in|to|into)\s+(?:the\s+)?(?:file\s+)?\S+\.(?:md|rst|txt)\b",
    re.IGNORECASE,
)
"""The same: `Describe the options in README.md.`"""
_ASKS = re.compile(
    r"(?:(?:in|to|from|at|on|by|with) (?:what|which|whom)|what|which|where|who|whose|why|how|explain|describe"
    r"|summari[sz]e|tell me|does|did|do you|are there|is there"
    r"|count)\b",
    re.IGNORECASE,
)
"""How a question starts."""
_MAY_ASK = re.compile(
    r"(?:is|are|was|were|do(?! (?:the same|it|that|this|so|not)\b)|has|have"
    r"|can|could|list|tell|show|find|report|name|look|check|print|say|run|execute|test"
    r"|search|locate|verify|see|display|review|analy[sz]e|compare|give me|start)\b",
    re.IGNORECASE,
)
"""How both questions and descriptions of what the code is to do may start."""
_BY_COMMAND = re.compile(
    r"\b(?:git|commit|branch|tag|push|pull|stash|install|npm|pip|folder|directory|permissions?|executable|chmod|docker|venv)\b",
    re.IGNORECASE,
)
_TAKES_MORE = re.compile(
    r"\b(?:delet\w*|run|execute|commands?|mov(?:e|ing)|renam\w*|cop(?:y|ies))\b|\bfiles\b", re.IGNORECASE
)
_FORBIDS = re.compile(
    r"\b(?:do not|don't|never|without)\s+(?:chang|edit|modif|touch|writ)\w*\s+(?:anything|any files?|files|the files?"
    r"|the code)(?=\W|$)(?!\s+\w)|\bchange nothing\b(?!\s+else)",
    re.IGNORECASE,
)
_SMALL_TALK = re.compile(r"\W*(?:hi|hello|hey|thanks?|thank you|ok|okay|great|nice|good|bye|yes|no)\b", re.IGNORECASE)
_IF = re.compile(r"\bif\b", re.IGNORECASE)
TEXT_ENDINGS = (".md", ".txt", ".rst", ".adoc")
_FILE_NAME = re.compile(r"(?<![\w./])[\w./-]*\w\.[A-Za-z]\w*(?![\w./(])|(?<![\w.])[\w.]+\([^()\n]*\)")
"""`count.py` and `fill(35)`: their words are no words of the prompt."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_CLAUSE_END = re.compile(r"[;:,]\s+|\s+(?:and|then|but)\s+", re.IGNORECASE)


class Intent(IntEnum):
    """What a prompt asks for, as far as it is certain."""

    ASK = 0
    """An answer: files are never changed."""
    EITHER = 1
    """An answer or a change: the reply shows which."""
    LIKELY = 2
    """Probably a change: an answer is questioned once."""
    CHANGE = 3
    """A change: an answer is not enough."""


class PromptReading(Struct, frozen=True):
    """What a prompt names and asks for. `is_question`: it is worded like one, whatever it asks for.

    `text` is the prompt, shortened if it is very long.
    """

    text: str
    paths: tuple[str, ...]
    terms: tuple[str, ...]
    intent: Intent
    is_question: bool
    counts: bool
    locates: bool
    command: str
    """The command that the prompt is about, or ""."""
    runs_program: bool
    runs_tests: bool
    mentions_tests: bool
    reports_failure: bool
    """It says that something fails."""
    repairs: bool
    """It asks for something that does not work yet."""
    fixes_failures: bool
    """It asks for a change only if something fails."""

    @property
    def wants_change(self) -> bool:
        return self.intent is Intent.CHANGE

    @property
    def has_quotes(self) -> bool:
        return _QUOTED.search(self.text) is not None

    @property
    def asks_only(self) -> bool:
        return self.intent is Intent.ASK

    @property
    def is_done_by_command(self) -> bool:
        """True if a command may do what the prompt asks for without changing a file."""
        return not self.wants_change or _BY_COMMAND.search(self.text) is not None

    @property
    def changes_code(self) -> bool:
        """True if the prompt certainly wants code to be written: it names code, or at least no text."""
        files = [path for path in self.paths if "." in path]
        return self.wants_change and not (files and all(path.endswith(TEXT_ENDINGS) for path in files))

    @property
    def only_edits(self) -> bool:
        """True if the prompt certainly wants files to be written, and nothing that takes a command or a deletion."""
        takes_more = _TAKES_MORE.search(self.text) and not self.mentions_tests
        return self.wants_change and not (takes_more or self.command or self.runs_program or self.is_done_by_command)

    @property
    def trusts_tests(self) -> bool:
        """True if failing tests are to pass, and nothing says that they may be changed."""
        is_about_code = self.runs_tests and self.reports_failure and (self.wants_change or self.fixes_failures)
        names_test = any(is_test(path) for path in self.paths)
        return is_about_code and not names_test and not _CHANGES_TESTS.search(self.text)

    @property
    def checks_with_command(self) -> bool:
        """True if the command of the prompt ends by itself, so that it can show whether a change works."""
        return bool(self.command) and _MAY_NOT_END.search(self.command) is None


def read_prompt(prompt: str) -> PromptReading:
    """Return what the prompt names and asks for. Of a very long one, only the start and the end are read."""
    text = _shorten(prompt)
    written = [match[1].rstrip("/") for match in _PATH.finditer(text) if _is_written_path(match[1])]
    folders = [match[1] for match in _FOLDER.finditer(text) if not _COMMON.fullmatch(match[1])]
    paths = tuple(dict.fromkeys([*written, *folders]))
    intent = _read_intent(text)
    return PromptReading(
        text=text,
        paths=paths,
        terms=_find_terms(text, paths),
        intent=intent,
        is_question=_is_question(text),
        counts=bool(_COUNTS.search(text)),
        locates=intent <= Intent.EITHER and bool(_LOCATES.search(text)),
        command=_find_command(text),
        runs_program=bool(_PROGRAM.search(text)),
        runs_tests=bool(_RUN_TESTS.search(text)),
        mentions_tests=bool(_ABOUT_TESTS.search(text)),
        reports_failure=bool(_FAILURE.search(text)),
        repairs=bool(_REPAIRS.search(text)),
        fixes_failures=intent is Intent.EITHER and _has_order(text),
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
        command = f"{_RUNNERS[found[2]]} {quote_path(found[1])}"
    elif found := _MAKE.search(text):
        command = found[1] or found[2]
    if _MAY_NOT_END.search(command) and not _RUNS.search(text.replace(command, "")):
        return ""
    if _HAS_EFFECTS.search(command) and not re.search(rf"\b(?:run|execute)\s+`?{re.escape(command)}", text, re.I):
        return ""
    return re.sub(r"^pytest\b", PYTEST, command)


# --- intent ---


def _is_question(text: str) -> bool:
    start = _skip_to_verb(_FILE_NAME.sub("X", text))
    return bool(_ASKS.match(start) or _MAY_ASK.match(start)) or text.rstrip().endswith("?")


def _read_intent(text: str) -> Intent:
    """Return what the prompt asks for: its clearest sentence decides."""
    plain = _mask_code(text)
    found: list[Intent] = []
    for sentence in _SENTENCE_END.split(plain):
        if sentence.strip():
            found.append(_read_sentence(sentence, follows_question=any(one < Intent.LIKELY for one in found)))
    best = max(found, default=Intent.EITHER)
    if best is Intent.CHANGE:
        return best
    if _FORBIDS.search(plain) or (Intent.EITHER not in found and found[-1:] == [Intent.ASK]):
        return Intent.ASK
    is_small_talk = _SMALL_TALK.match(text) and len(text.split()) < 8
    return Intent.EITHER if Intent.ASK in found or is_small_talk else best


def _read_sentence(sentence: str, *, follows_question: bool) -> Intent:
    start = _skip_to_verb(sentence)
    asks = _ASKS.match(start) is not None
    may_ask = _MAY_ASK.match(start) is not None
    has_mark = sentence.rstrip().endswith("?")
    clauses = _CLAUSE_END.split(sentence)
    ordered = _find_order(clauses)
    if ordered >= 0 and not _HOW_TO.search(sentence):
        is_conditional = any(_IF.search(clause) for clause in clauses[:ordered]) or _IF.match(clauses[ordered].lstrip())
        depends = is_conditional and (follows_question or (ordered > 0 and (asks or may_ask)))
        return Intent.EITHER if depends or (asks and has_mark) else Intent.CHANGE
    if _WANTS_THING.match(sentence.strip()) and not has_mark:
        return Intent.CHANGE
    if asks or has_mark:
        return Intent.EITHER if _POLITE.search(sentence) or _INTO_TEXT.match(start) else Intent.ASK
    if _STOPS.search(sentence) or (_WISH.search(sentence) and not may_ask):
        return Intent.CHANGE
    return Intent.EITHER if may_ask else Intent.LIKELY


def _find_order(clauses: list[str]) -> int:
    """Return the number of the first clause that orders a change, or -1."""
    return next((at for at, clause in enumerate(clauses) if _CHANGE.match(_skip_to_verb(clause))), -1)


def _skip_to_verb(clause: str) -> str:
    """Return a clause without the words that may stand before the verb of an order or a question."""
    clause = re.sub(r"^[\s\"'*-]*(?:\d+[.)]\s+)?", "", clause)
    while found := _BEFORE_VERB.match(clause):
        clause = clause[found.end() :]
    return clause


def _mask_code(text: str) -> str:
    """Return a prompt without quotations and commands, whose words are no words of the prompt."""
    return re.sub(r"\bmake (?:test|check)\b", "X", _COMMAND.sub("X", _QUOTED.sub("X", _FILE_NAME.sub("X", text))))


def _has_order(text: str) -> bool:
    sentences = _SENTENCE_END.split(_mask_code(text))
    return any(_find_order(_CLAUSE_END.split(sentence)) >= 0 for sentence in sentences)
