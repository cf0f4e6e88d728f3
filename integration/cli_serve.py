"""``foredraft serve``: an OpenAI-compatible server, vLLM's own or ours over the embedded engine."""

from __future__ import annotations

import typer

from foredraft.integration.cli_engine import EngineOption
from foredraft.integration.cli_options import with_flags
from foredraft.integration.config_sources import LoadedConfig

OWN_FLAGS = ("proposer", "num_draft_tokens", "verification_rule")
"""The others of our flags may mean something else to vLLM; what stands in the file is their default."""


@with_flags(OWN_FLAGS, "--config")
def serve(loaded: LoadedConfig, context: typer.Context, engine_name: EngineOption = "vllm") -> None:
    """Serve a model over HTTP as OpenAI does, drafting as configured.

    With vLLM, all other flags, and a model's name, go to `vllm serve` as they
    are, and before what the file says: --port, --max-model-len, ...

    With --engine embedded: --host, --port, --api-key, --api-key-env,
    --served-model-name, --max-body-mb, --max-open-requests, --drain-timeout,
    a model's name, and the flags of `foredraft generate` for the engine.
    """
    if engine_name == "vllm":
        from foredraft.integration.vllm.serve import serve_with_vllm

        serve_with_vllm(loaded, context.args)
    else:
        from foredraft.integration.server.command import serve_embedded

        serve_embedded(loaded, context.args, OWN_FLAGS)
