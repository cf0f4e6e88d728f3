from collections.abc import Callable
from typing import Any

import pytest

from foredraft.integration.compare.online.server_metrics import (
    DraftCounts,
    added,
    counts_between,
    parse_counts,
    read_counts,
)

PAGE = """# HELP vllm:spec_decode_num_draft_tokens_total Number of draft tokens.
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 20.0
vllm:spec_decode_num_draft_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 30.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 10.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 10.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 30.0
"""
COUNTS = DraftCounts(120.0, 60.0, drafts=40.0, per_position=(50.0, 10.0), created=1.7e9)


def test_counters_are_summed_over_engines() -> None:
    assert parse_counts(PAGE) == COUNTS


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<html>",
        PAGE.replace("accepted", "other"),
        PAGE.replace("100.0", "NaN"),
        PAGE.replace("100.0", "x"),
        PAGE.replace("60.0", "-1"),
    ],
)
def test_a_page_that_does_not_tell_gives_none(page: str) -> None:
    assert parse_counts(page) is None


@pytest.mark.parametrize(
    ("before", "after", "drafts"),
    [
        (DraftCounts(10, 5), DraftCounts(30, 15), DraftCounts(20, 10)),
        (DraftCounts(10, 5), DraftCounts(10, 5), DraftCounts(0, 0)),
        (DraftCounts(100, 50), DraftCounts(30, 15), None),
        (DraftCounts(10, 5), DraftCounts(12, 9), None),
        (None, DraftCounts(30, 15), None),
        (DraftCounts(10, 5), None, None),
        (DraftCounts(10, 5, created=1.0), DraftCounts(30, 15, created=2.0), None),
        (
            DraftCounts(10, 5, 4, (3, 2)),
            DraftCounts(30, 15, 10, (9, 5, 1)),
            DraftCounts(20, 10, 6, (6, 3, 1)),
        ),
        (DraftCounts(10, 5, 4, (3,)), DraftCounts(30, 15, 10, (10,)), DraftCounts(20, 10, 6, ())),
        (DraftCounts(10, 5, 4, (3,)), DraftCounts(30, 15, 10, (2,)), DraftCounts(20, 10, 6, ())),
        (DraftCounts(0, 0, 0), DraftCounts(20, 10, 6, (4, 6)), DraftCounts(20, 10, 6)),
        (DraftCounts(0, 0, 0), DraftCounts(20, 10, 6, (5, 1)), DraftCounts(20, 10, 6)),
        (DraftCounts(0, 0, 0), DraftCounts(20, 10, 6, (6, 5)), DraftCounts(20, 10, 6)),
        (DraftCounts(10, 5, 40, (3,)), DraftCounts(30, 15, 10, (9,)), DraftCounts(20, 10)),
    ],
)
def test_what_happened_in_between(
    before: DraftCounts | None, after: DraftCounts | None, drafts: DraftCounts | None
) -> None:
    """A server that began anew in the middle, a rate above 1, or places that rise or do not add up to what
    was accepted, give no figure instead of a wrong one."""
    assert counts_between(before, after) == drafts


def test_a_server_without_metrics_gives_none(make_server: Callable[[], Any]) -> None:
    server = make_server()
    assert read_counts(server.endpoint(), 5) is None
    server.metrics = PAGE
    assert read_counts(server.endpoint(), 5) == COUNTS


@pytest.mark.parametrize("change", [("20.0\n", "NaN\n"), ("20.0\n", "-1\n"), ('position="1"', 'place="1"')])
def test_places_that_make_no_sense_are_left_out(change: tuple[str, str]) -> None:
    page = PAGE.replace('engine="0",position="0"} 20.0', f'engine="0",position="0"}} {change[1].strip()}')
    page = page if change[0].startswith("20") else PAGE.replace(*change)
    counts = parse_counts(page)
    assert counts is not None
    assert (counts.drafted, counts.per_position) == (120.0, ())


def test_spans_are_added_and_what_one_does_not_tell_is_not_told() -> None:
    one, other = DraftCounts(10, 5, 4, (3, 2)), DraftCounts(20, 6, 5, (4,))
    assert added([one, other]) == DraftCounts(30, 11, 9, (7, 2))
    assert added([one, DraftCounts(20, 6)]) == DraftCounts(30, 11)
    assert added([one, DraftCounts(0, 0, 0)]) == DraftCounts(10, 5, 4, (3, 2)), "nothing was drafted there"
    assert added([]) is None
