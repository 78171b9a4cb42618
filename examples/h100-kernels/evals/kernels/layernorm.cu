// LayerNorm of fp16 rows. One read: mean and then variance are taken of the row kept in registers.
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int WIDE = 128;  // threads of a block that shares a long row
constexpr float EPS = 1e-5f;

// Sum over the LANES threads of a row; every thread gets it. SLOT keeps two calls apart, so that one barrier each is
// enough.
template <int LANES, int SLOT>
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
    kept_kernel(const uint4* __restrict__ x, const uint4* __restrict__ w, const uint4* __restrict__ b,
                uint4* __restrict__ y, int rows, int vectors) {
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // whole warps, and only where a row is one warp's
    x += row * vectors;
    y += row * vectors;
    uint4 kept[KEPT];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        kept[i] = v < vectors ? __ldg(x + v) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 p = __half22float2(((half2*)&kept[i])[j]);
            sum += p.x + p.y;
        }
    float mean = row_total<LANES, 0>(sum) / (vectors * 8);
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        if (threadIdx.x + i * LANES >= vectors) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 p = __half22float2(((half2*)&kept[i])[j]);
            squares += (p.x - mean) * (p.x - mean) + (p.y - mean) * (p.y - mean);
        }
    }
    float inverse = rsqrtf(row_total<LANES, 1>(squares) / (vectors * 8) + EPS);
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        if (v >= vectors) continue;
        uint4 scale = __ldg(w + v), shift = __ldg(b + v);
        half2 *p = (half2*)&kept[i], *q = (half2*)&scale, *s = (half2*)&shift;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 a = __half22float2(p[j]), m = __half22float2(q[j]), t = __half22float2(s[j]);
            p[j] = __floats2half2_rn((a.x - mean) * inverse * m.x + t.x, (a.y - mean) * inverse * m.y + t.y);
        }
        y[v] = kept[i];
    }
}

// Any width and alignment: three passes, the later ones mostly from the caches.
__global__ void __launch_bounds__(256) looped_kernel(const half* __restrict__ x, const half* __restrict__ w,
                                                     const half* __restrict__ b, half* __restrict__ y, int cols) {
    x += (int64_t)blockIdx.x * cols;
    y += (int64_t)blockIdx.x * cols;
    float sum = 0.0f, squares = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256) sum += __half2float(x[c]);
    float mean = row_total<256, 0>(sum) / cols;
    for (int c = threadIdx.x; c < cols; c += 256) {
        float d = __half2float(x[c]) - mean;
        squares += d * d;
    }
    float inverse = rsqrtf(row_total<256, 1>(squares) / cols + EPS);
    for (int c = threadIdx.x; c < cols; c += 256) {
        float normed = (__half2float(x[c]) - mean) * inverse * __half2float(w[c]) + __half2float(b[c]);
        y[c] = __float2half(normed);
    }
}

template <int LANES, int KEPT>
void start(const half* x, const half* w, const half* b, half* y, int rows, int cols, cudaStream_t stream) {
    int per_block = LANES == 32 ? 4 : 1;
    kept_kernel<LANES, KEPT><<<(rows + per_block - 1) / per_block, dim3(LANES, per_block), 0, stream>>>(
        (const uint4*)x, (const uint4*)w, (const uint4*)b, (uint4*)y, rows, cols / 8);
}

extern "C" void launch(const half* x, const half* w, const half* b, half* y, int rows, int cols, cudaStream_t stream) {
    bool aligned = ((uintptr_t)x | (uintptr_t)w | (uintptr_t)b | (uintptr_t)y) % 16 == 0 && cols % 8 == 0;
    int vectors = cols / 8;
    if (!aligned || vectors > WIDE * 32)
        looped_kernel<<<rows, 256, 0, stream>>>(x, w, b, y, cols);
    else if (vectors <= 32)
        start<32, 1>(x, w, b, y, rows, cols, stream);
    else if (vectors <= 128)
        start<32, 4>(x, w, b, y, rows, cols, stream);
    else if (vectors <= WIDE * 4)
        start<WIDE, 4>(x, w, b, y, rows, cols, stream);
    else if (vectors <= WIDE * 8)
        start<WIDE, 8>(x, w, b, y, rows, cols, stream);
    else
        start<WIDE * 4, 8>(x, w, b, y, rows, cols, stream);
}
