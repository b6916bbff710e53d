"""Reads and validates configuration files, and writes the user's own files.

Invalid JSON stops the start, because half a configuration is worse than none. An unknown key or a wrong type is
reported and ignored. Files are written atomically, by one process at a time, readable only by the user; `set_key`
changes one key of odinconfig.json and leaves every other byte as it is.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Literal, NoReturn, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct

from odin.config.paths import CONFIG_NAME, get_config_dir, make_private_folder
from odin.core.errors import ConfigError
from odin.core.lazy_pattern import compile_lazily
from odin.core.text import SAID_ONCE, describe_mismatch, suggest_similar

MAX_CONFIG_BYTES = 1_000_000
MAX_DEPTH = 50
"""Maximum nesting of lists and objects."""

_VARIABLE = r"\$(?:\$|(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\})"
SECRET_NAME = r"(?i)KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH"


def get_field_types(shape: type[Struct]) -> Mapping[str, Any]:
    """Return the type of every field by its name, with limits."""
    return {
        name: kind for base in reversed(shape.__mro__) for name, kind in getattr(base, "__annotations__", {}).items()
    }


def parse_json_object(raw: bytes, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON object in the file, and the keys it contains twice."""
    import json

    text = _decode(raw, path)
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            names = [name for name, _ in items]
            repeated.extend(sorted({name for name in names if names.count(name) > 1}))
        return found

    def constant(name: str) -> NoReturn:
        raise ConfigError(f"{path} is not valid JSON: {name} is not a JSON number.", "Write a plain number.")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}, line {error.lineno}, column {error.colno}: not valid JSON: {_lower_first(error.msg)}.",
            "Fix it there; JSON has no comments and no trailing commas.",
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}.", "Fix or remove the file.") from error
    if not isinstance(value, dict):
        raise ConfigError(
            f"{path}, line 1: the file must contain one JSON object.", 'Begin it with "{" and end it with "}".'
        )
    if is_deeper_than(MAX_DEPTH, value):
        raise ConfigError(f"{path} is nested more than {MAX_DEPTH} levels deep.", "Fix or remove the file.")
    return cast("dict[str, Any]", value), repeated


def is_deeper_than(levels: int, value: Any) -> bool:
    """True if lists and objects are nested deeper than `levels`. Iterative, so any depth is safe."""
    level: list[Any] = [value]
    for _ in range(levels):
        level = [inner for item in level for inner in _list_children(item)]
        if not level:
            return False
    return True


def _list_children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _lower_first(message: str) -> str:
    return message[:1].lower() + message[1:]


def read_config_file(path: Path, limit: int = MAX_CONFIG_BYTES) -> bytes | None:
    """Return the bytes of a configuration file, or None if it does not exist."""
    hint = "Fix the file, or move it away to start without it."
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
            raise ConfigError(f"{path} is {kind} and cannot be read as configuration.", hint)
        if found.st_size > limit:
            raise ConfigError(f"{path} is {found.st_size:,} bytes long; {limit:,} is the limit.", hint)
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.", hint) from error


