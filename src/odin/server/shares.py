"""Shared sessions: copies that anybody with a link may read until it expires, and the records of these links.

A link has a secret of 128 bits, of which the record has only the hash. The records are in one file, the copies in a
folder each, which is removed as soon as its link has ended.
"""

import hmac
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from odin.config.files import StoreFile, VersionedStore, write_atomically
from odin.config.paths import SHARE_FOLDER, get_state_dir
from odin.core.errors import OdinError, StateUnwritable, UsageError
from odin.core.format import format_time
from odin.core.private_folders import make_private_folder
from odin.core.timing import DEFAULT_TIMING, Timing
from odin.server.guard import RequestLimit, TooManyRequests
from odin.session.store import SessionStore

DEFAULT_TTL_S = 7 * 86_400.0
MAX_TTL_S = 365 * 86_400.0
MAX_SHARES = 200
WRONG_PER_MINUTE = 20
WRONG_PER_ADDRESS = 5
VISITS_PER_MINUTE = 60

_VERSION = 1
_MAX_BYTES = 1_000_000
_REMEMBERED_S = 30 * 86_400.0
"""How long a link that has ended still says so."""

_NO_DIGEST = "0" * 64


class ShareRefused(OdinError):
    """Without the right secret, one sentence for all reasons."""

    def __init__(self, problem: str = "There is no such share, or it was revoked.") -> None:
        super().__init__(problem, "Ask for a new link.")


class ShareRecord(Struct, frozen=True, kw_only=True):
    """A link to the copy of a session. `project` is the folder of the session's project.

    `is_kept`: it outlives the session.
    """

    id: str
    digest: str
    session: str
    project: str
    title: str
    created: float
    expires: float
    is_kept: bool = False
    opened: int = 0
    last_opened: float = 0.0


class NewShare(Struct, frozen=True):
    """A new share. This is the only time that the secret is known."""

    record: ShareRecord
    secret: str

    @property
    def fragment(self) -> str:
        """What stands behind the `#` of the link, which a browser sends to no server."""
        return f"share/{self.record.id}/{self.secret}"


class OpenedShare(Struct, frozen=True):
    """A share whose secret was right, and the folder of its copy."""

    record: ShareRecord
    folder: Path


class _ShareFile(VersionedStore, frozen=True, kw_only=True):
    version: int = _VERSION
    shares: tuple[ShareRecord, ...] = ()


def open_shares(env: Mapping[str, str]) -> "ShareStore":
    return ShareStore(get_state_dir(env))


def remove_ended_shares(env: Mapping[str, str]) -> None:
    """Remove the copies whose links have ended, for example with their sessions. Failing to is ignored."""
    with suppress(OdinError):
        open_shares(env).sweep()


