"""Server definitions from our own settings and from the files of other programs."""

import json
from pathlib import Path
from typing import Any

import pytest

from caretway.core.errors import GatewayError
from caretway.mcp.definitions import Misfit, OAuthClient, Process, Remote, ServerDefinition
from caretway.mcp.sources import FoundServers, SourceContext, find, plain_json, servers_in

ENVIRON = {"TOKEN": "t0ken-value", "EMPTY": ""}


def around(directory: Path) -> SourceContext:
    return SourceContext(ENVIRON, directory / "home", directory / "work")


def own(tmp_path: Path, **servers: Any) -> FoundServers:
    return find({"servers": servers}, [], [], around(tmp_path))


def one(found: FoundServers) -> ServerDefinition:
    (definition,) = found.definitions
    return definition


def test_our_own_table(tmp_path: Path) -> None:
    found = own(
        tmp_path,
        files={"command": "npx", "args": ["-y", "x"], "env": {"A": "${TOKEN}"}, "cwd": "sub", "deny": ["write*"]},
        web={"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}, "read_only": True},
        off={"command": "x", "enabled": False},
    )
    files, web = found.definitions
    assert files.reached == Process("npx", ("-y", "x"), {"A": "t0ken-value"}, str(tmp_path / "work/sub"))
    assert files.deny == ("write*",)
    assert web.reached == Remote("https://example.com/mcp", {"Authorization": "Bearer t0ken-value"})
    assert web.read_only
    assert found.misfits == ()


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({}, "neither a command nor a url"),
        ({"comand": "x"}, "there is no key `comand`"),
        ({"command": "  "}, "its command is empty"),
        ({"command": {"a": 1}}, "`command` must be text or a list"),
        ({"command": "x", "args": "y"}, "`args` a list"),
        ({"command": "x", "env": []}, None),
        ({"command": "x", "env": [1]}, "`env` is not a table"),
        ({"url": "ftp://example.com"}, "does not begin with http://"),
        ({"url": "http://example.com", "transport": "stdio"}, "`stdio` cannot be used with a url"),
        ({"url": "http://example.com", "transport": "pigeon"}, "`pigeon` cannot be used"),
        ({"command": "x", "allow": "all"}, "`allow` must be a list"),
        ({"command": "x", "call_timeout": "5m"}, "`call_timeout` must be a number of seconds"),
        ({"command": "x", "call_timeout": 0}, "`call_timeout` must be a number of seconds"),
    ],
)
def test_a_mistake_in_our_own_table_is_said_at_once(tmp_path: Path, server: dict[str, Any], said: str | None) -> None:
    if said is None:
        own(tmp_path, a=server)
        return
    with pytest.raises(GatewayError) as mistake:
        own(tmp_path, a=server)
    assert "[mcp.servers.a]" in mistake.value.message
    assert said in mistake.value.message


def test_other_mistakes_in_the_settings(tmp_path: Path) -> None:
    for table, said in (({"time": {}}, "[mcp] has no key `time`"), ({"servers": [1]}, "[mcp.servers] is not a table")):
        with pytest.raises(GatewayError) as mistake:
            find(table, [], [], around(tmp_path))
        assert said in mistake.value.message
    with pytest.raises(GatewayError, match="there is no `emacs`"):
        find({}, [], ["emacs"], around(tmp_path))


def test_a_variable_that_is_not_set_is_a_misfit_and_no_mistake(tmp_path: Path) -> None:
    found = own(tmp_path, a={"command": "x", "env": {"K": "${NOT_THERE}"}}, b={"command": "y"})
    assert found.misfits == (Misfit("a", "settings", "the environment variable NOT_THERE is not set"),)
    assert one(found).name == "b"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${TOKEN}", "t0ken-value"),
        ("${env:TOKEN}", "t0ken-value"),
        ("{env:TOKEN}", "t0ken-value"),
        ("a-${TOKEN}-b", "a-t0ken-value-b"),
        ("${NOT_THERE:-else}", "else"),
        ("${EMPTY:-else}", "else"),
        ("$TOKEN and {TOKEN}", "$TOKEN and {TOKEN}"),
        ("${workspaceFolder}/x", "{work}/x"),
        ("${userHome}/x", "{home}/x"),
    ],
)
def test_references(tmp_path: Path, written: str, read: str) -> None:
    reached = one(own(tmp_path, a={"command": "x", "args": [written]})).reached
    assert isinstance(reached, Process)
    assert reached.args == (read.replace("{work}", str(tmp_path / "work")).replace("{home}", str(tmp_path / "home")),)


