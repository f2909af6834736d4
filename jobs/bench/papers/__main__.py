"""Write the pages of papers from the newest records; what did not change stays as it is."""

from __future__ import annotations

import argparse
import sys

from indexmill.jobs.bench.papers import pages


def main() -> None:
    """Run from the command line."""
    argparse.ArgumentParser(prog="python -m indexmill.jobs.bench.papers", description=__doc__).parse_args()
    try:
        for path in pages.write():
            print(path)
    except (LookupError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
