"""Which packages code asks for."""

from __future__ import annotations

import pytest

from grading.execution.plan import imported


@pytest.mark.parametrize(
    ("source", "names"),
    {
        "import numpy, pandas.io as io": {"numpy", "pandas"},
        "import numpy; import pandas": {"numpy", "pandas"},
        "x = 1; from scipy.stats import norm; import statsmodels.api as sm": {"scipy", "statsmodels"},
        "    import numpy  # and; import nothing": {"numpy"},
        "importlib.import_module('lxml')": {"lxml"},
        "library(dplyr); library('tidyr')": {"dplyr", "tidyr"},
        "pacman::p_load(dplyr, tidyr)": {"pacman", "dplyr", "tidyr"},
        "pacman:::p_load('dplyr', install = FALSE)": {"pacman", "dplyr"},
        "p_load(dplyr,\n  tidyr, char = c('readr', 'purrr'))": {"dplyr", "tidyr", "readr", "purrr"},
        "dplyr::filter(x); stringr::str_trim(y)": {"dplyr", "stringr"},
    }.items(),
)
def test_every_package_of_a_line_is_known(source: str, names: set[str]) -> None:
    assert set(imported(source)) == names
