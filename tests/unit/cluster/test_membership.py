"""Settings of a cluster: its key, its address, what is refused; and that a single gateway imports nothing of it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caretway.cluster.membership import own_address
from caretway.config import ConfigError, Settings
from caretway.config.kinds import show_redis_url
from caretway.config.secrets import cluster_key, secrets_in

HERE = "http://127.0.0.1:32124"
REDIS = "redis://127.0.0.1:6379/0"
KEY = "cw-0123456789abcdefghij"

ADDRESSES: list[tuple[dict[str, Any], str, str]] = [
    ({}, HERE, HERE),
    ({"cluster_address": "https://gw-1.example:32124"}, "https://0.0.0.0:32124", "https://gw-1.example:32124"),
    ({"cluster_address": "http://10.0.0.7:1", "cluster_plaintext": True}, HERE, "http://10.0.0.7:1"),
    ({"cluster_address": "http://localhost:1"}, HERE, "http://localhost:1"),
]


@pytest.mark.parametrize(("given", "base_url", "address"), ADDRESSES)
def test_how_the_others_reach_it(given: dict[str, Any], base_url: str, address: str) -> None:
    assert own_address(Settings(cluster=REDIS, **given), base_url) == address


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "http://0.0.0.0:32124", "--cluster-address http://NAME:32124"),
    ({}, "http://10.0.0.7:32124", "--cluster-plaintext"),
    ({"cluster_address": "http://gw-1.example:1"}, HERE, "--tls-cert"),
]


@pytest.mark.parametrize(("given", "base_url", "words"), REFUSED)
def test_an_address_that_would_not_do(given: dict[str, Any], base_url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        own_address(Settings(cluster=REDIS, **given), base_url)


def test_the_key_comes_from_a_variable_or_a_file_and_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    assert cluster_key(Settings(cluster=REDIS, cluster_key=KEY)) == KEY
    assert cluster_key(Settings(cluster=REDIS, cluster_key_file=file)) == KEY
    with pytest.raises(ConfigError, match="caretway key new"):
        cluster_key(Settings(cluster=REDIS))
    with pytest.raises(ConfigError, match="at least"):
        cluster_key(Settings(cluster=REDIS, cluster_key="short"))


def test_passwords_are_known_as_secrets_and_not_shown() -> None:
    settings = Settings(cluster="rediss://user:p%40ss@redis.example/0", cluster_key=KEY)
    assert {"p@ss", KEY} <= set(secrets_in(settings))
    assert show_redis_url(settings.cluster or "") == "rediss://user:...@redis.example/0"
    assert "p%40ss" not in repr(settings) and KEY not in repr(settings)


def test_a_single_gateway_imports_nothing_of_it() -> None:
    """Nor Redis, nor what encrypts."""
    code = """
import asyncio, sys
import caretway.cli.main, caretway.cli.serve
from caretway.gateway import Gateway
async def main():
    async with Gateway.simulated():
        print(*sorted(name for name in sys.modules if name.split('.')[0] in BESIDE or 'cluster' in name))
BESIDE = ('redis', 'hiredis', 'valkey', 'cryptography')
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_single_gateway_does_not_need_it(tmp_path: Path) -> None:
    """Neither Redis nor what encrypts can be imported: only one with `cluster` minds, and says what to type."""
    for name in ("redis", "cryptography"):
        (tmp_path / f"{name}.py").write_text("raise ImportError(f'{__name__} is not here')\n")
    code = """
import asyncio, sys
from caretway.gateway import Gateway
async def main():
    async with Gateway.simulated(**({'cluster': sys.argv[1], 'cluster_key': 'k' * 32} if sys.argv[1:] else {})):
        print('serves')
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    alone = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (alone.stdout, alone.returncode) == ("serves\n", 0), alone.stderr
    several = subprocess.run([*command, REDIS], capture_output=True, text=True, env=environment)
    assert several.returncode == 1 and "redis is not here. Type: " in several.stderr
