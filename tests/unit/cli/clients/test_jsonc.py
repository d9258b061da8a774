"""One value in or out of a JSON file with comments: every other byte stays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cli.clients.jsonc import find, load, put, remove

PATH = ("provider", "caretway")
VALUE = {"name": "Caretway", "models": {"a": {}}}

ADDED = [
    ("", '{\n  "provider": {\n    "caretway": 1\n  }\n}\n'),
    ("// mine\n", '// mine\n{\n  "provider": {\n    "caretway": 1\n  }\n}\n'),
    ("{}", '{\n  "provider": {\n    "caretway": 1\n  }\n}'),
    ("{\n}\n", '{\n  "provider": {\n    "caretway": 1\n  }\n}\n'),
    ('{"a": 1}', '{"a": 1, "provider": {"caretway": 1}}'),
    ('{ "a": 1, }', '{ "a": 1, "provider": {"caretway": 1}, }'),
    ('{\n\t"a": 1 // one\n}\n', '{\n\t"a": 1, // one\n\t"provider": {\n\t\t"caretway": 1\n\t}\n}\n'),
    ('{\n    "a": 1, /* x */\n}\n', '{\n    "a": 1, /* x */\n    "provider": {\n        "caretway": 1\n    },\n}\n'),
    ('{\r\n  "a": 1\r\n}\r\n', '{\r\n  "a": 1,\r\n  "provider": {\r\n    "caretway": 1\r\n  }\r\n}\r\n'),
    (
        '{\n  "provider": {\n    "own": {}\n    // last\n  },\n  "z": 0\n}\n',
        '{\n  "provider": {\n    "own": {},\n    // last\n    "caretway": 1\n  },\n  "z": 0\n}\n',
    ),
    ('{ "provider": { "caretway": [2] }, "z": 0 }', '{ "provider": { "caretway": 1 }, "z": 0 }'),
    ('\ufeff{\n  "a": 1\n}', '\ufeff{\n  "a": 1,\n  "provider": {\n    "caretway": 1\n  }\n}'),
]


@pytest.mark.parametrize(("before", "after"), ADDED)
def test_put(before: str, after: str) -> None:
    assert put(before, PATH, 1) == after
    assert find(after, PATH) == (1,)
    assert put(after, PATH, 1) == after


REMOVED = [
    ('{\n  "a": 1,\n  "provider": {\n    "caretway": {"x": 1}\n  }\n}\n', '{\n  "a": 1\n}\n'),
    ('{\n  "provider": {\n    "caretway": 1,\n    "own": 2\n  }\n}\n', '{\n  "provider": {\n    "own": 2\n  }\n}\n'),
    (
        '{\n  "provider": {\n    "own": 2, // mine\n    "caretway": 1\n  }\n}',
        '{\n  "provider": {\n    "own": 2 // mine\n  }\n}',
    ),
    ('{"provider": {"caretway": 1}, "z": 0}', '{ "z": 0}'),
    ('{"provider": {"own": 1, "caretway": 2}}', '{"provider": {"own": 1 }}'.replace("1 }", "1}")),
    ('{"z": 0}', '{"z": 0}'),
    ("", ""),
]


@pytest.mark.parametrize(
    "before", [before for before, _ in ADDED if find(before, ()) not in ((None,), ({},)) and not find(before, PATH)]
)
def test_put_and_removed_leaves_every_byte(before: str) -> None:
    """A comma after the last value, too, is the user's."""
    emptied = [] if find(before, PATH[:1]) else [PATH[:1]]
    assert remove(put(before, PATH, VALUE), PATH, emptied=emptied) == before


@pytest.mark.parametrize(("before", "after"), REMOVED)
def test_remove(before: str, after: str) -> None:
    left = remove(before, PATH, emptied=[("provider",)])
    assert load(left) == load(after)
    assert left.replace(" ", "") == after.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1: a name"),
        ('{"a": }', "line 1: a value"),
        ('{\n"a" 1}', "line 2: `:`"),
        ("{'a': 1}", "line 1: a name"),
        ('{"a": 1} x', "line 1: something follows"),
        ("/* x", "line 1: a comment"),
        ('{"a": "x', "line 1: a value"),
        ("[" * 1000, "nested too deeply"),
        ('{"provider": []}', "provider is not an object"),
        ("[]", "the file is not an object"),
    ],
)
def test_what_is_no_json_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="^" + says.replace("`", ".") if says.startswith("line") else says):
        put(text, PATH, 1)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "model", "$schema"]) | st.text(max_size=4), JSON, max_size=5)
PROVIDERS = st.none() | st.dictionaries(st.sampled_from(["own", "openai"]), JSON, max_size=2)
COMMENTS = st.sampled_from(["", " ", "\n", " // c: {}\n", "/* , } */", "\n  # ".replace("#", "//") + "x\n", "\r\n"])

TRAILING, NOTHING = st.sampled_from(["", ","]), st.just("")


@st.composite
def written(draw: st.DrawFn) -> str:
    """A JSON text as somebody may have written it: comments and trailing commas anywhere they may be."""
    values = draw(OBJECTS)
    providers = draw(PROVIDERS)
    if providers is not None:
        values["provider"] = providers
    text = json.dumps(values, indent=draw(st.sampled_from([None, 2, 4, "\t"])))

    def dump(value: Any) -> str:
        if isinstance(value, dict):
            inner = ",".join(
                f"{draw(COMMENTS)}{json.dumps(key)}{draw(COMMENTS)}:{dump(one)}" for key, one in value.items()
            )
            return "{" + inner + draw(TRAILING if value else NOTHING) + draw(COMMENTS) + "}"
        return json.dumps(value)

    return draw(st.sampled_from([text, dump(values) + draw(COMMENTS)]))


@given(written())
def test_in_and_out_again_loses_nothing(text: str) -> None:
    before = load(text)
    after = put(text, PATH, VALUE)
    assert load(after) == before | {"provider": before.get("provider", {}) | {"caretway": VALUE}}
    left = remove(after, PATH, emptied=[] if "provider" in before else [("provider",)])
    assert load(left) == before
