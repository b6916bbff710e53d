"""Requests that change files: replace, rename, create, append, delete, move."""

import re

from odin.providers.offline.quotes import QUOTED, Request
from odin.providers.offline.scope import Scope, clean_term, cut_scope
from odin.providers.offline.task import LAST_FILE, Task
from odin.providers.offline.vocabulary import PLACE, looks_like_path

_IT = frozenset(["it", "that", "this", "that file", "this file", "the file", "the same file", "that one"])
_FILE = r"(?:file|script|document|module|page|note|text file)"
_NEEDS_INVENTION = (
    "implement fix refactor optimise optimize improve debug generate translate convert design review explain document "
    "solve build develop extend rewrite port migrate upgrade clean simplify speed finish complete investigate analyse "
    "analyze check why commit push merge deploy install write add create make update change"
).split()


def change(clause: str, words: Request) -> Task | None:
    verb = clause.split(maxsplit=1)[0].lower()
    if verb in ("replace", "substitute", "swap", "rename", "change", "correct", "turn", "update") or verb.startswith(
        "s/"
    ):
        return _replace(clause, words)
    prefixed = re.match(
        rf"(?:in|inside|within) (?P<place>{PLACE}),? (?=(?:replace|rename|change|substitute)\b)", clause, re.I
    )
    if prefixed:
        task = _replace(clause[prefixed.end() :], words)
        if task and task.kind == "replace" and not task.path:
            return _with_path(task, words.content(prefixed["place"]))
    for verbs, phrase in _FAMILIES:
        if verb in verbs:
            task = phrase(clause, words)
            if task:
                return task
    return None


def invention(clause: str) -> Task | None:
    """Work that needs a mind: it is named, so that the answer can say what is missing."""
    first = clause.split(maxsplit=1)[0].lower().rstrip(",") if clause.strip() else ""
    return Task("invent") if first in _NEEDS_INVENTION else None


def _with_path(task: Task, path: str) -> Task:
    return Task(task.kind, task.term, task.new, LAST_FILE if path.lower() in _IT else path, how=task.how)


def _replace(clause: str, words: Request) -> Task | None:
    verb, _, rest = clause.partition(" ")
    verb = verb.lower()
    sed = re.match(r"s/((?:[^/\\]|\\.)+)/((?:[^/\\]|\\.)*)/g?(?=\s|$)", clause)
    if sed:
        scope = cut_scope(clause[sed.end() :], words)
        return _scoped(sed[1].replace("\\/", "/"), sed[2].replace("\\/", "/"), scope, "")
    scope = cut_scope(rest, words)
    joint = r"with|by|for|->|=>|→" if verb in ("replace", "substitute", "swap") else r"to|into|as|->|=>|→"
    found = re.fullmatch(rf"(?P<old>.+?)\s*(?<=[\s\ue001])(?P<joint>{joint})\s+(?P<new>.*)", scope.rest, re.IGNORECASE)
    if not found:
        return None
    old, new = found["old"].strip(), _replacement(found["new"])
    if verb == "substitute" and found["joint"].lower() == "for":
        old, new = new, old
    if not scope.path and not re.fullmatch(QUOTED, old):
        inner = cut_scope(old, words)
        if inner.given:
            old, scope = inner.rest, Scope(scope.rest, inner.path, inner.globs, scope.everywhere or inner.everywhere)
    if verb in ("change", "turn", "update", "correct") and not (_single(old) and _single(new)):
        return None
    term, how = clean_term(old, words)
    if verb == "rename" and looks_like_path(term) and looks_like_path(words.content(new)):
        return Task("move", path=term, new=words.content(new))
    return _scoped(term, words.content(new), scope, "word" if verb == "rename" or how == "word" else "")


def _single(fragment: str) -> bool:
    return bool(re.fullmatch(rf"(?:the (?:word|name|text|string) )?(?:{QUOTED}|\S+)", fragment, re.IGNORECASE))


def _replacement(fragment: str) -> str:
    return re.sub(r"^(?:the (?:word|string|text) )(?=\S)", "", fragment.strip(), flags=re.IGNORECASE)


def _scoped(term: str, new: str, scope: Scope, how: str) -> Task | None:
    if not term:
        return None
    path = LAST_FILE if scope.path.lower() in _IT else scope.path
    return Task("replace", term, new, path, scope.globs, how=how, everywhere=scope.everywhere or bool(scope.globs))


