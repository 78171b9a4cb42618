// y = residual + (mask ? x / 0.9 : 0) in fp16, one byte of mask per element.
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int UNROLL = 2;  // vectors of each input per thread
constexpr int THREADS = 128;

__device__ __forceinline__ float dropped(float x, float residual, unsigned keep) {
    return keep ? fmaf(x, 1.0f / 0.9f, residual) : residual;
}

__global__ void __launch_bounds__(THREADS)
    kernel(const half* __restrict__ x, const half* __restrict__ residual, const uint8_t* __restrict__ mask,
           half* __restrict__ y, int64_t vectors, int64_t n) {
    int64_t first = (int64_t)blockIdx.x * THREADS * UNROLL + threadIdx.x;
    uint4 a[UNROLL], r[UNROLL];
    uint2 m[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        int64_t v = first + i * THREADS;
        if (v < vectors) {
            a[i] = __ldg((const uint4*)x + v);
            r[i] = __ldg((const uint4*)residual + v);
            m[i] = __ldg((const uint2*)mask + v);
        }
    }
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        int64_t v = first + i * THREADS;
        if (v < vectors) {
            half2 *p = (half2*)&a[i], *q = (half2*)&r[i];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                unsigned bits = (j < 2 ? m[i].x : m[i].y) >> (j % 2 * 16);
                float2 s = __half22float2(p[j]), t = __half22float2(q[j]);
                p[j] = __floats2half2_rn(dropped(s.x, t.x, bits & 0xff), dropped(s.y, t.y, bits & 0xff00));
            }
            ((uint4*)y)[v] = a[i];
        }
    }
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = vectors * 8 + (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride)
        y[i] = __float2half(dropped(__half2float(x[i]), __half2float(residual[i]), mask[i]));
}

extern "C" void launch(const half* x, const half* residual, const uint8_t* mask, half* y, int rows, int cols,
                       cudaStream_t stream) {
    int64_t n = (int64_t)rows * cols;
    bool aligned = ((uintptr_t)x | (uintptr_t)residual | (uintptr_t)y) % 16 == 0 && (uintptr_t)mask % 8 == 0;
    int64_t vectors = aligned ? n / 8 : 0;
    int64_t threads = aligned ? (vectors + UNROLL - 1) / UNROLL : n;
    unsigned blocks = (unsigned)((threads + THREADS - 1) / THREADS);
    kernel<<<blocks ? blocks : 1, THREADS, 0, stream>>>(x, residual, mask, y, vectors, n);
}
