"""Attention of ragged queries over cache slots.

Rows whose slots lie side by side are padded into one call, where that is cheaper than calls of their own
(grouping.py), as a view of the cache: nothing is gathered.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from foredraft.integration.embedded.grouping import LONG_QUERY, cheapest_groups
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.proposers.decoder import Tokens, to_device


@dataclass(frozen=True)
class Group:
    """Adjacent slots [first, last], queries padded to ``width`` and keys to ``kv_len``.

    ``positions`` is [rows, width]: where each query sits in its sequence. A padding query repeats the row's
    last position, so that it attends to something and stays finite; its output is dropped. ``sees_all``: each
    row has one query, right behind all ``kv_len`` - 1 keys, so that nothing has to be masked.
    """

    first: int
    last: int
    width: int
    kv_len: int
    positions: Tensor
    sees_all: bool


@dataclass
class Layout:
    """How the tokens of one pass lie in the cache and in the padded groups; built once, used by every layer.

    Attributes:
        positions: [T].
        flat_index: [T * kv heads], where keys and values are written.
        gather: [P] token of each padded query, group after group; ``None`` when that is 0..T-1.
        scatter: [T] padded query of each token; ``None`` likewise.
    """

    cache: SlotCache
    positions: Tensor
    flat_index: Tensor
    groups: list[Group]
    gather: Tensor | None
    scatter: Tensor | None
    masks: dict[tuple[int, int | None, torch.dtype], Tensor] = field(default_factory=dict)

    def following(self) -> Layout:
        """The layout of one token more for each row, right behind; for a layout of one token per row.

        Worked out on the device alone: a GPU that drafts waits for nothing, and the drafting loop can be
        captured as a graph.
        """
        groups = [
            replace(group, kv_len=group.kv_len + 1, positions=group.positions + 1) for group in self.groups
        ]
        return replace(
            self,
            positions=self.positions + 1,
            flat_index=self.flat_index + 1,
            groups=groups,
            masks={},
        )


def build_layout(cache: SlotCache, tokens: Tokens, device: torch.device) -> Layout:
    """Group the rows of a pass and index its tokens."""
    starts, counts = tokens.starts, tokens.query_lens
    first_token = [0]
    for count in counts:
        first_token.append(first_token[-1] + count)
    groups: list[Group] = []
    gather: list[int] = []
    scatter = [0] * first_token[-1]
    for rows in cheapest_groups(tokens.row_ids, starts, counts, cache.key_size, device):
        width = max(counts[row] for row in rows)
        kv_lens = [starts[row] + counts[row] for row in rows]
        positions = []
        for row in rows:
            for offset in range(counts[row]):
                scatter[first_token[row] + offset] = len(gather) + offset
            offsets = [min(offset, counts[row] - 1) for offset in range(width)]
            gather += [first_token[row] + offset for offset in offsets]
            positions.append([starts[row] + offset for offset in offsets])
        groups.append(
            Group(
                first=tokens.row_ids[rows[0]],
                last=tokens.row_ids[rows[-1]],
                width=width,
                kv_len=max(kv_lens),
                positions=to_device(positions, device),
                sees_all=width == 1 and min(kv_lens) == max(kv_lens),
            )
        )
    in_order = gather == list(range(len(scatter)))
    slots = [slot for slot, count in zip(tokens.row_ids, counts, strict=True) for _ in range(count)]
    flat = [start + offset for start, count in zip(starts, counts, strict=True) for offset in range(count)]
    token_slots, token_positions = to_device(slots, device), to_device(flat, device)
    return Layout(
        cache=cache,
        positions=token_positions,
        flat_index=cache.flat_index(token_slots, token_positions),
        groups=groups,
        gather=None if in_order else to_device(gather, device),
        scatter=None if in_order else to_device(scatter, device),
    )


def slot_attention(
    layout: Layout,
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """Store the new keys and values and attend each query to its own row, causally.

    Args:
        query: [T, H, D].
        key, value: [T, kv heads, D].
        window: attend to this many newest positions only (sliding window).

    Returns:
        [T, H * D].
    """
    layout.cache.write(layer, layout.flat_index, key, value)
    padded = query if layout.gather is None else query.index_select(0, layout.gather)
    outputs = []
    begin = 0
    for index, group in enumerate(layout.groups):
        size = (group.last - group.first + 1) * group.width
        outputs.append(_attend(layout, index, layer, padded[begin : begin + size], scale, window))
        begin += size
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return output if layout.scatter is None else output.index_select(0, layout.scatter)


def _attend(
    layout: Layout, index: int, layer: int, query: Tensor, scale: float, window: int | None
) -> Tensor:
    """One group: [rows * width, H, D] -> [rows * width, H * D]."""
    group, cache = layout.groups[index], layout.cache
    rows, heads, head_dim = group.last - group.first + 1, query.shape[1], query.shape[2]
    shared = heads // cache.num_kv_heads  # query heads that share one key head become extra queries of it
    stacked = query.view(rows, group.width, cache.num_kv_heads, shared, head_dim).permute(0, 2, 3, 1, 4)
    stacked = stacked.reshape(rows, cache.num_kv_heads, shared * group.width, head_dim)
    keys = cache.keys[layer, group.first : group.last + 1, :, : group.kv_len]
    values = cache.values[layer, group.first : group.last + 1, :, : group.kv_len]
    mask = _mask(layout, index, window, query.dtype, shared)
    attend = exact_attention if query.dtype == torch.float32 and group.width <= LONG_QUERY else fast_attention
    output = attend(stacked, keys, values, mask, scale)
    output = output.view(rows, cache.num_kv_heads, shared, group.width, head_dim).permute(0, 3, 1, 2, 4)
    return output.reshape(rows * group.width, heads * head_dim)


def _mask(layout: Layout, index: int, window: int | None, dtype: torch.dtype, shared: int) -> Tensor | None:
    """Additive mask [rows, 1, shared * width, kv_len], made once per pass; ``None`` hides nothing."""
    group = layout.groups[index]
    if group.sees_all and (window is None or group.kv_len <= window):
        return None
    cached = layout.masks.get((index, window, dtype))
    if cached is not None:
        return cached
    key_positions = torch.arange(group.kv_len, device=group.positions.device)
    distance = group.positions[:, None, :, None] - key_positions
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))
    layout.masks[index, window, dtype] = mask = mask.repeat(1, 1, shared, 1)
    return mask


def fast_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """PyTorch's fused kernel. Rounds differently for different query widths and key lengths."""
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)


def exact_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attention in float64, rounded once to float32.

    float32 is the dtype in which speculation must not change a single token. Summing in float64 makes the
    rounded result the same for any query width, padding and batch (the packed linear layers are so by
    themselves); seen bit-equal in tests, where float32 sums differ in the last bits.
    """
    scores = torch.matmul(query.double(), keys.double().transpose(-1, -2)).mul_(scale)
    if mask is not None:
        scores += mask
    return torch.matmul(scores.softmax(-1), values.double()).to(query.dtype)
