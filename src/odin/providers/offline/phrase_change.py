"""Requests that change files: replace, rename, create, append, delete, move."""

import re

from odin.providers.offline.quotes import QUOTED, QuotedRequest
from odin.providers.offline.scope import PlaceScope, clean_term, cut_scope
from odin.providers.offline.task import LAST_FILE, PlannerTask
from odin.providers.offline.template import PhraseMatch, PhraseTable, make_rule
from odin.providers.offline.vocabulary import is_path_like

_PRONOUNS = frozenset(["it", "that", "this", "that file", "this file", "the file", "the same file", "that one"])
_FILE_NOUN = "(file|script|document|module|page|text file)"
_CALLED_PHRASE = "[called|named|at]"
_SAYING_PHRASE = "(with|with:|containing|containing:|that contains|which contains|that says|which says|saying|having)"
_CONTENT_PHRASE = "(content|contents|text|line|lines|word|words|body|message|content:|contents:|text:|line:|following:)"
_INVENTED_START = r"(?:an?|the|some|all|code|tests?|functions?|that|which|for|to)\b"
_SED_COMMAND = r"s/((?:[^/\\]|\\.)+)/((?:[^/\\]|\\.)*)/g?(?=\s|$)"


def match_change(clause: str, words: QuotedRequest) -> PlannerTask | None:
    """What changes a file. The place of a replacement is taken off first, then the rest is looked up."""
    verb = clause.split(maxsplit=1)[0].lower()
    if verb.startswith("s/"):
        return _match_sed(clause, words)
    if verb in ("replace", "substitute", "swap", "rename", "change", "correct", "turn", "update"):
        return _match_replace(clause, words)
    return _match_place_first(clause, words) or _match_file_change(clause, words)


def _match_place_first(clause: str, words: QuotedRequest) -> PlannerTask | None:
    """ "in a.py, replace x with y": the place may come first."""
    found = re.match(
        rf"(?:in|inside|within) (?:the )?(?:file )?({QUOTED}|[^\s,]+),? (?=(?:replace|rename|change|substitute)\b)",
        clause,
        re.I,
    )
    if not found:
        return None
    task = _match_replace(clause[found.end() :], words)
    if task is None or task.kind != "replace" or task.path:
        return task
    return _make_replacement(task.term, task.new, PlaceScope("", words.unquote(found[1])), task.variant)


def _match_sed(clause: str, words: QuotedRequest) -> PlannerTask | None:
    found = re.match(_SED_COMMAND, clause)
    if not found:
        return None
    scope = cut_scope(clause[found.end() :], words)
    return _make_replacement(found[1].replace("\\/", "/"), found[2].replace("\\/", "/"), scope, "")


def _match_replace(clause: str, words: QuotedRequest) -> PlannerTask | None:
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
        if inner.is_given:
            old, scope = inner.rest, PlaceScope("", inner.path, inner.globs, scope.everywhere or inner.everywhere)
    if verb in ("change", "turn", "update", "correct") and not (_is_single_word(old) and _is_single_word(new)):
        return None
    term, how = clean_term(old, words)
    if verb == "rename" and is_path_like(term) and is_path_like(words.unquote(new)):
        return PlannerTask("move", path=term, new=words.unquote(new))
    return _make_replacement(term, words.unquote(new), scope, "word" if verb == "rename" or how == "word" else "")


def _is_single_word(fragment: str) -> bool:
    """One word or one quoted text: "change the colour to something warm" is for a model."""
    return re.fullmatch(rf"(?:the (?:word|name|text|string) )?(?:{QUOTED}|\S+)", fragment, re.IGNORECASE) is not None


def _make_replacement(term: str, new: str, scope: PlaceScope, how: str) -> PlannerTask | None:
    if not term:
        return None
    path = LAST_FILE if scope.path.lower() in _PRONOUNS else scope.path
    return PlannerTask(
        "replace", term, new, path, scope.globs, variant=how, everywhere=scope.everywhere or bool(scope.globs)
    )


def _make_removal(said: PhraseMatch) -> PlannerTask | None:
    scope = cut_scope(f"x {said.get_raw('scope')}", said.words)
    if not scope.is_given or scope.rest != "x":
        return None
    return _make_replacement(said["what"], "", scope, "")


