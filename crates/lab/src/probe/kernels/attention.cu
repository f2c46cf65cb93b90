// Attention as FlashAttention-2 lays it out (arXiv:2307.08691): tiles in shared memory, softmax along the way, scores computed
// again backward. Our own code: what a GPU reaches without a library's attention, and so a bound from above on its time.
// QK and DV, the dimensions of a head, are set when it is compiled: multiples of 32, DV at most QK.
//
// Every operand is bf16, [sequence, head, position, dimension], rows together. `group` query heads share a head of keys.
// A block of 128 threads is four warps, each with 16 rows of the block's 64.

#define PAD 8                   // elements between rows in shared memory, so that eight rows touch all banks
#define TILE 64                 // queries of a block forward, keys of a block backward, keys of a step forward
#define STEP 32                 // queries of a step backward
#define LOG2E 1.4426950408889634f

// Which keys a query sees: those before one that moves along with it (all, where it is not causal), `window` of them at
// most where it is not 0. Fewer queries than keys lie evenly among them.
struct Sight {
    u32 queries, keys, causal, window;

    __device__ inline u32 end(u32 query) const {
        return causal ? (u32)((u64)(query + 1) * keys / queries) : keys;
    }

    __device__ inline u32 start(u32 query) const {
        u32 past = end(query);
        return window && past > window ? past - window : 0;
    }

    // The first query that sees `key` or a later one.
    __device__ inline u32 first(u32 key) const {
        return causal ? (u32)(((u64)(key + 1) * queries + keys - 1) / keys) - 1 : 0;
    }

    // Past the last query that sees a key before `key`.
    __device__ inline u32 last(u32 key) const {
        if (!window || !causal) return queries;
        u64 past = ((u64)(key + window) * queries + keys - 1) / keys - 1;
        return past < queries ? (u32)past : queries;
    }
};

// Copies `rows` rows from row `first` on; rows past `all` are zeros.
template <int DIM> __device__ inline void take(bf16* to, const bf16* from, u32 first, u32 all, u32 rows) {
    const u32 each = DIM / 8;
    for (u32 at = threadIdx.x; at < rows * each; at += 128) {
        u32 row = at / each, column = at % each * 8;
        bool there = first + row < all;
        copy16(to + row * (DIM + PAD) + column, from + (u64)(there ? first + row : 0) * DIM + column, there);
    }
}

// o = softmax(scale q k^T) v, and the logarithm (base 2) of each row's sum of exponentials.
extern "C" __global__ void __launch_bounds__(128)
    attention_forward_kernel(const bf16* q, const bf16* k, const bf16* v, bf16* o, float* lse, u32 group, u32 queries,
                             u32 keys, u32 causal, u32 window, float scale) {
    SHARED(bf16, shared);
    bf16 *qs = shared, *ks = qs + TILE * (QK + PAD), *vs = ks + TILE * (QK + PAD);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Sight sight = {queries, keys, causal, window};
    const u64 head = blockIdx.y;
    // The blocks that see most start first.
    const u32 first = (gridDim.x - 1 - blockIdx.x) * TILE;
    const u32 final = first + TILE < queries ? first + TILE - 1 : queries - 1;
    const u32 rows[2] = {first + warp * 16 + lane / 4, first + warp * 16 + lane / 4 + 8};
    q += head * queries * QK;
    k += head / group * keys * QK;
    v += head / group * keys * DV;

    const u32 from = sight.start(first) / TILE * TILE, to = sight.end(final);
    take<QK>(qs, q, first, queries, TILE);
    take<QK>(ks, k, from, keys, TILE);
    copied();
    __syncthreads();
    u32 query[QK / 16][4];
#pragma unroll
    for (int d = 0; d < QK / 16; d++)
        load4(query[d], qs + (warp * 16 + lane % 16) * (QK + PAD) + d * 16 + lane / 16 * 8);

    float out[DV / 8][4] = {}, most[2] = {LEAST, LEAST}, sum[2] = {};
    const float unit = scale * LOG2E;
    for (u32 at = from; at < to; at += TILE) {
        copied();
        __syncthreads(); // the keys are there, and the last values are done with
        take<DV>(vs, v, at, keys, TILE);

        float s[8][4] = {};
#pragma unroll
        for (int d = 0; d < QK / 16; d++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                u32 key[4];
                load4(key, ks + (n * 16 + lane % 8 + lane / 16 * 8) * (QK + PAD) + d * 16 + lane / 8 % 2 * 8);
                mma(s[2 * n], query[d], key[0], key[1]);
                mma(s[2 * n + 1], query[d], key[2], key[3]);
            }

        if (at < sight.start(final) || at + TILE > sight.end(first)) {
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    u32 key = at + n * 8 + lane % 4 * 2 + j % 2, row = rows[j / 2];
                    if (key < sight.start(row) || key >= sight.end(row) || key >= keys) s[n][j] = LEAST;
                }
        }

#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = most[half];
#pragma unroll
            for (int n = 0; n < 8; n++) top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
            top = fmaxf(top, across(top, 1));
            top = fmaxf(top, across(top, 2));
            float base = top == LEAST ? 0.0f : top * unit, shrunk = exp2f(most[half] * unit - base);
            most[half] = top;
            sum[half] *= shrunk;
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int j = 2 * half; j < 2 * half + 2; j++) {
                    s[n][j] = exp2f(s[n][j] * unit - base);
                    sum[half] += s[n][j];
                }
