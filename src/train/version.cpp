#include "trireme/train/version.hpp"

#include <fmt/format.h>
#include <link.h>

#include <cstring>

#include "trireme/device/device.hpp"

namespace trireme {
namespace {

// Finds the note NT_GNU_BUILD_ID of the program, the first object that the loader lists.
int find_build_id(dl_phdr_info* object, size_t, void* result) {
  auto& text = *static_cast<std::string*>(result);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& header = object->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(object->dlpi_addr + header.p_vaddr);
    const char* end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof(note));
      const char* name = at + sizeof(note);
      const char* value = name + ((note.n_namesz + 3) & ~3u);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
        for (unsigned j = 0; j < note.n_descsz; ++j)
          text += fmt::format("{:02x}", static_cast<unsigned char>(value[j]));
      at = value + ((note.n_descsz + 3) & ~3u);
    }
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string text;
  dl_iterate_phdr(find_build_id, &text);
  return text;
}

std::string version_text() {
  return fmt::format("trireme {} ({})", TRIREME_VERSION, backend_name());
}

}  // namespace trireme
