import json
from collections.abc import Callable
from dataclasses import replace

from foredraft.integration.compare.offline.identity import measured_what
from foredraft.integration.compare.offline.prompts import Prompt
from foredraft.integration.compare.plan import ComparePlan


def test_what_is_measured_includes_prompts_and_options_but_no_budget(
    make_plan: Callable[..., ComparePlan],
) -> None:
    plan = make_plan()
    known = measured_what(plan, {"toy": [Prompt("p", [1])]}, {"cpu": "x"})
    assert json.loads(json.dumps(known)) == known
    assert measured_what(replace(plan, budget_s=5), {"toy": [Prompt("p", [1])]}, {"cpu": "x"}) == known
    assert measured_what(plan, {"toy": [Prompt("p", [2])]}, {"cpu": "x"}) != known
    assert measured_what(plan.without({"ngram"}), {"toy": [Prompt("p", [1])]}, {"cpu": "x"}) != known
