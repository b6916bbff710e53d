"""Requests for files and folders: list a folder, show the tree, find files by name or kind, describe the project."""

import re

from odin.providers.offline.quotes import QuotedRequest
from odin.providers.offline.scope import cut_scope
from odin.providers.offline.task import LAST_FILE, LAST_PLACE, PlannerTask
from odin.providers.offline.template import PhraseMatch, PhraseTable, make_rule
from odin.providers.offline.vocabulary import CONFIG_GLOBS, TEST_GLOBS, extensions_of, is_file_like, is_path_like

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


def _make_listing(said: PhraseMatch) -> PlannerTask:
    path = said.get_path()
    if path == LAST_FILE:
        path = LAST_PLACE
    return PlannerTask("read", path=path) if is_file_like(path) else PlannerTask("list", path=path)


def _make_typed_listing(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("list", path=said["path"], variant="tree" if re.search(r"^tree| -\w*R", said.clause) else "")


def _make_tree(said: PhraseMatch) -> PlannerTask | None:
    return None if is_file_like(said["path"]) else PlannerTask("list", path=said["path"], variant="tree")


def _make_bare_listing(said: PhraseMatch) -> PlannerTask | None:
    path = said["path"]
    if re.search(r"[*?]|^(?:all|every|any|todos?)$", path, re.IGNORECASE) or re.fullmatch(r"[A-Z]{2,}s?", path):
        return None
    return None if is_file_like(path) else PlannerTask("list", path=path)


def _make_folder_listing(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("list", path=said["path"])


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


def _find_by_name(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(glob_of_name(said["name"]),))


def _find_by_part(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(f"**/*{said['part']}*",))


def _find_by_start(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(f"**/{said['part'].rstrip('*')}*",))


def _find_by_end(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(f"**/*{said['part'].lstrip('*')}",))


def _find_by_extension(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("find", globs=(f"**/*.{said['part'].lstrip('*.')}",))


def _find_by_kind(said: PhraseMatch) -> PlannerTask | None:
    kind = said["kind"].lower()
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
    return PlannerTask("find", globs=(glob_of_name(said["kind"]),))


def _find_one_file(said: PhraseMatch) -> PlannerTask | None:
    name = said["name"]
    globbing = re.search(r"[*?]", name) and not said.is_quoted("name")
    sure = said.clause.lower().startswith("locate ") or said.get_raw("noun")
    if globbing or is_path_like(name) or (sure and not re.search(r"\s", name)):
        return _find_by_name(said)
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
    """Files by name or kind. A name may itself hold an "in", so it is looked for before a place is taken off."""
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
    """ "files in src named x" is "files named x" in src."""
    found = re.search(
        r"(?<=\bfiles) (?:in|under|inside) (?:the )?(?P<path>[^\s,;]+)(?: (?:folder|directory))?"
        r"(?= (?:named|called|matching|with|that|which|ending|end|whose)\b)",
        text,
        re.IGNORECASE,
    )
    return (text[: found.start()] + text[found.end() :], words.unquote(found["path"])) if found else (text, "")


def glob_of_name(name: str) -> str:
    """The glob that finds a file by what people call it: a pattern, a full name, or a part of a name."""
    if name.lower() in ("readme", "license", "changelog", "contributing"):
        return f"**/{name.upper()}*"
    if re.search(r"[*?\[{]", name):
        return name if "/" in name else f"**/{name}"
    if not is_path_like(name):
        return f"**/*{name}*"
    return name.removeprefix("./").lstrip("/") if name.startswith(("/", "./")) else f"**/{name.strip('/')}"
