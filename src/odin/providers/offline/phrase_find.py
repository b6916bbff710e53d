"""Requests for files and folders: list a folder, show the tree, find files by name or kind, describe the project."""

import re

from odin.providers.offline.phrase_read import path_of
from odin.providers.offline.quotes import QUOTED, Request
from odin.providers.offline.scope import cut_scope
from odin.providers.offline.task import LAST_PLACE, Task
from odin.providers.offline.vocabulary import (
    CONFIG_GLOBS,
    PLACE,
    TEST_GLOBS,
    endings_of,
    looks_like_file,
    looks_like_path,
)

_PROJECT = r"(?:this|the|my|our)(?: whole| entire| current)? (?:project|repo|repository|code\s?base|code|folder|directory|app|application|program|package|tool|library)"
_FIND = r"(?:find|locate|list|show|search for|look for|get|give|print|see)(?: me)?"
_WHICH = r"(?:which|what)"
_ALL = r"(?:(?:all|the|any|every|my|our|a|of) )*"


def find(clause: str, words: Request) -> Task | None:
    return _project(clause) or _list(clause, words) or _files(clause, words)


def _project(clause: str) -> Task | None:
    described = re.fullmatch(
        rf"(?:describe|explain|summari[sz]e|introduce|outline|analy[sz]e)(?: me| to me)? {_PROJECT}(?: to me)?"
        rf"|what(?:'s| is| does| are) (?:{_PROJECT}|this|this place)(?: do| about| for| all about)?"
        rf"|(?:(?:give|show)(?: me)? |tell me )?(?:an? |the )?(?:quick |short |brief |project |high.level )*(?:overview|summary|description)(?: of {_PROJECT})?"
        rf"|tell me (?:more )?about (?:{_PROJECT}|this)"
        rf"|how (?:do|can|should|would) (?:i|you|we|one) (?:run|build|test|install|start|use|launch) (?:{_PROJECT}|this|it)"
        rf"|(?:what|which) (?:programming )?languages? (?:is|are|does|do) .{{0,40}}"
        r"|what am i looking at|describe (?:the )?project|project (?:overview|summary)",
        clause,
        re.IGNORECASE,
    )
    if described:
        return Task("describe")
    return (
        Task("where")
        if re.fullmatch(
            r"pwd|where am i|what (?:is|folder is) (?:the|this|my) (?:working|current) (?:directory|folder)",
            clause,
            re.I,
        )
        else None
    )


def _list(clause: str, words: Request) -> Task | None:
    flags = re.fullmatch(rf"(?:ls|dir|tree)(?: -[\w-]+)*(?: (?P<path>{PLACE}))?", clause, re.IGNORECASE)
    if flags:
        how = "tree" if clause.lower().startswith("tree") or re.search(r" -\w*R", clause) else ""
        return Task("list", path=words.content(flags["path"] or ""), how=how)
    things = r"(?:files?(?: and (?:folders?|directories))?|folders?|directories|(?:folder |directory |file )?contents?|(?:file |directory |folder )?listing|everything)"
    tree = r"(?:(?:folder|directory|file|project|source|code|repo)?[ -]?(?:tree|structure|layout|hierarchy))"
    place = rf"(?: (?:of|in|for|under|inside|at|from) (?P<path>(?:the |my )?(?:{PLACE})(?: (?:folder|directory|dir))?|{_PROJECT}))?"
    found = re.fullmatch(
        rf"(?:list|show|display|print|see|get|give)(?: me)? {_ALL}(?:(?P<tree>{tree})|{things}){place}(?: (?:here|recursively))?|(?:the )?(?:(?P<tree2>{tree})|contents?){place.replace('path', 'path2')}"
        rf"|{_WHICH} (?:files|folders|files and folders)(?: do (?:we|i|you) have| are there| are)?(?: here| there)?{place.replace('path', 'path3')}"
        rf"|(?:show me )?what(?:'s| is| are)(?: there)? (?:in|inside|under) (?P<path4>(?:the )?{PLACE}(?: (?:folder|directory|dir))?|{_PROJECT})"
        r"|(?:show me )?what(?:'s| is) (?:here|there)|list",
        clause,
        re.IGNORECASE,
    )
    if found:
        groups = found.groupdict()
        raw = next((groups[name] for name in ("path", "path2", "path3", "path4") if groups.get(name)), "")
        path = _folder(raw, words)
        if path and looks_like_file(path):
            return Task("read", path=path)
        return Task("list", path=path, how="tree" if groups["tree"] or groups["tree2"] else "")
    found = re.fullmatch(
        rf"list (?:the )?(?:folder |directory )?(?P<path>{PLACE})(?: (?:folder|directory|dir))?", clause, re.IGNORECASE
    )
    if found and _may_be_folder(found["path"], words, clause):
        return Task("list", path=words.content(found["path"]))
    return None


def _may_be_folder(fragment: str, words: Request, clause: str) -> bool:
    path = words.content(fragment)
    if re.search(r"[*?]|^(?:all|every|any|todos?)$", path, re.IGNORECASE) or re.fullmatch(r"[A-Z]{2,}s?", path):
        return False
    return not looks_like_file(path) or clause.lower().rstrip().endswith(("folder", "directory"))


def _folder(raw: str, words: Request) -> str:
    if not raw or re.fullmatch(_PROJECT, raw, re.IGNORECASE) or raw.lower() in ("here", "it all"):
        return ""
    bare = re.sub(r"^(?:the |my )|(?: (?:folder|directory|dir))$", "", raw, flags=re.IGNORECASE)
    if bare.lower() in ("it", "that", "there", "this"):
        return LAST_PLACE
    return path_of(bare, words)


