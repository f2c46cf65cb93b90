// Kernels that the memory bounds: each operand passes once, eight bf16 at a time. Compiled by NVRTC when a probe opens.
// Every kernel has one signature: three operands, rows and columns of the output, as `StreamOp` counts them.

typedef unsigned short bf16;
typedef unsigned long long u64;

#define LOWEST -3.402823466e38f // finite, so that a difference of two is a number

struct alignas(16) Eight {
    bf16 of[8];
};

__device__ inline float wide(bf16 x) {
    return __uint_as_float(((unsigned)x) << 16);
}

// Round to nearest, ties to even.
__device__ inline bf16 narrow(float x) {
    unsigned bits = __float_as_uint(x);
    return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Sums of two numbers over the block, in one pass over its barriers.
__device__ inline float2 sums_of_block(float2 x) {
    __shared__ float2 of_warp[32];
    for (int step = 16; step > 0; step /= 2) {
        x.x += __shfl_xor_sync(0xffffffffu, x.x, step);
        x.y += __shfl_xor_sync(0xffffffffu, x.y, step);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    float2 sum = make_float2(0.0f, 0.0f);
    for (int warp = 0; warp < blockDim.x / 32; warp++) {
        sum.x += of_warp[warp].x;
        sum.y += of_warp[warp].y;
    }
    return sum;
}

// Vectors of a row that each thread keeps in registers between its two passes; those beyond are read again.
#define KEPT 4

// Nothing: what a launch costs.
extern "C" __global__ void empty_kernel(const Eight*, const Eight*, Eight*, u64, u64) {}

// Numbers between -1 and 1 that look random: power, and so clocks, depend on the data.
extern "C" __global__ void fill_kernel(const Eight*, const Eight*, Eight* out, u64 rows, u64 columns) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, all = rows * columns / 8;
    for (; at < all; at += (u64)gridDim.x * blockDim.x) {
        Eight eight;
        for (int i = 0; i < 8; i++) {
            u64 x = (at * 8 + i + 1) * 0x9e3779b97f4a7c15ull;
            x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
            eight.of[i] = narrow((float)(int)(x >> 33) * (1.0f / 1073741824.0f) - 1.0f);
        }
        out[at] = eight;
    }
}

// Random bytes that are finite as E4M3 (0x7f and 0xff are not): exponents of the middle, both signs.
extern "C" __global__ void fill_bytes_kernel(const Eight*, const Eight*, Eight* out, u64 rows, u64 columns) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, all = rows * columns / 16;
    unsigned char* bytes = (unsigned char*)out;
    for (; at < all; at += (u64)gridDim.x * blockDim.x)
        for (int i = 0; i < 16; i++) {
            u64 x = (at * 16 + i + 1) * 0x9e3779b97f4a7c15ull;
            bytes[at * 16 + i] = (unsigned char)((x >> 40) & 0xb7u);
        }
}

extern "C" __global__ void copy_kernel(const Eight* in, const Eight*, Eight* out, u64 rows, u64 columns) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, all = rows * columns / 8;
    for (; at < all; at += (u64)gridDim.x * blockDim.x) out[at] = in[at];
}

// y = x / sqrt(mean(x^2) + eps).
extern "C" __global__ void norm_kernel(const Eight* in, const Eight*, Eight* out, u64 rows, u64 columns) {
    u64 each = columns / 8;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const Eight* of_row = in + row * each;
        Eight kept[KEPT];
        float squares = 0.0f;
#pragma unroll
        for (int slot = 0; slot < KEPT; slot++) {
            u64 at = threadIdx.x + (u64)slot * blockDim.x;
            if (at < each) kept[slot] = of_row[at];
        }
#pragma unroll
        for (int slot = 0; slot < KEPT; slot++)
            if (threadIdx.x + (u64)slot * blockDim.x < each)
                for (int i = 0; i < 8; i++) squares += wide(kept[slot].of[i]) * wide(kept[slot].of[i]);
        for (u64 at = threadIdx.x + (u64)KEPT * blockDim.x; at < each; at += blockDim.x) {
            Eight x = of_row[at];
            for (int i = 0; i < 8; i++) squares += wide(x.of[i]) * wide(x.of[i]);
        }
        float scale = rsqrtf(sums_of_block(make_float2(squares, 0.0f)).x / (float)columns + 1e-5f);
#pragma unroll
        for (int slot = 0; slot < KEPT; slot++) {
            u64 at = threadIdx.x + (u64)slot * blockDim.x;
            if (at >= each) continue;
            for (int i = 0; i < 8; i++) kept[slot].of[i] = narrow(wide(kept[slot].of[i]) * scale);
            out[row * each + at] = kept[slot];
        }
        for (u64 at = threadIdx.x + (u64)KEPT * blockDim.x; at < each; at += blockDim.x) {
            Eight x = of_row[at];
            for (int i = 0; i < 8; i++) x.of[i] = narrow(wide(x.of[i]) * scale);
            out[row * each + at] = x;
        }
    }
}

