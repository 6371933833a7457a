"""`python -m octavo` is `octavo`."""

from __future__ import annotations

from octavo.cli import main

main()
