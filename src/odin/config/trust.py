"""Which folders the user trusts, and with which content.

Trust belongs to the real folder and to the content of everything in the project that declares programs to start,
redirects requests or grants permissions. If a byte of it changes, the folder is untrusted again. Nothing inside a
folder can claim to be another folder. The files that the declared programs run are not pinned, because no guess at a
command line finds them: the programs run in the sandbox. One that the user lets out of it is pinned with the whole
project.
"""

import os
import stat
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from odin.config.files import VersionedStore, lock_file, read_store, write_atomically
from odin.config.paths import CONFIG_NAME, MCP_NAME, find_worktree_origin, get_config_dir, get_state_dir
from odin.core.errors import ConfigError
from odin.core.lazy_pattern import compile_lazily

PINNED_FILES = (
    *(CONFIG_NAME, MCP_NAME, ".odin/SOUL.md", ".odin/USER.md", ".odin/IDENTITY.md"),
    *(".claude/settings.json", ".claude/settings.local.json"),
)
AGENT_FOLDERS = (".odin/agents", ".claude/agents")
AGENT_SUFFIXES = (".md", ".yaml", ".yml")
PINNED_FOLDERS = (
    *(".odin/commands", ".claude/commands", *AGENT_FOLDERS),
    *(".odin/skills", ".agents/skills", ".claude/skills"),
    *(".odin/output-styles", ".claude/output-styles"),
)
MAX_PINNED_FILES = 2_000
MAX_PINNED_BYTES = 10_000_000

_SERVERS_KEY = compile_lazily(r"(?i)mcp[-_]?servers")


def hash_pinned_files(
    folder: str, config_text: bytes | None, texts: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, str]:
    """Return the hashes of all project files that declare programs, redirect requests or grant permissions.

    The keys are relative paths. `texts` are other files of it that were read already: the bytes that will be used.
    """
    found: dict[str, str] = {}
    if config_text is not None:
        found[CONFIG_NAME] = _hash_bytes(config_text)
    for name in dict.fromkeys((*texts, *_list_pinned_files(folder, config_text))):
        found[name] = _hash_bytes(texts[name] if name in texts else _read_pinned(Path(folder, name)))
    return found


def _list_pinned_files(folder: str, config_text: bytes | None) -> Iterator[str]:
    for name in PINNED_FILES:
        if name != CONFIG_NAME and os.path.lexists(Path(folder, name)):
            yield name
    skills: Any = _parse_object(config_text).get("skills")
    paths = _collect_texts(cast("dict[str, Any]", skills).get("paths") if isinstance(skills, dict) else None)
    inside = (path for path in paths if Path(os.path.normpath(Path(folder, path))).is_relative_to(folder))
    folders = dict.fromkeys(Path(folder, name) for name in (*PINNED_FOLDERS, *inside))
    for count, path in enumerate(dict.fromkeys(chain.from_iterable(_walk_files(top, folder) for top in folders))):
        if count >= MAX_PINNED_FILES:
            where = "in its command, agent and skill folders"
            raise ConfigError(f"{folder} holds more than {MAX_PINNED_FILES:,} files {where}.", "Remove some.")
        yield str(path.relative_to(folder))


def _walk_files(top: Path, root: str, depth: int = 5) -> Iterator[Path]:
    """Yield every file in a folder, also through links to other folders of the project.

    A link to a folder elsewhere is yielded as it is: it cannot be pinned, because its content may change.
    """
    if not os.path.lexists(top):
        return
    if not os.path.isdir(top):  # noqa: PTH112
        yield top
        return
    if top.is_symlink():
        target = Path(os.path.realpath(top))
        yield from _walk_files(target, root, depth - 1) if depth and target.is_relative_to(root) else (top,)
        return
    for where, folders, files in os.walk(top, onerror=_raise_unreadable):
        folders.sort()
        for name in folders:
            if Path(where, name).is_symlink():
                yield from _walk_files(Path(where, name), root, depth)
        yield from (Path(where, name) for name in sorted(files))


def _raise_unreadable(error: OSError) -> None:
    raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.", "Make it readable or remove it.")


def find_agent_servers(folder: str) -> Iterator[tuple[str, Any]]:
    """Yield the MCP servers that the agent files of a project bring, with their names."""
    for top in AGENT_FOLDERS:
        for path in _walk_files(Path(folder, top), folder):
            raw = _read_pinned(path) if path.suffix in AGENT_SUFFIXES and path.is_file() else b""
            text = raw.decode("utf-8-sig", "replace")
            if _SERVERS_KEY.search(text):
                yield from _parse_agent_servers(text)


def _parse_agent_servers(text: str) -> Iterator[tuple[str, Any]]:
    import yaml

    try:
        front: Any = yaml.safe_load(text.removeprefix("---").split("\n---")[0])
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    for key, value in cast("dict[Any, Any]", front).items() if isinstance(front, dict) else ():
        if _SERVERS_KEY.fullmatch(str(key)):
            for item in cast("list[Any]", value if isinstance(value, list) else [value]):
                if isinstance(item, dict):
                    yield from cast("dict[str, Any]", item).items()


