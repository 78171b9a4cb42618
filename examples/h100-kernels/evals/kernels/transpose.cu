// Transpose of an fp16 matrix. A thread turns a square of 8 x 8 in its registers, so loads and stores are both 16 bytes
// wide.
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int LANE_COLS = 8;  // lanes of a warp along a row of x; the other 32 / LANE_COLS go down
constexpr int WARP_COLS = 2;  // warps of a block along a row of x
constexpr int WARPS = 8;
constexpr int LANE_ROWS = 32 / LANE_COLS, WARP_ROWS = WARPS / WARP_COLS;
constexpr int TILE_COLS = 8 * LANE_COLS * WARP_COLS, TILE_ROWS = 8 * LANE_ROWS * WARP_ROWS;

__global__ void __launch_bounds__(WARPS * 32)
    squares_kernel(const half* __restrict__ x, half* __restrict__ y, int rows, int cols) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int c = blockIdx.x * TILE_COLS + (warp % WARP_COLS * LANE_COLS + lane % LANE_COLS) * 8;
    int r = blockIdx.y * TILE_ROWS + (warp / WARP_COLS * LANE_ROWS + lane / LANE_COLS) * 8;
    if (c >= cols || r >= rows) return;  // both are multiples of 8, so a square is inside or outside as a whole
    unsigned in[8][4];
#pragma unroll
    for (int i = 0; i < 8; i++) *(uint4*)in[i] = __ldg((const uint4*)(x + (int64_t)(r + i) * cols + c));
#pragma unroll
    for (int i = 0; i < 8; i++) {
        unsigned half_of_word = i % 2 ? 0x7632 : 0x5410;
        uint4 column = make_uint4(__byte_perm(in[0][i / 2], in[1][i / 2], half_of_word),
                                  __byte_perm(in[2][i / 2], in[3][i / 2], half_of_word),
                                  __byte_perm(in[4][i / 2], in[5][i / 2], half_of_word),
                                  __byte_perm(in[6][i / 2], in[7][i / 2], half_of_word));
        *(uint4*)(y + (int64_t)(c + i) * rows + r) = column;
    }
}

// Any size and alignment: a tile goes through shared memory, padded so that a column is in 32 banks.
__global__ void tile_kernel(const half* __restrict__ x, half* __restrict__ y, int rows, int cols) {
    __shared__ half tile[32][34];
    int c = blockIdx.x * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        int r = blockIdx.y * 32 + i;
        if (r < rows && c < cols) tile[i][threadIdx.x] = x[(int64_t)r * cols + c];
    }
    __syncthreads();
    int r = blockIdx.y * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        int column = blockIdx.x * 32 + i;
        if (r < rows && column < cols) y[(int64_t)column * rows + r] = tile[threadIdx.x][i];
    }
}

extern "C" void launch(const half* x, half* y, int rows, int cols, cudaStream_t stream) {
    bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0 && rows % 8 == 0 && cols % 8 == 0;
    if (aligned)
        squares_kernel<<<dim3((cols + TILE_COLS - 1) / TILE_COLS, (rows + TILE_ROWS - 1) / TILE_ROWS), WARPS * 32, 0,
                         stream>>>(x, y, rows, cols);
    else
        tile_kernel<<<dim3((cols + 31) / 32, (rows + 31) / 32), dim3(32, 8), 0, stream>>>(x, y, rows, cols);
}
