"""Renewing the tokens of a sign-in: once for all processes, in a process of its own.

A server may replace the refresh token with each use, and end the sign-in if an old one comes again. So whoever renews
holds a lock and reads again what is stored: who waited for the lock finds the new tokens. With the answer the sign-in
would be lost, so the process that waits for it has a session of its own, which Ctrl+C, a signal or the end of Odin do
not reach, and stores it. Before it sends a token it notes that, and also a refusal: no process sends that token again.

The tokens are stored in `auth.json` as `{"tokens": {"access_token": …, "refresh_token": …, "expires_at": …}, …}`.
"""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from odin.config.auth import locate_auth_file, read_auth_file, update_tokens
from odin.config.files import lock_file
from odin.core.errors import OdinError

_ANSWER_S = 30.0
_LOCK_S = 3 * _ANSWER_S
"""Longer than the one before may take, which has read its answer by then."""

_JOURNAL = "renewal"


class TokenRequest(Struct, frozen=True):
    """The request that renews the tokens stored as `name`: `body` has the refresh token, `access_token` is stored."""

    name: str
    access_token: str
    url: str
    headers: dict[str, str]
    body: str


class Renewal(Struct, frozen=True):
    """What became of it. `renewed`: new tokens are stored. `refused`: only a new sign-in helps. `why` is a clause."""

    outcome: Literal["renewed", "refused", "failed"]
    why: str = ""


async def renew_tokens(request: TokenRequest, env: Mapping[str, str]) -> Renewal:
    """Renew tokens unless another process has done so. If this task is cancelled, they are renewed all the same."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Renewal] = loop.create_future()

    def tell(renewal: Renewal) -> None:
        if not done.done():
            done.set_result(renewal)

    def run() -> None:
        renewal = _run_helper(request, env)
        with suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(tell, renewal)

    threading.Thread(target=run, daemon=True).start()
    return await done


def _run_helper(request: TokenRequest, env: Mapping[str, str]) -> Renewal:
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=dict(env),
            start_new_session=True,
        )
        output, _ = process.communicate(msgspec.json.encode((request, dict(env))))
        return msgspec.json.decode(output, type=Renewal)
    except (OSError, msgspec.DecodeError) as error:
        return Renewal("failed", f"the process that renews it ended: {error}")


def _renew(request: TokenRequest, env: Mapping[str, str]) -> Renewal:
    """Send the request, unless what is stored has changed, and store the answer."""
    import hashlib

    name = request.name
    path = locate_auth_file(env)
    with lock_file(path.with_name(f"{path.name}.{hashlib.sha256(name.encode()).hexdigest()[:12]}"), _LOCK_S):
        stored = _parse(read_auth_file(env).tokens.get(name, ""))
        tokens: dict[str, Any] = stored.get("tokens", {})
        if tokens.get("access_token") != request.access_token:
            return Renewal("renewed" if tokens else "refused")
        token = hashlib.sha256(str(tokens.get("refresh_token")).encode()).hexdigest()
        journal = stored.get(_JOURNAL)
        if journal == {"token": token, "state": "refused"}:
            return Renewal("refused", "the server has refused to renew it")

        def note(state: str, **changed: Any) -> None:
            noted = {_JOURNAL: {"token": token, "state": state}} if state else {}

            def change(text: str) -> str:
                kept = {key: value for key, value in _parse(text).items() if key != _JOURNAL}
                return msgspec.json.encode({**kept, **changed, **noted}).decode()

            update_tokens(name, change, env)

        note("sent")
        renewal, answer = _send(request)
        if renewal.outcome == "renewed":
            expires_in = answer.pop("expires_in", None)
            # what the answer leaves out is as before, also a refresh token that is not replaced (RFC 6749, section 6)
            renewed = {**tokens, **{key: value for key, value in answer.items() if value is not None}}
            renewed["expires_at"] = time.time() + expires_in if isinstance(expires_in, int | float) else None
            note("", tokens=renewed)
        elif renewal.outcome == "refused":
            note("refused")
            if journal is not None:  # it was sent before, and the answer has not been stored
                return Renewal("refused", f"{renewal.why}; an earlier renewal was interrupted")
        return renewal


def _send(request: TokenRequest) -> tuple[Renewal, dict[str, Any]]:
    import httpx2

    try:
        response = httpx2.post(request.url, headers=request.headers, content=request.body, timeout=_ANSWER_S)
    except httpx2.HTTPError as error:
        return Renewal("failed", f"{httpx2.URL(request.url).host} did not answer ({error or type(error).__name__})"), {}
    answer = _parse(response.text)
    if response.status_code == 200 and isinstance(answer.get("access_token"), str):
        return Renewal("renewed"), answer
    if response.status_code in (400, 401) and isinstance(answer.get("error"), str):
        return Renewal("refused", f"the server has refused to renew it ({answer['error']})"), {}
    return Renewal("failed", f"{response.url.host} answered with HTTP {response.status_code}"), {}


def _parse(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def main() -> None:
    request, env = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[TokenRequest, dict[str, str]])
    try:
        renewal = _renew(request, env)
    except OdinError as error:
        renewal = Renewal("failed", error.describe())
    with suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(renewal))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
