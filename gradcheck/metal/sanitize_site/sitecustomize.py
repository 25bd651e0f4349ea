"""Python imports this first in every process of a program that `gradcheck sanitize` runs. Old Pythons read it too."""  # noqa: INP001 - of no package

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
_FOLDER = os.environ.get("GRADCHECK_SANITIZE", "")

if _FOLDER:
    try:
        from gradcheck.metal.sanitize_hook import install
    except ImportError:  # another environment than the one in which gradcheck is
        (Path(_FOLDER) / f"{os.getpid()}.stranger").write_text(sys.executable, "utf-8")
    else:
        install(_FOLDER)

_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)  # the one in whose place this stands
if _hidden is not None and _hidden.loader is not None:
    _module = importlib.util.module_from_spec(_hidden)
    sys.modules["sitecustomize"] = _module
    _hidden.loader.exec_module(_module)
