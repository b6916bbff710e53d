"""Encrypted Matrix rooms: the Olm machine of matrix-nio under the requests of the channel.

The machine keeps its keys in a private database. What the server is to know of them is stored there before it is sent,
and what was received before the place in the server's stream moves on. A message is read if its key came from a device
of its sender; the keys of Odin go to all devices of a room, whether their owner has signed them or not.
"""

import asyncio
import importlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import vodozemac
from msgspec import Struct

from odin.config.files import write_atomically
from odin.gateway.channel import DeliveryRefused
from odin.gateway.channels.platform_api import FileRefused

_SIGNERS = ("master", "self_signing")
_FOREIGN_ACCOUNT = (
    "Another client has made the keys that sign the devices of this account. Clients that demand signed devices will "
    "give Odin no keys: give it an account of its own."
)

_nio: Any = importlib.import_module("nio")  # these two have no types
_peewee: Any = importlib.import_module("peewee")
logging.getLogger("nio").propagate = False  # what matters is said by Odin itself
logging.getLogger("nio").addHandler(logging.NullHandler())


class KeyNews(Struct, frozen=True):
    """What a sync says about keys: messages to this device, the people whose devices have changed, and how many
    one-time keys of this device the server still has, if it says that."""

    messages: tuple[dict[str, Any], ...]
    changed: tuple[str, ...]
    one_time_keys: int | None


