"""Read-only commands with their own syntax: find, test, expr and builtins, and programs in sed, awk and jq.

Programs are accepted only if every construct in them is known to print and to end.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache

from odin.policy.command_scope import CommandScope
from odin.policy.commands.readonly.options import GlobMatch, ParsedOptions, ReadOnlyCommand
from odin.policy.commands.syntax import split_names

# --- find ---

_FIND_ALONE = split_names(
    "-not ! -o -or -a -and ( ) , -empty -print -print0 -prune -true -false -ls -quit -depth -xdev -mount -daystart "
    "-readable -writable -executable -nouser -nogroup -noleaf -ignore_readdir_race"
)
_FIND_VALUED = split_names(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -maxdepth -mindepth -size -mtime "
    "-mmin -atime -amin -ctime -cmin -perm -user -group -uid -gid -links -inum -regextype -lname -ilname -fstype -used "
    "-newermt -newerat -newerct -printf"
)
_FIND_PATHS = split_names("-newer -anewer -cnewer -samefile")


def check_find(words: Sequence[str], scope: CommandScope) -> bool:
    """Starting points, then tests and actions that only print. -L and -follow, which follow links, are not accepted."""
    rest = list(reversed(words))
    while rest and rest[-1] in ("-P", "-H", "-O1", "-O2", "-O3"):
        rest.pop()
    while rest and not rest[-1].startswith(("-", "(", "!")):
        start = rest.pop()
        if not (
            scope.allows_name(start)
            if isinstance(start, GlobMatch) and start[-1:] != "/" and "-H" not in words
            else scope.allows_path(start)
        ):
            return False
    while rest:
        word = rest.pop()
        if word in _FIND_ALONE:
            continue
        if not rest or word not in _FIND_VALUED | _FIND_PATHS:
            return False
        value = rest.pop()
        if word in _FIND_PATHS and not scope.allows_path(value):
            return False
    return True


# --- test ---

_FILE_TESTS = split_names("-d -e -f -r -w -x -s -b -c -p -S -g -u -k -O -G -N -a")
_LINK_TESTS = split_names("-L -h")
_FILE_PAIRS = split_names("-nt -ot -ef")
_NUMBER_TESTS = split_names("-eq -ne -lt -le -gt -ge")


def check_test(words: Sequence[str], scope: CommandScope) -> bool:
    """Tests of files, strings and integers. Tests of variables are not accepted, since they can run code."""
    for operator in ("-a", "-o"):
        if operator in words[1:]:
            at = list(words).index(operator, 1)
            return (
                at > 1 and len(words) > at + 2 and check_test(words[:at], scope) and check_test(words[at + 1 :], scope)
            )
    rest = list(words)
    while rest and rest[0] == "!":
        rest.pop(0)
    match rest:
        case [text]:
            return not text.startswith("-")
        case [operator, path] if operator in _FILE_TESTS:
            return scope.allows_path(path)
        case [operator, path] if operator in _LINK_TESTS:
            return scope.allows_name(path)
        case ["-t", number]:
            return number in ("0", "1", "2")
        case ["-n" | "-z", _]:
            return True
        case [first, operator, second] if operator in _NUMBER_TESTS:
            return all(re.fullmatch(r"-?\d{1,18}", number) for number in (first, second))
        case [first, operator, second] if operator in _FILE_PAIRS:
            return scope.allows_path(first) and scope.allows_path(second)
        case [_, "=" | "==" | "!=" | "<" | ">", _]:
            return True
        case _:
            return False


def check_bracket(words: Sequence[str], scope: CommandScope) -> bool:
    return bool(words) and words[-1] == "]" and check_test(words[:-1], scope)


def check_double_bracket(words: Sequence[str], scope: CommandScope) -> bool:
    return bool(words) and words[-1] == "]]" and check_test(words[:-1], scope)


# --- builtins and small commands ---


def check_echo(words: Sequence[str], scope: CommandScope) -> bool:
    return True


def check_expr(words: Sequence[str], scope: CommandScope) -> bool:
    return bool(words) and not words[0].startswith("--")


def check_command(words: Sequence[str], scope: CommandScope) -> bool:
    """`command -v NAME` describes a name; without -v the words are a command."""
    return len(words) > 1 and words[0] in ("-v", "-V") and all(re.fullmatch(r"[\w.+-]+", word) for word in words[1:])


def check_type(words: Sequence[str], scope: CommandScope) -> bool:
    names = words[1:] if words and re.fullmatch(r"-[aftpP]+", words[0]) else words
    return bool(names) and all(re.fullmatch(r"[\w.+][\w.+-]*", word) for word in names)


def check_ulimit(words: Sequence[str], scope: CommandScope) -> bool:
    return all(re.fullmatch(r"-[HS]?[acdflmnstuv]", word) for word in words)


_IP_OPTIONS = split_names("-4 -6 -br -brief -c -color -j -json -o -oneline -s -stats -d -details -p -pretty")
"""Options of ip are words that may be abbreviated; -b would read commands from a file."""


def check_ip(words: Sequence[str], scope: CommandScope) -> bool:
    rest = [word for word in words if word not in _IP_OPTIONS]
    known = rest[:1] != [] and rest[0] in ("a", "addr", "address", "l", "link", "r", "route", "neigh")
    return known and (not rest[1:] or rest[1:] in (["show"], ["list"], ["ls"]))


def check_tar(words: Sequence[str], scope: CommandScope) -> bool:
    """List an archive. A colon in its name would mean another machine."""
    flags, archive, members = words[:1], words[1:2], words[2:]
    if not flags or not archive or not re.fullmatch(r"-?[tvzjJ]*t[tvzjJ]*f", flags[0]):
        return False
    local = not isinstance(archive[0], GlobMatch) and ":" not in archive[0] and archive[0] != "-"
    return local and scope.allows_content(archive[0]) and not any(word.startswith("-") for word in members)


def check_help(words: Sequence[str], scope: CommandScope) -> bool:
    return all(re.fullmatch(r"-[dms]|[\w.:\[]+", word) for word in words)


def check_status_builtin(words: Sequence[str], scope: CommandScope) -> bool:
    """`jobs`, `times` and `dirs`, which show the state of the shell."""
    return not words or list(words) in (["-l"], ["-p"], ["-v"])


def check_exit(words: Sequence[str], scope: CommandScope) -> bool:
    return len(words) <= 1 and all(re.fullmatch(r"\d{1,3}", word) for word in words)


EXPRESSION_CHECKS: dict[str, Callable[[Sequence[str], CommandScope], bool]] = {
    "find": check_find,
    "test": check_test,
    "[": check_bracket,
    "[[": check_double_bracket,
    "echo": check_echo,
    "expr": check_expr,
    "command": check_command,
    "type": check_type,
    "ulimit": check_ulimit,
    "exit": check_exit,
    "ip": check_ip,
    "tar": check_tar,
    "help": check_help,
    "jobs": check_status_builtin,
    "times": check_status_builtin,
    "dirs": check_status_builtin,
}


_MAX_PROGRAM = 400

# --- sed: no `w`, `r` or `e`, and no text that continues on the next line ---

_SED_MARKS = ("/", r"\|", "#", ",", ":", "@", "!", "%", "_")


def _build_sed_pattern(mark: str) -> str:
    """Return a regular expression for a pattern up to its delimiter.

    Versions disagree about a delimiter inside square brackets, so none is accepted there.
    """
    listed = rf"\[\^?(?:[^\]\[\\\n{mark}]|\\[A-Za-z]|\[:[a-z]+:\])+\]"
    return rf"(?:[^{mark}\\\n\[]|\\[^\n]|{listed})*"


def _build_sed_text(mark: str) -> str:
    return rf"(?:[^{mark}\\\n]|\\[^\n])*"


_SED_CHOSEN = "|".join(rf"\\{mark}{_build_sed_pattern(mark)}{mark}" for mark in _SED_MARKS[1:])
_SED_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|/{_build_sed_pattern('/')}/[IM]{{0,2}}|{_SED_CHOSEN})"
_SED_RANGE = rf"(?:{_SED_ADDRESS}(?:\s*,\s*(?:{_SED_ADDRESS}|[+~]\d+))?\s*!?\s*)?"
_SED_SWAP = "|".join(
    rf"s{mark}{_build_sed_pattern(mark)}{mark}{_build_sed_text(mark)}{mark}[gpiIM\d]{{0,6}}|y{mark}{_build_sed_text(mark)}{mark}{_build_sed_text(mark)}{mark}"
    for mark in _SED_MARKS
)
_SED_COMMAND = rf"(?:{_SED_RANGE}(?:[pdPDgGhHxnN=]|[qQl]\d*|{_SED_SWAP}))"
_SED_COMMANDS = rf"{_SED_COMMAND}(?:\s*[;\n]\s*{_SED_COMMAND})*\s*;?\s*"
_SED_STEP = rf"(?:{_SED_COMMAND}|{_SED_RANGE}\{{\s*{_SED_COMMANDS}\}})"
_SED_JOINED = r"(?::a\s*[;\n]\s*N\s*[;\n]\s*\$!\s*ba\s*[;\n]\s*)?"
"""The idiom that joins all lines: the only loop known to end."""

_SED_ADDED = rf"{_SED_RANGE}[aic]\s*[^\\\s][^\\\n]*"
"""The text of `a`, `i` and `c` takes the rest of the script."""


@cache
def _compile_sed_program() -> re.Pattern[str]:
    """Compile on first use: it takes longer than all other patterns together, and most sessions never need it."""
    return re.compile(rf"\s*{_SED_JOINED}{_SED_STEP}(?:\s*[;\n]\s*{_SED_STEP})*\s*;?\s*|\s*{_SED_ADDED}")


_SED_AGAIN = re.compile(r"D\s*(?:[;\n}]|$)")
_SED_GROWS = re.compile("[Ggxs]")
"""`D` restarts with the remaining lines. Together with commands that add lines, that may never end."""


def _check_sed(parsed: ParsedOptions, scope: CommandScope) -> bool:
    scripts = parsed.list_values("e", "expression")
    files = parsed.operands if scripts else parsed.operands[1:]
    if not scripts and parsed.starts_with_glob:
        return False
    scripts = scripts or parsed.operands[:1]
    if any(map(_SED_AGAIN.search, scripts)) and any(map(_SED_GROWS.search, scripts)):
        return False
    return bool(scripts) and all(map(_is_printing_sed, scripts)) and all(scope.allows_content(word) for word in files)


def _is_printing_sed(script: str) -> bool:
    return len(script) <= _MAX_PROGRAM and _compile_sed_program().fullmatch(script) is not None


# --- awk: fields, numbers and strings; nothing that opens files, pipes or runs commands ---

_AWK_TOKEN = re.compile(
    r"\s+|(?P<number>\d+(?:\.\d+)?)|\"(?:[^\"\\\n]|\\[^\n])*\"|(?P<name>[A-Za-z_]\w*)|\|\||&&|==|!=|<=|>=|\+\+|--|\+=|-="
    r"|\*=|(?P<mark>[{}()\[\]$;,+\-*/%!~<>?:=])"
)
_AWK_REGEX = re.compile(r"/(?:[^/\\\n\[\]]|\\[^\n]|\[\^?(?:[^\]\[\\\n/]|\\[A-Za-z.]|\[:[a-z]+:\])+\])+/")
_AWK_FUNCTIONS = split_names(
    "length substr index split sub gsub match toupper tolower int sprintf sqrt exp log sin cos atan2 rand srand gensub "
    "strtonum systime strftime mktime asort asorti"
)
_AWK_CONTROL = split_names("if for")
_AWK_KEYWORDS = _AWK_CONTROL | split_names("BEGIN END print printf else in next exit delete break continue")
_AWK_SPECIAL = split_names("NR NF FNR FS OFS ORS RS RSTART RLENGTH SUBSEP FILENAME OFMT IGNORECASE")
_AWK_RESERVED = split_names(
    "getline system close fflush func function return nextfile while do switch case default include load namespace "
    "extension"
)
_AWK_VARIABLE = re.compile(r"[a-z_]\w*")
_AWK_FOR = re.compile(r"\s*\((?:\s*\w+\s+in\s|[^;]*;[^;]*(?:[<>]|!=|\bin\b)[^;]*;[^;]*(?:\+\+|--|[-+*]=))")
"""The start of a loop that counts or iterates over an array. Others may never end."""

_AWK_CALL = re.compile(r"\s*\(")
_AWK_VALUE = r"(NR|NF|FNR|FS|OFS|ORS|RS|[a-z]\w*)=([^\\]|\\[tn|.\\])*|[^=]*|="


def _check_awk(parsed: ParsedOptions, scope: CommandScope) -> bool:
    program, files = parsed.operands[:1], parsed.operands[1:]
    return (
        bool(program)
        and not parsed.starts_with_glob
        and _AwkProgram(program[0]).is_print_only()
        and all(scope.allows_content(word) for word in files)
    )


class _AwkProgram:
    """Checks a program token by token; every token must be known.

    A `/` is either a division or the start of a regular expression, which may contain anything. So `before` says what
    the previous token allows: "operand" a division, "operator" a regular expression, "" neither, where versions differ.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self.before = "operator"
        self.control = False
        self.braces = 0
        self.parens: list[bool] = []

    def is_print_only(self) -> bool:
        at = 0
        while at < len(self.program) <= _MAX_PROGRAM:
            slash = self.program[at] == "/"
            if slash and not self.before:
                return False
            if slash and self.before == "operator":
                token = _AWK_REGEX.match(self.program, at)
                self.before = ""
            else:
                token = _AWK_TOKEN.match(self.program, at)
                if token is not None and not self._check_token(token):
                    return False
            if token is None:
                return False
            at = token.end()
        return len(self.program) <= _MAX_PROGRAM and not self.braces and not self.parens

    def _check_token(self, token: "re.Match[str]") -> bool:
        text = token[0]
        if text.isspace():
            if "\n" in text and self.before == "operand":
                self.before = "operator"
            return True
        control, self.control = self.control, text in _AWK_CONTROL
        if token["name"]:
            return self._check_name(text, token.end())
        if text == ">" and self.braces and not self.parens:
            return False
        self.braces += (text == "{") - (text == "}")
        if text == "(":
            self.parens.append(control)
        closes = not self.parens.pop() if text == ")" and self.parens else text in ("]", "}", ")")
        self.before = self._derive_state(text, token["number"] is not None, closes=closes)
        return self.braces >= 0

    def _derive_state(self, text: str, number: bool, *, closes: bool) -> str:
        if text in (")", "]"):
            return "operand" if closes else ""
        if number:
            return "operand"
        return "" if text[0] == '"' or text in ("$", "++", "--") else "operator"

    def _check_name(self, name: str, end: int) -> bool:
        """True for a known name. `print` inside parentheses could write to a file, so it is not accepted there."""
        self.before = ""
        if name == "for" and _AWK_FOR.match(self.program, end) is None:
            return False
        if name in _AWK_KEYWORDS:
            return name not in ("print", "printf") or (self.braces > 0 and not self.parens)
        if name in _AWK_FUNCTIONS:
            return name == "length" or _AWK_CALL.match(self.program, end) is not None
        if name in _AWK_RESERVED or _AWK_CALL.match(self.program, end):
            return False
        self.before = "operand"
        return name in _AWK_SPECIAL or _AWK_VARIABLE.fullmatch(name) is not None


