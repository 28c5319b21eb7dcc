"""The command `recollect`, also as `python -m recollect`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends it as it does later."""
    try:
        from recollect.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("recollect: stopped before anything was done\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
