"""Phrases that list folders, find files, read files and search text."""

import re

from msgspec import Struct

from odin.providers.offline.language import (
    CONFIG_GLOBS,
    QUOTED,
    TEST_GLOBS,
    PhraseMatch,
    PhraseTable,
    QuotedRequest,
    clean_term,
    cut_scope,
    extensions_of,
    is_file_like,
    is_path_like,
    make_rule,
)
from odin.providers.offline.task import LAST_FILE, LAST_PLACE, PlannerTask

_PROJECT = (
    "(this|the|my|our) [whole|entire|current] "
    "(project|repo|repository|codebase|code base|code|folder|directory|app|application|program|package|tool|library)"
)
_SHOW = "(list|show|display|print|see|get|give) [me] [all] [of] [the|my]"
_FOLDER = "[the|my] {path:file} [folder|directory|dir]"
_AT = f"[(of|in|for|under|inside|at|from) ({_PROJECT}|{_FOLDER})] [here|recursively]"
_THINGS = (
    "(files?|folders?|directories|everything|files and (folders|directories)|"
    "[folder|directory|file] (contents?|listing))"
)
_TREE = "[folder|directory|file|project|source|code] (tree|structure|layout|hierarchy)"


def _make_listing(match: PhraseMatch) -> PlannerTask:
    path = match.get_path()
    if path == LAST_FILE:
        path = LAST_PLACE
    return PlannerTask("read", path=path) if is_file_like(path) else PlannerTask("list", path=path)


