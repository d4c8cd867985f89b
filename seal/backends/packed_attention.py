"""Attention over packed dialogues without flash-attn: `attn_implementation: packed_sdpa`.

verl packs dialogues of different lengths into one row; their positions start again at 0. With `sdpa`
transformers builds a mask for the whole row and torch computes all pairs of its tokens. Here each dialogue
is one causal call, which computes only its own pairs and needs no mask. A segment whose positions start at
s > 0 is another continuation of the first s tokens of the dialogue before it (`seal.backends.cpu_rows`).
"""

from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "packed_sdpa"
UNKNOWN = "softcap", "s_aux"
"""Features of attention that some models use and `packed_sdpa` does not compute."""
ADVICE = "set actor_rollout_ref.model.override_config.attn_implementation=sdpa"


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    position_ids: torch.Tensor | None = None,
    sliding_window: int | None = None,
    **others: object,
) -> tuple[torch.Tensor, None]:
    """Causal attention of each dialogue of a packed row to itself, and of each continuation to what it continues.

    query: (1, H, n, d); key, value: (1, H_kv, n, d), where H_kv divides H; position_ids: (1, n), 0 at each dialogue's
    first token, s at that of a continuation. Returns (1, n, H, d), and None for the attention weights. ValueError for
    a padded batch, a dialogue longer than `sliding_window`, and UNKNOWN attention. With `is_causal=False`, as over
    an image, every token attends to all.
    """
    if others.get("is_causal") is False:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **others)
    if query.shape[0] != 1 or attention_mask is not None or position_ids is None:
        raise ValueError(f"{NAME} takes packed rows: set actor_rollout_ref.model.use_remove_padding=true.")
    if asked := [name for name in UNKNOWN if others.get(name) is not None]:
        raise ValueError(f"{NAME} has no {asked[0]}: {ADVICE}.")
    positions = position_ids[0]
    if sliding_window is not None and (longest := int(positions.max()) + 1) > sliding_window:
        raise ValueError(f"{NAME} has no window of {sliding_window} in a dialogue of {longest} tokens: {ADVICE}.")
    begins = positions.diff(prepend=positions[:1]) != 1
    starts = torch.nonzero(begins).flatten().tolist()
    lengths = [end - start for start, end in zip(starts, [*starts[1:], query.shape[2]], strict=True)]
    # `split` and `cat` are each other's gradients; slices would each add a zero tensor of the whole row.
    rows = zip(positions[begins].tolist(), *(each.split(lengths, dim=2) for each in (query, key, value)), strict=True)
    attention = partial(scaled_dot_product_attention, dropout_p=dropout, scale=scaling, enable_gqa=True)
    outputs = []
    for before, q, k, v in rows:
        if before == 0:
            dialogue = k, v
            outputs.append(attention(q, k, v, is_causal=True))
            continue
        k, v = (torch.cat((whole[:, :, :before], own), dim=2) for whole, own in zip(dialogue, (k, v), strict=True))
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(before)
        outputs.append(attention(q, k, v, attn_mask=seen))
    return torch.cat(outputs, dim=2).transpose(1, 2), None


AttentionInterface.register(NAME, packed_attention)
