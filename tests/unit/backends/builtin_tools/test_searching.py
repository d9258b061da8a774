"""Listings -> a directory tree; search results -> matches, files, counts. Texts as the clients print them."""

from typing import Any

import pytest

from caretway.cursor.wire.messages import pb

from .client_tools import reply, tool, tools_of, translate

Tree = dict[str, Any]


def as_dict(node: pb.LsDirectoryTreeNode) -> Tree:
    """Directories are dicts, files are None."""
    inner: Tree = {folder.abs_path: as_dict(folder) for folder in node.children_dirs}
    inner.update({file.name: None for file in node.children_files})
    return inner


LISTINGS: list[tuple[str, str, str, Tree]] = [
    # what it is, text, path of the root in the answer, tree
    ("ls", "a.py\nsub/\n.hidden\n", "/w", {"/w/sub": {}, "a.py": None, ".hidden": None}),
    ("nothing", "", "/w", {}),
    ("nothing, in words", "(empty directory)", "/w", {}),
    (
        "opencode's list",
        "/w/\n  src/\n    main.py\n    deep/\n      x.txt\n  README.md\n",
        "/w",
        {"/w/src": {"/w/src/deep": {"x.txt": None}, "main.py": None}, "README.md": None},
    ),
    (
        "claude code's LS",
        "- /w/\n  - src/\n    - main.py\n  - a - b.txt\n\nNOTE: do any of the files above seem malicious?",
        "/w",
        {"/w/src": {"main.py": None}, "a - b.txt": None},
    ),
    (
        "continue",
        "Files in /w:\nsrc (directory)\nREADME.md (file, 12 bytes)",
        "/w",
        {"/w/src": {}, "README.md": None},
    ),
    ("goose", "src/  [12]\n  main.py  [12]\na.md  [3K]\n", "/w", {"/w/src": {"main.py": None}, "a.md": None}),
    ("kinds in front", "[DIR] src\n[FILE] a.md", "/w", {"/w/src": {}, "a.md": None}),
    ("tree", "src/\n├── a.py\n└── b/\n    └── c.py", "/w", {"/w/src": {"/w/src/b": {"c.py": None}, "a.py": None}}),
    ("paths", "src/a.py\nsrc/b/c.py\nd", "/w", {"/w/src": {"/w/src/b": {"c.py": None}, "a.py": None}, "d": None}),
    ("whole paths", "/w/src/a.py\n/w/d", "/w", {"/w/src": {"a.py": None}, "d": None}),
    (
        "opencode reads a directory",
        "<path>/w</path>\n<type>directory</type>\n<entries>\nsrc/\na.md\n\n(2 entries)\n</entries>",
        "/w",
        {"/w/src": {}, "a.md": None},
    ),
]


@pytest.mark.seed("E15")
@pytest.mark.parametrize(("text", "root", "expected"), [c[1:] for c in LISTINGS], ids=[c[0] for c in LISTINGS])
def test_listing(text: str, root: str, expected: Tree) -> None:
    redirect = translate([tool("list_dir")], "ls", path="/w")
    top = reply(redirect, text).ls_result.success.directory_tree_root
    assert (top.abs_path, as_dict(top)) == (root, expected)
    assert top.children_were_processed
    assert top.num_files == str(expected).count("None")


def test_a_listing_from_a_shell_is_taken_by_the_letter() -> None:
    redirect = translate(tools_of("opencode"), "ls", path="/w")
    top = reply(redirect, "- a/\n  b\n(c)\nd (file)\n").ls_result.success.directory_tree_root
    assert as_dict(top) == {"/w/- a": {}, "  b": None, "(c)": None, "d (file)": None}
    assert not top.children_dirs[0].children_were_processed


def test_a_listing_that_failed() -> None:
    redirect = translate(tools_of("opencode"), "ls", path="/w/x")
    text = "ls: cannot access '/w/x': No such file or directory"
    assert reply(redirect, text).ls_result.error == pb.LsError(path="/w/x", error=text)


def test_a_listing_without_an_end() -> None:
    redirect = translate([tool("list_dir")], "ls", path="/w")
    text = "\n".join(f"{' ' * depth}d{depth}/" for depth in range(300)) + "\n" + "x/" * 5000
    assert reply(redirect, text).ls_result.HasField("success")


GREP_TOOL = tool("grep", {"pattern": "string", "path": "string", "output_mode": "string"}, required=["pattern"])


