"""Who may use the server: tokens of clients with their rights, and one-time codes that a client redeems for one.

Both are in one file, of which the command line and the servers of this user are readers and writers. It has only hashes
of tokens and codes. A damaged one lets nobody in. What changes the file may wait for another process: use a thread.
"""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from odin.config.files import StoreFile, VersionedStore
from odin.config.paths import ACCESS_FOLDER, get_state_dir
from odin.core.errors import OdinError, UsageError
from odin.core.format import clip
from odin.core.rights import Right
from odin.core.timing import DEFAULT_TIMING, Timing
from odin.server.guard import TOKEN_PREFIX
from odin.server.pairing_codes import (
    CODE_TTL_S,
    MAX_CODES,
    CodeAttempts,
    find_by_digest,
    format_code,
    hash_code,
    make_code,
    read_code,
)

_VERSION = 1
_MAX_BYTES = 1_000_000
_MAX_NAME = 60
_SEEN_S = 60.0
"""The time of the last use is written at most this often."""


class CodeRefused(OdinError):
    """One sentence for all reasons, so that guessing tells nothing."""

    def __init__(self) -> None:
        super().__init__(
            "This code is not valid: it is mistyped, was used already, or has expired.",
            "Make a new one with `odin pair`.",
        )


class TokenRecord(Struct, frozen=True, kw_only=True):
    """A client that has a token. `expires` is 0 if it does not."""

    id: str
    name: str
    right: Right
    digest: str
    created: float
    seen: float = 0.0
    address: str = ""
    expires: float = 0.0


class CodeRecord(Struct, frozen=True, kw_only=True):
    """A code that nobody has redeemed. `name` will be that of the client; "" lets it choose."""

    id: str
    name: str
    right: Right
    digest: str
    created: float
    expires: float


class PairingCode(Struct, frozen=True):
    """A new code: the only time that it is known."""

    text: str
    record: CodeRecord


AccessRecord = TokenRecord | CodeRecord


class _AccessFile(VersionedStore, frozen=True, kw_only=True):
    version: int = _VERSION
    url: str = ""
    salt: str = ""
    tokens: tuple[TokenRecord, ...] = ()
    codes: tuple[CodeRecord, ...] = ()


def open_access(env: Mapping[str, str]) -> "AccessStore":
    return AccessStore(get_state_dir(env) / ACCESS_FOLDER)


