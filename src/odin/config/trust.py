"""Which folders the user trusts, and with which content.

Trust belongs to the real folder and to the content of everything in the project that can start programs, redirect
requests or grant permissions. If a byte of it changes, the folder is untrusted again. Nothing inside a folder can claim
to be another folder.
"""

import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from odin.config.files import VersionedStore, lock_file, read_store, write_atomically
from odin.config.paths import CONFIG_NAME, MCP_NAME, find_worktree_origin, get_config_dir, get_state_dir
from odin.core.errors import ConfigError
from odin.core.lazy_pattern import compile_lazily

PINNED_FILES = (CONFIG_NAME, MCP_NAME, ".odin/SOUL.md", ".odin/USER.md", ".odin/IDENTITY.md")
AGENT_FOLDERS = (".odin/agents", ".claude/agents")
PINNED_FOLDERS = (
    *(".odin/commands", ".claude/commands", *AGENT_FOLDERS),
    *(".odin/skills", ".agents/skills", ".claude/skills"),
)
MAX_PINNED_FILES = 2_000
MAX_PINNED_BYTES = 10_000_000

_PROJECT_VARIABLE = compile_lazily(
    r"\$(?:\{(?:(?:CLAUDE|ODIN)_PROJECT_DIR|PWD)\}|(?:(?:CLAUDE|ODIN)_PROJECT_DIR|PWD)\b)"
)
_SERVERS_KEY = compile_lazily(r"(?i)mcp[-_]?servers")
_SEPARATOR = compile_lazily(r"[;|&()\n]+|\{|then|do|else|!")
_SCRIPTS = (".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".ps1")
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "fish", "source", ""))  # "": `.`, whose path name is empty
_LANGUAGES = frozenset(("python", "node", "ruby", "perl", "php", "lua", "deno", "bun", "tsx", "uv", "run"))
_WRAPPERS = frozenset(("exec", "env", "sudo", "nohup", "time", "timeout", "nice", "command", "if"))
_RUNNERS = _SHELLS | _LANGUAGES | _WRAPPERS
"""Programs that take a program or script as their next argument."""


def hash_pinned_files(folder: str, config_text: bytes | None) -> dict[str, str]:
    """Return the hashes of all project files that can start programs, redirect requests or grant permissions.

    The keys are relative paths.
    """
    found: dict[str, str] = {}
    if config_text is not None:
        found[CONFIG_NAME] = _hash_bytes(config_text)
    for name in _list_pinned_files(folder, config_text):
        found[name] = _hash_bytes(_read_pinned(Path(folder, name)))
    return found | {name: digest for name, digest in hash_hook_programs(folder, config_text).items() if digest}


def hash_hook_programs(folder: str, config_text: bytes | None) -> dict[str, str]:
    """Return the project files that its hooks and servers run, with their hashes; "" for a missing file.

    A program that runs matters as much as the configuration. A file that a hook only reads or writes does not count:
    otherwise a hook that writes a log would make its folder untrusted.
    """
    found: dict[str, str] = {}
    for text in _list_command_lines(folder, config_text):
        for word in _find_programs(_PROJECT_VARIABLE.sub(lambda _: folder, text)):
            path = Path(os.path.normpath(Path(folder, word)))
            if path.is_relative_to(folder) and path not in (Path(folder), Path(folder, CONFIG_NAME)):
                found[str(path.relative_to(folder))] = hash_program(path)
    return found


def hash_program(path: Path) -> str:
    return _hash_bytes(_read_pinned(path)) if os.path.isfile(path) else ""  # noqa: PTH113


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


def _find_programs(command: str) -> Iterator[str]:
    """Yield the words of a command line that may be programs.

    They are the first word of a command, the word after an interpreter, and any script file. After `cd sub` they are
    also looked up in that folder. A word with spaces may itself be a command line.
    """
    first, entering, folder = True, False, ""
    for word in _split_words(command):
        if _SEPARATOR.fullmatch(word):
            first, entering = True, False
        elif entering:
            folder, entering = str(Path(folder, word)), False
        elif not word.startswith("-"):
            if first or word.endswith(_SCRIPTS):
                yield from (word, str(Path(folder, word))) if folder else (word,)
            if " " in word and word != command:
                yield from (str(Path(folder, inner)) for inner in _find_programs(word))
            entering = first and word in ("cd", "pushd")
            first = first and ("=" in word or Path(word).name.rstrip("0123456789.") in _RUNNERS)


def _join_words(words: list[str]) -> str:
    import shlex

    return shlex.join(words)


def _split_words(command: str) -> list[str]:
    from shlex import shlex

    reader = shlex(command, posix=True, punctuation_chars=";|&()\n")
    reader.whitespace = " \t\r"
    reader.whitespace_split = True
    reader.commenters = ""
    try:
        return list(reader)
    except ValueError:  # a quotation mark is missing
        return [word for word in re.split(r"[\s\"'`;|&()]+", command) if word]