__device__ inline void add_squares_and_products(float2& sums, const Eight& x, const Eight& g) {
    for (int i = 0; i < 8; i++) {
        sums.x += wide(x.of[i]) * wide(x.of[i]);
        sums.y += wide(x.of[i]) * wide(g.of[i]);
    }
}

// dx = r (dy - x r^2 mean(x dy)), r = 1 / sqrt(mean(x^2) + eps).
extern "C" __global__ void norm_backward_kernel(const Eight* in, const Eight* dy, Eight* out, u64 rows, u64 columns) {
    u64 each = columns / 8;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const Eight *of_row = in + row * each, *dy_of_row = dy + row * each;
        Eight x[KEPT], g[KEPT];
        float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int slot = 0; slot < KEPT; slot++) {
            u64 at = threadIdx.x + (u64)slot * blockDim.x;
            if (at >= each) continue;
            x[slot] = of_row[at];
            g[slot] = dy_of_row[at];
        }
#pragma unroll
        for (int slot = 0; slot < KEPT; slot++)
            if (threadIdx.x + (u64)slot * blockDim.x < each) add_squares_and_products(sums, x[slot], g[slot]);
        for (u64 at = threadIdx.x + (u64)KEPT * blockDim.x; at < each; at += blockDim.x)
            add_squares_and_products(sums, of_row[at], dy_of_row[at]);
        sums = sums_of_block(sums);
        float r = rsqrtf(sums.x / (float)columns + 1e-5f);
        float mean = sums.y / (float)columns * r * r;
#pragma unroll
        for (int slot = 0; slot < KEPT; slot++) {
            u64 at = threadIdx.x + (u64)slot * blockDim.x;
            if (at >= each) continue;
            for (int i = 0; i < 8; i++) x[slot].of[i] = narrow(r * (wide(g[slot].of[i]) - wide(x[slot].of[i]) * mean));
            out[row * each + at] = x[slot];
        }
        for (u64 at = threadIdx.x + (u64)KEPT * blockDim.x; at < each; at += blockDim.x) {
            Eight past = of_row[at], gradient = dy_of_row[at];
            for (int i = 0; i < 8; i++) past.of[i] = narrow(r * (wide(gradient.of[i]) - wide(past.of[i]) * mean));
            out[row * each + at] = past;
        }
    }
}

// Row = [gate | up]; y = gate * sigmoid(gate) * up.
extern "C" __global__ void swiglu_kernel(const Eight* in, const Eight*, Eight* out, u64 rows, u64 columns) {
    u64 each = columns / 8, all = rows * each, at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; at < all; at += (u64)gridDim.x * blockDim.x) {
        u64 row = at / each, column = at % each;
        Eight gate = in[row * 2 * each + column], up = in[row * 2 * each + each + column];
        for (int i = 0; i < 8; i++) {
            float g = wide(gate.of[i]);
            gate.of[i] = narrow(g / (1.0f + __expf(-g)) * wide(up.of[i]));
        }
        out[at] = gate;
    }
}

