/* A CUDA runtime that launches nothing: it writes down what a launcher asks for.

   Linked with the host half of a kernel file, and run in a sandbox without a GPU. The launcher is called with pointers
   and sizes that are read from standard input; the launches that it makes go to where standard output was. Functions
   that are not here are not available to a launcher: the linker says which one it wanted.

   Standard input:   D attribute value            a property of the device
                     M base bytes                 memory for cudaMalloc and cudaMallocAsync
                     K name registers shared parameters size…
                     C word…                      a call; every argument as 64 bits
   What is written:  call, then any of
                     launch name grid(3) block(3) shared stream cooperative cluster(3) argument…
                     attribute name which value
                     memset pointer value bytes stream
                     memcpy to from bytes stream
                     and end */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_KERNELS 1024
#define MOST_PARAMETERS 256
#define MOST_WORDS 64

struct kernel {
  char *name;
  const void *host;
  int registers, shared, parameters, sizes[MOST_PARAMETERS];
};

void upskill_call(const uint64_t *words); /* generated: calls the launcher with its own types */

static struct kernel kernels[MOST_KERNELS];
static int n_kernels;
static FILE *plan;
static long attributes[512];
static uint64_t memory, memory_end, memory_top, memory_bottom;
static int live;
static struct { dim3 grid, block; size_t shared; cudaStream_t stream; } configuration;
static cudaError_t last = cudaSuccess;

static cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

static struct kernel *by_name(const char *name) {
  for (int i = 0; i < n_kernels; i++)
    if (!strcmp(kernels[i].name, name)) return &kernels[i];
  if (n_kernels == MOST_KERNELS) return NULL;
  kernels[n_kernels].name = strdup(name);
  kernels[n_kernels].parameters = -1;
  return &kernels[n_kernels++];
}

/* A kernel by its host function, or by the handle that __cudaGetKernel gave. */
static struct kernel *find(const void *function) {
  for (int i = 0; i < n_kernels; i++)
    if (kernels[i].host == function || (const void *)&kernels[i] == function) return &kernels[i];
  return NULL;
}

/* What compiled code calls by itself. */

void **__cudaRegisterFatBinary(void *binary) {
  static void *handle;
  handle = binary;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
char __cudaInitModule(void **handle) { (void)handle; return 1; }
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *a, void *b,
                            void *c, void *d, int *e) {
  (void)handle, (void)device, (void)limit, (void)a, (void)b, (void)c, (void)d, (void)e;
  struct kernel *kernel = by_name(name);
  if (kernel) kernel->host = host;
}
void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int ext, size_t size, int constant,
                       int global) {
  (void)handle, (void)host, (void)address, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  configuration.grid = grid, configuration.block = block;
  configuration.shared = shared, configuration.stream = (cudaStream_t)stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = configuration.grid, *block = configuration.block, *shared = configuration.shared;
  *(cudaStream_t *)stream = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *handle, const void *function) {
  *handle = (cudaKernel_t)find(function);
  return *handle ? cudaSuccess : note(cudaErrorInvalidDeviceFunction);
}

/* Launches. */