def _decode(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: the text is not valid UTF-8.", "Save the file as UTF-8.") from error


class ConfigProblem(Struct, frozen=True):
    """A problem in a configuration. `file` and the top-level `key` are "" if it is about something else."""

    text: str
    file: str = ""
    key: str = ""

    def describe(self) -> str:
        return f"{self.file}: {self.text}" if self.file else self.text


VariablePolicy = Literal["all", "plain", "none", "braced", "verbatim"]


class UnsetVariable(Exception):
    """A value refers to an unset variable."""


class ConfigValidator:
    """Keeps the valid keys of one file and reports the others.

    Variables are expanded according to how far the file is trusted: all, only `plain` ones that hold no secret, or
    none, which is reported. `braced` is the format that agents share, where only `${NAME}` is a variable. Values under
    `verbatim` keys are never expanded.
    """

    def __init__(
        self, where: Path, env: Mapping[str, str], *, variables: VariablePolicy, verbatim: Collection[str] = ()
    ) -> None:
        self.problems: list[ConfigProblem] = []
        self.unexpanded: dict[str, Any] = {}
        self._path = where
        self._env = env
        self._variables = variables
        self._verbatim = verbatim
        self._expanded = False

    def report(self, path: str, text: str) -> None:
        """Report a problem with the value at `path`, such as `retry.attempts` or `rules[2]`."""
        self.problems.append(ConfigProblem(text, str(self._path), re.split(r"[.\[]", path, maxsplit=1)[0]))

    def validate_keys(self, raw: dict[str, Any], shape: type[Struct], at: str = "") -> dict[str, Any]:
        """Return the valid keys of one object as plain values."""
        hints = get_field_types(shape)
        types = {
            key: hints[name] for name, key in zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True)
        }
        kept: dict[str, Any] = {}
        for key, value in raw.items():
            path = f"{at}.{key}" if at else key
            if key not in types:
                if path != "$schema":
                    suggestion = suggest_similar(key, types, '"{}"')
                    if key in _NAMES_ELSEWHERE:
                        suggestion = f' Use "{_NAMES_ELSEWHERE[key]}".'
                    self.report(path, f'unknown key "{path}" is ignored.{suggestion}')
                continue
            if not at:
                self._expanded = False
            if path == "gateway":
                from odin.config.gateway_settings import GatewaySettings

                types[key] = GatewaySettings
            verbatim = not at and key in self._verbatim
            found = (
                self._convert_value(value, types[key], path)
                if verbatim
                else self._validate_value(value, types[key], path)
            )
            if found is not None:
                kept[key] = found
                if not at and self._expanded:
                    self.unexpanded[key] = value
        return kept

    def _validate_value(self, raw: Any, kind: Any, path: str) -> Any:
        """Return the checked value, or None if it was reported and dropped."""
        bare = get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
        inner = get_args(bare)
        if get_origin(bare) is Union and isinstance(raw, list):
            bare = next((option for option in inner if get_origin(option) in (tuple, list)), bare)
            inner = get_args(bare)
        if isinstance(bare, type) and issubclass(bare, Struct):
            return self._validate_struct(raw, bare, path)
        if get_origin(bare) is dict and isinstance(raw, dict):
            entries = cast("dict[str, Any]", raw).items()
            checked = {name: self._validate_value(value, inner[1], f"{path}.{name}") for name, value in entries}
            return {name: value for name, value in checked.items() if value is not None}
        if get_origin(bare) in (tuple, list) and isinstance(raw, list):
            items = [
                self._validate_value(item, inner[0], f"{path}[{n}]") for n, item in enumerate(cast("list[Any]", raw))
            ]
            return [item for item in items if item is not None]
        value = cast("Any", raw)
        if isinstance(raw, str) and "$" in raw and self._variables != "verbatim":
            try:
                value = self._expand(raw)
            except UnsetVariable as error:
                if ".args[" not in path:
                    self.report(path, f"{path} is dropped: {error}")
                    return None
                self.report(path, f"{path} stays {raw}: {error}")  # without it the others would change their places
        return self._convert_value(value, kind, path, raw)

    def _validate_struct(self, raw: Any, shape: type[Struct], path: str) -> Any:
        if not isinstance(raw, dict):
            self.report(path, f"{path} is ignored: it {describe_mismatch(raw, shape)}")
            return None
        kept = self.validate_keys(cast("dict[str, Any]", raw), shape, path)
        try:
            msgspec.convert(kept, shape)
        except msgspec.ValidationError as error:
            text = str(error).split(" - at ", 1)[0].replace("`", "")
            self.report(path, f"{path} is ignored: {_lower_first(text)}.")
            return None
        return kept

    def _convert_value(self, value: Any, kind: Any, path: str, raw: Any = None) -> Any:
        """Return the value if it has the right type. `raw` is the text it was expanded from, if any."""
        same = raw is None or value is raw
        try:
            return msgspec.to_builtins(msgspec.convert(value, kind, strict=same))
        except msgspec.ValidationError:
            why = f"it {describe_mismatch(value, kind)}" if same else f"the value of {raw} does not fit."
            self.report(
                path, f"{path} is ignored: {why}"
            )  # what a variable stands for is not shown: it may be a secret
            return None

    def _expand(self, text: str) -> str:
        def put(found: re.Match[str]) -> str:
            name = found["braced"]
            if self._variables == "braced" and not name:
                return found[0]
            name = name or found["plain"]
            if not name:
                return "$"
            if self._variables == "none":
                raise UnsetVariable(f"${name} is expanded only in a folder that you trust.")
            if self._variables == "plain" and re.search(SECRET_NAME, name):
                raise UnsetVariable(f"${name} looks like a secret, and a project file may not use it.")
            value = self._env.get(name) or found["default"]
            if value is None:
                raise UnsetVariable(f"the environment variable {name} is not set.")
            self._expanded = True
            return value

        return re.sub(_VARIABLE, put, text)


