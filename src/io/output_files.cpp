#include "trireme/io/output_files.hpp"

#include "io/failure.hpp"
#include "io/posix_file.hpp"

namespace trireme {

namespace fs = std::filesystem;

struct OutputFiles::Impl {
  const Communicator& world;
  fs::path target, temporary;
  bool is_directory = true;
  std::vector<io::PosixFile> files;
  bool owned = false;  // the temporary is this rank's to remove

  Impl(const Communicator& w, const fs::path& t)
      : world(w),
        target(t.filename().empty() ? t.parent_path() : t),  // DIR/ is DIR
        temporary(target.string() + ".tmp") {}

  void create(const std::vector<NewFile>& plan) {
    std::error_code fault;
    if (is_directory) {
      require(!fs::exists(target, fault) ||
                  (fs::is_directory(target, fault) && fs::is_empty(target, fault)),
              ExitCode::usage, "{} exists and is not an empty directory: name another",
              target.string());
    } else {
      require(!fs::exists(target, fault), ExitCode::usage, "{} exists: name another",
              target.string());
    }
    fs::remove_all(temporary, fault);
    owned = true;
    fs::create_directories(is_directory ? temporary : fs::absolute(temporary).parent_path(), fault);
    require(!fault, ExitCode::io, "cannot make the directory {}: {}", temporary.string(),
            fault.message());
    for (const NewFile& file : plan) {
      io::PosixFile out = io::PosixFile::create(path_of(file));
      if (file.bytes > 0) out.reserve(file.bytes);
      out.write_at(std::as_bytes(std::span(file.start)), 0);
      out.close();
    }
  }
  fs::path path_of(const NewFile& file) const {
    return is_directory ? temporary / file.name : temporary;
  }
  void discard() {
    std::error_code ignored;
    if (owned) fs::remove_all(temporary, ignored);
    owned = false;
  }
};

OutputFiles::OutputFiles(const Communicator& world, const fs::path& target,
                         std::vector<NewFile> files)
    : impl_(std::make_unique<Impl>(world, target)) {
  impl_->is_directory = !(files.size() == 1 && files[0].name.empty());
  try {
    io::throw_first(world, io::attempt([&] {
                      if (world.rank() == 0) impl_->create(files);
                    }));
    io::throw_first(world, io::attempt([&] {
                      for (const NewFile& file : files)
                        impl_->files.push_back(io::PosixFile::open_to_write(impl_->path_of(file)));
                    }));
  } catch (...) {
    impl_->discard();
    throw;
  }
}

OutputFiles::~OutputFiles() {
  impl_->discard();
}

const fs::path& OutputFiles::temporary() const {
  return impl_->temporary;
}

void OutputFiles::write(size_t file, int64_t offset, std::span<const std::byte> bytes) const {
  impl_->files[file].write_at(bytes, offset);
}

void OutputFiles::sync() const {
  for (const io::PosixFile& file : impl_->files) file.sync();
}

void OutputFiles::commit() {
  io::throw_first(impl_->world, io::attempt([&] {
                    if (impl_->world.rank() != 0) return;
                    if (impl_->is_directory) io::sync_directory(impl_->temporary);
                    io::rename_file(impl_->temporary, impl_->target);
                    impl_->owned = false;
                    io::sync_directory(fs::absolute(impl_->target).parent_path());
                  }));
}

}  // namespace trireme
