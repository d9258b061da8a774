"""A table in or out of a TOML file: every other byte stays."""

import pytest

from caretway.storage.toml_text import find, load, put, remove

PATH = ("model_providers", "caretway")
TABLE = {"name": "Caretway", "requires_openai_auth": False}
BLOCK = '[model_providers.caretway]\nname = "Caretway"\nrequires_openai_auth = false\n'

ADDED = [
    ("", BLOCK),
    ("# mine\n", "# mine\n\n" + BLOCK),
    ('model = "gpt"', 'model = "gpt"\n\n' + BLOCK),
    ("[a]\r\nb = 1\r\n", "[a]\r\nb = 1\r\n\r\n" + BLOCK.replace("\n", "\r\n")),
    ("[model_providers.own]\nname = 'x'\n", "[model_providers.own]\nname = 'x'\n\n" + BLOCK),
]


@pytest.mark.parametrize(("before", "after"), ADDED)
def test_put(before: str, after: str) -> None:
    assert put(before, PATH, TABLE) == after
    assert load(after) == load(before) | {
        "model_providers": load(before).get("model_providers", {}) | {"caretway": TABLE}
    }
    assert load(remove(after, PATH)) == load(before)


OURS = [
    ("[model_providers.caretway]\nname = 'x'\n", ""),
    ("a = 1\n\n[model_providers.caretway]\nname = 'x'\n\n[model_providers.caretway.headers]\nb = 2\n", "a = 1\n"),
    ('["model_providers" . \'caretway\']  # ours\nname = "x"\n\n# of b\n[b]\nc = 1\n', "# of b\n[b]\nc = 1\n"),
    (
        "[model_providers]\ncaretway = { name = 'x' }\nown = { name = 'y' }\n",
        "[model_providers]\nown = { name = 'y' }\n",
    ),
    ("model_providers.caretway.name = 'x'\nmodel_providers.own.name = 'y'\n", "model_providers.own.name = 'y'\n"),
    ("[a]\ntext = '''\n[model_providers.caretway]\n'''\n", "[a]\ntext = '''\n[model_providers.caretway]\n'''\n"),
    ("[model_providers.caretway]\ntext = '''\n[a]\n'''\n[b]\n", "[b]\n"),
    ("# isn'''t\na = '\"\"\"'\n[model_providers.caretway]\nname = 'x'\n", "# isn'''t\na = '\"\"\"'\n"),
    ("[model_providers.caretway2]\nname = 'x'\n", "[model_providers.caretway2]\nname = 'x'\n"),
    (
        "[model_providers.own]\nname = 'x'\n\n[[a]]\nb = 1\n\n[model_providers.caretway]\nname = 'y'\n",
        "[model_providers.own]\nname = 'x'\n\n[[a]]\nb = 1\n",
    ),
    ("[[a]]\nb = 1\n[model_providers.caretway]\nc = [\n  1,\n]\n[[a]]\nb = 2\n", "[[a]]\nb = 1\n[[a]]\nb = 2\n"),
]


@pytest.mark.parametrize(("before", "after"), OURS)
def test_remove(before: str, after: str) -> None:
    load(before)
    assert remove(before, PATH) == after
    assert find(after, PATH) == ()


def test_what_is_there_is_replaced() -> None:
    assert put(BLOCK + "\n[z]\na = 1\n", PATH, {"name": "other"}) == (
        '[z]\na = 1\n\n[model_providers.caretway]\nname = "other"\n'
    )
