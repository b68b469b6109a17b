// Only calls that are safe in a signal handler: open, read, write, _exit. No memory is taken.
#include "fault.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace weft {
namespace {

char line[8192];  // of /proc/self/maps: "begin-end perms offset dev inode   path"

uintptr_t hexadecimal(const char*& at) {
  uintptr_t value = 0;
  for (;; ++at) {
    const char c = *at;
    if (c >= '0' && c <= '9')
      value = value * 16 + (c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value * 16 + (c - 'a' + 10);
    else
      return value;
  }
}

// The path in `line`, if the mapping that it tells of has this address.
const char* path_at(uintptr_t address) {
  const char* at = line;
  const uintptr_t begin = hexadecimal(at);
  if (*at++ != '-') return nullptr;
  const uintptr_t end = hexadecimal(at);
  return begin <= address && address < end ? std::strchr(line, '/') : nullptr;
}

const char* mapped_file(uintptr_t address) {
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  char part[512];
  size_t used = 0;
  for (ssize_t count; (count = read(file, part, sizeof part)) > 0;)
    for (ssize_t i = 0; i < count; ++i) {
      if (part[i] != '\n') {
        if (used + 1 < sizeof line) line[used++] = part[i];
        continue;
      }
      line[used] = 0;
      used = 0;
      if (const char* path = path_at(address)) return path;
    }
  return nullptr;
}

void say(const char* text) {
  if (write(2, text, std::strlen(text)) < 0) _exit(2);
}

void on_bus_error(int, siginfo_t* told, void*) {
  const char* path = mapped_file(reinterpret_cast<uintptr_t>(told->si_addr));
  say("weft: ");
  say(path ? path : "a file");
  say(" was cut short while it was read, or its disk is full. Write it again, or make room.\n");
  _exit(2);
}

}  // namespace

void name_bus_errors() {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace weft
