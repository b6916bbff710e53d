"""Requests to search the text of files."""

import re

from odin.providers.offline.quotes import QUOTED, Request
from odin.providers.offline.scope import clean_term, cut_scope
from odin.providers.offline.task import Task
from odin.providers.offline.vocabulary import PLACE

_VERBS = r"(?:search(?: (?:for|through|in|the (?:code|project|repo) for))?|find|grep(?: for)?|rg|look(?:ing)? (?:for|up)|scan for|list|show(?: me)?|check for|hunt for)"
_HAVE = (
    r"(?:mentions?|contains?|uses?|references?|imports?|includes?|have|has|calls?|defines?|use of|talk about|refer to)"
)
_VAGUE = r"(?:the |a |an |any |out|why|how|when|whether|what|some )+.*\b(?:bugs?|problems?|issues?|errors? in|ways?|reasons?|cause|solution|why|how)\b.*|out\b.*|why\b.*|how\b.*"
_MAX_WORDS = 8


def search(clause: str, words: Request) -> Task | None:
    clause, ignoring = _ignore_case(clause)
    task = (
        _definition(clause, words)
        or _files_with(clause, words)
        or _count(clause, words)
        or _uses(clause, words)
        or _plain(clause, words)
    )
    if task is None or not ignoring:
        return task
    return Task(task.kind, task.term, path=task.path, globs=task.globs, how=f"{task.how} -i".strip(), whole=task.whole)


def _ignore_case(clause: str) -> tuple[str, bool]:
    shorter = re.sub(
        r",?\s*\(?(?:case[- ]insensitive(?:ly)?|ignoring (?:the )?case|ignore case|in any case|regardless of case)\)?(?= |$)",
        "",
        clause,
        flags=re.I,
    )
    return shorter.strip(), shorter != clause


def _task(text: str, words: Request, how: str) -> Task | None:
    """The search for a term with its place at the end."""
    scope = cut_scope(text, words)
    fragment, whole = scope.rest, ""
    if not fragment:
        return None
    if scope.path and not re.search(QUOTED, text):
        whole = words.typed(text)
    term, meant = clean_term(fragment, words)
    if not term or (not re.search(QUOTED, fragment) and _too_vague(fragment)):
        return None
    return Task("search", term, path=scope.path, globs=scope.globs, how=how or meant, whole=whole)


def _too_vague(fragment: str) -> bool:
    return len(fragment.split()) > _MAX_WORDS or bool(re.fullmatch(_VAGUE, fragment, re.IGNORECASE))


