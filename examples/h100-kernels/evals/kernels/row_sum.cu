// Sum of each fp16 row, in fp32. Nothing is kept, so a thread asks for all its vectors and adds them up as they arrive.
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int WIDE = 256;  // threads of a block that shares a long row

// Nothing is read twice, so nothing has to stay in L1.
__device__ __forceinline__ uint4 load_once(const uint4* p) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}

// Sum over the LANES threads of a row; every thread gets it.
template <int LANES>
__device__ __forceinline__ float row_total(float v) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    if (LANES == 32) return v;
    __shared__ float part[LANES / 32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.0f;
#pragma unroll
    for (int i = 0; i < LANES / 32; i++) v += part[i];
    return v;
}

// LANES threads per row, KEPT 16-byte vectors of it in each thread; blockDim = (LANES, rows of a block).
template <int LANES, int KEPT>
__global__ void __launch_bounds__(LANES == 32 ? 128 : LANES)
    kept_kernel(const uint4* __restrict__ x, float* __restrict__ y, int rows, int vectors, int64_t stride) {
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // whole warps, and only where a row is one warp's
    x += row * stride;
    uint4 kept[KEPT];
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        kept[i] = v < vectors ? load_once(x + v) : make_uint4(0, 0, 0, 0);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < KEPT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 p = __half22float2(((half2*)&kept[i])[j]);
            sum += p.x + p.y;
        }
    sum = row_total<LANES>(sum);
    if (threadIdx.x == 0) y[row] = sum;
}

// Any width and alignment.
__global__ void __launch_bounds__(256)
    looped_kernel(const half* __restrict__ x, float* __restrict__ y, int cols, int64_t stride) {
    x += blockIdx.x * stride;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256) sum += __half2float(x[c]);
    sum = row_total<256>(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

template <int LANES, int KEPT>
void start(const half* x, float* y, int rows, int cols, int stride, cudaStream_t stream) {
    int per_block = LANES == 32 ? 4 : 1;
    kept_kernel<LANES, KEPT><<<(rows + per_block - 1) / per_block, dim3(LANES, per_block), 0, stream>>>(
        (const uint4*)x, y, rows, cols / 8, stride / 8);
}

extern "C" void launch(const half* x, float* y, int rows, int cols, int stride, cudaStream_t stream) {
    bool aligned = (uintptr_t)x % 16 == 0 && cols % 8 == 0 && stride % 8 == 0;
    int vectors = cols / 8;
    if (!aligned || vectors > WIDE * 32)
        looped_kernel<<<rows, 256, 0, stream>>>(x, y, cols, stride);
    else if (vectors <= 32)
        start<32, 1>(x, y, rows, cols, stride, stream);
    else if (vectors <= 128)
        start<32, 4>(x, y, rows, cols, stride, stream);
    else if (vectors <= WIDE * 2)
        start<WIDE, 2>(x, y, rows, cols, stride, stream);
    else if (vectors <= WIDE * 4)
        start<WIDE, 4>(x, y, rows, cols, stride, stream);
    else if (vectors <= WIDE * 8)
        start<WIDE, 8>(x, y, rows, cols, stride, stream);
    else
        start<WIDE * 4, 8>(x, y, rows, cols, stride, stream);
}
