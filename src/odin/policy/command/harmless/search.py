"""Commands that search in files: grep and its kin.

A search that opens every file below a folder is harmless only when none of them is known to hold secrets.
"""

import os
from pathlib import Path

from odin.policy.command.harmless.options import Known, Taken
from odin.policy.command.harmless.place import Look, Place
from odin.policy.paths import contains, real

_MAX_IGNORES = 20_000
_GIVEN = ("e", "regexp", "f", "file")
"""Options that give the pattern, so that all operands are files."""


def _searched(taken: Taken, place: Place, look: Look | None) -> bool:
    """The first operand is a pattern unless an option gave one; the others are files, or trees with `look`."""
    paths = taken.operands if taken.has(*_GIVEN) else taken.operands[1:]
    if look is None:
        return all(place.shows(word) for word in paths)
    return all(place.holds(word) and look.clear(word, place) for word in paths or ["."])


def _patterned(taken: Taken) -> bool:
    return taken.has(*_GIVEN) or (bool(taken.operands) and not taken.led_by_glob)


def _grep(taken: Taken, place: Place) -> bool:
    if not _patterned(taken):
        return False
    follows = taken.has("R", "dereference-recursive")
    if not follows and not taken.has("r", "recursive"):
        return _searched(taken, place, None)
    only = taken.values("include")
    if taken.has("exclude") or any(char in pattern for pattern in only for char in "[\\/"):
        only = []  # with both, a file that neither names may be searched
    skipped = [name for name in taken.values("exclude-dir") if not set(name) & set("*?[\\")]
    return _searched(taken, place, Look(only=tuple(only), skipped=skipped, follows=follows))


_GREP = Known(
    _grep,
    "ivywxclLnHhoqsEFGPaIzbTUZrRe:f@A:B:C:m:",
    "ignore-case no-ignore-case invert-match word-regexp line-regexp count files-with-matches files-without-match "
    "line-number only-matching quiet silent no-messages extended-regexp fixed-strings basic-regexp perl-regexp color? "
    "colour? regexp= after-context= before-context= context= max-count= with-filename no-filename include= exclude= "
    "exclude-dir= recursive dereference-recursive file@ byte-offset text null null-data initial-tab label= "
    "binary-files= line-buffered "
    "group-separator= no-group-separator",
    number=True,
)

# --- ripgrep and fd, which leave hidden and ignored files alone unless they are told otherwise ---


def _ripgrep(taken: Taken, place: Place) -> bool:
    """A pattern or type that chooses files also chooses hidden and ignored ones."""
    if not _own_settings(place):
        return False
    if taken.has("files", "type-list", "version", "V"):
        return all(place.holds(word) for word in taken.operands)
    chosen = any(not glob.startswith("!") for glob in taken.values("g", "glob", "iglob")) or taken.has("t", "type")
    everything = chosen or taken.has("u", "unrestricted", "no-ignore", "no-ignore-vcs")
    look = Look(
        skipped=() if everything else _ignored(place),
        hidden=chosen or taken.has(".", "hidden", "u", "unrestricted"),
        follows=taken.has("L", "follow"),
    )
    return _patterned(taken) and _searched(taken, place, look)


def _own_settings(place: Place) -> bool:
    """Whether ripgrep's configuration, which may name programs, is the user's and not the project's."""
    path = os.environ.get("RIPGREP_CONFIG_PATH")
    found = real(path, place.cwd) if path else ""
    return found == "" or (found is not None and not contains(place.root, found))


def _ignored(place: Place) -> frozenset[str]:
    """Folders that .gitignore leaves out by their plain name, such as node_modules. Only in a repository."""
    if not os.path.lexists(f"{place.root}/.git") or place.configured((".ignore", ".rgignore")):
        return frozenset()
    try:
        with Path(place.root, ".gitignore").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_IGNORES).splitlines()
    except OSError:
        return frozenset()
    if any(line.startswith("!") for line in lines):
        return frozenset()
    return frozenset(line.strip().strip("/") for line in lines if not set(line) & set("*?[#\\"))


_RG = Known(
    _ripgrep,
    "ivwxclnNHIoqsSFPaUupL.e:f@A:B:C:m:g:t:T:j:M:d:r:E:0Vb",
    "ignore-case smart-case case-sensitive invert-match word-regexp line-regexp count count-matches files-with-matches "
    "files-without-match line-number no-line-number column no-column only-matching quiet no-messages fixed-strings "
    "pcre2 regexp= after-context= before-context= context= max-count= with-filename no-filename glob= iglob= type= "
    "type-not= threads= max-columns= max-columns-preview max-depth= hidden no-ignore no-ignore-vcs no-ignore-parent "
    "unrestricted files sort= sortr= color= colors= heading no-heading json stats multiline multiline-dotall text null "
    "trim no-config passthru replace= vimgrep pretty encoding= max-filesize= one-file-system type-list version "
    "byte-offset line-buffered context-separator= follow file@ debug glob-case-insensitive crlf engine= no-unicode",
)


def _found(taken: Taken, place: Place) -> bool:
    return all(place.within(word) for word in taken.operands)


_FD = Known(
    _found,
    "HIusigFapt:e:d:E:S:0j:c:1qV",
    "hidden no-ignore no-ignore-vcs case-sensitive ignore-case glob regex fixed-strings absolute-path full-path type= "
    "extension= max-depth= min-depth= exact-depth= exclude= size= changed-within= changed-before= print0 color= "
    "threads= max-results= quiet prune strip-cwd-prefix version unrestricted",
)

SEARCH: dict[str, Known] = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), _GREP),
    "rg": _RG,
    **dict.fromkeys(("fd", "fdfind"), _FD),
}
