"""The commands that run without a question, with the options that are known to change nothing.

A list of what is allowed, never of what is forbidden: an option that is not here, or is written in a shortened form, is
not known and therefore asked about. Options are written as for getopt: `n:` takes a value, `M?` may have one glued on;
among the long ones, `name=` takes a value and `name?` may have one after `=`.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from odin.policy.command.gitconfig import tame
from odin.policy.command.grammar import Redirect, Script, Simple, Word, named
from odin.policy.paths import contains, is_folder, real, special

_SAFE_VARIABLES = r"(LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|TERM|COLUMNS|LINES|CI)=[\w.,:@+-]*"
_DURATION = r"\d+(\.\d+)?[smh]?"

Step = tuple[Simple, str]
"""One command and the folder it would run in."""


class Place(Struct, frozen=True):
    cwd: str
    root: str

    def holds(self, path: str) -> bool:
        """Whether an operand stays inside the root and is something that can be read to its end."""
        found = real(path, self.cwd)
        return found is not None and contains(self.root, found) and not special(path, self.cwd)


Check = Callable[[Sequence[str], Place], bool]
"""Judges the operands that remain after the options."""


class Known(Struct, frozen=True):
    """One command that may run: its harmless options and what its operands must be."""

    short: str
    long: str
    operands: Check
    globs: bool = False
    number: bool = False
    values: str = ""


# --- operands ---


def _paths(words: Sequence[str], place: Place) -> bool:
    return all(word == "-" or place.holds(word) for word in words)


def _nothing(words: Sequence[str], place: Place) -> bool:
    return not words


def _any(words: Sequence[str], place: Place) -> bool:
    return True


def _names(words: Sequence[str], place: Place) -> bool:
    return all("/" not in word for word in words)


def _one_path(words: Sequence[str], place: Place) -> bool:
    """`uniq IN OUT` and its kin write their second operand."""
    return len(words) <= 1 and _paths(words, place)


def _pattern_then_paths(words: Sequence[str], place: Place) -> bool:
    return bool(words) and _paths(words[1:], place)


def _inert(words: Sequence[str], place: Place) -> bool:
    """Nothing that a shell's own arithmetic or arrays would run from inside quotes."""
    return bool(words) and not words[0].startswith("-") and not any(char in word for word in words for char in "$`")


def _date_format(words: Sequence[str], place: Place) -> bool:
    return all(word.startswith("+") for word in words)


def _processes(words: Sequence[str], place: Place) -> bool:
    return all(word in ("aux", "ax", "axu") for word in words)


_TESTS = named("-d -e -f -r -w -x -s -L -h")


def _test(words: Sequence[str], place: Place) -> bool:
    rest = list(words[1:] if words and words[0] == "!" else words)
    return len(rest) == 2 and rest[0] in _TESTS and place.holds(rest[1])


def _bracket(words: Sequence[str], place: Place) -> bool:
    return bool(words) and words[-1] == "]" and _test(words[:-1], place)


_FIND_ALONE = frozenset(
    ("-not", "!", "-o", "-or", "-a", "-and", "(", ")", "-empty", "-print", "-print0", "-prune", "-true")
)
_FIND_VALUED = named(
    "-name -iname -path -ipath -wholename -regex -iregex -type -maxdepth -mindepth -size -mtime -mmin -atime -amin "
    "-ctime -cmin -perm -user -group -links -regextype"
)
_FIND_PATHS = frozenset(("-newer", "-anewer", "-cnewer", "-samefile"))


def _find(words: Sequence[str], place: Place) -> bool:
    rest = list(words)
    while rest and not rest[0].startswith(("-", "(", "!")):
        if not place.holds(rest.pop(0)):
            return False
    while rest:
        word = rest.pop(0)
        if word in _FIND_ALONE:
            continue
        if not rest or word not in _FIND_VALUED | _FIND_PATHS:
            return False
        value = rest.pop(0)
        if word in _FIND_PATHS and not place.holds(value):
            return False
    return True


# --- git ---

