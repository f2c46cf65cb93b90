// A driver that answers as the test says: what `init` returns, and how many devices there are.
// DEVICES and INIT are set when it is compiled; LEAST leaves all but cuInit out, as an old driver would.
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
