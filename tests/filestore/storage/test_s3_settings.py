"""Settings of S3: where they are found, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from filestore.errors import InvalidRequest
from filestore.storage.s3_settings import S3Settings


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "profile"])
def test_an_endpoint_is_found_where_other_tools_find_it(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("[profile other]\nendpoint_url = http://127.0.0.1:9\nregion = eu-west-3\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    if variable == "profile":
        found = S3Settings(profile="other").resolved()
        assert found.region == "eu-west-3"
    else:
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
        found = S3Settings().resolved()
        assert found.region == "us-east-1"
    assert (found.endpoint, found.path_style) == ("http://127.0.0.1:9", True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"secret_access_key": "hidden"}, "secrets are not options"),
        ({"aws_session_token": "hidden"}, "secrets are not options"),
        ({"endpoint": "http://me:hidden@host:9000"}, "without user and password"),
        ({"endpoint": "host:9000"}, "write a URL"),
        ({"colour": "hidden"}, "there is no storage option colour"),
        ({"path-style": "hidden?"}, "write true or false"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as error:
        S3Settings.of(options)
    assert error.value.code == "bad-storage-option"
    assert "path-style" in options or "hidden" not in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"endpoint": "http://127.0.0.1:9000", "region": "eu-west-1", "path-style": "false"},
        {"profile": "lake", "path-style": "true", "anonymous": "true"},
    ],
)
def test_settings_are_options_again(options: dict[str, str]) -> None:
    assert S3Settings.of(options).options() == options
