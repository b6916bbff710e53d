"""Checks that git can read a repository without running a program that it names, and prints nothing but its content.

A repository can make `git status` run anything: a file system monitor, diff drivers, filters, hooks. So its
configuration is read as text, and git counts as read-only only if every key is known to be safe. The same holds for
its submodules, which are listed in the index. Its objects and refs must be its own: neither linked nor borrowed. A
repository that does not parse exactly is not trusted. A result is cached until one of the files changes.

Configuration can also rename any git command, so `may_be_alias` reads all files that can do so.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping

from msgspec import Struct

from odin.core.environment import ExecutionEnvironment
from odin.core.path_names import contains
from odin.policy.commands.git_folder import FolderTimes, find_link, is_settled, list_submodules, read_times
from odin.policy.paths import is_folder, look_up_once, resolve_path

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

_REDIRECTING_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_REF_STORAGE",
    "GIT_DEFAULT_HASH",
    "GIT_ATTR_SOURCE",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
)

_HEAD = re.compile(r"(ref: refs/[^\s\x00-\x1f\x7f~^:?*\[\\]+|[0-9a-f]{40}|[0-9a-f]{64})\n?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_ID_BYTES = {"sha1": 20, "sha256": 32}
_SPACE = " \t\r"

FileStamp = tuple[int, int, int, int] | None


class _CheckResult(Struct, frozen=True):
    """The result of a check, valid while all files and folders are as they were."""

    problem: str
    stamps: dict[str, FileStamp]
    folders: dict[str, FolderTimes | None]

    def is_current(self) -> bool:
        return all(_read_stamp(path) == stamp for path, stamp in self.stamps.items()) and all(
            read_times(path) == times for path, times in self.folders.items()
        )

    def is_settled(self) -> bool:
        """True if every later change of these files and folders will show in their times."""
        files = (stamp[1] for stamp in self.stamps.values() if stamp is not None)
        folders = (times[1] for times in self.folders.values() if times is not None)
        return all(map(is_settled, files)) and all(map(is_settled, folders))


_results: dict[tuple[str, str], _CheckResult] = {}
"""By folder and root. Besides, a result depends only on files whose times it has: variables that would lead git
elsewhere are looked at before. So all sessions can share it."""


def has_safe_git_config(cwd: str, root: str, variables: Mapping[str, str]) -> bool:
    """True if the repository that git finds from `cwd` lies within the root, is whole and configures no program."""
    return not find_git_problem(cwd, root, variables)


def find_git_problem(cwd: str, root: str, variables: Mapping[str, str]) -> str:
    """Return why git must not read the repository it finds from `cwd` without approval, or "".

    `variables` are those that git gets.
    """
    for name in _REDIRECTING_VARIABLES:
        if variables.get(name):
            return f"{name} is set"
    known = _results.get((cwd, root))
    if known is not None and known.is_current():
        return known.problem
    check = _RepositoryCheck(root)
    try:
        check.check_from(cwd)
        problem = ""
    except RepositoryDistrusted as error:
        problem = str(error)
    result = _CheckResult(problem, check.stamps, check.folders)
    if len(_results) >= _MAX_CACHED:
        _results.clear()
    _results.pop((cwd, root), None)
    if result.is_settled():
        _results[cwd, root] = result
    return problem


def _read_stamp(path: str) -> FileStamp:
    """Return a value that changes with the file. It includes ctime, which no program can set."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return (0, 0, 0, status.st_ino)
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


class RepositoryDistrusted(Exception):
    """Git must not read this repository without approval. The message says why."""


