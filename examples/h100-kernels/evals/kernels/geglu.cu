// y = x[:, :cols] * gelu_tanh(x[:, cols:]) in bf16. A row is cut into pieces of THREADS vectors; one block does one
// piece.
#include <cuda_bf16.h>
#include <stdint.h>

constexpr int UNROLL = 2;  // vectors of each input per thread
constexpr int THREADS = 256;

// 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), which loses nothing where tanh is close to -1.
__device__ __forceinline__ float gelu_tanh(float x) {
    float u = x * (0.7978845608f + 0.0356774081f * x * x);
    return __fdividef(x, 1.0f + __expf(-2.0f * u));
}

__global__ void __launch_bounds__(THREADS)
    kernel(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y, int vectors, int cols) {
    const __nv_bfloat16* value = x + (int64_t)blockIdx.x * 2 * cols;
    const __nv_bfloat16* gate = value + cols;
    y += (int64_t)blockIdx.x * cols;
    int first = blockIdx.y * THREADS * UNROLL + threadIdx.x;
    uint4 a[UNROLL], b[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        int v = first + i * THREADS;
        if (v < vectors) {
            a[i] = __ldg((const uint4*)value + v);
            b[i] = __ldg((const uint4*)gate + v);
        }
    }
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        int v = first + i * THREADS;
        if (v < vectors) {
            __nv_bfloat162 *p = (__nv_bfloat162*)&a[i], *q = (__nv_bfloat162*)&b[i];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float2 s = __bfloat1622float2(p[j]), t = __bfloat1622float2(q[j]);
                p[j] = __floats2bfloat162_rn(s.x * gelu_tanh(t.x), s.y * gelu_tanh(t.y));
            }
            ((uint4*)y)[v] = a[i];
        }
    }
    for (int c = vectors * 8 + blockIdx.y * THREADS + threadIdx.x; c < cols; c += gridDim.y * THREADS)
        y[c] = __float2bfloat16(__bfloat162float(value[c]) * gelu_tanh(__bfloat162float(gate[c])));
}

extern "C" void launch(const __nv_bfloat16* x, __nv_bfloat16* y, int rows, int cols, cudaStream_t stream) {
    bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0 && cols % 8 == 0;  // every row starts on 16 bytes
    int vectors = aligned ? cols / 8 : 0;
    int pieces = ((aligned ? vectors : cols) + THREADS * UNROLL - 1) / (THREADS * UNROLL);
    kernel<<<dim3(rows, pieces), THREADS, 0, stream>>>(x, y, vectors, cols);
}