#pragma unroll
            for (int n = 0; n < DV / 8; n++) {
                out[n][2 * half] *= shrunk;
                out[n][2 * half + 1] *= shrunk;
            }
        }

        copied();
        __syncthreads(); // the values are there, and the keys are done with
        if (at + TILE < to) take<QK>(ks, k, at + TILE, keys, TILE);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            u32 p[4] = {pack(s[2 * c][0], s[2 * c][1]), pack(s[2 * c][2], s[2 * c][3]),
                        pack(s[2 * c + 1][0], s[2 * c + 1][1]), pack(s[2 * c + 1][2], s[2 * c + 1][3])};
#pragma unroll
            for (int n = 0; n < DV / 16; n++) {
                u32 value[4];
                load4_turned(value, vs + (c * 16 + lane % 16) * (DV + PAD) + n * 16 + lane / 16 * 8);
                mma(out[2 * n], p, value[0], value[1]);
                mma(out[2 * n + 1], p, value[2], value[3]);
            }
        }
    }

#pragma unroll
    for (int half = 0; half < 2; half++) {
        sum[half] += across(sum[half], 1);
        sum[half] += across(sum[half], 2);
        const u32 row = rows[half];
        if (row >= queries) continue;
        const float share = sum[half] > 0.0f ? 1.0f / sum[half] : 0.0f;
        u32* line = (u32*)(o + (head * queries + row) * DV);
#pragma unroll
        for (int n = 0; n < DV / 8; n++)
            line[n * 4 + lane % 4] = pack(out[n][2 * half] * share, out[n][2 * half + 1] * share);
        // Of a row that sees nothing every exponential is zero backward.
        if (lane % 4 == 0) lse[head * queries + row] = sum[half] > 0.0f ? most[half] * unit + log2f(sum[half]) : MOST;
    }
}

// delta = sum over the dimensions of o do, one warp for each row.
extern "C" __global__ void attention_delta_kernel(const bf16* o, const bf16* d_o, float* delta, u64 rows) {
    const u64 row = (u64)blockIdx.x * 4 + threadIdx.x / 32;
    float sum = 0.0f;
    if (row < rows)
        for (u32 at = threadIdx.x % 32; at < DV; at += 32)
            sum += wide(o[row * DV + at]) * wide(d_o[row * DV + at]);
    for (int bits = 16; bits > 0; bits /= 2) sum += across(sum, bits);
    if (row < rows && threadIdx.x % 32 == 0) delta[row] = sum;
}

// With p = softmax and ds = p (do v^T - delta): dv = p^T do, dk = scale ds^T q, dq = scale ds k. A block has 64 keys, walks
// over the queries that see them, of every head that shares them, and adds its part of dq (unscaled) in fp32.
extern "C" __global__ void __launch_bounds__(128)
    attention_backward_kernel(const bf16* q, const bf16* k, const bf16* v, const bf16* d_o, const float* lse,
                              const float* delta, float* dq, bf16* dk, bf16* dv, u32 group, u32 queries, u32 keys,
                              u32 causal, u32 window, float scale) {
    SHARED(bf16, shared);
    bf16 *ks = shared, *vs = ks + TILE * (QK + PAD), *qs = vs + TILE * (DV + PAD), *gs = qs + STEP * (QK + PAD);
    bf16* turned = gs + STEP * (DV + PAD); // ds, [key, query]
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Sight sight = {queries, keys, causal, window};
    const u64 shares = blockIdx.y;
    const u32 first = blockIdx.x * TILE, past = first + TILE < keys ? first + TILE : keys;
    const u32 rows[2] = {first + warp * 16 + lane / 4, first + warp * 16 + lane / 4 + 8};
    const float unit = scale * LOG2E;
    take<QK>(ks, k + shares * keys * QK, first, keys, TILE);
    take<DV>(vs, v + shares * keys * DV, first, keys, TILE);

    float dks[QK / 8][4] = {}, dvs[DV / 8][4] = {};
    for (u64 head = shares * group; head < (shares + 1) * group; head++)
        for (u32 at = sight.first(first) / STEP * STEP; at < sight.last(past); at += STEP) {
            take<QK>(qs, q + head * queries * QK, at, queries, STEP);
            take<DV>(gs, d_o + head * queries * DV, at, queries, STEP);
            copied();
            __syncthreads();

            // Keys by queries: the scores, and do v^T.
            float p[4][4] = {}, ds[4][4] = {};
#pragma unroll
            for (int d = 0; d < QK / 16; d++) {
                u32 key[4];
                load4(key, ks + (warp * 16 + lane % 16) * (QK + PAD) + d * 16 + lane / 16 * 8);
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    u32 query[4];
                    load4(query, qs + (n * 16 + lane % 8 + lane / 16 * 8) * (QK + PAD) + d * 16 + lane / 8 % 2 * 8);
                    mma(p[2 * n], key, query[0], query[1]);
                    mma(p[2 * n + 1], key, query[2], query[3]);
                }
            }
#pragma unroll
            for (int d = 0; d < DV / 16; d++) {
                u32 value[4];
                load4(value, vs + (warp * 16 + lane % 16) * (DV + PAD) + d * 16 + lane / 16 * 8);
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    u32 gradient[4];
                    load4(gradient, gs + (n * 16 + lane % 8 + lane / 16 * 8) * (DV + PAD) + d * 16 + lane / 8 % 2 * 8);
                    mma(ds[2 * n], value, gradient[0], gradient[1]);
                    mma(ds[2 * n + 1], value, gradient[2], gradient[3]);
                }
            }
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const u32 query = at + n * 8 + lane % 4 * 2 + j % 2, key = rows[j / 2];
                    const bool seen =
                        query < queries && key < keys && key >= sight.start(query) && key < sight.end(query);
                    p[n][j] = seen ? exp2f(p[n][j] * unit - lse[head * queries + query]) : 0.0f;
                    ds[n][j] = seen ? p[n][j] * (ds[n][j] - delta[head * queries + query]) : 0.0f;
                }

            u32 scores[2][4], slopes[2][4];
