"""Scans code inside a command: shell text that could not be parsed or is passed to a shell, and other languages.

The scan of shell text is crude on purpose. It splits the text at every possible separator, drops quotes and
backslashes, and treats every word that names a remover as that program. Programs that only print or search are skipped,
so that mentioning a removal is not one.

In other languages, calls that remove trees are found by name, and their argument is resolved as far as it is literal:
`rmtree(os.getcwd())` is found, computed paths are not.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from odin.policy.commands.destructive.targets import ExpansionContext, Harm, find_path_loss
from odin.policy.commands.programs import SHELLS, follow_cd, is_assignment, split_loose_words
from odin.policy.commands.syntax import ExtractedCommand, ShellWord, split_names

CheckSuspect = Callable[[ExtractedCommand, ExpansionContext], Harm]

TEXT_PROGRAMS = split_names(
    "echo printf grep egrep fgrep zgrep rg ag ack git gh glab hg svn man info tldr whatis apropos which whereis type "
    "help say logger wall notify-send test [ [[ expr cat less more head tail wc file stat basename dirname ls # : true "
    "false export case diff cmp history jq yq apt apt-get dpkg brew dnf yum pacman pip pip3 cargo go claude codex "
    "docker podman kubectl adb nerdctl crictl"
)
"""Programs whose words are only text, or that act on another file system."""

_PWD_SUBSTITUTION = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`|\$\{PWD\}")
_FIELD_SEPARATOR = re.compile(r"\$\{?IFS\}?")
_BRACED_VARIABLE = re.compile(r"\$\{(\w+)\}")
_ALL_BUT = re.compile(r"!\([^()]*\)")
_BRACES = re.compile(r"(?<![\w${,])(\{)(?!\})|(?<!\{)(\})(?![\w,])")
_CHOICES = re.compile(r"(?<![\w${/.-])\{([^{}\s]*,[^{}\s]*)\}(?![\w/])")
_SEGMENT_CUT = re.compile(r"&&|\|\||[;|&\n()`]")
_OPENING_WORDS = split_names("{ } then do else ! time -p -- if while until elif exec command builtin sudo")
_FED_PROGRAMS = SHELLS | split_names("xargs parallel at batch")
_MAX_TEXT = 40_000
_MAX_SEGMENTS = 5_000
_MAX_CHECKED = 300
_TOO_LONG_HARM = "it is too long to scan; write it to a script file"
"""For texts with more suspects than are checked: the rest could hide anything."""


def is_too_long(text: str) -> bool:
    """True if a text is too long to scan completely."""
    return len(text) > _MAX_TEXT or len(_SEGMENT_CUT.findall(text)) > _MAX_SEGMENTS


def scan_shell_text(text: str, context: ExpansionContext, check: CheckSuspect, suspects: Callable[[str], bool]) -> Harm:
    """Return why this text must not run, or "". `suspects` is True for program names worth checking."""
    folder: str | None = ""
    before: Sequence[ShellWord] = ()
    checked: set[ExtractedCommand] = set()
    for words, last in _split_segments(text):
        name = _get_program_name(words)
        suspect_words = words
        if name == "xargs" and before:
            suspect_words = [*words, *before[1:]]
        if name not in TEXT_PROGRAMS or last in _FED_PROGRAMS:
            for part in _find_suspects(suspect_words, folder, suspects):
                if len(checked) > _MAX_CHECKED:
                    return _TOO_LONG_HARM
                why = check(part, context) if part not in checked else ""
                checked.add(part)
                if why:
                    return why
        folder = follow_cd(folder, words)
        before = words
    return ""


def _split_segments(text: str) -> Iterator[tuple[Sequence[ShellWord], str]]:
    """Yield the words of each segment, with the name of the program it is piped to, or ""."""
    short = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT // 2]}\n{text[-_MAX_TEXT // 2 :]}"
    plain = _FIELD_SEPARATOR.sub(" ", _PWD_SUBSTITUTION.sub("$PWD", short)).replace("\\\n", " ")
    plain = _CHOICES.sub(lambda match: f" {match[1].replace(',', ' ')} ", plain)
    plain = _BRACES.sub(lambda match: f" {match[0]} ", _ALL_BUT.sub("*", _BRACED_VARIABLE.sub(r"$\1", plain)))
    at = 0
    segments: list[tuple[Sequence[ShellWord], bool]] = []
    for cut in _SEGMENT_CUT.finditer(plain):
        segments.append((_split_words(plain[at : cut.start()]), cut[0] == "|"))
        at = cut.end()
        if len(segments) > _MAX_SEGMENTS:
            break
    segments.append((_split_words(plain[at:]), False))
    for index, (words, piped) in enumerate(segments):
        if words:
            yield words, _get_program_name(segments[index + 1][0]) if piped and index + 1 < len(segments) else ""


def _split_words(text: str) -> Sequence[ShellWord]:
    words = split_loose_words(text)
    start = 0
    while start < len(words) and (words[start].text in _OPENING_WORDS or is_assignment(words[start])):
        start += 1
    return words[start:]


def _get_program_name(words: Sequence[ShellWord]) -> str:
    return words[0].text.rsplit("/", 1)[-1] if words else ""


def _find_suspects(
    words: Sequence[ShellWord], folder: str | None, suspects: Callable[[str], bool]
) -> Iterator[ExtractedCommand]:
    for index, word in enumerate(words[:60]):
        if suspects(word.text.rsplit("/", 1)[-1].casefold()):
            yield ExtractedCommand(tuple(words[index:]), True, folder)


_DELEGATING_PROGRAMS = split_names(
    "tmux screen at batch npx npm pnpm yarn bunx bun alias watchexec nodemon concurrently capsh nix-shell nix make "
    "gmake just entr tcsh kitty xterm gnome-terminal konsole wezterm alacritty zellij systemd-cat cronic ssh"
)
_DELEGATED_TEXT: dict[str, str] = {
    **dict.fromkeys(
        ("vim", "vi", "nvim", "ex", "view", "vimdiff", "ed", "less", "gdb", "lldb"), r"!+\s*(.+)|system\((.+)"
    ),
    **dict.fromkeys(("sed", "gsed"), r"(?:^|[;\n{]|\d|\$|/)\s*e\s+(.+)"),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), r"(?:exec=|command=|program=)(.+)"),
    "git": r"^(?:[\w.-]+=)?!(.+)",
    "sqlite3": r"\.(?:shell|system)\s+(.+)",
    "psql": r"\\!\s*(.+)",
    "zip": r"(.+)",
}
_GIT_RUNNERS = split_names("filter-branch filter-repo bisect rebase")


def find_delegated_texts(part: ExtractedCommand) -> Iterator[str]:
    """Yield the texts in a command that it would pass to a shell."""
    name = part.name.casefold()
    if name in ("at", "batch", "make", "gmake", "crontab", "source", "."):
        yield from part.stdin_texts
    if name == "git" and any(text in _GIT_RUNNERS for text in part.texts[1:]):
        yield from (text for text in part.texts[1:] if " " in text)
    mark = _DELEGATED_TEXT.get(name)
    for text in part.texts[1:]:
        if " " not in text:
            continue
        if name in _DELEGATING_PROGRAMS:
            yield text.partition("=")[2] if name == "alias" else text
        elif mark is not None:
            for match in re.finditer(mark, text):
                yield next((group for group in match.groups() if group), "")


ShellScan = Callable[[str, ExpansionContext], Harm]
"""Scans shell text for destructive commands."""

_REMOVING_CALL = re.compile(
    r"(?P<name>rimraf['\"]\)(?:\.sync)?|\b(?:rmtree|remove_tree|rm_rf|rm_r|rmSync|rmdirSync|removeSync|remove_dir_all|remove_dir|rimraf(?:\.sync)?"
    r"|emptyDirSync|emptyDir|remove_entry_secure|remove_entry|rmtree_p|delete-directory|file\s+delete(?:\s+-force)?"
    r"|(?:\w+\.)*(?:rm|remove|rmdir|unlink|deleteDir))(?![\w-]))\s*(?P<open>\(?)\s*(?:--\s*)?"
)
_ONLY_WHEN_RECURSIVE = re.compile(r"(?:^|\.)(?:rm|remove|rmdir|unlink|rmSync|rmdirSync)$")
_RENAMED = re.compile(
    r"\b(?:rmtree|rmSync|rm_rf|remove_tree)\s+as\s+(\w+)|\b(\w+)\s*=\s*[\w.()'\"]*\b(?:rmtree|rmSync)\b(?!\()"
)
SHELL_LINE = r"^[ \t]*[\d:~\\%,.$]*[erw]?[ \t]*!(?!=)"
"""A line of an editor or another console that starts a shell: `!x`, `r !x`, `1,5!x`."""

_SHELL_CALL = re.compile(
    rf"sys(?:tem|cmd)|exec|popen|subprocess|spawn|check_call|check_output|qx|%x|`|getline|shell|\|\s*\"|\bsh\b|{SHELL_LINE}",
    re.MULTILINE,
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
    """Return why a program in another language must not run, or ""."""
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
    """Return a call such as `run(['a', '-b', '.'])` as the command it runs."""
    known = _HOME_CODE.sub(" ~ ", _CWD_CODE.sub(" . ", code))
    return re.sub(r"[\[\](){}'\",+`!]|\bqw?\b", " ", known)


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
    """Yield each call that may remove: its name, first argument and all arguments."""
    names = [_REMOVING_CALL]
    renamed = {match[1] or match[2] for match in _RENAMED.finditer(text)}
    names += [re.compile(rf"(?P<name>\b{re.escape(name)})\s*(?P<open>\()\s*") for name in sorted(renamed)[:4]]
    for pattern in names:
        for match in pattern.finditer(text):
            whole = _extract_arguments(text[match.end() : match.end() + _MAX_ARGUMENT], opened=bool(match["open"]))
            yield match["name"], _get_first_argument(whole), whole


def _extract_arguments(text: str, *, opened: bool) -> str:
    """Return the text in the parentheses of a call, or up to the end of the statement."""
    start = 1 if opened else 0
    for index, char, depth in _scan_unquoted(text, start):
        if char in ")]}" and depth <= 0 and (opened or depth < 0):
            return text[:index]
        if char in ";\n" and depth <= start:
            return text[:index]
    return text


def _get_first_argument(text: str) -> str:
    """Return the first argument without its keyword."""
    end = next((index for index, char, depth in _scan_unquoted(text) if char == "," and depth <= 0), len(text))
    return re.sub(r"^(?:path|dir|x)\s*=\s*", "", text[:end].strip())


def _scan_unquoted(text: str, depth: int = 0) -> Iterator[tuple[int, str, int]]:
    """Yield index, character and resulting bracket depth of each character outside quotes."""
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
    """Return the literal paths that an expression may have. A variable has the values assigned to it."""
    value = _resolve_value(expression)
    if value is not None:
        return [value]
    name = re.fullmatch(r"\$?(\w+)(?:\.path|\.name)?", expression.strip())
    if name is None:
        return []
    assignments = re.finditer(rf"\b{re.escape(name[1])}\s*(?:=(?!=)|\bin\b|\bof\b)\s*\(?\[?([^\n;\]]{{1,200}})", text)
    values = [
        _resolve_value(_get_first_argument(match[1]).strip("[]() ")) or _resolve_value(match[1])
        for match in assignments
    ]
    return [value for value in values if value is not None]


def _resolve_value(expression: str) -> str | None:
    """Return the literal path of an expression, or None."""
    text = _PARENT_CODE.sub("'..'", expression.strip())
    text = _ROOT_CODE.sub("'/'", _HOME_CODE.sub("'~'", _CWD_CODE.sub("'.'", text)))
    for _ in range(6):
        before = text
        text = _TAIL.sub("", text)
        text = _WRAPPING.sub(lambda match: match[1] or "'.'", text)
        text = _JOINING.sub(lambda match: re.sub(r"\s*,\s*", "/", match[1]), text)
        if text == before:
            break
    return _join_quoted(text.strip("[]() "))


def _join_quoted(text: str) -> str | None:
    """Return one string, or several joined with `+`, `/` or `.`, or a bare path; else None."""
    joined = ""
    rest = text.strip()
    if re.fullmatch(r"\.{1,2}/?|/|~/?|\*", rest):
        return rest
    while rest:
        match = _QUOTED_TEXT.match(rest)
        if match is None:
            return None
        piece = match[2]
        joined = piece if not joined else f"{joined}/{piece}"
        rest = match["rest"].strip()
        if rest and not re.match(r"[+/.]", rest):
            return joined if re.match(r"if\b|for\b|unless\b|[;})\]:]|t\b", rest) else None
        rest = rest.lstrip("+/. ")
    return joined or None


def _find_walk_removal(text: str, context: ExpansionContext) -> Harm:
    """Return why a loop must not run that removes everything in a vital folder without a condition, or ""."""
    if not _UNLINKING.search(text) or _CHOOSING.search(text):
        return ""
    starts = [match[1] for match in _WALKING_CALL.finditer(text)]
    starts += [match["path"] or "'.'" for match in _WALKING_PATH.finditer(text)]
    for start in starts:
        value = _resolve_value(start) or ("." if not start.strip() else None)
        why = find_path_loss(_expand_home(value, context), "", context) if value is not None else ""
        if why:
            return why
    return ""
