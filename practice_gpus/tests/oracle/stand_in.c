/* A stand-in for libcuda and libcudart: two devices whose memory is the CPU's, and whose kernels do nothing.

   build.py puts the headers of PyTorch's CUDA build before this text, and after it a function for each other symbol that
   PyTorch asks of NVIDIA's libraries: it clears what its arguments point to, makes handles, and returns success. */
#include <stdlib.h>
#include <string.h>

#define DEVICES 2
#define MEMORY (16L << 30)
#define OK cudaSuccess
typedef cudaError_t status;

static __thread int current;
static char handle[4096], constants[1 << 20]; /* all handles are one; variables on the device */
static char *pinned_from, *pinned_to;         /* page-locked memory comes from one range */
static long taken;

static status make(void *out) { *(void **)out = calloc(1, 64); return OK; }
static status device_error(int device) { return device < 0 || device >= DEVICES ? cudaErrorInvalidDevice : OK; }

status cudaGetDeviceCount(int *count) { *count = DEVICES; return OK; }
status cudaGetDevice(int *device) { *device = current; return OK; }
status cudaSetDevice(int device) { if (!device_error(device)) current = device; return device_error(device); }
status cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; return OK; }
status cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return OK; }
status cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = a != b; return OK; }
status cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return OK; }
status cudaMemGetInfo(size_t *unused, size_t *total) { *total = MEMORY; *unused = MEMORY - taken; return OK; }

status cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "NVIDIA A100-SXM4-40GB");
  p->major = 8, p->multiProcessorCount = 108, p->warpSize = 32, p->totalGlobalMem = MEMORY;
  p->maxThreadsPerBlock = 1024, p->maxThreadsPerMultiProcessor = 2048, p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->sharedMemPerBlock = 49152, p->sharedMemPerBlockOptin = 166912, p->sharedMemPerMultiprocessor = 167936;
  p->textureAlignment = 512, p->l2CacheSize = 40 << 20, p->maxBlocksPerMultiProcessor = 32, p->unifiedAddressing = 1;
  return device_error(device);
}
status cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int device) {
  switch (what) {
    case cudaDevAttrComputeCapabilityMajor: *value = 8; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = 108; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: *value = 1024; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 166912; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    default: *value = 1;
  }
  return OK;
}

static status take(void *out, size_t size) {
  if (size > (size_t)MEMORY) return cudaErrorMemoryAllocation;
  *(void **)out = calloc(1, size + 512);
  return OK;
}
status cudaMalloc(void **p, size_t size) { return take(p, size); }
status cudaMallocAsync(void **p, size_t size, cudaStream_t s) { return take(p, size); }
status cudaMallocManaged(void **p, size_t size, unsigned flags) { return take(p, size); }
status cudaFree(void *p) { free(p); return OK; }
status cudaFreeAsync(void *p, cudaStream_t s) { free(p); return OK; }
status cudaHostAlloc(void **p, size_t size, unsigned flags) {
  if (!pinned_from) pinned_to = pinned_from = malloc(256 << 20); /* never given back: a test asks for little */
  if (pinned_to + size > pinned_from + (256 << 20)) return cudaErrorMemoryAllocation;
  *p = pinned_to, pinned_to += (size + 511) / 512 * 512;
  return OK;
}
status cudaMallocHost(void **p, size_t size) { return cudaHostAlloc(p, size, 0); }
status cudaFreeHost(void *p) { return OK; }
status cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  int pinned = pinned_from <= (char *)p && (char *)p < pinned_to;
  memset(a, 0, sizeof *a);
  a->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered, a->device = current;
  return OK;
}
status cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind k) { memmove(to, from, n); return OK; }
status cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s) {
  memmove(to, from, n);
  return OK;
}
status cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t n, cudaStream_t s) {
  memmove(to, from, n);
  return OK;
}
status cudaMemcpy2DAsync(void *to, size_t step, const void *from, size_t from_step, size_t width, size_t rows,
                         enum cudaMemcpyKind k, cudaStream_t s) {
  for (size_t i = 0; i < rows; i++) memmove((char *)to + i * step, (char *)from + i * from_step, width);
  return OK;
}
status cudaMemset(void *to, int value, size_t n) { memset(to, value, n); return OK; }
status cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t s) { memset(to, value, n); return OK; }
status cudaGetSymbolAddress(void **p, const void *symbol) { *p = constants; return OK; }

status cudaStreamCreate(cudaStream_t *s) { return make(s); }
status cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return make(s); }
status cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) { return make(s); }
status cudaEventCreate(cudaEvent_t *e) { return make(e); }
status cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { return make(e); }
status cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { *ms = 1; return OK; }
status cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data) { f(data); return OK; }
status cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void *data, unsigned flags) {
  f(s, OK, data);
  return OK;
}

/* Kernels: what the compiler's code asks before a launch, which then does nothing. */
static __thread struct { dim3 grid, block; size_t shared; void *stream; } pushed;
void **__cudaRegisterFatBinary(void *binary) { return (void **)handle; }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
  return 0;
}
status __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *(void **)stream = pushed.stream;
  return OK;
}
status __cudaGetKernel(void **kernel, const void *f) { *kernel = handle; return OK; }
status cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024, a->numRegs = 32, a->ptxVersion = a->binaryVersion = 80;
  a->maxDynamicSharedSizeBytes = 49152;
  return OK;
}
status cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int size, size_t shared) {
  *n = 2;
  return OK;
}
status cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int size, size_t s, unsigned g) {
  *n = 2;
  return OK;
}

/* The driver. */
static int succeed(void) { return 0; }
CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) { *active = 1; return 0; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = (CUcontext)handle; return 0; }
status cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *result) {
  *f = strcmp(name, "cuCtxGetCurrent") ? (void *)succeed : (void *)cuCtxGetCurrent;
  if (result) *result = cudaDriverEntryPointSuccess;
  return OK;
}

/* cuBLAS and cuDNN: one algorithm fits. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t e, cublasLtMatmulPreference_t p, int asked,
    cublasLtMatmulHeuristicResult_t results[], int *found) {
  memset(results, 0, sizeof *results);
  *found = 1;
  return 0;
}
size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
cudnnStatus_t cudnnGetProperty(libraryPropertyType which, int *value) {
  *value = which == MAJOR_VERSION ? CUDNN_MAJOR : which == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
  return 0;
}
#define ALGORITHM(name, A, B, C, results)                                                                          \
  cudnnStatus_t name(cudnnHandle_t h, A a, B b, cudnnConvolutionDescriptor_t c, C d, int asked, int *found,        \
                     results *result) {                                                                            \
    memset(result, 0, sizeof *result);                                                                             \
    *found = 1;                                                                                                    \
    return 0;                                                                                                      \
  }
ALGORITHM(cudnnGetConvolutionForwardAlgorithm_v7, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
          cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgoPerf_t)
ALGORITHM(cudnnGetConvolutionBackwardDataAlgorithm_v7, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
          cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgoPerf_t)
ALGORITHM(cudnnGetConvolutionBackwardFilterAlgorithm_v7, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
          cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgoPerf_t)
