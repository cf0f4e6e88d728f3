"""When to look at a running comparison, and how sure each look must be.

Who looks often and stops at the first clear result finds differences where there are none. Here the number
of looks is limited, and the error is shared out evenly: each of the 8 looks at each of the m comparisons may
err with probability 0.05 / (8 m). By the union bound no comparison of the whole run is then called wrongly
with more than 0.05, whatever the law of the noise between looks, wherever the budget ends the run, and
whichever comparisons end early. A run that the budget or the user ends between two looks is looked at there
once more; that look stands in for the next one, which never comes, so there are 8 at most all the same. The
clock chooses it, not the ratios: what is shown meanwhile says nothing of them.

An always-valid interval would need no limit, but is wider at every look or needs the noise to be known;
Holm's correction would call a little more, but has no intervals that agree with its verdicts.
"""

from __future__ import annotations

from math import comb

FAMILY_ERROR = 0.05

LOOKS = (6, 9, 13, 19, 28, 42, 63, 95)
"""Blocks at which to look, each half as many again; past the last there is nothing more to learn in time."""


def interval_level(num_comparisons: int, num_looks: int) -> float:
    """Level of each interval such that all of the run hold together with 1 - FAMILY_ERROR.

    Args:
        num_looks: how often each comparison may be looked at: ``len(LOOKS)``, or 1 in a fixed design.

    Raises:
        ValueError: a count below 1.
    """
    if num_comparisons < 1 or num_looks < 1:
        raise ValueError(f"needs counts of 1 or more, got {num_comparisons} and {num_looks}")
    return 1 - FAMILY_ERROR / (num_comparisons * num_looks)


def run_level(num_rivals: int, num_cells: int, num_conditions: int, num_looks: int = len(LOOKS)) -> float:
    """The same for a whole run: each rival in each cell, and over all workloads where there are several; then
    each rival with each other one, over all workloads.

    Args:
        num_rivals: what is compared with the baseline.
        num_conditions: loads times temperatures; each cell is one of them with one workload.
    """
    has_several_workloads = num_cells > num_conditions
    num_rated = num_cells + num_conditions if has_several_workloads else num_cells
    num_compared = num_rivals * num_rated + comb(num_rivals, 2) * num_conditions
    return interval_level(max(num_compared, 1), num_looks)
