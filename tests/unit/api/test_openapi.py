"""The document, made from the rows."""

from typing import Any

from caretway.api.openapi import ERRORS, document
from caretway.api.routes import paths_of, route_table
from caretway.dialects.registry import dialects

TABLE = route_table(dialects())
DOCUMENT = document(TABLE.routes, "1.2.3")
OPERATIONS: list[tuple[str, str, dict[str, Any]]] = [
    (path, method, operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
]


def test_every_row_is_in_it_and_nothing_else() -> None:
    paths = {path.replace(":path}", "}") for row in TABLE.routes for path in paths_of(row)}
    assert set(DOCUMENT["paths"]) == paths
    assert DOCUMENT["info"]["version"] == "1.2.3"


def test_every_operation_says_in_words_what_it_is() -> None:
    for path, method, operation in OPERATIONS:
        words = [operation["summary"], *(answer["description"] for answer in operation["responses"].values())]
        assert all(len(text) > 3 and text not in ("It", "List", "Text") for text in words), (path, method)


def test_ids_are_unique_and_links_lead_somewhere() -> None:
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(ids) == len(set(ids))
    links = [
        link["operationId"]
        for _, _, operation in OPERATIONS
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert links
    assert set(links) <= set(ids)


def test_parameters_of_a_path_are_declared() -> None:
    for path, _, operation in OPERATIONS:
        named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert named == {part.strip("{}") for part in path.split("/") if part.startswith("{")}


def test_errors_are_in_the_shape_of_the_paths_api() -> None:
    for path, _, operation in OPERATIONS:
        name = "AnthropicError" if "/messages" in path else "OpenAIError"
        for status in set(ERRORS) - {503}:
            schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
            assert schema == {"$ref": f"#/components/schemas/{name}"}, (path, status)
