import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import TOY_VOCAB, toy_model

from foredraft.integration.align.costs import Costs
from foredraft.integration.align.counts import AcceptanceCounts
from foredraft.integration.align.measure import Acceptance
from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.models.draft_file import DraftFile, write_draft_file
from foredraft.proposers import Outcome


class LetterTokenizer:
    """One token per letter."""

    chat_template = None

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % TOY_VOCAB for letter in text]}

    def decode(self, token_ids: Sequence[int], **_: Any) -> str:
        return "".join(chr(32 + token) for token in token_ids)


@pytest.fixture(scope="session")
def toy_target() -> Target:
    return Target(
        name="toy",
        prepared=prepare_model(toy_model(num_layers=2)),
        tokenizer=LetterTokenizer(),
        eos_ids=frozenset(),
        vocab_size=TOY_VOCAB,
        max_len=256,
        dtype=torch.float32,
        device=torch.device("cpu"),
        fingerprint="toy",
    )


@pytest.fixture(scope="session")
def write_draft(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A draft that knows all tokens and is the target itself (seed 0), or another random model."""

    def write(seed: int) -> Path:
        model = copy.deepcopy(toy_model(num_layers=2, seed=seed))
        tensors = {
            name: tensor for name, tensor in model.model.state_dict().items() if "embed_tokens" not in name
        }
        path = tmp_path_factory.mktemp("draft") / "draft.safetensors"
        write_draft_file(
            path,
            DraftFile(
                kind="draft",
                target="toy",
                target_fingerprint="toy",
                reads_states=False,
                layers_config=model.config.to_dict(),
                tensors=tensors | {"head.weight": toy_model(num_layers=2).lm_head.weight.data},
                head_ids=torch.arange(TOY_VOCAB),
            ),
        )
        return path

    return write


@pytest.fixture
def workload_file(tmp_path: Path) -> Path:
    """Five prompts in two categories, one category after the other."""
    path = tmp_path / "mine.jsonl"
    lines = [
        f'{{"category": "{name}", "turns": ["abc{n}"]}}\n' for n, name in enumerate(["a"] * 3 + ["b"] * 2)
    ]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def make_outcome() -> Callable[..., Outcome]:
    """An outcome by its numbers of drafted, accepted and committed tokens."""

    def make(drafted: int, accepted: int, committed: int, request_id: str = "align-0#0") -> Outcome:
        return Outcome(request_id, 10, drafted, drafted, accepted, (7,) * committed)

    return make


@pytest.fixture
def make_costs() -> Callable[[list[float]], Costs]:
    """Costs of steps that draft 0, 1, ... tokens, over a plain step of 10 ms; a drafting step takes 1 ms."""

    def make(step_ratios: list[float]) -> Costs:
        num_kinds = len(step_ratios)
        return Costs(
            batch_size=8,
            context=100,
            pass_s=[0.01] * num_kinds,
            draft_s=[0.001 * number for number in range(num_kinds)],
            step_s=[0.01 * ratio for ratio in step_ratios],
            step_ratios=step_ratios,
            num_rounds=20,
        )

    return make


@pytest.fixture
def make_acceptance() -> Callable[..., Acceptance]:
    """Acceptance in one category, by judged and accepted per position, with full drafts."""

    def make(judged: list[int], accepted: list[int], drafted_share: float = 1.0) -> Acceptance:
        drafted = judged[0] * len(judged) if judged else 0
        counts = AcceptanceCounts(
            num_prompts=1,
            num_steps=100,
            num_emitted_tokens=100 + sum(accepted),
            num_drafted_tokens=drafted,
            num_accepted_tokens=sum(accepted),
            judged_per_position=judged,
            accepted_per_position=accepted,
        )
        return Acceptance({"mine": counts}, round(drafted / drafted_share), complete=True)

    return make
