// Document starts against Megatron-LM's get_ltor_masks_and_position_ids, worked by hand.
#include "trireme/data/documents.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using Row = std::vector<int32_t>;

Row starts_of(const Row& tokens) {
  Row starts(tokens.size());
  const DocumentSizes sizes = find_documents(tokens, 99, starts);
  DocumentSizes expected;
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto length = static_cast<int64_t>(i) + 1 - starts[i];
    expected.add({.count = length == 1, .longest = length});
  }
  EXPECT_EQ(sizes.count, expected.count);
  EXPECT_EQ(sizes.longest, expected.longest);
  return starts;
}

// There: for each eod at i, position_ids[i+1:] restart from 0, and tokens from i+1 on do not attend
// to what is at or before i. So position ids are 0 1 2 | 0 1 | 0 | 0 1 for the second row.
TEST(Documents, StartBehindTheEnd) {
  EXPECT_EQ(starts_of({1, 2, 3}), (Row{0, 0, 0}));
  EXPECT_EQ(starts_of({5, 6, 99, 7, 99, 99, 8, 9}), (Row{0, 0, 0, 3, 3, 5, 6, 6}));
  EXPECT_EQ(starts_of({99, 99, 1}), (Row{0, 1, 2}));
  EXPECT_EQ(starts_of({1, 99}), (Row{0, 0}));
  EXPECT_EQ(starts_of({}), Row{});
  Row starts(8);
  const DocumentSizes sizes = find_documents(Row{5, 6, 99, 7, 99, 99, 8, 9}, 99, starts);
  EXPECT_EQ(sizes.count, 4);
  EXPECT_EQ(sizes.longest, 3);
  Row wrong(2);
  EXPECT_THROW(find_documents(Row{1}, 99, wrong), Error);
}

}  // namespace
}  // namespace trireme
