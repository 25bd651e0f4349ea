"""`python -m gradcheck`."""

import sys

from gradcheck.cli import main

if __name__ == "__main__":
    sys.exit(main())
