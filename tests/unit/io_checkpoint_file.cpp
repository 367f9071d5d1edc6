// One file: HDF5 and this reader see the same tensors; any damage is found; a file that lies about
// itself is refused before anything is allocated for it.
#include "trireme/io/checkpoint_file.hpp"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "support/checkpoint_bytes.hpp"

namespace trireme::test {
namespace {

const CheckpointBytes& sample() {
  static const CheckpointBytes bytes = checkpoint_bytes({{"weights/w", {37, 11}, DType::bf16},
                                                         {"weights/one", {1}},
                                                         {"weights/positions", {5}, DType::i32},
                                                         {"master/w", {37, 11}},
                                                         {"adam_m/w", {2, 3, 17011}}},
                                                        12);
  return bytes;
}

// The fault that opening and verifying finds; empty when there is none.
std::string fault_in(const std::filesystem::path& path) {
  try {
    return verify(path).fault();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ExitCode::bad_data)) << error.what();
    return error.what();
  }
}

std::string fault_of_bytes(const std::string& bytes) {
  const ScratchDirectory directory;
  write_bytes(directory.path() / "a.h5", bytes);
  return fault_in(directory.path() / "a.h5");
}

TEST(CheckpointFile, ReadsWhatWasWritten) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.h5";
  write_bytes(path, sample().bytes);
  EXPECT_TRUE(verify(path).whole());
  EXPECT_EQ(read_header(path), header_at(12));
  const CheckpointFile file(path);
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.tensors()[0].name, "adam_m/w");
  EXPECT_EQ(file.find("weights/x"), nullptr);
  const StoredTensor* tensor = file.find("master/w");
  ASSERT_NE(tensor, nullptr);
  std::vector<float> values(20);
  file.read(*tensor, 100, std::as_writable_bytes(std::span(values)));
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(__builtin_bit_cast(uint32_t, values[i]),
              element_bits({"master/w", {37, 11}}, static_cast<int64_t>(100 + i), 12));
  EXPECT_THROW(file.read(*tensor, 37 * 11 - 19, std::as_writable_bytes(std::span(values))), Error);
}