def _make_deletion(said: PhraseMatch) -> PlannerTask | None:
    path = said.get_path()
    named = re.search(r" (?:file|folder|directory) ", said.clause)
    return PlannerTask("delete", path=path) if named or path == LAST_FILE or is_path_like(path) else None


def _make_move(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("move", path=said["path"], new=said["new"])


def _make_mkdir(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("mkdir", path=said["path"])


def _make_creation(said: PhraseMatch) -> PlannerTask | None:
    """A new file, empty or with literal content. Content that would have to be thought up is for a model."""
    if not said.get_raw("noun") and not is_path_like(said["path"]):
        return None
    if not said.get_raw("tail"):
        return PlannerTask("create", path=said["path"])
    content = _match_content(said.get_raw("tail"), said.words)
    return PlannerTask("invent") if content is None else PlannerTask("create", path=said["path"], new=content.new)


def _make_quoted_content(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("create", new=said["what"])


def _make_typed_content(said: PhraseMatch) -> PlannerTask | None:
    what = said.get_raw("what")
    return (
        None
        if re.match(_INVENTED_START, what, re.IGNORECASE)
        else PlannerTask("create", new=said.words.restore_quotes(what))
    )


_match_content = PhraseTable(
    make_rule(PlannerTask("create"), "(that|which) is empty", "with (nothing|no content) [in it]"),
    make_rule(
        _make_quoted_content,
        f"{_SAYING_PHRASE} [the|this] [following] [{_CONTENT_PHRASE}] [of|being] {{what:quoted}} [in it|inside|as [the] content]",
        "and (put|write) {what:quoted} (in it|into it|inside)",
        "{what:quoted}",
    ),
    make_rule(
        _make_typed_content,
        f"(with|having) [the|this] [following] {_CONTENT_PHRASE} [of] {{what:text}}",
        "(containing|that says|which says|saying) {what:text}",
    ),
)


def _make_write(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("create", path=said.get_path(), new=said["what"], variant="write")


def _make_overwrite(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("create", path=said.get_path(), new=said["what"], variant="overwrite")


def _make_append(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("append", path=said.get_path(), new=said["what"])


_TO_FILE = f"[a|the] [new] [{_FILE_NOUN}] {_CALLED_PHRASE} {{path:file}} [file]"

_match_file_change = PhraseTable(
    make_rule(_make_mkdir, "(create|make|add) [a|the] [new] (folder|directory|dir) [called|named] {path}"),
    make_rule(
        _make_creation,
        "(create|make|add|write|touch|start) [me] [a|an|the|one] [new] [empty|blank] [new] "
        f"{{noun:noun}} {_CALLED_PHRASE} {{path}} [file] [{{tail:text}}]",
        "(create|make|add|write|touch|start) [a|an|the] [new] [empty|blank] {path} [file] [{tail:text}]",
    ),
    make_rule(
        _make_write,
        f"(write|save|put|store) [the] [following] [{_CONTENT_PHRASE}] {{what:quoted}} (in|to|into|as|at|inside) {_TO_FILE}",
    ),
    make_rule(_make_overwrite, f"overwrite [the] [file] {{path:file}} with [the] [{_CONTENT_PHRASE}] {{what:quoted}}"),
    make_rule(
        _make_append,
        "(append|add) [a|another|the] [new] [line|lines|text|word|words] {what:quoted} "
        "(to|at|onto) [the] [end of|bottom of] [the] [file] {path:file} [file]",
        "append [the] [line|text] {what:text} (to|at|onto) [the] [end of|bottom of] [the] [file] {path:file} [file]",
    ),
    make_rule(
        _make_removal,
        "(delete|remove|erase|strip) [all|every|the] [(occurrences?|instances?|words?|lines?|text|strings?) [of]] "
        "{what:quoted} {scope:text}",
    ),
    make_rule(_make_deletion, "(delete|remove|erase) [the] [file|folder|directory] {path:file} [file]"),
    make_rule(_make_move, "(move|mv) [the] [file] {path} (to|into) {new}"),
)

match_invention = PhraseTable(
    make_rule(
        PlannerTask("invent"),
        "(implement|fix|refactor|optimise|optimize|improve|debug|generate|translate|convert|design|review|explain|document|"
        "solve|build|develop|extend|rewrite|port|migrate|upgrade|clean|simplify|finish|complete|investigate|analyse|"
        "analyze|check|why|commit|push|merge|deploy|install|write|add|create|make|update|change) [{rest:text}]",
    )
)