_DIFF_SHORT = "pusabwWzRU:M?C?S:G:"
_DIFF_LONG = (
    "patch no-patch raw stat? shortstat numstat dirstat? summary name-only name-status compact-summary no-color color? "
    "minimal patience histogram diff-algorithm= ignore-space-change ignore-all-space ignore-blank-lines "
    "ignore-space-at-eol ignore-cr-at-eol function-context no-renames find-renames? find-copies? word-diff? "
    "color-words word-diff-regex= no-prefix full-index unified= diff-filter= abbrev? no-ext-diff no-textconv text "
    "pickaxe-all pickaxe-regex relative? inter-hunk-context= exit-code quiet check ignore-submodules? "
)
_LOG_LONG = _DIFF_LONG + (
    "oneline graph decorate? no-decorate all branches? tags? remotes? merges no-merges first-parent reverse follow "
    "abbrev-commit no-abbrev-commit parents left-right cherry-pick cherry-mark full-history simplify-merges topo-order "
    "date-order author-date-order walk-reflogs no-walk max-count= skip= since= after= until= before= author= "
    "committer= grep= format= pretty? date= all-match invert-grep regexp-ignore-case count no-notes source name-only "
)
_NO_SIGNATURES = r"(?s)(?!.*%G)"
"""A format with %G makes git call a signature program."""


def _revisions(words: Sequence[str], place: Place) -> bool:
    """Names of commits or paths; both must stay inside when read as a path, or git would compare any two files."""
    return all(_within(word, place) for word in words)


def _within(word: str, place: Place) -> bool:
    found = real(word, place.cwd)
    return found is not None and contains(place.root, found)


_GIT: dict[str, Known] = {
    "status": Known(
        "sbvu?z", "short branch porcelain? long verbose show-stash untracked-files? ignored? ahead-behind", _revisions
    ),
    "log": Known(_DIFF_SHORT + "n:iEFPgL:", _LOG_LONG, _revisions, number=True, values=_NO_SIGNATURES),
    "diff": Known(_DIFF_SHORT, _DIFF_LONG + "cached staged merge-base", _revisions),
    "show": Known(_DIFF_SHORT, _LOG_LONG, _revisions, values=_NO_SIGNATURES),
    "branch": Known("arvq", "all remotes verbose show-current list no-color color? no-abbrev abbrev=", _nothing),
    "tag": Known("l", "list", _nothing),
    "rev-parse": Known(
        "q",
        "show-toplevel abbrev-ref? short? verify quiet is-inside-work-tree is-inside-git-dir is-bare-repository "
        "show-prefix show-cdup git-dir symbolic-full-name symbolic all branches tags git-common-dir absolute-git-dir",
        _revisions,
    ),
    "ls-files": Known("cdmostkuz", "cached deleted modified others stage exclude-standard full-name", _revisions),
    "ls-tree": Known("drtlz", "name-only name-status long full-name full-tree abbrev?", _revisions),
    "blame": Known(
        "L:lsefnwbtcM?C?", "line-porcelain porcelain show-name show-number show-email date= since=", _revisions
    ),
    "describe": Known("", "tags all always long abbrev= dirty? match= exclude= first-parent contains", _revisions),
    "shortlog": Known("snec", "summary numbered email committer no-merges merges since= until= all", _revisions),
    "cat-file": Known("pte", "", _revisions),
    "rev-list": Known(
        "n:",
        "count all max-count= since= until= no-merges merges reverse first-parent oneline",
        _revisions,
        number=True,
    ),
    "merge-base": Known("a", "all is-ancestor fork-point octopus", _revisions),
    "grep": Known(
        "niwlLcEFPhHpWe:A:B:C:vIz",
        "line-number ignore-case word-regexp files-with-matches count heading break no-color color? show-function",
        _pattern_then_paths,
    ),
}

