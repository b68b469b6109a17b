// One pool of threads, shared with torch.
//
// torch brings an OpenMP runtime whose idle workers spin for a while after each operator. A second pool
// beside it fights those spinners for the cores in every epoch (docs/log.md has the figures). So weft
// links no OpenMP runtime: it looks up GOMP_parallel, an entry point that GNU's and LLVM's runtimes both
// have, among the symbols that torch loaded, and runs its chunks there. Where none is found, a plain
// pool of blocked threads serves.
#include "parallel.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace weft {
namespace {

struct Job {
  int64_t chunks;
  void (*body)(void*, int64_t);
  void* context;
  std::atomic<int64_t> next{0};

  void drain() {
    for (int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) body(context, chunk);
  }
};

using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

GompParallel shared_runtime() {
  static const GompParallel found = [] {
    const char* choice = std::getenv("WEFT_POOL");
    if (choice && std::strcmp(choice, "own") == 0) return GompParallel(nullptr);
    return reinterpret_cast<GompParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  }();
  return found;
}

// Workers that sleep between jobs. One job runs at a time; a caller that finds the pool busy (another
// Python thread is inside a kernel) does its own work alone.
class Pool {
 public:
  // Never destroyed: workers may outlive static destructors.
  static Pool& get() {
    static Pool* pool = new Pool;
    return *pool;
  }

  void run(Job& job, int threads) {
    std::unique_lock<std::mutex> busy(busy_, std::try_to_lock);
    if (!busy.owns_lock()) return job.drain();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      while (int(workers_.size()) < threads - 1) {
        workers_.emplace_back([this, id = int(workers_.size()), seen = round_] { work(id, seen); });
        workers_.back().detach();
      }
      job_ = &job;
      wanted_ = threads - 1;
      running_ = wanted_;
      ++round_;
    }
    wake_.notify_all();
    job.drain();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  void work(int id, uint64_t seen) {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (id >= wanted_) continue;
      Job* job = job_;
      lock.unlock();
      job->drain();
      lock.lock();
      if (--running_ == 0) done_.notify_one();
    }
  }

  std::mutex busy_, mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  Job* job_ = nullptr;
  int wanted_ = 0, running_ = 0;
  uint64_t round_ = 0;
};

}  // namespace

void parallel_chunks(int64_t chunks, int threads, void (*body)(void*, int64_t), void* context) {
  Job job{chunks, body, context};
  threads = int(std::min<int64_t>(threads, chunks));
  if (threads <= 1) return job.drain();
  if (GompParallel start = shared_runtime()) {
    start([](void* p) { static_cast<Job*>(p)->drain(); }, &job, unsigned(threads), 0);
  } else {
    Pool::get().run(job, threads);
  }
}

const char* pool_name() { return shared_runtime() ? "shared" : "own"; }

}  // namespace weft
