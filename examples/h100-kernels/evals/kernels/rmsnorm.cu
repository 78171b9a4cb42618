// RMSNorm of fp16 rows. One pass: a row stays in registers between its sum of squares and its output.
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int WIDE = 64;  // threads of a block that shares a long row
constexpr float EPS = 1e-6f;

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
    kept_kernel(const uint4* __restrict__ x, const uint4* __restrict__ w, uint4* __restrict__ y, int rows,
                int vectors) {
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // whole warps, and only where a row is one warp's
    x += row * vectors;
    y += row * vectors;
    uint4 kept[KEPT], scale[KEPT];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        kept[i] = v < vectors ? __ldg(x + v) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        if (v < vectors) scale[i] = __ldg(w + v);
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 p = __half22float2(((half2*)&kept[i])[j]);
            sum += p.x * p.x + p.y * p.y;
        }
    float inverse = rsqrtf(row_total<LANES>(sum) / (vectors * 8) + EPS);
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        if (v >= vectors) continue;
        half2 *p = (half2*)&kept[i], *q = (half2*)&scale[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 a = __half22float2(p[j]), b = __half22float2(q[j]);
            p[j] = __floats2half2_rn(a.x * inverse * b.x, a.y * inverse * b.y);
        }
        y[v] = kept[i];
    }
}

// Any width and alignment: two passes, the second mostly from the caches.
__global__ void __launch_bounds__(256)
    looped_kernel(const half* __restrict__ x, const half* __restrict__ w, half* __restrict__ y, int cols) {
    x += (int64_t)blockIdx.x * cols;
    y += (int64_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256) {
        float v = __half2float(x[c]);
        sum += v * v;
    }
    float inverse = rsqrtf(row_total<256>(sum) / cols + EPS);
    for (int c = threadIdx.x; c < cols; c += 256)
        y[c] = __float2half(__half2float(x[c]) * inverse * __half2float(w[c]));
}

template <int LANES, int KEPT>
void start(const half* x, const half* w, half* y, int rows, int cols, cudaStream_t stream) {
    int per_block = LANES == 32 ? 4 : 1;
    kept_kernel<LANES, KEPT><<<(rows + per_block - 1) / per_block, dim3(LANES, per_block), 0, stream>>>(
        (const uint4*)x, (const uint4*)w, (uint4*)y, rows, cols / 8);
}

extern "C" void launch(const half* x, const half* w, half* y, int rows, int cols, cudaStream_t stream) {
    bool aligned = ((uintptr_t)x | (uintptr_t)w | (uintptr_t)y) % 16 == 0 && cols % 8 == 0;
    int vectors = cols / 8;
    if (!aligned || vectors > WIDE * 32)
        looped_kernel<<<rows, 256, 0, stream>>>(x, w, y, cols);
    else if (vectors <= 32)
        start<32, 1>(x, w, y, rows, cols, stream);
    else if (vectors <= 128)
        start<32, 4>(x, w, y, rows, cols, stream);
    else if (vectors <= WIDE * 4)
        start<WIDE, 4>(x, w, y, rows, cols, stream);
    else if (vectors <= WIDE * 8)
        start<WIDE, 8>(x, w, y, rows, cols, stream);
    else
        start<WIDE * 4, 8>(x, w, y, rows, cols, stream);
}
