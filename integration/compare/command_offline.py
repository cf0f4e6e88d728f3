"""``foredraft compare`` without servers: its options turned into a plan, or refused."""

from __future__ import annotations

from foredraft.integration.cli_engine import checked_vllm_options
from foredraft.integration.cli_explain import check_explains
from foredraft.integration.compare.files import Ended, Files, refuse
from foredraft.integration.compare.options import CompareOptions
from foredraft.integration.compare.plan import (
    ComparePlan,
    compared_configs,
    parse_batch_sizes,
    parse_rates,
    parse_temperatures,
    request_params,
    split_lists,
)
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.errors import UserError


def compare_offline(loaded: LoadedConfig, options: CompareOptions) -> Ended:
    """Compare configurations on the embedded engine.

    Raises:
        UserError: an option that cannot be used.
    """
    only_online = {
        "--traffic": options.traffic,
        "--traffic-speed": options.traffic_speed != 1,
        "--model-name": options.model_names,
        "--api-key-env": options.api_keys,
    }
    refuse(only_online, "without --endpoint")
    plan = _plan(loaded, options)
    if plan.engine == "vllm":
        refuse({"--check-law": options.check_law}, "with --engine vllm, whose logits cannot be asked for")
    check_explains(options.explain, plan.engine)
    if options.check_law and not any(plan.temperatures):
        raise UserError("--check-law: means nothing at temperature 0 alone; give one above 0")
    request_params(loaded.config, loaded.config.sampling.temperature, seed=0)
    files = Files.of(options)
    files.check()

    from foredraft.integration.compare.run import run  # torch is loaded here, so that --help is quick

    return run(plan, files)


def _plan(loaded: LoadedConfig, options: CompareOptions) -> ComparePlan:
    configs, optional = compared_configs(loaded, options.proposers, options.variants)
    return ComparePlan(
        configs=configs,
        workloads=split_lists("--workload", options.workload),
        batch_sizes=parse_batch_sizes(options.batch_sizes),
        temperatures=parse_temperatures(options.temperatures, loaded.config),
        rates=() if options.rates is None else parse_rates(options.rates),
        limit=options.limit,
        by_category=options.by_category,
        repeats=options.repeats,
        budget_s=options.budget,
        min_effect=options.min_effect,
        check_law=options.check_law,
        optional=optional,
        explain=options.explain,
        engine=options.engine_name,
        vllm_options=checked_vllm_options(options.engine_name, options.vllm_options),
    )
