"""Suites: find them, load them, merge them, lint them.

A suite is a folder with any of `oracles/`, `mutants/` and `reports/`, found by path as pytest finds `tests/`. Ours is loaded exactly
as everyone else's.
"""

from gradcheck.suite._config import Config as Config
from gradcheck.suite._config import Gate as Gate
from gradcheck.suite._config import parse_config as parse_config
from gradcheck.suite._config import read_config as read_config
from gradcheck.suite._lint import Problem as Problem
from gradcheck.suite._lint import lint as lint
from gradcheck.suite._lint import nearest as nearest
from gradcheck.suite._locate import kernel_package as kernel_package
from gradcheck.suite._roots import Root as Root
from gradcheck.suite._suite import Suite as Suite
from gradcheck.suite._suite import find_op as find_op
from gradcheck.suite._suite import load as load
from gradcheck.suite._suite import mutants_of as mutants_of

__all__ = [
    "Config",
    "Gate",
    "Problem",
    "Root",
    "Suite",
    "find_op",
    "kernel_package",
    "lint",
    "load",
    "mutants_of",
    "nearest",
    "parse_config",
    "read_config",
]
