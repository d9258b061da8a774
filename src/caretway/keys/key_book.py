"""The named keys that a running gateway knows: read at the start, and again as soon as the file has changed; a file
that cannot be read leaves those that were known.

A look at the file is one `stat`, so a key that was revoked is refused from the next request on.
"""

import logging
from collections.abc import Mapping

from ..core.errors import GatewayError
from .key_file import CLUSTER_COPY, KeyFile
from .named_key import Keys, NamedKey

log = logging.getLogger(__name__)


class KeyBook:
    def __init__(self, file: KeyFile) -> None:
        """Raises GatewayError when there is a file that cannot be used."""
        self._file = file
        self._stamp = file.stamp()
        self._closed = False
        self._learn(*file.numbered())

    def current(self) -> Mapping[bytes, NamedKey] | None:
        """By their digests, as of now; the same object until something changes. None: no key is required. Empty: the
        last one was revoked, and every request is refused, also after a restart, until the file is deleted."""
        stamp = self._file.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._read_again()
        return self._by_digest if self._closed else None

    def named(self, name: str) -> NamedKey | None:
        """As it was when somebody last asked for all."""
        return self._by_name.get(name)

    def _learn(self, serial: int, keys: Keys) -> None:
        self._by_digest = {bytes.fromhex(key.digest): key for key in keys}
        self._by_name = {key.name: key for key in keys}
        # A cluster's copy without a key and a change says that the cluster never had a key.
        there = self._stamp is not None and (serial > 0 or self._file.path.name != CLUSTER_COPY)
        self._closed = self._closed or there or bool(keys)

    def _read_again(self) -> None:
        try:
            serial, keys = self._file.numbered()
        except GatewayError as problem:
            log.error("the keys that were known go on working: %s", problem)
            return
        self._learn(serial, keys)
        log.info("the gateway's keys have changed: there are %d with a name", len(keys))