_NAMES_ELSEWHERE = {
    "retry_delay_ms": "retry.base_s",
    "retry_backoff": "retry.backoff",
    "stream_retry_rounds": "retry.attempts",
    "response_header_timeout": "providers.NAME.header_timeout",
    "stream_idle_timeout": "providers.NAME.idle_timeout",
    "api_url": "base_url",
    "limit": 'context" and "max_output',
    "cost": 'price_input" and "price_output',
    "modalities": "images",
}
"""Settings of other agents, and what they are called here."""


PRIVATE_MODE = 0o600


@contextmanager
def lock_file(path: Path, patience: float = 10.0) -> Generator[None]:
    """Hold the lock of this file, so that each writer reads what the previous one wrote."""
    lock_path = make_private_folder(path.parent) / f"{path.name}.lock"
    try:
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
    except OSError as error:
        raise make_write_error(lock_path, error) from error
    try:
        _wait_for_lock(fd, lock_path, patience)
        yield
    finally:
        os.close(fd)


def _wait_for_lock(fd: int, path: Path, patience: float) -> None:
    try:
        import fcntl
    except ImportError:  # Windows has no flock; there the last writer wins.
        return
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise ConfigError(f"{path} is locked by another process.", "Try again when it has finished.") from error
            time.sleep(0.02)
        else:
            return


class VersionedStore(Struct, frozen=True, kw_only=True):
    """A JSON file with decisions of the user, such as trusted folders."""

    version: int


Store = TypeVar("Store", bound=VersionedStore)


def read_store(path: Path, kind: type[Store], what: str, version: int, max_bytes: int) -> Store | None:
    """Return the list of `what` in the file, None without a file. Raise ConfigError if it cannot be relied on."""
    hint = f"Fix it, or move it away and add your {what} again."
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > max_bytes:
            raise ConfigError(f"{path} is not a list of {what}.", hint)
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"{path} is writable by other users.", "Check its content, then run chmod 600 on it.")
        store = msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.", hint) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}).", hint) from error
    if store.version != version:
        raise ConfigError(f"{path} was written by another version of Odin (format {store.version}).", "Update Odin.")
    return store


def write_atomically(path: Path, data: bytes, mode: int = PRIVATE_MODE) -> None:
    """Replace the file's content. A link is followed, so a file stored elsewhere stays there."""
    target = Path(os.path.realpath(path))
    fresh = target.with_name(f".{target.name}.{os.getpid()}.{time.monotonic_ns():x}")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode != PRIVATE_MODE:
            fresh.chmod(mode)
        fresh.replace(target)
    except BaseException as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise make_write_error(path, error) from error
        raise


