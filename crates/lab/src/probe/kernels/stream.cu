// Kernels that the memory bounds: each operand passes once, eight bf16 at a time. Compiled by NVRTC when a probe opens.
// Every kernel has one signature: three operands, rows and columns of the output, as `StreamOp` counts them.

typedef unsigned short bf16;
typedef unsigned long long u64;

#define LEAST __int_as_float(0xff800000) // minus infinity

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

__device__ inline float sum_of_block(float x) {
    __shared__ float of_warp[32];
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f;
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    if (threadIdx.x == 0) of_warp[0] = x;
    __syncthreads();
    return of_warp[0];
}

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

// y = x / sqrt(mean(x^2) + eps); the second pass over the row comes from the cache.
extern "C" __global__ void norm_kernel(const Eight* in, const Eight*, Eight* out, u64 rows, u64 columns) {
    u64 each = columns / 8;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        float squares = 0.0f;
        for (u64 at = threadIdx.x; at < each; at += blockDim.x) {
            Eight x = in[row * each + at];
            for (int i = 0; i < 8; i++) squares += wide(x.of[i]) * wide(x.of[i]);
        }
        float scale = rsqrtf(sum_of_block(squares) / (float)columns + 1e-5f);
        for (u64 at = threadIdx.x; at < each; at += blockDim.x) {
            Eight x = in[row * each + at];
            for (int i = 0; i < 8; i++) x.of[i] = narrow(wide(x.of[i]) * scale);
            out[row * each + at] = x;
        }
    }
}

// dx = r (dy - x r^2 mean(x dy)), r = 1 / sqrt(mean(x^2) + eps).
extern "C" __global__ void norm_backward_kernel(const Eight* in, const Eight* dy, Eight* out, u64 rows, u64 columns) {
    u64 each = columns / 8;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        float squares = 0.0f, along = 0.0f;
        for (u64 at = threadIdx.x; at < each; at += blockDim.x) {
            Eight x = in[row * each + at], g = dy[row * each + at];
            for (int i = 0; i < 8; i++) {
                squares += wide(x.of[i]) * wide(x.of[i]);
                along += wide(x.of[i]) * wide(g.of[i]);
            }
        }
        float r = rsqrtf(sum_of_block(squares) / (float)columns + 1e-5f);
        float mean = sum_of_block(along) / (float)columns * r * r;
        for (u64 at = threadIdx.x; at < each; at += blockDim.x) {
            Eight x = in[row * each + at], g = dy[row * each + at];
            for (int i = 0; i < 8; i++) x.of[i] = narrow(r * (wide(g.of[i]) - wide(x.of[i]) * mean));
            out[row * each + at] = x;
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
    if (larger == LEAST) return;
    sum = sum * __expf(most - larger) + sum2 * __expf(most2 - larger);
    most = larger;
}

// Log-sum-exp of each row less its first logit, in one pass; the label does not change what is moved.
extern "C" __global__ void cross_entropy_kernel(const Eight* in, const Eight*, Eight* out, u64 rows, u64 columns) {
    __shared__ float mosts[32], sums[32];
    u64 each = columns / 8;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        float most = LEAST, sum = 0.0f;
        for (u64 at = threadIdx.x; at < each; at += blockDim.x) {
            Eight x = in[row * each + at];
            for (int i = 0; i < 8; i++) join(most, sum, wide(x.of[i]), 1.0f);
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
