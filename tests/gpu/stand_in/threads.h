/* CUDA's words for a kernel that runs on a processor: a block is as many threads, one block after the other. */
#include <math.h>
#include <pthread.h>

#include <thread>
#include <vector>

struct Index { unsigned x, y, z; };
static thread_local Index threadIdx, blockIdx;
static pthread_barrier_t together;

#define __global__
#define __launch_bounds__(threads)
#define __shared__ static
#define __restrict__
#define __syncthreads() pthread_barrier_wait(&together)

template <typename Value> Value max(Value a, Value b) { return a > b ? a : b; }
template <typename Value> Value min(Value a, Value b) { return a < b ? a : b; }

template <typename Kernel> void launch(Index grid, Index block, Kernel kernel) {
  pthread_barrier_init(&together, nullptr, block.x * block.y * block.z);
  auto of_thread = [&](Index thread) {
    threadIdx = thread;
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) {
          blockIdx = {x, y, z};
          kernel();
          __syncthreads();  /* the memory that a block shares is the next one's */
        }
  };
  std::vector<std::thread> threads;
  for (unsigned z = 0; z < block.z; ++z)
    for (unsigned y = 0; y < block.y; ++y)
      for (unsigned x = 0; x < block.x; ++x) threads.emplace_back(of_thread, Index{x, y, z});
  for (auto &thread : threads) thread.join();
  pthread_barrier_destroy(&together);
}