extern "C" __global__ void swiglu_backward_kernel(const Eight* in, const Eight* dy, Eight* out, u64 rows, u64 columns) {
    u64 each = columns / 8, all = rows * each, at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; at < all; at += (u64)gridDim.x * blockDim.x) {
        u64 row = at / each, column = at % each, first = row * 2 * each + column;
        Eight gate = in[first], up = in[first + each], d = dy[at];
        for (int i = 0; i < 8; i++) {
            float g = wide(gate.of[i]), u = wide(up.of[i]), dd = wide(d.of[i]);
            float s = 1.0f / (1.0f + __expf(-g));
            up.of[i] = narrow(dd * g * s);
            gate.of[i] = narrow(dd * u * s * (1.0f + g * (1.0f - s)));
        }
        out[first] = gate;
        out[first + each] = up;
    }
}

__device__ inline void join(float& most, float& sum, float most2, float sum2) {
    float larger = fmaxf(most, most2);
    sum = sum * __expf(most - larger) + sum2 * __expf(most2 - larger);
    most = larger;
}

// Log-sum-exp of each row less its first logit, in one pass; the label does not change what is moved.
extern "C" __global__ void cross_entropy_kernel(const Eight* in, const Eight*, Eight* out, u64 rows, u64 columns) {
    __shared__ float mosts[32], sums[32];
    u64 each = columns / 8;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        float most = LOWEST, sum = 0.0f;
        for (u64 at = threadIdx.x; at < each; at += blockDim.x) {
            // One maximum and one sum of each eight: an exponential for each logit, and one to join them.
            Eight x = in[row * each + at];
            float larger = most;
            for (int i = 0; i < 8; i++) larger = fmaxf(larger, wide(x.of[i]));
            sum *= __expf(most - larger);
            for (int i = 0; i < 8; i++) sum += __expf(wide(x.of[i]) - larger);
            most = larger;
        }
        for (int step = 16; step > 0; step /= 2)
            join(most, sum, __shfl_xor_sync(0xffffffffu, most, step), __shfl_xor_sync(0xffffffffu, sum, step));
        __syncthreads();
        if (threadIdx.x % 32 == 0) {
            mosts[threadIdx.x / 32] = most;
            sums[threadIdx.x / 32] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int warp = 1; warp < blockDim.x / 32; warp++) join(most, sum, mosts[warp], sums[warp]);
            ((float*)out)[row] = most + __logf(sum) - wide(in[row * each].of[0]);
        }
    }
}

// d = softmax, from the log-sum-exp that forward left for each row.
extern "C" __global__ void cross_entropy_backward_kernel(const Eight* in, const Eight* lse, Eight* out, u64 rows, u64 columns) {
    u64 each = columns / 8, all = rows * each, at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; at < all; at += (u64)gridDim.x * blockDim.x) {
        Eight x = in[at];
        float of_row = ((const float*)lse)[at / each];
        for (int i = 0; i < 8; i++) x.of[i] = narrow(__expf(wide(x.of[i]) - of_row));
        out[at] = x;
    }
}

// `states` holds fp32 gradient, master weight and two moments, each rows x columns; `out` takes the bf16 weight.
extern "C" __global__ void adam_kernel(Eight* states, const Eight*, Eight* out, u64 rows, u64 columns) {
    u64 all = rows * columns / 4, at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    float4* gradient = (float4*)states;
    float4 *master = gradient + all, *first = master + all, *second = first + all;
    for (; at < all; at += (u64)gridDim.x * blockDim.x) {
        float4 g = gradient[at], w = master[at], m = first[at], v = second[at];
        float *gs = &g.x, *ws = &w.x, *ms = &m.x, *vs = &v.x;
        bf16 narrowed[4];
        for (int i = 0; i < 4; i++) {
            ms[i] = 0.9f * ms[i] + 0.1f * gs[i];
            vs[i] = 0.95f * vs[i] + 0.05f * gs[i] * gs[i];
            ws[i] -= 1e-4f * (ms[i] / (sqrtf(fabsf(vs[i])) + 1e-8f) + 0.1f * ws[i]);
            narrowed[i] = narrow(ws[i]);
        }
        master[at] = w;
        first[at] = m;
        second[at] = v;
        ((ushort4*)out)[at] = make_ushort4(narrowed[0], narrowed[1], narrowed[2], narrowed[3]);
    }
}
