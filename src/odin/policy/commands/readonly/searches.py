"""Read-only searches: grep, ripgrep and fd.

A search that opens every file below a folder is allowed only if none of them may contain secrets, or if the command
line leaves them out. `find_exclusions` returns the words that make it do so. `TreeScan` walks the tree as it is: ignore
files are not read, because a search program reads them in its own way.
"""

import os
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from odin.core.path_names import SECRET_GLOBS, contains, is_secret_folder, is_secret_path
from odin.policy.command_scope import CommandScope
from odin.policy.commands.readonly.options import ParsedOptions, ReadOnlyCommand, parse_options
from odin.policy.paths import is_folder, resolve_path

_MAX_ENTRIES = 30_000
_PACKAGE_FOLDERS = frozenset(("node_modules", "site-packages", ".venv", "venv", ".tox", "__pycache__"))
"""Folders filled by package managers: the sample keys in them are not secrets."""


class TreeTooLarge(Exception):
    """A tree has too many entries to check."""


class SecretEntries(Struct, frozen=True):
    """The names of secret files and folders in a tree."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.files or self.folders)

    def __or__(self, other: "SecretEntries") -> "SecretEntries":
        return SecretEntries(self.files | other.files, self.folders | other.folders)


def _keep_all(name: str) -> bool:
    return False


class TreeScan(Struct, frozen=True):
    """Finds secrets in a tree. `follow_links`: the search also follows links and opens pipes.

    `is_file_left_out` and `is_folder_left_out` are True for names that the command line leaves out.
    """

    is_file_left_out: Callable[[str], bool] = _keep_all
    is_folder_left_out: Callable[[str], bool] = _keep_all
    follow_links: bool = False

    def is_clear(self, path: str, scope: CommandScope) -> bool:
        """True if nothing below this path is secret or leaves the root. False if the tree is too large to check."""
        try:
            found = self.find_secrets(path, scope)
        except TreeTooLarge:
            return False
        return found is not None and not found

    def find_secrets(self, path: str, scope: CommandScope) -> SecretEntries | None:
        """Return the secrets that a search of this path would open; None if it would leave the root or never end.

        Raises TreeTooLarge.
        """
        top = resolve_path(path, scope.cwd)
        if top is None or not scope.allows_path(path) or is_secret_path(path) or is_secret_path(top):
            return None
        if not is_folder(top):
            return SecretEntries() if scope.allows_content(path) else None
        files: set[str] = set()
        secret_folders: set[str] = set()
        budget = _MAX_ENTRIES
        folders = [top]
        while folders:
            entries = _list_entries(folders.pop())
            budget -= len(entries)
            if budget < 0:
                raise TreeTooLarge
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self._sort_folder(entry, folders, secret_folders)
                elif self.follow_links and not entry.is_file(follow_symlinks=False):
                    return None
                elif is_secret_path(entry.path) and not self.is_file_left_out(entry.name):
                    files.add(entry.name)
        return SecretEntries(frozenset(files), frozenset(secret_folders))

    def _sort_folder(self, entry: "os.DirEntry[str]", folders: list[str], secret_folders: set[str]) -> None:
        """Add a folder to those to search, or to the secret ones."""
        name = entry.name
        if self.is_folder_left_out(name):
            return
        if is_secret_folder(name):
            secret_folders.add(name)
        elif name != ".git" and (self.follow_links or name not in _PACKAGE_FOLDERS):
            folders.append(entry.path)


def _list_entries(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


_PATTERN_OPTIONS = ("e", "regexp", "f", "file")
"""Options that set the pattern, so that all operands are files."""

_PLAIN_NAME = re.compile(r"[\w.+@ -]+")
_MAX_EXCLUDED = 40
EVERY_SECRET = f"!{{{','.join(SECRET_GLOBS)}}}"
"""The glob for ripgrep that leaves out every name that may be secret, for trees too large to check."""


class SearchExclusions:
    """What a search must leave out: the names of secret entries, and the words to add to the command line."""

    def __init__(self, secrets: SecretEntries, words: Sequence[str]) -> None:
        self.names = tuple(sorted(secrets.files | secrets.folders))
        self.words = tuple(words)


def find_exclusions(name: str, texts: Sequence[str], scope: CommandScope) -> SearchExclusions | None:
    """Return what a recursive search must leave out so that it shows no secrets; None if that does not help."""
    make_scan, known = _RECURSIVE.get(name, (None, None))
    if make_scan is None or known is None:
        return None
    parsed = parse_options(known, texts, scope)
    scan = make_scan(parsed, scope) if parsed is not None else None
    if parsed is None or scan is None or not _has_pattern(parsed):
        return None
    try:
        found = [scan.find_secrets(path, scope) for path in _list_searched_paths(parsed)]
    except TreeTooLarge:
        return SearchExclusions(SecretEntries(), [f"--iglob={EVERY_SECRET}"]) if name == "rg" else None
    secrets = SecretEntries()
    for one in found:
        if one is None:
            return None
        secrets |= one
    names = secrets.files | secrets.folders
    if not names or len(names) > _MAX_EXCLUDED or not all(_PLAIN_NAME.fullmatch(name) for name in names):
        return None
    if name == "rg":
        return SearchExclusions(secrets, [f"--iglob=!{{{','.join(sorted(names))}}}"])
    words = [f"--exclude={name}" for name in sorted(secrets.files)]
    return SearchExclusions(secrets, [*words, *(f"--exclude-dir={name}" for name in sorted(secrets.folders))])


def _list_searched_paths(parsed: ParsedOptions) -> Sequence[str]:
    """Return the operands without the pattern, which is the first one unless an option sets it."""
    paths = parsed.operands if parsed.has(*_PATTERN_OPTIONS) else parsed.operands[1:]
    return paths or ["."]


def _has_pattern(parsed: ParsedOptions) -> bool:
    return parsed.has(*_PATTERN_OPTIONS) or (bool(parsed.operands) and not parsed.starts_with_glob)


# --- grep ---


def _check_grep(parsed: ParsedOptions, scope: CommandScope) -> bool:
    if not _has_pattern(parsed):
        return False
    scan = _make_grep_scan(parsed, scope)
    if scan is None:
        files = parsed.operands if parsed.has(*_PATTERN_OPTIONS) else parsed.operands[1:]
        return all(scope.allows_content(word) for word in files)
    return all(scan.is_clear(path, scope) for path in _list_searched_paths(parsed))


def _make_grep_scan(parsed: ParsedOptions, scope: CommandScope) -> TreeScan | None:
    """Return the scan of a recursive search, or None if the search is not recursive."""
    follows = parsed.has("R", "dereference-recursive")
    if not follows and not parsed.has("r", "recursive"):
        return None
    choices = [(name, value) for name, value in parsed.options if name in ("include", "exclude")]
    skipped = [name for name in parsed.list_values("exclude-dir") if not set(name) & set("*?[\\/")]

    def is_file_left_out(name: str) -> bool:
        """The last option that matches decides; without one, whether the first is --include."""
        if scope.environment.get("POSIXLY_CORRECT"):
            return False  # options after the first operand would be file names
        left_out = bool(choices) and choices[0][0] == "include"
        for kind, glob in choices:
            unclear = not glob or bool(set(glob) & set("[\\/"))
            if kind == "include":
                left_out = left_out and not (unclear or fnmatchcase(name, glob))
            elif not unclear and not (name.startswith(".") and glob[0] in "*?"):
                left_out = left_out or fnmatchcase(name, glob)
        return left_out

    return TreeScan(is_file_left_out, lambda name: name in skipped, follows)


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

# --- ripgrep ---


def _check_ripgrep(parsed: ParsedOptions, scope: CommandScope) -> bool:
    if _has_project_settings(scope):
        return False
    if parsed.has("files", "type-list", "version", "V"):
        return all(scope.allows_path(word) for word in parsed.operands)
    scan = _make_ripgrep_scan(parsed, scope)
    if not _has_pattern(parsed):
        return False
    try:
        found = [scan.find_secrets(path, scope) for path in _list_searched_paths(parsed)]
    except TreeTooLarge:
        return not scan.follow_links and parsed.list_values("iglob")[-1:] == [EVERY_SECRET]
    return all(one is not None and not one for one in found)


def _make_ripgrep_scan(parsed: ParsedOptions, scope: CommandScope) -> TreeScan:
    """Return the scan. Globs on the command line have the last word over ignore files; of them, the last match counts.

    All of --iglob come after all of --glob, wherever they are written.
    """
    exact = [(glob, False) for glob in parsed.list_values("g", "glob")]
    globs = [*exact, *((glob, True) for glob in parsed.list_values("iglob"))]

    def is_left_out(name: str, *, is_folder: bool) -> bool:
        left_out = not is_folder and any(not glob.startswith("!") for glob, _ in globs)
        for glob, any_case in globs:
            body = glob.removeprefix("!").removesuffix("/" if is_folder else "")
            unclear = bool(set(body) & set("[\\/")) or not body
            fits = not unclear and any(_fits(name, choice, any_case=any_case) for choice in _expand_braces(body))
            if glob.startswith("!"):
                left_out = left_out or fits
            elif unclear or fits:
                left_out = False
        return left_out

    return TreeScan(
        lambda name: is_left_out(name, is_folder=False),
        lambda name: is_left_out(name, is_folder=True),
        parsed.has("L", "follow"),
    )


def _fits(name: str, glob: str, *, any_case: bool) -> bool:
    return fnmatchcase(name.casefold(), glob.casefold()) if any_case else fnmatchcase(name, glob)


def _expand_braces(glob: str) -> Sequence[str]:
    """Return the alternatives of a glob that is one pair of braces, or the glob itself."""
    if glob.startswith("{") and glob.endswith("}") and not set(glob[1:-1]) & set("{}"):
        return glob[1:-1].split(",")
    return [glob] if not set(glob) & set("{}") else []


def _has_project_settings(scope: CommandScope) -> bool:
    """True if ripgrep's configuration, which may name programs, lies in the project."""
    path = scope.environment.get("RIPGREP_CONFIG_PATH")
    if not path:
        return False
    resolved = resolve_path(path, scope.cwd)
    return resolved is None or contains(scope.root, resolved)


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

# --- fd ---


def _check_fd(parsed: ParsedOptions, scope: CommandScope) -> bool:
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

_MakeScan = Callable[[ParsedOptions, CommandScope], TreeScan | None]
_RECURSIVE: dict[str, tuple[_MakeScan, ReadOnlyCommand]] = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), (_make_grep_scan, _GREP)),
    "rg": (_make_ripgrep_scan, _RG),
}