def _remove(clause: str, words: Request) -> Task | None:
    text = re.fullmatch(
        rf"(?:delete|remove|erase|strip) (?:all |every |the )*(?:(?:occurrences?|instances?|words?|lines?|text|strings?) (?:of )?)?(?P<what>{QUOTED})"
        r"(?P<scope> .+)?",
        clause,
        re.IGNORECASE,
    )
    if text and text["scope"]:
        scope = cut_scope(text["scope"], words)
        if scope.given and not scope.rest:
            return _scoped(words.content(text["what"]), "", scope, "")
    found = re.fullmatch(
        rf"(?:delete|remove|rm|erase) (?:the )?(?P<noun>file |folder |directory )?(?P<path>{PLACE}(?: file)?)",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return None
    path = words.content(found["path"])
    if path.lower() in _IT:
        return Task("delete", path=LAST_FILE)
    return Task("delete", path=path) if found["noun"] or looks_like_path(path) else None


def _move(clause: str, words: Request) -> Task | None:
    found = re.fullmatch(
        rf"(?:move|mv) (?:the )?(?:file )?(?P<old>{PLACE}) (?:in)?to (?P<new>{PLACE})", clause, re.IGNORECASE
    )
    if not found:
        return None
    return Task("move", path=words.content(found["old"]), new=words.content(found["new"]))


def _create(clause: str, words: Request) -> Task | None:
    folder = re.fullmatch(
        rf"(?:create|make|add) (?:a |the )?(?:new )?(?:folder|directory|dir)(?: (?:called|named))? (?P<path>{PLACE})",
        clause,
        re.I,
    )
    if folder:
        return Task("mkdir", path=words.content(folder["path"]))
    found = re.fullmatch(
        rf"(?:create|make|add|write|touch|start|new)(?: me)?(?: an?| the| one)?(?P<empty>(?: new| empty| blank)*)(?P<noun> {_FILE})?"
        rf"(?: called| named| at| with the name)? (?P<path>{PLACE})(?: file)?(?P<tail>.*)",
        clause,
        re.IGNORECASE,
    )
    if not found or (not found["noun"] and not looks_like_path(words.content(found["path"]))):
        return None
    path = words.content(found["path"])
    tail = found["tail"].strip()
    if not tail or re.fullmatch(r"(?:that|which) is empty|with no(?:thing| content)(?: in it)?", tail, re.IGNORECASE):
        return Task("create", path=path)
    content = _content(tail, words)
    return Task("invent") if content is None else Task("create", path=path, new=content)


_CONTENT = (
    r"(?:,? ?(?:with|containing|that contains|which contains|that says|which says|saying|holding|having|and put|:))"
    r"(?P<noun> (?:the |this |following |as )*(?:contents?|text|lines?|words?|body|code|message|string))?(?: (?:of|being|is))?\s*:?\s*(?P<what>.+)"
)


def _content(tail: str, words: Request) -> str | None:
    """The literal content a file is asked to have, or None when it would have to be made up."""
    found = re.fullmatch(_CONTENT, tail, re.IGNORECASE)
    if not found:
        return None
    what = re.sub(rf"^({QUOTED}) (?:in it|inside|as (?:the )?content)$", r"\1", found["what"].strip())
    if re.fullmatch(QUOTED, what):
        return words.content(what)
    literal = found["noun"] or re.match(r",? ?(?:that says|which says|saying|containing)", tail, re.IGNORECASE)
    if literal and not re.match(
        r"(?:an?|the|some|all|code|tests?|functions?|that|which|for|to)\b", what, re.IGNORECASE
    ):
        return words.typed(what)
    return None


def _write(clause: str, words: Request) -> Task | None:
    found = re.fullmatch(
        rf"(?:write|save|put|store) (?:the )?(?:text |line |words? |content |contents |following )*:?\s*(?P<what>{QUOTED}) (?:in|to|into|as|at|inside)"
        rf" (?:a |the )?(?:new )?(?:{_FILE} )?(?:called |named )?(?P<path>{PLACE})(?: file)?",
        clause,
        re.IGNORECASE,
    )
    if found:
        path = words.content(found["path"])
        path = LAST_FILE if path.lower() in _IT else path
        return Task("create", path=path, new=words.content(found["what"]), how="write")
    return _create(clause, words) if clause.lower().startswith("write") else None


def _overwrite(clause: str, words: Request) -> Task | None:
    found = re.fullmatch(
        rf"overwrite (?:the )?(?:file )?(?P<path>{PLACE}) with (?:the )?(?:text |content |contents )?:?\s*(?P<what>{QUOTED})",
        clause,
        re.I,
    )
    if not found:
        return None
    path = words.content(found["path"])
    return Task("create", path=LAST_FILE if path in _IT else path, new=words.content(found["what"]), how="overwrite")


def _append(clause: str, words: Request) -> Task | None:
    found = re.fullmatch(
        rf"(?P<verb>append|add) (?:an?other |a |the )?(?:new )?(?:line |text |lines |word |words )?:?\s*(?P<what>{QUOTED}|.+?)"
        rf" (?:to|at|onto) (?:the )?(?:(?:end|bottom) of )?(?:the )?(?:file )?(?P<path>{PLACE})(?: file)?",
        clause,
        re.IGNORECASE,
    )
    if not found:
        return _create(clause, words) if clause.lower().startswith("add") else None
    quoted = re.fullmatch(QUOTED, found["what"])
    if found["verb"].lower() == "add" and not quoted:
        return None
    path = words.content(found["path"])
    if path.lower() in _IT:
        path = LAST_FILE
    return Task("append", path=path, new=words.content(found["what"]))


_FAMILIES = (
    (("create", "make", "touch", "new", "start"), _create),
    (("write", "save", "put", "store"), _write),
    (("overwrite",), _overwrite),
    (("append", "add"), _append),
    (("delete", "remove", "rm", "erase", "strip"), _remove),
    (("move", "mv"), _move),
)
