"""A data directory that 0.1 left is taken over: its sign-in and its file of conversations, with nothing set aside.

`tests/data/data_dir_0.1` was written by the first 0.1 that could sign in (commit 96a7fbe): `caretway login
--api-key-stdin` at a simulator on port 32897, and one turn. Its conversations were found by another digest than
today's: the client's history is replayed once, and the conversation is continued from then on.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx

from caretway import Gateway, Settings

from .gateways import Answer, simulated, whole

LEFT = Path(__file__).parents[1] / "data" / "data_dir_0.1"
OLD_URL = "http://127.0.0.1:32897"


async def ask(http: httpx.AsyncClient, *said: str) -> Answer:
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(said)]
    return whole(await http.post("/v1/chat/completions", json={"model": "sim-auto", "messages": messages}))


async def test_sign_in_and_conversations_of_the_first_release(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(LEFT, data)
    async with simulated() as (_, port):
        accounts = data / "auth" / "accounts.json"
        accounts.write_text(accounts.read_text().replace(OLD_URL, f"http://127.0.0.1:{port}"))
        settings = Settings(port=0, agent_url=f"http://127.0.0.1:{port}", data_dir=data)
        async with (
            Gateway(settings) as gateway,
            httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, verify=False) as http,
        ):
            health = (await http.get("/health")).json()
            assert (health["auth"], health["backend"]["name"]) == ("authenticated", "agent")
            opened = "sim: say The codeword is EGRET"
            told = ["The codeword is EGRET", "sim: recall"]
            answer = await ask(http, opened, *told)
            assert answer.session == "replayed"
            assert "EGRET" in answer.text
            answer = await ask(http, opened, *told, answer.text, "sim: recall")
            assert (answer.session, answer.text[:1]) == ("continued", "2")
    with closing(sqlite3.connect(data / "conversations.sqlite")) as store:
        (kept,) = store.execute("SELECT count(*) FROM conversations").fetchone()
    assert kept >= 2, "what 0.1 kept is still there"
    assert not list(data.glob("*.sqlite.*")), "no file was set aside"