class MatrixEncryption:
    """The keys of one device. `call` sends a request to the server, `report` gets sentences for the log."""

    def __init__(
        self,
        user: str,
        device: str,
        path: Path,
        call: Callable[[str, str, object], Awaitable[bytes]],
        report: Callable[[str], object],
    ) -> None:
        path.touch(0o600)
        store = _nio.store.SqliteStore(user, device, str(path.parent), database_name=path.name)
        self._machine = _nio.crypto.Olm(user, device, store)
        self._user = user
        self._device = device
        self._signers = path.with_suffix(".json")
        self._call = call
        self._report = report
        self._known = set[str]()
        """The people whose devices are known, and have not changed since."""

        self._audiences: dict[str, frozenset[tuple[str, str]]] = {}
        """Who got the key that is now used in a room."""

        self._lock = asyncio.Lock()

    def close(self) -> None:
        """Close the database, which opens again when it is used."""
        self._machine.store.database.close()

    async def publish(self, login: dict[str, Any] | None) -> None:
        """Make sure that the server has the keys of this device, signed by those of the account if Odin has made these.

        `login` confirms them with a password.
        """
        async with self._lock:
            try:
                found = await self._find_own_keys()
                if self._device not in found.get("device_keys", {}).get(self._user, {}):
                    self._machine.account.shared = False  # also after the server has forgotten a device that logged out
                    await self._upload()
                    found = await self._find_own_keys()
                await self._sign_device(found, login)
            except DeliveryRefused as error:
                hint = "" if login else " Set the options user and password, with which it may."
                self._report(f"The homeserver does not take the keys of this device: {error}{hint}")

    async def _find_own_keys(self) -> dict[str, Any]:
        return await self._ask("v3/keys/query", {"device_keys": {self._user: []}})

    async def _ask(self, path: str, body: object) -> dict[str, Any]:
        return msgspec.json.decode(await self._call("POST", path, body), type=dict[str, Any])

    async def _upload(self) -> None:
        machine = self._machine
        if not machine.should_upload_keys:
            return
        content = machine.share_keys()
        machine.save_account()
        try:
            reply = await self._ask("v3/keys/upload", content)
        except DeliveryRefused as error:
            # The database is an old copy: the server has other keys of these names. The next ones have new names.
            machine.mark_keys_as_published()
            machine.save_account()
            self._report(f"The keys of this device were refused: {error}")
            return
        count = reply.get("one_time_key_counts", {}).get("signed_curve25519", 0)
        machine.handle_response(_nio.responses.KeysUploadResponse(0, count))

    async def _sign_device(self, found: dict[str, Any], login: dict[str, Any] | None) -> None:
        master = found.get("master_keys", {}).get(self._user)
        signers = self._read_signers()
        if master is None:
            await self._upload_signers(signers, login)
        elif signers["master"].ed25519_key.to_base64() not in master["keys"].values():
            self._report(_FOREIGN_ACCOUNT)
            return
        signer = signers["self_signing"]
        key = f"ed25519:{signer.ed25519_key.to_base64()}"
        device: dict[str, Any] = found.get("device_keys", {}).get(self._user, {}).get(self._device, {})
        if key not in device.get("signatures", {}).get(self._user, {}):
            bare = {name: value for name, value in device.items() if name not in ("signatures", "unsigned")}
            signed = self._sign(bare, key, signer)
            reply = await self._ask("v3/keys/signatures/upload", {self._user: {self._device: signed}})
            if reply.get("failures"):
                raise DeliveryRefused(f"The homeserver refuses the signature of {self._device}.")

    def _read_signers(self) -> dict[str, vodozemac.Account]:
        """Return the keys that sign devices. An Olm account is used for its signing key alone."""
        key = bytes(32)  # nothing is hidden from somebody who reads private files
        if self._signers.exists():
            stored = msgspec.json.decode(self._signers.read_bytes(), type=dict[str, str])
            return {name: vodozemac.Account.from_pickle(stored[name], key) for name in _SIGNERS}
        made = {name: vodozemac.Account() for name in _SIGNERS}
        write_atomically(self._signers, msgspec.json.encode({name: one.pickle(key) for name, one in made.items()}))
        return made

    async def _upload_signers(self, signers: dict[str, vodozemac.Account], login: dict[str, Any] | None) -> None:
        master = f"ed25519:{signers['master'].ed25519_key.to_base64()}"
        body: dict[str, Any] = {"auth": login} if login else {}
        for name, one in signers.items():
            public = one.ed25519_key.to_base64()
            bare = {"user_id": self._user, "usage": [name], "keys": {f"ed25519:{public}": public}}
            if name != "master":
                bare = self._sign(bare, master, signers["master"])
            body[f"{name}_key"] = bare
        await self._ask("v3/keys/device_signing/upload", body)

    def _sign(self, bare: dict[str, Any], key: str, signer: vodozemac.Account) -> dict[str, Any]:
        signature = signer.sign(_nio.Api.to_canonical_json(bare).encode()).to_base64()
        return {**bare, "signatures": {self._user: {key: signature}}}

    # --- what comes in ---

    def receive(self, news: KeyNews) -> None:
        self._known -= {*news.changed}
        if news.one_time_keys is not None:
            self._machine.uploaded_key_count = news.one_time_keys
        for message in news.messages:
            try:
                if message["type"] == "m.room.encrypted":
                    self._machine.handle_to_device_event(_nio.events.ToDeviceEvent.parse_event(message))
                elif message["type"] == "m.room_key_request" and message["content"]["action"] == "request":
                    self._answer_key_request(message["sender"], message["content"])
            except (_peewee.PeeweeException, OSError):
                raise  # a key that was not stored must come again
            except Exception as error:  # others write these: whatever they contain must not stop the channel
                who = message.get("sender", "somebody")
                self._report(f"A key from {who} cannot be used ({type(error).__name__}: {error}).")

    def _answer_key_request(self, sender: str, content: dict[str, Any]) -> None:
        """Begin a new key for a room if one who got the last one asks for it. Old keys are not given again."""
        room, device = content["body"]["room_id"], content["requesting_device_id"]
        if (sender, device) in self._audiences.get(room, ()):
            del self._audiences[room]
            self._report(f"{sender} cannot read what Odin wrote in {room}. The next message has a new key.")

    async def maintain(self) -> None:
        """Upload one-time keys if the server needs some, and repair connections to devices that are out of step."""
        async with self._lock:
            await self._upload()
            if self._machine.wedged_devices:
                await self._claim(self._machine.get_users_for_key_claiming())
                self._machine.wedged_devices.clear()
            for message in [*self._machine.outgoing_to_device_messages]:
                await self._send_to_devices(message.type, message.as_dict())
                self._machine.outgoing_to_device_messages.remove(message)

    async def decrypt(self, room: str, event: dict[str, Any]) -> dict[str, Any] | None:
        """Return the event inside an encrypted one; None if its key is missing, or not from a device of the sender."""
        machine, sender, content = self._machine, event["sender"], event["content"]
        own = machine.account.identity_keys
        devices = [(self._device, own["curve25519"], own["ed25519"])] if sender == self._user else []
        async with self._lock:
            await self._query([sender])
        devices += [(device.id, device.curve25519, device.ed25519) for device in machine.device_store[sender].values()]
        for device, key, signature in devices:
            session = machine.inbound_group_store.get(room, key, content["session_id"])
            if session and session.ed25519 == signature:
                given = {**event, "content": {**content, "sender_key": key, "device_id": device}}
                try:
                    opened = machine.decrypt_megolm_event(_nio.events.MegolmEvent.from_dict(given), room)
                except (_nio.exceptions.EncryptionError, ValueError, AttributeError, AssertionError):  # it is forged
                    return None
                return opened.source
        return None

    # --- what goes out ---

    async def encrypt(self, room: str, members: Iterable[str], kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Return the content of an encrypted event that all devices of the members can read."""
        machine, members = self._machine, [*members]
        async with self._lock:
            await self._query(members)
            devices = frozenset(
                (user, device.id) for user in members for device in machine.device_store.active_user_devices(user)
            )
            if self._audiences.get(room) != devices or machine.should_share_group_session(room):
                if missing := machine.get_missing_sessions(members):
                    await self._claim(missing)
                machine.create_outbound_group_session(room)
                shares = machine.share_group_session_parallel(room, members, ignore_unverified_devices=True)
                for _, messages in shares:
                    await self._send_to_devices("m.room.encrypted", messages)
                machine.outbound_group_sessions[room].mark_as_shared()
                self._audiences[room] = devices
            sealed = machine.group_encrypt(room, {"type": kind, "content": content})
        relation = content.get("m.relates_to")
        return {**sealed, "m.relates_to": relation} if relation else sealed

    async def _query(self, people: Iterable[str]) -> None:
        """Learn the devices of people, if they are unknown or have changed."""
        asked = {*people} - self._known
        if not asked:
            return
        self._known |= asked  # a change that comes before the answer takes them out again
        try:
            wanted: dict[str, list[str]] = {user: [] for user in asked}
            found = await self._ask("v3/keys/query", {"device_keys": wanted})
        except BaseException:
            self._known -= asked
            raise
        for user, devices in found.get("device_keys", {}).items():
            try:
                self._machine.handle_response(_nio.responses.KeysQueryResponse({user: devices}, {}))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                self._report(f"The devices of {user} cannot be used ({type(error).__name__}: {error}).")
        self._known -= {user for user in asked if user.partition(":")[2] in found.get("failures", {})}

    async def _claim(self, missing: dict[str, list[str]]) -> None:
        """Begin connections to devices. Those that have no keys, or bad ones, get none."""
        wanted = {user: dict.fromkeys(devices, "signed_curve25519") for user, devices in missing.items()}
        found = await self._ask("v3/keys/claim", {"one_time_keys": wanted})
        for user, devices in found.get("one_time_keys", {}).items():
            for device, key in devices.items():
                try:
                    self._machine.handle_response(_nio.responses.KeysClaimResponse({user: {device: key}}, {}))
                except (ValueError, LookupError, TypeError) as error:
                    self._report(f"The device {device} of {user} cannot read what Odin writes ({error}).")

    async def _send_to_devices(self, kind: str, messages: dict[str, Any]) -> None:
        await self._call("PUT", f"v3/sendToDevice/{quote(kind)}/{os.urandom(16).hex()}", messages)


def decrypt_file(content: bytes, key: str, iv: str, sha256: str) -> bytes:
    try:
        return _nio.crypto.decrypt_attachment(content, key, sha256, iv)
    except (_nio.exceptions.EncryptionError, ValueError) as error:
        raise FileRefused("it does not fit to its key") from error


def encrypt_file(content: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return what is uploaded, and what those who read it need."""
    return _nio.crypto.encrypt_attachment(content)
