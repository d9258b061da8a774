"""Three hosts and a short form for all of them."""

from typing import Any

import pytest

from caretway.config import Hosts, Settings, hosts

CURSOR = "https://api2.cursor.sh"
SITE = "https://cursor.com"
S, A, R = "http://stand-in:1", "https://api.example", "https://run.example"

CASES: list[tuple[str, dict[str, Any], Hosts]] = [
    ("Cursor itself", {}, Hosts(SITE, CURSOR, CURSOR, stand_in=False, run_fixed=False)),
    ("the short form is all three", {"agent_url": S}, Hosts(S, S, S, stand_in=True, run_fixed=False)),
    ("a team's host for runs", {"run_url": R}, Hosts(SITE, CURSOR, R, stand_in=False, run_fixed=True)),
    ("the API alone takes the rest along", {"api_url": A}, Hosts(A, A, A, stand_in=True, run_fixed=False)),
    ("API and short form", {"api_url": A, "agent_url": S}, Hosts(A, A, S, stand_in=True, run_fixed=True)),
    (
        "each its own",
        {"api_url": A, "run_url": R},
        Hosts(A, A, R, stand_in=True, run_fixed=True),
    ),
    (
        "Cursor itself, in short",
        {"agent_url": CURSOR, "origins": {"agent_url": "flag"}},
        Hosts(SITE, CURSOR, CURSOR, stand_in=False, run_fixed=False),
    ),
    ("Cursor's API", {"api_url": f"{CURSOR}/"}, Hosts(SITE, CURSOR, CURSOR, stand_in=False, run_fixed=False)),
    ("the same twice", {"run_url": CURSOR}, Hosts(SITE, CURSOR, CURSOR, stand_in=False, run_fixed=False)),
]


@pytest.mark.parametrize(("given", "found"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_hosts(given: dict[str, Any], found: Hosts) -> None:
    assert hosts(Settings(**given)) == found


def test_who_answers() -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"run_url": "https://agentn.us.api5.cursor.sh"}, False),
        ({"run_url": "http://127.0.0.1:1"}, True),
        ({"run_url": "http://api2.cursor.sh"}, True),
        ({"run_url": "https://cursor.sh.example"}, True),
        ({"run_url": "https://notcursor.sh"}, True),
        ({"api_url": A, "run_url": CURSOR}, True),
        ({"agent_url": S}, True),
    ]
    for given, elsewhere in cases:
        assert hosts(Settings(**given)).answers_elsewhere is elsewhere, given
