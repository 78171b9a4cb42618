// Softmax of fp16 rows. One read: the row stays in registers while its maximum and its sum are found.
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int WIDE = 64;  // threads of a block that shares a long row
constexpr float LOG2E = 1.4426950409f;

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

// Largest over the LANES threads of a row; every thread gets it.
template <int LANES>
__device__ __forceinline__ float row_largest(float v) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
    if (LANES == 32) return v;
    __shared__ float part[LANES / 32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int i = 1; i < LANES / 32; i++) v = fmaxf(v, part[i]);
    return v;
}

// LANES threads per row, KEPT 16-byte vectors of it in each thread; blockDim = (LANES, rows of a block).
template <int LANES, int KEPT>
__global__ void __launch_bounds__(LANES == 32 ? 128 : LANES)
    kept_kernel(const uint4* __restrict__ x, uint4* __restrict__ y, int rows, int vectors) {
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // whole warps, and only where a row is one warp's
    x += row * vectors;
    y += row * vectors;
    uint4 kept[KEPT];
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        unsigned none = 0xfc00fc00;  // two times minus infinity
        kept[i] = v < vectors ? __ldg(x + v) : make_uint4(none, none, none, none);
    }
    half2 most = ((half2*)&kept[0])[0];
#pragma unroll
    for (int i = 0; i < KEPT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) most = __hmax2(most, ((half2*)&kept[i])[j]);
    float largest = row_largest<LANES>(fmaxf(__low2float(most), __high2float(most)));
    float shift = largest * LOG2E, sum = 0.0f;
    float2 power[KEPT][4];
#pragma unroll
    for (int i = 0; i < KEPT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 p = __half22float2(((half2*)&kept[i])[j]);
            power[i][j] = make_float2(exp2f(p.x * LOG2E - shift), exp2f(p.y * LOG2E - shift));
            sum += power[i][j].x + power[i][j].y;
        }
    float inverse = 1.0f / row_total<LANES>(sum);
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        if (v >= vectors) continue;
#pragma unroll
        for (int j = 0; j < 4; j++)
            ((half2*)&kept[i])[j] = __floats2half2_rn(power[i][j].x * inverse, power[i][j].y * inverse);
        y[v] = kept[i];
    }
}

// Any width and alignment: three passes, the later ones mostly from the caches.
__global__ void __launch_bounds__(256) looped_kernel(const half* __restrict__ x, half* __restrict__ y, int cols) {
    x += (int64_t)blockIdx.x * cols;
    y += (int64_t)blockIdx.x * cols;
    float largest = -INFINITY, sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256) largest = fmaxf(largest, __half2float(x[c]));
    largest = row_largest<256>(largest);
    for (int c = threadIdx.x; c < cols; c += 256) sum += __expf(__half2float(x[c]) - largest);
    float inverse = 1.0f / row_total<256>(sum);
    for (int c = threadIdx.x; c < cols; c += 256) y[c] = __float2half(__expf(__half2float(x[c]) - largest) * inverse);
}

template <int LANES, int KEPT>
void start(const half* x, half* y, int rows, int cols, cudaStream_t stream) {
    int per_block = LANES == 32 ? 4 : 1;
    kept_kernel<LANES, KEPT><<<(rows + per_block - 1) / per_block, dim3(LANES, per_block), 0, stream>>>(
        (const uint4*)x, (uint4*)y, rows, cols / 8);
}

extern "C" void launch(const half* x, half* y, int rows, int cols, cudaStream_t stream) {
    bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0 && cols % 8 == 0;
    int vectors = cols / 8;
    if (!aligned || vectors > WIDE * 32)
        looped_kernel<<<rows, 256, 0, stream>>>(x, y, cols);
    else if (vectors <= 32)
        start<32, 1>(x, y, rows, cols, stream);
    else if (vectors <= 128)
        start<32, 4>(x, y, rows, cols, stream);
    else if (vectors <= WIDE * 4)
        start<WIDE, 4>(x, y, rows, cols, stream);
    else if (vectors <= WIDE * 8)
        start<WIDE, 8>(x, y, rows, cols, stream);
    else
        start<WIDE * 4, 8>(x, y, rows, cols, stream);
}
