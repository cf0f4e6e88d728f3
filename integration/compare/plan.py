"""What a comparison measures: the command line turned into configurations and cells, or refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from foredraft.integration.cli_engine import EngineName
from foredraft.integration.compare.load import REQUESTS_PER_ARRIVALS
from foredraft.integration.compare.statistics.looks import LOOKS, run_level
from foredraft.integration.compare.statistics.verdict import MIN_EFFECT
from foredraft.integration.compare.variants import BASELINE, parse_variants
from foredraft.integration.config import BUILTIN_PROPOSERS, Config, replaced
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams

MAX_BATCH_SIZE = 256
DEFAULT_MAX_TOKENS = 48

DEFAULT_BUDGET_S = 800.0
"""With loading and the last look, the whole of it stays below a quarter of an hour."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Cell:
    """One condition; within it the proposers meet on the same prompts.

    Attributes:
        batch_size: requests in flight, at most where ``arrivals_per_s`` says how they come.
        arrivals_per_s: requests arrive at random, so many a second; ``None`` = a closed loop.
    """

    workload: str
    batch_size: int
    temperature: float
    arrivals_per_s: float | None = None

    @property
    def block_size(self) -> int:
        """Requests in a block at least."""
        return self.batch_size if self.arrivals_per_s is None else REQUESTS_PER_ARRIVALS


@dataclass(frozen=True)
class ComparePlan:
    """Everything a comparison is told.

    Attributes:
        configs: what is compared, by name; the baseline first.
        rates: requests a second, in place of ``batch_sizes``; ``engine.max_num_seqs`` run at once.
        limit: prompts per workload at most.
        by_category: whether each category of a workload counts as a workload of its own.
        repeats: how often each prompt is served; ``None`` = until the verdicts are clear.
        budget_s: seconds after which no further block begins.
        min_effect: differences below this share are not called.
        check_law: whether sampled outputs are held against the target's law.
        optional: names in ``configs`` that are left out where they cannot be built.
        engine: what serves them all.
        vllm_options: what vLLM's engines are told beside the configuration.
        explain: whether to say why each number of draft tokens is chosen.
    """

    configs: dict[str, Config]
    workloads: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    temperatures: tuple[float, ...]
    rates: tuple[float, ...] = ()
    limit: int | None = None
    by_category: bool = False
    repeats: int | None = None
    budget_s: float = DEFAULT_BUDGET_S
    min_effect: float = MIN_EFFECT
    check_law: bool = False
    optional: frozenset[str] = frozenset()
    engine: EngineName = "embedded"
    vllm_options: Mapping[str, Any] = field(default_factory=dict)
    explain: bool = False

    @property
    def base(self) -> Config:
        """The configuration that the proposers share."""
        return self.configs[BASELINE]

    @property
    def seed(self) -> int:
        """Where the seeds of the requests start."""
        own = self.base.sampling.seed
        return self.base.engine.seed if own is None else own

    def without(self, names: Collection[str]) -> ComparePlan:
        """The same with fewer configurations."""
        return replace(self, configs={name: one for name, one in self.configs.items() if name not in names})

    def interval_level(self, num_cells: int) -> float:
        """The level of each interval: all of the run hold together, see ``statistics.looks``.

        Compared is each configuration in each cell, and over all workloads where there are several; then
        each with each other one, over all workloads.
        """
        num_looks = len(LOOKS) if self.repeats is None else 1
        num_conditions = len(self.loads) * len(self.temperatures)
        return run_level(len(self.configs) - 1, num_cells, num_conditions, num_looks)

    def cells(self, workloads: Iterable[str] | None = None) -> list[Cell]:
        """Every condition, workload by workload.

        Args:
            workloads: names of the prompt sets where they are not those of the plan (``by_category``).
        """
        return [
            Cell(workload, batch_size, temperature, rate)
            for workload in (self.workloads if workloads is None else workloads)
            for batch_size, rate in self.loads
            for temperature in self.temperatures
        ]

    @property
    def max_batch_size(self) -> int:
        """Requests in flight at most."""
        return max(batch_size for batch_size, _ in self.loads)

    @property
    def loads(self) -> list[tuple[int, float | None]]:
        """Batch sizes and arrivals per second."""
        if self.rates:
            return [(self.base.engine.max_num_seqs, rate) for rate in self.rates]
        return [(batch_size, None) for batch_size in self.batch_sizes]


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


def parse_rates(text: str) -> tuple[float, ...]:
    """ "0.5,2" -> (0.5, 2.0), requests a second.

    Raises:
        UserError: not positive numbers.
    """
    rates = _parse_list("--rates", text, float, "numbers")
    if not all(0 < rate <= 1e4 for rate in rates):
        raise UserError(f"--rates: should be above 0 and at most 10000 a second (got {text!r})")
    return rates


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


def compared_configs(
    loaded: LoadedConfig, proposers: str | None, variants: Sequence[str]
) -> tuple[dict[str, Config], frozenset[str]]:
    """What the command line compares, and which of it may be left out.

    Without a list it is the proposer that was asked for; was none, all built-in ones, of which some need a
    draft that fits the model. With variants and no list, these alone.

    Raises:
        UserError: an unknown proposer, a bad variant, a name twice.
    """
    config, optional = loaded.config, frozenset[str]()
    if proposers is not None:
        names = split_list("--proposers", proposers)
    elif variants:
        names = []
    elif loaded.origins["proposer"] != "default":
        names = [config.proposer]
    else:
        names = [name for name in BUILTIN_PROPOSERS if name != BASELINE]
        optional = frozenset(names)
    configs = proposer_configs(config, names)
    more = parse_variants(variants, config)
    if taken := configs.keys() & more.keys():
        raise UserError(f"--variant: the name {min(taken)!r} is that of a proposer in the comparison")
    if configs.keys() | more.keys() == {BASELINE}:
        option = "proposer" if proposers is None else "--proposers"
        raise UserError(f"{option}: needs something to compare with {BASELINE} (got {BASELINE})")
    return configs | more, optional


def proposer_configs(config: Config, names: Sequence[str]) -> dict[str, Config]:
    """One configuration per proposer, the baseline first.

    Raises:
        UserError: a proposer that is unknown.
    """
    return {name: replaced(config, proposer=name) for name in dict.fromkeys([BASELINE, *names])}


def with_short_outputs(loaded: LoadedConfig) -> LoadedConfig:
    """Unless a length was asked for: shorter outputs make more blocks, and more blocks a surer verdict."""
    if loaded.origins["sampling.max_tokens"] != "default":
        return loaded
    sampling = loaded.config.sampling.model_dump() | {"max_tokens": DEFAULT_MAX_TOKENS}
    return replace(loaded, config=replaced(loaded.config, sampling=sampling))


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
