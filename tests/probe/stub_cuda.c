// A driver that answers as the test says: what `init` returns, and how many devices there are.
// DEVICES and INIT are set when it is compiled; LEAST leaves all but cuInit out, as an old driver would. With MEMORY (bytes)
// the device works: it has so much memory, runs kernels by doing nothing, and every two events lie MS milliseconds apart.
// With COMPILER it is NVRTC too: 0 compiles everything, 6 nothing.
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) {
    (void)flags;
    return INIT;
}

#ifndef LEAST
int cuGetErrorName(int error, const char** text) {
    *text = error == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
int cuGetErrorString(int error, const char** text) {
    *text = error == 100 ? "no CUDA-capable device is detected" : "unknown error";
    return 0;
}
int cuDeviceGetCount(int* count) {
    *count = DEVICES;
    return 0;
}
int cuDriverGetVersion(int* version) {
    *version = 12080;
    return 0;
}
int cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
    (void)device;
    *context = (void*)1;
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    return 0;
}
int cuCtxSetCurrent(void* context) {
    (void)context;
    return 0;
}
int cuCtxGetCurrent(void** context) {
    *context = (void*)1;
    return 0;
}
// Compute capability 9.0 and what else is asked for: 90 of everything.
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    (void)device;
    *value = attribute == 76 ? 0 : 9;
    return 0;
}
int cuDeviceGetName(char* name, int length, int device) {
    (void)device;
    const char stub[] = "Stub H100 80GB HBM3";
    for (int i = 0; i < length && i < (int)sizeof stub; i++) name[i] = stub[i];
    return 0;
}
int cuCtxSynchronize(void) {
    return 0;
}
#endif

#ifdef MEMORY
// Most allocations that are alive at once.
#define SLOTS 65536
static struct { unsigned long long at, bytes; } held[SLOTS];
static unsigned long long large, small, next_address = 1 << 20;

// As the driver does: whole pages of 2 MiB, which allocations below 1 MiB share, 512 bytes at a time.
static unsigned long long rounded(unsigned long long bytes, unsigned long long to) {
    return (bytes + to - 1) / to * to;
}
static unsigned long long used(void) {
    return large + rounded(small, 2 << 20);
}
static unsigned long long* pool(unsigned long long bytes) {
    return bytes < 1 << 20 ? &small : &large;
}

int cuMemAlloc_v2(unsigned long long* at, unsigned long bytes) {
    unsigned long long whole = rounded(bytes, bytes < 1 << 20 ? 512 : 2 << 20);
    *pool(whole) += whole;
    if (used() > MEMORY) {
        *pool(whole) -= whole;
        return 2;
    }
    for (int slot = 0; slot < SLOTS; slot++)
        if (!held[slot].bytes) {
            held[slot].at = *at = next_address;
            held[slot].bytes = whole;
            next_address += whole;
            return 0;
        }
    *pool(whole) -= whole;
    return 2;
}
int cuMemFree_v2(unsigned long long at) {
    for (int slot = 0; slot < SLOTS; slot++)
        if (held[slot].bytes && held[slot].at == at) {
            *pool(held[slot].bytes) -= held[slot].bytes;
            held[slot].bytes = 0;
            return 0;
        }
    return 1;
}
int cuMemGetInfo_v2(unsigned long* left, unsigned long* all) {
    *left = MEMORY - used();
    *all = MEMORY;
    return 0;
}
int cuModuleLoadData(void** module, const void* image) {
    (void)image;
    *module = (void*)1;
    return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
    // Handles live as long as the driver, so that a leak checker finds those of the probe alone.
    static char names[64][64];
    static int known = 0;
    (void)module;
    for (int at = 0; at < known; at++)
        if (!strcmp(names[at], name)) return *function = names[at], 0;
    if (known == 64 || strlen(name) >= sizeof names[0]) return 2;
    *function = strcpy(names[known++], name);
    return 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
    (void)function;
    // What the H100 has of shared memory for a block.
    return attribute == 8 && value > 232448;
}
int cuStreamCreate(void** stream, unsigned flags) {
    (void)flags;
    *stream = (void*)1;
    return 0;
}
int cuEventCreate(void** event, unsigned flags) {
    (void)flags;
    *event = (void*)1;
    return 0;
}
int cuEventDestroy_v2(void* event) {
    (void)event;
    return 0;
}
int cuEventRecord(void* event, void* stream) {
    (void)event, (void)stream;
    return 0;
}
int cuEventSynchronize(void* event) {
    (void)event;
    return 0;
}
static int elapsed(float* ms) {
    *ms = MS;
    return 0;
}
int cuEventElapsedTime(float* ms, void* start, void* end) {
    (void)start, (void)end;
    return elapsed(ms);
}
int cuEventElapsedTime_v2(float* ms, void* start, void* end) {
    (void)start, (void)end;
    return elapsed(ms);
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                   unsigned shared, void* stream, void** arguments, void** extra) {
    (void)a, (void)b, (void)c, (void)shared, (void)stream, (void)arguments, (void)extra;
    // FAILS names a kernel that the device refuses; a grid must not be empty, nor too wide.
    if (!x || !y || !z || y > 65535) return 1;
#ifdef FAILS
    if (!strcmp(function, FAILS)) return 719;
#else
    (void)function;
#endif
    return 0;
}
int cuMemsetD8Async(unsigned long long at, unsigned char value, unsigned long bytes, void* stream) {
    (void)at, (void)value, (void)bytes, (void)stream;
    return 0;
}
int cuMemHostAlloc(void** at, unsigned long bytes, unsigned flags) {
    (void)flags;
    *at = malloc(bytes);
    return *at ? 0 : 2;
}
int cuMemFreeHost(void* at) {
    free(at);
    return 0;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, unsigned long bytes) {
    (void)to, (void)from, (void)bytes;
    return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, unsigned long bytes, void* stream) {
    (void)to, (void)from, (void)bytes, (void)stream;
    return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, unsigned long bytes, void* stream) {
    (void)to, (void)from, (void)bytes, (void)stream;
    return 0;
}
#endif

#ifdef COMPILER
int nvrtcVersion(int* major, int* minor) {
    *major = 12, *minor = 9;
    return 0;
}
int nvrtcCreateProgram(void** program, const char* text, const char* name, int count, const char** headers,
                       const char** names) {
    (void)text, (void)name, (void)count, (void)headers, (void)names;
    *program = (void*)1;
    return 0;
}
int nvrtcDestroyProgram(void** program) {
    *program = 0;
    return 0;
}
int nvrtcCompileProgram(void* program, int count, const char** options) {
    (void)program, (void)count, (void)options;
    return COMPILER;
}
int nvrtcGetPTXSize(void* program, unsigned long* bytes) {
    (void)program;
    *bytes = 1;
    return 0;
}
int nvrtcGetPTX(void* program, char* text) {
    (void)program;
    *text = 0;
    return 0;
}
int nvrtcGetProgramLogSize(void* program, unsigned long* bytes) {
    (void)program;
    *bytes = sizeof "line 1: no such word";
    return 0;
}
int nvrtcGetProgramLog(void* program, char* text) {
    (void)program;
    strcpy(text, "line 1: no such word");
    return 0;
}
#endif
