"""The entry point ``vllm.general_plugins``: called once in every process of vLLM."""

from __future__ import annotations

import os

from foredraft.integration.config import Config
from foredraft.integration.errors import UserError
from foredraft.integration.vllm.hooks import HookError
from foredraft.integration.vllm.log import logger
from foredraft.integration.vllm.options import CONFIG_VARIABLE


def register() -> None:
    """Watch for engines that ask for foredraft. Until one does, nothing else of vLLM is touched.

    Raises:
        HookError: FOREDRAFT_CONFIG asks for foredraft, but this vLLM is not one it works with.
    """
    from foredraft.integration.vllm.watch import WATCH

    try:
        WATCH.apply()
    except HookError as error:
        if os.environ.get(CONFIG_VARIABLE):
            raise
        logger.warning("foredraft stays off: %s", error)


def require_hooks(config: Config) -> None:
    """Put the first hook in place for an engine of ours, where anything is to draft.

    Raises:
        UserError: this vLLM is not one it works with.
    """
    from foredraft.integration.vllm.watch import WATCH

    if config.proposer != "none":
        try:
            WATCH.apply()
        except HookError as error:
            raise UserError(str(error)) from None
