// A stub of NVML that knows one GPU, at the PCI address of the stub driver's.
#include <string.h>

int nvmlInit_v2(void) {
    return 0;
}
int nvmlShutdown(void) {
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
    static int gpu;
    *device = &gpu;
    return strcmp(address, "00000009:09:09.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetMaxClockInfo(void* device, int clock, unsigned* megahertz) {
    (void)device;
    *megahertz = clock == 1 ? 1980 : 2619;
    return 0;
}
int nvmlDeviceGetPowerManagementLimit(void* device, unsigned* milliwatts) {
    (void)device;
    *milliwatts = 700000;
    return 0;
}