class StoreFile(Generic[Store]):
    """A store that several processes read and change. Each method raises ConfigError if it cannot be relied on.

    `empty` is its content without a file, `what` it lists. `prune` drops what has expired, before every change.
    """

    def __init__(self, path: Path, empty: Store, what: str, max_bytes: int, prune: Callable[[Store], Store]) -> None:
        self._path = path
        self._empty = empty
        self._what = what
        self._max_bytes = max_bytes
        self._prune = prune
        self._loaded: tuple[tuple[int, ...] | None, Store] = (None, empty)
        """The file as it was read last, and what tells whether it still is. In one place, as there are threads."""

    def load(self) -> Store:
        """Return the content of the file, read again if it was replaced."""
        stamp, (known, store) = None, self._loaded
        with suppress(OSError):
            info = self._path.stat()
            stamp = (info.st_ino, info.st_ctime_ns, info.st_size)
        if stamp is None or stamp != known:
            store = self._read()
            self._loaded = stamp, store
        return store

    def change(self, change: Callable[[Store], Store]) -> None:
        """Change the file, one process at a time. This may wait for another one: use a thread."""
        with lock_file(self._path):
            before = self._read()
            after = change(self._prune(before))
            if after != before:
                write_atomically(self._path, msgspec.json.format(msgspec.json.encode(after), indent=2) + b"\n")

    def _read(self) -> Store:
        empty = self._empty
        return read_store(self._path, type(empty), self._what, empty.version, self._max_bytes) or empty


def make_write_error(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror or error}.", "Make its folder writable.")


_MAX_SAID = 200
NOT_READ = "Until then nothing in it applies, not even its deny rules."


def find_unsaid(warnings: Sequence[str], path: Path) -> list[str]:
    """Return the warnings that are shown once and were not yet, and note them in the file.

    What cannot be noted is shown again, and so is that a file is not read.
    """
    once = [text for text in warnings if text.endswith(SAID_ONCE)]
    if not once:
        return []
    try:
        said = msgspec.json.decode(path.read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError, UnicodeError):
        said = []
    new = [text for text in once if text not in said or NOT_READ in text]
    if not all(text in said for text in new):
        with suppress(ConfigError):
            write_atomically(path, msgspec.json.encode(list(dict.fromkeys((*said, *new)))[-_MAX_SAID:]))
    return new


_BOM = "\ufeff"
_BLANK = compile_lazily(r"[ \t\r\n]*")


class KeyPosition(Struct, frozen=True):
    """Where a key and its value are in the text of an object."""

    key: str
    key_at: int
    value_at: int
    end: int


def set_key(key: str, value: Any, env: Mapping[str, str]) -> Path:
    """Write a key, such as `model` or `tui.theme`, into the user's file, creating it if needed, and return the file.

    Raise ConfigError, without touching the file, if it is not valid JSON.
    """
    path = get_config_dir(env) / CONFIG_NAME
    with lock_file(path):
        raw = read_config_file(path)
        text = insert_key(raw, path, key, value)
        mode = stat.S_IMODE(path.stat().st_mode) if raw is not None else PRIVATE_MODE
        write_atomically(path, text.encode(), mode)
    return path


def remove_key(key: str, env: Mapping[str, str]) -> Path:
    """Remove a key, such as `providers.mine`, from the user's file, and return the file.

    Raise ConfigError, without touching the file, if it does not have the key.
    """
    path = get_config_dir(env) / CONFIG_NAME
    with lock_file(path):
        raw = read_config_file(path)
        parse_json_object(raw or b"", path)
        text = _remove_from_object((raw or b"").decode("utf-8"), key)
        if text is None:
            raise ConfigError(f"{path} has no key {key}.")
        write_atomically(path, text.encode(), stat.S_IMODE(path.stat().st_mode))
    return path


def _remove_from_object(text: str, key: str) -> str | None:
    """Return the text of an object without this key, and with every other byte as it was; None if it has none."""
    head, _, rest = key.partition(".")
    entries = list(scan_keys(text))
    at = next((number for number, entry in enumerate(entries) if entry.key == head), -1)
    if at < 0:
        return None
    entry = entries[at]
    if rest:
        value = text[entry.value_at : entry.end]
        inner = _remove_from_object(value, rest) if value.startswith("{") else None
        return None if inner is None else f"{text[: entry.value_at]}{inner}{text[entry.end :]}"
    if at + 1 < len(entries):
        return text[: entry.key_at] + text[entries[at + 1].key_at :]
    start = entries[at - 1].end if at else entry.key_at
    return text[:start] + text[entry.end :]


