"""What a prompt says about the change it wants: whether parts of a file may go, are renamed, or only added.

Only the words of the prompt count, not the names and quotations in it.
"""

import re

_TAKES_AWAY = (
    r"\b(?i:remov\w*|delet\w*|drop\w*|get rid of|inlin\w*|merg\w*|mov(?:e|ing)|clean\w*|replac\w*|renam\w*|extract\w*"
    r"|split\w*|convert\w*|turn\w*|combin\w*|instead of|chang\w* the (?:name|key|heading|title|section)(?: of)?)"
)
_IS_TAKEN_AWAY = (
    r"(?i:no longer|unused|dead|obsolete|not (?:used|needed)"
    r"|should be (?:called|named|renamed|removed|deleted|replaced))"
)
_REMOVES_PARTS = re.compile(
    r"\b(?:unused|dead code|no longer (?:needed|used)|obsolete)\b"
    r"|\bkeep only\b|\bonly keep\b|\b(?:all|every\w*)\b[^.]{0,20}\bexcept\b"
    r"|\b(?:remov|delet|drop|get rid|clean|inline|merg)\w*\b[^.]{0,40}"
    r"\b(?:duplicate\w*|functions?|class(?:es)?|methods?|constants?|definitions?|helpers?"
    r"|tests?|sections?|keys?|entr(?:y|ies))\b",
    re.IGNORECASE,
)
_KEEPS_ONLY = re.compile(r"\bkeep only\b|\bonly keep\b|\bexcept\b", re.IGNORECASE)
_REWRITES = re.compile(
    r"\b(?:rewrite|overwrite|replace|redo)\b[^.]{0,15}\b(?:whole|entire|complete|everything)\b"
    r"|\bfrom scratch\b|\bstart over\b|\boverwrite\b",
    re.IGNORECASE,
)
"""A task that gives a file a new content as a whole."""
_REWRITES_TEXT = re.compile(
    r"\b(?:replace|empty|clear|reset|fill|change|set)\b[^.]{0,25}\b(?:file|contents?|text)\b|\brewrit|\brestructur"
    r"|\breorgani|\btranslat|\bsummar|\bshorten|\bconvert\b|\bwith only\b|\bonly contains?\b|\bcontains? only\b"
    r"|\b(?:contents?|text) (?:of|to)\b",
    re.IGNORECASE,
)
"""The same for files that are not code."""
_SHORTENS = re.compile(
    r"\b(?:remov|delet|drop|get rid|no longer|unused|clean|merg|join|combin|compact|minif|format|simplif|filter"
    r"|keep only|only keep|duplicate|dedup|unique|trim|truncat|extract|mov(?:e|ing)\b)",
    re.IGNORECASE,
)
"""A task after which a text may have fewer lines."""
_RESHAPES = re.compile(
    r"\b(?:simplif|refactor|rewrit|shorten|replac|reduc|clean|convert|us(?:e|ing)|remov|delet)", re.IGNORECASE
)
"""A task after which a script may have far fewer lines."""
_ADDS = re.compile(r"\b(?:add|append|insert|include|put)\b", re.IGNORECASE)
_ADDS_CODE = re.compile(r"\b(?:create|implement|write|new)\b", re.IGNORECASE)
"""A task that adds something to code. With a text, it may also give it a new content."""
_RENAMES = re.compile(r"\b(?:renam\w*|called|chang\w* the name)\b", re.IGNORECASE)
_AT_TOP = re.compile(r"\b(?:at the (?:top|beginning|start)|first line|prepend|in front)\b", re.IGNORECASE)
_IN_BETWEEN = re.compile(r"\b(?:after|before|between|under|below|above|middle)\b", re.IGNORECASE)
_WANTS_USAGE = re.compile(
    r"\b(?:examples?|usage|demo|prints?|output|script|program|runs?|calls?|main|shows?|logs?|says?|tests?)\b",
    re.IGNORECASE,
)
_NAMES = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|\b\w*_\w*\b|\b[a-z]+[A-Z]\w*|\S+\.\w+")
"""Words of a prompt that are names and quotations, and say nothing about the task."""


def _is_mentioned(wording: re.Pattern[str], prompt: str) -> bool:
    return wording.search(_NAMES.sub(" ", prompt)) is not None


def is_target(name: str, prompt: str, *, is_code: bool) -> bool:
    """True if the prompt removes or replaces what has this name. After "of" or "in" it is only the place."""
    quoted = re.escape(name)
    after = rf"(?:{_TAKES_AWAY})\W+(?:(?!(?:of|in|from|to|with|by|inside|into|at|on)\b)[\w.]+\W+){{0,8}}?{quoted}(?!\w)"
    before = rf"(?<!\w){quoted}\W+(?:\w+\W+){{0,3}}?(?:{_IS_TAKEN_AWAY})"
    flags = re.NOFLAG if is_code else re.IGNORECASE
    return re.search(f"{after}|{before}", prompt, flags) is not None


def is_removing_parts(prompt: str) -> bool:
    return _is_mentioned(_REMOVES_PARTS, prompt)


def is_keeping_only(prompt: str) -> bool:
    return _is_mentioned(_KEEPS_ONLY, prompt)


def is_rewriting(prompt: str, *, is_code: bool) -> bool:
    return _is_mentioned(_REWRITES, prompt) or (not is_code and _is_mentioned(_REWRITES_TEXT, prompt))


def is_shortening(prompt: str) -> bool:
    return _is_mentioned(_SHORTENS, prompt)


def is_reshaping(prompt: str) -> bool:
    return _is_mentioned(_RESHAPES, prompt)


def is_adding(prompt: str, *, is_code: bool) -> bool:
    return _is_mentioned(_ADDS, prompt) or (is_code and _is_mentioned(_ADDS_CODE, prompt))


def is_renaming(prompt: str) -> bool:
    return _is_mentioned(_RENAMES, prompt)


def is_about_top(prompt: str) -> bool:
    return _is_mentioned(_AT_TOP, prompt)


def is_about_middle(prompt: str) -> bool:
    return _is_mentioned(_IN_BETWEEN, prompt)


def is_about_imports(prompt: str) -> bool:
    return re.search(r"\bimports?\b", prompt, re.IGNORECASE) is not None


def is_about_comments(prompt: str) -> bool:
    return re.search(r"\b(?:comments?|docstrings?|documentation|decorators?|TODOs?)\b", prompt) is not None


def is_about_usage(prompt: str) -> bool:
    return _WANTS_USAGE.search(prompt) is not None
