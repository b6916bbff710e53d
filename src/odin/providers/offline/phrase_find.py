"""Requests for files and folders: list a folder, show the tree, find files by name or kind, describe the project."""

import re

from odin.providers.offline.quotes import Request
from odin.providers.offline.scope import cut_scope
from odin.providers.offline.task import LAST_FILE, LAST_PLACE, Task
from odin.providers.offline.template import Said, Table, rule
from odin.providers.offline.vocabulary import CONFIG_GLOBS, TEST_GLOBS, endings_of, looks_like_file, looks_like_path

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


def _listed(said: Said) -> Task:
    path = said.file()
    if path == LAST_FILE:
        path = LAST_PLACE
    return Task("read", path=path) if looks_like_file(path) else Task("list", path=path)


def _typed_ls(said: Said) -> Task:
    return Task("list", path=said["path"], how="tree" if re.search(r"^tree| -\w*R", said.clause) else "")


def _tree(said: Said) -> Task | None:
    return None if looks_like_file(said["path"]) else Task("list", path=said["path"], how="tree")


def _bare_folder(said: Said) -> Task | None:
    path = said["path"]
    if re.search(r"[*?]|^(?:all|every|any|todos?)$", path, re.IGNORECASE) or re.fullmatch(r"[A-Z]{2,}s?", path):
        return None
    return None if looks_like_file(path) else Task("list", path=path)


def _folder(said: Said) -> Task:
    return Task("list", path=said["path"])


