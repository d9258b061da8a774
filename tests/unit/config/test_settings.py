"""The table of settings: every row is complete, no names collide, and values given in code are checked."""

import dataclasses
import re

import pytest

from caretway.config import GROUPS, SETTINGS, ConfigError, Settings


def test_every_setting_has_help_a_group_and_names() -> None:
    for setting in SETTINGS:
        name = setting.name
        assert re.fullmatch(r"\S.{10,}\.", setting.help), name
        assert setting.group in GROUPS, name
        assert setting.shown_default(), name
        if setting.prefixed_env:
            assert setting.env_names[0] == "CARETWAY_" + name.upper()
        assert setting.flag == (None if setting.secret else "--" + name.replace("_", "-"))


def test_every_default_can_be_read_and_read_back() -> None:
    for setting in SETTINGS:
        if setting.default is not None:
            assert setting.read(setting.default, "default") == setting.default, setting.name
        shown = setting.show(setting.default)
        if shown and not setting.secret:
            assert setting.read(shown, "test") == setting.default, setting.name


def test_every_field_is_a_setting() -> None:
    assert [item.name for item in dataclasses.fields(Settings)] == [*(s.name for s in SETTINGS), "origins"]


def test_settings_are_few_and_the_advanced_ones_are_not_those_people_start_with() -> None:
    advanced = {setting.name for setting in SETTINGS if setting.advanced}
    assert len(advanced) <= 20 and len(SETTINGS) <= 100
    assert not advanced & {"host", "port", "backend", "api_key", "gateway_key", "config", "data_dir", "workspace"}
    assert "advanced" not in {setting.name for setting in SETTINGS}, "the name of the table is not a setting"


def test_no_two_settings_share_a_variable() -> None:
    names = [name for setting in SETTINGS for name in setting.env_names]
    assert len(names) == len(set(names))


@pytest.mark.seed("L04", "M01", "M02")
def test_the_names_people_already_use() -> None:
    legacy = {name: setting.name for setting in SETTINGS for name in setting.extra_env}
    assert legacy == {
        "HOST": "host",
        "PORT": "port",
        "TOOL_LOOP_MAX_REPEAT": "tool_loop_max_repeat",
        "KILO_TOOL_STRICT": "tool_strict",
        "CURSOR_ACP_AUTH_CHECK_TIMEOUT": "auth_check_timeout",
        "MODELS": "models",
        "CURSOR_API_KEY": "api_key",
        "CARETWAY_API_KEY": "gateway_key",
        "CURSOR_AGENT_BIN": "agent_bin",
    }


def test_settings_made_by_hand_are_checked() -> None:
    settings = Settings(port=0, parked_timeout=5)
    assert [settings.origin(name) for name in ("port", "parked_timeout", "host", "data_dir", "model_aliases")] == [
        "code",
        "code",
        "default",
        "default",
        "default",
    ]
    with pytest.raises(ConfigError, match="code: port: 70000 is not valid"):
        Settings(port=70000)
    with pytest.raises(ConfigError, match='there is no setting "prot"'):
        settings.origin("prot")


def test_settings_cannot_be_changed() -> None:
    settings = Settings(model_aliases={"a": "b"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.port = 1  # type: ignore[misc]  # the point of the test
    with pytest.raises(TypeError):
        settings.model_aliases["c"] = "d"  # type: ignore[index]  # the point of the test
