"""Attention over paged keys and values, in plain torch.

# B requests, T tokens of one chunk, L tokens attended to, P pages of one request, N pages in all,
# S tokens a page, K key-value heads, G query heads that share one of them, D head dimension
"""

import torch
from torch.nn import functional


def decode_attention(
    q_BKGD: torch.Tensor,
    k_NSKD: torch.Tensor,
    v_NSKD: torch.Tensor,
    pages_BP: torch.Tensor,
    bias_B11L: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attention of one new token a request over that request's pages; (B, K, G, D).

    Semantics: keys_b, values_b = concat(k[pages[b]]), concat(v[pages[b]]);
    out[b, k, g] = softmax(scale * q[b, k, g] @ keys_b[:, k] + bias[b]) @ values_b[:, k].

    pages_BP: int64, a table of a shorter request filled up with any page of finite values.
    bias_B11L: 0 for tokens of the request, -inf beyond its length; L = P * S. Pages must hold
    finite values everywhere, since 0 * nan is nan: a page is zeroed when it is given out.
    The query heads of one group ride in the place of query tokens, so nothing is repeated.
    Source: PagedAttention, arXiv:2309.06180; grouped queries, arXiv:2305.13245.
    """
    num_rows, num_pages = pages_BP.shape
    _, page_tokens, num_kv_heads, head_dim = k_NSKD.shape
    shape = (num_rows, num_pages * page_tokens, num_kv_heads, head_dim)
    table = pages_BP.reshape(-1)
    k_BLKD = k_NSKD.index_select(0, table).view(shape)
    v_BLKD = v_NSKD.index_select(0, table).view(shape)
    return functional.scaled_dot_product_attention(
        q_BKGD,
        k_BLKD.transpose(1, 2),
        v_BLKD.transpose(1, 2),
        attn_mask=bias_B11L,
        scale=scale,
    )


def prefill_attention(
    q_THD: torch.Tensor,
    k_LKD: torch.Tensor,
    v_LKD: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Causal attention of one request's chunk: its T tokens are the last of the L; (T, H, D).

    Semantics: out[t, h] = softmax(scale * q[t, h] @ k[: L - T + t + 1, h // G]) @ v[..., h // G].
    """
    num_tokens, num_heads, _ = q_THD.shape
    length, num_kv_heads, _ = k_LKD.shape
    mask_TL = None
    if num_tokens != length:
        mask_TL = torch.ones(num_tokens, length, dtype=torch.bool, device=q_THD.device)
        mask_TL = mask_TL.tril(length - num_tokens)
    out_1HTD = functional.scaled_dot_product_attention(
        q_THD.transpose(0, 1).unsqueeze(0),
        k_LKD.transpose(0, 1).unsqueeze(0),
        v_LKD.transpose(0, 1).unsqueeze(0),
        attn_mask=mask_TL,
        is_causal=mask_TL is None,
        scale=scale,
        enable_gqa=num_heads != num_kv_heads,
    )
    return out_1HTD.squeeze(0).transpose(0, 1)
