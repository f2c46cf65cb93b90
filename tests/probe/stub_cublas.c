// cuBLASLt as the test says: ALGORITHMS is how many it proposes, and the first REFUSED of them do not run.
#include <stddef.h>
#include <string.h>

typedef struct {
    unsigned long long algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Proposal;

static int descriptor;

size_t cublasLtGetVersion(void) { return 120903; }
int cublasLtCreate(void** made) { *made = &descriptor; return 0; }
int cublasLtDestroy(void* handle) { (void)handle; return 0; }
int cublasLtMatmulDescCreate(void** made, int compute, int scale) { (void)compute, (void)scale; *made = &descriptor; return 0; }
int cublasLtMatmulDescDestroy(void* of) { (void)of; return 0; }
int cublasLtMatmulDescSetAttribute(void* of, int name, const void* value, size_t bytes) {
    (void)of, (void)name;
    return value && bytes ? 0 : 7;
}
int cublasLtMatrixLayoutCreate(void** made, int type, unsigned long long rows, unsigned long long columns, long long apart) {
    (void)type;
    *made = &descriptor;
    return rows && columns && (unsigned long long)apart >= rows ? 0 : 7;
}
int cublasLtMatrixLayoutDestroy(void* of) { (void)of; return 0; }
int cublasLtMatrixLayoutSetAttribute(void* of, int name, const void* value, size_t bytes) {
    (void)of, (void)name;
    return value && bytes ? 0 : 7;
}
int cublasLtMatmulPreferenceCreate(void** made) { *made = &descriptor; return 0; }
int cublasLtMatmulPreferenceDestroy(void* of) { (void)of; return 0; }
int cublasLtMatmulPreferenceSetAttribute(void* of, int name, const void* value, size_t bytes) {
    (void)of, (void)name;
    return value && bytes ? 0 : 7;
}
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* how, void* a, void* b, void* c, void* d, void* wish, int room,
                                   Proposal* found, int* count) {
    (void)handle, (void)how, (void)a, (void)b, (void)c, (void)d, (void)wish;
    *count = ALGORITHMS < room ? ALGORITHMS : room;
    memset(found, 0, *count * sizeof *found);
    for (int at = 0; at < *count; at++) found[at].algorithm[0] = at;
    return 0;
}
int cublasLtMatmul(void* handle, void* how, const void* alpha, const void* a, void* of_a, const void* b, void* of_b,
                   const void* beta, const void* c, void* of_c, void* d, void* of_d, const unsigned long long* algorithm,
                   void* workspace, size_t bytes, void* stream) {
    (void)handle, (void)how, (void)alpha, (void)of_a, (void)of_b, (void)beta, (void)of_c, (void)of_d, (void)bytes, (void)stream;
    if (!a || !b || !c || !d || !workspace) return 7;
    return algorithm[0] < REFUSED ? 15 : 0;
}
