"""Phrases that change files, run commands, ask git, and follow-ups that refer to what came before."""

import re

from odin.providers.offline.language import (
    COMMANDS,
    QUOTED,
    PhraseMatch,
    PhraseTable,
    PlaceScope,
    QuotedRequest,
    clean_term,
    cut_scope,
    is_path_like,
    make_rule,
)
from odin.providers.offline.task import LAST_FILE, PlannerTask

_PRONOUNS = frozenset(["it", "that", "this", "that file", "this file", "the file", "the same file", "that one"])
_FILE_NOUN = "(file|script|document|module|page|text file)"
_CALLED_PHRASE = "[called|named|at]"
_SAYING_PHRASE = "(with|with:|containing|containing:|that contains|which contains|that says|which says|saying|having)"
_CONTENT_PHRASE = "(content|contents|text|line|lines|word|words|body|message|content:|contents:|text:|line:|following:)"
_INVENTED_START = r"(?:an?|the|some|all|code|tests?|functions?|that|which|for|to)\b"
_SED_COMMAND = r"s/((?:[^/\\]|\\.)+)/((?:[^/\\]|\\.)*)/g?(?=\s|$)"


def match_change(clause: str, words: QuotedRequest) -> PlannerTask | None:
    """Return the task of a clause that changes a file. The location is cut off first, then the rest is matched."""
    verb = clause.split(maxsplit=1)[0].lower()
    if verb.startswith("s/"):
        return _match_sed(clause, words)
    if verb in ("replace", "substitute", "swap", "rename", "change", "correct", "turn", "update"):
        return _match_replace(clause, words)
    return _match_place_first(clause, words) or _match_file_change(clause, words)


def _match_place_first(clause: str, words: QuotedRequest) -> PlannerTask | None:
    """Match "in a.py, replace x with y", where the location comes first."""
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
    term, variant = clean_term(old, words)
    if verb == "rename" and is_path_like(term) and is_path_like(words.unquote(new)):
        return PlannerTask("move", path=term, new=words.unquote(new))
    return _make_replacement(term, words.unquote(new), scope, "word" if verb == "rename" or variant == "word" else "")


def _is_single_word(fragment: str) -> bool:
    """True for one word or one quoted text: "change the color to something warm" needs a model."""
    return re.fullmatch(rf"(?:the (?:word|name|text|string) )?(?:{QUOTED}|\S+)", fragment, re.IGNORECASE) is not None


def _make_replacement(term: str, new: str, scope: PlaceScope, variant: str) -> PlannerTask | None:
    if not term:
        return None
    path = LAST_FILE if scope.path.lower() in _PRONOUNS else scope.path
    return PlannerTask(
        "replace", term, new, path, scope.globs, variant=variant, everywhere=scope.everywhere or bool(scope.globs)
    )


def _make_removal(match: PhraseMatch) -> PlannerTask | None:
    scope = cut_scope(f"x {match.get_raw('scope')}", match.words)
    if not scope.is_given or scope.rest != "x":
        return None
    return _make_replacement(match["what"], "", scope, "")


def _make_deletion(match: PhraseMatch) -> PlannerTask | None:
    path = match.get_path()
    named = re.search(r" (?:file|folder|directory) ", match.clause)
    return PlannerTask("delete", path=path) if named or path == LAST_FILE or is_path_like(path) else None


