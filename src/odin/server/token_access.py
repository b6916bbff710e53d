"""Who a client of `odin serve` is: the token that it was paired for, or a share; and what the log says about it."""

import asyncio
import time

from starlette.types import Scope

from odin.core.errors import ConfigError, OdinError
from odin.core.rights import Right
from odin.remote.protocol import Paired, Pairing, ShareLink
from odin.server.access import AccessStore
from odin.server.application import Forbidden, Unauthorized, get_header
from odin.server.guard import ClientEvent, ClientLog, HostCheck, RequestLimit, TooManyRequests
from odin.server.shares import OpenedShare, ShareRefused, ShareStore

_REQUESTS_PER_MINUTE = 3000
_BURST = 600
_REFUSALS_LOGGED_PER_MINUTE = 60
_CONNECTED_S = 600.0
"""A client that comes back after a longer pause is noted as connected again."""

_MAX_SEEN = 1000

_BROWSERS = {
    "Edg": "Edge", "OPR": "Opera", "SamsungBrowser": "SamsungBrowser", "Firefox": "Firefox", "FxiOS": "Firefox",
    "CriOS": "Chrome", "Chrome": "Chrome", "Safari": "Safari",
}  # fmt: skip
_SYSTEMS = {
    "Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Windows": "Windows", "Mac": "Mac", "CrOS": "ChromeOS",
    "Linux": "Linux",
}  # fmt: skip
"""Names by what a browser calls itself. It names others, too: the first one counts."""


class TokenAccess:
    def __init__(self, store: AccessStore, check: HostCheck, log: ClientLog, shares: ShareStore) -> None:
        self._store = store
        self._check = check
        self._log = log
        self._shares = shares
        self._limit = RequestLimit(_REQUESTS_PER_MINUTE, _BURST)
        self._refusals = RequestLimit(_REQUESTS_PER_MINUTE, _BURST)
        self._logged = RequestLimit(_REFUSALS_LOGGED_PER_MINUTE, _REFUSALS_LOGGED_PER_MINUTE)
        self._seen: dict[tuple[str, str], float] = {}

    def check_origin(self, scope: Scope) -> None:
        if problem := self._check.check(scope["method"], scope["headers"]):
            raise Forbidden(problem)

    def identify(self, token: str, scope: Scope) -> tuple[str, Right]:
        address = get_address(scope)
        try:
            record = self._store.find(token)
        except OdinError as error:  # what is wrong with the file is for the user of this machine
            raise Unauthorized("The server cannot tell who may use it.", "Run `odin pair --list` there.") from error
        if record is None:
            if wait := self._refusals.take(address):
                raise TooManyRequests("requests", wait)
            raise Unauthorized("The token is not valid, or was revoked.", "Pair this client again: `odin pair`.")
        if wait := self._limit.take(record.id):
            raise TooManyRequests("requests", wait)
        asyncio.get_running_loop().run_in_executor(None, self._store.record_use, record, address)
        now = time.monotonic()
        if now - self._seen.get((record.id, address), float("-inf")) > _CONNECTED_S:
            self._log.write("connected", address, client=record.name, note=record.right)
        self._seen[record.id, address] = now
        if len(self._seen) > _MAX_SEEN:
            self._seen = {key: at for key, at in self._seen.items() if at > now - _CONNECTED_S}
        return record.name, record.right

    def is_valid(self, token: str) -> bool:
        try:
            return self._store.find(token) is not None
        except OdinError:
            return False

    async def pair(self, pairing: Pairing, scope: Scope) -> Paired:
        address = get_address(scope)
        name = pairing.name or _name_browser(get_header(scope, b"user-agent"))
        token = await asyncio.to_thread(self._store.redeem, pairing.code, name, address)
        record = self._store.find(token)
        assert record is not None
        self._log.write("paired", address, client=record.name, note=record.right)
        return Paired(token, record.name, record.right)

    async def open_share(self, link: ShareLink, scope: Scope) -> OpenedShare:
        address = get_address(scope)
        try:
            share = await asyncio.to_thread(self._shares.open, link.id, link.secret, address)
        except ConfigError as error:  # what is wrong with the file is for the user of this machine
            raise ShareRefused("The server cannot tell what is shared.") from error
        self._log.write("shared", address, client=share.record.id)
        return share

    def log(self, scope: Scope, name: str, status: int, what: str = "") -> None:
        """Note refusals and ops. What only reads is not noted: a page asks all the time.

        Of those without a token not all are noted: they would fill the log, and the disk.
        """
        if not name and self._logged.take():
            return
        event: ClientEvent = "refused" if status >= 400 else "op"
        if status >= 400 or what:
            method, path = scope["method"], scope["path"]
            self._log.write(event, get_address(scope), client=name, method=method, path=path, status=status, note=what)


def _name_browser(agent: str) -> str:
    """Return `Firefox on Linux`, or "" for what is no browser."""
    browser = next((name for mark, name in _BROWSERS.items() if mark in agent), "")
    system = next((name for mark, name in _SYSTEMS.items() if mark in agent), "")
    return f"{browser} on {system}" if browser and system else browser


def get_address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""
