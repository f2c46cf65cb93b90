// cuDNN's backend as the test says: VERSION is its release, ENGINES how many engines take a graph, RUNS what a run returns.
// Descriptors remember the last numbers that were set. A run wants an address for every tensor that it was told of.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BAD_PARAM 2000
#define WORKSPACE 402
#define ENGINE_INDEX 1301
#define HEURISTIC_RESULTS 202
#define PACK_IDS 1000
#define PACK_ADDRESSES 1001

typedef struct {
    int is_finished;
    int64_t ids, addresses, nulls;
} Descriptor;

size_t cudnnGetVersion(void) { return VERSION; }
void cudnnGetLastErrorString(char* text, size_t room) { strncpy(text, "the stub says so", room); }
int cudnnCreate(void** handle) { *handle = (void*)1; return 0; }
int cudnnDestroy(void* handle) { (void)handle; return 0; }
int cudnnSetStream(void* handle, void* stream) { return handle && stream ? 0 : BAD_PARAM; }

int cudnnBackendCreateDescriptor(int kind, void** made) {
    Descriptor* descriptor = calloc(1, sizeof *descriptor);
    (void)kind;
    *made = descriptor;
    return 0;
}
int cudnnBackendDestroyDescriptor(void* descriptor) {
    free(descriptor);
    return 0;
}
int cudnnBackendSetAttribute(void* to, int name, int type, int64_t count, const void* values) {
    Descriptor* descriptor = to;
    (void)type;
    if (descriptor->is_finished || count < 1) return BAD_PARAM;
    if (name == PACK_IDS) descriptor->ids = count;
    if (name == PACK_ADDRESSES) {
        descriptor->addresses = count;
        for (int64_t at = 0; at < count; at++) descriptor->nulls += !((void* const*)values)[at];
    }
    return 0;
}
int cudnnBackendFinalize(void* descriptor) {
    ((Descriptor*)descriptor)->is_finished = 1;
    return 0;
}
int cudnnBackendGetAttribute(void* from, int name, int type, int64_t room, int64_t* count, void* values) {
    (void)from, (void)type;
    if (name == HEURISTIC_RESULTS) {
        *count = room < 1 || ENGINES < room ? ENGINES : room;
        return 0;
    }
    *count = 1;
    if (name == WORKSPACE) *(int64_t*)values = 4096;
    if (name == ENGINE_INDEX) *(int64_t*)values = 7;
    return 0;
}
int cudnnBackendExecute(void* handle, void* plan, void* given) {
    Descriptor* pack = given;
    if (!handle || !((Descriptor*)plan)->is_finished || !pack->is_finished) return BAD_PARAM;
    if (pack->nulls || pack->ids != pack->addresses || !pack->ids) return BAD_PARAM;
    return RUNS;
}
