from collections.abc import Callable
from typing import Any

import pytest

from foredraft.integration.compare.online.server_metrics import (
    DraftCounts,
    acceptance_between,
    parse_counts,
    read_counts,
)

PAGE = """# HELP vllm:spec_decode_num_draft_tokens_total Number of draft tokens.
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 20.0
vllm:spec_decode_num_draft_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 50.0
"""


def test_counters_are_summed_over_engines() -> None:
    assert parse_counts(PAGE) == DraftCounts(120.0, 60.0)


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
        (DraftCounts(10, 5), DraftCounts(30, 15), (20, 10)),
        (DraftCounts(10, 5), DraftCounts(10, 5), (0, 0)),
        (DraftCounts(100, 50), DraftCounts(30, 15), None),
        (DraftCounts(10, 5), DraftCounts(12, 9), None),
        (None, DraftCounts(30, 15), None),
        (DraftCounts(10, 5), None, None),
    ],
)
def test_what_happened_in_between(
    before: DraftCounts | None, after: DraftCounts | None, drafts: tuple[float, float] | None
) -> None:
    """A server that began anew in the middle, or a rate above 1, gives no figure instead of a wrong one."""
    assert acceptance_between(before, after) == drafts


def test_a_server_without_metrics_gives_none(make_server: Callable[[], Any]) -> None:
    server = make_server()
    assert read_counts(server.endpoint(), 5) is None
    server.metrics = PAGE
    assert read_counts(server.endpoint(), 5) == DraftCounts(120.0, 60.0)