_GIT_GLOBAL = frozenset(("--no-pager", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"))


def _git(words: Sequence[str], place: Place) -> bool:
    rest = list(words)
    if rest in (["--version"], ["version"]):
        return True
    while rest and rest[0] in _GIT_GLOBAL:
        rest.pop(0)
    if rest[:2] == ["stash", "list"]:
        return len(rest) == 2 and tame(place.cwd, place.root)
    known = _GIT.get(rest[0]) if rest else None
    return known is not None and _accepts(known, rest[1:], place) and tame(place.cwd, place.root)


# --- the list ---

_COMMANDS: dict[str, Known] = {
    "pwd": Known("LP", "", _nothing),
    "ls": Known(
        "aAbBcCdfFgGhiklmnNopqQrRsStTuUvwxXZ1",
        "all almost-all human-readable recursive reverse size color? full-time group-directories-first sort= time= "
        "time-style= classify? directory inode numeric-uid-gid si ignore= hide= no-group",
        _paths,
        globs=True,
    ),
    "cat": Known("AbeEnstTuv", "number number-nonblank show-all show-ends show-tabs squeeze-blank", _paths),
    "head": Known("n:c:qvz", "lines= bytes= quiet verbose silent", _paths, number=True),
    "tail": Known("n:c:qvz", "lines= bytes= quiet verbose silent", _paths, number=True),
    "wc": Known("lwcmL", "lines words bytes chars max-line-length", _paths),
    "stat": Known("c:tf", "format= printf= terse file-system", _paths),
    "file": Known("bikhN", "brief mime mime-type mime-encoding no-dereference", _paths),
    "du": Known("shackmbxd:S", "summarize human-readable all total max-depth= bytes apparent-size", _paths),
    "which": Known("a", "all", _names),
    "echo": Known("", "", _any),
    "printf": Known("", "", _inert),
    "true": Known("", "", _any),
    "false": Known("", "", _any),
    "date": Known("uRI?d:", "utc iso-8601? rfc-email date= rfc-3339=", _date_format),
    "whoami": Known("", "", _nothing),
    "id": Known("ugGnr", "user group groups name", _names),
    "uname": Known("asnrvmpio", "all kernel-name nodename kernel-release machine operating-system", _nothing),
    "hostname": Known("sfiI", "", _nothing),
    "nproc": Known("", "all", _nothing),
    "uptime": Known("ps", "pretty since", _nothing),
    "free": Known("bkmghtw", "human mega giga total wide", _nothing),
    "basename": Known("as:z", "multiple suffix= zero", _any),
    "dirname": Known("z", "zero", _any),
    "readlink": Known("femnqsvz", "canonicalize canonicalize-existing canonicalize-missing no-newline", _paths),
    "realpath": Known("emqsz", "canonicalize-existing canonicalize-missing quiet", _paths),
    "seq": Known("f:s:w", "format= separator= equal-width", _any),
    "sort": Known(
        "bdfghinMRrVuk:t:csz", "reverse unique numeric-sort key= field-separator= check? ignore-case", _paths
    ),
    "uniq": Known("cdDuif:s:w:z", "count repeated unique ignore-case skip-fields= skip-chars= check-chars=", _one_path),
    "cut": Known(
        "d:f:c:b:sz", "delimiter= fields= characters= bytes= only-delimited complement output-delimiter=", _paths
    ),
    "tr": Known("cdst", "complement delete squeeze-repeats truncate-set1", _any),
    "nl": Known("b:n:w:s:v:i:", "", _paths),
    "tac": Known("", "", _paths),
    "rev": Known("", "", _paths),
    "od": Known("A:j:N:t:vwabcdfilosx", "", _paths),
    "hexdump": Known("Cbcdoxvn:s:", "", _paths),
    "column": Known("ts:c:nex", "table separator= columns=", _paths),
    "comm": Known("123", "total check-order nocheck-order", _paths),
    "cmp": Known("bln:s", "print-bytes verbose silent quiet", _paths),
    "diff": Known("ubwBiqNcU:C:ydstaE", "unified? brief ignore-case ignore-all-space new-file color?", _paths),
    "md5sum": Known("bt", "", _paths),
    "sha1sum": Known("bt", "", _paths),
    "sha256sum": Known("bt", "", _paths),
    "tree": Known("adfiCDhpstL:P:I:", "dirsfirst noreport", _paths),
    "ps": Known("efA", "", _processes),
    "pgrep": Known("alfcnox", "list-name list-full full count", _any),
    "[": Known("", "", _bracket),
    "test": Known("", "", _test),
    "find": Known("", "", _find),
    "git": Known("", "", _git),
}

_LITERAL_ARGUMENTS = frozenset(("echo", "printf", "[", "test", "find", "git", "true", "false", "tr", "seq"))
"""Commands whose words are judged as they stand, options included."""

_VERSIONS = named("python python3 node ruby rustc gcc g++ clang make cmake bash perl")

_GREPS = frozenset(("grep", "egrep", "fgrep"))
_GREP = Known(
    "ivwxclLnHhoqsEFGPaIze:A:B:C:m:",
    "ignore-case invert-match word-regexp line-regexp count files-with-matches line-number only-matching quiet "
    "no-messages extended-regexp fixed-strings perl-regexp color? regexp= after-context= before-context= context= "
    "max-count= with-filename no-filename include= exclude= exclude-dir=",
    _any,
)
_BUILTINS = frozenset(("echo", "printf", "[", "test", "pwd", "true", "false", "cd", "command"))


def steps(script: Script, cwd: str, root: str) -> list[Step] | None:
    """The commands of a plain script with the folder each runs in; None when that is not certain.

    After `cd` only `&&` and `|` may follow: with anything else the next command also runs when `cd` has failed.
    """
    here, top = real(cwd, "/"), real(root, "/")
    if not script.plain or not script.commands or here is None or top is None or not contains(top, here):
        return None
    placed: list[Step] = []
    moved = False
    commands = script.commands
    for index, simple in enumerate(commands):
        if moved and simple.after not in ("&&", "|"):
            return None
        placed.append((simple, here))
        if simple.words and simple.words[0].text == "cd":
            piped = simple.after == "|" or (index + 1 < len(commands) and commands[index + 1].after == "|")
            first = all(earlier.words and earlier.words[0].text == "cd" for earlier in commands[:index])
            there = _cd(simple, here, top)
            if there is None or piped or not first:
                return None
            here, moved = there, True
    return placed


def _cd(simple: Simple, cwd: str, root: str) -> str | None:
    words = simple.words
    if len(words) != 2 or not words[1].literal or words[1].text.startswith("-") or not words[1].text:
        return None
    if os.environ.get("CDPATH"):
        return None
    there = real(words[1].text, cwd)
    return there if there is not None and contains(root, there) and is_folder(there) else None


def harmless_redirect(redirect: Redirect) -> bool:
    """Into the null device, or one stream into another. Nothing else that writes is harmless."""
    target = redirect.target
    if not target.literal:
        return False
    if redirect.op == ">&" and target.text in ("1", "2"):
        return redirect.fd in ("", "1", "2")
    if redirect.op in (">", ">>", "&>"):
        return target.text == "/dev/null"
    return redirect.op == "<" and target.text == "/dev/null"


def harmless(simple: Simple, cwd: str, root: str) -> bool:
    """Whether one command only looks, and only at what lies inside the root."""
    if simple.nested or not all(harmless_redirect(item) for item in simple.redirects):
        return False
    words = list(simple.words)
    if words and words[0].text == "cd":
        return True  # where it leads has been judged by `steps`
    while words and words[0].literal and "=" in words[0].text and re.fullmatch(_SAFE_VARIABLES, words[0].text):
        words.pop(0)
    if len(words) > 2 and words[0].text == "timeout" and re.fullmatch(_DURATION, words[1].text):
        words = words[2:]
    if not words or not words[0].literal:
        return False
    place = Place(cwd, real(root, "/") or root)
    name = words[0].text
    return _on_path(name, place) and _known(name, words[1:], place)


def _known(name: str, words: Sequence[Word], place: Place) -> bool:
    texts = [word.text for word in words]
    if name in _COMMANDS and _COMMANDS[name].globs:
        return _globbed(words, place) and _accepts(_COMMANDS[name], texts, place)
    if not all(word.literal for word in words):
        return False
    if name == "command":
        return len(texts) == 2 and texts[0] == "-v" and "/" not in texts[1]
    if name in _VERSIONS:
        return texts == ["--version"]
    if name in _GREPS:
        return _grep(texts, place)
    known = _COMMANDS.get(name)
    if known is None:
        return False
    if name in _LITERAL_ARGUMENTS:
        return known.operands(texts, place)
    return _accepts(known, texts, place)


def _globbed(words: Sequence[Word], place: Place) -> bool:
    """Patterns are tried out: what they match now must lie inside, and must not look like an option."""
    import glob

    for word in words:
        if word.expands or (word.glob and word.text.startswith(("-", "/", "~"))):
            return False
        if word.glob:
            found = glob.glob(word.text, root_dir=place.cwd)  # noqa: PTH207 (a pattern that starts in another folder)
            if any(name.startswith("-") or not place.holds(name) for name in found[:1000]) or len(found) > 1000:
                return False
    return True


def _grep(texts: Sequence[str], place: Place) -> bool:
    """grep, whose first operand is a pattern unless -e gave one. A search of a whole tree must say which files."""
    plain = [text for text in texts if text not in ("-r", "--recursive")]
    clustered = [
        re.sub(r"r", "", text) if re.fullmatch(r"-[nilwcEFhHosI]*r[nilwcEFhHosI]*", text) else text for text in plain
    ]
    recursive = list(clustered) != list(texts)
    if recursive and not any(text.startswith("--include=") for text in texts):
        return False
    operands = _operands(_GREP, clustered)
    if operands is None:
        return False
    patterned = any(re.match(r"-\w*e", text) or text.startswith("--regexp") for text in clustered)
    return _paths(operands, place) if patterned else _pattern_then_paths(operands, place)


def _accepts(known: Known, texts: Sequence[str], place: Place) -> bool:
    operands = _operands(known, texts)
    return operands is not None and known.operands(operands, place)


def _operands(known: Known, texts: Sequence[str]) -> list[str] | None:
    """What is left when the options are taken off; None when one of them is not known to be harmless."""
    short, long = _short_options(known.short), _long_options(known.long)
    operands: list[str] = []
    rest = list(texts)
    while rest:
        text = rest.pop(0)
        if text == "--":
            return operands + rest
        if not text.startswith("-") or text == "-":
            operands.append(text)
        elif known.number and re.fullmatch(r"-\d+", text):
            continue
        elif not (_long(text, long, rest, known) if text.startswith("--") else _cluster(text[1:], short, rest, known)):
            return None
    return operands


def _short_options(spec: str) -> dict[str, str]:
    return dict(re.findall(r"([^:?])([:?]?)", spec))


def _long_options(spec: str) -> dict[str, str]:
    return {name.rstrip("=?"): name[-1] if name[-1] in "=?" else "" for name in spec.split()}


def _long(text: str, options: Mapping[str, str], rest: list[str], known: Known) -> bool:
    name, equals, value = text[2:].partition("=")
    kind = options.get(name)
    if kind is None or (equals and not kind):
        return False
    if kind == "=" and not equals:
        if not rest:
            return False
        value = rest.pop(0)
    return not known.values or re.match(known.values, value) is not None


def _cluster(letters: str, options: Mapping[str, str], rest: list[str], known: Known) -> bool:
    for index, letter in enumerate(letters):
        kind = options.get(letter)
        if kind is None:
            return False
        if kind == ":":
            if index + 1 == len(letters):
                return bool(rest and rest.pop(0))
            return True
        if kind == "?":
            return True
    return True


def _on_path(name: str, place: Place) -> bool:
    """Whether the name means the system's program: no folder of the search path inside the project has one like it."""
    if "/" in name:
        return False
    if name in _BUILTINS:
        return True
    for folder in os.environ.get("PATH", "").split(":"):
        found = real(folder or ".", place.cwd)
        suspect = not folder.startswith("/") or found is None or contains(place.root, found)
        if suspect and os.path.lexists(f"{found}/{name}"):
            return False
    return True
