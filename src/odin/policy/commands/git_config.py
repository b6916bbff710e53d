"""Checks that git can read a repository without running a program that the repository configures.

A repository can make `git status` run anything: a file system monitor, diff drivers, filters, hooks. So its
configuration is read as text, and git counts as read-only only if every key is known to be safe. The same holds for
its submodules, which are listed in the index. A result is cached until one of the files changes.
"""

import os
import re
import stat
import struct
from pathlib import Path

from odin.core.path_names import contains
from odin.policy.paths import is_folder, resolve_path

_MAX_INDEX_BYTES = 50_000_000
_GITLINK_MODE = b"\x00\x00\xe0\x00"
"""The mode of an index entry that is a submodule."""

_ID_WIDTHS = (20, 32)
_FIXED_BYTES = 40
_EXTENDED_FLAG = 0x4000
_NAME_LENGTH_MASK = 0xFFF


def list_submodules(path: str) -> list[str] | None:
    """Return the paths of all submodules in an index file, or None if it cannot be read."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_INDEX_BYTES:
            return None
        data = Path(path).read_bytes()
    except OSError:
        return None
    if _GITLINK_MODE not in data:
        return [] if data[:4] == b"DIRC" else None
    for width in _ID_WIDTHS:
        links = _read_gitlinks(data, width)
        if links is not None:
            return links
    return None


def _read_gitlinks(data: bytes, width: int) -> list[str] | None:
    """Return the submodule paths if object ids have this many bytes, or None if the index does not match that."""
    if len(data) < 12 or data[:4] != b"DIRC":
        return None
    version, count = struct.unpack(">II", data[4:12])
    if version not in (2, 3, 4):
        return None
    at, name, links = 12, b"", list[str]()
    for _ in range(count):
        start = at
        head = at + _FIXED_BYTES + width
        if head + 2 > len(data):
            return None
        mode = data[at + 24 : at + 28]
        (flags,) = struct.unpack(">H", data[head : head + 2])
        at = head + (4 if flags & _EXTENDED_FLAG and version > 2 else 2)
        prefix = 0
        if version == 4:
            dropped, at = _read_offset(data, at)
            prefix = len(name) - dropped
        end = data.find(b"\0", at)
        if end < 0 or prefix < 0:
            return None
        name = name[:prefix] + data[at:end]
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        if mode[:2] != b"\0\0" or min(len(name), _NAME_LENGTH_MASK) != flags & _NAME_LENGTH_MASK:
            return None
        if mode == _GITLINK_MODE:
            links.append(name.decode("utf-8", "surrogateescape"))
    return links


def _read_offset(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length number in git's offset encoding, and the position after it."""
    byte = data[at] if at < len(data) else 0
    value = byte & 127
    at += 1
    while byte & 128 and at < len(data):
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 127)
        at += 1
    return value, at


_MAX_CHARS = 100_000
_MAX_REPOSITORIES = 50
_MAX_CACHED = 200

_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]\s*')
_KEY = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(=.*)?")