class _RepositoryCheck:
    """One check of a repository and its submodules. It records every file that was read or looked for.

    The methods raise RepositoryDistrusted.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.stamps: dict[str, FileStamp] = {}
        self.folders: dict[str, FolderTimes | None] = {}
        self._repositories: set[str] = set()

    def check_from(self, cwd: str) -> None:
        """Check the repository that git finds from `cwd` upward. None at all is safe; one above the root is not."""
        folder = cwd
        while True:
            if self._exists(f"{folder}/.git"):
                if not contains(self.root, folder):
                    raise RepositoryDistrusted("the repository lies above the project")
                return self._check_worktree(folder)
            if self._exists(f"{folder}/HEAD") and self._exists(f"{folder}/objects"):
                raise RepositoryDistrusted(f"{folder or '/'} is a repository without a worktree")
            if not folder:
                if not contains(self.root, cwd):
                    raise RepositoryDistrusted("the folder lies outside the project")
                return None
            folder = folder.rpartition("/")[0]

    def _exists(self, path: str) -> bool:
        stamp = self.stamps[path] = _read_stamp(path)
        return stamp is not None

    def _read_text(self, path: str) -> str | None:
        """Return the text of a small regular file, or None."""
        self._exists(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return None
                data = file.read(_MAX_CHARS + 1)
            return data.decode("utf-8") if len(data) <= _MAX_CHARS else None
        except (OSError, ValueError):
            return None

    def _check_worktree(self, folder: str) -> None:
        """Check a folder with a `.git` in it, and its submodules."""
        git_path = f"{folder}/.git"
        if os.path.islink(git_path):  # noqa: PTH114
            raise RepositoryDistrusted(f"{git_path} is a link")
        store = git_path if is_folder(git_path) else self._resolve_git_file(folder)
        if store in self._repositories:
            return
        self._repositories.add(store)
        if len(self._repositories) > _MAX_REPOSITORIES:
            raise RepositoryDistrusted("it has too many submodules")
        common = self._find_common_store(store)
        self._check_form(store, common)
        self._check_storage(store, common)
        id_bytes = self._check_settings(store, common, folder)
        self._check_submodules(store, folder, id_bytes)

    def _resolve_git_file(self, folder: str) -> str:
        """Return the git directory named in a `.git` file, if it is in the root or names this folder as worktree."""
        text = self._read_text(f"{folder}/.git")
        if text is None or not text.startswith("gitdir: ") or _CONTROL.search(text) or "\n" in text.rstrip("\n"):
            raise RepositoryDistrusted(f"{folder}/.git cannot be read")
        store = resolve_path(text[len("gitdir: ") :].rstrip("\n"), folder)
        if store is None or not is_folder(store):
            raise RepositoryDistrusted(f"{folder}/.git names no folder")
        if not contains(self.root, store) and not self._is_claimed_by(store, folder):
            raise RepositoryDistrusted(f"{folder}/.git leads out of the project")
        return store

    def _is_claimed_by(self, store: str, folder: str) -> bool:
        """True if a git directory outside the root names this folder as its worktree."""
        back = self._read_text(f"{store}/gitdir")
        if back is not None:
            return resolve_path(back.rstrip("\n"), store) == f"{folder}/.git"
        text = self._read_text(f"{store}/config") or ""
        return any(
            resolve_path(value.strip(), store) == folder for value in re.findall(r"(?m)^\s*worktree\s*=(.*)$", text)
        )

    def _find_common_store(self, store: str) -> str:
        """Return the git directory that holds objects, refs and settings: for a linked worktree, the main one's."""
        if not self._exists(f"{store}/commondir"):
            return store
        text = self._read_text(f"{store}/commondir")
        common = resolve_path(text.rstrip("\n"), store) if text else None
        if common is None or common != store.rpartition("/worktrees/")[0]:
            raise RepositoryDistrusted(f"{store}/commondir names another repository")
        return common

    def _check_form(self, store: str, common: str) -> None:
        """Check that git takes this for a repository. Otherwise it would look for one further up."""
        head = self._read_text(f"{store}/HEAD")
        folders = (f"{common}/objects", f"{common}/refs")
        if head is None or not _HEAD.fullmatch(head) or not all(self._exists(path) for path in folders):
            raise RepositoryDistrusted(f"{store} is no complete repository")
        if not all(is_folder(path) and os.access(path, os.X_OK) for path in folders):
            raise RepositoryDistrusted(f"{store} is no complete repository")

    def _check_storage(self, store: str, common: str) -> None:
        """Check that objects, refs and all else that git prints are stored here and not behind links or elsewhere."""
        for directory in dict.fromkeys((store, common)):
            link = find_link(directory, self._note_folder)
            if link:
                raise RepositoryDistrusted(f"{link} is a link")
        for name in ("alternates", "http-alternates"):
            path = f"{common}/objects/info/{name}"
            if self._exists(path) and (self._read_text(path) or "?").strip():
                raise RepositoryDistrusted(f"{path} adds the objects of another repository")

    def _note_folder(self, path: str) -> None:
        self.folders[path] = read_times(path)

    def _check_settings(self, store: str, common: str, folder: str) -> int:
        """Check the settings and hooks of a repository. Return the size of its object ids in bytes."""
        for directory in (store, common):
            if self._exists(f"{directory}/hooks/post-index-change"):
                raise RepositoryDistrusted(f"the hook {directory}/hooks/post-index-change would run")
        if self._exists(f"{store}/config.worktree"):
            settings = self._read_settings(f"{store}/config.worktree", store, folder)
            if any(key.startswith("extensions.") for key in settings):
                raise RepositoryDistrusted(f"{store}/config.worktree changes the format of the repository")
        settings = self._read_settings(f"{common}/config", store, folder)
        version = settings.get("core.repositoryformatversion", "0")
        formats = settings.get("extensions.objectformat", "sha1")
        if version not in ("0", "1") or formats not in _ID_BYTES or (version == "0" and formats != "sha1"):
            raise RepositoryDistrusted(f"{common}/config has an unknown format of objects")
        if settings.get("extensions.refstorage", "files") not in ("files", "reftable"):
            raise RepositoryDistrusted(f"{common}/config has an unknown format of refs")
        return _ID_BYTES[formats]

    def _read_settings(self, path: str, store: str, folder: str) -> dict[str, str]:
        text = self._read_text(path)
        if text is None or _CONTROL.search(text):
            raise RepositoryDistrusted(f"{path} cannot be read")
        return _parse_settings(text, path, store, folder)

    def _check_submodules(self, store: str, folder: str, id_bytes: int) -> None:
        """Check all submodules: git reads the state of each, with its own settings."""
        index = f"{store}/index"
        if not self._exists(index):
            return
        submodules = list_submodules(index, id_bytes)
        if submodules is None:
            raise RepositoryDistrusted(f"{index} is damaged, split, sparse, very large or in an unknown format")
        for name in submodules:
            self._check_submodule(f"{folder}/{name}")

    def _check_submodule(self, folder: str) -> None:
        if resolve_path(folder, "/") != folder:
            raise RepositoryDistrusted(f"the submodule {folder} is behind a link")
        if self._exists(f"{folder}/.git"):
            self._check_worktree(folder)


