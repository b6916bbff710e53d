"""Requests that change files: replace, rename, create, append, delete, move."""

import re

from odin.providers.offline.quotes import QUOTED, Request
from odin.providers.offline.scope import Scope, clean_term, cut_scope
from odin.providers.offline.task import LAST_FILE, Task
from odin.providers.offline.template import Said, Table, rule
from odin.providers.offline.vocabulary import looks_like_path

_IT = frozenset(["it", "that", "this", "that file", "this file", "the file", "the same file", "that one"])
_NOUN = "(file|script|document|module|page|text file)"
_CALLED = "[called|named|at]"
_SAYING = "(with|with:|containing|containing:|that contains|which contains|that says|which says|saying|having)"
_CONTENT = "(content|contents|text|line|lines|word|words|body|message|content:|contents:|text:|line:|following:)"
_INVENTED = r"(?:an?|the|some|all|code|tests?|functions?|that|which|for|to)\b"
_SED = r"s/((?:[^/\\]|\\.)+)/((?:[^/\\]|\\.)*)/g?(?=\s|$)"


def change(clause: str, words: Request) -> Task | None:
    """What changes a file. The place of a replacement is taken off first, then the rest is looked up."""
    verb = clause.split(maxsplit=1)[0].lower()
    if verb.startswith("s/"):
        return _sed(clause, words)
    if verb in ("replace", "substitute", "swap", "rename", "change", "correct", "turn", "update"):
        return _replace(clause, words)
    return _in_front(clause, words) or _files(clause, words)


def _in_front(clause: str, words: Request) -> Task | None:
    """ "in a.py, replace x with y": the place may come first."""
    found = re.match(
        rf"(?:in|inside|within) (?:the )?(?:file )?({QUOTED}|[^\s,]+),? (?=(?:replace|rename|change|substitute)\b)",
        clause,
        re.I,
    )
    if not found:
        return None
    task = _replace(clause[found.end() :], words)
    if task is None or task.kind != "replace" or task.path:
        return task
    return _replacement(task.term, task.new, Scope("", words.content(found[1])), task.how)


def _sed(clause: str, words: Request) -> Task | None:
    found = re.match(_SED, clause)
    if not found:
        return None
    scope = cut_scope(clause[found.end() :], words)
    return _replacement(found[1].replace("\\/", "/"), found[2].replace("\\/", "/"), scope, "")


def _replace(clause: str, words: Request) -> Task | None:
    verb, _, rest = clause.partition(" ")
    verb = verb.lower()
    scope = cut_scope(rest, words)
    joint = r"with|by|for|->|=>|→" if verb in ("replace", "substitute", "swap") else r"to|into|as|->|=>|→"
    found = re.fullmatch(rf"(?P<old>.+?)\s*(?<=[\s\ue001])(?P<joint>{joint})\s+(?P<new>.*)", scope.rest, re.IGNORECASE)
    if not found:
        return None
    old, new = found["old"].strip(), re.sub(r"^the (?:word|string|text) (?=\S)", "", found["new"].strip())
    if verb == "substitute" and found["joint"].lower() == "for":
        old, new = new, old
    if not scope.path and not re.fullmatch(QUOTED, old):
        inner = cut_scope(old, words)
        if inner.given:
            old, scope = inner.rest, Scope("", inner.path, inner.globs, scope.everywhere or inner.everywhere)
    if verb in ("change", "turn", "update", "correct") and not (_is_one(old) and _is_one(new)):
        return None
    term, how = clean_term(old, words)
    if verb == "rename" and looks_like_path(term) and looks_like_path(words.content(new)):
        return Task("move", path=term, new=words.content(new))
    return _replacement(term, words.content(new), scope, "word" if verb == "rename" or how == "word" else "")


def _is_one(fragment: str) -> bool:
    """One word or one quoted text: "change the colour to something warm" is for a model."""
    return re.fullmatch(rf"(?:the (?:word|name|text|string) )?(?:{QUOTED}|\S+)", fragment, re.IGNORECASE) is not None


def _replacement(term: str, new: str, scope: Scope, how: str) -> Task | None:
    if not term:
        return None
    path = LAST_FILE if scope.path.lower() in _IT else scope.path
    return Task("replace", term, new, path, scope.globs, how=how, everywhere=scope.everywhere or bool(scope.globs))


