// Pages and bandwidth of main memory.
#pragma once
#include <cstddef>

namespace weft {

// Asks for huge pages in [p, p + bytes), before the first touch. Random reads of rows then miss the
// TLB less. A hint: nothing happens where the system has none.
void advise_huge(void* p, size_t bytes);

// Tells malloc to keep what is freed instead of giving it back to the system. Each epoch frees and asks
// for the same large buffers; without this every one is mapped and zeroed anew (docs/log.md: half the
// time of an epoch). Returns whether the system's malloc took it.
bool keep_freed_memory();

}  // namespace weft