def _parse_settings(text: str, path: str, store: str, folder: str) -> dict[str, str]:
    """Return the settings that decide about the format. Raise RepositoryDistrusted if one may name a program."""
    section, subsection = "", None
    found: dict[str, str] = {}
    for line in text.split("\n"):
        bare = line.strip(_SPACE)
        if not bare or bare[0] in "#;":
            continue
        header = _SECTION.fullmatch(line)
        if header:
            section, subsection = header[1].lower(), header[2]
            continue
        key = _KEY.fullmatch(line)
        if key is None or bare.endswith("\\"):
            raise RepositoryDistrusted(f"{path} has a line that is not understood: {bare[:60]}")
        name, value = key[1].lower(), (key[2] or "")[1:].strip(_SPACE)
        if not _is_setting_safe(section, name, value, store, folder):
            raise RepositoryDistrusted(f"{path} sets {section}.{key[1]}, which may name a program")
        if section == "extensions" or (section, name) == ("core", "repositoryformatversion"):
            if subsection is not None or f"{section}.{name}" in found:
                raise RepositoryDistrusted(f"{path} sets {section}.{key[1]} in an unusual way")
            found[f"{section}.{name}"] = value
    return found


def _is_setting_safe(section: str, name: str, value: str, store: str, folder: str) -> bool:
    if (section, name) == ("core", "worktree"):
        return resolve_path(value, store) == folder
    if name == "ignorerevsfile":
        return section == "blame" and contains(folder, resolve_path(value.strip('"'), folder) or "/")
    return name in _SAFE_KEYS.get(section, frozenset()) and not re.search(r'%[-+ "\\]*G|signature', value)


_MAX_CONFIG_CHARS = 200_000
_INCLUDE = re.compile(r"(?im)^\s*\[\s*include")
_ALIAS_SECTION = re.compile(r"(?im)^\s*\[\s*alias")


def may_be_alias(verb: str, folder: str, environment: ExecutionEnvironment) -> bool:
    """True if a configuration file that git reads in this folder defines this alias, or includes other files."""
    name = re.escape(verb)
    for text in _read_aliases(folder, environment):
        if _INCLUDE.search(text) or re.search(
            rf"(?im)^\s*(?:\[\s*alias\s*\]\s*)?{name}\s*=|\[\s*alias\s+\"{name}\"", text
        ):
            return True
    return any(
        name.startswith("GIT_CONFIG_") and name[11:] not in ("GLOBAL", "SYSTEM") for name in environment.variables
    )


@look_up_once
def _read_aliases(folder: str, environment: ExecutionEnvironment) -> tuple[str, ...]:
    """Return the configuration files that define aliases or include other files."""
    texts = (_read_text(path) for path in _list_config_files(folder, environment.variables))
    return tuple(text for text in texts if text and (_INCLUDE.search(text) or _ALIAS_SECTION.search(text)))


def _list_config_files(folder: str, variables: Mapping[str, str]) -> Iterator[str]:
    home = variables.get("HOME", "")
    yield variables.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"
    chosen = variables.get("GIT_CONFIG_GLOBAL")
    if chosen is not None:
        yield chosen
    elif home:
        yield f"{home}/.gitconfig"
        yield f"{variables.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config"
    store = find_git_folder(folder)
    if store:
        yield f"{store}/config"
        yield f"{store}/config.worktree"
        common = (_read_text(f"{store}/commondir") or "").strip()
        if common:
            yield os.path.join(store, common, "config")  # noqa: PTH118 (an absolute part replaces those before it)


def find_git_folder(folder: str) -> str:
    """Return the git directory of the repository around a folder, or ""."""
    while True:
        path = f"{folder}/.git"
        if os.path.isdir(path):  # noqa: PTH112
            return path
        text = _read_text(path) or ""
        if text.startswith("gitdir: "):
            return os.path.join(folder, text[8:].strip())  # noqa: PTH118
        if not folder:
            return ""
        folder = folder.rpartition("/")[0]


def _read_text(path: str) -> str | None:
    try:
        if not os.path.isfile(path):  # noqa: PTH113
            return None
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(_MAX_CONFIG_CHARS)
    except (OSError, ValueError):
        return None