def _files(clause: str, words: Request) -> Task | None:
    counting = re.match(r"(?:count|how many) ", clause, re.IGNORECASE)
    how = "count" if counting else ""
    text = re.sub(r"^(?:count|how many) ", "find ", clause, flags=re.IGNORECASE)
    text = re.sub(r"(?<=files) (?:are there|exist|do we have|does .{0,30}? have)$", "", text, flags=re.IGNORECASE)
    text = re.sub(r"(?<=files) (?:are there|exist|do we have) (?=in )", " ", text, flags=re.IGNORECASE)
    text, middle = _middle_place(re.sub(r"\s+", " ", text), words)
    globs = _named(text, words)
    if globs:
        return Task("find", path=middle, globs=globs, how=how)
    scope = cut_scope(text, words)
    globs = _named(scope.rest, words) or _kinds(scope.rest) or (() if counting else _one(scope.rest, words))
    if not globs:
        return None
    return Task("find", path=middle or scope.path, globs=globs, how=how)


def _middle_place(text: str, words: Request) -> tuple[str, str]:
    """ "files in src named x" → "files named x" and src."""
    found = re.search(
        rf"(?<=\bfiles) (?:in|under|inside) (?:the )?(?P<path>{PLACE})(?: (?:folder|directory))?(?= (?:named|called|matching|with|that|which|ending|end|whose)\b)",
        text,
        re.IGNORECASE,
    )
    if not found:
        return text, ""
    return text[: found.start()] + text[found.end() :], words.content(found["path"])


def _named(text: str, words: Request) -> tuple[str, ...]:
    lead = rf"(?:{_FIND} |{_WHICH} |are there )?{_ALL}"
    that = r"(?:that |which )?(?:are |is )?"
    found = re.fullmatch(
        rf"{lead}files? {that}(?:named|called|matching|match|like|with (?:the )?name|by (?:the )?name)(?: of)? (?P<name>{PLACE})",
        text,
        re.I,
    )
    if found:
        return (name_glob(words.content(found["name"])),)
    found = re.fullmatch(
        rf"{lead}files? (?:whose names? (?:contains?|includes?|has|have) (?P<a>{PLACE})|with (?P<b>{PLACE}) in (?:the|their) (?:file)?names?"
        rf"|{that}(?:have|has) (?P<c>{PLACE}) in (?:the|their) names?)",
        text,
        re.IGNORECASE,
    )
    if found:
        return (f"**/*{words.content(found['a'] or found['b'] or found['c'])}*",)
    found = re.fullmatch(
        rf"{lead}files? {that}(?:whose names? )?(?:(?P<side>end|start|begin)(?:s|ing|ning)? (?:in|with|on)|with (?:the |an? )?(?:extension|ending|suffix|file extension)(?: of)?) (?P<part>{PLACE})",
        text,
        re.IGNORECASE,
    )
    if found:
        part = words.content(found["part"]).lstrip("*")
        if (found["side"] or "end").lower() != "end":
            return (f"**/{part}*",)
        return (f"**/*{part}" if found["side"] or part.startswith(".") else f"**/*.{part}",)
    return ()


def _kinds(text: str) -> tuple[str, ...]:
    found = re.fullmatch(
        rf"(?:{_FIND} |{_WHICH} |are there |do we have )?{_ALL}(?P<kind>[\w.*+#-]+)[ -](?:source |code )?(?:files?|scripts?|sources?|modules?)"
        r"(?: (?:are there|exist|do we have|are here))?",
        text,
        re.IGNORECASE,
    )
    if found:
        kind = found["kind"].lower()
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
        ):
            return ()
        if kind in ("test", "tests"):
            return TEST_GLOBS
        if kind in ("config", "configuration", "settings"):
            return CONFIG_GLOBS
        endings = endings_of(kind)
        return tuple(f"**/*.{ending}" for ending in endings) or (name_glob(found["kind"]),)
    if re.fullmatch(rf"(?:find|locate|where are) {_ALL}tests", text, re.IGNORECASE):
        return TEST_GLOBS
    return ()


def _one(text: str, words: Request) -> tuple[str, ...]:
    """One file by its name: "locate config.json", "where is the Makefile", "find *.py"."""
    found = re.fullmatch(
        rf"(?:find|locate|search for|look for|list|where(?:'s| is| are| can i find)) (?:all )?(?:the |a |my )?(?P<noun>files? )?(?P<name>{PLACE})(?: file)?",
        text,
        re.I,
    )
    if not found:
        return ()
    name = words.content(found["name"])
    globbing = bool(re.search(r"[*?]", name)) and not re.search(QUOTED, found["name"])
    if (
        globbing
        or looks_like_path(name)
        or (found["noun"] and not re.search(r"\s", name))
        or text.lower().startswith("locate ")
    ):
        return (name_glob(name),)
    return ()


def name_glob(name: str) -> str:
    """The glob that finds a file by what people call it: a pattern, a full name, or a part of a name."""
    if name.lower() in ("readme", "license", "changelog", "contributing"):
        return f"**/{name.upper()}*"
    if re.search(r"[*?\[{]", name):
        return name if "/" in name else f"**/{name}"
    if looks_like_path(name):
        return f"**/{name.strip('/')}" if not name.startswith(("/", "./")) else name.removeprefix("./").lstrip("/")
    return f"**/*{name}*"
