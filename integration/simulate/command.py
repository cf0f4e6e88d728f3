"""``foredraft simulate``: would speculation pay on that GPU, at that load?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from foredraft.integration.acceptance_option import acceptance_rates
from foredraft.integration.compare.plan import split_list
from foredraft.integration.errors import UserError
from foredraft.scheduler.hardware_model.hardware import GPUS
from foredraft.scheduler.hardware_model.language_models import MODELS

LOOK_UP = "look-up"
MAX_BATCH_SIZE = 512
BATCH_SIZES = "1,2,4,8,16,32,64,128,256,512"

GpuName = Annotated[str, typer.Option("--gpu", help=f"One of {', '.join(GPUS)}.", metavar="NAME")]
TargetName = Annotated[str, typer.Option("--target", help=f"One of {', '.join(MODELS)}.", metavar="NAME")]
DraftName = Annotated[
    str,
    typer.Option(
        "--draft", help=f"One of the models, or {LOOK_UP}: drafts that cost nothing.", metavar="NAME"
    ),
]
AcceptanceList = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="How likely the first, second, ... token is accepted; the last holds for the rest.",
    ),
]
MostTokens = Annotated[int, typer.Option("--max-draft-tokens", min=1, max=32, help="Drafted at most.")]
Context = Annotated[int, typer.Option(min=1, max=1_000_000, help="Tokens of each request.")]
NumGpus = Annotated[int, typer.Option("--tensor-parallel", min=1, max=64, help="GPUs that share each layer.")]
WeightBytes = Annotated[float, typer.Option(min=0.25, max=4, help="Bytes per weight: 2 = 16 bit, 1 = 8 bit.")]
LayerOverhead = Annotated[
    float, typer.Option("--layer-overhead-us", min=0, max=1000, help="Microseconds per layer without work.")
]
BatchSizes = Annotated[str, typer.Option(metavar="LIST", help=f"Requests in flight, 1 to {MAX_BATCH_SIZE}.")]
MeasuredFile = Annotated[
    Path | None,
    typer.Option(
        "--measured",
        metavar="FILE",
        help="Costs and acceptance that `foredraft align --json` measured, instead.",
    ),
]
Temperature = Annotated[float | None, typer.Option(help="Which result of --measured. Default: the first.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


def simulate(
    gpu: GpuName = "h100",
    target: TargetName = "llama-3.1-8b",
    draft: DraftName = "llama-3.2-1b",
    acceptance: AcceptanceList = "0.75,0.7,0.65",
    max_draft_tokens: MostTokens = 8,
    context: Context = 1024,
    tensor_parallel: NumGpus = 1,
    weight_bytes: WeightBytes = 2.0,
    layer_overhead_us: LayerOverhead = 10.0,
    batch_sizes: BatchSizes = BATCH_SIZES,
    measured: MeasuredFile = None,
    temperature: Temperature = None,
    as_json: AsJson = False,
) -> None:
    """Run the real controller against a cost model of a GPU and a pair of models.

    A pass takes as long as its memory traffic or its arithmetic, whichever is
    longer, at 80 % and 60 % of what the maker states. Acceptance is yours to give;
    `foredraft align` measures it. Prints the predicted speedup over batch size, the
    best fixed length, and where speculation stops paying.
    """
    from foredraft.integration.simulate.measured import read_measured
    from foredraft.integration.simulate.predict import predict, stops_paying_at
    from foredraft.scheduler.hardware_model.cost_model import CostModel, Roofline

    sizes = _batch_sizes(batch_sizes)
    costs: CostModel
    if measured is not None:
        costs, rates = read_measured(measured, temperature)
        sizes, of_what = [costs.batch_size], str(measured)
    else:
        gpu_size, target_size = _named("--gpu", gpu, GPUS), _named("--target", target, MODELS)
        draft_size = None if draft == LOOK_UP else _named("--draft", draft, {LOOK_UP: None} | MODELS)
        rates = acceptance_rates(acceptance, max_draft_tokens)
        costs = Roofline(
            gpu_size,
            target_size,
            draft_size,
            context,
            tensor_parallel,
            weight_bytes,
            layer_overhead_us * 1e-6,
        )
        of_what = f"{tensor_parallel} x {gpu}, {target} drafted by {draft}, {context} tokens of context"
    reasons = {size: costs.why_not(size) for size in sizes}
    predictions = [predict(costs, rates, size) for size in sizes if reasons[size] is None]
    if not predictions:
        size, reason = min(reasons.items())
        raise UserError(f"--batch-sizes: none of them fits, batch {size} {reason}")
    stops = stops_paying_at(predictions)
    left_out = {size: reason for size, reason in reasons.items() if reason is not None}
    if as_json:
        print(json.dumps(_document(of_what, rates, predictions, stops, left_out)))
    else:
        _show(of_what, predictions, stops, left_out)


def _batch_sizes(text: str) -> list[int]:
    entries = split_list("--batch-sizes", text)
    if not all(entry.isdecimal() and 1 <= int(entry) <= MAX_BATCH_SIZE for entry in entries):
        raise UserError(f"--batch-sizes: needs whole numbers from 1 to {MAX_BATCH_SIZE} (got {text!r})")
    return sorted(int(entry) for entry in entries)


def _named(option: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise UserError(f"{option}: should be one of {', '.join(known)} (got {name!r})")
    return known[name]


def _document(
    of_what: str,
    rates: Sequence[float],
    predictions: Sequence[Any],
    stops: int | None,
    left_out: Mapping[int, str],
) -> dict[str, Any]:
    own = ("best_length", "best_speedup", "pays")
    return {
        "simulated": of_what,
        "acceptance": list(rates),
        "results": [asdict(one) | {name: getattr(one, name) for name in own} for one in predictions],
        "stops_paying_at": stops,
        "left_out": {str(size): reason for size, reason in left_out.items()},
    }


def _show(of_what: str, predictions: Sequence[Any], stops: int | None, left_out: Mapping[int, str]) -> None:
    console = Console()
    table = Table(title=of_what, title_justify="left")
    for name in ("batch", "plain tokens/s", "best K", "speedup", "controller", "its mean K"):
        table.add_column(name, justify="right")
    for one in predictions:
        table.add_row(
            str(one.batch_size),
            f"{one.plain_tokens_per_s:.0f}",
            str(one.best_length),
            f"{one.best_speedup:.2f}",
            f"{one.controller:.2f}",
            f"{one.mean_length:.1f}",
        )
    console.print(table)
    for size, reason in left_out.items():
        print(f"batch {size} is left out: {reason}")
    largest = predictions[-1].batch_size
    which = "that fits" if any(size > largest for size in left_out) else "looked at"
    if stops is None:
        print(f"Speculation pays up to batch {largest}, the largest {which}.")
    elif stops == predictions[0].batch_size:
        print("Speculation does not pay at any batch size looked at.")
    else:
        print(f"Speculation stops paying at batch {stops}.")