def _make_move(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("move", path=match["path"], new=match["new"])


def _make_mkdir(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("mkdir", path=match["path"])


def _make_creation(match: PhraseMatch) -> PlannerTask | None:
    """Return the task for a new file, empty or with literal content. Content to be invented needs a model."""
    if not match.get_raw("noun") and not is_path_like(match["path"]):
        return None
    if not match.get_raw("tail"):
        return PlannerTask("create", path=match["path"])
    content = _match_content(match.get_raw("tail"), match.words)
    return PlannerTask("invent") if content is None else PlannerTask("create", path=match["path"], new=content.new)


def _make_quoted_content(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("create", new=match["what"])


def _make_typed_content(match: PhraseMatch) -> PlannerTask | None:
    what = match.get_raw("what")
    return (
        None
        if re.match(_INVENTED_START, what, re.IGNORECASE)
        else PlannerTask("create", new=match.words.restore_quotes(what))
    )


_match_content = PhraseTable(
    make_rule(PlannerTask("create"), "(that|which) is empty", "with (nothing|no content) [in it]"),
    make_rule(
        _make_quoted_content,
        f"{_SAYING_PHRASE} [the|this] [following] [{_CONTENT_PHRASE}] [of|being] "
        f"{{what:quoted}} [in it|inside|as [the] content]",
        "and (put|write) {what:quoted} (in it|into it|inside)",
        "{what:quoted}",
    ),
    make_rule(
        _make_typed_content,
        f"(with|having) [the|this] [following] {_CONTENT_PHRASE} [of] {{what:text}}",
        "(containing|that says|which says|saying) {what:text}",
    ),
)


def _make_write(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("create", path=match.get_path(), new=match["what"], variant="write")


def _make_overwrite(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("create", path=match.get_path(), new=match["what"], variant="overwrite")


def _make_append(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("append", path=match.get_path(), new=match["what"])


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
        f"(write|save|put|store) [the] [following] [{_CONTENT_PHRASE}] {{what:quoted}} "
        f"(in|to|into|as|at|inside) {_TO_FILE}",
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


_RUN = "(run|rerun|re-run|execute|exec|launch|start)"
_TESTS = (
    "[all] [the|my|our|your|its] [all|unit|whole|full|integration|project's] "
    "(tests?|test suite|testsuite|test cases?|specs?)"
)
_TEST_FILE = r"test_.*\.py|.*_test\.(?:py|go)|.*\.(?:test|spec)\.\w+|tests?/?"


def _make_tests(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("tests", path=match.get_path())


def _make_quoted_command(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("run", command=match["command"].strip())


def _make_script(match: PhraseMatch) -> PlannerTask | None:
    path = match.get_path()
    if not is_path_like(path) or path.startswith(("./", "/")):
        return None
    is_test = re.fullmatch(_TEST_FILE, path.rstrip("/").rsplit("/", 1)[-1])
    return PlannerTask("tests" if is_test else "script", path=path)


def _make_command(match: PhraseMatch) -> PlannerTask:
    typed = match.words.restore_quotes(match.get_raw("command"))
    return PlannerTask("run", command=typed) if is_command(typed) else PlannerTask("which-command", source_text=typed)


def _make_typed_command(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("run", command=match.words.restore_quotes(match.clause))


def _make_backtick_command(match: PhraseMatch) -> PlannerTask | None:
    in_backticks = match.words.restore_quotes(match.get_raw("command")).startswith("`")
    return _make_quoted_command(match) if in_backticks and is_command(match["command"]) else None


def is_command(text: str) -> bool:
    """True if the words look like a command: a known program, a path, or an option among them."""
    first, *others = text.split() or [""]
    if first in COMMANDS or first.startswith(("./", "/", "~/")):
        return True
    return any(re.match(r"--?[A-Za-z]", word) for word in others)


match_run = PhraseTable(
    make_rule(
        PlannerTask("tests"),
        f"{_RUN} {_TESTS}",
        "test (it|this|that|everything|(the|this) (project|code|repo))",
        "(do|does|are|is) [all] [the|my|our] (tests?|test suite|suite) [all] [still] "
        "(pass|passing|green|ok|work|working|run|succeed) [now]",
    ),
    make_rule(
        _make_tests, f"{_RUN} {_TESTS} (in|from|of|for|under) [the] [file|folder] {{path:file}} [file|folder|directory]"
    ),
    make_rule(PlannerTask("again", variant="run"), f"{_RUN} (it|that|this|them)"),
    make_rule(
        _make_quoted_command, f"{_RUN} [the|this|a] [shell|terminal|bash] [command|cmd] {{command:quoted}} [command]"
    ),
    make_rule(_make_script, f"{_RUN} [the] [file|script|program] {{path:file}}"),
    make_rule(_make_command, f"{_RUN} [the|this|a] [shell|terminal|bash] [command|cmd|command:] {{command:text}}"),
    make_rule(
        _make_typed_command,
        "(pytest|npm|npx|yarn|pnpm|cargo|pip|pip3|python|python3|tox|uv|docker|ruff|mypy|node) {rest:text}",
        "(mkdir|rmdir|rm|cp|echo|wc|du|df) {rest:text}",
        "(pytest|tox|whoami|date|uname)",
    ),
    make_rule(_make_backtick_command, "{command:quoted}"),
)


_ASK_PHRASE = "[(show|give|print|display|list|see|get|view) [me]|what is|what are] [the|a|all|my|our] [current|latest]"
_SINCE_PHRASE = "[here|recently|so far|since [the] last commit|in git|in (this|the) (repo|repository|project)]"
_CHANGE_VERBS = "(change|changed|modify|modified|edit|edited|touch|touched|wrote|write|update|updated|committed)"
_GIT_FILE = "[the] [file] {path:file}"
_REPO = "(repo|repository|project)"
_MAX_COMMITS = 200


def _make_diff(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("git", variant="diff", path=match.get_path())


def _make_log(match: PhraseMatch) -> PlannerTask:
    path = match.get_path()
    count = match.parse_number("n") if match.get_raw("n") else 10
    whole = path in ("git", "repo", "project")
    return PlannerTask("git", variant="log", first=max(1, min(count, _MAX_COMMITS)), path="" if whole else path)


def _make_last_commit(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("git", variant="log", first=1, path=match.get_path())


def _make_who(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("git", variant="who", path=match.get_path())


def _make_typed_git(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("git", variant="typed", command=match.words.restore_quotes(match.clause))


def _make_show(match: PhraseMatch) -> PlannerTask | None:
    revision = match["revision"]
    return (
        PlannerTask("git", variant="show", term=revision)
        if revision.replace("~", "").replace("^", "").isalnum()
        else None
    )


match_git = PhraseTable(
    make_rule(PlannerTask("git", variant="status"), "git status"),
    make_rule(PlannerTask("git", variant="diff"), "git diff"),
    make_rule(PlannerTask("git", variant="branches"), "git (branch|branches)"),
    make_rule(PlannerTask("git", variant="changes"), "git changes"),
    make_rule(PlannerTask("git", variant="log", first=10), "git (log|history)"),
    make_rule(_make_typed_git, "git {command:text}"),
    make_rule(
        PlannerTask("git", variant="status"),
        f"{_ASK_PHRASE} [git|repo|repository|working tree|work tree] status [of (the|this) {_REPO}]",
        f"is (the|my) (working tree|work tree|working copy|tree|{_REPO}) (clean|dirty)",
        "(are there|do i have|is there|have i) [any] (uncommitted|unstaged|staged|untracked|pending|local) "
        "[changes?|files?|work|modifications?]",
    ),
    make_rule(
        PlannerTask("git", variant="changes"),
        f"(what|which files?) [has|have|did|was|were|are|is] [i|we|you|been] [just|recently] "
        f"{_CHANGE_VERBS} {_SINCE_PHRASE}",
        f"{_ASK_PHRASE} [uncommitted|unstaged|local|recent|pending|git] "
        f"(changes|modifications|(changed|modified) files)",
    ),
    make_rule(
        _make_diff,
        f"what [has|have] [i|we|you|been] {_CHANGE_VERBS} in {_GIT_FILE}",
        f"{_ASK_PHRASE} [uncommitted|unstaged|local|recent] changes (in|to|of) {_GIT_FILE}",
        f"{_ASK_PHRASE} [git] (diff|diffs|difference|differences) [(of|for|in|to) {_GIT_FILE} [file]]",
        "(diff|diffs) {path:file}",
    ),
    make_rule(
        PlannerTask("git", variant="count"),
        f"how many commits [are there|do we have|does (this|the) {_REPO} have] [in (this|the) {_REPO}]",
    ),
    make_rule(
        _make_last_commit,
        f"{_ASK_PHRASE} (last|latest|previous|newest|most recent) [git] commit "
        f"[message] [(to|of|for|in|on) {_GIT_FILE}]",
    ),
    make_rule(
        _make_log,
        f"{_ASK_PHRASE} [last|latest|recent|previous|past|newest|most recent] [{{n:number}}] [git] commits [messages] "
        f"[(to|of|for|in|on|touching) {_GIT_FILE}]",
        f"{_ASK_PHRASE} [git|commit|change] (log|history) [(of|for) {_GIT_FILE}]",
    ),
    make_rule(_make_show, f"{_ASK_PHRASE} commit {{revision}}"),
    make_rule(
        PlannerTask("git", variant="show", term="HEAD"),
        "what (was|is|did) [there] in the (last|latest) commit [change|do]",
    ),
    make_rule(
        _make_who,
        f"who [was the] [last] {_CHANGE_VERBS} [to] {_GIT_FILE} [last|most recently|recently]",
        f"who (is|was) the [last] author of {_GIT_FILE}",
        f"when (was|did) {_GIT_FILE} [was] [last] {_CHANGE_VERBS} [last]",
    ),
    make_rule(
        PlannerTask("git", variant="branch"),
        "(what|which) [git] branch [(am i|are we|is this|is it|is checked out|is current) [on|in|at] [now]]",
        "[what is|show [me]|print|name] [the|my|our] [current|active] [git] branch [name]",
    ),
    make_rule(
        PlannerTask("git", variant="branches"),
        f"{_ASK_PHRASE} [git|local] branches",
        "(what|which) branches (are there|exist|do we have|do i have)",
    ),
)


_TODO_LIST = "[the|my] [current] (todos|todo list)"


def _make_todo_list(match: PhraseMatch) -> PlannerTask | None:
    """ "show TODOs" in capitals means markers in the code; the task list is written in lowercase."""
    return None if re.search(r"\bTODOs?\b", match.clause) else PlannerTask("todo", variant="show")


def _make_todo_item(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("todo", variant="add", new=match["what"])


def _make_todo_done(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("todo", variant="done", term=match["which"].lstrip("#"))


def _repeat_there(match: PhraseMatch) -> PlannerTask:
    return PlannerTask("again", path=match["what"])


def _repeat_about(match: PhraseMatch) -> PlannerTask:
    """Repeat the last task with another path or another term."""
    what = match["what"]
    if what.lower() == "everywhere":
        return PlannerTask("again", everywhere=True)
    return PlannerTask("again", path=what) if is_path_like(what) else PlannerTask("again", term=what)


def _repeat_on_path(match: PhraseMatch) -> PlannerTask | None:
    return PlannerTask("again", path=match["what"]) if is_path_like(match["what"]) else None


match_talk = PhraseTable(
    make_rule(
        PlannerTask("help", variant="hello"),
        "(hi|hello|hey|yo|hiya|greetings) [there|odin]",
        "good (morning|evening|afternoon|day)",
    ),
    make_rule(
        PlannerTask("help", variant="thanks"), "(thanks|thank you|thx|cheers|great|nice|perfect|ok|okay|cool|good job)"
    ),
    make_rule(
        PlannerTask("help"),
        "[show] (help|usage|commands) [me]",
        "what (can|do) (you|i) (do|ask|understand)",
        "what are you able to do",
        "(who|what) are you",
        "how (do you|does this) work",
        "are you [a|an] (ai|llm|model|bot|human|person|language model) {rest:text}",
        "are you [a|an|chatgpt|claude|gpt] [ai|llm|model|bot|human|person|language model]",
        "?",
    ),
    make_rule(
        PlannerTask("init"),
        "(/init|init|initialize|initialise) [odin [in|for]] [the|this|my] [project|repo|repository|folder]",
        "(create|write|make|generate|renew|refresh|update) [me] [a|an|the] [new] odin.md [file] "
        "[for (this|the|my) (project|repo|repository)]",
    ),
    make_rule(PlannerTask("again", variant="run"), "(rerun|re-run) [it|that]"),
    make_rule(
        PlannerTask("again"),
        "(again|once more|one more time|retry|try|repeat) [it|that]",
        "do (it|that)",
        "[do] [the] same [thing]",
    ),
    make_rule(
        PlannerTask("more"), "[show [me]] (more|the rest)", "(continue|go on|read on|keep reading|next page|next)"
    ),
    make_rule(
        PlannerTask("undo"),
        "(undo|revert|roll back|rollback|take back) [it|that|this|everything]",
        "(undo|revert|roll back|rollback|take back) [the|my|your|that|this] [last|latest|recent] "
        "(changes?|edits?|replacements?|one)",
    ),
    make_rule(
        _make_todo_item,
        "(add|create|make|put|new) [a|an|another|the] [new] (todo|todo:) [item|item:] [to|for|:] {what:text}",
        "todo: {what:text}",
        "(add|put) {what:text} (to|on|onto) [the|my] (todos|todo list)",
    ),
    make_rule(_make_todo_list, f"[show|list|see|print|what are|what is on] [me] {_TODO_LIST}"),
    make_rule(
        _make_todo_done,
        "(mark|check|tick|set|finish|complete) [off] [the] todo [number] {which} [as] [done|completed|finished|off]",
    ),
    make_rule(
        PlannerTask("again", everywhere=True),
        "everywhere",
        "(do|try|repeat) (it|that|this|[the] same [thing]) everywhere",
        "[the] same [thing] everywhere",
    ),
    make_rule(
        _repeat_there,
        "(in|within|under|inside) [the] {what} [folder|directory|file|dir]",
        "(do|try|repeat) (it|that|this|[the] same [thing]) (in|for|on|to|with|within|under|inside) [the] {what} "
        "[folder|directory|file]",
        "[the] same [thing] (in|for|on|to|with|within|under|inside) [the] {what} [folder|directory|file]",
        "(what|how) about in [the] {what} [folder|directory|file]",
    ),
    make_rule(_repeat_about, "(what|how) about [the] {what}", "for {what}"),
    make_rule(_repeat_on_path, "{what} [file|folder]"),
)
