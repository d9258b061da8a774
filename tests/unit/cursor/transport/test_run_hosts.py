"""Which host of an answer may have our token. (Moving there, on sockets: tests/contract/test_hosts.py.)"""

import pytest

from caretway.cursor.transport.run_hosts import named_host
from caretway.cursor.wire.messages import ai

API = "https://api2.cursor.sh"

NAMED = [
    (API, "https://agentn.us.api5.cursor.sh", "https://agentn.us.api5.cursor.sh"),
    (API, " https://agentn.us.api5.cursor.sh/ ", "https://agentn.us.api5.cursor.sh"),
    (API, "http://agentn.us.api5.cursor.sh", ""),
    (API, "https://cursor.sh.example.com", ""),
    (API, "https://evilcursor.sh", ""),
    (API, "https://me:pw@agentn.cursor.sh", ""),
    (API, "agentn.us.api5.cursor.sh", ""),
    (API, "", ""),
    ("http://127.0.0.1:1", "http://127.0.0.1:2/agentn", "http://127.0.0.1:2/agentn"),
    ("http://127.0.0.1:1", "http://10.0.0.1:2", ""),
    ("http://127.0.0.1:1", "https://127.0.0.1:2", "https://127.0.0.1:2"),
    ("http://localhost:1", "http://localhost:1/agentn", "http://localhost:1/agentn"),
]


@pytest.mark.parametrize(("api", "named", "usable"), NAMED)
def test_named_hosts(api: str, named: str, usable: str) -> None:
    answer = ai.GetServerConfigResponse(agent_url_config=ai.AgentUrlConfig(agentn_url=named))
    assert named_host(api, answer.SerializeToString()) == usable


def test_an_answer_that_cannot_be_read() -> None:
    assert named_host(API, b"\xff\xff") == ""
    assert named_host(API, b"") == ""
