"""Requests to search the text of files."""

import re

from odin.providers.offline.quotes import QUOTED, QuotedRequest
from odin.providers.offline.scope import clean_term, cut_scope
from odin.providers.offline.task import PlannerTask
from odin.providers.offline.template import PhraseMatch, PhraseTable, make_rule

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


def _make_search(text: str, words: QuotedRequest, how: str) -> PlannerTask | None:
    """The search for a term with its place at the end."""
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
    return PlannerTask("search", term, path=scope.path, globs=scope.globs, variant=how or meant, whole_term=whole)


def _is_too_vague(fragment: str) -> bool:
    return len(fragment.split()) > _MAX_TERM_WORDS or bool(re.fullmatch(_VAGUE_TERM, fragment, re.IGNORECASE))


def _text_of(said: PhraseMatch) -> str:
    """The term and its place as one fragment."""
    return f"{said.get_raw('term')} {said.get_raw('place')}".strip()


def _make_definition_search(said: PhraseMatch) -> PlannerTask | None:
    return _make_search(_text_of(said), said.words, "definition")


def _make_files_search(said: PhraseMatch) -> PlannerTask | None:
    kind = said["kind"].lower()
    text = f"{_text_of(said)} in {kind} files" if kind and kind not in ("of", "all", "the") else _text_of(said)
    return _make_search(text, said.words, "files")


def _make_line_count(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("count-lines", path=said.get_path())


def _make_count(said: PhraseMatch) -> PlannerTask | None:
    return _make_search(_text_of(said), said.words, "count")


def _make_uses_search(said: PhraseMatch) -> PlannerTask | None:
    return _make_search(re.sub(r" (?:any|some)where\b", "", _text_of(said)), said.words, "word")


def _make_any_search(said: PhraseMatch) -> PlannerTask | None:
    one = re.fullmatch(rf"(?:{QUOTED}|\S+)(?: comments?| markers?| calls?)?", said.get_raw("term"))
    return _make_search(_text_of(said), said.words, "") if one else None


def _make_plain_search(said: PhraseMatch) -> PlannerTask | None:
    return _make_search(_text_of(said), said.words, "")


def _make_place_search(said: PhraseMatch) -> PlannerTask | None:
    """ "search src for x", and "search the code for x", which is everywhere."""
    if said["path"].lower() in (
        "code",
        "codebase",
        "project",
        "repo",
        "repository",
        "files",
        "everything",
        "everywhere",
    ):
        return _make_plain_search(said)
    return _make_search(f"{said.get_raw('term')} in {said.get_raw('path')}", said.words, "")


def _make_marker_search(said: PhraseMatch) -> PlannerTask | None:
    """ "show all TODOs": only what is quoted or written in capitals is a text to search for."""
    one = re.fullmatch(
        rf"(?:{QUOTED}|[A-Z_]{{3,}}s?)(?: comments?| markers?)?(?: (?:in|under) .+)?", said.get_raw("term")
    )
    return _make_search(_text_of(said), said.words, "") if one else None


def _make_grep(said: PhraseMatch) -> PlannerTask | None:
    """grep as one types it, with its most common options."""
    flags = said.get_raw("flags")
    text = _text_of(said)
    typed = re.fullmatch(rf"({QUOTED}|\S+) ({QUOTED}|[^\s,;]+)", text)
    if typed and typed[2] not in ("in", "for"):
        text = f"{typed[1]} in {typed[2]}"
    task = _make_search(text, said.words, "word" if re.search(r"-\w*w", flags) else "")
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
