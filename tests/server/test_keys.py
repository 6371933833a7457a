"""Several API keys, and what each of them is called in the KV memory."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.llm.settings import section

KEYS = ("first-secret", "second-secret")


def salt(live: Any, key: str | None, **body: Any) -> object:
    """The salt that the engine gets for a request with that key."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body = {"prompt": "abc", "max_tokens": 1, **body}
    assert live.http.post("/v1/completions", json=body, headers=headers).status_code == 200
    return live.engine.requests[-1][2]["cache_salt"]


def test_every_key_may_come_and_no_other(launch):
    live = launch(api_keys=KEYS)
    for key, status in ((KEYS[0], 200), (KEYS[1], 200), ("first", 401), (" ".join(KEYS), 401)):
        headers = {"authorization": f"Bearer {key}"}
        assert live.http.get("/v1/models", headers=headers).status_code == status


def test_without_the_flag_salts_are_the_requests_own(launch):
    live = launch(api_keys=KEYS)
    assert salt(live, KEYS[0]) is None
    assert salt(live, KEYS[1], cache_salt="mine") == "mine"


def test_each_key_has_its_own_salt_and_the_requests_own_goes_into_it(launch):
    live = launch(api_keys=KEYS, cache_salt_per_key=True)
    own = [salt(live, key, **body) for key in KEYS for body in ({}, {"cache_salt": "a"})]
    assert len(set(own)) == 4
    assert own == [salt(live, key, **body) for key in KEYS for body in ({}, {"cache_salt": "a"})]
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    headers = {"authorization": f"Bearer {KEYS[0]}"}
    assert live.http.post("/v1/chat/completions", json=chat, headers=headers).status_code == 200
    assert live.engine.requests[-1][2]["cache_salt"] == own[0]
    # Nobody gets into another's memory by guessing what his salt looks like.
    assert salt(live, KEYS[1], cache_salt=own[0]) not in own
    assert salt(live, KEYS[1], cache_salt=str(own[0]).removeprefix("key:")) not in own


def test_a_restart_changes_no_salt(launch):
    first = launch(api_keys=KEYS, cache_salt_per_key=True)
    second = launch(api_keys=tuple(reversed(KEYS)), cache_salt_per_key=True)
    assert [salt(first, key) for key in KEYS] == [salt(second, key) for key in KEYS]


def test_no_key_is_shown(launch, caplog):
    caplog.set_level(logging.DEBUG)
    live = launch(api_keys=KEYS, cache_salt_per_key=True)
    assert all(key not in str(salt(live, key)) for key in KEYS)
    assert live.http.get("/v1/models", headers={"authorization": "Bearer no"}).status_code == 401
    shown = caplog.text + live.http.get("/metrics").text + live.http.get("/openapi.json").text
    assert "secret" not in shown


def test_settings_of_keys():
    config = section(ServerConfig, {"api_key": ("a", "b"), "cache_salt_per_key": True})
    assert config.api_key == ("a", "b")
    with pytest.raises(
        ConfigError, match=r"^--cache-salt-per-key: expected at least one --api-key"
    ):
        ServerConfig(cache_salt_per_key=True)
    for bad in ("", "se cret", "secret\n"):
        with pytest.raises(
            ConfigError, match=r"^--api-key: expected a key without spaces"
        ) as caught:
            ServerConfig(api_key=("a", bad))
        assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        (["--api-key", "a", "--api-key", "b,c"], None, ("a", "b,c")),
        ([], "a b", ("a", "b")),
        (["--api-key", "c"], "a b", ("c",)),
        ([], None, ()),
    ],
)
def test_keys_of_the_command_line(
    args: list[str], env: str | None, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    import octavo.cli.serve
    from octavo.cli.app import app

    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(octavo.cli.serve, "serve", seen.append)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    if env is not None:
        os.environ["OCTAVO_API_KEY"] = env
    app(["serve", *args], standalone_mode=False)
    assert seen[0]["api_key"] == expected
