"""Programs in other languages that stand in the command line: the calls in them that remove whole trees.

No attempt is made to understand a program. A call that removes is looked for by its name, and what it is given is
worked out as far as it is written down: `rmtree(os.getcwd())` is found, what is computed is not.
"""

import re
from collections.abc import Callable, Iterator

from odin.policy.command.ruinous.targets import Harm, find_path_loss
from odin.policy.command.ruinous.values import ExpansionContext

ShellScan = Callable[[str, ExpansionContext], Harm]
"""Looks for ruinous commands in a text for a shell."""

INTERPRETERS = re.compile(
    r"(?:python|pypy|ipython|perl|ruby|jruby|node|nodejs|php|lua|luajit|[gmn]?awk|deno|bun|tclsh|wish|Rscript|julia"
    r"|emacs|groovy|scala|elixir|ghc|osascript|expect|tsx|ts-node)[\d.]*",
    re.IGNORECASE,
)
_REMOVING_CALL = re.compile(
    r"(?P<name>rimraf['\"]\)(?:\.sync)?|\b(?:rmtree|remove_tree|rm_rf|rm_r|rmSync|rmdirSync|removeSync|remove_dir_all|remove_dir|rimraf(?:\.sync)?"
    r"|emptyDirSync|emptyDir|remove_entry_secure|remove_entry|rmtree_p|delete-directory|file\s+delete(?:\s+-force)?"
    r"|(?:\w+\.)*(?:rm|remove|rmdir|unlink|deleteDir))(?![\w-]))\s*(?P<open>\(?)\s*(?:--\s*)?"
)
_ONLY_WHEN_RECURSIVE = re.compile(r"(?:^|\.)(?:rm|remove|rmdir|unlink|rmSync|rmdirSync)$")
_RENAMED = re.compile(
    r"\b(?:rmtree|rmSync|rm_rf|remove_tree)\s+as\s+(\w+)|\b(\w+)\s*=\s*[\w.()'\"]*\b(?:rmtree|rmSync)\b(?!\()"
)
_SHELL_CALL = re.compile(
    r"system|exec|popen|subprocess|spawn|check_call|check_output|qx|%x|`|getline|shell|\|\s*\"|\bsh\b"
)
_PIPED = re.compile(r"\|\s*(?:getline|\"\w*sh\b)")
_WALKING_CALL = re.compile(
    r"(?:\bwalk|\bscandir|\blistdir|\breaddirSync|\biterdir|\bglob|\brglob|\bDir\[|\bDir\.glob|\bchildren)\s*\(?\s*([^),;\]]*)"
)
_WALKING_PATH = re.compile(r"(?:Path\(\s*(?P<path>[^)]*)\)|Path\.(?P<known>cwd|home)\(\))\.(?:iterdir|rglob|glob)")
_UNLINKING = re.compile(r"\b(?:unlink|unlinkSync|remove|rmtree|rmdir|rm_rf|rmSync|rm)\b")
_CHOOSING = re.compile(
    r"\bif\b|endswith|suffix|fnmatch|\bmatch|filter|grep|\bunless\b|\?|==|glob\(\s*['\"](?!\*{1,2}(?:/\*)?['\"])"
)

_CWD_CODE = re.compile(
    r"(?:os\.)?getcwd[bu]?\(\)|os\.curdir|(?:pathlib\.)?Path\.cwd\(\)|(?:pathlib\.)?Path\(\s*\)|process\.cwd\(\)|Dir\.pwd"
    r"|Dir\.getwd|Deno\.cwd\(\)|__dirname|(?:os\.)?(?:environ|getenv|ENV)(?:\.get)?[\[({]\s*['\"]?PWD['\"]?\s*[\])}]"
    r"|process\.env\.PWD|\$ENV\{['\"]?PWD['\"]?\}|default-directory|\bpwd\(\)"
)
_HOME_CODE = re.compile(
    r"(?:pathlib\.)?Path\.home\(\)|(?:os\.)?(?:environ|getenv|ENV)(?:\.get|\.fetch)?[\[({]\s*['\"]?HOME['\"]?\s*[\])}]"
    r"|process\.env\.HOME|process\.env\[['\"]HOME['\"]\]|\$ENV\{['\"]?HOME['\"]?\}"
    r"|(?:require\(\s*['\"](?:node:)?os['\"]\s*\)|\bos)\.homedir\(\)|Dir\.home|homedir\(\)|\$_SERVER\[['\"]HOME['\"]\]"
)
_PARENT_CODE = re.compile(r"os\.pardir|Path\.cwd\(\)\.parent")
_ROOT_CODE = re.compile(r"os\.(?:path\.)?sep\b")
_WRAPPING = re.compile(
    r"(?:[\w.]*\b(?:Path|PurePath|str|String|abspath|realpath|normpath|resolve|expanduser|fspath|glob|listdir|expand_path"
    r"|iterdir|fsdecode))\(\s*([^()]*?)\s*,?\s*\)"
)
_TAIL = re.compile(r"\.(?:resolve|absolute|expanduser|as_posix|to_s|toString)\(\)|\.to_s\b")
_JOINING = re.compile(r"[\w.]*\bjoin\(\s*([^()]*)\)")
_QUOTED_TEXT = re.compile(r"""^\w{0,2}(['"])(.*?)\1(?P<rest>.*)$""", re.DOTALL)
_MAX_PROGRAM = 20_000
_MAX_ARGUMENT = 300


