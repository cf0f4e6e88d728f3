"""How fast a replica is expected to be: a step of the target, the drafting, and the way between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from operator import mul

from foredraft.scheduler.hardware_model.cost_model import Roofline
from foredraft.scheduler.hardware_model.hardware import Gpu
from foredraft.scheduler.hardware_model.language_models import ModelSize
from foredraft.scheduler.placement.models import ModelNeed, Request

REMOTE_CALL_S = 1e-3
"""Asking an actor on the same node and hearing its answer; a plain Ray call takes about this long."""

CORE_BANDWIDTH = 6e9
CORE_FLOPS = 65e9
"""Of one CPU core: what two cores reached with SmolLM2-135M in bfloat16, at the cost model's shares."""

NODE_BANDWIDTH = 200e9
"""Of a node's memory: more cores do not read it faster."""


def cpu_device(cores: int, memory_bytes: int = 0) -> Gpu:
    """CPU cores as the cost model sees a device."""
    bandwidth = min(cores * CORE_BANDWIDTH, NODE_BANDWIDTH)
    return Gpu(bandwidth, cores * CORE_FLOPS, memory_bytes, bandwidth, "measured with two cores")


def part_of(gpu: Gpu, share: float) -> Gpu:
    """A share of a GPU's time and memory."""
    if share == 1:
        return gpu
    return replace(gpu, bandwidth=gpu.bandwidth * share, flops=gpu.flops * share, memory=gpu.memory * share)


@dataclass(frozen=True)
class Drafting:
    """What drafting costs a step.

    Attributes:
        token_s: for one more token of every request.
        call_s: asking for it; 0 = in the target's process.
        num_targets: that share the draft.
    """

    token_s: float
    call_s: float = 0.0
    num_targets: int = 1


@dataclass(frozen=True)
class Prediction:
    """Of one replica.

    Attributes:
        num_draft_tokens: with which it is fastest; 0 = drafting does not pay.
    """

    tokens_per_s: float
    num_draft_tokens: int


class Predictor:
    """Predicts for one request, and remembers.

    Args:
        network_s: a round trip between two nodes.
    """

    def __init__(self, request: Request, network_s: float) -> None:
        self._request = request
        self._network_s = network_s
        self._known: dict[tuple[Gpu, Drafting, bool], Prediction] = {}
        self._reached: list[float] = list(accumulate(request.acceptance, mul))

    def in_process(self, gpu: Gpu) -> Drafting:
        """A draft in the target's process: its own GPU, in turns with the target."""
        size = self._in_process_size()
        if size is None:
            return Drafting(0.0)
        draft = self._request.draft or self._request.target
        return Drafting(self._token_s(gpu, size, draft, self._request.batch_size))

    def remote(self, device: Gpu, num_targets: int, *, same_node: bool) -> Drafting:
        """A draft in a process of its own, for the requests of ``num_targets`` targets."""
        draft = self._request.draft
        assert draft is not None, "only a draft model runs elsewhere"
        call_s = REMOTE_CALL_S + (0.0 if same_node else self._network_s)
        token_s = self._token_s(device, draft.size, draft, self._request.batch_size * num_targets)
        return Drafting(token_s, call_s, num_targets)

    def predict(self, gpu: Gpu, drafting: Drafting, *, stages_apart: bool) -> Prediction:
        """The best number of draft tokens and what comes of it.

        Args:
            stages_apart: pipeline stages talk over the network.
        """
        key = gpu, drafting, stages_apart
        if key not in self._known:
            lengths = range(len(self._reached) + 1 if self._request.proposer != "none" else 1)
            rates = [self._rate(gpu, drafting, length, stages_apart) for length in lengths]
            best = max(rates)
            self._known[key] = Prediction(best, rates.index(best))
        return self._known[key]

    def _rate(self, gpu: Gpu, drafting: Drafting, length: int, stages_apart: bool) -> float:
        emitted = 1 + sum(self._reached[:length])
        target_s = self._target_s(gpu, length, stages_apart)
        step_s = target_s + self._drafting_s(drafting, length, target_s) if length else target_s
        return self._request.batch_size * emitted / step_s

    def _target_s(self, gpu: Gpu, length: int, stages_apart: bool) -> float:
        # With pipeline stages the batch goes through in as many parts, one in each stage at any time.
        target = self._request.target
        stages = target.pipeline_parallel
        part = ceil(self._request.batch_size / stages)
        model = Roofline(
            gpu, target.size, None, self._request.context, target.tensor_parallel, target.weight_bytes
        )
        hop_s = self._network_s / 2 if stages_apart else 0.0
        return model.pass_s(part, part * (length + 1)) + (stages - 1) * hop_s

    def _drafting_s(self, drafting: Drafting, length: int, target_s: float) -> float:
        """What drafting adds to a step.

        A draft that nobody shares drafts ahead; the work survives only if all of it was accepted, with the
        guessed bonus token, for every request of the batch. Where others share it, a call waits for half
        of another's drafting, and no work ahead is counted.
        """
        drafting_s = length * drafting.token_s
        if not drafting.call_s:
            return drafting_s
        if drafting.num_targets > 1:
            return drafting.call_s + 1.5 * drafting_s
        rates = [*self._request.acceptance, self._request.acceptance[-1]]
        all_kept = 1.0
        for rate in rates[: length + 1]:
            all_kept *= rate
        survives = all_kept**self._request.batch_size
        hidden_s = min(drafting_s, target_s)
        return drafting.call_s + drafting_s - survives * hidden_s

    def _in_process_size(self) -> ModelSize | None:
        if self._request.draft:
            return self._request.draft.size
        if self._request.proposer != "early_exit":
            return None
        size = self._request.target.size
        layers = min(self._request.exit_layer or max(1, size.num_layers // 2), size.num_layers)
        head = size.vocab_size * size.hidden_size
        body = (size.params_read - head) * layers / size.num_layers
        return replace(size, num_params=body + head, num_layers=layers, tied=True)

    def _token_s(self, device: Gpu, size: ModelSize, need: ModelNeed, num_requests: int) -> float:
        model = Roofline(device, size, None, self._request.context, need.tensor_parallel, need.weight_bytes)
        return model.pass_s(num_requests, num_requests)
