"""TLS for https addresses: the certificates to trust, and asyncio's support for it.

The `odin` command imports asyncio without `ssl` (see `entry.py`): requests to plain http servers do without it, and all
others wait for the network anyway.
"""

import os
import ssl
from asyncio import base_events, selector_events, sslproto
from collections.abc import Mapping

from odin.providers import errors

if base_events.ssl is None:  # pyright: ignore
    for _module in (base_events, selector_events, sslproto):
        setattr(_module, "ssl", ssl)  # noqa: B010
    sslproto.SSLAgainErrors = (ssl.SSLWantReadError, ssl.SSLSyscallError)


def build_tls_context(env: Mapping[str, str]) -> ssl.SSLContext:
    """Trust SSL_CERT_FILE, SSL_CERT_DIR or REQUESTS_CA_BUNDLE if set, else the system's certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    named = [(name, env[name]) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE") if env.get(name)]
    if any(name.startswith("SSL_") for name, _ in named):
        named = [(name, path) for name, path in named if name.startswith("SSL_")]
    for name, path in named:
        try:
            if os.path.isdir(path):  # noqa: PTH112
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError):
            raise errors.make_certificate_error(path, name) from None
    if not named:
        context.load_default_certs()
    return context