_SAFE_KEYS: dict[str, frozenset[str]] = {
    section: frozenset(keys.split())
    for section, keys in {
        "core": "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode autocrlf symlinks "
        "eol safecrlf quotepath whitespace abbrev checkstat trustctime longpaths untrackedcache splitindex "
        "preloadindex compression loosecompression bigfilethreshold sharedrepository protecthfs protectntfs "
        "hidedotfiles commentchar sparsecheckout sparsecheckoutcone multipackindex commitgraph fscache packedgitlimit "
        "deltabasecachelimit createobject warnambiguousrefs",
        "extensions": "objectformat refstorage worktreeconfig",
        "remote": "url fetch pushurl push tagopt prune prunetags mirror skipfetchall skipdefaultupdate gh-resolved "
        "github-pr-remote followremotehead pushdefault",
        "branch": "remote merge rebase description pushremote autosetuprebase autosetupmerge vscode-merge-base "
        "gh-merge-base github-pr-owner-number github-pr-base-branch sort lfs-remote gk-merge-base gk-last-accessed "
        "gk-last-modified gk-merge-target gk-associated-issues",
        "user": "name email signingkey useconfigonly",
        "author": "name email",
        "committer": "name email",
        "pull": "rebase ff octopus",
        "push": "default autosetupremote followtags recursesubmodules",
        "fetch": "prune prunetags parallel recursesubmodules writecommitgraph showforcedupdates",
        "init": "defaultbranch",
        "color": "ui diff status branch interactive grep pager showbranch decorate",
        "column": "ui branch status tag",
        "gc": "auto autodetach autopacklimit pruneexpire reflogexpire",
        "maintenance": "auto strategy",
        "submodule": "active url path recurse ignore branch fetchjobs fetchrecursesubmodules shallow",
        "advice": "detachedhead addembeddedrepo addignoredfile statushints pushnonfastforward skippedcherrypicks "
        "mergeconflict diverging resolveconflict objectnametoolong defaultbranchname",
        "lfs": "repositoryformatversion url access locksverify",
        "merge": "conflictstyle ff log renames renamelimit stat directoryrenames verbosity",
        "rebase": "autosquash autostash updaterefs stat missingcommitscheck",
        "rerere": "enabled autoupdate",
        "commit": "gpgsign verbose status cleanup",
        "tag": "gpgsign sort forcesignannotated",
        "status": "showuntrackedfiles short branch aheadbehind renames relativepaths showstash displaycommentprefix",
        "diff": "algorithm renames renamelimit mnemonicprefix noprefix colormoved colormovedws context "
        "interhunkcontext indentheuristic wserrorhighlight wordregex autorefreshindex ignoresubmodules statgraphwidth "
        "xfuncname",
        "log": "date decorate follow abbrevcommit graphcolors mailmap showroot initialdecorationset excludedecoration",
        "format": "pretty",
        "grep": "linenumber column patterntype extendedregexp threads fullname",
        "blame": "coloring date showemail showroot ignorerevsfile markunblamablelines markignoredlines",
        "index": "version threads sparse recordendofindexentries recordoffsettable skiphash",
        "feature": "manyfiles experimental",
        "pack": "threads windowmemory packsizelimit compression usesparse writereverseindex",
        "http": "postbuffer sslverify extraheader version lowspeedlimit lowspeedtime",
        "i18n": "commitencoding logoutputencoding",
        "safe": "directory",
        "stash": "showpatch showstat showincludeuntracked",
        "versionsort": "suffix",
        "worktree": "guessremote userelativepaths",
        "gui": "wmstate geometry encoding",
        "github": "user",
        "url": "insteadof pushinsteadof",
        "checkout": "defaultremote guess workers",
        "credential": "username usehttppath",
        "gitflow": "master main develop feature bugfix release hotfix support versiontag",
    }.items()
}

_REDIRECTING_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE")

FileStamp = tuple[int, int, int, int] | None
_verdicts: dict[tuple[str, str], tuple[dict[str, FileStamp], bool]] = {}


def has_safe_git_config(cwd: str, root: str) -> bool:
    """True if the repository that git finds from `cwd` lies within the root and configures no program."""
    if any(os.environ.get(name) for name in _REDIRECTING_VARIABLES):
        return False
    cached = _verdicts.get((cwd, root))
    if cached is not None and all(_stamp_of(path) == stamp for path, stamp in cached[0].items()):
        return cached[1]
    check = _RepositoryCheck(root)
    verdict = check.check_from(cwd)
    if len(_verdicts) >= _MAX_CACHED:
        _verdicts.clear()
    _verdicts[cwd, root] = (check.stamps, verdict)
    return verdict


