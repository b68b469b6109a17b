#pragma once

namespace weft {

// From now on a bus error is one line that names the file, and exit status 2. A file that is mapped and cut short
// meanwhile has no pages to read: the kernel knows no other way to say so.
void name_bus_errors();

}  // namespace weft
