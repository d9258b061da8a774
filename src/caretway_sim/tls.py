"""A throw-away CA and certificate, so that the simulator is reached over TLS with ALPN; an error when the package
trustme is missing."""

import ssl
from pathlib import Path
from typing import Final

from caretway.installation import install_command

from .proxy import ONLY_THERE

NAMES: Final = ("localhost", "127.0.0.1", "::1", ONLY_THERE)
CA_FILE: Final = "caretway-simulator-ca.pem"


class TlsUnavailable(RuntimeError):
    """The package that makes certificates is not installed."""


def throw_away_ca(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """A server context for loopback names and the proxy's name, and the file with the authority that vouches for it."""
    try:
        import trustme
    except ImportError as missing:
        raise TlsUnavailable(
            f"the simulator needs the package trustme to serve TLS; install it with: {install_command('tls')}"
        ) from missing
    authority = trustme.CA(organization_name="Caretway simulator, not for real use")
    certificate = authority.issue_cert(*NAMES)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2", "http/1.1"])
    certificate.configure_cert(context)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / CA_FILE
    authority.cert_pem.write_to_path(str(path))
    return context, path
