// total = x + residual, y = RMSNorm(total), both written, in bf16. The sums stay in registers: two reads, two writes.
#include <cuda_bf16.h>
#include <stdint.h>

constexpr int WIDE = 128;  // threads of a block that shares a long row
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
    kept_kernel(const uint4* __restrict__ x, const uint4* __restrict__ residual, const uint4* __restrict__ w,
                uint4* __restrict__ total, uint4* __restrict__ y, int rows, int vectors) {
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // whole warps, and only where a row is one warp's
    x += row * vectors;
    residual += row * vectors;
    total += row * vectors;
    y += row * vectors;
    uint4 kept[KEPT], more[KEPT];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        kept[i] = v < vectors ? __ldg(x + v) : make_uint4(0, 0, 0, 0);
        more[i] = v < vectors ? __ldg(residual + v) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        __nv_bfloat162 *p = (__nv_bfloat162*)&kept[i], *q = (__nv_bfloat162*)&more[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 a = __bfloat1622float2(p[j]), b = __bfloat1622float2(q[j]);
            p[j] = __floats2bfloat162_rn(a.x + b.x, a.y + b.y);
            a = __bfloat1622float2(p[j]);  // the norm is of the sum as it is stored
            sum += a.x * a.x + a.y * a.y;
        }
        int v = threadIdx.x + i * LANES;
        if (v < vectors) total[v] = kept[i];
    }
    float inverse = rsqrtf(row_total<LANES>(sum) / (vectors * 8) + EPS);
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        if (v >= vectors) continue;
        uint4 scale = __ldg(w + v);
        __nv_bfloat162 *p = (__nv_bfloat162*)&kept[i], *q = (__nv_bfloat162*)&scale;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 a = __bfloat1622float2(p[j]), b = __bfloat1622float2(q[j]);
            p[j] = __floats2bfloat162_rn(a.x * inverse * b.x, a.y * inverse * b.y);
        }
        y[v] = kept[i];
    }
}

// Any width and alignment: the second pass reads what the same thread wrote in the first.
__global__ void __launch_bounds__(256)
    looped_kernel(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ residual,
                  const __nv_bfloat16* __restrict__ w, __nv_bfloat16* total, __nv_bfloat16* __restrict__ y, int cols) {
    int64_t row = blockIdx.x;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256) {
        int64_t at = row * cols + c;
        total[at] = __float2bfloat16(__bfloat162float(x[at]) + __bfloat162float(residual[at]));
        float v = __bfloat162float(total[at]);
        sum += v * v;
    }
    float inverse = rsqrtf(row_total<256>(sum) / cols + EPS);
    for (int c = threadIdx.x; c < cols; c += 256) {
        int64_t at = row * cols + c;
        y[at] = __float2bfloat16(__bfloat162float(total[at]) * inverse * __bfloat162float(w[c]));
    }
}

template <int LANES, int KEPT>
void start(const __nv_bfloat16* x, const __nv_bfloat16* residual, const __nv_bfloat16* w, __nv_bfloat16* total,
           __nv_bfloat16* y, int rows, int cols, cudaStream_t stream) {
    int per_block = LANES == 32 ? 4 : 1;
    kept_kernel<LANES, KEPT><<<(rows + per_block - 1) / per_block, dim3(LANES, per_block), 0, stream>>>(
        (const uint4*)x, (const uint4*)residual, (const uint4*)w, (uint4*)total, (uint4*)y, rows, cols / 8);
}

extern "C" void launch(const __nv_bfloat16* x, const __nv_bfloat16* residual, const __nv_bfloat16* w,
                       __nv_bfloat16* total, __nv_bfloat16* y, int rows, int cols, cudaStream_t stream) {
    bool aligned = ((uintptr_t)x | (uintptr_t)residual | (uintptr_t)w | (uintptr_t)total | (uintptr_t)y) % 16 == 0 &&
                   cols % 8 == 0;
    int vectors = cols / 8;
    if (!aligned || vectors > WIDE * 32)
        looped_kernel<<<rows, 256, 0, stream>>>(x, residual, w, total, y, cols);
    else if (vectors <= 32)
        start<32, 1>(x, residual, w, total, y, rows, cols, stream);
    else if (vectors <= 128)
        start<32, 4>(x, residual, w, total, y, rows, cols, stream);
    else if (vectors <= WIDE * 4)
        start<WIDE, 4>(x, residual, w, total, y, rows, cols, stream);
    else if (vectors <= WIDE * 8)
        start<WIDE, 8>(x, residual, w, total, y, rows, cols, stream);
    else
        start<WIDE * 4, 8>(x, residual, w, total, y, rows, cols, stream);
}
