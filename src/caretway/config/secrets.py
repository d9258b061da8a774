"""The secrets in the settings: the gateway's keys and their file, a cluster's key, tokens, Cursor keys.

Clients are checked against the gateway's keys; logs and recordings omit every secret.
"""

from typing import Final
from urllib.parse import unquote, urlsplit

from .kinds import ConfigError
from .settings import SETTINGS, Settings

MIN_KEY_CHARS: Final = 16


def read_keys(text: str) -> tuple[str, ...]:
    """The keys of a file, one on each line, without empty lines and lines that begin with #."""
    lines = (line.strip() for line in text.splitlines())
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ValueError("there is no key in it")
    for key in keys:
        check_key(key)
    return keys


def check_key(key: str) -> str:
    if len(key) < MIN_KEY_CHARS or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"a key is at least {MIN_KEY_CHARS} printable ASCII characters without spaces")
    return key


def gateway_keys(settings: Settings) -> tuple[str, ...]:
    """The keys that clients may send. Raises ConfigError if a key is too weak to protect anything."""
    keys: list[str] = []
    if settings.gateway_key is not None:
        try:
            keys.append(check_key(settings.gateway_key))
        except ValueError as problem:
            raise ConfigError("gateway_key", settings.origin("gateway_key"), f"gateway_key: {problem}") from None
    if settings.api_key_file is not None:
        try:
            keys += read_keys(settings.api_key_file.read_text("ascii"))
        except UnicodeDecodeError:
            raise _bad_file(settings, "it is not ASCII text") from None
        except OSError as failure:
            raise _bad_file(settings, failure.strerror or str(failure)) from failure
        except ValueError as problem:
            raise _bad_file(settings, str(problem)) from None
    return tuple(keys)


def _bad_file(settings: Settings, problem: str) -> ConfigError:
    text = f"api_key_file: {settings.api_key_file} cannot be used: {problem}"
    return ConfigError("api_key_file", settings.origin("api_key_file"), text)


def cluster_key(settings: Settings) -> str:
    """The secret that the gateways of a cluster share. Raises ConfigError if it is missing or too weak."""
    named, key = "cluster_key", settings.cluster_key
    if key is None and settings.cluster_key_file is not None:
        named = "cluster_key_file"
        try:
            key = settings.cluster_key_file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as failure:
            problem = f"cluster_key_file: {settings.cluster_key_file} cannot be used: {failure}"
            raise ConfigError(named, settings.origin(named), problem) from None
    if key is None:
        problem = (
            "cluster is set, and there is no cluster_key: the gateways of a cluster share one. `caretway key new` "
            "makes one; give it to all of them as CARETWAY_CLUSTER_KEY, or in a file (--cluster-key-file)"
        )
        raise ConfigError(named, settings.origin("cluster"), problem)
    try:
        return check_key(key)
    except ValueError as problem:
        raise ConfigError(named, settings.origin(named), f"{named}: {problem}") from None


def _cluster_secrets(settings: Settings) -> tuple[str, ...]:
    if settings.cluster is None:
        return ()
    password = unquote(urlsplit(settings.cluster).password or "")
    try:
        return (password, cluster_key(settings))
    except ConfigError:
        return (password,)


def secrets_in(settings: Settings) -> tuple[str, ...]:
    """Every secret text of the settings. (MCP servers hide the values in their own tables.)"""
    named = [getattr(settings, setting.name) for setting in SETTINGS if setting.secret]
    try:
        keys = gateway_keys(settings)
    except ConfigError:
        keys = ()
    found = (*named, *_cluster_secrets(settings))
    return (*(value for value in found if isinstance(value, str) and value), *keys)
