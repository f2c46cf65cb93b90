// A block of a GPU on one thread of a processor: each lane is a coroutine, and what a warp does as one is done when all its
// lanes have come to it. A warp runs until it waits for the block, the first or the last warp ahead of the others, so that a
// barrier that is missing shows. It gives the words of crates/lab/src/probe/kernels/warp.cu their meaning by the PTX ISA.
#undef _FORTIFY_SOURCE // its longjmp takes another lane's stack for a fault
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define __global__
#define __device__
#define __launch_bounds__(n)
#define SHARED(type, name) type* name = (type*)shared_memory
#define LEAST (-INFINITY)
#define MOST INFINITY

struct Place { u32 x, y; };
constexpr int THREADS = 128;
static Place blockIdx, gridDim;
alignas(16) static unsigned char shared_memory[200 << 10];
static ucontext_t fibers[THREADS]; // in which lanes begin
static jmp_buf scheduler, places[THREADS];
static bool begun[THREADS], over[THREADS], waiting[THREADS];
static u32 now;
static bool reversed;
static void (*body)(void*);
static void* argument;
#define threadIdx (Place{now, 0})

// From one lane to another by jumps: contexts would ask the system for their signals each time, which took half of the run.
static __attribute__((noinline)) void pause_lane() {
    if (!_setjmp(places[now])) _longjmp(scheduler, 1);
}
static __attribute__((noinline)) void resume_lane() {
    if (_setjmp(scheduler)) return;
    if (begun[now]) _longjmp(places[now], 1);
    begun[now] = true;
    setcontext(&fibers[now]);
}
static inline void __syncthreads() {
    waiting[now] = true;
    pause_lane();
}

static void lane_body() {
    body(argument);
    over[now] = true;
    pause_lane();
}

// Runs a warp until all its lanes wait for the block or are over; whether any waits.
static bool run_warp(u32 warp) {
    for (bool ran = true; ran;) {
        ran = false;
        for (u32 lane = warp * 32; lane < warp * 32 + 32; lane++)
            if (!over[lane] && !waiting[lane]) {
                now = lane;
                resume_lane();
                ran = true;
            }
    }
    for (u32 lane = warp * 32; lane < warp * 32 + 32; lane++)
        if (!over[lane]) return true;
    return false;
}

// Runs every block of a grid, one after the other. Shared memory starts as NaNs: what was not written shows.
template <typename F> void launch(u32 x, u32 y, F kernel) {
    static std::vector<char> stacks(THREADS * (256 << 10));
    body = [](void* f) { (*(F*)f)(); };
    argument = &kernel;
    gridDim = {x, y};
    for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++) {
            memset(shared_memory, 0xff, sizeof shared_memory);
            for (u32 lane = 0; lane < THREADS; lane++) {
                getcontext(&fibers[lane]);
                fibers[lane].uc_stack.ss_sp = &stacks[(size_t)lane * (256 << 10)];
                fibers[lane].uc_stack.ss_size = 256 << 10;
                fibers[lane].uc_link = nullptr;
                makecontext(&fibers[lane], lane_body, 0);
                begun[lane] = over[lane] = waiting[lane] = false;
            }
            reversed = !reversed;
            for (bool alive = true; alive;) {
                alive = false;
                for (u32 at = 0; at < THREADS / 32; at++) alive |= run_warp(reversed ? THREADS / 32 - 1 - at : at);
                memset(waiting, 0, sizeof waiting);
            }
        }
}

static inline float wide(bf16 x) {
    u32 bits = (u32)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static inline bf16 narrow(float x) {
    u32 bits;
    memcpy(&bits, &x, 4);
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline u32 pack(float low, float high) { return narrow(low) | (u32)narrow(high) << 16; }
static inline float half_of(u32 both, int which) { return wide((bf16)(both >> 16 * which)); }

// What each lane of a warp brings, seen by all of it.
template <typename T> struct Shown { T of[32]; };
template <typename T> static inline Shown<T> show(const T& mine) {
    static T table[THREADS];
    table[now] = mine;
    pause_lane();
    Shown<T> all;
    for (int lane = 0; lane < 32; lane++) all.of[lane] = table[now / 32 * 32 + lane];
    pause_lane();
    return all;
}

struct Operands { u32 a[4], b[2]; };
static inline void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    const auto all = show(Operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
    const int g = now % 32 / 4, t = now % 4;
    for (int j = 0; j < 4; j++) {
        const int row = g + j / 2 * 8, column = 2 * t + j % 2;
        for (int k = 0; k < 16; k++) {
            const auto& of_a = all.of[row % 8 * 4 + k % 8 / 2];
            const auto& of_b = all.of[column * 4 + k % 8 / 2];
            c[j] += half_of(of_a.a[row / 8 + k / 8 * 2], k % 2) * half_of(of_b.b[k / 8], k % 2);
        }
    }
}
static inline void check_row(const bf16* row) {
    if ((size_t)row % 16 || (unsigned char*)row < shared_memory ||
        (unsigned char*)(row + 8) > shared_memory + sizeof shared_memory) {
        printf("a row of ldmatrix lies outside of shared memory, or askew\n");
        exit(1);
    }
}
static inline void load4(u32 (&to)[4], const bf16* row) {
    check_row(row);
    const auto all = show(row);
    const int g = now % 32 / 4, t = now % 4;
    for (int i = 0; i < 4; i++) to[i] = all.of[8 * i + g][2 * t] | (u32)all.of[8 * i + g][2 * t + 1] << 16;
}
static inline void load4_turned(u32 (&to)[4], const bf16* row) {
    check_row(row);
    const auto all = show(row);
    const int g = now % 32 / 4, t = now % 4;
    for (int i = 0; i < 4; i++) to[i] = all.of[8 * i + 2 * t][g] | (u32)all.of[8 * i + 2 * t + 1][g] << 16;
}

// A copy arrives when it is waited for, and no sooner.
struct Copy { bf16* to; bf16 of[8]; };
static std::vector<Copy> under_way[THREADS];
static inline void copy16(bf16* to, const bf16* from, bool there) {
    check_row(to);
    Copy copy{to, {}};
    if (there) memcpy(copy.of, from, 16);
    under_way[now].push_back(copy);
}
static inline void copied() {
    for (const Copy& copy : under_way[now]) memcpy(copy.to, copy.of, 16);
    under_way[now].clear();
}
static inline float across(float x, int bits) { return show(x).of[(now % 32) ^ bits]; }
static inline void atomicAdd(float* to, float x) { *to += x; }
