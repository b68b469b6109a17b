// One pool of threads, shared with torch. See parallel.cpp.
#pragma once
#include <cstdint>

namespace weft {

// Calls body(context, chunk) for every chunk in [0, chunks), on up to `threads` threads, in any order.
void parallel_chunks(int64_t chunks, int threads, void (*body)(void*, int64_t), void* context);

// The name of the pool in use: "shared" (the OpenMP runtime that torch loaded) or "own".
const char* pool_name();

// The same, for a callable that takes the chunk.
template <class F>
void parallel_for(int64_t chunks, int threads, F&& f) {
  parallel_chunks(chunks, threads, [](void* p, int64_t chunk) { (*static_cast<F*>(p))(chunk); }, &f);
}

}  // namespace weft
