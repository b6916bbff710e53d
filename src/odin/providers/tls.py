"""TLS for https addresses: the certificates to trust, and asyncio's support for it.

The `odin` command imports asyncio without `ssl` (see `entry.py`): requests to plain http servers do without it, and all
others wait for the network anyway.
"""

import os
import ssl
from asyncio import base_events, selector_events, sslproto
from collections.abc import Sequence

from odin.providers import errors

if base_events.ssl is None:  # pyright: ignore
    for _module in (base_events, selector_events, sslproto):
        setattr(_module, "ssl", ssl)  # noqa: B010
    sslproto.SSLAgainErrors = (ssl.SSLWantReadError, ssl.SSLSyscallError)


def build_tls_context(named: Sequence[tuple[str, str]]) -> ssl.SSLContext:
    """Trust these certificates, given as pairs of a variable and a path; the system's if there are none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
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
