"""Keys with a name, on a gateway that runs: made, renamed and revoked by the command while clients ask."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from caretway.config import Settings
from caretway.gateway import Gateway
from caretway.usage.key_file import KeyFile, added
from contract.gateways import gateway

HELLO = "sim: say hello"


def caretway(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "caretway", "key", *words, "--data-dir", str(data)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def code(answer: Any) -> tuple[int, str]:
    return answer.status, answer.error["code"]


async def test_a_key_from_its_making_to_its_end(tmp_path: Path) -> None:
    async with gateway(data_dir=tmp_path) as client:
        assert (await client.chat(HELLO)).text == "hello", "without keys nobody needs one"
        made = caretway(tmp_path, "new", "--name", "opencode")
        key = made.stdout.strip()
        assert key.startswith("cw-")
        assert "asks every client for a key" in made.stderr
        assert code(await client.chat(HELLO)) == (401, "invalid_api_key")
        assert code(await client.chat(HELLO, headers=bearer(key + "x"))) == (401, "invalid_api_key")
        for headers in (bearer(key), {"x-api-key": key}, {"x-caretway-key": key, "authorization": "Bearer none"}):
            assert (await client.chat(HELLO, headers=headers)).text == "hello"
        assert key not in (tmp_path / "keys.json").read_text()

        other = caretway(tmp_path, "new", "--name", "codex").stdout.strip()
        assert caretway(tmp_path, "rename", "opencode", "oc").returncode == 0
        assert (await client.chat(HELLO, headers=bearer(key))).text == "hello"
        assert caretway(tmp_path, "revoke", "oc").returncode == 0
        assert code(await client.chat(HELLO, headers=bearer(key))) == (401, "invalid_api_key")
        assert (await client.chat(HELLO, headers=bearer(other))).text == "hello"

        last = caretway(tmp_path, "revoke", "codex")
        assert "the last one" in last.stderr
        assert code(await client.chat(HELLO)) == (401, "invalid_api_key")
    async with gateway(data_dir=tmp_path) as client:
        assert code(await client.chat(HELLO)) == (401, "invalid_api_key"), "a restart does not open it"
    file = tmp_path / "keys.json"
    assert f"delete {file}" in last.stderr
    file.unlink()
    async with gateway(data_dir=tmp_path) as client:
        assert (await client.chat(HELLO)).text == "hello"


async def test_keys_without_a_name_go_on_working(tmp_path: Path) -> None:
    file = tmp_path / "nameless"
    file.write_text("cw-a-key-that-has-no-name\n")
    data = tmp_path / "data"
    async with gateway(data_dir=data, api_key_file=file, gateway_key="cw-another-without-name") as client:
        named = caretway(data, "new", "--name", "anna").stdout.strip()
        for key in ("cw-a-key-that-has-no-name", "cw-another-without-name", named):
            assert (await client.chat(HELLO, headers=bearer(key))).text == "hello"


async def test_an_expired_key_is_told_so(tmp_path: Path) -> None:
    KeyFile(tmp_path).change(lambda keys: added(keys, "cw-the-key-of-yesterday", "anna", 1.0, expires_at=2.0))
    async with gateway(data_dir=tmp_path) as client:
        answer = await client.chat(HELLO, headers=bearer("cw-the-key-of-yesterday"))
        assert code(answer) == (401, "key_expired")
        assert answer.error is not None
        assert "anna has expired" in answer.error["message"]
        assert client.stats()["runs_opened"] == 0


async def test_a_named_key_is_enough_to_listen_for_others(tmp_path: Path) -> None:
    key = caretway(tmp_path, "new", "--name", "anna").stdout.strip()
    settings = Settings(host="0.0.0.0", port=0, backend="simulator", data_dir=tmp_path)
    async with Gateway(settings) as open_to_all:
        port = open_to_all.base_url.rpartition(":")[2]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            assert (await http.get("/v1/models")).status_code == 401
            assert (await http.get("/v1/models", headers=bearer(key))).status_code == 200


def test_the_command_tells_what_is_wrong(tmp_path: Path) -> None:
    assert caretway(tmp_path, "new", "--name", "anna").returncode == 0
    for words, exit_code, said in (
        (("new", "--name", "ANNA"), 1, "already"),
        (("new", "--name", "a b"), 1, "letters, digits"),
        (("new", "--expires", "3d"), 2, "keys with a name"),
        (("new", "--budget", "runs=5"), 2, "keys with a name"),
        (("new", "--name", "bob", "--budget", "runs=5/week"), 2, '"week" is not one of day, month, all'),
        (("new", "--name", "bob", "--budget", "everybody.runs=5"), 2, "--budgets"),
        (("new", "--name", "bob", "--budget", ""), 2, "--budget is empty"),
        (("new", "--name", "bob", "--budget", "runs=5", "--models", ", "), 2, "--models is empty"),
        (("new", "--name", "bob", "--workspace", "/nowhere/at/all"), 2, "not an existing directory"),
        (("new", "--name", "bob", "--expires", "soon"), 2, '"soon" is no time'),
        (("new", "--name", "bob", "--expires", "2020-01-01"), 2, "in the past"),
        (("revoke", "bob"), 1, "There is no key named bob. Known names: anna."),
        (("revoke",), 2, "revoke takes the name of a key"),
        (("rename", "anna"), 2, "rename takes"),
        (("list", "--name", "x"), 2, "--name is for `caretway key new`"),
    ):
        done = caretway(tmp_path, *words)
        assert (done.returncode, done.stdout) == (exit_code, ""), words
        assert said in done.stderr, words


async def test_a_key_uses_the_models_it_was_made_for(tmp_path: Path) -> None:
    key = caretway(tmp_path, "new", "--name", "anna", "--models", "sim-fast,sim-think*").stdout.strip()
    async with gateway(data_dir=tmp_path, model_aliases={"cheap": "sim-fast", "dear": "sim-auto"}) as client:
        for model in ("sim-fast", "SIM-FAST", "cheap"):
            assert (await client.chat(HELLO, model=model, headers=bearer(key))).status == 200, model
        for model in ("sim-auto", "dear"):
            refused = await client.chat(HELLO, model=model, headers=bearer(key))
            assert code(refused) == (403, "model_not_allowed"), model
            assert refused.error is not None
            assert "It may use: sim-fast, sim-think*." in refused.error["message"]
        listed = (await client.http.get("/v1/models", headers=bearer(key))).json()["data"]
        names = {model["id"] for model in listed}
        assert "sim-fast" in names
        assert not names & {"sim-auto", "dear"}
        assert (await client.http.get("/v1/models/sim-auto", headers=bearer(key))).status_code == 404
        assert client.stats()["runs_opened"] == 3


async def test_a_workspace_that_belongs_to_a_key(tmp_path: Path) -> None:
    own, others, data = (tmp_path / name for name in ("own", "others", "data"))
    for folder, word in ((own, "mine"), (others, "theirs")):
        (folder / "sub").mkdir(parents=True)
        (folder / "note.txt").write_text(word)
    key = caretway(data, "new", "--name", "anna", "--workspace", str(own)).stdout.strip()
    plain = caretway(data, "new", "--name", "bob").stdout.strip()
    read = [{"role": "user", "content": 'sim: exec read {"path": "note.txt"}\nsim: result'}]
    async with gateway(data_dir=data, workspace=others) as client:
        assert "mine" in (await client.chat(read, headers=bearer(key))).text
        assert "theirs" in (await client.chat(read, headers=bearer(plain))).text
        inside = await client.chat(read, headers=bearer(key) | {"x-caretway-workspace": "sub"})
        assert inside.status == 200
        for wish in (str(others), "..", "/"):
            refused = await client.chat(read, headers=bearer(key) | {"x-caretway-workspace": wish})
            assert refused.status == 403, wish


async def test_the_list_shows_last_use_and_totals(tmp_path: Path) -> None:
    key = caretway(tmp_path, "new", "--name", "anna", "--budget", "runs=50/day").stdout.strip()
    caretway(tmp_path, "new", "--name", "bob", "--expires", "30d")
    async with gateway(data_dir=tmp_path) as client:
        for _ in range(3):
            assert (await client.chat(HELLO, headers=bearer(key))).status == 200
    told = json.loads(caretway(tmp_path, "list", "--json").stdout)["keys"]
    assert [(one["name"], one["runs"], one["tokens"]) for one in told] == [("anna", 3, 42), ("bob", 0, 0)]
    assert told[0]["last_used_at"] > told[0]["made_at"] - 1
    assert told[0]["budgets"][0]["spent"] == 3
    shown = caretway(tmp_path, "list").stdout
    assert "  now  " in shown and "3 of 50 runs today (6 %)" in shown and "never" in shown


async def test_a_turn_belongs_to_the_key_that_opened_it(tmp_path: Path) -> None:
    """A key that learns another one's ticket and history begins a run of its own, and leaves the other one alone."""
    async with gateway(data_dir=tmp_path) as client:
        mine, other = (bearer(caretway(tmp_path, "new", "--name", name).stdout.strip()) for name in ("mine", "other"))
        tool = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
        asked: list[Any] = [{"role": "user", "content": "sim: call look {}\nsim: say done"}]
        answer = await client.chat(asked, tools=tool, headers=mine)
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in answer.calls]
        history = [*asked, answer.message, *results]
        stolen = await client.chat(history, tools=tool, headers=other)
        assert (stolen.session, client.stats()["runs_opened"]) == ("replayed", 2)
        resumed = await client.chat(history, tools=tool, headers=mine)
        assert (resumed.session, resumed.text, client.stats()["runs_opened"]) == ("resumed", "done", 2)
        said = [{"role": "user", "content": "sim: say one"}]
        following = [
            *said,
            (await client.chat(said, headers=mine)).message,
            {"role": "user", "content": "sim: say two"},
        ]
        assert (await client.chat(following, headers=other)).session == "replayed"
        assert caretway(tmp_path, "rename", "mine", "still-mine").returncode == 0
        assert (await client.chat(following, headers=mine)).session == "continued"