def insert_key(raw: bytes | None, path: Path, key: str, value: Any) -> str:
    """Return the file's text with this key set; a dot leads into an object."""
    if raw is None or not raw.strip():
        return f"{{\n  {_format_key(key, value)}\n}}\n"
    parse_json_object(raw, path)
    return _set_in_object(raw.decode("utf-8"), key, value)


def _set_in_object(text: str, key: str, value: Any) -> str:
    """Return the text of an object with this key set, and with every other byte as it was."""
    head, _, rest = key.partition(".")
    found = [entry for entry in scan_keys(text) if entry.key == head]
    if not found:
        # Insert the line as the first key, formatted like the previous first key.
        line = _format_key(key, value)
        opening = _find_opening(text) + 1
        first = _skip_blank(text, opening)
        blank = text[opening:first]
        if text[first] != "}":
            return f"{text[:opening]}{blank}{line},{blank or ' '}{text[first:]}"
        newline = "\r\n" if "\r\n" in text else "\n"
        return f"{text[:opening]}{newline}  {line}{newline}{text[first:]}"
    last = found[-1]  # of duplicate keys the last one counts
    old = text[last.value_at : last.end]
    has_keys = old.startswith("{") and old.strip("{} \t\r\n") != ""
    new = _set_in_object(old, rest, value) if rest and has_keys else _encode_value(rest, value)
    return f"{text[: last.value_at]}{new}{text[last.end :]}"


def _format_key(key: str, value: Any) -> str:
    """Return `"key": value`; for a key with dots the value is an object."""
    import json

    head, _, rest = key.partition(".")
    return f"{json.dumps(head)}: {_encode_value(rest, value)}"


def _encode_value(path: str, value: Any) -> str:
    """Return the JSON of a value, inside an object for each part of the path."""
    import json

    for part in reversed(path.split(".") if path else []):
        value = {part: value}
    return json.dumps(value, ensure_ascii=False)


def locate_value(path: Path, *keys: str | int) -> int:
    """Return the line of a value in a file: `locate_value(file, "model_pools", "fast", 0)`. 0 if it is not there.

    A key is located where its name is, an item of a list where it begins.
    """
    try:
        raw = read_config_file(path)
        if raw is None:
            return 0
        parse_json_object(raw, path)
        text = raw.decode("utf-8-sig")
    except (ConfigError, UnicodeError):
        return 0
    at = start = 0
    for key in keys:
        found = _find_item(text, start, key) if isinstance(key, int) else _find_key(text, start, key)
        if found is None:
            return 0
        at, start = found
    return text.count("\n", 0, at) + 1


def _find_key(text: str, start: int, key: str) -> tuple[int, int] | None:
    """Return where a key of the object at `start` is, and where its value is."""
    if text[_skip_blank(text, start)] != "{":
        return None
    found = [entry for entry in scan_keys(text[start:]) if entry.key == key]
    return (start + found[-1].key_at, start + found[-1].value_at) if found else None


def _find_item(text: str, start: int, number: int) -> tuple[int, int] | None:
    import json

    if text[start] != "[":
        return None
    decoder, at = json.JSONDecoder(), _skip_blank(text, start + 1)
    for _ in range(number):
        _, end = decoder.raw_decode(text, at)
        end = _skip_blank(text, end)
        if text[end] != ",":
            return None
        at = _skip_blank(text, end + 1)
    return None if text[at] == "]" else (at, at)


def scan_keys(text: str) -> Iterator[KeyPosition]:
    """Yield the keys of the object in a valid text, in order, with their positions."""
    import json

    decoder = json.JSONDecoder()
    at = _skip_blank(text, _find_opening(text) + 1)
    while text[at] == '"':
        key, after = decoder.raw_decode(text, at)
        value_at = _skip_blank(text, _skip_blank(text, after) + 1)
        _, end = decoder.raw_decode(text, value_at)
        yield KeyPosition(key, at, value_at, end)
        at = _skip_blank(text, end)
        if text[at] != ",":
            return
        at = _skip_blank(text, at + 1)


def _find_opening(text: str) -> int:
    return _skip_blank(text, len(_BOM) if text.startswith(_BOM) else 0)


def _skip_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
