"""What a session's sandbox shows, hides and makes writable, independent of the backend.

Writable: the project and the writable roots besides it, their git folders and temporary folders. Read-only inside them:
protected files, which make other programs run something (git hooks, editor tasks). Hidden: keys and credentials, and
sockets of agents and daemons. Read-only roots are never writable, whatever the user grants.

The user can grant one command more paths to write. A folder is granted by making it writable. A file, or a path to be
created or removed, needs a writable parent: all other entries of the parent are then mounted read-only, so only the
granted path, and no other existing entry, can change.
"""

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct

from odin.core.path_names import contains
from odin.core.profile import WritableFolders
from odin.core.root import Root
from odin.sandbox.protected_files import ProtectedFiles, is_settled, list_git_folders, list_git_paths

_MAX_ENTRIES = 200
"""A parent with more entries is not made writable: each entry needs a mount."""

_SYSTEM_FOLDERS = ("/dev", "/proc", "/sys", "/run", "/var/run")


class GrantedFolder(Struct, frozen=True):
    """A folder (or file) to mount writable, and the entries of it that are `kept` read-only."""

    path: str
    kept: tuple[str, ...] = ()


def can_grant(path: str, home: str, roots: Iterable[str]) -> bool:
    """True if a resolved path can be granted: it is no system folder and contains neither a root nor the home."""
    if path == "/" or any(contains(path, place) for place in (*roots, home)):
        return False
    if any(contains(folder, path) for folder in _SYSTEM_FOLDERS) or os.path.realpath(path) != path:
        return False
    return os.path.exists(path) or _can_open_parent(_find_existing_parent(path), home)  # noqa: PTH110


def drop_inner_paths(paths: Iterable[str]) -> list[str]:
    """Return the paths that do not lie in another one of them."""
    kept: list[str] = []
    for path in sorted(dict.fromkeys(paths), key=len):
        if not any(contains(other, path) for other in kept):
            kept.append(path)
    return kept


def _find_existing_parent(path: str) -> str:
    """Return the nearest existing folder above this path."""
    parent = path.rpartition("/")[0]
    while parent and not os.path.lexists(parent):
        parent = parent.rpartition("/")[0]
    return parent or "/"


def _can_open_parent(parent: str, home: str) -> bool:
    """True if the entries of a folder can be mounted one by one.

    Never the home: a new file there could be a start-up file.
    """
    if parent in ("/", home) or not os.path.isdir(parent):  # noqa: PTH112
        return False
    try:
        with os.scandir(parent) as entries:
            listed = [entry for _, entry in zip(range(_MAX_ENTRIES + 1), entries, strict=False)]
    except OSError:
        return False
    return len(listed) <= _MAX_ENTRIES and not any(entry.is_symlink() for entry in listed)


def _list_entries(folder: str) -> list[str]:
    try:
        return sorted(f"{folder.rstrip('/')}/{name}" for name in os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []


_HOME_SECRETS = """
    .ssh .gnupg .aws .azure .kube .docker .password-store .netrc _netrc .git-credentials .pypirc .npmrc .pgpass .my.cnf
    .mylogin.cnf .s3cfg .boto .vault-token .databrickscfg .terraform.d/credentials.tfrc.json .cargo/credentials
    .cargo/credentials.toml .gem/credentials .composer/auth.json .m2/settings.xml .m2/settings-security.xml
    .gradle/gradle.properties .config/git/credentials .config/gh .config/glab-cli .config/hub .config/gcloud
    .config/doctl .config/op .config/rclone .config/sops .config/age .config/containers/auth.json
    .config/composer/auth.json .config/github-copilot .config/1Password .config/Bitwarden .config/Signal .config/Slack
    .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge .config/vivaldi .config/opera
    .mozilla .thunderbird .local/share/keyrings .local/share/kwalletd .local/share/opencode/auth.json
    .claude/.credentials.json .claude.json .codex/auth.json .gemini/oauth_creds.json .electrum .bitcoin .ethereum
    .Xauthority .bash_history .zsh_history .python_history .psql_history .mysql_history .node_repl_history
    .local/share/fish/fish_history
    Library/Keychains
""".split()  # noqa: SIM905

_SYSTEM_SECRETS = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d")
_SOCKET_VARIABLES = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "WAYLAND_DISPLAY", "GPG_AGENT_INFO")

