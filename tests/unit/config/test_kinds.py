"""How values are written, what is said about bad ones, and how they are shown."""

import os
from pathlib import Path

import pytest

from caretway.config import ConfigError, load
from caretway.config.kinds import show_duration, show_size
from caretway.config.quirks import Quirks

HOME = {"HOME": "/home/ada"}

VALUES = [
    ("parked_timeout", "90", 90.0),
    ("parked_timeout", "90s", 90.0),
    ("parked_timeout", "15m", 900.0),
    ("parked_timeout", "2 h", 7200.0),
    ("parked_timeout", "7d", 604800.0),
    ("parked_timeout", "1.5m", 90.0),
    ("parked_timeout", 90, 90.0),
    ("mcp_start_wait", "150ms", 0.15),
    ("mcp_start_wait", 0, 0.0),
    ("mcp_start_wait", ".5", 0.5),
    ("auth_check_timeout", "5000", 5000),
    ("auth_check_timeout", "2s", 2000),
    ("auth_check_timeout", 250, 250),
    ("max_body_bytes", "64MiB", 64 * 2**20),
    ("max_body_bytes", "200kB", 200_000),
    ("max_body_bytes", "1.5KiB", 1536),
    ("max_body_bytes", 4096, 4096),
    ("models", "a, b,,a", ("a", "b")),
    ("models", ["a,b", "c"], ("a", "b", "c")),
    ("model_aliases", "a=b, c=d", {"a": "b", "c": "d"}),
    ("model_aliases", ["a=b", "c=d=e"], {"a": "b", "c": "d=e"}),
    ("model_aliases", {"gpt-4": "x"}, {"gpt-4": "x"}),
    ("model_aliases", {"fast": ["x@effort=low,fast", "auto"]}, {"fast": "x@effort=low,fast|auto"}),
    ("model_aliases", "fast=x | auto,b=c", {"fast": "x|auto", "b": "c"}),
    ("strict_models", "yes", True),
    ("strict_models", "Off", False),
    ("backend", "SDK", "sdk"),
    ("agent_url", "http://127.0.0.1:9/", "http://127.0.0.1:9"),
    ("agent_url", "https://[::1]:9/base", "https://[::1]:9/base"),
    ("workspaces", os.pathsep.join(("/a", "/b,c")), (Path("/a"), Path("/b,c"))),
    ("workspaces", ["/a", "/b"], (Path("/a"), Path("/b"))),
    ("port", "0", 0),
    ("agent_quirks", "system=message, sibling-quiet=50ms", Quirks(system="message", sibling_quiet=0.05)),
    ("agent_quirks", ["limits=off", "model=both"], Quirks(limits=False, model="both")),
    ("agent_quirks", {"history": "typed"}, Quirks(history="typed")),
]


@pytest.mark.parametrize(("name", "given", "value"), VALUES)
def test_values(name: str, given: object, value: object) -> None:
    assert getattr(load({name: given}, HOME), name) == value


BAD_VALUES = [
    ("port", "abc", "a whole number from 0 to 65535"),
    ("port", 65536, "from 0 to 65535"),
    ("port", "-1", "from 0 to 65535"),
    ("port", True, "a whole number"),
    ("port", 1.5, "a whole number"),
    ("max_parked", "0", "of at least 1"),
    ("parked_timeout", "0", "a duration of more than 0"),
    ("parked_timeout", "-3", "a duration"),
    ("parked_timeout", "3 weeks", "a duration"),
    ("parked_timeout", float("nan"), "a duration"),
    ("parked_timeout", float("inf"), "a duration"),
    ("parked_timeout", 10**400, "a duration"),
    ("parked_timeout", True, "a duration"),
    ("parked_timeout", "٣", "a duration"),
    ("auth_check_timeout", "0", "milliseconds"),
    ("max_body_bytes", "1.5B", "a size of at least 1KiB"),
    ("max_body_bytes", "64mib", "a size"),
    ("max_body_bytes", "12", "a size"),
    ("strict_models", "maybe", "true or false"),
    ("strict_models", 1, "true or false"),
    ("backend", "agnt", 'one of auto, sdk, cli, agent, legacy-chat, simulator; did you mean "agent"?'),
    ("session", 3, "one of auto, fresh, required"),
    ("agent_url", "api2.cursor.sh", "an http:// or https:// address"),
    ("agent_url", "ftp://x", "an http:// or https:// address"),
    ("agent_url", "http://x:port", "an http:// or https:// address"),
    ("agent_url", "http://[::1", "an http:// or https:// address"),
    ("models", 3, "a list"),
    ("models", [3], "a list"),
    ("model_aliases", "a", "a table"),
    ("model_aliases", {"a": 3}, "a table"),
    ("model_aliases", {"a": []}, "a table"),
    ("model_aliases", {"a": ["b", ""]}, "a table"),
    ("model_aliases", {"a": ["b"] * 5}, "a list of up to 4"),
    ("host", " ", "text that is not empty"),
    ("workspace", 3, "a directory"),
    ("agent_quirks", "systm=message", "the names are system, "),
    ("agent_quirks", "system=loud", "pairs as in system=message"),
]


@pytest.mark.parametrize(("name", "given", "expected"), BAD_VALUES)
def test_bad_values_are_described(name: str, given: object, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({name: given}, HOME)
    assert caught.value.key == name
    assert str(caught.value).startswith(f"flag --{name.replace('_', '-')}: {name}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.15, "0.15s"), (0, "0s"), (90, "90s"), (60, "1m"), (5400, "90m"), (604800, "7d")]
)
def test_durations_are_shown_short(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(1, "1B"), (1000, "1kB"), (1024, "1KiB"), (2**20, "1MiB"), (200_000, "200kB"), (1025, "1025B")]
)
def test_sizes_are_shown_short(count: int, shown: str) -> None:
    assert show_size(count) == shown
