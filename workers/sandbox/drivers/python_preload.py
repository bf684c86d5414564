"""What a fork server of Python imports before work is known, and what a fork of it makes anew."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from collections.abc import Callable

import importlib
import os
import sys

from python_common import bring_fonts, needs_site, use_site

PARTS = {"matplotlib": "matplotlib.pyplot"}
"""What takes the time of these packages."""
DRIVERS = {
    "work": ("python_notebook", "python_object_server", "python_submission"),
    "tests": ("python_tests_unittest", "python_tests_pytest", "python_tests"),
}


def prepared_python(kind: str, *packages: str) -> Callable[[], None]:
    """Import the packages and the driver. A package that does not import here fails in the work, too."""
    if packages:
        needs_site()
        use_site()
        os.environ.setdefault("MPLBACKEND", "Agg")
    for name in packages:
        try:
            importlib.import_module(PARTS.get(name, name))
        except Exception:  # noqa: BLE001, S112  # whatever it is, the work is told of it
            continue
    needed = {"python_notebook": "IPython", "python_tests_pytest": "pytest"}
    for driver in DRIVERS[kind]:
        if needed.get(driver, "") in ("", *packages):
            importlib.import_module(driver)
    return lambda: _run(kind)


def _run(kind: str) -> None:
    _make_anew()
    if kind == "work":
        from python_submission import run
    else:
        from python_tests import serve as run
    run()


def _make_anew() -> None:
    """What two programs never share: random numbers, and files. Python's own `random` sees to itself."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
    if "site" in sys.modules:
        bring_fonts()