def _parse_object(raw: bytes | None) -> dict[str, Any]:
    if not raw:
        return {}
    import json

    try:
        value: Any = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _collect_texts(value: Any) -> Iterator[str]:
    """Yield every string in a value, at any depth."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            waiting += cast("list[Any]", item)
        elif isinstance(item, dict):
            waiting += cast("dict[str, Any]", item).values()


def _read_pinned(path: Path) -> bytes:
    hint = "Remove it, or continue without trust."
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{path} is not a regular file, so trust cannot cover its content.", hint)
        if found.st_size > MAX_PINNED_BYTES:
            raise ConfigError(f"{path} is {found.st_size:,} bytes long; {MAX_PINNED_BYTES:,} is the limit.", hint)
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.", hint) from error


def _hash_bytes(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


STORE_NAME = "trust.json"
MAX_STORE_BYTES = 10_000_000

_STORE_VERSION = 1


class ProjectPin(Struct, frozen=True, kw_only=True):
    """The content of a whole project: its hash, and a hash of the times of its files, which takes less to compute."""

    digest: str
    stamp: str = ""


class TrustStatus(Struct, frozen=True, kw_only=True):
    """Whether a folder is trusted, for this run or until its content changes, and what has changed.

    `network` are the servers of a trusted folder that may use the network, `unsandboxed` the hooks and servers that run
    outside the sandbox while the project has this content.
    """

    folder: str = ""
    trusted: bool = False
    once: bool = False
    changed: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    unsandboxed: dict[str, ProjectPin] = field(default_factory=dict[str, ProjectPin])
    warning: str = ""


class TrustedFolder(Struct, frozen=True, kw_only=True):
    """A trusted folder: the hashes of its files, when it was trusted, and what its programs may do besides."""

    files: dict[str, str]
    since: str = ""
    network: tuple[str, ...] = ()
    unsandboxed: dict[str, ProjectPin] = field(default_factory=dict[str, ProjectPin])


class _TrustStore(VersionedStore, frozen=True, kw_only=True):
    version: int = _STORE_VERSION
    folders: dict[str, TrustedFolder] = field(default_factory=dict[str, TrustedFolder])
    ignored: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """The folders that the user does not want to trust, with the hashes of their files."""


def evaluate_trust(
    folder: str,
    env: Mapping[str, str],
    config_text: bytes | None,
    *,
    once: bool = False,
    texts: Mapping[str, bytes] = MappingProxyType({}),
) -> TrustStatus:
    """Return whether a folder is trusted now. `config_text` is its odinconfig.json, the bytes that will be used, and
    `texts` are those of other files."""
    folder = os.path.realpath(folder)
    found = TrustStatus(folder=folder, trusted=once, once=once)
    try:
        known = read_trusted_folders(env)
    except ConfigError as error:
        return found if once else replace(found, warning=f"No folder is trusted: {error.describe()}")
    entry = known.get(folder) or known.get(find_worktree_origin(folder, get_state_dir(env)))
    if entry is None:
        return found
    try:
        now = hash_pinned_files(folder, config_text, texts)
    except ConfigError as error:
        return found if once else replace(found, warning=f"This folder is not trusted: {error.describe()}")
    changed = tuple(sorted(name for name in {*entry.files, *now} if entry.files.get(name) != now.get(name)))
    if changed:
        return found if once else replace(found, changed=changed)
    return replace(found, trusted=True, network=entry.network, unsandboxed=entry.unsandboxed)


def locate_trust_store(env: Mapping[str, str]) -> Path:
    return get_config_dir(env) / STORE_NAME


def read_trusted_folders(env: Mapping[str, str]) -> dict[str, TrustedFolder]:
    """Return the trusted folders. Raise ConfigError if the list is damaged or others could write it."""
    return _read_trust_store(env).folders


def add_trusted_folder(folder: str, trusted: TrustedFolder, env: Mapping[str, str]) -> None:
    """Trust a folder with this content."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with _change_trust_store(env) as store:
        store.folders[os.path.realpath(folder)] = replace(trusted, since=since)


def remove_trusted_folder(folder: str, env: Mapping[str, str]) -> bool:
    """Revoke the trust in a folder, and ask about it again. False if it was not trusted."""
    with _change_trust_store(env) as store:
        store.ignored.pop(os.path.realpath(folder), None)
        found = store.folders.pop(folder, None) or store.folders.pop(os.path.realpath(folder), None)
    return found is not None


def ignore_folder(folder: str, files: dict[str, str], env: Mapping[str, str]) -> None:
    """Do not ask again whether to trust a folder with this content."""
    with _change_trust_store(env) as store:
        store.ignored[folder] = files


def is_ignored(folder: str, files: dict[str, str], env: Mapping[str, str]) -> bool:
    return _read_trust_store(env).ignored.get(folder) == files


def _read_trust_store(env: Mapping[str, str]) -> _TrustStore:
    store = read_store(locate_trust_store(env), _TrustStore, "trusted folders", _STORE_VERSION, MAX_STORE_BYTES)
    return store or _TrustStore()


