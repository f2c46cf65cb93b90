// What a warp of an NVIDIA GPU does as one, in PTX (compute capability 8.0 and later). `attention.cu` is written in these
// words alone, so that a test can give them another meaning and run it on a processor, lane by lane.
// Source of the fragments' layout: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SHARED(type, name) extern __shared__ __align__(16) type name[]
#define LEAST __int_as_float(0xff800000) // minus infinity
#define MOST __int_as_float(0x7f800000)  // infinity

// c[16,8] += a[16,16] * b[16,8]. Lane 4g + t has of a: (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8), each with its right
// neighbour; of b: (2t, g), (2t+8, g), each with the one below; of c: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
__device__ inline void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices of 8 x 8: lanes 8i to 8i+7 point at the rows of matrix i, and lane 4g + t gets its (g, 2t) and (g, 2t+1).
__device__ inline void load4(u32 (&to)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((u32)__cvta_generic_to_shared(row))
                 : "memory");
}

// The same transposed: lane 4g + t gets (2t, g) and (2t+1, g).
__device__ inline void load4_turned(u32 (&to)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((u32)__cvta_generic_to_shared(row))
                 : "memory");
}

// Sixteen bytes to shared memory, behind the back of the thread; zeros where there are none.
__device__ inline void copy16(bf16* to, const bf16* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

// Until all copies of this thread are there.
__device__ inline void copied() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Two numbers as bf16, the first in the lower half; round to nearest, ties to even.
__device__ inline u32 pack(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ inline float wide(bf16 x) {
    return __uint_as_float((u32)x << 16);
}

// What the lane whose number differs in these bits has.
__device__ inline float across(float x, int bits) {
    return __shfl_xor_sync(0xffffffffu, x, bits);
}
