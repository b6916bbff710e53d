"""Requests to search the text of files."""

import re

from odin.providers.offline.quotes import QUOTED, Request
from odin.providers.offline.scope import clean_term, cut_scope
from odin.providers.offline.task import Task
from odin.providers.offline.template import Said, Table, rule

_SYMBOL = "[the] [function|class|method|variable|type|constant]"
_HAVE = (
    "[that|which] "
    "(mention|mentions|contain|contains|use|uses|reference|references|import|imports|include|includes|have|"
    "has|call|calls|define|defines|talk about|refer to|containing|mentioning|using|importing|referencing|with)"
)
_VAGUE = (
    r"(?:the |a |an |any |some )*.*\b(?:bugs?|problems?|issues?|errors? in|ways? to|reasons?|cause|solution)\b.*"
    r"|(?:out|why|how|when|whether|what)\b.*"
)
_IGNORING = r",?\s*\(?(?:case[- ]insensitive(?:ly)?|ignoring (?:the )?case|ignore case|regardless of case)\)?(?= |$)"
_MAX_WORDS = 8


def search(clause: str, words: Request) -> Task | None:
    shorter = re.sub(_IGNORING, "", clause, flags=re.IGNORECASE).strip()
    task = _phrases(shorter, words)
    return _any_case(task) if task and shorter != clause else task


def _any_case(task: Task) -> Task:
    return Task(task.kind, task.term, path=task.path, globs=task.globs, how=f"{task.how} -i".strip(), whole=task.whole)


def _task(text: str, words: Request, how: str) -> Task | None:
    """The search for a term with its place at the end."""
    scope = cut_scope(text, words)
    if not scope.rest:
        return None
    if scope.rest.lower() in ("this", "that"):
        term, meant = scope.rest, ""
    else:
        term, meant = clean_term(scope.rest, words)
    if not term or (not re.search(QUOTED, scope.rest) and _too_vague(scope.rest)):
        return None
    whole = words.typed(text) if scope.path and not re.search(QUOTED, text) else ""
    return Task("search", term, path=scope.path, globs=scope.globs, how=how or meant, whole=whole)


def _too_vague(fragment: str) -> bool:
    return len(fragment.split()) > _MAX_WORDS or bool(re.fullmatch(_VAGUE, fragment, re.IGNORECASE))


def _text(said: Said) -> str:
    """The term and its place as one fragment."""
    return f"{said.raw('term')} {said.raw('place')}".strip()


def _definition(said: Said) -> Task | None:
    return _task(_text(said), said.words, "definition")


def _files_with(said: Said) -> Task | None:
    kind = said["kind"].lower()
    text = f"{_text(said)} in {kind} files" if kind and kind not in ("of", "all", "the") else _text(said)
    return _task(text, said.words, "files")


def _lines(said: Said) -> Task:
    return Task("count-lines", path=said.file())


def _count(said: Said) -> Task | None:
    return _task(_text(said), said.words, "count")


def _uses(said: Said) -> Task | None:
    return _task(re.sub(r" (?:any|some)where\b", "", _text(said)), said.words, "word")


def _any(said: Said) -> Task | None:
    one = re.fullmatch(rf"(?:{QUOTED}|\S+)(?: comments?| markers?| calls?)?", said.raw("term"))
    return _task(_text(said), said.words, "") if one else None


def _plain(said: Said) -> Task | None:
    return _task(_text(said), said.words, "")


def _there(said: Said) -> Task | None:
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
        return _plain(said)
    return _task(f"{said.raw('term')} in {said.raw('path')}", said.words, "")


def _shown(said: Said) -> Task | None:
    """ "show all TODOs": only what is quoted or written in capitals is a text to search for."""
    one = re.fullmatch(rf"(?:{QUOTED}|[A-Z_]{{3,}}s?)(?: comments?| markers?)?(?: (?:in|under) .+)?", said.raw("term"))
    return _task(_text(said), said.words, "") if one else None


def _grep(said: Said) -> Task | None:
    """grep as one types it, with its most common options."""
    flags = said.raw("flags")
    text = _text(said)
    typed = re.fullmatch(rf"({QUOTED}|\S+) ({QUOTED}|[^\s,;]+)", text)
    if typed and typed[2] not in ("in", "for"):
        text = f"{typed[1]} in {typed[2]}"
    task = _task(text, said.words, "word" if re.search(r"-\w*w", flags) else "")
    return _any_case(task) if task and re.search(r"-\w*i", flags) else task


_IN = "[{place:place}]"

_phrases = Table(
    rule(
        _definition,
        f"[(show|find|tell) [me]] where (is|are) {_SYMBOL} {{term:text}} (defined|declared|implemented) {_IN}",
        f"[(show|find|tell) [me]] where {_SYMBOL} {{term:text}} (is|are) (defined|declared|implemented) {_IN}",
        "(find|show|locate|go to|jump to|get) [me] [the] (definitions?|declarations?|implementations?) (of|for) "
        "{term:text}",
    ),
    rule(
        _files_with,
        f"(which|what) [{{kind}}] files? {_HAVE} [the (word|text|string)] {{term:text}}",
        f"(find|list|show|search for|locate) [me] [all] [the|any] [{{kind}}] files? {_HAVE} [the "
        f"(word|text|string)] {{term:text}}",
    ),
    rule(
        _lines,
        "count [the] lines (in|of) [the] [file] {path:file}",
        "how many lines (are in|are there in|does|has|in) [the] [file] {path:file} [have]",
    ),
    rule(
        _count,
        f"count [how many times] {{term:text}} [appears?|occurs?|are there] {_IN}",
        f"how many times (does|do|is|are) {{term:text}} [appears?|occurs?|used|mentioned|called] {_IN}",
        f"how many {{term:text}} [are there|are left|do we have|exist|are] {_IN}",
    ),
    rule(
        _uses,
        f"[(show|tell|find) [me]] where (is|are) {_SYMBOL} {{term:text}} "
        f"(used|called|mentioned|referenced|imported|raised) {_IN}",
        f"[(show|tell|find) [me]] where {_SYMBOL} {{term:text}} (is|are) "
        f"(used|called|mentioned|referenced|imported) {_IN}",
        f"[(show|tell|find) [me]] where (do we|do i|does it) (use|call|mention|reference|import) {_SYMBOL} "
        f"{{term:text}}",
        "(who|what|which (code|functions?)) (calls?|uses?|imports?|references?) {term:text}",
        f"is {_SYMBOL} {{term:text}} (used|called|mentioned|imported|referenced) [anywhere|somewhere] {_IN}",
        "does (anything|anyone|any file|something) (use|call|mention|import|reference) {term:text}",
    ),
    rule(_any, f"[are there|is there|do we have] any {{term:text}} [left|remaining] {_IN}"),
    rule(_shown, "(list|show [me]) [all] [the|any] {term:text}"),
    rule(_plain, "(list|show [me]) [all] [the|any] {term:uses}"),
    rule(_grep, "(grep|rg|ripgrep) [{flags:flags}] [for] {term:text}"),
    rule(
        _there,
        "search [in|through] [the] {path} [files|folder|directory] for {term:text}",
        "look in [the] {path} [files|folder|directory] for {term:text}",
    ),
    rule(_plain, "(search for|search|find me|find|look for|look up|scan for|check for|hunt for) {term:text}"),
)
