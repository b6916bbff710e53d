"""The connection to a Temporal server, and how values are written for it: JSON, compressed if large, encrypted if there
is a key."""

import asyncio
import base64
import binascii
import logging
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import (
    BinaryNullPayloadConverter,
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    EncodingPayloadConverter,
    PayloadCodec,
)
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig
from temporalio.service import KeepAliveConfig, RPCError, RPCStatusCode, TLSConfig

from odin.core.errors import OdinError, UsageError

KEY_VARIABLE = "ODIN_FLEET_KEY"
_CONNECT_S = 10.0
_LARGE = 4_096
_MOST_BYTES = 256_000_000


class TemporalServer(Struct, frozen=True):
    """A Temporal server, and the task queue of the fleet there. `ca`, `cert` and `key` are files; `api_key` is the name
    of an environment variable."""

    address: str
    namespace: str = "default"
    queue: str = "odin-fleet"
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    api_key: str = ""


async def connect(server: TemporalServer, env: Mapping[str, str], *, timeout_s: float = _CONNECT_S) -> Client:
    """Return a client of the server. Raise UsageError or OdinError that says in a sentence what is wrong."""
    host, _, port = server.address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{server.address!r} is no address of a Temporal server.", "Give HOST:PORT.")
    if bool(server.cert) != bool(server.key):
        raise UsageError("A client certificate needs its key.", "Give --temporal-cert and --temporal-key together.")
    api_key = env.get(server.api_key, "") if server.api_key else ""
    if server.api_key and not api_key:
        raise UsageError(f"The API key {server.api_key} is not set.", f"Set the variable: export {server.api_key}=…")
    tls: TLSConfig | bool = server.tls or bool(api_key)
    if server.ca or server.cert:
        ca, cert, key = (_read(path) for path in (server.ca, server.cert, server.key))
        tls = TLSConfig(server_root_ca_cert=ca, client_cert=cert, client_private_key=key)
    converter = make_converter(env.get(KEY_VARIABLE, ""))
    try:
        async with asyncio.timeout(timeout_s):
            client = await Client.connect(
                server.address,
                namespace=server.namespace,
                api_key=api_key or None,
                runtime=_get_runtime(),
                tls=tls,
                data_converter=converter,
                # A connection that is cut without a word is noticed before the heartbeats are missed.
                keep_alive_config=KeepAliveConfig(interval_millis=5_000, timeout_millis=5_000),
                connect_timeout=timedelta(seconds=timeout_s / 2),
            )
            await client.count_workflows("WorkflowType = 'OdinFleetRun'")
    except RPCError as error:
        raise translate(error.status, str(error), server) from error
    except (RuntimeError, ValueError, TimeoutError) as error:
        words = str(error)
        if refusal := re.search(r'code: (Unauthenticated|PermissionDenied), message: "(.*?)"', words):
            raise translate(RPCStatusCode.UNAUTHENTICATED, refusal[2], server) from error
        if re.search("certificate|tls|ssl|corrupt|InvalidContentType|pem", words, re.IGNORECASE):
            raise OdinError(
                f"The connection to {server.address} is not secure: {_shorten(words)}",
                "Check --temporal-tls, --temporal-ca, --temporal-cert and --temporal-key.",
            ) from error
        raise OdinError(
            f"No Temporal server answers at {server.address}.",
            "Check --temporal and that the server runs; if it wants TLS, add --temporal-tls.",
        ) from error
    return client


@cache
def _get_runtime() -> Runtime:
    """Return the runtime of this process, which by itself would write its log to stdout."""
    forwarding = LogForwardingConfig(logging.getLogger("temporalio.core"))
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig("WARN", forwarding)))


def translate(status: RPCStatusCode, words: str, server: TemporalServer) -> OdinError:
    """Return what a user should know about a failed request."""
    match status:
        case RPCStatusCode.NOT_FOUND if "amespace" in words:
            return UsageError(
                f"The Temporal server {server.address} has no namespace {server.namespace}.",
                "Name one with --temporal-namespace, or create it: temporal operator namespace create",
            )
        case RPCStatusCode.UNAUTHENTICATED | RPCStatusCode.PERMISSION_DENIED:
            return UsageError(
                f"The Temporal server {server.address} refuses this user: {_shorten(words)}",
                "Check --temporal-api-key, the client certificate and --temporal-namespace.",
            )
        case RPCStatusCode.UNAVAILABLE | RPCStatusCode.DEADLINE_EXCEEDED | RPCStatusCode.CANCELLED:
            return OdinError(f"The Temporal server {server.address} does not answer.", "The run goes on when it does.")
        case _:
            return OdinError(f"The Temporal server {server.address} refuses a request: {_shorten(words)}")


def _shorten(words: str) -> str:
    return " ".join(words.split())[:300]


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.", "Name a PEM file.") from error


# --- values ---


def make_converter(key: str) -> DataConverter:
    """Return the converter with this key (32 bytes in base64), or without encryption."""
    return DataConverter(
        payload_converter_class=_FleetConverter,
        payload_codec=FleetCodec(_parse_key(key)),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def _parse_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b"?"
    if len(key) not in (0, 32):
        raise UsageError(
            f"{KEY_VARIABLE} is not 32 bytes in base64.", f"Make one: export {KEY_VARIABLE}=$(openssl rand -base64 32)"
        )
    return key


class _MsgspecConverter(EncodingPayloadConverter):
    @property
    def encoding(self) -> str:
        return "json/plain"

    def to_payload(self, value: Any) -> Payload:
        return Payload(metadata={"encoding": b"json/plain"}, data=msgspec.json.encode(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        wanted: Any = type_hint or Any
        return msgspec.json.decode(payload.data, type=wanted)


class _FleetConverter(CompositePayloadConverter):
    def __init__(self) -> None:
        super().__init__(BinaryNullPayloadConverter(), _MsgspecConverter())


class FleetCodec(PayloadCodec):
    """Compresses large values. With a key, encrypts all values with AES-GCM and takes no others."""

    def __init__(self, key: bytes) -> None:
        self._cipher: Any = None
        if key:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(key)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encode(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._decode(payload) for payload in payloads]

    def _encode(self, payload: Payload) -> Payload:
        if len(payload.data) > _LARGE:
            payload = _wrap("binary/zlib", zlib.compress(payload.SerializeToString()))
        if self._cipher:
            nonce = os.urandom(12)
            sealed = self._cipher.encrypt(nonce, payload.SerializeToString(), None)
            payload = _wrap("binary/encrypted", nonce + sealed)
        return payload

    def _decode(self, payload: Payload) -> Payload:
        is_sealed = payload.metadata.get("encoding") == b"binary/encrypted"
        if self._cipher and not is_sealed:
            raise OdinError(
                "What is on the Temporal server is not encrypted: somebody without the key of this fleet wrote it.",
                f"If that is right, unset {KEY_VARIABLE}.",
            )
        if is_sealed:
            payload = self._open(payload.data)
        if payload.metadata.get("encoding") == b"binary/zlib":
            payload = Payload.FromString(zlib.decompressobj().decompress(payload.data, _MOST_BYTES))
        return payload

    def _open(self, sealed: bytes) -> Payload:
        from cryptography.exceptions import InvalidTag

        with suppress(InvalidTag):
            if self._cipher:
                return Payload.FromString(self._cipher.decrypt(sealed[:12], sealed[12:], None))
        raise OdinError(
            "What is on the Temporal server was encrypted with another key.",
            f"Set {KEY_VARIABLE} to the key of this fleet.",
        )


def _wrap(encoding: str, data: bytes) -> Payload:
    return Payload(metadata={"encoding": encoding.encode()}, data=data)