def grep(text: str, *, failed: bool = False, **fields: Any) -> pb.GrepResult:
    redirect = translate([GREP_TOOL], "grep", **{"pattern": "p", "path": "/w", **fields})
    return reply(redirect, text, failed=failed).grep_result


CONTENT: list[tuple[str, str, dict[str, list[tuple[int, str]]]]] = [
    (
        "grep -n",
        "/w/a.py:3:x = 1\n/w/a.py:9:y: 2:3\n/w/b c.py:1:\n",
        {"/w/a.py": [(3, "x = 1"), (9, "y: 2:3")], "/w/b c.py": [(1, "")]},
    ),
    (
        "opencode",
        "Found 3 matches\n/w/a.py:\n  Line 3: x = 1\n  Line 9: y\n\n/w/b.py:\n  Line 1: z\n\n(Results are truncated.)",
        {"/w/a.py": [(3, "x = 1"), (9, "y")], "/w/b.py": [(1, "z")]},
    ),
    ("gemini", "Found 1 match\n---\nFile: a.py\nL3: x\n---", {"a.py": [(3, "x")]}),
    ("ripgrep's heading", "a.py\n3:x\n9:y\n\nb.py\n1:z", {"a.py": [(3, "x"), (9, "y")], "b.py": [(1, "z")]}),
    ("windows", "C:\\w\\a.py:3:x", {"C:\\w\\a.py": [(3, "x")]}),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in CONTENT], ids=[c[0] for c in CONTENT])
def test_content(text: str, expected: dict[str, list[tuple[int, str]]]) -> None:
    success = grep(text).success
    assert (success.pattern, success.path, success.output_mode) == ("p", "/w", "content")
    content = success.workspace_results["/w"].content
    assert {f.file: [(m.line_number, m.content) for m in f.matches] for f in content.matches} == expected
    assert content.total_matched_lines == content.total_lines == sum(map(len, expected.values()))
    assert content.client_truncated == ("truncated" in text)


@pytest.mark.parametrize("text", ["", "\n", "No matches found", "No files found", "(no output)"])
def test_nothing_found(text: str) -> None:
    for mode in ("content", "files_with_matches", "count"):
        success = grep(text, output_mode=mode).success
        assert success.output_mode == mode
        assert not success.workspace_results["/w"].content.matches
        assert not success.workspace_results["/w"].files.files


def test_context_lines() -> None:
    content = grep("a-1-before\na:2:it\na-3-after\n--\nb:1:it", context=1).success.workspace_results["/w"].content
    assert [(m.line_number, m.content, m.is_context_line) for m in content.matches[0].matches] == [
        (1, "before", True),
        (2, "it", False),
        (3, "after", True),
    ]
    assert (content.total_lines, content.total_matched_lines) == (4, 2)


def test_files() -> None:
    for mode in ("files_with_matches", "content"):
        success = grep("Found 2 files\n/w/a.py\n/w/b.py", output_mode=mode).success
        assert success.output_mode == "files_with_matches"
        assert list(success.workspace_results["/w"].files.files) == ["/w/a.py", "/w/b.py"]
    found = grep("a:1:x\na:2:y\nb:1:z", output_mode="files_with_matches").success.workspace_results["/w"].files
    assert (list(found.files), found.total_files) == (["a", "b"], 2)


def test_counts() -> None:
    count = grep("a.py:3\nb.py:4\n", output_mode="count").success.workspace_results["/w"].count
    assert [(entry.file, entry.count) for entry in count.counts] == [("a.py", 3), ("b.py", 4)]
    assert (count.total_files, count.total_matches) == (2, 7)


def test_a_search_that_failed() -> None:
    assert grep("regex parse error", failed=True).error.error == "regex parse error"
    assert grep("grep: /w: No such file or directory").error.error == "grep: /w: No such file or directory"


def test_glob() -> None:
    redirect = translate(tools_of("opencode"), "grep", glob="*.py")
    success = reply(
        redirect, "/w/a.py\n/w/b.py\n\n(Results are truncated: showing first 100 results.)"
    ).grep_result.success
    found = success.workspace_results["."].files
    assert (list(found.files), found.total_files, found.client_truncated) == (["/w/a.py", "/w/b.py"], 2, True)
    assert reply(redirect, "bad", failed=True).grep_result.error.error == "bad"
