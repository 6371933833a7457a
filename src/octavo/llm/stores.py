"""The block stores on disk, for the command line: what `octavo cache` shows, checks and deletes."""

from octavo.runner.store_admin import (
    StoreCheck,
    StoreInfo,
    check_stores,
    clear_stores,
    store_infos,
)

__all__ = ["StoreCheck", "StoreInfo", "check_stores", "clear_stores", "store_infos"]
