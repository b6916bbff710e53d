"""Commands that are given a small program of their own: sed, awk and jq. Only what can but print is known."""

import re

from odin.policy.command.harmless.options import Known, Taken
from odin.policy.command.harmless.place import Place
from odin.policy.command.shapes import named

_MAX_PROGRAM = 400

# --- sed: no `w`, `r`, `e`, no text that runs on into the next line ---

_SED_TEXT = r"(?:[^/\\\n]|\\[^/\n])*"
_SED_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|/{_SED_TEXT}/[IM]{{0,2}})"
_SED_RANGE = rf"(?:{_SED_ADDRESS}(?:\s*,\s*(?:{_SED_ADDRESS}|[+~]\d+))?\s*!?\s*)?"
_SED_SWAP = "|".join(
    rf"s{mark}(?:[^{mark}\\\n]|\\[^{mark}\n])*{mark}(?:[^{mark}\\\n]|\\[^{mark}\n])*{mark}[gpiIM\d]{{0,6}}"
    for mark in ("/", r"\|", "#", ",", ":", "@", "!", "%", "_")
)
_SED_COMMAND = rf"(?:{_SED_RANGE}(?:[pdPDgGhHxnN=]|[qQl]\d*|{_SED_SWAP}))"
_SED = re.compile(rf"\s*{_SED_COMMAND}(?:\s*[;\n]\s*{_SED_COMMAND})*\s*;?\s*")


def _sed(taken: Taken, place: Place) -> bool:
    scripts = taken.values("e", "expression")
    files = taken.operands if scripts else taken.operands[1:]
    scripts = scripts or taken.operands[:1]
    return bool(scripts) and all(map(_prints, scripts)) and all(place.shows(word) for word in files)


def _prints(script: str) -> bool:
    return len(script) <= _MAX_PROGRAM and _SED.fullmatch(script) is not None


# --- awk: fields, numbers, sums and texts; nothing that opens, pipes or calls the system ---

_AWK_TOKEN = re.compile(
    r"\s+|\d+(?:\.\d+)?|\"(?:[^\"\\\n]|\\[^\n])*\"|(?P<name>[A-Za-z_]\w*)|\|\||&&|==|!=|<=|>=|\+\+|--|\+=|-=|\*="
    r"|(?P<mark>[{}()\[\]$;,+\-*/%!~<>?:=])"
)
_AWK_REGEX = re.compile(r"/(?:[^/\\\n\[\]]|\\[^\n])+/")
_AWK_NAMES = named(
    "BEGIN END NR NF FNR FS OFS ORS RS FILENAME print printf length substr index split sub gsub toupper tolower int "
    "sprintf if else for in next exit delete match"
)
_AWK_VARIABLE = re.compile(r"[a-z]\w{0,2}|sum|total|count|seen|line|max|min|key|val|field|name|last|prev|avg")
_AWK_KEYWORDS = named("BEGIN END print printf if else for in next exit delete")
_AWK_VALUE = r"(NR|NF|FNR|FS|OFS|ORS|RS|[a-z]\w*)=[^\\]*|[^=]*|="


def _awk(taken: Taken, place: Place) -> bool:
    program, files = taken.operands[:1], taken.operands[1:]
    return bool(program) and _only_prints(program[0]) and all(place.shows(word) for word in files)


def _only_prints(program: str) -> bool:
    """Whether every token is known. A `/` that begins a regular expression must not be taken for one that divides."""
    at = braces = parens = 0
    before = "operator"
    while at < len(program) <= _MAX_PROGRAM:
        slash = program[at] == "/"
        regex = _AWK_REGEX.match(program, at) if slash and before == "operator" else None
        token = regex or _AWK_TOKEN.match(program, at)
        if token is None or (slash and not regex and before != "operand"):
            return False
        at = token.end()
        if not token[0].isspace():
            if not regex and not _awk_known(token, braces > 0, parens > 0):
                return False
            braces += (token[0] == "{") - (token[0] == "}")
            parens += (token[0] == "(") - (token[0] == ")")
            before = "operand" if regex else _awk_kind(token)
    return len(program) <= _MAX_PROGRAM and braces == parens == 0


def _awk_known(token: "re.Match[str]", in_braces: bool, in_parens: bool) -> bool:
    """A known name, and no `>` where it would write. A `print` between parentheses can write from there."""
    name = token["name"]
    if name in ("print", "printf"):
        return not in_parens
    if name:
        return name in _AWK_NAMES or _AWK_VARIABLE.fullmatch(name) is not None
    return not (in_braces and not in_parens and token[0] == ">")


def _awk_kind(token: "re.Match[str]") -> str:
    text = token[0]
    if text in ("$", "++", "--") or text in _AWK_KEYWORDS:
        return "keyword"
    if token["name"] or text in (")", "]") or text[0] in '"0123456789':
        return "operand"
    return "operator"


# --- jq: it can neither write nor run, but it can show the environment and read modules ---

_JQ_NAMES = named(
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
_JQ_REVEALING = named(
    "env input inputs debug stderr import include modulemeta halt halt_error input_filename get_search_list"
)
_JQ_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_JQ_INSERTED = re.compile(r'\\\(([^()"\\]*)\)')
_JQ_NAME = re.compile(r"(?<![.$\w])[A-Za-z_]\w*")
_JQ_KEY = re.compile(r"\s*[:,}]")


def _jq(taken: Taken, place: Place) -> bool:
    program, files = taken.operands[:1], taken.operands[1:]
    return bool(program) and _only_filters(program[0]) and all(place.shows(word) for word in files)


def _only_filters(program: str) -> bool:
    """Whether every name is a known function, or the name of a field."""
    bare = _JQ_TEXT.sub(_inserted, program)
    if len(program) > _MAX_PROGRAM or any(odd in bare for odd in ("\\", "::", "ENV", "$_")):
        return False
    for found in _JQ_NAME.finditer(bare):
        name = found[0]
        if name not in _JQ_NAMES and (name in _JQ_REVEALING or not _JQ_KEY.match(bare, found.end())):
            return False
    return bare.count('"') % 2 == 0


def _inserted(text: "re.Match[str]") -> str:
    """What a text would put into itself, without the text. A backslash stays when that is not certain."""
    parts = _JQ_INSERTED.findall(text[1])
    return " , ".join(parts) + " " if len(parts) == text[1].count("\\(") else "\\"


PROGRAMS: dict[str, Known] = {
    "sed": Known(_sed, "nErsuze:l:", "quiet silent regexp-extended expression= separate unbuffered posix null-data"),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), Known(_awk, "F:v:", values=_AWK_VALUE)),
    "jq": Known(
        _jq,
        "rcesnMSjaCR",
        "raw-output compact-output exit-status slurp null-input monochrome-output color-output sort-keys join-output "
        "ascii-output raw-input tab indent= arg== argjson== stream seq",
    ),
}
