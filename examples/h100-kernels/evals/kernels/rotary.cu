// Rotary embedding of bf16 heads in two halves. One block per token, so cos and sin of the token are read into L1 once.
#include <cuda_bf16.h>
#include <stdint.h>

constexpr int THREADS = 128;

__global__ void __launch_bounds__(THREADS)
    vector_kernel(const __nv_bfloat16* __restrict__ x, const float* __restrict__ cosines,
                  const float* __restrict__ sines, __nv_bfloat16* __restrict__ y, int heads, int half) {
    int64_t token = blockIdx.x;
    x += token * heads * 2 * half;
    y += token * heads * 2 * half;
    cosines += token * half;
    sines += token * half;
    int per_head = half / 8, items = heads * per_head;
#pragma unroll 2
    for (int item = threadIdx.x; item < items; item += THREADS) {
        int head = item / per_head, c = (item - head * per_head) * 8;
        int64_t at = (int64_t)head * 2 * half + c;
        uint4 first = __ldg((const uint4*)(x + at)), second = __ldg((const uint4*)(x + at + half));
        float cs[8], sn[8];
        *(float4*)cs = __ldg((const float4*)(cosines + c));
        *(float4*)(cs + 4) = __ldg((const float4*)(cosines + c + 4));
        *(float4*)sn = __ldg((const float4*)(sines + c));
        *(float4*)(sn + 4) = __ldg((const float4*)(sines + c + 4));
        __nv_bfloat162 *p = (__nv_bfloat162*)&first, *q = (__nv_bfloat162*)&second;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 a = __bfloat1622float2(p[j]), b = __bfloat1622float2(q[j]);
            float c0 = cs[2 * j], c1 = cs[2 * j + 1], s0 = sn[2 * j], s1 = sn[2 * j + 1];
            p[j] = __floats2bfloat162_rn(a.x * c0 - b.x * s0, a.y * c1 - b.y * s1);
            q[j] = __floats2bfloat162_rn(b.x * c0 + a.x * s0, b.y * c1 + a.y * s1);
        }
        *(uint4*)(y + at) = first;
        *(uint4*)(y + at + half) = second;
    }
}

__global__ void __launch_bounds__(THREADS)
    scalar_kernel(const __nv_bfloat16* __restrict__ x, const float* __restrict__ cosines,
                  const float* __restrict__ sines, __nv_bfloat16* __restrict__ y, int heads, int half) {
    int64_t token = blockIdx.x;
    for (int item = threadIdx.x; item < heads * half; item += THREADS) {
        int head = item / half, c = item - head * half;
        int64_t at = (token * heads + head) * 2 * half + c;
        float a = __bfloat162float(x[at]), b = __bfloat162float(x[at + half]);
        float cs = cosines[token * half + c], sn = sines[token * half + c];
        y[at] = __float2bfloat16(a * cs - b * sn);
        y[at + half] = __float2bfloat16(b * cs + a * sn);
    }
}

extern "C" void launch(const __nv_bfloat16* x, const float* cosines, const float* sines, __nv_bfloat16* y, int tokens,
                       int heads, int dim, cudaStream_t stream) {
    bool aligned = ((uintptr_t)x | (uintptr_t)cosines | (uintptr_t)sines | (uintptr_t)y) % 16 == 0 && dim % 16 == 0;
    auto kernel = aligned ? vector_kernel : scalar_kernel;
    kernel<<<tokens, THREADS, 0, stream>>>(x, cosines, sines, y, heads, dim / 2);
}