class AccessStore:
    """The tokens and codes in a folder. Each method raises ConfigError if the file cannot be relied on."""

    def __init__(self, folder: Path, timing: Timing = DEFAULT_TIMING) -> None:
        self._path = folder / "access.json"
        self._clock = timing.clock
        self._attempts = CodeAttempts(timing.monotonic)
        self._attempting = threading.Lock()
        self._used: dict[str, float] = {}
        self._file = StoreFile(self._path, _AccessFile(), "paired clients", _MAX_BYTES, self._prune)

    # --- tokens ---

    def create_token(self, name: str, right: Right, ttl: float = 0.0) -> str:
        """Return a new token, which expires after `ttl` seconds if that is not 0."""
        token, record = self._make_token(name, right, ttl=ttl)
        self._file.change(lambda file: replace(file, tokens=(*file.tokens, _name_uniquely(record, file))))
        return token

    def find(self, token: str) -> TokenRecord | None:
        found = find_by_digest(self._file.load().tokens, _hash_token(token))
        return found if found is not None and self._is_current(found) else None

    def is_valid(self, record: TokenRecord) -> bool:
        """True while the token is neither revoked nor expired. Cheap enough to ask before every event of a stream."""
        return self._is_current(record) and any(item.id == record.id for item in self._file.load().tokens)

    def record_use(self, record: TokenRecord, address: str) -> None:
        """Note when and from where a client was seen, once a minute. Failing to is ignored."""
        now = self._clock()
        if now - self._used.get(record.id, record.seen) < _SEEN_S:
            return
        self._used[record.id] = now

        def note(file: _AccessFile) -> _AccessFile:
            seen = (replace(item, seen=now, address=address) if item.id == record.id else item for item in file.tokens)
            return replace(file, tokens=tuple(seen))

        with suppress(OdinError):
            self._file.change(note)

    def list_tokens(self) -> tuple[TokenRecord, ...]:
        return tuple(filter(self._is_current, self._file.load().tokens))

    def revoke(self, name: str) -> tuple[AccessRecord, ...]:
        """Revoke the token, or cancel the code, with this id; else those with this name. Return them."""

        def choose(items: list[AccessRecord]) -> list[AccessRecord]:
            named = [item for item in items if name and item.name == name]
            return [item for item in items if item.id == name] or named

        return self._remove(choose)

    def revoke_all(self) -> tuple[AccessRecord, ...]:
        return self._remove(lambda items: items)

    # --- codes ---

    def create_code(self, right: Right, name: str = "", ttl: float = CODE_TTL_S) -> PairingCode:
        """Return a new code. Raise UsageError if there are too many."""
        text, now = make_code(), self._clock()
        made: list[CodeRecord] = []

        def add(file: _AccessFile) -> _AccessFile:
            if len(file.codes) >= MAX_CODES:
                raise UsageError(
                    f"There are {MAX_CODES} unused pairing codes already.",
                    f"Use one of them, or cancel the oldest: `odin pair --revoke {file.codes[0].id}`.",
                )
            salt = file.salt or os.urandom(16).hex()
            digest = hash_code(text, salt)
            made.append(
                CodeRecord(id=_make_id(), name=_clean(name), right=right, digest=digest, created=now, expires=now + ttl)
            )
            return replace(file, salt=salt, codes=(*file.codes, *made))

        self._file.change(add)
        return PairingCode(format_code(text), made[0])

    def list_codes(self) -> tuple[CodeRecord, ...]:
        return tuple(filter(self._is_current, self._file.load().codes))

    def redeem(self, code: str, name: str, address: str) -> str:
        """Return a token for a code, which is used up. `name` is the client's if the code has none.

        Raise CodeRefused, or TooManyRequests before the code is looked at.
        """
        with self._attempting:
            self._attempts.take(address)
        if not (text := read_code(code)):
            raise CodeRefused
        digest = hash_code(text, self._file.load().salt)
        tokens: list[str] = []

        def use(file: _AccessFile) -> _AccessFile:
            if (found := find_by_digest(file.codes, digest)) is None:
                raise CodeRefused
            token, record = self._make_token(found.name or name, found.right, address)
            tokens.append(token)
            rest = replace(file, codes=tuple(item for item in file.codes if item is not found))
            return replace(rest, tokens=(*rest.tokens, _name_uniquely(record, rest)))

        self._file.change(use)
        return tokens[0]

    # --- the URL of the server, for `odin pair` ---

    @property
    def url(self) -> str:
        """The URL that a server recorded last, or ""."""
        return self._file.load().url

    def record_url(self, url: str) -> None:
        self._file.change(lambda file: replace(file, url=url))

    # --- the file ---

    def _is_current(self, record: AccessRecord) -> bool:
        return not record.expires or self._clock() < record.expires

    def _make_token(self, name: str, right: Right, address: str = "", ttl: float = 0.0) -> tuple[str, TokenRecord]:
        import secrets

        token, now = f"{TOKEN_PREFIX}{secrets.token_urlsafe(32)}", self._clock()
        record = TokenRecord(
            id=_make_id(),
            name=_clean(name) or "client",
            right=right,
            digest=_hash_token(token),
            created=now,
            seen=now if address else 0.0,
            address=address,
            expires=now + ttl if ttl else 0.0,
        )
        return token, record

    def _remove(self, choose: Callable[[list[AccessRecord]], list[AccessRecord]]) -> tuple[AccessRecord, ...]:
        chosen: list[AccessRecord] = []

        def remove(file: _AccessFile) -> _AccessFile:
            chosen.extend(choose([*file.tokens, *file.codes]))
            tokens = tuple(item for item in file.tokens if item not in chosen)
            return replace(file, tokens=tokens, codes=tuple(item for item in file.codes if item not in chosen))

        self._file.change(remove)
        return tuple(chosen)

    def _prune(self, file: _AccessFile) -> _AccessFile:
        tokens, codes = (tuple(filter(self._is_current, items)) for items in (file.tokens, file.codes))
        return replace(file, tokens=tokens, codes=codes)


def _make_id() -> str:
    return os.urandom(4).hex()


def _clean(name: str) -> str:
    return clip(" ".join("".join(char if char.isprintable() else " " for char in name).split()), _MAX_NAME)


def _name_uniquely(record: TokenRecord, file: _AccessFile) -> TokenRecord:
    """Return the record with a name that no other client has, as it stands for the client in the log."""
    taken = {item.name for item in file.tokens}
    names = (f"{record.name}{number}" for number in ("", *(f" {count}" for count in range(2, len(taken) + 2))))
    return replace(record, name=next(name for name in names if name not in taken))


def _hash_token(token: str) -> str:
    import hashlib

    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