# --- jq: it can neither write nor run anything, but it can show the environment and load modules ---

_JQ_NAMES = split_names(
    "length utf8bytelength not keys keys_unsorted values has in map map_values path del getpath to_entries "
    "from_entries with_entries select empty error add any all flatten range floor sqrt pow log tostring tonumber type "
    "infinite nan isinfinite isnan sort sort_by group_by min max min_by max_by unique unique_by reverse contains "
    "inside startswith endswith combinations ltrimstr rtrimstr explode implode split join ascii ascii_downcase "
    "ascii_upcase recurse transpose input_line_number first last nth limit test match capture scan "
    "splits sub gsub tojson fromjson todate fromdate now strftime strptime mktime gmtime indices index rindex arrays "
    "objects iterables booleans numbers normals strings nulls scalars paths leaf_paths if then elif else end as and or "
    "reduce foreach null true false try catch def abs round ceil tojson walk trim ltrim rtrim csv "
    "tsv html uri sh base64 base64d text json"
)
_JQ_REVEALING = split_names(
    "env input inputs debug stderr import include modulemeta halt halt_error input_filename get_search_list"
)
_JQ_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_JQ_INSERTED = re.compile(r'\\\(([^()"\\]*)\)')
_JQ_NAME = re.compile(r"(?<![.$\w])[A-Za-z_]\w*")
_JQ_KEY = re.compile(r"\s*[:,}]")


