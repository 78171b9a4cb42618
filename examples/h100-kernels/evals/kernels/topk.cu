// The k largest of each fp32 row in falling order, with their places. Short rows: a warp keeps the row, and takes the
// largest k times.
#include <stdint.h>

constexpr int KEPT = 8;  // entries of a short row per lane
constexpr int WARPS = 8;
constexpr unsigned NOTHING = 0;  // below the key of every number

// Unsigned integers that order like the floats they stand for (-0 like +0).
__device__ __forceinline__ unsigned key_of(float v) {
    unsigned bits = __float_as_uint(v + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(unsigned key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ void order(unsigned& a, unsigned& i, unsigned& b, unsigned& j) {
    if (b > a || (b == a && j < i)) {
        unsigned key = a, place = i;
        a = b, i = j, b = key, j = place;
    }
}

__global__ void __launch_bounds__(WARPS * 32)
    warp_kernel(const float* __restrict__ x, float* __restrict__ values, int* __restrict__ indices, int rows, int cols,
                int k, bool aligned) {
    int lane = threadIdx.x % 32;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    x += row * cols;
    unsigned key[KEPT], place[KEPT];
#pragma unroll
    for (int i = 0; i < KEPT; i += 4) {
        int c = i * 32 + lane * 4;
        float4 v = make_float4(0, 0, 0, 0);
        if (aligned && c < cols) v = __ldg((const float4*)(x + c));
        if (!aligned) {
            if (c < cols) v.x = x[c];
            if (c + 1 < cols) v.y = x[c + 1];
            if (c + 2 < cols) v.z = x[c + 2];
            if (c + 3 < cols) v.w = x[c + 3];
        }
        float four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            place[i + j] = c + j;
            key[i + j] = c + j < cols ? key_of(four[j]) : NOTHING;
        }
    }
    // Each lane sorts its eight (19 exchanges), so that only its first is a candidate.
#define ORDER(a, b) order(key[a], place[a], key[b], place[b])
    ORDER(0, 2), ORDER(1, 3), ORDER(4, 6), ORDER(5, 7);
    ORDER(0, 4), ORDER(1, 5), ORDER(2, 6), ORDER(3, 7);
    ORDER(0, 1), ORDER(2, 3), ORDER(4, 5), ORDER(6, 7);
    ORDER(2, 4), ORDER(3, 5);
    ORDER(1, 4), ORDER(3, 6);
    ORDER(1, 2), ORDER(3, 4), ORDER(5, 6);
#undef ORDER
    for (int i = 0; i < k; i++) {
        unsigned best = __reduce_max_sync(~0u, key[0]);
        unsigned at = __reduce_min_sync(~0u, key[0] == best ? place[0] : ~0u);
        if (lane == i % 32) {
            values[row * k + i] = value_of(best);
            indices[row * k + i] = (int)at;
        }
        if (place[0] == at) {
#pragma unroll
            for (int j = 0; j < KEPT - 1; j++) key[j] = key[j + 1], place[j] = place[j + 1];
            key[KEPT - 1] = NOTHING;
            place[KEPT - 1] = ~0u;
        }
    }
}

// Longer rows: k passes of a block, each for the largest that comes after the last one found.
__global__ void __launch_bounds__(256)
    block_kernel(const float* __restrict__ x, float* __restrict__ values, int* __restrict__ indices, int cols, int k) {
    __shared__ unsigned keys[8], places[8];
    x += (int64_t)blockIdx.x * cols;
    unsigned last = ~0u, last_place = 0;
    for (int i = 0; i < k; i++) {
        unsigned key = NOTHING, place = ~0u;
        for (int c = threadIdx.x; c < cols; c += 256) {
            unsigned candidate = key_of(x[c]);
            bool left = i == 0 || candidate < last || (candidate == last && c > last_place);
            if (left && (candidate > key || (candidate == key && c < place))) key = candidate, place = c;
        }
        unsigned best = __reduce_max_sync(~0u, key);
        unsigned at = __reduce_min_sync(~0u, key == best ? place : ~0u);
        if (threadIdx.x % 32 == 0) keys[threadIdx.x / 32] = best, places[threadIdx.x / 32] = at;
        __syncthreads();
        last = keys[0], last_place = places[0];
        for (int j = 1; j < 8; j++)
            if (keys[j] > last || (keys[j] == last && places[j] < last_place)) last = keys[j], last_place = places[j];
        if (threadIdx.x == 0) {
            values[(int64_t)blockIdx.x * k + i] = value_of(last);
            indices[(int64_t)blockIdx.x * k + i] = (int)last_place;
        }
        __syncthreads();
    }
}

extern "C" void launch(const float* x, float* values, int* indices, int rows, int cols, int k, cudaStream_t stream) {
    bool aligned = (uintptr_t)x % 16 == 0 && cols % 4 == 0;
    if (cols <= KEPT * 32)
        warp_kernel<<<(rows + WARPS - 1) / WARPS, WARPS * 32, 0, stream>>>(x, values, indices, rows, cols, k, aligned);
    else
        block_kernel<<<rows, 256, 0, stream>>>(x, values, indices, cols, k);
}
