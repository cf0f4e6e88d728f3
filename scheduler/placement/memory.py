"""How the memory of a device is divided, and what is missing where it does not suffice."""

from __future__ import annotations

from math import ceil

from foredraft.scheduler.placement.models import ModelNeed, Request
from foredraft.scheduler.placement.plan import MemorySplit

RESERVED_SHARE = 0.1
"""Of a GPU's memory: for activations, the context of the device and fragmentation."""


def weights_per_device(need: ModelNeed) -> int:
    """Bytes of weights on each GPU of a model."""
    return ceil(need.weights_bytes / need.num_devices)


def kv_per_device(need: ModelNeed, num_requests: int, context: int) -> int:
    """Bytes of cache on each: GPUs beyond the key-value heads hold copies of them."""
    divided = min(need.tensor_parallel, need.size.num_kv_heads) * need.pipeline_parallel
    return ceil(need.kv_bytes_per_token * num_requests * context / divided)


def least_split(need: ModelNeed, guest: ModelNeed | None, request: Request, num_targets: int) -> MemorySplit:
    """The least that a worker needs on each device, without reserve.

    Args:
        guest: a draft in the same process.
        num_targets: replicas whose requests it holds: 1 for a target.
    """
    num_requests = request.batch_size * num_targets
    guest_bytes = 0
    if guest:
        guest_bytes = weights_per_device(guest) + kv_per_device(guest, num_requests, request.context)
    return MemorySplit(
        weights_per_device(need), kv_per_device(need, num_requests, request.context), guest_bytes, 0
    )


def on_gpu(least: MemorySplit, gpu_bytes: float, share: float) -> MemorySplit | None:
    """The memory of a GPU divided: the cache takes all that is left; ``None`` where it is not enough."""
    if missing_bytes(least, gpu_bytes, share) > 0:
        return None
    held = int(gpu_bytes * share)
    reserve = ceil(held * RESERVED_SHARE)
    kv_bytes = held - reserve - least.weights_bytes - least.draft_bytes
    return MemorySplit(least.weights_bytes, kv_bytes, least.draft_bytes, reserve)


def on_cpu(least: MemorySplit, request: Request) -> MemorySplit:
    """The RAM of a worker on CPUs: what is needed, and the process itself."""
    return MemorySplit(least.weights_bytes, least.kv_bytes, least.draft_bytes, request.memory_bytes_per_gpu)


def missing_bytes(least: MemorySplit, gpu_bytes: float, share: float) -> int:
    """How much larger the GPU would have to be; 0 = it fits."""
    held = int(gpu_bytes * share)
    if least.total_bytes <= held - ceil(held * RESERVED_SHARE):
        return 0
    return ceil(least.total_bytes / (1 - RESERVED_SHARE) / share - gpu_bytes) + 1