def _removed(said: Said) -> Task | None:
    scope = cut_scope(f"x {said.raw('scope')}", said.words)
    if not scope.given or scope.rest != "x":
        return None
    return _replacement(said["what"], "", scope, "")


def _deleted(said: Said) -> Task | None:
    path = said.file()
    named = re.search(r" (?:file|folder|directory) ", said.clause)
    return Task("delete", path=path) if named or path == LAST_FILE or looks_like_path(path) else None


def _moved(said: Said) -> Task:
    return Task("move", path=said["path"], new=said["new"])


def _folder(said: Said) -> Task:
    return Task("mkdir", path=said["path"])


def _created(said: Said) -> Task | None:
    """A new file, empty or with literal content. Content that would have to be thought up is for a model."""
    if not said.raw("noun") and not looks_like_path(said["path"]):
        return None
    if not said.raw("tail"):
        return Task("create", path=said["path"])
    content = _literal(said.raw("tail"), said.words)
    return Task("invent") if content is None else Task("create", path=said["path"], new=content.new)


def _quoted_content(said: Said) -> Task:
    return Task("create", new=said["what"])


def _typed_content(said: Said) -> Task | None:
    what = said.raw("what")
    return None if re.match(_INVENTED, what, re.IGNORECASE) else Task("create", new=said.words.typed(what))


_literal = Table(
    rule(Task("create"), "(that|which) is empty", "with (nothing|no content) [in it]"),
    rule(
        _quoted_content,
        f"{_SAYING} [the|this] [following] [{_CONTENT}] [of|being] {{what:quoted}} [in it|inside|as [the] content]",
        "and (put|write) {what:quoted} (in it|into it|inside)",
        "{what:quoted}",
    ),
    rule(
        _typed_content,
        f"(with|having) [the|this] [following] {_CONTENT} [of] {{what:text}}",
        "(containing|that says|which says|saying) {what:text}",
    ),
)


def _written(said: Said) -> Task:
    return Task("create", path=said.file(), new=said["what"], how="write")


def _overwritten(said: Said) -> Task:
    return Task("create", path=said.file(), new=said["what"], how="overwrite")


def _appended(said: Said) -> Task:
    return Task("append", path=said.file(), new=said["what"])


_TO_FILE = f"[a|the] [new] [{_NOUN}] {_CALLED} {{path:file}} [file]"

_files = Table(
    rule(_folder, "(create|make|add) [a|the] [new] (folder|directory|dir) [called|named] {path}"),
    rule(
        _created,
        "(create|make|add|write|touch|start) [me] [a|an|the|one] [new] [empty|blank] [new] "
        f"{{noun:noun}} {_CALLED} {{path}} [file] [{{tail:text}}]",
        "(create|make|add|write|touch|start) [a|an|the] [new] [empty|blank] {path} [file] [{tail:text}]",
    ),
    rule(
        _written,
        f"(write|save|put|store) [the] [following] [{_CONTENT}] {{what:quoted}} (in|to|into|as|at|inside) {_TO_FILE}",
    ),
    rule(_overwritten, f"overwrite [the] [file] {{path:file}} with [the] [{_CONTENT}] {{what:quoted}}"),
    rule(
        _appended,
        "(append|add) [a|another|the] [new] [line|lines|text|word|words] {what:quoted} "
        "(to|at|onto) [the] [end of|bottom of] [the] [file] {path:file} [file]",
        "append [the] [line|text] {what:text} (to|at|onto) [the] [end of|bottom of] [the] [file] {path:file} [file]",
    ),
    rule(
        _removed,
        "(delete|remove|erase|strip) [all|every|the] [(occurrences?|instances?|words?|lines?|text|strings?) [of]] "
        "{what:quoted} {scope:text}",
    ),
    rule(_deleted, "(delete|remove|erase) [the] [file|folder|directory] {path:file} [file]"),
    rule(_moved, "(move|mv) [the] [file] {path} (to|into) {new}"),
)

invention = Table(
    rule(
        Task("invent"),
        "(implement|fix|refactor|optimise|optimize|improve|debug|generate|translate|convert|design|review|explain|document|"
        "solve|build|develop|extend|rewrite|port|migrate|upgrade|clean|simplify|finish|complete|investigate|analyse|"
        "analyze|check|why|commit|push|merge|deploy|install|write|add|create|make|update|change) [{rest:text}]",
    )
)