HIDDEN_VARIABLES = (*_SOCKET_VARIABLES, "DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "KRB5CCNAME", "TMUX", "SSH_ASKPASS")
"""Variables that point to agents, displays and daemons outside, which a sandboxed command cannot reach."""

_MAX_SCANNED = 500
"""Maximum number of entries of a temporary folder checked for sockets."""

_KERNEL_FILE_SYSTEMS = frozenset(
    """
    proc sysfs devtmpfs devpts cgroup cgroup2 debugfs tracefs securityfs selinuxfs configfs efivarfs bpf pstore
    binfmt_misc fusectl mqueue nfsd rpc_pipefs
    """.split()  # noqa: SIM905
)
"""File systems whose files are kernel settings or devices."""

_PRIVATE_MOUNTS = ("/run/", "/var/run/", "/dev/", "/proc/")
"""Folders that a bubblewrap sandbox replaces by its own."""


class SecretPaths:
    """Finds the files and folders to hide, except folders that contain the project.

    There is a look before every command, so a folder is searched again only if its ctime, which no program can set,
    has changed.
    """

    def __init__(self, session: "SandboxSession") -> None:
        self._root = session.root
        self._candidates: dict[str, list[str]] = {}
        home = (f"{session.home}/{name}" for name in _HOME_SECRETS)
        views = (session.views,) if session.views else ()
        for path in (*home, *session.odin_folders, *views, *_SYSTEM_SECRETS):
            self._candidates.setdefault(os.path.dirname(path), []).append(path)  # noqa: PTH120
        self._known: dict[str, tuple[tuple[int, int, int], list[str]]] = {}

    def find(self) -> list[str]:
        """Return the real paths of what exists now."""
        real = dict.fromkeys(map(os.path.realpath, self._list_existing()))
        return [path for path in real if not contains(path, self._root) and path != "/"]

    def identify(self) -> tuple["FileIdentity", ...]:
        """Return what tells whether one of the paths is new or was replaced, by a link, too."""
        return _identify_files(self._list_existing())

    def _list_existing(self) -> Iterator[str]:
        return chain.from_iterable(map(self._search, self._candidates))

    def _search(self, folder: str) -> list[str]:
        try:
            status = os.stat(folder)  # noqa: PTH116
        except OSError:
            return []
        state = status.st_dev, status.st_ino, status.st_ctime_ns
        known = self._known.get(folder)
        if known is not None and known[0] == state:
            return known[1]
        existing = [path for path in self._candidates[folder] if os.path.lexists(path)]
        if is_settled(status):
            self._known[folder] = state, existing
        return existing


def find_kernel_mounts(folders: Sequence[str]) -> list[str]:
    """Return mount points in these folders that expose kernel settings, such as a chroot's /proc."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    found: list[str] = []
    for line in lines:
        mount, _, source = line.partition(" - ")
        if source.partition(" ")[0] in _KERNEL_FILE_SYSTEMS:
            path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mount.split(" ")[4])
            if any(contains(folder, path) for folder in folders) and os.path.lexists(path):
                found.append(path)
    return list(dict.fromkeys(found))


def find_sockets(folders: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """Return the sockets in these folders that would lead out of the sandbox: of agents, displays, terminals.

    For a socket inside a subfolder, return the subfolder, which is then hidden as a whole.
    """
    hidden: list[str] = []
    for folder in folders:
        for count, entry in enumerate(_scan_entries(folder)):
            if count >= _MAX_SCANNED:
                break
            if entry.is_dir(follow_symlinks=False):
                inner = (item for _, item in zip(range(_MAX_SCANNED), _scan_entries(entry.path), strict=False))
                if any(_is_socket(item.path) for item in inner if not item.is_file() and not item.is_dir()):
                    hidden.append(entry.path)
            elif not entry.is_file(follow_symlinks=False) and _is_socket(entry.path):
                hidden.append(entry.path)
    agent = os.path.realpath(env.get("SSH_AUTH_SOCK", "") or "/")
    others = [agent, *list_open_sockets()] if _is_socket(agent) else list_open_sockets()
    hidden.extend(path for path in others if not any(contains(folder, path) for folder in hidden))
    return list(dict.fromkeys(hidden))


def list_open_sockets() -> list[str]:
    """Return the named sockets that are open outside and would be visible in a bubblewrap sandbox."""
    return [path for path in _list_named_sockets() if not path.startswith(_PRIVATE_MOUNTS)][:_MAX_SCANNED]


def has_reachable_socket(hidden: Sequence[str]) -> bool:
    """True if any named socket on this machine is writable for us, except those of Odin in these hidden folders.

    Whoever connects to those presents a secret, which is hidden as well.
    """
    sockets = (path for path in _list_named_sockets() if not _needs_secret(path, hidden))
    return any(os.access(path, os.W_OK) for path in sockets)


def _needs_secret(path: str, hidden: Sequence[str]) -> bool:
    name, suffix = os.path.splitext(path)  # noqa: PTH122
    return suffix == ".sock" and os.path.exists(f"{name}.secret") and any(contains(one, path) for one in hidden)  # noqa: PTH110


def _list_named_sockets() -> list[str]:
    """Return all named sockets that are open, except those in other network namespaces."""
    try:
        with open("/proc/net/unix", "rb") as file:  # noqa: PTH123
            lines = file.read().splitlines()[1:]
    except OSError:
        return []
    names = (os.fsdecode(line.split(maxsplit=7)[7]) for line in lines if b"/" in line)
    real = (os.path.realpath(path) for path in names if path.startswith("/"))
    return [path for path in dict.fromkeys(real) if _is_socket(path)]


def _scan_entries(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


FileIdentity = tuple[str, int, int]
"""A path with the device and inode numbers of what is there."""


class SandboxSession(Struct, frozen=True):
    """The session of a sandbox. `odin_folders` hold keys and are hidden, except the paths in `visible`.

    `views` is the folder for the layers of views and for temporary files; it is hidden, too. Without it, commands have
    no views. `root`, `writable` and `TMPDIR` are resolved once: a command could put a link in their place later.
    `roots` are the folders besides the project.
    """

    root: str
    home: str
    env: Mapping[str, str]
    odin_folders: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    views: str = ""
    roots: tuple[Root, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """The project and the other roots."""
        return (self.root, *(root.path for root in self.roots))

    @property
    def projects(self) -> tuple[str, ...]:
        """The project and the writable roots."""
        return (self.root, *(root.path for root in self.roots if root.is_writable))


class SandboxLayout(Struct, frozen=True):
    """Which paths a sandbox makes writable, read-only or invisible.

    `temporary` and `writable` are writable, and so is `granted`, for one command. What commands see in the temporary
    folders lies in `private`, in folders with their numbers. `persistent` lies inside temporary folders but is real and
    read-only (a home or a project in /tmp). `pinned` is writable but cannot be moved away; `protected` is read-only
    inside writable folders. `hidden` and `sockets` are invisible, except `visible`. `covered` are the device and inode
    numbers of what is hidden or protected; for git, of the sockets, too. `concealed` is the part of `hidden` that only
    some commands must not see.
    """

    temporary: tuple[str, ...]
    persistent: tuple[str, ...]
    writable: tuple[str, ...]
    pinned: tuple[str, ...]
    protected: tuple[str, ...]
    hidden: tuple[str, ...]
    visible: tuple[str, ...]
    sockets: tuple[str, ...] = ()
    granted: tuple[GrantedFolder, ...] = ()
    covered: tuple[FileIdentity, ...] = ()
    private: str = ""
    concealed: tuple[str, ...] = ()

    @property
    def temporaries(self) -> dict[str, str]:
        """The temporary folders, and where what commands see in them lies."""
        return {path: f"{self.private}/{at}" if self.private else path for at, path in enumerate(self.temporary)}


EMPTY_LAYOUT = SandboxLayout(temporary=(), persistent=(), writable=(), pinned=(), protected=(), hidden=(), visible=())


def plan_layout(
    session: SandboxSession,
    *,
    writes: bool,
    protected_files: ProtectedFiles | None = None,
    scope: tuple[str, ...] | None = None,
    private: str = "",
    concealed: Sequence[str] = (),
) -> SandboxLayout:
    """Return the layout for commands. With `scope`, of the roots and their git folders only these paths are writable.

    A missing path is skipped: its parent would have to be writable. So is one that has become a link. `private` is the
    folder for the temporary files of the session, `concealed` are paths to hide besides.
    """
    repositories = list_git_folders(session.projects)
    dot_gits = [f"{project}/.git" for project in session.projects]
    read_only = [root.path for root in session.roots if not root.is_writable]
    outer = [path for path in repositories if path not in dot_gits and not _is_covered_by(path, read_only)]
    project = [*session.projects, *outer] if scope is None else scope
    writable = _list_unmoved([*project, *session.writable])
    temporary = find_session_temp_folders(session)
    persistent = _find_persistent(temporary, [*_list_lasting(session), *writable])
    if private:
        for number in range(len(temporary)):
            with suppress(FileExistsError):
                os.mkdir(f"{private}/{number}")  # noqa: PTH102
                os.chmod(f"{private}/{number}", 0o1777)  # noqa: PTH101
    if writes:
        # Create Odin's folders if a command could create them: a missing folder cannot be hidden.
        for path in session.odin_folders:
            if _is_covered_by(os.path.realpath(path), writable):
                with suppress(OSError):
                    os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103
    secrets = SecretPaths(session)
    concealed = [path for path in concealed if os.path.lexists(path)]
    hidden = list(dict.fromkeys([*secrets.find(), *find_kernel_mounts([*writable, *persistent]), *concealed]))
    unseen = WritableFolders((), tuple(temporary), tuple(persistent))
    sockets = [path for path in find_sockets(persistent, session.env) if path not in unseen]
    protected = (protected_files or ProtectedFiles(*session.projects)).list_read_only() if writes else []
    git = [path for path in repositories if path in dot_gits and scope is None]
    pinned = [*git, *_list_parents([*hidden, *protected], writable)]
    return SandboxLayout(
        temporary=tuple(temporary),
        persistent=tuple(persistent),
        writable=writable if writes else (),
        pinned=tuple(sorted(_list_unmoved(pinned), key=len)) if writes else (),
        protected=tuple(protected),
        hidden=tuple(hidden),
        visible=_resolve_existing(session.visible),
        sockets=tuple(path for path in sockets if not _is_covered(path, [*hidden, *session.visible], session.folders)),
        covered=(*secrets.identify(), *_identify_files(protected), *_identify_files(concealed, exact=True)),
        private=private,
        concealed=tuple(concealed),
    )


_GIT_CREDENTIALS = (".ssh", ".netrc", "_netrc", ".git-credentials", ".config/git/credentials", ".config/gh")


def plan_git_layout(
    session: SandboxSession, scope: Sequence[str], visible: Sequence[str], *, remote: bool
) -> SandboxLayout:
    """Return the layout for Odin's own git: only `scope` is writable, without what configures git in it.

    The project, and temporary folders, where other commands could meet it, are read-only. `remote`: the user's
    credentials for git are visible.
    """
    credentials = {os.path.realpath(f"{session.home}/{name}") for name in _GIT_CREDENTIALS} if remote else set[str]()
    hidden = [path for path in SecretPaths(session).find() if path not in credentials]
    writable = _list_unmoved(scope)
    shown = (*_resolve_existing(session.visible), *_list_unmoved(visible))
    inside = tuple(path for path in shown if _is_covered_by(path, hidden))
    found = find_sockets(find_temp_folders(session.env), {} if remote else session.env)
    sockets = tuple(path for path in found if not _is_covered(path, [*hidden, *inside], session.folders))
    protected = tuple(path for folder in writable for path in list_git_paths(folder))
    return SandboxLayout(
        temporary=(),
        persistent=(),
        writable=writable,
        pinned=(),
        protected=protected,
        hidden=(*hidden, *find_kernel_mounts(writable)),
        visible=inside,
        sockets=sockets,
        covered=(*_identify_files([*hidden, *protected]), *_identify_files(sockets, exact=True)),
    )


def is_same_but_hidden(layout: SandboxLayout, other: SandboxLayout) -> bool:
    """True if two layouts differ at most in what they hide."""
    rest, other_rest = (msgspec.structs.replace(one, hidden=(), sockets=(), covered=()) for one in (layout, other))
    return rest == other_rest


def hides_all(layout: SandboxLayout, other: SandboxLayout) -> bool:
    """True if a layout of git hides and protects what the other does. What has vanished since makes no difference.

    A path that was replaced counts as new: the mount over it has ended with the old one.
    """
    hidden = {*layout.hidden, *layout.sockets}
    return hidden.issuperset((*other.hidden, *other.sockets)) and {*layout.covered}.issuperset(other.covered)


def add_grants(
    layout: SandboxLayout, session: SandboxSession, paths: Sequence[str], *, removes: bool, exact: bool
) -> SandboxLayout:
    """Return the layout in which these paths are writable, too, except what is hidden or protected in them.

    With `exact`, they are mounted. Without (Landlock), only existing paths with nothing to protect can be granted.
    """
    covered = (*layout.hidden, *layout.sockets, *(root.path for root in session.roots))
    wanted = [path for path in paths if not _is_covered_by(path, covered) and not is_writable(path, layout)]
    wanted = [path for path in wanted if can_grant(path, session.home, session.folders)]
    protected = {path: ProtectedFiles(path).list_read_only() for path in wanted if os.path.isdir(path)}  # noqa: PTH112
    if not exact:
        open_paths = (path for path in wanted if os.path.exists(path) and not protected.get(path))  # noqa: PTH110
        return msgspec.structs.replace(layout, writable=(*layout.writable, *open_paths))
    fixed = [path for inside in protected.values() for path in inside]
    # What to mount, outer folders first. What the command may remove or move is opened by its parent.
    free: dict[str, list[str]] = {}
    whole: list[str] = []
    for path in drop_inner_paths(wanted):
        parent = _find_existing_parent(path)
        is_folder = os.path.isdir(path) and not removes  # noqa: PTH112
        if not is_folder and _can_open_parent(parent, session.home):
            free.setdefault(parent, []).append(path)
        else:
            whole.append(path)
    mounts = [GrantedFolder(path) for path in whole]
    for parent, granted in free.items():
        entries = [entry for entry in _list_entries(parent) if not any(contains(entry, path) for path in granted)]
        mounts.append(GrantedFolder(parent, tuple(entry for entry in entries if entry not in whole)))
    mounts.sort(key=lambda mount: mount.path.count("/"))
    return msgspec.structs.replace(layout, granted=tuple(mounts), protected=(*layout.protected, *fixed))


def list_view_roots(layout: SandboxLayout) -> tuple[str, ...]:
    """Return the writable paths that a view must cover: those in no other one, or hidden with a part of it."""
    inside = [path for path in layout.writable if _is_covered_by(path, layout.hidden)]
    outer = drop_inner_paths(path for path in layout.writable if path not in inside)
    return (*(path for path in layout.writable if path in outer), *inside)


def list_view_covers(layout: SandboxLayout, hidden: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return what must be hidden in a view with this layout, and what lies in it and must be shown again.

    `hidden` are paths besides those of the layout.
    """
    roots = list_view_roots(layout)
    hidden = tuple(hidden)
    covers = drop_inner_paths(path for path in hidden if not _is_covered_by(path, roots))
    wanted = [path for path in (*layout.hidden, *layout.sockets, *hidden) if path not in roots]
    for root in roots:
        others = [other for other in roots if contains(root, other) and other != root]
        covers += drop_inner_paths(path for path in wanted if contains(root, path) and not _is_covered_by(path, others))
    return covers, [path for path in (*layout.visible, *roots) if _is_covered_by(path, covers)]


def is_writable(path: str, layout: SandboxLayout) -> bool:
    """True if a resolved path lies in a writable folder of the layout."""
    return path in WritableFolders(layout.writable, layout.temporary, layout.persistent)


def has_exposed_files(layout: SandboxLayout, secrets: SecretPaths) -> bool:
    """True if a file to hide or protect is new or was replaced by another: the mount over it has ended with the old."""
    concealed = _identify_files(layout.concealed, exact=True)
    return layout.covered != (*secrets.identify(), *_identify_files(layout.protected), *concealed)


def _identify_files(paths: Iterable[str], *, exact: bool = False) -> tuple[FileIdentity, ...]:
    """Identify files; `exact`: also one that has got the inode of the file it replaces, or just changed."""
    found: list[FileIdentity] = []
    for path in paths:
        with suppress(OSError):
            status = os.lstat(path)
            found.append((path, status.st_dev, status.st_ino))
            if exact and (stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
                found.append((path, 0, status.st_ctime_ns))
            if stat.S_ISLNK(status.st_mode):
                status = os.stat(path)  # noqa: PTH116
                found.append((path, status.st_dev, status.st_ino))
    return tuple(found)


def list_exposed_sockets(layout: SandboxLayout, session: SandboxSession, sockets: Iterable[str]) -> list[str]:
    """Return open sockets that appeared after the layout was planned and are not hidden by it."""
    covered = (*layout.hidden, *layout.visible, *layout.sockets)
    unseen = WritableFolders((), layout.temporary, layout.persistent)
    found = (path for path in sockets if path not in unseen)
    return [path for path in found if not _is_covered(path, covered, session.folders)]


def is_temporary(path: str, env: Mapping[str, str], home: str, roots: Iterable[str]) -> bool:
    """True if a resolved path lies in a temporary folder, of which commands have their own."""
    temporary = find_temp_folders(env)
    return path in WritableFolders((), tuple(temporary), tuple(_find_persistent(temporary, [home, *roots])))


def find_writable_folders(session: SandboxSession) -> WritableFolders:
    """Return the folders that commands can write without an approval."""
    temporary = find_session_temp_folders(session)
    folders = tuple(os.path.realpath(path) for path in (*session.projects, *session.writable))
    return WritableFolders(folders, tuple(temporary), tuple(_find_persistent(temporary, [session.home])))


def _list_parents(paths: Iterable[str], writable: Sequence[str]) -> list[str]:
    """Return the folders between a writable folder and a hidden or protected path in it.

    Moving one would move the path.
    """
    parents: list[str] = []
    for path in paths:
        folder = os.path.dirname(path)  # noqa: PTH120
        while any(contains(place, folder) and place != folder for place in writable):
            parents.append(folder)
            folder = os.path.dirname(folder)  # noqa: PTH120
    return parents


def _is_covered(path: str, hidden: Iterable[str], roots: Iterable[str]) -> bool:
    """True if the path is already hidden, or contains a root."""
    return any(contains(path, root) for root in roots) or _is_covered_by(path, hidden)


def _is_covered_by(path: str, folders: Iterable[str]) -> bool:
    return any(contains(folder, path) for folder in folders)


def find_temp_folders(env: Mapping[str, str]) -> list[str]:
    """Return the real paths of the temporary folders: /tmp, /var/tmp and $TMPDIR, unless that has become a link."""
    usual = (os.path.realpath(path) for path in ("/tmp", "/var/tmp"))
    candidates = (*usual, *_list_unmoved([env.get("TMPDIR", "")]))
    return list(dict.fromkeys(path for path in candidates if path != "/" and _is_usable(path)))


def find_session_temp_folders(session: SandboxSession) -> list[str]:
    """Return the temporary folders that do not lie in what commands write anyway."""
    places = (*session.projects, *session.writable)
    return [path for path in find_temp_folders(session.env) if not _is_covered_by(path, places)]


def _list_lasting(session: SandboxSession) -> list[str]:
    """Return what is no temporary file wherever it lies: the home, the roots, Odin and its folders."""
    program = (sys.prefix, sys.base_prefix, os.path.dirname(__file__))  # noqa: PTH120
    return [session.home, *session.folders, *session.writable, *session.odin_folders, *session.visible, *program]


def _find_persistent(temporary: Sequence[str], lasting: Iterable[str]) -> list[str]:
    """Return the folders inside temporary folders that contain such paths: they are not temporary."""
    persistent: list[str] = []
    for real in dict.fromkeys(map(os.path.realpath, lasting)):
        for folder in temporary:
            if real == folder:
                persistent.append(real)
            elif real.startswith(f"{folder}/"):
                path = f"{folder}/{real[len(folder) + 1 :].partition('/')[0]}"
                if path not in temporary and os.path.lexists(path):
                    persistent.append(path)
    return list(dict.fromkeys(persistent))


def _resolve_existing(paths: Iterable[str]) -> tuple[str, ...]:
    real = (os.path.realpath(path) for path in paths if path and os.path.lexists(path))
    return tuple(dict.fromkeys(path for path in real if path != "/"))


def _list_unmoved(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that exist and lead through no link."""
    existing = (path for path in paths if os.path.lexists(path) and os.path.realpath(path) == path)
    return tuple(dict.fromkeys(path for path in existing if path != "/"))


def _is_usable(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.W_OK)  # noqa: PTH112
