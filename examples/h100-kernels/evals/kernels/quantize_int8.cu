// Quantises fp16 rows to int8, each with a scale of its own. One read: the row stays in registers while its largest is
// found.
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int WIDE = 64;  // threads of a block that shares a long row

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

// Adding 1.5 * 2^23 rounds to the nearest whole number (half to even) and leaves it in the low bits.
__device__ __forceinline__ unsigned rounded(float x, float steps) {
    return __float_as_uint(fmaf(x, steps, 12582912.0f));
}

__device__ __forceinline__ unsigned packed(float2 a, float2 b, float steps) {
    unsigned low = __byte_perm(rounded(a.x, steps), rounded(a.y, steps), 0x0040);
    unsigned high = __byte_perm(rounded(b.x, steps), rounded(b.y, steps), 0x0040);
    return __byte_perm(low, high, 0x5410);
}

// LANES threads per row, KEPT 16-byte vectors of it in each thread; blockDim = (LANES, rows of a block).
template <int LANES, int KEPT>
__global__ void __launch_bounds__(LANES == 32 ? 128 : LANES)
    kept_kernel(const uint4* __restrict__ x, uint2* __restrict__ q, float* __restrict__ scale, int rows, int vectors) {
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // whole warps, and only where a row is one warp's
    x += row * vectors;
    q += row * vectors;
    uint4 kept[KEPT];
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        kept[i] = v < vectors ? __ldg(x + v) : make_uint4(0, 0, 0, 0);
    }
    half2 most = __float2half2_rn(0.0f);
#pragma unroll
    for (int i = 0; i < KEPT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) most = __hmax2(most, __habs2(((half2*)&kept[i])[j]));
    float largest = row_largest<LANES>(fmaxf(__low2float(most), __high2float(most)));
    float steps = largest > 0.0f ? 127.0f / largest : 0.0f;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        if (v >= vectors) continue;
        half2* p = (half2*)&kept[i];
        q[v] = make_uint2(packed(__half22float2(p[0]), __half22float2(p[1]), steps),
                          packed(__half22float2(p[2]), __half22float2(p[3]), steps));
    }
    if (threadIdx.x == 0) scale[row] = largest > 0.0f ? largest / 127.0f : 1.0f;
}

// Any width and alignment: two passes, the second mostly from the caches.
__global__ void __launch_bounds__(256)
    looped_kernel(const half* __restrict__ x, int8_t* __restrict__ q, float* __restrict__ scale, int cols) {
    x += (int64_t)blockIdx.x * cols;
    q += (int64_t)blockIdx.x * cols;
    float largest = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256) largest = fmaxf(largest, fabsf(__half2float(x[c])));
    largest = row_largest<256>(largest);
    float steps = largest > 0.0f ? 127.0f / largest : 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256) q[c] = (int8_t)__float2int_rn(__half2float(x[c]) * steps);
    if (threadIdx.x == 0) scale[blockIdx.x] = largest > 0.0f ? largest / 127.0f : 1.0f;
}

template <int LANES, int KEPT>
void start(const half* x, int8_t* q, float* scale, int rows, int cols, cudaStream_t stream) {
    int per_block = LANES == 32 ? 4 : 1;
    kept_kernel<LANES, KEPT><<<(rows + per_block - 1) / per_block, dim3(LANES, per_block), 0, stream>>>(
        (const uint4*)x, (uint2*)q, scale, rows, cols / 8);
}

extern "C" void launch(const half* x, int8_t* q, float* scale, int rows, int cols, cudaStream_t stream) {
    bool aligned = (uintptr_t)x % 16 == 0 && (uintptr_t)q % 8 == 0 && cols % 8 == 0;
    int vectors = cols / 8;
    if (!aligned || vectors > WIDE * 32)
        looped_kernel<<<rows, 256, 0, stream>>>(x, q, scale, cols);
    else if (vectors <= 32)
        start<32, 1>(x, q, scale, rows, cols, stream);
    else if (vectors <= 128)
        start<32, 4>(x, q, scale, rows, cols, stream);
    else if (vectors <= WIDE * 4)
        start<WIDE, 4>(x, q, scale, rows, cols, stream);
    else if (vectors <= WIDE * 8)
        start<WIDE, 8>(x, q, scale, rows, cols, stream);
    else
        start<WIDE * 4, 8>(x, q, scale, rows, cols, stream);
}