@contextmanager
def _change_trust_store(env: Mapping[str, str]) -> Generator[_TrustStore]:
    """Yield the store to change its folders; it is written if one did change."""
    with lock_file(locate_trust_store(env)):
        store = _read_trust_store(env)
        before = msgspec.json.encode(store, order="deterministic")
        yield store
        data = msgspec.json.encode(store, order="deterministic")
        if data != before:
            write_atomically(locate_trust_store(env), msgspec.json.format(data, indent=2) + b"\n")


# --- the whole content of a project ---

MAX_PROJECT_FILES = 20_000
MAX_PROJECT_BYTES = 500_000_000

_GIT_SETTINGS = ("config", "config.worktree", "commondir", "hooks", "info")
"""What in `.git` can start programs. The rest is data, which changes with every commit."""

_UNSETTLED_NS = 50_000_000
"""A file that changed this recently may change again within the resolution of its times."""


class PinnedProject:
    """Tells whether a project still has the content that was pinned.

    A program may run any file of its project, so all of them count. They are read again only if the times of one
    changed; ctime is one of them, which no program can set.
    """

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)
        self._stamps: dict[str, str] = {}

    def make_pin(self) -> ProjectPin:
        """Return the pin of the current content. Raise ConfigError if the project cannot be pinned."""
        started = time.time_ns()
        files = self._list_files()
        stamp, digest = _make_stamp(files), self._hash_files(files)
        if _make_stamp(self._list_files()) != stamp:
            raise ConfigError(f"Files in {self.folder} changed while they were read.", "Try again.")
        is_settled = all(started - info.st_ctime_ns > _UNSETTLED_NS for _, _, info in files)
        return ProjectPin(digest=digest, stamp=stamp if is_settled else "")

    def has_content(self, pin: ProjectPin) -> bool:
        try:
            stamp = _make_stamp(self._list_files())
            if stamp in (pin.stamp, self._stamps.get(pin.digest)):
                return True
            now = self.make_pin()
        except ConfigError:
            return False
        self._stamps[now.digest] = now.stamp
        return now.digest == pin.digest

    def _list_files(self) -> list[tuple[str, str, os.stat_result]]:
        """Return the name in the project, the place and the status of every file, and of files that links lead to."""
        found: list[tuple[str, str, os.stat_result]] = []
        waiting = [self.folder]
        try:
            while waiting:
                folder = waiting.pop()
                names = _GIT_SETTINGS if folder == f"{self.folder}/.git" else os.listdir(folder)  # noqa: PTH208
                for name in names:
                    path = f"{folder}/{name}"
                    if not os.path.lexists(path):
                        continue
                    info = os.lstat(path)
                    if stat.S_ISDIR(info.st_mode):
                        waiting.append(path)
                        continue
                    found.append((path[len(self.folder) + 1 :], path, info))
                    if stat.S_ISLNK(info.st_mode) and not self._is_covered(target := os.path.realpath(path)):
                        found.append((f"{path[len(self.folder) + 1 :]}/", target, os.lstat(target)))
                if len(found) > MAX_PROJECT_FILES:
                    raise ConfigError(f"{self.folder} has more than {MAX_PROJECT_FILES:,} files.", _OWN_SETTINGS)
        except OSError as error:
            raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.", _OWN_SETTINGS) from error
        if sum(info.st_size for _, _, info in found) > MAX_PROJECT_BYTES:
            raise ConfigError(f"{self.folder} has more than {MAX_PROJECT_BYTES:,} bytes.", _OWN_SETTINGS)
        return sorted(found, key=lambda item: item[0])

    def _is_covered(self, target: str) -> bool:
        """True if what a link leads to is pinned itself, or does not exist."""
        inside = os.path.relpath(target, self.folder)
        is_data = inside.startswith(".git/") and inside.split("/")[1] not in _GIT_SETTINGS
        return not os.path.lexists(target) or (not inside.startswith("..") and inside != ".git" and not is_data)

    def _hash_files(self, files: list[tuple[str, str, os.stat_result]]) -> str:
        import hashlib

        digest = hashlib.sha256()
        for name, path, info in files:
            try:
                if stat.S_ISLNK(info.st_mode):
                    content = "link " + os.readlink(path)  # noqa: PTH115
                elif stat.S_ISREG(info.st_mode):
                    with Path(path).open("rb") as file:
                        content = hashlib.file_digest(file, "sha256").hexdigest()
                else:
                    raise ConfigError(f"{path} is not a regular file, so it cannot be pinned.", _OWN_SETTINGS)
            except OSError as error:
                raise ConfigError(f"{path} cannot be read: {error.strerror}.", _OWN_SETTINGS) from error
            digest.update(repr((name, stat.S_IMODE(info.st_mode), content)).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


_OWN_SETTINGS = "Put the hook or server into your own settings instead."


def _make_stamp(files: list[tuple[str, str, os.stat_result]]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for name, _, info in files:
        facts = (name, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev, info.st_mode)
        digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
