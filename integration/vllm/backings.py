"""Which proposer drafts in a runner, and what of vLLM's model stands behind it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foredraft.integration.config import Config
from foredraft.integration.config_sections import OWN_HEAD
from foredraft.integration.models.draft_file import is_draft_file, read_draft_file, read_exit_file
from foredraft.integration.models.trained_for import DRAFT_OPTION, EXIT_OPTION
from foredraft.integration.vllm.drafting_names import drafting_names
from foredraft.proposers import create_proposer

if TYPE_CHECKING:
    from foredraft.integration.vllm.paged.backing import Backing

# Imports stand in the functions: most of them are of no use to a proposer that reads token ids.


def backing_of(config: Config, vllm_config: Any) -> Backing:
    """The backing of the proposers that a configuration names, as ``chosen`` has made it.

    Raises:
        UserError: several of them read the target's states.
    """
    names = drafting_names(config)
    if config.proposer in names:
        return _backing(config.proposer, config, vllm_config)
    from foredraft.integration.vllm.paged.shared_backing import SharedBacking

    return SharedBacking({name: _backing(name, config, vllm_config) for name in names})


def _backing(name: str, config: Config, vllm_config: Any) -> Backing:
    if name == "early_exit":
        return _exit_backing(config, vllm_config)
    if name == "draft":
        return _draft_backing(config, vllm_config)
    from foredraft.integration.vllm.paged.backing import Backing, StatesBacking

    values = getattr(config, name).model_dump() if name in Config.model_fields else {}
    proposer = create_proposer(name, values)
    assert proposer is not None, "proposer none builds no drafter"
    return StatesBacking(proposer, name) if proposer.needs_hidden_states else Backing(proposer)


def _exit_backing(config: Config, vllm_config: Any) -> Backing:
    options = config.early_exit
    if options.head == OWN_HEAD:
        from foredraft.integration.vllm.paged.exit_backing import OwnExitBacking

        assert options.exit_layer is not None, "the own head has a layer"
        return OwnExitBacking(options.exit_layer, vllm_config, options.min_confidence)
    from foredraft.integration.vllm.paged.trained_backing import TrainedBacking

    assert options.head is not None, "a path by now"
    file = read_exit_file(Path(options.head))
    return TrainedBacking(file, f"{EXIT_OPTION}: {options.head}", vllm_config, options.min_confidence)


def _draft_backing(config: Config, vllm_config: Any) -> Backing:
    options = config.draft
    assert options.model is not None, "a path by now"
    if not is_draft_file(Path(options.model)):
        from foredraft.integration.vllm.paged.draft_backing import DraftBacking

        return DraftBacking(config, vllm_config)
    from foredraft.integration.vllm.paged.trained_backing import TrainedBacking

    file = read_draft_file(Path(options.model))
    return TrainedBacking(file, f"{DRAFT_OPTION}: {options.model}", vllm_config, options.min_confidence)
