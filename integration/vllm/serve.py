"""vLLM's own OpenAI server, told what our configuration says."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from foredraft.integration.cli_engine import require_vllm
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.errors import UserError


def serve_with_vllm(loaded: LoadedConfig, given: Sequence[str]) -> None:
    """Run vLLM's own server until it is ended.

    Args:
        given: flags of ``vllm serve``, and a model's name.

    Raises:
        UserError: no vLLM, or what it makes of the model.
    """
    require_vllm()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    from vllm.logger import configure_logging_from_args

    cli_env_setup()
    arguments = server_arguments(loaded, given)
    configure_logging_from_args(arguments)
    command = ServeSubcommand()
    try:
        command.validate(arguments)
        arguments.model = arguments.model_tag or arguments.model
        AsyncEngineArgs.from_cli_args(arguments).create_model_config()  # the server would say it in 100 lines
    except (OSError, TypeError, ValueError) as error:
        raise UserError(f"vllm: {' '.join(str(error).split())}") from None
    command.cmd(arguments)


def server_arguments(loaded: LoadedConfig, given: Sequence[str]) -> argparse.Namespace:
    """What vLLM's own parser makes of the flags; our configuration stands in for those left out.

    Raises:
        UserError: a value of the configuration that vLLM cannot take, or the plugin's options twice.
        SystemExit: code 2, a flag that vLLM's parser refuses.
    """
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from foredraft.integration.vllm import options
    from foredraft.integration.vllm.engine_settings import (
        additional_config,
        engine_settings,
        given_options,
        sampling_defaults,
    )
    from foredraft.integration.vllm.plugin import require_hooks

    ours = engine_settings(loaded.config, given_options(loaded))
    if sampling := sampling_defaults(loaded):
        ours["override_generation_config"] = sampling
    require_hooks(loaded.config)
    parser = make_arg_parser(FlexibleArgumentParser(prog="foredraft serve"))
    # argparse takes what a namespace already holds for the default.
    arguments: argparse.Namespace = parser.parse_args(list(given), argparse.Namespace(**ours))
    _leave_name(arguments, ours)
    asked: dict[str, Any] = arguments.additional_config or {}
    if options.KEY in asked:
        raise UserError(f'--additional-config: "{options.KEY}" is what --config and our flags say')
    arguments.additional_config = asked | additional_config(loaded.config)
    return arguments


def _leave_name(arguments: argparse.Namespace, ours: dict[str, Any]) -> None:
    """Our name is for our model: another model goes by its own."""
    model = arguments.model_tag or arguments.model
    if model != ours["model"] and arguments.served_model_name == ours.get("served_model_name"):
        arguments.served_model_name = None
