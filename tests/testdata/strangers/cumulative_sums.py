"""Wrong: the formula is right, and numerically poor. Decays are exponentials of differences of cumulative sums, as in the chunked
form of Mamba-2, and lose as many digits as the sums are longer than their differences."""

import mlx.core as mx

CHUNK = 64


def scan(s, x, dt, A, B, C):
    step = mx.where(dt > 20, dt, mx.logaddexp(dt, mx.zeros_like(dt)))
    log_decay = step[..., None] * (A[:, None] if A.ndim == 1 else A)
    B, C = (mx.repeat(grouped, x.shape[2] // grouped.shape[2], axis=2) for grouped in (B, C))
    entering = x * step[..., None]
    y = []
    for begin in range(0, x.shape[1], CHUNK):
        part = slice(begin, begin + CHUNK)
        sums = mx.cumsum(log_decay[:, part], axis=1)
        steps = mx.arange(sums.shape[1])
        before = (steps[:, None] >= steps[None, :])[None, :, :, None, None]
        decay = mx.exp(mx.where(before, sums[:, :, None] - sums[:, None, :], -mx.inf))  # from step j to step i
        scores = (decay * C[:, part][:, :, None] * B[:, part][:, None]).sum(axis=-1)
        within = (scores[..., None] * entering[:, part][:, None]).sum(axis=2)
        y.append(within + (s[:, None] * (mx.exp(sums) * C[:, part])[..., None, :]).sum(axis=-1))
        left = mx.exp(sums[:, -1:] - sums) * B[:, part]
        s = s * mx.exp(sums[:, -1])[..., None, :] + (entering[:, part][..., None] * left[..., None, :]).sum(axis=1)
    return mx.concatenate(y, axis=1), s
