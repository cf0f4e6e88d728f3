"""What a comparison measures: the command line turned into proposers and cells, or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from foredraft.integration.config import Config, replaced
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams

BASELINE = "none"
MAX_BATCH_SIZE = 256

Value = TypeVar("Value")


@dataclass(frozen=True)
class Cell:
    """One condition; within it the proposers meet on the same prompts."""

    workload: str
    batch_size: int
    temperature: float


@dataclass(frozen=True)
class ComparePlan:
    """Everything a comparison is told.

    Attributes:
        configs: the configuration of each proposer, the baseline first.
        limit: prompts per workload at most.
        repeats: how often each prompt is served.
    """

    configs: dict[str, Config]
    workloads: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    temperatures: tuple[float, ...]
    limit: int | None = None
    repeats: int = 1

    @property
    def base(self) -> Config:
        """The configuration that the proposers share."""
        return self.configs[BASELINE]

    @property
    def seed(self) -> int:
        """Where the seeds of the requests start."""
        own = self.base.sampling.seed
        return self.base.engine.seed if own is None else own

    def cells(self) -> list[Cell]:
        """Every condition, workload by workload."""
        return [
            Cell(workload, batch_size, temperature)
            for workload in self.workloads
            for batch_size in self.batch_sizes
            for temperature in self.temperatures
        ]


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    """ "1,8" -> (1, 8).

    Raises:
        UserError: not whole numbers from 1 to ``MAX_BATCH_SIZE``.
    """
    sizes = _parse_list("--batch-sizes", text, int, "whole numbers")
    for size in sizes:
        if not 1 <= size <= MAX_BATCH_SIZE:
            raise UserError(f"--batch-sizes: should be from 1 to {MAX_BATCH_SIZE} (got {size})")
    return sizes


def parse_temperatures(text: str | None, config: Config) -> tuple[float, ...]:
    """ "0,0.7" -> (0.0, 0.7); without a text the configured temperature.

    Raises:
        UserError: not numbers, or out of the range of ``SamplingParams``.
    """
    if text is None:
        return (config.sampling.temperature,)
    temperatures = _parse_list("--temperatures", text, float, "numbers")
    for temperature in temperatures:
        request_params(config, temperature, seed=0)
    return temperatures


def proposer_configs(config: Config, text: str | None) -> dict[str, Config]:
    """One configuration per proposer of a comma list; without a list the configured proposer.

    Raises:
        UserError: a proposer that is unknown.
    """
    names = [config.proposer] if text is None else split_list("--proposers", text)
    configs = {}
    for name in dict.fromkeys([BASELINE, *names]):
        configs[name] = replaced(config, proposer=name)
    return configs


def split_list(option: str, text: str) -> list[str]:
    """The distinct entries of a comma list, in order.

    Raises:
        UserError: an entry is empty.
    """
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entries):
        raise UserError(f"{option}: needs a list like a,b without empty entries (got {text!r})")
    return list(dict.fromkeys(entries))


def split_lists(option: str, texts: Sequence[str]) -> tuple[str, ...]:
    """The same for an option that may be repeated."""
    return tuple(dict.fromkeys(entry for text in texts for entry in split_list(option, text)))


def request_params(config: Config, temperature: float, seed: int) -> SamplingParams:
    """How one request of a comparison samples.

    Raises:
        UserError: a value out of range, or several completions per prompt, which would exceed the batch size.
    """
    if config.sampling.n != 1:
        raise UserError(f"sampling.n: compare serves one completion per prompt (got {config.sampling.n})")
    own = {"temperature": temperature, "seed": seed}
    return SamplingParams(**(config.sampling.model_dump() | own))


def _parse_list(option: str, text: str, kind: Callable[[str], Value], needed: str) -> tuple[Value, ...]:
    entries = split_list(option, text)
    try:
        return tuple(dict.fromkeys(kind(entry) for entry in entries))
    except ValueError:
        raise UserError(f"{option}: needs {needed}, separated by commas (got {text!r})") from None
