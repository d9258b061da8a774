"""Items in or out of a YAML list: every other byte stays."""

import pytest

from caretway.cli.clients.edits import put, remove

MARK = '- model_id: "caretway/'
ITEMS = '- model_id: "caretway/a"\n  model_name: "a"\n- model_id: "caretway/b"\n  model_name: "b"\n'
OWN = "# mine\n- model_id: own\n  # about it\n  model_name: x\n"


@pytest.mark.parametrize("before", ["", "# nothing yet\n", OWN, "---\n" + OWN, OWN.replace("\n", "\r\n")])
def test_in_and_out(before: str) -> None:
    after = put(before, ITEMS, MARK)
    assert after.startswith(before) and "caretway/b" in after
    assert put(after, ITEMS, MARK) == after
    assert remove(after, MARK) == before


def test_items_after_ours_and_other_quotes() -> None:
    text = ITEMS.replace('"', "'") + OWN + "- model_id: caretway/c\n  model_name: c\n\n"
    assert remove(text, MARK) == OWN + "\n"


@pytest.mark.parametrize("text", ["models:\n  - a\n", "[{model_id: own}]\n", "model_id: x\n"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line 1 is not an item"):
        put(text, ITEMS, MARK)


def test_a_list_that_is_indented_is_refused() -> None:
    """Ours would end it, and the client could not read the file any more."""
    with pytest.raises(ValueError, match="line 2 is indented"):
        put("# mine\n  - model_id: own\n    model_name: x\n", ITEMS, MARK)


def test_items_stand_before_the_end_of_the_document() -> None:
    before = "---\n" + OWN + "...\n# nothing below\n"
    after = put(before, ITEMS, MARK)
    assert after == "---\n" + OWN + ITEMS + "...\n# nothing below\n"
    assert put(after, ITEMS, MARK) == after
    assert remove(after, MARK) == before


@pytest.mark.parametrize("text", [OWN + "...\n" + OWN, OWN + "---\n" + OWN])
def test_two_documents_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        put(text, ITEMS, MARK)
