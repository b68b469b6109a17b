// Pages and bandwidth of main memory.
#pragma once
#include <cstddef>

namespace weft {

// Asks for huge pages in [p, p + bytes), before the first touch. Random reads of rows then miss the
// TLB less. A hint: nothing happens where the system has none.
void advise_huge(void* p, size_t bytes);

}  // namespace weft