def _make_typed_listing(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("list", path=match["path"], variant="tree" if re.search(r"^tree| -\w*R", match.clause) else "")


def _make_tree(match: PhraseMatch) -> PlannerTask | None:
    return None if is_file_like(match["path"]) else PlannerTask("list", path=match["path"], variant="tree")


def _make_bare_listing(match: PhraseMatch) -> PlannerTask | None:
    path = match["path"]
    if re.search(r"[*?]|^(?:all|every|any|todos?)$", path, re.IGNORECASE) or re.fullmatch(r"[A-Z]{2,}s?", path):
        return None
    return None if is_file_like(path) else PlannerTask("list", path=path)


def _make_folder_listing(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("list", path=match["path"])


match_folders = PhraseTable(
    make_rule(
        PlannerTask("describe"),
        f"(describe|explain|summarise|summarize|introduce|outline|analyse|analyze) [to] [me] {_PROJECT} [to me]",
        f"what (is|does|are) ({_PROJECT}|this) [do|about|for|all about]",
        "[(give|show) [me]] [a|an|the] [quick|short|brief|project|high-level] (overview|summary|description) "
        f"[of {_PROJECT}]",
        f"tell me [more] about ({_PROJECT}|this)",
        f"how (do|can|should|would) (i|you|we|one) (run|build|test|install|start|use|launch) ({_PROJECT}|this|it)",
        f"how (do|can|should|would) (i|you|we|one) run the tests [in|of|for] [{_PROJECT}]",
        "(what|which) [programming] languages? (is|are|does|do) {rest:text}",
        "what am i looking at",
        "describe project",
    ),
    make_rule(
        PlannerTask("where"),
        "pwd",
        "where am i",
        "what (is|folder is) (the|this|my) (working|current) (directory|folder)",
    ),
    make_rule(_make_typed_listing, "(ls|dir|tree) [{flags:flags}] [{path}]"),
    make_rule(_make_tree, f"[{_SHOW}] [the] {_TREE} {_AT}"),
    make_rule(
        _make_listing,
        f"{_SHOW} {_THINGS} {_AT}",
        f"(what|which) (files|folders|files and folders) [do (we|i|you) have|are there|are] [here|there] {_AT}",
        f"[show me] what is [there] (in|inside|under) ({_PROJECT}|{_FOLDER})",
        "[show me] what is (here|there)",
        f"[the] contents? of {_FOLDER}",
        "list",
    ),
    make_rule(
        _make_folder_listing, "(open|show|view|read|see|print|display|list) [me] [the] {path} (folder|directory|dir)"
    ),
    make_rule(_make_bare_listing, "list [the] [folder|directory] {path}"),
)

_FIND = (
    "[find|locate|list|show|search for|look for|get|give|print|see|which|what|are there] "
    "[me] [all] [of] [the|any|every|my|our|a]"
)
_THAT = "[that|which] [are|is]"


def _find_by_name(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(glob_of_name(match["name"]),))


def _find_by_part(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(f"**/*{match['part']}*",))


def _find_by_start(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(f"**/{match['part'].rstrip('*')}*",))


def _find_by_end(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(f"**/*{match['part'].lstrip('*')}",))


def _find_by_extension(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(f"**/*.{match['part'].lstrip('*.')}",))


def _find_by_kind(match: PhraseMatch) -> PlannerTask | None:
    kind = match["kind"].lower()
    if kind in (
        "all",
        "the",
        "any",
        "every",
        "which",
        "what",
        "find",
        "list",
        "show",
        "locate",
        "modified",
        "changed",
        "it",
    ):
        return None
    if kind in ("test", "tests"):
        return PlannerTask("find", "test", globs=TEST_GLOBS)
    if kind in ("config", "configuration", "settings"):
        return PlannerTask("find", "configuration", globs=CONFIG_GLOBS)
    endings = extensions_of(kind)
    if endings:
        return PlannerTask("find", kind, globs=tuple(f"**/*.{ending}" for ending in endings))
    return PlannerTask("find", globs=(glob_of_name(match["kind"]),))


def _find_one_file(match: PhraseMatch) -> PlannerTask | None:
    name = match["name"]
    globbing = re.search(r"[*?]", name) and not match.is_quoted("name")
    sure = match.clause.lower().startswith("locate ") or match.get_raw("noun")
    if globbing or is_path_like(name) or (sure and not re.search(r"\s", name)):
        return _find_by_name(match)
    return None


_match_named = PhraseTable(
    make_rule(
        _find_by_name,
        f"{_FIND} files? {_THAT} (named|called|matching|match|like|with [the] name|by [the] name) [of] {{name}}",
    ),
    make_rule(
        _find_by_part,
        f"{_FIND} files? whose names? (contain|contains|include|includes|has|have) {{part}}",
        f"{_FIND} files? (with|that have|which have) {{part}} in (the|their) (name|names|filename|filenames)",
    ),
    make_rule(
        _find_by_start,
        f"{_FIND} files? {_THAT} [whose names?] (start|starts|starting|begin|begins|beginning) with {{part}}",
    ),
    make_rule(_find_by_end, f"{_FIND} files? {_THAT} [whose names?] (end|ends|ending) (in|with|on) {{part}}"),
    make_rule(_find_by_extension, f"{_FIND} files? with [the|a|an] [file] (extension|ending|suffix) [of] {{part}}"),
)

_match_kinds = PhraseTable(
    make_rule(
        _find_by_kind,
        f"{_FIND} {{kind}} [source|code] (files?|scripts?|sources?|modules?) [are there|exist|do we have|are here]",
    ),
    make_rule(
        PlannerTask("find", "test", globs=TEST_GLOBS),
        "(find|locate|where are|are there|do we have) [all|any] [the|my] tests",
    ),
)

_match_single = PhraseTable(
    make_rule(
        _find_one_file,
        "(find|locate|search for|look for|list) [all] [the|a|my] [{noun:noun}|files] {name} [file]",
        "where (is|are|can i find) [the|my] [{noun:noun}] {name} [file]",
    ),
)


def match_files(clause: str, words: QuotedRequest) -> PlannerTask | None:
    """Match files by name or type. A name may contain "in", so it is tried before a location is cut off."""
    if not _is_about_files(clause):
        return None
    counting = re.match(r"(?:count|how many) ", clause, re.IGNORECASE)
    text = "find " + clause[counting.end() :] if counting else clause
    if counting:
        text = re.sub(r"(?<=files) (?:are there|exist|do we have)(?=$| in )", "", text, flags=re.IGNORECASE)
    text, middle = _cut_middle_place(text, words)
    scope = cut_scope(text, words)
    task = _match_named(text, words) or _match_named(scope.rest, words) or _match_kinds(scope.rest, words)
    if task is None and not counting:
        task = _match_single(scope.rest, words)
    if task is None:
        return None
    place = middle or ("" if _match_named(text, words) else scope.path)
    return PlannerTask("find", task.term, path=place, globs=task.globs, variant="count" if counting else "")


def _is_about_files(clause: str) -> bool:
    low = clause.lower()
    if any(word in low for word in ("file", "script", "source", "module", "tests", "locate")):
        return True
    return any("*" in word or is_path_like(word.strip(",")) for word in clause.split())


def _cut_middle_place(text: str, words: QuotedRequest) -> tuple[str, str]:
    """Treat "files in src named x" as "files named x" in src."""
    found = re.search(
        r"(?<=\bfiles) (?:in|under|inside) (?:the )?(?P<path>[^\s,;]+)(?: (?:folder|directory))?"
        r"(?= (?:named|called|matching|with|that|which|ending|end|whose)\b)",
        text,
        re.IGNORECASE,
    )
    return (text[: found.start()] + text[found.end() :], words.unquote(found["path"])) if found else (text, "")


def glob_of_name(name: str) -> str:
    """Return the glob for a file as people name it: a pattern, a full name, or part of a name."""
    if name.lower() in ("readme", "license", "changelog", "contributing"):
        return f"**/{name.upper()}*"
    if re.search(r"[*?\[{]", name):
        return name if "/" in name else f"**/{name}"
    if not is_path_like(name):
        return f"**/*{name}*"
    return name.removeprefix("./").lstrip("/") if name.startswith(("/", "./")) else f"**/{name.strip('/')}"


_PART = "(functions?|class|classes|methods?|symbols?|headings?|sections?|definitions?|types?)"
_PARTS = f"[all] [the] ({_PART} [(and|or) {_PART}]|outline|structure)"
_FILE = "[the] [file] {path:file} [file]"
_WHOLE = "[the] [whole|entire|full|raw] [contents?|text|source|code|body|rest|top|beginning|end] [of|from|in|at]"


class LineRequest(Struct, frozen=True):
    """The requested lines, and the clause without those words. A negative `first` counts from the end."""

    rest: str
    first: int = 0
    last: int = 0


def _is_clear(match: PhraseMatch) -> bool:
    """True if the field is certainly a file, for verbs with other meanings."""
    path = match.get_path()
    return match.is_quoted("path") or path != match["path"] or is_path_like(path)


def _make_outline(match: PhraseMatch) -> PlannerTask | None:
    sure = _is_clear(match) or "outline" in match.clause.lower()
    return PlannerTask("outline", path=match.get_path()) if sure else None


def _make_summary(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("summary", path=match.get_path())


def _make_description(match: PhraseMatch) -> PlannerTask | None:
    return PlannerTask("summary", path=match.get_path()) if _is_clear(match) else None


def _make_read(match: PhraseMatch) -> PlannerTask:
    path = match.get_path()
    return PlannerTask("list", path=path) if path.endswith("/") else PlannerTask("read", path=path)


def _make_clear_read(match: PhraseMatch) -> PlannerTask | None:
    return _make_read(match) if _is_clear(match) else None


def _make_contents_read(match: PhraseMatch) -> PlannerTask | None:
    path = match.get_path()
    return PlannerTask("read", path=path) if path == LAST_FILE or is_file_like(path) else None


_match_about = PhraseTable(
    make_rule(
        _make_outline,
        f"outline [of] {_FILE}",
        f"[(show|give|list|print|display|get|find) [me]] [a|an] {_PARTS} (of|in|for|from|inside|defined in) {_FILE}",
        f"(what|which) {_PARTS} (are|is) [there] [defined] (in|inside) {_FILE}",
        f"(what|which) {_PARTS} does {_FILE} (have|define|contain)",
    ),
    make_rule(PlannerTask("outline", path=LAST_FILE), "[show|give] [me] (the|an) outline", "outline"),
    make_rule(
        _make_summary,
        f"(summarise|summarize|sum up|tldr|tl;dr) [of] [the contents of] {_FILE}",
        f"[(give|show|write|get) [me]] [a|the] [short|brief|quick] summary of {_FILE}",
    ),
    make_rule(
        _make_description,
        f"(describe|explain) [the contents of] {_FILE} [to me]",
        f"what (is|does) {_FILE} (about|do|for)",
    ),
)

_match_contents = PhraseTable(
    make_rule(
        _make_read,
        f"(read|open|cat|view|head|tail|type|inspect) [me] {_WHOLE} {_FILE}",
        f"(look at|have a look at|take a look at|check out|let me see|let me read) {_WHOLE} {_FILE}",
        f"what does {_FILE} (say|contain|look like|hold) [in it]",
    ),
    make_rule(_make_clear_read, f"(show|print|display|see|give|dump|get) [me] {_WHOLE} {_FILE}"),
    make_rule(
        _make_contents_read, f"what (is|are) [the contents?] (in|inside|of) {_FILE}", f"[the] contents? of {_FILE}"
    ),
)

_match_lines = PhraseTable(
    make_rule(
        _make_read,
        f"(read|open|cat|view|head|tail|show|print|display|see|give|get|look at) [me] {_WHOLE} {_FILE}",
        f"[of|from|in] {_FILE}",
        f"what is [on|at|in] [of|from|in] {_FILE}",
    ),
)


def match_read(clause: str, words: QuotedRequest) -> PlannerTask | None:
    task = _match_about(clause, words)
    if task:
        return task
    lines = take_lines(clause)
    if not lines.first and not lines.last:
        return _match_contents(clause, words)
    if re.fullmatch(
        r"(?:read|show|print|view|see|display|open|head|tail|give|look at)?(?: me)?", lines.rest, re.IGNORECASE
    ):
        return PlannerTask("read", path=LAST_FILE, first=lines.first, last=lines.last)
    task = _match_lines(lines.rest, words)
    return PlannerTask("read", path=task.path, first=lines.first, last=lines.last) if task else None


_LINE_FORMS = (
    ("range", r"(?:\bfrom )?\b(?:the )?lines? (\d+) ?(?:-|–|—|to|through|till|until|\.\.|and) ?(?:line )?(\d+)\b"),
    ("onward", r"\b(?:starting )?(?:from|at) line (\d+) on(?:wards?)?\b"),
    ("at", r"\b(?:at|around|near|on|from|to) line (\d+)\b"),
    ("line", r"\b(?:the )?lines? (\d+)\b"),
    ("head", r"\b(?:the )?(?:first|top) (\d+) lines?\b"),
    ("tail", r"\b(?:the )?(?:last|bottom|final) (\d+) lines?\b"),
    ("head", r"(?<=\bhead) -n? ?(\d+)\b"),
    ("tail", r"(?<=\btail) -n? ?(\d+)\b"),
    ("head", r"\b(?:the )?first line\b"),
    ("tail", r"\b(?:the )?last line\b"),
    ("range", r"(?<=[\w/])[:#]L?(\d+)-L?(\d+)\b"),
    ("at", r"(?<=[\w/])[:#]L?(\d+)(?::\d+)?\b"),
)


def take_lines(clause: str) -> LineRequest:
    """Find "lines 10-20", "line 40", "first 20 lines" or "a.py:40" and remove it from the clause."""
    verb = clause.split(maxsplit=1)[0].lower()
    if not re.search(r"\blines?\b|[:#]L?\d|\b(?:head|tail) -", clause, re.IGNORECASE):
        return LineRequest(clause, *_line_bounds_of(verb, [10])) if verb in ("head", "tail") else LineRequest(clause)
    for kind, pattern in _LINE_FORMS:
        found = re.search(pattern, clause, re.IGNORECASE)
        if found:
            rest = clause[: found.start()] + " " + re.sub(r" with (?:some )?context$", "", clause[found.end() :])
            numbers = [int(group[:7]) for group in found.groups()]
            return LineRequest(re.sub(r"\s+", " ", rest).strip(" ,"), *_line_bounds_of(kind, numbers))
    return LineRequest(clause)


def _line_bounds_of(kind: str, numbers: list[int]) -> tuple[int, int]:
    one = max(1, numbers[0]) if numbers else 1
    if kind == "range":
        return max(1, min(numbers)), max(1, *numbers)
    if kind == "tail":
        return -one, 0
    if kind == "head":
        return 1, one
    if kind == "onward":
        return one, 0
    return max(1, one - 5), one + (20 if kind == "at" else 5)


_SYMBOL = "[the] [function|class|method|variable|type|constant]"
_HAVE_PHRASE = (
    "[that|which] "
    "(mention|mentions|contain|contains|use|uses|reference|references|import|imports|include|includes|have|"
    "has|call|calls|define|defines|talk about|refer to|containing|mentioning|using|importing|referencing|with)"
)
_VAGUE_TERM = (
    r"(?:the |a |an |any |some )*.*\b(?:bugs?|problems?|issues?|errors? in|ways? to|reasons?|cause|solution)\b.*"
    r"|(?:out|why|how|when|whether|what)\b.*"
)
_IGNORE_CASE_PHRASE = (
    r",?\s*\(?(?:case[- ]insensitive(?:ly)?|ignoring (?:the )?case|ignore case|regardless of case)\)?(?= |$)"
)
_MAX_TERM_WORDS = 8


def match_search(clause: str, words: QuotedRequest) -> PlannerTask | None:
    shorter = re.sub(_IGNORE_CASE_PHRASE, "", clause, flags=re.IGNORECASE).strip()
    task = _match_phrases(shorter, words)
    return _ignore_case(task) if task and shorter != clause else task


def _ignore_case(task: PlannerTask) -> PlannerTask:
    return PlannerTask(
        task.kind,
        task.term,
        path=task.path,
        globs=task.globs,
        variant=f"{task.variant} -i".strip(),
        whole_term=task.whole_term,
    )


def _make_search(text: str, words: QuotedRequest, variant: str) -> PlannerTask | None:
    """Return the search for a term with its location at the end."""
    scope = cut_scope(text, words)
    if not scope.rest:
        return None
    if scope.rest.lower() in ("this", "that"):
        term, meant = scope.rest, ""
    else:
        term, meant = clean_term(scope.rest, words)
    if not term or (not re.search(QUOTED, scope.rest) and _is_too_vague(scope.rest)):
        return None
    whole = words.restore_quotes(text) if scope.path and not re.search(QUOTED, text) else ""
    return PlannerTask("search", term, path=scope.path, globs=scope.globs, variant=variant or meant, whole_term=whole)


def _is_too_vague(fragment: str) -> bool:
    return len(fragment.split()) > _MAX_TERM_WORDS or bool(re.fullmatch(_VAGUE_TERM, fragment, re.IGNORECASE))


def _text_of(match: PhraseMatch) -> str:
    """Return the term and its location as one fragment."""
    return f"{match.get_raw('term')} {match.get_raw('place')}".strip()


def _make_definition_search(match: PhraseMatch) -> PlannerTask | None:
    return _make_search(_text_of(match), match.words, "definition")


def _make_files_search(match: PhraseMatch) -> PlannerTask | None:
    kind = match["kind"].lower()
    text = f"{_text_of(match)} in {kind} files" if kind and kind not in ("of", "all", "the") else _text_of(match)
    return _make_search(text, match.words, "files")


def _make_line_count(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("count-lines", path=match.get_path())


def _make_count(match: PhraseMatch) -> PlannerTask | None:
    return _make_search(_text_of(match), match.words, "count")


def _make_uses_search(match: PhraseMatch) -> PlannerTask | None:
    return _make_search(re.sub(r" (?:any|some)where\b", "", _text_of(match)), match.words, "word")


def _make_any_search(match: PhraseMatch) -> PlannerTask | None:
    one = re.fullmatch(rf"(?:{QUOTED}|\S+)(?: comments?| markers?| calls?)?", match.get_raw("term"))
    return _make_search(_text_of(match), match.words, "") if one else None


def _make_plain_search(match: PhraseMatch) -> PlannerTask | None:
    return _make_search(_text_of(match), match.words, "")


def _make_place_search(match: PhraseMatch) -> PlannerTask | None:
    """Match "search src for x", and "search the code for x", which searches everywhere."""
    if match["path"].lower() in (
        "code",
        "codebase",
        "project",
        "repo",
        "repository",
        "files",
        "everything",
        "everywhere",
    ):
        return _make_plain_search(match)
    return _make_search(f"{match.get_raw('term')} in {match.get_raw('path')}", match.words, "")


def _make_marker_search(match: PhraseMatch) -> PlannerTask | None:
    """Match "show all TODOs": only quoted or capitalized words are search terms."""
    one = re.fullmatch(
        rf"(?:{QUOTED}|[A-Z_]{{3,}}s?)(?: comments?| markers?)?(?: (?:in|under) .+)?", match.get_raw("term")
    )
    return _make_search(_text_of(match), match.words, "") if one else None


def _make_grep(match: PhraseMatch) -> PlannerTask | None:
    """Match grep with its most common options."""
    flags = match.get_raw("flags")
    text = _text_of(match)
    typed = re.fullmatch(rf"({QUOTED}|\S+) ({QUOTED}|[^\s,;]+)", text)
    if typed and typed[2] not in ("in", "for"):
        text = f"{typed[1]} in {typed[2]}"
    task = _make_search(text, match.words, "word" if re.search(r"-\w*w", flags) else "")
    return _ignore_case(task) if task and re.search(r"-\w*i", flags) else task


_IN_PLACE = "[{place:place}]"

_match_phrases = PhraseTable(
    make_rule(
        _make_definition_search,
        f"[(show|find|tell) [me]] where (is|are) {_SYMBOL} {{term:text}} (defined|declared|implemented) {_IN_PLACE}",
        f"[(show|find|tell) [me]] where {_SYMBOL} {{term:text}} (is|are) (defined|declared|implemented) {_IN_PLACE}",
        "(find|show|locate|go to|jump to|get) [me] [the] (definitions?|declarations?|implementations?) (of|for) "
        "{term:text}",
    ),
    make_rule(
        _make_files_search,
        f"(which|what) [{{kind}}] files? {_HAVE_PHRASE} [the (word|text|string)] {{term:text}}",
        f"(find|list|show|search for|locate) [me] [all] [the|any] [{{kind}}] files? {_HAVE_PHRASE} [the "
        f"(word|text|string)] {{term:text}}",
    ),
    make_rule(
        _make_line_count,
        "count [the] lines (in|of) [the] [file] {path:file}",
        "how many lines (are in|are there in|does|has|in) [the] [file] {path:file} [have]",
    ),
    make_rule(
        _make_count,
        f"count [how many times] {{term:text}} [appears?|occurs?|are there] {_IN_PLACE}",
        f"how many times (does|do|is|are) {{term:text}} [appears?|occurs?|used|mentioned|called] {_IN_PLACE}",
        f"how many {{term:text}} [are there|are left|do we have|exist|are] {_IN_PLACE}",
    ),
    make_rule(
        _make_uses_search,
        f"[(show|tell|find) [me]] where (is|are) {_SYMBOL} {{term:text}} "
        f"(used|called|mentioned|referenced|imported|raised) {_IN_PLACE}",
        f"[(show|tell|find) [me]] where {_SYMBOL} {{term:text}} (is|are) "
        f"(used|called|mentioned|referenced|imported) {_IN_PLACE}",
        f"[(show|tell|find) [me]] where (do we|do i|does it) (use|call|mention|reference|import) {_SYMBOL} "
        f"{{term:text}}",
        "(who|what|which (code|functions?)) (calls?|uses?|imports?|references?) {term:text}",
        f"is {_SYMBOL} {{term:text}} (used|called|mentioned|imported|referenced) [anywhere|somewhere] {_IN_PLACE}",
        "does (anything|anyone|any file|something) (use|call|mention|import|reference) {term:text}",
    ),
    make_rule(_make_any_search, f"[are there|is there|do we have] any {{term:text}} [left|remaining] {_IN_PLACE}"),
    make_rule(_make_marker_search, "(list|show [me]) [all] [the|any] {term:text}"),
    make_rule(_make_plain_search, "(list|show [me]) [all] [the|any] {term:uses}"),
    make_rule(_make_grep, "(grep|rg|ripgrep) [{flags:flags}] [for] {term:text}"),
    make_rule(
        _make_place_search,
        "search [in|through] [the] {path} [files|folder|directory] for {term:text}",
        "look in [the] {path} [files|folder|directory] for {term:text}",
    ),
    make_rule(
        _make_plain_search, "(search for|search|find me|find|look for|look up|scan for|check for|hunt for) {term:text}"
    ),
)
