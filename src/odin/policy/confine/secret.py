"""Where people keep their keys: what a command never needs to see to build or test a project."""

import os
import stat
from collections.abc import Iterable, Mapping

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
"""Variables that lead to agents, screens and daemons outside. Inside a sandbox they lead nowhere."""

_MAX_SCANNED = 500
"""Entries of a folder for temporary files that are looked at for sockets."""

_MAX_PROC_BYTES = 1_000_000

_PRIVATE_MOUNTS = ("/run/", "/var/run/", "/dev/", "/proc/")
"""Folders that a sandbox with files of its own has its own of."""


def find_secret_paths(home: str, odin_folders: Iterable[str], root: str) -> list[str]:
    """The files and folders to hide, as they really are, without any that holds the project itself."""
    wanted = [*(f"{home}/{name}" for name in _HOME_SECRETS), *odin_folders, *_SYSTEM_SECRETS]
    real = (os.path.realpath(path) for path in wanted if os.path.lexists(path))
    return list(dict.fromkeys(path for path in real if not _contains_path(path, root) and path != "/"))


def find_sockets(folders: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """Ways out of a sandbox that lie where commands may write: sockets of agents, screens and terminals.

    A folder that holds one is hidden whole.
    """
    found: list[str] = []
    for folder in folders:
        found.extend(_scan_sockets(folder))
    agent = os.path.realpath(env.get("SSH_AUTH_SOCK", "") or "/")
    alone = [agent, *list_open_sockets()] if _is_socket(agent) else list_open_sockets()
    found.extend(path for path in alone if not any(_contains_path(folder, path) for folder in found))
    return list(dict.fromkeys(found))


def list_open_sockets() -> list[str]:
    """The sockets with a name that somebody holds open outside, where a sandbox with files of its own shows them."""
    return [path for path in _list_named_sockets() if not path.startswith(_PRIVATE_MOUNTS)][:_MAX_SCANNED]


def has_reachable_socket() -> bool:
    """Whether there is a socket with a name, anywhere, that we could speak to."""
    return any(os.access(path, os.W_OK) for path in _list_named_sockets())


def _list_named_sockets() -> list[str]:
    """The sockets with a name that somebody holds open. Those in a sandbox with a network of its own are not among
    them."""
    try:
        with open("/proc/net/unix", "rb") as file:  # noqa: PTH123
            lines = file.read(_MAX_PROC_BYTES).splitlines()[1:]
    except OSError:
        return []
    named = (os.fsdecode(line.split(maxsplit=7)[7]) for line in lines if line.count(b"/"))
    real = (os.path.realpath(path) for path in named if path.startswith("/"))
    return [path for path in dict.fromkeys(real) if _is_socket(path)]


def _scan_sockets(folder: str) -> list[str]:
    found: list[str] = []
    for count, entry in enumerate(_scan_entries(folder)):
        if count >= _MAX_SCANNED:
            break
        if entry.is_dir(follow_symlinks=False):
            inner = (item for _, item in zip(range(_MAX_SCANNED), _scan_entries(entry.path), strict=False))
            if any(_is_socket(item.path) for item in inner if not item.is_file() and not item.is_dir()):
                found.append(entry.path)
        elif not entry.is_file(follow_symlinks=False) and _is_socket(entry.path):
            found.append(entry.path)
    return found


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


def _contains_path(path: str, root: str) -> bool:
    return root == path or root.startswith(f"{path}/")
