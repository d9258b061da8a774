"""What the bridge may see of the environment, and where it lives."""

from pathlib import Path

from caretway.backends.cursor_sdk.layout import Layout, bridge_environment

PROCESS = {
    "PATH": "/bin",
    "HOME": "/home/user",
    "LC_ALL": "C",
    "https_proxy": "http://proxy",
    "NO_PROXY": "*",
    "CURSOR_API_KEY": "secret",
    "CARETWAY_ACCESS_TOKEN": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "CURSOR_BACKEND_URL": "http://elsewhere",
    "CURSOR_SDK_LOCAL_MODEL_CATALOG_JSON": "{}",
}


def test_secrets_and_the_users_home_stay_out() -> None:
    made = bridge_environment(PROCESS, Layout(Path("/data")), backend_url=None, ca_file=None, sdk_version="1.1.0")
    assert made == {
        "PATH": "/bin",
        "HOME": "/data/home",
        "TMPDIR": "/data/tmp",
        "LC_ALL": "C",
        "https_proxy": "http://proxy",
        "NO_PROXY": "*",
        "CURSOR_SDK_LOCAL_MODEL_CATALOG_JSON": "{}",
        "CURSOR_SDK_CLIENT_LANGUAGE": "python",
        "CURSOR_SDK_PYTHON_VERSION": "1.1.0",
    }


def test_a_stand_in_is_pointed_to() -> None:
    made = bridge_environment(
        {}, Layout(Path("/h")), backend_url="http://127.0.0.1:1", ca_file="/ca.pem", sdk_version="1"
    )
    assert made["CURSOR_BACKEND_URL"] == made["CURSOR_WEBSITE_URL"] == "http://127.0.0.1:1"
    assert made["NODE_EXTRA_CA_CERTS"] == "/ca.pem"


def test_everything_is_private_and_below_one_root(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "sdk")
    layout.make()
    layout.make()
    for made in (layout.root, layout.home, layout.state, layout.agents, layout.scratch, layout.temporary):
        assert made.stat().st_mode & 0o777 == 0o700
    assert layout.root in layout.workspace("id").parents
    assert "id" in str(layout.workspace("id"))