def _stamp_of(path: str) -> FileStamp:
    """Return a value that changes with the file. It includes ctime, which no program can set."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return (0, 0, 0, status.st_ino)
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


class _RepositoryCheck:
    """One check of a repository and its submodules. `stamps` records every file that was read or looked for."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.stamps: dict[str, FileStamp] = {}
        self._repositories: set[str] = set()

    def check_from(self, cwd: str) -> bool:
        """Check the repository that git finds from `cwd` upward. None at all is safe; one above the root is not."""
        folder = cwd
        while True:
            inside = contains(self.root, folder)
            if self._exists(f"{folder}/.git"):
                return inside and self._check_worktree(folder)
            if self._exists(f"{folder}/HEAD") and self._exists(f"{folder}/objects"):
                return False
            if not folder:
                return contains(self.root, cwd)
            folder = folder.rpartition("/")[0]

    def _exists(self, path: str) -> bool:
        stamp = self.stamps[path] = _stamp_of(path)
        return stamp is not None

    def _read_text(self, path: str) -> str | None:
        """Return the text of a small regular file, or None."""
        self._exists(path)
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return None
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(_MAX_CHARS + 1)
        except (OSError, ValueError):
            return None
        return text if len(text) <= _MAX_CHARS else None

    def _check_worktree(self, folder: str) -> bool:
        """Check a folder with a `.git` in it, and its submodules."""
        git_path = f"{folder}/.git"
        if Path(git_path).is_symlink():
            return False
        store = git_path if is_folder(git_path) else self._resolve_git_file(folder)
        if store is None:
            return False
        if store in self._repositories:
            return True
        self._repositories.add(store)
        if len(self._repositories) > _MAX_REPOSITORIES:
            return False
        return self._check_store(store, folder) and self._check_submodules(store, folder)

    def _resolve_git_file(self, folder: str) -> str | None:
        """Return the git directory named in a `.git` file, if it is in the root or names this folder as worktree."""
        text = self._read_text(f"{folder}/.git")
        if text is None or not text.startswith("gitdir: ") or "\n" in text.rstrip("\n"):
            return None
        store = resolve_path(text[len("gitdir: ") :].rstrip("\n"), folder)
        if store is None or not is_folder(store):
            return None
        if contains(self.root, store):
            return store
        return store if self._is_claimed_by(store, folder) else None

    def _is_claimed_by(self, store: str, folder: str) -> bool:
        """True if a git directory outside the root names this folder as its worktree."""
        back = self._read_text(f"{store}/gitdir")
        if back is not None:
            return resolve_path(back.rstrip("\n"), store) == f"{folder}/.git"
        text = self._read_text(f"{store}/config") or ""
        return any(
            resolve_path(value.strip(), store) == folder for value in re.findall(r"(?m)^\s*worktree\s*=(.*)$", text)
        )

    def _check_store(self, store: str, folder: str) -> bool:
        """Check the settings and hooks of a repository. A linked worktree uses those of the main one."""
        common = store
        if self._exists(f"{store}/commondir"):
            text = self._read_text(f"{store}/commondir")
            common = (resolve_path(text.rstrip("\n"), store) or "") if text else ""
            if common != store.rpartition("/worktrees/")[0]:
                return False
        if any(self._exists(f"{directory}/hooks/post-index-change") for directory in (store, common)):
            return False
        if self._exists(f"{store}/config.worktree") and not self._check_settings(
            f"{store}/config.worktree", store, folder
        ):
            return False
        return self._check_settings(f"{common}/config", store, folder)

    def _check_settings(self, path: str, store: str, folder: str) -> bool:
        text = self._read_text(path)
        return text is not None and _are_settings_safe(text, store, folder)

    def _check_submodules(self, store: str, folder: str) -> bool:
        """Check all submodules: git reads the state of each, with its own settings."""
        index = f"{store}/index"
        shared = [f"{store}/{name}" for name in _list_names(store) if name.startswith("sharedindex.")]
        for path in (index, *shared):
            if not self._exists(path):
                continue
            submodules = list_submodules(path)
            if submodules is None:
                return False
            if not all(self._check_submodule(f"{folder}/{name}") for name in submodules):
                return False
        return True

    def _check_submodule(self, folder: str) -> bool:
        if resolve_path(folder, "/") != folder:
            return False
        return not self._exists(f"{folder}/.git") or self._check_worktree(folder)


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 (only names are needed)
    except OSError:
        return []


def _are_settings_safe(text: str, store: str, folder: str) -> bool:
    section = ""
    for line in text.split("\n"):
        bare = line.strip()
        if not bare or bare[0] in "#;":
            continue
        if bare.endswith("\\"):
            return False
        header = _SECTION.fullmatch(line)
        if header:
            section = header[1].lower()
            continue
        key = _KEY.fullmatch(line)
        if key is None:
            return False
        name, value = key[1].lower(), (key[2] or "")[1:].strip()
        if (section, name) == ("core", "worktree"):
            if resolve_path(value, store) != folder:
                return False
        elif name == "ignorerevsfile":
            if section != "blame" or not contains(folder, resolve_path(value.strip('"'), folder) or "/"):
                return False
        elif name not in _SAFE_KEYS.get(section, frozenset()) or re.search(r'%[-+ "\\]*G|signature', value):
            return False
    return True