FILES: list[tuple[str, dict[str, Any]]] = [
    ("opencode.json", {"mcpServers": {"a": {"command": "x", "args": ["y"]}}}),
    ("opencode.json", {"mcp": {"a": {"type": "local", "command": ["x", "y"], "environment": {}, "enabled": True}}}),
    (".mcp.json", {"mcpServers": {"a": {"type": "stdio", "command": "x", "args": ["y"], "env": {}}}}),
    ("mcp.json", {"servers": {"a": {"type": "stdio", "command": "x", "args": ["y"]}}}),
]


@pytest.mark.parametrize(("name", "table"), FILES)
def test_files_that_people_have(tmp_path: Path, name: str, table: dict[str, Any]) -> None:
    file = tmp_path / name
    file.write_text(json.dumps(table))
    definition = one(find({}, [file], [], around(tmp_path)))
    assert (definition.name, definition.reached, definition.origin) == ("a", Process("x", ("y",)), str(file))


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"type": "remote", "url": "http://h/x"}, "auto"),
        ({"type": "http", "url": "http://h/x"}, "http"),
        ({"type": "streamable-http", "url": "http://h/x"}, "http"),
        ({"type": "sse", "url": "http://h/x"}, "sse"),
        ({"url": "http://h/x"}, "auto"),
        ({"serverUrl": "http://h/x"}, "auto"),
    ],
)
def test_addresses_as_other_programs_write_them(tmp_path: Path, entry: dict[str, Any], transport: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": entry, "off": {**entry, "disabled": True}}}))
    assert one(find({}, [file], [], around(tmp_path))).reached == Remote("http://h/x", {}, transport)  # type: ignore[arg-type]  # from the table


def test_a_bad_entry_in_a_file_is_a_misfit(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"command": ""}, "b": {"command": "x", "whatever": 1}, "c": 5}}))
    found = find({}, [file], [], around(tmp_path))
    assert one(found).name == "b"
    assert found.misfits == (Misfit("a", str(file), "it has neither a command nor a url"),)


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_file_that_was_named_must_be_readable(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(GatewayError, match=str(file)):
        find({}, [file], [], around(tmp_path))
    with pytest.raises(GatewayError, match="cannot be read"):
        find({}, [tmp_path / "missing.json"], [], around(tmp_path))


def test_toml_files(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text('[mcp.servers.a]\ncommand = "x"\nargs = ["y"]\n')
    assert one(find({}, [file], [], around(tmp_path))).reached == Process("x", ("y",))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, OAuthClient()),
        (True, OAuthClient()),
        (False, None),
        ({"client_id": "a", "client_secret": "${S}", "callback_port": 9}, OAuthClient("a", "secret", 9)),
        ({"clientId": "a", "callbackPort": 9}, OAuthClient("a", "", 9)),
        ({"client_id": 3}, "must be text"),
        ({"client_secret": "x"}, "without a `client_id`"),
        ({"callback_port": 70000}, "number of a port"),
        ("yes", "must be a table, or false"),
    ],
)
def test_a_client_that_is_registered_already(tmp_path: Path, given: object, read: OAuthClient | str | None) -> None:
    surroundings = SourceContext({"S": "secret"}, tmp_path, tmp_path)
    own: dict[str, object] = {"servers": {"a": {"url": "https://h/mcp", "oauth": given}}}
    if isinstance(read, str):
        with pytest.raises(GatewayError, match=read):
            find(own, [], [], surroundings)
        return
    definition = one(find(own, [], [], surroundings))
    assert isinstance(definition.reached, Remote)
    assert definition.reached.oauth == read
    assert definition.reached.signs_in == (read is not None)
    assert "secret" not in repr(definition)


def test_a_header_with_credentials_is_used_as_it_is() -> None:
    assert not Remote("https://h/mcp", {"authorization": "Bearer x"}).signs_in


