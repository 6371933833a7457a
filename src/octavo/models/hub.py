"""Models on the Hugging Face hub, through huggingface_hub and its cache."""

from __future__ import annotations

import contextlib
import errno
import json
import re
from pathlib import Path

from octavo.errors import ModelError, ModelNotFoundError, UnsupportedModelError

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HUB_ID = re.compile(rf"({_PART}/{_PART})(?:/(.+\.gguf))?")

_WANTED = ["*.json", "*.safetensors", "*.jinja"]
_UNWANTED = ["*/*", "consolidated*"]
"""Files in folders are other forms of the model; consolidated.safetensors is a second copy in another layout."""


def parse_hub_id(text: str) -> tuple[str, str | None] | None:
    """'org/name' -> (repo id, None), 'org/name/file.gguf' -> (repo id, file); None if it is neither."""
    match = _HUB_ID.fullmatch(text)
    return (match[1], match[2]) if match else None


def fetch_hub_model(repo_id: str, file_name: str | None = None) -> Path:
    """The path of a repository's files, or of one GGUF file of it, in the hub's cache; fetched if not there.

    Works without a network if the cache has all. Raises ModelNotFoundError or ModelError.
    """
    return _fetch_file(repo_id, file_name) if file_name else _fetch_repository(repo_id)


def _fetch_file(repo_id: str, file_name: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repo_id, file_name, local_files_only=True))
    except Exception:  # whatever is wrong with the cache, the hub decides
        pass
    try:
        return Path(hf_hub_download(repo_id, file_name))
    except Exception as error:
        raise _hub_error(error, repo_id, file_name) from error


def _fetch_repository(repo_id: str) -> Path:
    from huggingface_hub import snapshot_download

    local: Path | None = None
    with contextlib.suppress(Exception):  # not in the cache
        local = Path(snapshot_download(repo_id, local_files_only=True))
    if local is not None and has_weights(local) and (local / "tokenizer.json").is_file():
        return local
    try:
        path = Path(snapshot_download(repo_id, allow_patterns=_WANTED, ignore_patterns=_UNWANTED))
    except Exception as error:
        if local is not None and has_weights(local):
            return local
        raise _hub_error(error, repo_id, None) from error
    if not has_weights(path):
        raise UnsupportedModelError(
            f"{repo_id}: expected config.json and *.safetensors in the repository, found not both; "
            "if it holds GGUF files, name one: ORG/NAME/FILE.gguf"
        )
    return path


def has_weights(folder: Path) -> bool:
    """True if the settings and every file of weights are there."""
    if not (folder / "config.json").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(folder.glob("*.safetensors"))
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
        return all((folder / name).is_file() for name in names)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _hub_error(error: Exception, repo_id: str, file_name: str | None) -> ModelError:
    """What went wrong, in the user's terms. The library raises its own errors, those of its HTTP client, and OSError."""
    from huggingface_hub import errors

    what = f"{repo_id}/{file_name}" if file_name else repo_id
    url = f"https://huggingface.co/{repo_id}"
    if isinstance(error, errors.GatedRepoError):
        return ModelNotFoundError(
            f"{what}: the model is gated; accept its terms at {url}, then log in with 'hf auth login' "
            "or set HF_TOKEN"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFoundError(
            f"{what}: there is no such repository (or it is private) at {url}"
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return ModelError(
            f"{what}: the disk is full; free some space, or set HF_HOME to another disk"
        )
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return ModelNotFoundError(
            f"{what}: not in the hub's cache, and the hub cannot be reached; is there a network? "
            "Or give the path of a model"
        )
    if isinstance(error, errors.EntryNotFoundError):
        return ModelNotFoundError(
            f"{what}: there is no such file in the repository; see {url}/tree/main"
        )
    first = (str(error).strip().splitlines() or [""])[0]
    return ModelNotFoundError(
        f"{what}: cannot be fetched from {url}: {type(error).__name__}: {first}; is there a network? "
        "Or give the path of a model"
    )