class ShareStore:
    """The shares in a state folder. Each method may raise ConfigError, and may wait for another process."""

    def __init__(self, state: Path, timing: Timing = DEFAULT_TIMING) -> None:
        self._sessions = state / "sessions"
        self._folder = state / SHARE_FOLDER
        self._clock = timing.clock
        self._file = StoreFile(self._folder / "shares.json", _ShareFile(), "shares", _MAX_BYTES, self._forget)
        self._wrong_by_address = RequestLimit(WRONG_PER_ADDRESS, WRONG_PER_ADDRESS, timing.monotonic)
        self._wrong = RequestLimit(WRONG_PER_MINUTE, WRONG_PER_MINUTE, timing.monotonic)
        self._visits = RequestLimit(VISITS_PER_MINUTE, VISITS_PER_MINUTE, timing.monotonic)
        self._attempts = threading.Lock()

    def create(
        self, log: Path, title: str, files: Iterable[tuple[str, bytes]], *, ttl: float, is_kept: bool = False
    ) -> NewShare:
        """Share the `files` of a copy of the session with this log. Raise UsageError if there are too many shares."""
        import secrets

        secret, now = secrets.token_urlsafe(16), self._clock()
        record = ShareRecord(
            id=os.urandom(4).hex(),
            digest=_hash_secret(secret),
            session=log.parent.name,
            project=log.parent.parent.name,
            title=title,
            created=now,
            expires=now + ttl,
            is_kept=is_kept,
        )

        def add(file: _ShareFile) -> _ShareFile:
            shares = tuple(item for item in file.shares if not self._find_end(item))
            if len(shares) >= MAX_SHARES:
                raise UsageError(f"There are {MAX_SHARES} shares already.", "End some of them: `odin share --list`.")
            self._remove_copies(shares)
            self._write_copy(record.id, files)
            return replace(file, shares=(*file.shares, record))

        self._file.change(add)
        return NewShare(record, secret)

    def open(self, id: str, secret: str, address: str) -> OpenedShare:
        """Return the share of a link and count the visit.

        Raise ShareRefused or TooManyRequests. A right secret is accepted however many wrong ones come: 128 bits are not
        guessed, and strangers cannot lock readers out.
        """
        file = self._file.load()
        found = next((item for item in file.shares if item.id == id), None)
        digest = _NO_DIGEST if found is None else found.digest
        if not hmac.compare_digest(digest, _hash_secret(secret)) or found is None:
            self._count_wrong(address)
            raise ShareRefused
        if end := self._find_end(found):
            self.sweep()
            raise ShareRefused(end)
        with self._attempts:
            if wait := self._visits.take(found.id):
                raise TooManyRequests("visits of this page", wait)

        def note(file: _ShareFile) -> _ShareFile:
            now = self._clock()
            return _change_share(file, found.id, lambda item: replace(item, opened=item.opened + 1, last_opened=now))

        with suppress(OdinError):  # a page can be read on a full disk
            self._file.change(note)
        return OpenedShare(found, self._folder / found.id)

    def list_shares(self) -> tuple[ShareRecord, ...]:
        """Return the shares that can be read, oldest first."""
        self.sweep()
        return tuple(item for item in self._file.load().shares if not self._find_end(item))

    def revoke(self, name: str) -> tuple[ShareRecord, ...]:
        """End the share with this id, else all of the session with this id. Return them."""

        def choose(items: list[ShareRecord]) -> list[ShareRecord]:
            return [item for item in items if item.id == name] or [item for item in items if item.session == name]

        return self._remove(choose)

    def revoke_all(self) -> tuple[ShareRecord, ...]:
        return self._remove(lambda items: items)

    def sweep(self) -> None:
        """Remove the copies whose links have ended."""
        shares = self._file.load().shares
        if any(self._find_end(item) and (self._folder / item.id).exists() for item in shares):
            self._remove(lambda items: [])

    def _remove(self, choose: Callable[[list[ShareRecord]], list[ShareRecord]]) -> tuple[ShareRecord, ...]:
        """Remove the chosen ones of those that can be read, and the copies of those that have ended."""
        chosen: list[ShareRecord] = []

        def remove(file: _ShareFile) -> _ShareFile:
            current = [item for item in file.shares if not self._find_end(item)]
            chosen.extend(choose(current))
            self._remove_copies(item for item in current if item not in chosen)
            return replace(file, shares=tuple(item for item in file.shares if item not in chosen))

        if self._file.load().shares:  # else nothing is written
            self._file.change(remove)
        return tuple(chosen)

    def _find_end(self, record: ShareRecord) -> str:
        """Return why a share cannot be read any more, as a sentence, or ""."""
        if self._clock() >= record.expires:
            return f"This share expired on {format_time(record.expires)}."
        if not record.is_kept and not self._is_stored(record):
            return "This share ended when its session was deleted."
        return ""

    def _is_stored(self, record: ShareRecord) -> bool:
        return SessionStore.from_folder(self._sessions / record.project).find_log(record.session) is not None

    def _forget(self, file: _ShareFile) -> _ShareFile:
        """Drop the records of links that ended long ago, and of all but the newest that have ended."""
        after = self._clock() - _REMEMBERED_S
        ended = [item for item in file.shares if self._find_end(item)]
        forgotten = {item.id for item in ended[:-MAX_SHARES]} | {item.id for item in ended if item.expires <= after}
        return replace(file, shares=tuple(item for item in file.shares if item.id not in forgotten))

    def _count_wrong(self, address: str) -> None:
        with self._attempts:
            wait = max(self._wrong_by_address.get_wait(address), self._wrong.get_wait())
            if wait:
                raise TooManyRequests("wrong links", wait)
            self._wrong_by_address.take(address)
            self._wrong.take()

    # --- the copies; all of this while the file is locked ---

    def _write_copy(self, id: str, files: Iterable[tuple[str, bytes]]) -> None:
        folder = make_private_folder(self._folder / id)
        for name, data in files:
            write_atomically(folder / name, data)

    def _remove_copies(self, kept: Iterable[ShareRecord]) -> None:
        """Remove all copies but these, also what a crash left behind."""
        import shutil

        ids = {item.id for item in kept}
        try:
            for folder in list(self._folder.iterdir()):
                if folder.name not in ids and folder.is_dir() and not folder.is_symlink():
                    shutil.rmtree(folder)
        except OSError as error:
            raise StateUnwritable(
                f"A shared copy cannot be removed ({error.filename}: {error.strerror or error}).",
                f"Remove {self._folder} yourself: that ends all shares.",
            ) from error


def _change_share(file: _ShareFile, id: str, change: Callable[[ShareRecord], ShareRecord]) -> _ShareFile:
    return replace(file, shares=tuple(change(item) if item.id == id else item for item in file.shares))


def _hash_secret(secret: str) -> str:
    import hashlib

    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
