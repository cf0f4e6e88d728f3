"""The flags of benchmarks about a proposer that drafts with a model: a draft, or the target up to an exit."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

DRAFTING_PROPOSERS = ("draft", "early_exit")


def add_drafting_options(
    parser: argparse.ArgumentParser, proposers: Sequence[str] = DRAFTING_PROPOSERS
) -> None:
    """--model, --proposer (the first one by default), --draft, --exit-layer and --min-confidence."""
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--proposer", default=proposers[0], choices=proposers)
    parser.add_argument(
        "--draft", help="draft model, or exit head ('own' = the model's); default what comes with the model"
    )
    parser.add_argument("--exit-layer", type=int, help="early_exit; default that of the head")
    parser.add_argument("--min-confidence", type=float, default=0.0, help="stop drafting below it")


def drafting_values(options: argparse.Namespace) -> dict[str, Any]:
    """The values of a ``Config`` that the flags say."""
    return {
        "model": options.model,
        "proposer": options.proposer,
        "draft": {
            "model": options.draft if options.proposer == "draft" else None,
            "min_confidence": options.min_confidence,
        },
        "early_exit": {
            "head": options.draft if options.proposer == "early_exit" else None,
            "exit_layer": options.exit_layer,
            "min_confidence": options.min_confidence,
        },
    }