static cudaError_t launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream,
                          int cooperative, dim3 cluster) {
  struct kernel *kernel = find(function);
  if (!kernel || kernel->parameters < 0) return note(cudaErrorInvalidDeviceFunction);
  if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z) return note(cudaErrorInvalidConfiguration);
  fprintf(plan, "launch %s %u %u %u %u %u %u %zu %" PRIx64 " %d %u %u %u", kernel->name, grid.x, grid.y, grid.z, block.x,
          block.y, block.z, shared, (uint64_t)stream, cooperative, cluster.x, cluster.y, cluster.z);
  for (int i = 0; i < kernel->parameters; i++) {
    const unsigned char *bytes = arguments[i];
    fputc(' ', plan);
    for (int j = 0; j < kernel->sizes[i]; j++) fprintf(plan, "%02x", bytes[j]);
  }
  fputc('\n', plan);
  return cudaSuccess;
}
static const dim3 none = {0, 0, 0};
cudaError_t cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
  return launch(f, grid, block, arguments, shared, stream, 0, none);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
  return launch(k, grid, block, arguments, shared, stream, 0, none);
}
cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        cudaStream_t stream) {
  return launch(f, grid, block, arguments, shared, stream, 1, none);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *f, void **arguments) {
  dim3 cluster = none;
  int cooperative = 0;
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const cudaLaunchAttribute *one = &config->attrs[i];
    if (one->id == cudaLaunchAttributeClusterDimension)
      cluster.x = one->val.clusterDim.x, cluster.y = one->val.clusterDim.y, cluster.z = one->val.clusterDim.z;
    else if (one->id == cudaLaunchAttributeCooperative)
      cooperative = one->val.cooperative;
  }
  return launch(f, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream, cooperative,
                cluster);
}
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute which, int value) {
  struct kernel *kernel = find(function);
  if (!kernel) return note(cudaErrorInvalidDeviceFunction);
  if (which == cudaFuncAttributeMaxDynamicSharedMemorySize &&
      (value < 0 || value + kernel->shared > attributes[cudaDevAttrMaxSharedMemoryPerBlockOptin]))
    return note(cudaErrorInvalidValue);
  fprintf(plan, "attribute %s %d %d\n", kernel->name, (int)which, value);
  return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void *f, enum cudaFuncCache c) { (void)f, (void)c; return cudaSuccess; }

/* Memory. */

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream) {
  fprintf(plan, "memset %" PRIx64 " %d %zu %" PRIx64 "\n", (uint64_t)pointer, value & 255, bytes, (uint64_t)stream);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault) return note(cudaErrorInvalidMemcpyDirection);
  fprintf(plan, "memcpy %" PRIx64 " %" PRIx64 " %zu %" PRIx64 "\n", (uint64_t)to, (uint64_t)from, bytes, (uint64_t)stream);
  return cudaSuccess;
}
static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) {
  (void)stream;
  if (bytes > memory_end - memory || rounded(bytes) > memory_top - memory_bottom) return note(cudaErrorMemoryAllocation);
  *pointer = (void *)memory_bottom;
  memory_bottom += rounded(bytes);
  live++;
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
  (void)stream;
  if ((uint64_t)pointer >= memory && (uint64_t)pointer < memory_bottom && --live == 0) memory_bottom = memory;
  return cudaSuccess;
}
#undef cudaMalloc
cudaError_t cudaMalloc(void **pointer, size_t bytes) { /* may be kept for calls to come */
  if (bytes > memory_end - memory || rounded(bytes) > memory_top - memory_bottom) return note(cudaErrorMemoryAllocation);
  memory_top -= rounded(bytes);
  *pointer = (void *)memory_top;
  return cudaSuccess;
}
cudaError_t cudaFree(void *pointer) { (void)pointer; return cudaSuccess; }

/* Questions. */

cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device ? note(cudaErrorInvalidDevice) : cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device) {
  if (device || (int)which < 0 || (int)which >= 512) return note(cudaErrorInvalidValue);
  *value = (int)attributes[which];
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  if (device) return note(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  strcpy(p->name, "NVIDIA GPU");
  p->major = (int)attributes[cudaDevAttrComputeCapabilityMajor];
  p->minor = (int)attributes[cudaDevAttrComputeCapabilityMinor];
  p->multiProcessorCount = (int)attributes[cudaDevAttrMultiProcessorCount];
  p->warpSize = (int)attributes[cudaDevAttrWarpSize];
  p->maxThreadsPerBlock = (int)attributes[cudaDevAttrMaxThreadsPerBlock];
  p->maxThreadsPerMultiProcessor = (int)attributes[cudaDevAttrMaxThreadsPerMultiProcessor];
  p->maxBlocksPerMultiProcessor = (int)attributes[cudaDevAttrMaxBlocksPerMultiprocessor];
  p->sharedMemPerBlock = attributes[cudaDevAttrMaxSharedMemoryPerBlock];
  p->sharedMemPerBlockOptin = attributes[cudaDevAttrMaxSharedMemoryPerBlockOptin];
  p->sharedMemPerMultiprocessor = attributes[cudaDevAttrMaxSharedMemoryPerMultiprocessor];
  p->regsPerBlock = (int)attributes[cudaDevAttrMaxRegistersPerBlock];
  p->regsPerMultiprocessor = (int)attributes[cudaDevAttrMaxRegistersPerMultiprocessor];
  p->l2CacheSize = (int)attributes[cudaDevAttrL2CacheSize];
  p->maxGridSize[0] = (int)attributes[cudaDevAttrMaxGridDimX];
  p->maxGridSize[1] = p->maxGridSize[2] = (int)attributes[cudaDevAttrMaxGridDimY];
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *function) {
  struct kernel *kernel = find(function);
  if (!kernel) return note(cudaErrorInvalidDeviceFunction);
  memset(found, 0, sizeof *found);
  found->numRegs = kernel->registers, found->sharedSizeBytes = kernel->shared;
  found->maxThreadsPerBlock = (int)attributes[cudaDevAttrMaxThreadsPerBlock];
  found->maxDynamicSharedSizeBytes = 48 * 1024 - kernel->shared;
  found->binaryVersion = found->ptxVersion =
      (int)(10 * attributes[cudaDevAttrComputeCapabilityMajor] + attributes[cudaDevAttrComputeCapabilityMinor]);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int size,
                                                                   size_t shared, unsigned flags) {
  (void)flags;
  struct kernel *kernel = find(function);
  if (!kernel || size < 1) return note(cudaErrorInvalidValue);
  long warps = (size + 31) / 32, found = attributes[cudaDevAttrMaxThreadsPerMultiProcessor] / (warps * 32);
  long registers = (long)((kernel->registers + 7) / 8 * 8) * 32 * warps;
  long memory_used = (long)shared + kernel->shared + 1024;
  if (registers && attributes[cudaDevAttrMaxRegistersPerMultiprocessor] / registers < found)
    found = attributes[cudaDevAttrMaxRegistersPerMultiprocessor] / registers;
  if (attributes[cudaDevAttrMaxSharedMemoryPerMultiprocessor] / memory_used < found)
    found = attributes[cudaDevAttrMaxSharedMemoryPerMultiprocessor] / memory_used;
  if (attributes[cudaDevAttrMaxBlocksPerMultiprocessor] < found) found = attributes[cudaDevAttrMaxBlocksPerMultiprocessor];
  *blocks = (int)found;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int size, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, size, shared, 0);
}
cudaError_t cudaGetLastError(void) { cudaError_t was = last; last = cudaSuccess; return was; }
cudaError_t cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorString(cudaError_t error) { return error ? "an error" : "no error"; }
const char *cudaGetErrorName(cudaError_t error) { return error ? "cudaError" : "cudaSuccess"; }
/* Whatever is launched has ended before its output is looked at, so there is nothing to wait for. */
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { (void)stream; return cudaSuccess; }

int main(void) {
  /* What the launcher prints is no plan. */
  int channel = fcntl(1, F_DUPFD_CLOEXEC, 100);
  dup2(2, 1);
  plan = fdopen(channel, "w");
  static char line[1 << 16];
  while (fgets(line, sizeof line, stdin)) {
    char *at = line + 1;
    if (*line == 'D') {
      long which = strtol(at, &at, 10), value = strtol(at, &at, 10);
      if (which >= 0 && which < 512) attributes[which] = value;
    } else if (*line == 'M') {
      memory = memory_bottom = strtoull(at, &at, 16);
      memory_end = memory_top = memory + strtoull(at, &at, 10);
    } else if (*line == 'K') {
      char name[4096];
      int taken = 0;
      if (sscanf(at, " %4095s%n", name, &taken) != 1) return 3;
      at += taken;
      struct kernel *kernel = by_name(name);
      if (!kernel) return 3;
      kernel->registers = (int)strtol(at, &at, 10), kernel->shared = (int)strtol(at, &at, 10);
      kernel->parameters = (int)strtol(at, &at, 10);
      for (int i = 0; i < kernel->parameters && i < MOST_PARAMETERS; i++) kernel->sizes[i] = (int)strtol(at, &at, 10);
    } else if (*line == 'C') {
      uint64_t words[MOST_WORDS] = {0};
      for (int i = 0; i < MOST_WORDS && *at && *at != '\n'; i++) words[i] = strtoull(at, &at, 16);
      fputs("call\n", plan);
      upskill_call(words);
      fputs("end\n", plan);
    }
  }
  fclose(plan);
  _exit(0); /* nothing of the launcher runs after its last call */
}
