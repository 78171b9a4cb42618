// Group norm in fp16. A group is one stretch of memory: a block reads it once and keeps it in registers.
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int THREADS = 512;
constexpr float EPS = 1e-5f;

// Sum over the block; every thread gets it. SLOT keeps two calls apart, so that one barrier each is enough.
template <int SLOT>
__device__ __forceinline__ float block_total(float v) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    __shared__ float part[THREADS / 32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) v += part[i];
    return v;
}

template <int KEPT>
__global__ void __launch_bounds__(THREADS)
    kept_kernel(const half* __restrict__ x, const half* __restrict__ w, const half* __restrict__ b,
                half* __restrict__ y, int groups, int channels, int pixels) {
    int per_group = channels / groups, vectors = per_group * pixels / 8, per_channel = pixels / 8;
    const uint4* from = (const uint4*)x + (int64_t)blockIdx.x * vectors;
    uint4* to = (uint4*)y + (int64_t)blockIdx.x * vectors;
    int channel = blockIdx.x % groups * per_group;
    uint4 kept[KEPT];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * THREADS;
        kept[i] = v < vectors ? __ldg(from + v) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 p = __half22float2(((half2*)&kept[i])[j]);
            sum += p.x + p.y;
        }
    float mean = block_total<0>(sum) / (vectors * 8);
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        if (threadIdx.x + i * THREADS >= vectors) continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 p = __half22float2(((half2*)&kept[i])[j]);
            squares += (p.x - mean) * (p.x - mean) + (p.y - mean) * (p.y - mean);
        }
    }
    float inverse = rsqrtf(block_total<1>(squares) / (vectors * 8) + EPS);
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * THREADS;
        if (v >= vectors) continue;
        int c = channel + v / per_channel;  // a vector never crosses channels: pixels is a multiple of 8
        float scale = __half2float(w[c]) * inverse, shift = __half2float(b[c]) - mean * scale;
        half2* p = (half2*)&kept[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 a = __half22float2(p[j]);
            p[j] = __floats2half2_rn(a.x * scale + shift, a.y * scale + shift);
        }
        to[v] = kept[i];
    }
}

// Any size and alignment: three passes, the later ones mostly from the caches.
__global__ void __launch_bounds__(THREADS)
    looped_kernel(const half* __restrict__ x, const half* __restrict__ w, const half* __restrict__ b,
                  half* __restrict__ y, int groups, int channels, int pixels) {
    int per_group = channels / groups, size = per_group * pixels;
    x += (int64_t)blockIdx.x * size;
    y += (int64_t)blockIdx.x * size;
    int channel = blockIdx.x % groups * per_group;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < size; i += THREADS) sum += __half2float(x[i]);
    float mean = block_total<0>(sum) / size;
    for (int i = threadIdx.x; i < size; i += THREADS) {
        float d = __half2float(x[i]) - mean;
        squares += d * d;
    }
    float inverse = rsqrtf(block_total<1>(squares) / size + EPS);
    for (int i = threadIdx.x; i < size; i += THREADS) {
        int c = channel + i / pixels;
        y[i] = __float2half((__half2float(x[i]) - mean) * inverse * __half2float(w[c]) + __half2float(b[c]));
    }
}

extern "C" void launch(const half* x, const half* w, const half* b, half* y, int batch, int channels, int pixels,
                       int groups, cudaStream_t stream) {
    bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0 && pixels % 8 == 0;
    int64_t vectors = (int64_t)channels / groups * pixels / 8;
    auto kernel = looped_kernel;
    if (aligned && vectors <= THREADS)
        kernel = kept_kernel<1>;
    else if (aligned && vectors <= THREADS * 4)
        kernel = kept_kernel<4>;
    else if (aligned && vectors <= THREADS * 10)
        kernel = kept_kernel<10>;
    else if (aligned && vectors <= THREADS * 16)
        kernel = kept_kernel<16>;
    kernel<<<batch * groups, THREADS, 0, stream>>>(x, w, b, y, groups, channels, pixels);
}