TEST(CheckpointFile, SharesAddUpToTheWhole) {
  const ScratchDirectory directory;
  // One tensor is large enough to be shared out.
  const CheckpointBytes made =
      checkpoint_bytes({{"weights/w", {3, 200'003}}, {"weights/b", {7}}}, 3);
  write_bytes(directory.path() / "a.h5", made.bytes);
  const CheckpointFile file(directory.path() / "a.h5");
  for (const int parts : {1, 2, 3, 7}) {
    std::vector<ElementScan> sum(file.tensors().size() + 1);
    for (int part = 0; part < parts; ++part) {
      const auto scans = file.scan_share(part, parts);
      for (size_t i = 0; i < sum.size(); ++i) sum[i].add(scans[i]);
    }
    EXPECT_EQ(file.judge(sum).fault(), "") << parts;
  }
}

// HDF5's own view, through the plain file driver.
TEST(CheckpointFile, IsAPlainHdf5File) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.h5";
  write_bytes(path, sample().bytes);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  for (const StoredTensor& tensor : sample().index.tensors) {
    const hid_t dataset = H5Dopen2(file, tensor.name.c_str(), H5P_DEFAULT);
    ASSERT_GE(dataset, 0) << tensor.name;
    EXPECT_EQ(static_cast<int64_t>(H5Dget_offset(dataset)), tensor.offset);
    const auto count = static_cast<size_t>(tensor.whole.elements());
    const StateTensor state{tensor.name, tensor.whole, tensor.dtype};
    if (tensor.dtype == DType::i32) {
      std::vector<int32_t> values(count);
      EXPECT_GE(H5Dread(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
                0);
      for (size_t i = 0; i < count; ++i)
        EXPECT_EQ(static_cast<uint32_t>(values[i]),
                  element_bits(state, static_cast<int64_t>(i), 12));
    } else {
      // bf16 too: HDF5 converts it as the float type that it is.
      std::vector<float> values(count);
      EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
                0);
      for (size_t i = 0; i < count; ++i) {
        const uint32_t bits = element_bits(state, static_cast<int64_t>(i), 12);
        const float expected = tensor.dtype == DType::bf16 ? from_bf16(static_cast<uint16_t>(bits))
                                                           : __builtin_bit_cast(float, bits);
        ASSERT_EQ(values[i], expected) << tensor.name << " " << i;
      }
    }
    H5Dclose(dataset);
  }
  int64_t step = 0;
  const hid_t attribute = H5Aopen(file, "step", H5P_DEFAULT);
  EXPECT_GE(H5Aread(attribute, H5T_NATIVE_INT64, &step), 0);
  EXPECT_EQ(step, 12);
  H5Aclose(attribute);
  H5Fclose(file);
}

TEST(CheckpointFile, H5dumpReadsIt) {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no h5dump here";
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.h5", out = directory.path() / "out";
  write_bytes(path, sample().bytes);
  const std::string command = "h5dump " + path.string() + " > " + out.string() + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string text = read_bytes(out);
  for (const char* expected : {"DATASET \"w\"", "ATTRIBUTE \"step\"", "GROUP \"adam_m\"",
                               "DATASET \"checksums\"", "(0): 12"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected;
}

TEST(CheckpointFile, LayoutHasManyTensorsAndKeepsAlignment) {
  std::vector<StateTensor> state;
  for (int i = 0; i < 700; ++i)
    state.push_back({fmt::format("{}/layers.{}.w", i % 2 == 0 ? "weights" : "master", i),
                     {1 + i % 3, i % 70 == 0 ? 30'000 : 5}});
  const CheckpointBytes made = checkpoint_bytes(state, 1);
  for (const StoredTensor& tensor : made.index.tensors)
    EXPECT_TRUE(tensor.bytes() < io::kAlignmentThreshold ||
                tensor.offset % io::alignment_for(made.index.tensors) == 0)
        << tensor.name;
  EXPECT_EQ(fault_of_bytes(made.bytes), "");
}

TEST(CheckpointFormat, AlignmentGrowsWithTheFile) {
  auto of = [](int count, int64_t elements) {
    return io::alignment_for(std::vector<StoredTensor>(static_cast<size_t>(count),
                                                       {"w", DType::f32, {elements}, 0, {}}));
  };
  EXPECT_EQ(of(100, 20'000), 4096);
  EXPECT_EQ(of(100, int64_t{2} << 20), 131072);
  EXPECT_EQ(of(100, int64_t{64} << 20), int64_t{1} << 20);
}

TEST(CheckpointFile, EveryFlippedBitIsFound) {
  std::mt19937_64 random(3);
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.h5";
  const std::string& bytes = sample().bytes;
  write_bytes(path, bytes);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto put_byte = [&](int64_t place, char byte) { file.seekp(place).put(byte).flush(); };
  // Anywhere in the file, then in the small parts that a random place would miss.
  std::vector<size_t> places;
  for (int i = 0; i < 1000; ++i) places.push_back(random() % bytes.size());
  const auto add_places = [&](int64_t first, int64_t count, int trials) {
    for (int i = 0; i < trials; ++i)
      places.push_back(static_cast<size_t>(first) + random() % static_cast<size_t>(count));
  };
  const io::FileIndex& index = sample().index;
  add_places(0, sizeof(io::Block), 60);
  add_places(index.records_offset, index.records_bytes(), 60);
  add_places(index.header_offset, index.header_bytes, 30);
  add_places(io::kBlockBytes, 4096, 60);
  for (const StoredTensor& tensor : index.tensors) add_places(tensor.offset, tensor.bytes(), 10);
  for (const size_t place : places) {
    const auto bit = static_cast<char>(1u << (random() % 8));
    put_byte(static_cast<int64_t>(place), static_cast<char>(bytes[place] ^ bit));
    EXPECT_NE(fault_in(path), "") << "byte " << place;
    put_byte(static_cast<int64_t>(place), bytes[place]);
  }
  EXPECT_EQ(fault_in(path), "");
}

TEST(CheckpointFile, NamesTheDamagedTensor) {
  std::string bytes = sample().bytes;
  bytes[static_cast<size_t>(sample().index.tensors[0].offset) + 5] ^= 1;
  EXPECT_EQ(fault_of_bytes(bytes), "adam_m/w does not match its checksum");
}

TEST(CheckpointFile, TruncatedOrExtendedFilesAreFound) {
  const std::string& bytes = sample().bytes;
  for (const size_t size : {size_t{0}, size_t{1}, sizeof(io::Block), size_t{1} << 20,
                            (size_t{1} << 20) + 100, bytes.size() / 2, bytes.size() - 1})
    EXPECT_NE(fault_of_bytes(bytes.substr(0, size)), "") << size;
  EXPECT_NE(fault_of_bytes(bytes + '\0'), "");
  EXPECT_NE(fault_of_bytes(std::string(bytes.size(), '\0')), "");
  const ScratchDirectory directory;
  EXPECT_EQ(error_text(ExitCode::no_input, [&] { (void)verify(directory.path() / "none.h5"); })
                .substr(0, 11),
            "cannot open");
  error_text(ExitCode::bad_data, [&] { (void)verify(directory.path()); });
}

TEST(CheckpointFile, NaNIsAFault) {
  CheckpointBytes made = sample();
  StoredTensor& tensor = made.index.tensors[1];
  ASSERT_EQ(tensor.name, "master/w");
  const uint32_t nan = 0x7fc00001u;
  std::memcpy(made.bytes.data() + tensor.offset + 8, &nan, 4);
  tensor.sum = scan_elements(tensor.dtype,
                             std::as_bytes(std::span(made.bytes)
                                               .subspan(static_cast<size_t>(tensor.offset),
                                                        static_cast<size_t>(tensor.bytes()))),
                             0)
                   .sum;
  made.seal();
  EXPECT_EQ(fault_of_bytes(made.bytes), "master/w holds 1 NaN and 0 infinite values");
}

// All sums are right, and the index lies.
struct Lie {
  const char* expected;
  std::function<void(io::FileIndex&)> index = [](io::FileIndex&) {};
  std::function<void(io::Record&)> first_record = [](io::Record&) {};
};

std::string fault_of_lie(const Lie& lie) {
  CheckpointBytes made = sample();
  lie.index(made.index);
  std::vector<io::Record> records = io::encode_records(made.index);
  lie.first_record(records[0]);
  std::memcpy(made.bytes.data() + made.index.records_offset, records.data(),
              records.size() * sizeof(io::Record));
  const io::Block block = io::encode_block(made.index, records);
  std::memcpy(made.bytes.data(), &block, sizeof(block));
  return fault_of_bytes(made.bytes);
}

TEST(CheckpointFile, RefusesAnIndexThatLies) {
  const auto index = [](const char* expected, std::function<void(io::FileIndex&)> change) {
    return Lie{.expected = expected, .index = std::move(change)};
  };
  const auto record = [](const char* expected, std::function<void(io::Record&)> change) {
    return Lie{.expected = expected, .first_record = std::move(change)};
  };
  const std::vector<Lie> lies = {
      index("overlap", [](auto& i) { i.tensors[1].offset = i.tensors[2].offset; }),
      index("overlap", [](auto& i) { i.tensors[1].offset = 0; }),
      index("overlap", [](auto& i) { i.tensors[0].offset = i.file_bytes - 8; }),
      index("beyond any file", [](auto& i) { i.tensors[0].offset = -8; }),
      index("out of order", [](auto& i) { i.tensors[1].name = i.tensors[0].name; }),
      index("GROUP/NAME", [](auto& i) { i.tensors[0].name = "../etc/passwd"; }),
      index("GROUP/NAME", [](auto& i) { i.tensors[0].name = "adam_m/a\nb"; }),
      index("outside the file", [](auto& i) { i.header_offset = i.file_bytes; }),
      index("outside the file", [](auto& i) { i.header_bytes = int64_t{1} << 60; }),
      index("JSON", [](auto& i) { i.header_bytes -= 1; }),
      index("/header overlaps", [](auto& i) { i.header_offset = i.tensors[0].offset; }),
      index("should have", [](auto& i) { i.file_bytes += 1; }),
      record("does not fit in 64 bits", [](auto& r) { r.extent[0] = r.extent[1] = 1ll << 40; }),
      record("should have", [](auto& r) { r.extent[0] *= 2; }),
      record("extent 1", [](auto& r) { r.extent[1] = -3; }),
      record("extent 1", [](auto& r) { r.extent[1] = 0; }),
      record("extent 3", [](auto& r) { r.extent[3] = 3; }),
      record("0 dimensions", [](auto& r) { r.dims = 0; }),
      record("dimensions", [](auto& r) { r.dims = uint64_t{1} << 63; }),
      record("unknown element type", [](auto& r) { r.dtype[0] = 'g'; }),
      record("has no end", [](auto& r) { r.name.fill('a'); }),
      record("beyond any file", [](auto& r) { r.offset = ~uint64_t{0}; }),
  };
  for (const Lie& lie : lies) {
    const std::string fault = fault_of_lie(lie);
    EXPECT_NE(fault.find(lie.expected), std::string::npos) << lie.expected << " | " << fault;
  }
}

TEST(CheckpointFile, RefusesANewerVersionByName) {
  CheckpointBytes made = sample();
  io::Block block;
  std::memcpy(&block, made.bytes.data(), sizeof(block));
  block.version = 2;
  const ElementSum sum =
      sum_bytes(std::as_bytes(std::span(&block, 1)).first(offsetof(io::Block, block_sum)), 0);
  block.block_sum = {sum.first, sum.second};
  std::memcpy(made.bytes.data(), &block, sizeof(block));
  const std::string fault = fault_of_bytes(made.bytes);
  EXPECT_NE(fault.find("format version 2; this program reads version 1"), std::string::npos)
      << fault;
}

}  // namespace
}  // namespace trireme::test
