"""From the lines of a log to recorded traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from foredraft.integration.errors import UserError
from foredraft.integration.traffic.json_log import read_json_line
from foredraft.integration.traffic.outcome import LeftOut
from foredraft.integration.traffic.records import TrafficRecord, in_order
from foredraft.integration.traffic.vllm_log import VllmLog

UNKNOWN = "no request in a form that is known"
LETTERS_PER_TOKEN = 4


@dataclass
class Converted:
    """What was found.

    Attributes:
        records: in the order of their arrival where it is known.
        left_out: number of lines by what they are.
        num_estimated: prompts whose number of tokens was estimated.
        lost_arrivals: records that told their time, which is dropped as others do not tell theirs.
    """

    records: list[TrafficRecord]
    left_out: Counter[str] = field(default_factory=Counter)
    num_estimated: int = 0
    lost_arrivals: int = 0


def convert(lines: Iterable[str], source: str, *, lengths_only: bool) -> Converted:
    """The requests of a log.

    Args:
        lengths_only: whether to keep the numbers of tokens alone, nothing of any text.

    Raises:
        UserError: there is no request; ``source`` begins the text.
    """
    found = Converted([])
    vllm_log = VllmLog()
    for line in lines:
        if not line.strip():
            continue
        is_json = line.lstrip().startswith("{")
        outcome = (read_json_line(line) if is_json else vllm_log.read(line)) or LeftOut(UNKNOWN)
        if isinstance(outcome, TrafficRecord):
            found.records.append(outcome)
        elif outcome.reason:
            found.left_out[outcome.reason] += 1
    if not found.records:
        reasons = "; ".join(f"{count} lines: {reason}" for reason, count in found.left_out.items()) or "empty"
        raise UserError(f"{source}: no request was found ({reasons})")
    _settle_arrivals(found, source)
    if lengths_only:
        found.num_estimated = sum(record.prompt_tokens is None for record in found.records)
        found.records = [_lengths(record) for record in found.records]
    return found


def _settle_arrivals(found: Converted, source: str) -> None:
    known = sum(record.arrival_s is not None for record in found.records)
    if 0 < known < len(found.records):
        found.lost_arrivals = known
        found.records = [record.model_copy(update={"arrival_s": None}) for record in found.records]
    found.records = in_order(found.records, source)


def _lengths(record: TrafficRecord) -> TrafficRecord:
    """A new record of the numbers alone; tokens that were not counted are estimated from the letters."""
    text = record.prompt or "".join(message.content for message in record.messages or ())
    return TrafficRecord(
        prompt_tokens=record.prompt_tokens or max(1, round(len(text) / LETTERS_PER_TOKEN)),
        max_tokens=record.max_tokens,
        temperature=record.temperature,
        arrival_s=record.arrival_s,
    )