def test_the_command_names_the_file() -> None:
    assert (
        ServerDefinition("my notes", Remote("https://h"), "settings").login_command == "caretway mcp login 'my notes'"
    )
    named = ServerDefinition("notes", Remote("https://h"), "/a b/.mcp.json").login_command
    assert named == "caretway mcp login notes --mcp-config '/a b/.mcp.json'"


def test_imports_from_the_usual_places(tmp_path: Path) -> None:
    def write(place: str, table: dict[str, Any] | str) -> None:
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(table if isinstance(table, str) else json.dumps(table))

    project = {str(tmp_path / "work"): {"mcpServers": {"of-project": {"command": "p"}}}}
    write("work/.mcp.json", {"mcpServers": {"shared": {"command": "near"}}})
    write("home/.claude.json", {"mcpServers": {"shared": {"command": "far"}}, "projects": project})
    write("home/.cursor/mcp.json", {"mcpServers": {"of-cursor": {"command": "c"}}})
    write("home/.config/opencode/opencode.jsonc", '{"mcp": {"of-opencode": {"command": ["o"],},}, /* x */ }')
    write("work/opencode.json", "this is broken")
    found = find(
        {"servers": {"of-cursor": {"command": "ours"}}}, [], ["claude", "cursor", "opencode"], around(tmp_path)
    )
    commands = {one.name: one.reached.command for one in found.definitions if isinstance(one.reached, Process)}
    assert commands == {"of-cursor": "ours", "shared": "near", "of-project": "p", "of-opencode": "o"}
    assert [misfit.name for misfit in found.misfits] == ["opencode.json"]


@pytest.mark.seed("K01")
def test_what_a_project_names_is_found_when_the_settings_say_so(tmp_path: Path) -> None:
    files = {
        "opencode.json": ("mcp", "one", ["o"]),
        ".mcp.json": ("mcpServers", "two", "m"),
        ".cursor/mcp.json": ("mcpServers", "three", "c"),
    }
    for place, (key, name, command) in files.items():
        path = tmp_path / "work" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: {name: {"command": command}}}))
    named = [one.name for one in find({}, [], ["workspace"], around(tmp_path)).definitions]
    assert named == ["one", "two", "three"]
    assert find({}, [], [], around(tmp_path)).definitions == (), "a project does not start programs by itself"
    assert find({}, [], [], around(tmp_path)) == FoundServers()


def test_strange_tables_hold_no_servers() -> None:
    tables: list[dict[str, object]] = [{}, {"mcp": 3}, {"mcpServers": []}, {"projects": 1}, {"servers": {"a": 1}}]
    for table in tables:
        assert servers_in(table, Path("/")) == {}


def test_comments_and_commas() -> None:
    text = '{"a": "// no /* comment */ ,}", // one\n "b": [1, 2,], /* two\n */ "c": {"d": 1 , // x\n },}'
    assert json.loads(plain_json(text)) == {"a": "// no /* comment */ ,}", "b": [1, 2], "c": {"d": 1}}


def test_what_came_from_the_environment_stays_out_of_words(tmp_path: Path) -> None:
    surroundings = SourceContext({"TOKEN": "t0ken-value", "HOME": "/home/me"}, tmp_path, tmp_path)
    server = {"command": "run", "args": ["--key=${TOKEN}", "${HOME}/notes"]}
    assert one(find({"servers": {"a": server}}, [], [], surroundings)).place == "run --key=*** /home/me/notes"


def test_secrets_stay_out_of_words() -> None:
    process = ServerDefinition("a", Process("run", ("--key", "abcdef-123"), {"KEY": "abcdef-123", "DEBUG": "1"}))
    assert process.place == "run --key ***"
    assert "abcdef-123" not in repr(process.reached).replace("'abcdef-123')", "")  # the variables are not shown
    remote = ServerDefinition(
        "b", Remote("https://me:passw0rd@h:8/p?key=sesame-1", {"Authorization": "Bearer abcdefg"})
    )
    assert remote.place == "https://h:8"
    assert remote.hide("401 for https://h/?key=sesame-1 with abcdefg") == "401 for https://h/?*** with ***"
    keyed = ServerDefinition("c", Remote("https://h/s/0123456789abcdef0/mcp"))
    assert keyed.hide("cannot reach https://h/s/0123456789abcdef0/mcp") == "cannot reach https://h/s/***/mcp"
    assert "sesame" not in repr(remote)
    assert "abcdefg" not in repr(remote)
