"""The command line: `main` in `_main.py`, and one file per verb.

The group of verbs is not here, because importing the verb `list` makes `list` mean that module in this namespace.
"""

from gradcheck.cli._main import main as main

__all__ = ["main"]
