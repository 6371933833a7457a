"""The command line: `octavo serve | generate | chat | verify | pull | bench | cache`."""

from __future__ import annotations

import os
import sys

from octavo.errors import ConfigError, OctavoError


def main() -> None:
    """Entry point. Exit code 2: a setting that cannot work; 1: other errors; 130: Ctrl-C."""
    from octavo.cli.app import app

    try:
        app(prog_name="octavo")
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except UnicodeDecodeError as error:
        print(f"octavo: expected UTF-8 text on standard input: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