def _list_command_lines(folder: str, config_text: bytes | None) -> Iterator[str]:
    """Yield what the project's settings run: the commands of hooks, and the command lines of servers."""
    config = _parse_object(config_text)
    yield from _collect_texts(config.get("hooks"))
    path = Path(folder, MCP_NAME)
    listed = _parse_object(_read_pinned(path)).get("mcpServers") if os.path.isfile(path) else None  # noqa: PTH113
    for servers in (config.get("mcp"), listed, config.get("lsp_servers"), dict(find_agent_servers(folder))):
        for server in cast("dict[str, Any]", servers).values() if isinstance(servers, dict) else ():
            if isinstance(server, dict):
                fields = cast("dict[str, Any]", server)
                args: Any = fields.get("args")
                words: list[Any] = [fields.get("command"), *(args if isinstance(args, list) else ())]
                line = _join_words([word for word in words if isinstance(word, str)])
                cwd: Any = fields.get("cwd")
                yield f"{_join_words(['cd', cwd])} && {line}" if isinstance(cwd, str) and cwd else line


def find_agent_servers(folder: str) -> Iterator[tuple[str, Any]]:
    """Yield the MCP servers that the agent files of a project bring, with their names."""
    for top in AGENT_FOLDERS:
        for path in _walk_files(Path(folder, top), folder):
            raw = _read_pinned(path) if path.suffix == ".md" and path.is_file() else b""
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


class TrustStatus(Struct, frozen=True, kw_only=True):
    """Whether a folder is trusted, for this run or until its content changes, and what has changed.

    `programs` are the files of a trusted folder that its hooks run, with their hashes.
    """

    folder: str = ""
    trusted: bool = False
    once: bool = False
    changed: tuple[str, ...] = ()
    programs: dict[str, str] = field(default_factory=dict[str, str])
    warning: str = ""

    def find_changed_programs(self) -> tuple[str, ...]:
        """Return the hook programs that changed since the folder was checked."""
        return tuple(name for name, digest in self.programs.items() if _hash_program_now(self.folder, name) != digest)


class TrustedFolder(Struct, frozen=True, kw_only=True):
    """A trusted folder: the hashes of its files, and when it was trusted."""

    files: dict[str, str]
    since: str = ""


class _TrustStore(VersionedStore, frozen=True, kw_only=True):
    version: int = _STORE_VERSION
    folders: dict[str, TrustedFolder] = field(default_factory=dict[str, TrustedFolder])


def evaluate_trust(
    folder: str, env: Mapping[str, str], config_text: bytes | None, *, once: bool = False
) -> TrustStatus:
    """Return whether a folder is trusted now. `config_text` is its odinconfig.json, the bytes that will be used."""
    folder = os.path.realpath(folder)
    try:
        known = {} if once else read_trusted_folders(env)
        entry = known.get(folder) or known.get(find_worktree_origin(folder, get_state_dir(env)))
    except ConfigError as error:
        return TrustStatus(folder=folder, warning=f"No folder is trusted: {error.describe()}")
    if entry is None and not once:
        return TrustStatus(folder=folder)
    try:
        run = hash_hook_programs(folder, config_text)
        now = hash_pinned_files(folder, config_text) if entry is not None else {}
    except ConfigError as error:
        return TrustStatus(folder=folder, warning=f"This folder is not trusted: {error.describe()}")
    then = entry.files if entry is not None else {}
    changed = tuple(sorted(name for name in {*then, *now} if then.get(name) != now.get(name)))
    return TrustStatus(folder=folder, trusted=not changed, once=once, changed=changed, programs=run)


def _hash_program_now(folder: str, name: str) -> str:
    try:
        return hash_program(Path(folder, name))
    except ConfigError:
        return "unreadable"


def locate_trust_store(env: Mapping[str, str]) -> Path:
    return get_config_dir(env) / STORE_NAME


def read_trusted_folders(env: Mapping[str, str]) -> dict[str, TrustedFolder]:
    """Return the trusted folders. Raise ConfigError if the list is damaged or others could write it."""
    store = read_store(locate_trust_store(env), _TrustStore, "trusted folders", _STORE_VERSION, MAX_STORE_BYTES)
    return {} if store is None else store.folders


def add_trusted_folder(folder: str, files: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Trust a folder with this content."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with lock_file(locate_trust_store(env)):
        _write_trust_store(
            env, {**read_trusted_folders(env), os.path.realpath(folder): TrustedFolder(files=dict(files), since=since)}
        )


def remove_trusted_folder(folder: str, env: Mapping[str, str]) -> bool:
    """Revoke the trust in a folder. False if it was not trusted."""
    with lock_file(locate_trust_store(env)):
        known = read_trusted_folders(env)
        found = known.pop(folder, None) or known.pop(os.path.realpath(folder), None)
        if found is not None:
            _write_trust_store(env, known)
    return found is not None


def _write_trust_store(env: Mapping[str, str], folders: Mapping[str, TrustedFolder]) -> None:
    book = _TrustStore(folders=dict(sorted(folders.items())))
    write_atomically(locate_trust_store(env), msgspec.json.format(msgspec.json.encode(book), indent=2) + b"\n")
