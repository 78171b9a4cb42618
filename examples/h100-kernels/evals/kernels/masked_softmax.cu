// Softmax of fp32 rows over the entries that a mask keeps (one byte each). A row without any becomes zeros.
#include <stdint.h>

constexpr int WIDE = 128;  // threads of a block that shares a long row
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

// LANES threads per row, KEPT vectors of four in each thread; blockDim = (LANES, rows of a block).
template <int LANES, int KEPT>
__global__ void __launch_bounds__(LANES == 32 ? 128 : LANES)
    kept_kernel(const float4* __restrict__ x, const uchar4* __restrict__ mask, float4* __restrict__ y, int rows,
                int vectors) {
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // whole warps, and only where a row is one warp's
    x += row * vectors;
    y += row * vectors;
    mask += row * vectors;
    float4 kept[KEPT];
    uchar4 keep[KEPT];
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        kept[i] = v < vectors ? __ldg(x + v) : make_float4(0, 0, 0, 0);
        keep[i] = v < vectors ? __ldg(mask + v) : make_uchar4(0, 0, 0, 0);
    }
    float largest = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        kept[i].x = keep[i].x ? kept[i].x : -INFINITY;
        kept[i].y = keep[i].y ? kept[i].y : -INFINITY;
        kept[i].z = keep[i].z ? kept[i].z : -INFINITY;
        kept[i].w = keep[i].w ? kept[i].w : -INFINITY;
        largest = fmaxf(largest, fmaxf(fmaxf(kept[i].x, kept[i].y), fmaxf(kept[i].z, kept[i].w)));
    }
    largest = row_largest<LANES>(largest);
    float shift = largest == -INFINITY ? 0.0f : largest;  // exp(-inf - 0) is 0, exp(-inf + inf) is not a number
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        kept[i].x = exp2f((kept[i].x - shift) * LOG2E);
        kept[i].y = exp2f((kept[i].y - shift) * LOG2E);
        kept[i].z = exp2f((kept[i].z - shift) * LOG2E);
        kept[i].w = exp2f((kept[i].w - shift) * LOG2E);
        sum += (kept[i].x + kept[i].y) + (kept[i].z + kept[i].w);
    }
    sum = row_total<LANES>(sum);
    float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int v = threadIdx.x + i * LANES;
        if (v >= vectors) continue;
        float4 p = kept[i];
        y[v] = make_float4(p.x * inverse, p.y * inverse, p.z * inverse, p.w * inverse);
    }
}

// Any width and alignment: three passes, the later ones mostly from the caches.
__global__ void __launch_bounds__(256)
    looped_kernel(const float* __restrict__ x, const uint8_t* __restrict__ mask, float* __restrict__ y, int cols) {
    x += (int64_t)blockIdx.x * cols;
    y += (int64_t)blockIdx.x * cols;
    mask += (int64_t)blockIdx.x * cols;
    float largest = -INFINITY, sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256)
        if (mask[c]) largest = fmaxf(largest, x[c]);
    largest = row_largest<256>(largest);
    for (int c = threadIdx.x; c < cols; c += 256)
        if (mask[c]) sum += __expf(x[c] - largest);
    sum = row_total<256>(sum);
    float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    for (int c = threadIdx.x; c < cols; c += 256) y[c] = mask[c] ? __expf(x[c] - largest) * inverse : 0.0f;
}

template <int LANES, int KEPT>
void start(const float* x, const uint8_t* mask, float* y, int rows, int cols, cudaStream_t stream) {
    int per_block = LANES == 32 ? 4 : 1;
    kept_kernel<LANES, KEPT><<<(rows + per_block - 1) / per_block, dim3(LANES, per_block), 0, stream>>>(
        (const float4*)x, (const uchar4*)mask, (float4*)y, rows, cols / 4);
}

extern "C" void launch(const float* x, const uint8_t* mask, float* y, int rows, int cols, cudaStream_t stream) {
    bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0 && (uintptr_t)mask % 4 == 0 && cols % 4 == 0;
    int vectors = cols / 4;
    if (!aligned || vectors > WIDE * 32)
        looped_kernel<<<rows, 256, 0, stream>>>(x, mask, y, cols);
    else if (vectors <= 32)
        start<32, 1>(x, mask, y, rows, cols, stream);
    else if (vectors <= 128)
        start<32, 4>(x, mask, y, rows, cols, stream);
    else if (vectors <= WIDE * 4)
        start<WIDE, 4>(x, mask, y, rows, cols, stream);
    else if (vectors <= WIDE * 8)
        start<WIDE, 8>(x, mask, y, rows, cols, stream);
    else
        start<WIDE * 4, 8>(x, mask, y, rows, cols, stream);
}
