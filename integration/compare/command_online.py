"""``foredraft compare --endpoint``: its options turned into a plan, or refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from foredraft.integration.compare.files import Ended, Files, refuse
from foredraft.integration.compare.options import DEFAULT_WORKLOADS, CompareOptions
from foredraft.integration.compare.plan import (
    parse_batch_sizes,
    parse_rates,
    parse_temperatures,
    split_lists,
)
from foredraft.integration.config_sources import LoadedConfig

if TYPE_CHECKING:
    from foredraft.integration.compare.online.endpoint import Endpoint
    from foredraft.integration.compare.online.plan import OnlinePlan


def compare_online(loaded: LoadedConfig, options: CompareOptions) -> Ended:
    """Compare running servers.

    Raises:
        UserError: an option that cannot be used.
    """
    only_offline = {
        "--proposers": options.proposers,
        "--variant": options.variants,
        "--repeats": options.repeats,
        "--check-law": options.check_law,
        "--explain": options.explain,
        "--engine": options.engine_name != "embedded",
        "--vllm": options.vllm_options,
    }
    refuse(only_offline, "with --endpoint")
    files = Files.of(options)
    files.check()

    from foredraft.integration.compare.online.requests import check_fits_budget
    from foredraft.integration.compare.online.run import run_online

    if options.traffic is None:
        refuse({"--traffic-speed": options.traffic_speed != 1}, "without --traffic")
        plan = _workload_plan(loaded, options)
    else:
        plan = _traffic_plan(loaded, options, options.traffic)
    check_fits_budget(plan)
    return run_online(plan, files)


def _workload_plan(loaded: LoadedConfig, options: CompareOptions) -> OnlinePlan:
    from foredraft.integration.compare.offline.prompts import load_workloads
    from foredraft.integration.compare.online.plan import OnlinePlan, at_rates, closed_loops
    from foredraft.integration.compare.online.requests import prompt_requests

    sampling = loaded.config.sampling
    names = split_lists("--workload", options.workload)
    workloads = load_workloads(names, options.limit, by_category=options.by_category)
    closed = closed_loops(parse_batch_sizes(options.batch_sizes))
    return OnlinePlan(
        endpoints=_endpoints(options),
        requests={name: prompt_requests(each, sampling.max_tokens) for name, each in workloads.items()},
        loads=closed if options.rates is None else at_rates(parse_rates(options.rates)),
        temperatures=parse_temperatures(options.temperatures, loaded.config),
        max_tokens=sampling.max_tokens,
        seed=sampling.seed or 0,
        budget_s=options.budget,
        min_effect=options.min_effect,
    )


def _traffic_plan(loaded: LoadedConfig, options: CompareOptions, traffic: Path) -> OnlinePlan:
    from foredraft.integration.compare.load import Load
    from foredraft.integration.compare.online.plan import ARRIVALS_IN_FLIGHT, OnlinePlan, closed_loops
    from foredraft.integration.compare.online.requests import traffic_requests
    from foredraft.integration.traffic.records import read_traffic

    replaced = {
        "--workload": options.workload != DEFAULT_WORKLOADS,
        "--by-category": options.by_category,
        "--rates": options.rates,
        "--temperatures": options.temperatures,
    }
    refuse(replaced, "with --traffic, which brings its own")
    sampling = loaded.config.sampling
    records = read_traffic(traffic, options.limit)
    has_arrivals = records[0].arrival_s is not None
    recorded = (Load(ARRIVALS_IN_FLIGHT, recorded=True),)
    requests = traffic_requests(records, sampling.max_tokens, sampling.temperature, options.traffic_speed)
    return OnlinePlan(
        endpoints=_endpoints(options),
        requests={traffic.name: requests},
        loads=recorded if has_arrivals else closed_loops(parse_batch_sizes(options.batch_sizes)),
        temperatures=(None,),
        max_tokens=sampling.max_tokens,
        seed=sampling.seed or 0,
        budget_s=options.budget,
        min_effect=options.min_effect,
    )


def _endpoints(options: CompareOptions) -> tuple[Endpoint, ...]:
    from foredraft.integration.compare.online.endpoint import parse_endpoints, with_keys, with_models

    named = with_models(parse_endpoints(options.endpoints), options.model_names)
    return tuple(with_keys(named, options.api_keys, os.environ))
