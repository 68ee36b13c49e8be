"""Choosing thresholds: one small class a method, and the registry that the command and the contract tests read."""

from calibration.errors import SelectionRefused
from calibration.select.base import Parameters, Promise, Selection, Selector
from calibration.select.pareto import CertifiedSelector
from calibration.select.sgr import SgrSelector
from calibration.select.simple import CoverageSelector, DsF1Selector, TprSelector

SELECTORS: dict[str, Selector] = {
    selector.name: selector
    for selector in (DsF1Selector(), SgrSelector(), CertifiedSelector(), CoverageSelector(), TprSelector())
}


def get_selector(name: str) -> Selector:
    """The selector with this name."""
    try:
        return SELECTORS[name]
    except KeyError:
        raise SelectionRefused(f"there is no method {name!r}; choose one of {', '.join(SELECTORS)}") from None


__all__ = ["SELECTORS", "Parameters", "Promise", "Selection", "Selector", "get_selector"]
