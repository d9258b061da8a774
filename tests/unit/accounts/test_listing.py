"""What clients are shown: the backend's models, thinking ones once more, and the names of the settings."""

from caretway.accounts.catalogue import each_once, shown_models
from caretway.accounts.resolve import make_table
from caretway.core.turn import ModelInfo
from unit.accounts.cursor_list import BASES
from unit.accounts.lists import LISTED, cursors

EFFORTS = (("effort", ("low", "high")),)


def ids(models: list[ModelInfo]) -> list[str]:
    return [model.id for model in models]


def test_a_model_that_can_think_is_there_twice_and_counted_once() -> None:
    shown = shown_models(cursors())
    twin = next(model for model in shown if model.id == "claude-opus-5-thinking")
    assert (twin.stands_for, twin.reasoning, twin.aliases) == ("claude-opus-5", True, ())
    assert "composer-2.5-thinking" not in ids(shown)
    assert ids(each_once(shown)) == [base.id for base in BASES]


def test_flat_ids_are_shown_where_there_is_nothing_better() -> None:
    table = make_table([model for model in LISTED if model.flat], {})
    assert len(each_once(shown_models(table))) == sum(model.flat for model in LISTED)


def test_names_of_the_settings_come_last_with_what_is_known_of_them() -> None:
    named = ["claude-opus-5@effort=low", "gpt-5.4", "somebodys-own"]
    shown = shown_models(cursors(), named)
    assert ids(shown)[-2:] == ["claude-opus-5@effort=low", "somebodys-own"]
    assert shown[-2].variants and not shown[-1].variants
    assert ids(shown).count("gpt-5.4") == 1


def test_the_settings_can_be_the_whole_list() -> None:
    shown = shown_models(cursors(), ["gpt-5.4", "mine", "gpt-5.4"], only=True)
    assert ids(shown) == ["gpt-5.4", "gpt-5.4-thinking", "mine"]
    assert shown_models(cursors(), (), only=True) == shown_models(cursors()), "no name at all is no wish"


def test_names_that_stand_for_a_model_are_not_counted() -> None:
    table = make_table([ModelInfo("auto"), ModelInfo("gpt-4o", stands_for="auto")], {})
    assert ids(shown_models(table)) == ["auto", "gpt-4o"]
    assert ids(each_once(shown_models(table))) == ["auto"]
