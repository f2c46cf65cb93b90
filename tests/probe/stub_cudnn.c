// A driver, and as much of cuBLASLt, as cuDNN asks for when it builds a plan for a device that is not there: every call does
// nothing and succeeds, and what is loaded is somewhere. NVRTC, which compiles the kernels, is the real one.
#include <stddef.h>

#define NOTHING(name) int name(void) { return 0; }
#define SOMEWHERE(name) int name(void** made) { *made = (void*)16; return 0; }

SOMEWHERE(cuLibraryLoadData)
SOMEWHERE(cuLibraryLoadFromFile)
SOMEWHERE(cuLibraryGetKernel)
SOMEWHERE(cuModuleLoadData)
SOMEWHERE(cuModuleGetFunction)
SOMEWHERE(cuKernelGetFunction)

NOTHING(cuCtxGetCurrent)
NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuDeviceGet)
NOTHING(cuKernelSetAttribute)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryUnload)
NOTHING(cuLinkAddData)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate)
NOTHING(cuLinkDestroy)
NOTHING(cuModuleUnload)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamGetCtx)
NOTHING(cuTensorMapEncodeIm2col)
NOTHING(cuTensorMapEncodeTiled)

int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuKernelGetAttribute(int* value) { *value = 0; return 0; }
int cuGetErrorName(int error, const char** text) { (void)error; *text = "stub"; return 0; }
int cuGetErrorString(int error, const char** text) { (void)error; *text = "stub"; return 0; }

size_t cublasLtGetVersion(void) { return 120901; }
