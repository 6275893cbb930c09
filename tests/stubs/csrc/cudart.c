/* Stand-in for libcudart.so.13: start-up works, and there is no device. */
static void *fat_binary;

void **__cudaRegisterFatBinary(void *image) { (void)image; return &fat_binary; }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}
char __cudaInitModule(void **handle) { (void)handle; return 1; }
int cudaGetDeviceCount(int *count) { *count = 0; return 100; }
int cudaGetLastError(void) { return 0; }
int cudaPeekAtLastError(void) { return 0; }
int cudaDriverGetVersion(int *version) { *version = 0; return 0; }
int cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }
const char *cudaGetErrorString(int error) { (void)error; return "no CUDA-capable device is detected"; }
const char *cudaGetErrorName(int error) { (void)error; return "cudaErrorNoDevice"; }
