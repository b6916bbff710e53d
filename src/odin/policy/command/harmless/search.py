"""Commands that search in files: grep and its kin.

A search that opens every file below a folder is harmless only when none of them is known to hold secrets.
"""

import os
from pathlib import Path

from odin.policy.command.harmless.options import ParsedOptions, ReadOnlyCommand
from odin.policy.command.harmless.place import ReadScope, TreeScan
from odin.policy.paths import contains, resolve_path

_MAX_IGNORES = 20_000
_PATTERN_OPTIONS = ("e", "regexp", "f", "file")
"""Options that give the pattern, so that all operands are files."""


def _check_search(parsed: ParsedOptions, scope: ReadScope, scan: TreeScan | None) -> bool:
    """The first operand is a pattern unless an option gave one; the others are files, or trees with `look`."""
    paths = parsed.operands if parsed.has(*_PATTERN_OPTIONS) else parsed.operands[1:]
    if scan is None:
        return all(scope.allows_content(word) for word in paths)
    return all(scope.allows_path(word) and scan.is_clear(word, scope) for word in paths or ["."])


def _has_pattern(parsed: ParsedOptions) -> bool:
    return parsed.has(*_PATTERN_OPTIONS) or (bool(parsed.operands) and not parsed.starts_with_glob)


def _check_grep(parsed: ParsedOptions, scope: ReadScope) -> bool:
    if not _has_pattern(parsed):
        return False
    follows = parsed.has("R", "dereference-recursive")
    if not follows and not parsed.has("r", "recursive"):
        return _check_search(parsed, scope, None)
    only = parsed.values_of("include")
    if parsed.has("exclude") or any(char in pattern for pattern in only for char in "[\\/"):
        only = []  # with both, a file that neither names may be searched
    skipped = [name for name in parsed.values_of("exclude-dir") if not set(name) & set("*?[\\")]
    return _check_search(parsed, scope, TreeScan(patterns=tuple(only), skipped_names=skipped, follow_links=follows))


_GREP = ReadOnlyCommand(
    _check_grep,
    "ivywxclLnHhoqsEFGPaIzbTUZrRe:f@A:B:C:m:",
    "ignore-case no-ignore-case invert-match word-regexp line-regexp count files-with-matches files-without-match "
    "line-number only-matching quiet silent no-messages extended-regexp fixed-strings basic-regexp perl-regexp color? "
    "colour? regexp= after-context= before-context= context= max-count= with-filename no-filename include= exclude= "
    "exclude-dir= recursive dereference-recursive file@ byte-offset text null null-data initial-tab label= "
    "binary-files= line-buffered "
    "group-separator= no-group-separator",
    takes_number=True,
)

# --- ripgrep and fd, which leave hidden and ignored files alone unless they are told otherwise ---


def _check_ripgrep(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """A pattern or type that chooses files also chooses hidden and ignored ones."""
    if not _has_own_settings(scope):
        return False
    if parsed.has("files", "type-list", "version", "V"):
        return all(scope.allows_path(word) for word in parsed.operands)
    chosen = any(not glob.startswith("!") for glob in parsed.values_of("g", "glob", "iglob")) or parsed.has("t", "type")
    everything = chosen or parsed.has("u", "unrestricted", "no-ignore", "no-ignore-vcs")
    look = TreeScan(
        skipped_names=() if everything else _read_ignored_folders(scope),
        include_hidden=chosen or parsed.has(".", "hidden", "u", "unrestricted"),
        follow_links=parsed.has("L", "follow"),
    )
    return _has_pattern(parsed) and _check_search(parsed, scope, look)


def _has_own_settings(scope: ReadScope) -> bool:
    """Whether ripgrep's configuration, which may name programs, is the user's and not the project's."""
    path = os.environ.get("RIPGREP_CONFIG_PATH")
    found = resolve_path(path, scope.cwd) if path else ""
    return found == "" or (found is not None and not contains(scope.root, found))


def _read_ignored_folders(scope: ReadScope) -> frozenset[str]:
    """Folders that .gitignore leaves out by their plain name, such as node_modules. Only in a repository."""
    if not os.path.lexists(f"{scope.root}/.git") or scope.has_config((".ignore", ".rgignore")):
        return frozenset()
    try:
        with Path(scope.root, ".gitignore").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_IGNORES).splitlines()
    except OSError:
        return frozenset()
    if any(line.startswith("!") for line in lines):
        return frozenset()
    return frozenset(line.strip().strip("/") for line in lines if not set(line) & set("*?[#\\"))


_RG = ReadOnlyCommand(
    _check_ripgrep,
    "ivwxclnNHIoqsSFPaUupL.e:f@A:B:C:m:g:t:T:j:M:d:r:E:0Vb",
    "ignore-case smart-case case-sensitive invert-match word-regexp line-regexp count count-matches files-with-matches "
    "files-without-match line-number no-line-number column no-column only-matching quiet no-messages fixed-strings "
    "pcre2 regexp= after-context= before-context= context= max-count= with-filename no-filename glob= iglob= type= "
    "type-not= threads= max-columns= max-columns-preview max-depth= hidden no-ignore no-ignore-vcs no-ignore-parent "
    "unrestricted files sort= sortr= color= colors= heading no-heading json stats multiline multiline-dotall text null "
    "trim no-config passthru replace= vimgrep pretty encoding= max-filesize= one-file-system type-list version "
    "byte-offset line-buffered context-separator= follow file@ debug glob-case-insensitive crlf engine= no-unicode",
)


def _check_fd(parsed: ParsedOptions, scope: ReadScope) -> bool:
    return all(scope.is_within(word) for word in parsed.operands)


_FD = ReadOnlyCommand(
    _check_fd,
    "HIusigFapt:e:d:E:S:0j:c:1qV",
    "hidden no-ignore no-ignore-vcs case-sensitive ignore-case glob regex fixed-strings absolute-path full-path type= "
    "extension= max-depth= min-depth= exact-depth= exclude= size= changed-within= changed-before= print0 color= "
    "threads= max-results= quiet prune strip-cwd-prefix version unrestricted",
)

SEARCH_COMMANDS: dict[str, ReadOnlyCommand] = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), _GREP),
    "rg": _RG,
    **dict.fromkeys(("fd", "fdfind"), _FD),
}