async def test_metrics_show_a_key_its_own_rows(tmp_path: Path) -> None:
    async with gateway(data_dir=tmp_path) as client:
        keys = {
            name: bearer(caretway(tmp_path, "new", "--name", name, *more).stdout.strip())
            for name, more in (("ada", ()), ("ben", ()), ("seeing", ("--page",)))
        }
        for name, model in (("ada", "sim-auto"), ("ben", "sim-think")):
            assert (await client.chat(HELLO, model=model, headers=keys[name])).text == "hello"
        told = {name: (await client.http.get("/metrics", headers=key)).text for name, key in keys.items()}
        assert 'key="ada"' in told["ada"] and "caretway_tokens_total{" in told["ada"]
        assert "ben" not in told["ada"] and "sim-think" not in told["ada"] and "process_" not in told["ada"]
        assert 'key="ada"' in told["seeing"] and 'key="ben"' in told["seeing"] and "sim-think" in told["seeing"]


async def test_a_limited_key_does_not_change_settings(tmp_path: Path) -> None:
    """An alias of a name on its list would lead it to a model that is not."""
    file = tmp_path / "config.toml"
    file.write_text("# mine\n")
    async with gateway(data_dir=tmp_path, config=file) as client:
        path = "/caretway/v1/settings/model_aliases"
        limits: dict[str, tuple[str, ...]] = {
            "models": ("--models", "sim-fast"),
            "budget": ("--budget", "runs=1/day"),
            "free": (),
        }
        for name, more in limits.items():
            key = bearer(caretway(tmp_path, "new", "--name", name, "--page", *more).stdout.strip())
            answer = await client.http.put(path, json={"value": "sim-fast=sim-think"}, headers=key)
            if name == "free":
                assert answer.status_code == 200, answer.text
            else:
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "settings_not_allowed"), (
                    answer.text
                )
                assert file.read_text() == "# mine\n"