folders = Table(
    rule(
        Task("describe"),
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
    rule(
        Task("where"),
        "pwd",
        "where am i",
        "what (is|folder is) (the|this|my) (working|current) (directory|folder)",
    ),
    rule(_typed_ls, "(ls|dir|tree) [{flags:flags}] [{path}]"),
    rule(_tree, f"[{_SHOW}] [the] {_TREE} {_AT}"),
    rule(
        _listed,
        f"{_SHOW} {_THINGS} {_AT}",
        f"(what|which) (files|folders|files and folders) [do (we|i|you) have|are there|are] [here|there] {_AT}",
        f"[show me] what is [there] (in|inside|under) ({_PROJECT}|{_FOLDER})",
        "[show me] what is (here|there)",
        f"[the] contents? of {_FOLDER}",
        "list",
    ),
    rule(_folder, "(open|show|view|read|see|print|display|list) [me] [the] {path} (folder|directory|dir)"),
    rule(_bare_folder, "list [the] [folder|directory] {path}"),
)

_FIND = (
    "[find|locate|list|show|search for|look for|get|give|print|see|which|what|are there] "
    "[me] [all] [of] [the|any|every|my|our|a]"
)
_THAT = "[that|which] [are|is]"


def _by_name(said: Said) -> Task:
    return Task("find", globs=(name_glob(said["name"]),))


def _by_part(said: Said) -> Task:
    return Task("find", globs=(f"**/*{said['part']}*",))


def _by_start(said: Said) -> Task:
    return Task("find", globs=(f"**/{said['part'].rstrip('*')}*",))


def _by_end(said: Said) -> Task:
    return Task("find", globs=(f"**/*{said['part'].lstrip('*')}",))


def _by_ending(said: Said) -> Task:
    return Task("find", globs=(f"**/*.{said['part'].lstrip('*.')}",))


def _by_kind(said: Said) -> Task | None:
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
        return Task("find", "test", globs=TEST_GLOBS)
    if kind in ("config", "configuration", "settings"):
        return Task("find", "configuration", globs=CONFIG_GLOBS)
    endings = endings_of(kind)
    if endings:
        return Task("find", kind, globs=tuple(f"**/*.{ending}" for ending in endings))
    return Task("find", globs=(name_glob(said["kind"]),))


def _one_file(said: Said) -> Task | None:
    name = said["name"]
    globbing = re.search(r"[*?]", name) and not said.quoted("name")
    sure = said.clause.lower().startswith("locate ") or said.raw("noun")
    if globbing or looks_like_path(name) or (sure and not re.search(r"\s", name)):
        return _by_name(said)
    return None


_named = Table(
    rule(
        _by_name,
        f"{_FIND} files? {_THAT} (named|called|matching|match|like|with [the] name|by [the] name) [of] {{name}}",
    ),
    rule(
        _by_part,
        f"{_FIND} files? whose names? (contain|contains|include|includes|has|have) {{part}}",
        f"{_FIND} files? (with|that have|which have) {{part}} in (the|their) (name|names|filename|filenames)",
    ),
    rule(
        _by_start, f"{_FIND} files? {_THAT} [whose names?] (start|starts|starting|begin|begins|beginning) with {{part}}"
    ),
    rule(_by_end, f"{_FIND} files? {_THAT} [whose names?] (end|ends|ending) (in|with|on) {{part}}"),
    rule(_by_ending, f"{_FIND} files? with [the|a|an] [file] (extension|ending|suffix) [of] {{part}}"),
)

_kinds = Table(
    rule(
        _by_kind,
        f"{_FIND} {{kind}} [source|code] (files?|scripts?|sources?|modules?) [are there|exist|do we have|are here]",
    ),
    rule(
        Task("find", "test", globs=TEST_GLOBS), "(find|locate|where are|are there|do we have) [all|any] [the|my] tests"
    ),
)

_single = Table(
    rule(
        _one_file,
        "(find|locate|search for|look for|list) [all] [the|a|my] [{noun:noun}|files] {name} [file]",
        "where (is|are|can i find) [the|my] [{noun:noun}] {name} [file]",
    ),
)


def files(clause: str, words: Request) -> Task | None:
    """Files by name or kind. A name may itself hold an "in", so it is looked for before a place is taken off."""
    if not _speaks_of_files(clause):
        return None
    counting = re.match(r"(?:count|how many) ", clause, re.IGNORECASE)
    text = "find " + clause[counting.end() :] if counting else clause
    if counting:
        text = re.sub(r"(?<=files) (?:are there|exist|do we have)(?=$| in )", "", text, flags=re.IGNORECASE)
    text, middle = _middle_place(text, words)
    scope = cut_scope(text, words)
    task = _named(text, words) or _named(scope.rest, words) or _kinds(scope.rest, words)
    if task is None and not counting:
        task = _single(scope.rest, words)
    if task is None:
        return None
    place = middle or ("" if _named(text, words) else scope.path)
    return Task("find", task.term, path=place, globs=task.globs, how="count" if counting else "")


def _speaks_of_files(clause: str) -> bool:
    low = clause.lower()
    if any(word in low for word in ("file", "script", "source", "module", "tests", "locate")):
        return True
    return any("*" in word or looks_like_path(word.strip(",")) for word in clause.split())


def _middle_place(text: str, words: Request) -> tuple[str, str]:
    """ "files in src named x" is "files named x" in src."""
    found = re.search(
        r"(?<=\bfiles) (?:in|under|inside) (?:the )?(?P<path>[^\s,;]+)(?: (?:folder|directory))?"
        r"(?= (?:named|called|matching|with|that|which|ending|end|whose)\b)",
        text,
        re.IGNORECASE,
    )
    return (text[: found.start()] + text[found.end() :], words.content(found["path"])) if found else (text, "")


def name_glob(name: str) -> str:
    """The glob that finds a file by what people call it: a pattern, a full name, or a part of a name."""
    if name.lower() in ("readme", "license", "changelog", "contributing"):
        return f"**/{name.upper()}*"
    if re.search(r"[*?\[{]", name):
        return name if "/" in name else f"**/{name}"
    if not looks_like_path(name):
        return f"**/*{name}*"
    return name.removeprefix("./").lstrip("/") if name.startswith(("/", "./")) else f"**/{name.strip('/')}"