def _check_jq(parsed: ParsedOptions, scope: CommandScope) -> bool:
    program, files = parsed.operands[:1], parsed.operands[1:]
    return (
        bool(program)
        and not parsed.starts_with_glob
        and _is_filter_only(program[0])
        and all(scope.allows_content(word) for word in files)
    )


def _is_filter_only(program: str) -> bool:
    """True if every name is a known function or a field. Comments are not accepted: a quote in one is not a string."""
    bare = _JQ_TEXT.sub(_extract_insertions, program)
    if len(program) > _MAX_PROGRAM or any(mark in bare for mark in ("\\", "::", "ENV", "$_", "#")):
        return False
    for found in _JQ_NAME.finditer(bare):
        name = found[0]
        if name not in _JQ_NAMES and (name in _JQ_REVEALING or not _JQ_KEY.match(bare, found.end())):
            return False
    return bare.count('"') % 2 == 0


def _extract_insertions(text: "re.Match[str]") -> str:
    """Return the interpolated expressions of a string, or a backslash if they cannot be separated."""
    parts = _JQ_INSERTED.findall(text[1])
    return " , ".join(parts) + " " if len(parts) == text[1].count("\\(") else "\\"


PROGRAM_COMMANDS: dict[str, ReadOnlyCommand] = {
    "sed": ReadOnlyCommand(
        _check_sed,
        "nErsuze:",
        "quiet silent regexp-extended expression= separate unbuffered posix null-data",
        options_first=True,
    ),
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "nawk"),
        ReadOnlyCommand(_check_awk, "F:v:", value_pattern=_AWK_VALUE, options_first=True),
    ),
    "jq": ReadOnlyCommand(
        _check_jq,
        "rcesnMSjaCR",
        "raw-output compact-output exit-status slurp null-input monochrome-output color-output sort-keys join-output "
        "ascii-output raw-input tab indent= arg== argjson== stream seq",
    ),
}