def find_script_harm(program: str, context: ExpansionContext, scan: ShellScan) -> Harm:
    """Why a program must not run, or ""."""
    text = program[:_MAX_PROGRAM].replace('\\"', '"').replace("\\'", "'")
    why = _find_removal(text, context) or _find_walk_removal(text, context)
    if why:
        return why
    if _PIPED.search(text):
        why = scan(_as_words(text), context)
    for called in _SHELL_CALL.finditer(text) if not why else ():
        line = text[called.start() : called.start() + _MAX_ARGUMENT].split("\n", 1)[0]
        why = scan(_as_words(line), context)
        if why:
            return why
    return why


def _as_words(code: str) -> str:
    """A call such as `run(['a', '-b', '.'])` as the command that it runs."""
    known = _HOME_CODE.sub(" ~ ", _CWD_CODE.sub(" . ", code))
    return re.sub(r"[\[\](){}'\",+`]|\bqw?\b", " ", known)


def _find_removal(text: str, context: ExpansionContext) -> Harm:
    for name, argument, whole in _find_calls(text):
        if _ONLY_WHEN_RECURSIVE.search(name) and not re.search(r"recurs|force", whole, re.IGNORECASE):
            continue
        for value in _resolve_values(argument, text):
            why = find_path_loss(_expand_home(value, context), "", context)
            if why:
                return why
    return ""


def _expand_home(value: str, context: ExpansionContext) -> str:
    return context.home + value[1:] if value == "~" or value.startswith("~/") else value


def _find_calls(text: str) -> Iterator[tuple[str, str, str]]:
    """Each call that may remove: its name, its first argument, and all that it is given."""
    names = [_REMOVING_CALL]
    renamed = {found[1] or found[2] for found in _RENAMED.finditer(text)}
    names += [re.compile(rf"(?P<name>\b{re.escape(name)})\s*(?P<open>\()\s*") for name in sorted(renamed)[:4]]
    for pattern in names:
        for found in pattern.finditer(text):
            whole = _extract_arguments(text[found.end() : found.end() + _MAX_ARGUMENT], opened=bool(found["open"]))
            yield found["name"], _first_argument_of(whole), whole


def _extract_arguments(text: str, *, opened: bool) -> str:
    """What stands in the parentheses of a call, or up to the end of the statement."""
    start = 1 if opened else 0
    for index, char, depth in _scan_unquoted(text, start):
        if char in ")]}" and depth <= 0 and (opened or depth < 0):
            return text[:index]
        if char in ";\n" and depth <= start:
            return text[:index]
    return text


def _first_argument_of(text: str) -> str:
    """The first argument, without its name."""
    end = next((index for index, char, depth in _scan_unquoted(text) if char == "," and depth <= 0), len(text))
    return re.sub(r"^(?:path|dir|x)\s*=\s*", "", text[:end].strip())


def _scan_unquoted(text: str, depth: int = 0) -> Iterator[tuple[int, str, int]]:
    """The characters outside of quotes, each with how deep in brackets it leaves us."""
    quote = ""
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
            yield index, char, depth


def _resolve_values(expression: str, text: str) -> list[str]:
    """The paths that an expression stands for, where that can be seen. A name stands for what it was given."""
    value = _resolve_value(expression)
    if value is not None:
        return [value]
    name = re.fullmatch(r"\$?(\w+)(?:\.path|\.name)?", expression.strip())
    if name is None:
        return []
    given = re.finditer(rf"\b{re.escape(name[1])}\s*(?:=(?!=)|\bin\b|\bof\b)\s*\(?\[?([^\n;\]]{{1,200}})", text)
    values = [
        _resolve_value(_first_argument_of(found[1]).strip("[]() ")) or _resolve_value(found[1]) for found in given
    ]
    return [value for value in values if value is not None]


def _resolve_value(expression: str) -> str | None:
    """A path that is written down, or None."""
    text = _PARENT_CODE.sub("'..'", expression.strip())
    text = _ROOT_CODE.sub("'/'", _HOME_CODE.sub("'~'", _CWD_CODE.sub("'.'", text)))
    for _ in range(6):
        before = text
        text = _TAIL.sub("", text)
        text = _WRAPPING.sub(lambda found: found[1] or "'.'", text)
        text = _JOINING.sub(lambda found: re.sub(r"\s*,\s*", "/", found[1]), text)
        if text == before:
            break
    return _join_quoted(text.strip("[]() "))


def _join_quoted(text: str) -> str | None:
    """One quoted text, or several with `+`, `/` or `.` between them; a bare word of a language without quotes."""
    made = ""
    rest = text.strip()
    if re.fullmatch(r"\.{1,2}/?|/|~/?|\*", rest):
        return rest
    while rest:
        found = _QUOTED_TEXT.match(rest)
        if found is None:
            return None
        piece = found[2]
        made = piece if not made else f"{made}/{piece}"
        rest = found["rest"].strip()
        if rest and not re.match(r"[+/.]", rest):
            return made if re.match(r"if\b|for\b|unless\b|[;})\]:]|t\b", rest) else None
        rest = rest.lstrip("+/. ")
    return made or None


def _find_walk_removal(text: str, context: ExpansionContext) -> Harm:
    """A loop over everything in a folder that must not be lost, with a removal and nothing that would choose."""
    if not _UNLINKING.search(text) or _CHOOSING.search(text):
        return ""
    starts = [found[1] for found in _WALKING_CALL.finditer(text)]
    starts += [found["path"] or "'.'" for found in _WALKING_PATH.finditer(text)]
    for start in starts:
        value = _resolve_value(start) or ("." if not start.strip() else None)
        why = find_path_loss(_expand_home(value, context), "", context) if value is not None else ""
        if why:
            return why
    return ""