#pragma unroll
            for (int c = 0; c < 2; c++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    scores[c][i] = pack(p[2 * c + i / 2][i % 2 * 2], p[2 * c + i / 2][i % 2 * 2 + 1]);
                    slopes[c][i] = pack(ds[2 * c + i / 2][i % 2 * 2], ds[2 * c + i / 2][i % 2 * 2 + 1]);
                    const u32 row = warp * 16 + lane / 4 + i % 2 * 8, column = c * 16 + i / 2 * 8 + lane % 4 * 2;
                    *(u32*)(turned + row * (STEP + PAD) + column) = slopes[c][i];
                }
#pragma unroll
            for (int c = 0; c < 2; c++) {
#pragma unroll
                for (int n = 0; n < DV / 16; n++) {
                    u32 gradient[4];
                    load4_turned(gradient, gs + (c * 16 + lane % 16) * (DV + PAD) + n * 16 + lane / 16 * 8);
                    mma(dvs[2 * n], scores[c], gradient[0], gradient[1]);
                    mma(dvs[2 * n + 1], scores[c], gradient[2], gradient[3]);
                }
#pragma unroll
                for (int n = 0; n < QK / 16; n++) {
                    u32 query[4];
                    load4_turned(query, qs + (c * 16 + lane % 16) * (QK + PAD) + n * 16 + lane / 16 * 8);
                    mma(dks[2 * n], slopes[c], query[0], query[1]);
                    mma(dks[2 * n + 1], slopes[c], query[2], query[3]);
                }
            }

            // dq of 16 queries and half of the dimensions by each warp, over all 64 keys.
            __syncthreads(); // all of ds is there, and the queries are done with
            float dqs[QK / 16][4] = {};
            const u32 half = warp / 2 * (QK / 2);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                u32 slope[4];
                load4_turned(slope, turned + (c * 16 + lane % 8 + lane / 16 * 8) * (STEP + PAD) + warp % 2 * 16 +
                                        lane / 8 % 2 * 8);
#pragma unroll
                for (int n = 0; n < QK / 32; n++) {
                    u32 key[4];
                    load4_turned(key, ks + (c * 16 + lane % 16) * (QK + PAD) + half + n * 16 + lane / 16 * 8);
                    mma(dqs[2 * n], slope, key[0], key[1]);
                    mma(dqs[2 * n + 1], slope, key[2], key[3]);
                }
            }
#pragma unroll
            for (int n = 0; n < QK / 16; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const u32 query = at + warp % 2 * 16 + lane / 4 + j / 2 * 8;
                    if (query < queries)
                        atomicAdd(dq + (head * queries + query) * QK + half + n * 8 + lane % 4 * 2 + j % 2, dqs[n][j]);
                }
        }
    copied();

#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (rows[i] >= keys) continue;
        u32* line = (u32*)(dk + (shares * keys + rows[i]) * QK);
#pragma unroll
        for (int n = 0; n < QK / 8; n++)
            line[n * 4 + lane % 4] = pack(dks[n][2 * i] * scale, dks[n][2 * i + 1] * scale);
        line = (u32*)(dv + (shares * keys + rows[i]) * DV);
#pragma unroll
        for (int n = 0; n < DV / 8; n++) line[n * 4 + lane % 4] = pack(dvs[n][2 * i], dvs[n][2 * i + 1]);
    }
}

// dq in bf16, with the scale; four elements each.
extern "C" __global__ void attention_narrow_kernel(const float* sum, bf16* dq, u64 elements, float scale) {
    u64 at = ((u64)blockIdx.x * 128 + threadIdx.x) * 4;
    if (at >= elements) return;
    u32* to = (u32*)(dq + at);
    to[0] = pack(sum[at] * scale, sum[at + 1] * scale);
    to[1] = pack(sum[at + 2] * scale, sum[at + 3] * scale);
}
