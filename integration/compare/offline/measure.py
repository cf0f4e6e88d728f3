"""One block: every configuration serves the same requests, in turn, and the outputs are checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.integration.compare.offline.block_run import BlockRun
from foredraft.integration.compare.offline.blocks import block_arrivals, turns
from foredraft.integration.compare.offline.law_check import LawChecker
from foredraft.integration.compare.offline.output_check import Checker, Difference
from foredraft.integration.compare.offline.prompts import CompareRequest
from foredraft.integration.compare.offline.serving import run_block
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.variants import BASELINE
from foredraft.integration.engine import Engine
from foredraft.integration.errors import UserError

WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class MeasuredBlock:
    """A block that the configurations have served.

    Attributes:
        number: of the block within its cell, from 0.
        prompt_ids: names of the prompts, one per request.
        runs: per configuration; the baseline, and those whose verdict was still open.
        differences: per configuration, one entry per request, ``None`` where the output equals the
            baseline's; ``None`` for the configuration where equal tokens are not promised.
        places: per configuration, of each token in the target's law (see ``law_check``), where it is checked.
    """

    cell: Cell
    number: int
    prompt_ids: list[str]
    runs: dict[str, BlockRun]
    differences: dict[str, list[Difference | None] | None]
    places: dict[str, list[float]] = field(default_factory=dict)

    def speed(self, name: str) -> float:
        """Tokens/s; where arrivals fix these, requests per second of latency."""
        run = self.runs[name]
        return run.tokens_per_s if self.cell.arrivals_per_s is None else run.requests_per_s_of_latency


@dataclass(frozen=True)
class Bench:
    """What blocks are measured with.

    Attributes:
        engines: one per configuration of the plan.
        checker: for the outputs.
        law_checker: over the baseline's decoder; ``None`` where no decoder can be had.
    """

    plan: ComparePlan
    engines: Mapping[str, Engine]
    checker: Checker
    law_checker: LawChecker | None = None

    def warm_up(self, requests: Sequence[CompareRequest], batch_size: int) -> None:
        """One short block each, so that what happens once per process or batch size is not measured."""
        changed = {"max_tokens": WARM_UP_TOKENS, "min_tokens": 0}
        short = [
            CompareRequest(request.prompt, request.params.model_copy(update=changed))
            for request in requests[:batch_size]
        ]
        for engine in self.engines.values():
            run_block(engine, short, batch_size)

    def measure(
        self, cell: Cell, number: int, requests: Sequence[CompareRequest], names: Collection[str]
    ) -> MeasuredBlock:
        """Serve a block with the configurations called ``names``, the baseline among them.

        Raises:
            UserError: one of them did not bring a single token.
        """
        arrivals = block_arrivals(self.plan, cell, number, len(requests))
        runs = {
            name: run_block(self.engines[name], requests, cell.batch_size, arrivals)
            for name in turns(self.plan, cell, number)
            if name in names
        }
        for name, run in runs.items():
            if run.num_emitted_tokens == 0:
                raise UserError(
                    f"workload {cell.workload!r}: not one token came out of {name} for prompt "
                    f"{requests[0].prompt.prompt_id!r}; there is nothing to compare"
                )
        ordered = {name: runs[name] for name in self.plan.configs if name in runs}
        checks_law = self.plan.check_law and cell.temperature > 0
        return MeasuredBlock(
            cell,
            number,
            [request.prompt.prompt_id for request in requests],
            ordered,
            {name: self._differences(name, cell, requests, runs) for name in ordered},
            {name: self._places(requests, run) for name, run in ordered.items()} if checks_law else {},
        )

    def _places(self, requests: Sequence[CompareRequest], run: BlockRun) -> list[float]:
        assert self.law_checker is not None, "the command line asks for it with the embedded engine only"
        pairs = zip(requests, run.outputs, strict=True)
        return [
            place
            for request, output in pairs
            for place in self.law_checker.places(request.prompt.token_ids, output, request.params)
        ]

    def _differences(
        self, name: str, cell: Cell, requests: Sequence[CompareRequest], runs: Mapping[str, BlockRun]
    ) -> list[Difference | None] | None:
        if not self.checker.promises_equal_tokens(self.plan.configs[name], cell.temperature):
            return None
        triples = zip(requests, runs[BASELINE].outputs, runs[name].outputs, strict=True)
        return [
            self.checker.compare(request.prompt.token_ids, expected, own)
            for request, expected, own in triples
        ]