def _definition(clause: str, words: Request) -> Task | None:
    found = re.fullmatch(
        r"(?:(?:show|find|tell)(?: me)? )?where(?:'s| is| are| do we)? (?:the )?(?:function |class |method |variable |type |constant )?(?P<a>.+?) (?:is |are )?"
        rf"(?:defined|declared|implemented|defined at|coming from)(?P<in1> in (?:the )?{PLACE}(?: folder| directory)?)?"
        r"|(?:find|show|locate|go to|jump to|get)(?: me)? (?:the )?(?:definition|declaration|implementation)s? (?:of|for) (?P<b>.+)",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    text = found["b"] or f"{found['a']}{found['in1'] or ''}"
    return _task(text, words, "definition")


def _files_with(clause: str, words: Request) -> Task | None:
    found = re.fullmatch(
        rf"(?:(?:which|what) (?P<kind1>[\w.+#]+ )?files?|(?:find|list|show|search for|locate)(?: me)? (?:all |the |any )*(?P<kind2>[\w.+#]+ )?files?|files?)"
        rf" (?:that |which )?(?:{_HAVE}|containing|mentioning|using|importing|referencing|with) (?:the (?:word|text|string) )?(?P<term>.+)",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    kind = (found["kind1"] or found["kind2"] or "").strip()
    text = f"{found['term']} in {kind} files" if kind and kind.lower() not in ("of", "all", "the") else found["term"]
    return _task(text, words, "files")


def _count(clause: str, words: Request) -> Task | None:
    lines = re.fullmatch(
        rf"(?:count (?:the )?lines (?:in|of) |how many lines (?:are (?:there )?in |does |has |in )|number of lines (?:in|of) )(?:the )?(?:file )?(?P<path>{PLACE})(?: have)?",
        clause,
        re.IGNORECASE,
    )
    if lines:
        return Task("count-lines", path=words.content(lines["path"]))
    found = re.fullmatch(
        r"(?:count|number of|how many(?: times)?) (?:does |do |is |are )?(?P<term>.+?)"
        r"(?: (?:appears?|occurs?|used|mentioned|are there|is there|are left|left|do we have|exist|are))?(?P<scope> (?:in|inside|under|across|within) .+)?",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    return _task(found["term"] + (found["scope"] or ""), words, "count")


def _uses(clause: str, words: Request) -> Task | None:
    found = re.fullmatch(
        r"(?:(?:show|tell|find)(?: me)? )?where(?:'s| is| are| do we| do i| does (?:it|this|the code))? (?:the )?(?:function |class |method |variable )?(?:(?:use|call|mention|reference|import) (?P<a>.+)"
        r"|(?P<b>.+?) (?:is |are |gets |being )?(?:used|called|mentioned|referenced|imported|found|raised|set)(?P<in1> in .+)?)"
        r"|(?:who|what|which (?:code|functions?)) (?:calls?|uses?|imports?|references?) (?P<c>.+)"
        r"|is (?P<d>.+?) (?:used|called|mentioned|imported|referenced)(?P<in2>(?: anywhere| somewhere)?(?: in .+)?)"
        r"|does (?:anything|anyone|any file|something|anybody) (?:use|call|mention|import|reference) (?P<e>.+)"
        r"|(?:are there |is there )?any (?P<f>.+?)(?: left| remaining)?(?P<in3> in .+)?",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    groups = found.groupdict()
    term = next(groups[name] for name in "abcdef" if groups[name])
    places = "".join(groups[name] or "" for name in ("in1", "in2", "in3"))
    if groups["f"]:
        if not re.fullmatch(rf"{QUOTED}|\S+(?: comments?| markers?| calls?)?", term):
            return None
        return _task(term + places, words, "")
    return _task(re.sub(r" (?:any|some)where\b", "", term + places), words, "word")


def _plain(clause: str, words: Request) -> Task | None:
    found = re.match(rf"(?P<verb>{_VERBS})\s+", clause, re.IGNORECASE)
    if not found:
        return None
    rest = clause[found.end() :]
    verb = found["verb"].lower()
    inverted = re.fullmatch(
        rf"(?:in )?(?:the )?(?P<path>{PLACE}(?: files| folder)?) for (?P<term>.+)", rest, re.IGNORECASE
    )
    if inverted and verb.startswith("search"):
        rest = f"{inverted['term']} in {inverted['path']}"
    if verb.startswith(("list", "show")):
        marker = re.fullmatch(
            rf"(?:(?:all|the|every|any) )*(?P<term>{QUOTED}|[A-Z]{{3,}}s?)(?: comments?| markers?)?(?P<scope> (?:in|under) .+)?",
            rest,
        )
        uses = re.match(
            r"(?:(?:all|the|every) )*(?:uses?|usages?|occurrences?|references?|mentions?|matches|callers|calls) (?:of|to|for) ",
            rest,
            re.I,
        )
        if not marker and not uses:
            return None
    if verb.startswith("grep") or verb == "rg":
        return _grep(rest, words)
    return _task(rest, words, "")


def _grep(rest: str, words: Request) -> Task | None:
    """grep as one types it, with its most common options."""
    options = re.match(r"(?:-[\w-]+ )+", rest)
    flags = options[0] if options else ""
    rest = rest[len(flags) :]
    typed = re.fullmatch(rf"(?P<term>{QUOTED}|[^\s]+) (?P<path>{PLACE})", rest)
    if typed and (flags or not re.fullmatch(r"in|for", typed["path"])):
        rest = f"{typed['term']} in {typed['path']}"
    task = _task(rest, words, "word" if re.search(r"-\w*w", flags) else "")
    if task and re.search(r"-\w*i", flags):
        return Task(
            "search", task.term, path=task.path, globs=task.globs, how=f"{task.how} -i".strip(), whole=task.whole
        )
    return task
